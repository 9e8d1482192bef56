//! The soft remedy of a node that reports, and the quorum read before each step of its incident.

use pod_safety_cache::testing::objects::pod;

use super::*;
use crate::api::{ConditionStatus, Drain, TriggerCondition};
use crate::model::PodKey;

const CORDON: &str = "PATCH /api/v1/nodes/n";
const POD: &str = "/api/v1/namespaces/ns/pods/db-0";
const EVICT: &str = "POST /api/v1/namespaces/ns/pods/db-0/eviction";

/// A node that reports, with this status of the condition.
fn shows(status: &str) -> Fixture {
    let mut fixture = Fixture::default();
    let ready = json!({ "type": "Ready", "status": "True" });
    fixture.node["status"]["conditions"] = json!([ready, { "type": "KernelDeadlock", "status": status }]);
    fixture.renewed = Arc::new(|_| 9);
    fixture.first = Arc::new(|request| match (request.method.as_str(), request.path.as_str()) {
        ("GET", POD) => Some(ApiAnswer::json(&pod("db-0").on("n").running().0)),
        ("PATCH", "/api/v1/nodes/n") => Some(ApiAnswer::json(&machine())),
        ("POST", path) if path.ends_with("/eviction") => {
            Some(ApiAnswer::json(&json!({ "kind": "Status", "status": "Success" })))
        }
        _ => None,
    });
    fixture
}

/// A step of an incident that began for the condition.
fn drain_step(step: impl Fn(Target) -> Step, status: NodeFenceStatus) -> Step {
    let mut target = target(status);
    target.spec.trigger.kind = Trigger::Unhealthy;
    target.spec.trigger.condition =
        Some(TriggerCondition { r#type: "KernelDeadlock".to_owned(), status: ConditionStatus::True });
    step(target)
}

fn key() -> PodKey {
    PodKey { namespace: "ns".into(), name: "db-0".into(), uid: Uid::new("uid-db-0").unwrap() }
}

fn drain(status: NodeFenceStatus) -> Step {
    drain_step(|target| Step::Drain(target, vec![key()]), status)
}

fn begun(cordoned: bool) -> NodeFenceStatus {
    let began = "2026-01-01T00:00:00Z".to_owned();
    let drain = Some(Drain { began, cordoned, rounds: 1, message: String::new() });
    NodeFenceStatus { drain, ..NodeFenceStatus::default() }
}

#[tokio::test(start_paused = true)]
async fn a_reporting_node_is_fenced_only_while_a_quorum_read_shows_the_condition() {
    for (status, expected) in [("True", "written"), ("False", "heard"), ("Unknown", "heard")] {
        let harness = harness(shows(status), |_, _| answer_with(Power::Off));
        harness.assert_outcome(drain_step(Step::Attempt, tried("off")), expected).await;
        assert_eq!(harness.log().is_empty(), expected == "heard", "{status}: {:?}", harness.log());
        harness.assert_outcome(drain(NodeFenceStatus::default()), expected).await;
    }
    let mut booted = shows("True");
    booted.node["status"]["nodeInfo"]["bootID"] = json!("b0000000-0000-4000-8000-000000000002");
    let harness = harness(booted, |_, _| answer_with(Power::Off));
    harness.assert_outcome(drain_step(Step::Attempt, tried("off")), "changed").await;
    harness.assert_outcome(drain(NodeFenceStatus::default()), "changed").await;
    harness.assert_no_requests();
}

#[tokio::test(start_paused = true)]
async fn the_cordon_is_recorded_before_it_is_written_and_pods_are_evicted_by_uid() {
    let harness = harness(shows("True"), |_, _| None);
    harness.assert_outcome(drain(NodeFenceStatus::default()), "written").await;
    assert_eq!(harness.requests(), [STATUS, CORDON, EVICT, STATUS]);
    let writes: Vec<Value> =
        harness.api.requests().iter().filter(|request| request.method == "PATCH").map(Received::json).collect();
    assert_eq!(writes[0]["status"]["drain"]["cordoned"], true);
    assert_eq!(writes[0]["status"]["drain"]["rounds"], 0);
    assert_eq!(writes[1]["spec"], json!({ "unschedulable": true }));
    assert_eq!(writes[2]["status"]["drain"]["rounds"], 1);
    let options = harness.written("/eviction")["deleteOptions"].clone();
    assert_eq!(options["preconditions"]["uid"], "uid-db-0");
    assert!(options["gracePeriodSeconds"].as_i64().unwrap() > 0, "{options}");
}

#[tokio::test(start_paused = true)]
async fn a_blocking_budget_is_recorded_and_the_step_succeeds() {
    let mut fixture = shows("True");
    let before = Arc::clone(&fixture.first);
    fixture.first = Arc::new(move |request| match request.method.as_str() {
        "POST" => Some(ApiAnswer::status(429, "TooManyRequests", "the budget db needs 1 healthy pods")),
        _ => before(request),
    });
    let harness = harness(fixture, |_, _| None);
    harness.assert_outcome(drain(begun(true)), "written").await;
    let drain = harness.written("nodefences")["status"]["drain"].clone();
    assert!(drain["message"].as_str().unwrap().starts_with("1 not evicted; ns/db-0: "), "{drain}");
    assert_eq!(drain["rounds"], 2);
}

#[tokio::test(start_paused = true)]
async fn the_node_is_uncordoned_at_the_end_only_if_the_incident_cordoned_it() {
    let cordoned = |uid: &str| {
        let mut fixture = shows("True");
        fixture.node["spec"]["unschedulable"] = json!(true);
        fixture.node["metadata"]["uid"] = json!(uid);
        fixture
    };
    let over = |cordoned| NodeFenceStatus { phase: Phase::Cancelled, ..begun(cordoned) };
    for (uid, by_us, expected) in
        [("uid-n", true, &[CORDON, STATUS][..]), ("uid-n", false, &[STATUS]), ("another", true, &[STATUS])]
    {
        let harness = harness(cordoned(uid), |_, _| None);
        harness.assert_outcome(drain_step(Step::Write, over(by_us)), "written").await;
        assert_eq!(harness.requests(), expected, "{uid} {by_us}");
        if expected.len() > 1 {
            assert_eq!(harness.written("/nodes/n")["spec"], json!({ "unschedulable": null }));
        }
    }
    let harness = harness(cordoned("uid-n"), |_, _| None);
    harness.assert_outcome(drain(NodeFenceStatus::default()), "written").await;
    assert_eq!(harness.written("nodefences")["status"]["drain"]["cordoned"], false, "somebody else's cordon");
}
