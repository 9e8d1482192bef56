//! The soft remedy of a node that reports, and the live read before each step of its incident.

use pod_safety_cache::testing::objects::pod;

use super::*;
use crate::api::{ConditionStatus, Drain, TriggerCondition};
use crate::model::PodKey;

const CORDON: &str = "PATCH /api/v1/nodes/n";
const POD: &str = "/api/v1/namespaces/ns/pods/db-0";
const EVICT: &str = "POST /api/v1/namespaces/ns/pods/db-0/eviction";

/// A node that reports, and shows this condition.
fn shows(status: &str) -> There {
    let mut there = There::default();
    let ready = json!({ "type": "Ready", "status": "True" });
    there.node["status"]["conditions"] = json!([ready, { "type": "KernelDeadlock", "status": status }]);
    there.renewed = Arc::new(|_| 9);
    there.first = Arc::new(|asked| match (asked.method.as_str(), asked.path.as_str()) {
        ("GET", POD) => Some(Says::json(&pod("db-0").on("n").running().0)),
        ("PATCH", "/api/v1/nodes/n") => Some(Says::json(&machine())),
        ("POST", path) if path.ends_with("/eviction") => {
            Some(Says::json(&json!({ "kind": "Status", "status": "Success" })))
        }
        _ => None,
    });
    there
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
async fn a_node_that_reports_is_fenced_only_while_a_live_read_shows_the_condition() {
    for (status, wanted) in [("True", "written"), ("False", "heard"), ("Unknown", "heard")] {
        let scene = scene(shows(status), |_, _| answer_with(Power::Off));
        scene.ends(drain_step(Step::Attempt, tried("off")), wanted).await;
        assert_eq!(scene.log().is_empty(), wanted == "heard", "{status}: {:?}", scene.log());
        scene.ends(drain(NodeFenceStatus::default()), wanted).await;
    }
    let mut booted = shows("True");
    booted.node["status"]["nodeInfo"]["bootID"] = json!("b0000000-0000-4000-8000-000000000002");
    let scene = scene(booted, |_, _| answer_with(Power::Off));
    scene.ends(drain_step(Step::Attempt, tried("off")), "changed").await;
    scene.ends(drain(NodeFenceStatus::default()), "changed").await;
    scene.silent();
}

#[tokio::test(start_paused = true)]
async fn the_cordon_is_recorded_before_it_is_made_and_the_pod_is_evicted_by_its_identity() {
    let scene = scene(shows("True"), |_, _| None);
    scene.ends(drain(NodeFenceStatus::default()), "written").await;
    assert_eq!(scene.requests(), [STATUS, CORDON, EVICT, STATUS]);
    let writes: Vec<Value> =
        scene.api.requests().iter().filter(|asked| asked.method == "PATCH").map(Received::json).collect();
    assert_eq!(writes[0]["status"]["drain"]["cordoned"], true);
    assert_eq!(writes[0]["status"]["drain"]["rounds"], 0);
    assert_eq!(writes[1]["spec"], json!({ "unschedulable": true }));
    assert_eq!(writes[2]["status"]["drain"]["rounds"], 1);
    let options = scene.written("/eviction")["deleteOptions"].clone();
    assert_eq!(options["preconditions"]["uid"], "uid-db-0");
    assert!(options["gracePeriodSeconds"].as_i64().unwrap() > 0, "{options}");
}

#[tokio::test(start_paused = true)]
async fn what_a_budget_does_not_allow_is_said_and_is_no_failure() {
    let mut there = shows("True");
    let before = Arc::clone(&there.first);
    there.first = Arc::new(move |asked| match asked.method.as_str() {
        "POST" => Some(Says::status(429, "TooManyRequests", "the budget db needs 1 healthy pods")),
        _ => before(asked),
    });
    let scene = scene(there, |_, _| None);
    scene.ends(drain(begun(true)), "written").await;
    let drain = scene.written("nodefences")["status"]["drain"].clone();
    assert!(drain["message"].as_str().unwrap().starts_with("1 not evicted; ns/db-0: "), "{drain}");
    assert_eq!(drain["rounds"], 2);
}

#[tokio::test(start_paused = true)]
async fn at_the_end_the_node_is_uncordoned_if_it_was_cordoned_for_this_and_is_the_same() {
    let cordoned = |uid: &str| {
        let mut there = shows("True");
        there.node["spec"]["unschedulable"] = json!(true);
        there.node["metadata"]["uid"] = json!(uid);
        there
    };
    let over = |cordoned| NodeFenceStatus { phase: Phase::Cancelled, ..begun(cordoned) };
    for (uid, by_us, wanted) in
        [("uid-n", true, &[CORDON, STATUS][..]), ("uid-n", false, &[STATUS]), ("another", true, &[STATUS])]
    {
        let scene = scene(cordoned(uid), |_, _| None);
        scene.ends(drain_step(Step::Write, over(by_us)), "written").await;
        assert_eq!(scene.requests(), wanted, "{uid} {by_us}");
        if wanted.len() > 1 {
            assert_eq!(scene.written("/nodes/n")["spec"], json!({ "unschedulable": null }));
        }
    }
    let scene = scene(cordoned("uid-n"), |_, _| None);
    scene.ends(drain(NodeFenceStatus::default()), "written").await;
    assert_eq!(scene.written("nodefences")["status"]["drain"]["cordoned"], false, "somebody else's cordon");
}
