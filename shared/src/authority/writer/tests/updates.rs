//! Status updates: one write of each object at a time, and none is lost.

use pod_safety_leader::testing::CapturedLogs;
use serde_json::{Value, json};

use super::nodes::{of_node, of_pod, taint};
use super::volumes::update as of_volume;
use super::*;
use crate::authority::{BudgetUpdate, FinishedObject, NotDisruptedUpdate, RequestError, UngateUpdate, VolumeChange};
use crate::client::ApiError;
use crate::model::{BudgetKey, BudgetStatus, DisruptionAllowedCondition};
use crate::testing::Claimed as _;
use crate::testing::objects::uid;

/// A status that rests on this version.
pub(super) fn status(rv: &str) -> Intent {
    let pod = pod("a").force(Claim::KubeletTerminated).pod;
    Intent::Update(Update::NotDisrupted(NotDisruptedUpdate { pod, rv: rv.parse().unwrap(), generation: 1 }))
}

fn conflict(request: &Received) -> Answer {
    match request.method.as_str() {
        "PATCH" => Answer::status(409, "Conflict", "the object has been modified").delayed(Duration::from_secs(1)),
        _ => Answer::not_found(),
    }
}

/// An API server that accepts every write, and changes nothing.
fn unmoved(_: &Received) -> Answer {
    Answer::json(&pod("a").rv(1).0)
}

/// The watch delivered a budget's new spec while a status for the old spec was in flight. The write ended in a conflict,
/// the watch had nothing more to deliver, and the budget was not decided again until the next sweep.
#[tokio::test(start_paused = true)]
async fn an_update_rejected_during_a_write_is_woken_at_its_end() {
    for (script, outcome) in [(conflict as fn(&Received) -> Answer, "changed"), (slow, "written")] {
        let pool = pool(Leadership::always(), script);
        pool.submit_accepted(status("1"));
        advance(0.5).await;
        pool.submit_accepted(status("2"));
        assert_eq!(pool.wakes().len(), 0, "{outcome}: the write is on its way");
        advance(1.0).await;
        assert!(pool.completed()[0].ends_with(outcome), "{:?}", pool.completed());
        let wakes = pool.wakes();
        assert_eq!(wakes, [Mono::from_start(Duration::from_secs(1))], "{outcome}");
        pool.submit_accepted(status("2"));
        advance(0.1).await;
        assert_eq!(pool.api.writes().len(), 2, "{outcome}: the new version may be written over at once");
    }
}

/// A conflict need not have a cause that the watch still delivers: a first write was answered with 409, the budget waited
/// for a watch event that never came, and was decided again in the next sweep.
#[tokio::test(start_paused = true)]
async fn bug_a_budget_was_not_decided_again_after_a_conflict() {
    let pool = pool(Leadership::always(), conflict);
    pool.submit_accepted(status("1"));
    advance(1.5).await;
    assert!(pool.completed()[0].ends_with("changed"), "{:?}", pool.completed());
    assert_eq!(pool.wakes(), [Mono::from_start(Duration::from_secs(2))], "nobody else would");
    advance(0.5).await;
    pool.submit_accepted(status("1"));
}

/// The API server keeps the version if a write changes nothing, so no watch event comes. Once, requests for the budget were
/// rejected for half a minute as in flight, nothing woke up the controller at its end, and the budget stayed as it was
/// until the next sweep.
#[tokio::test(start_paused = true)]
async fn bug_a_budget_was_not_decided_again_after_a_write_without_effect() {
    let pool = pool(Leadership::always(), unmoved);
    pool.submit_accepted(status("1"));
    advance(0.5).await;
    assert!(pool.completed()[0].ends_with("no_effect"), "{:?}", pool.completed());
    let woken = Mono::from_start(Duration::from_secs(1));
    assert_eq!(pool.wakes(), [woken], "nobody else would");
    let early = pool.submit_intent(status("1"));
    assert_eq!(early, Submitted::Later(woken), "who comes before is told when to come again");
    for (at, writes) in [(1.1, 2), (3.2, 3), (7.3, 4)] {
        advance(at - pool.env.now().since_start().as_secs_f64()).await;
        assert_eq!(pool.submit_intent(status("1")), Submitted::Accepted, "at {at}");
        advance(0.05).await;
        assert_eq!(pool.api.writes().len(), writes, "tried ever more rarely");
    }
    assert_eq!(pool.submit_intent(status("2")), Submitted::Accepted, "a new version waits for nobody");
}

/// The same if the answer has no version.
#[tokio::test(start_paused = true)]
async fn bug_a_controller_rejected_after_a_write_was_not_woken() {
    let pool = pool(Leadership::always(), |_| Answer::garbage());
    pool.submit_accepted(status("1"));
    advance(0.5).await;
    assert!(pool.completed()[0].ends_with("written"), "{:?}", pool.completed());
    let until = Mono::from_start(Duration::from_secs(30));
    assert_eq!(pool.submit_intent(status("1")), Submitted::Later(until));
    advance(30.0).await;
    pool.submit_accepted(status("1"));
}

/// The body of the write for this update.
async fn body(update: Update) -> Value {
    let pool = pool(Leadership::always(), well);
    pool.submit_accepted(Intent::Update(update));
    advance(0.5).await;
    pool.api.requests().into_iter().find(|request| request.method == "PATCH").unwrap().json()
}

fn of_budget(allowed: Option<DisruptionAllowedCondition>, over: Vec<Box<str>>, transition: bool) -> Update {
    let budget = BudgetKey { namespace: "ns".into(), name: "b".into(), uid: uid("uid-b") };
    let status = BudgetStatus {
        observed_generation: 2,
        disruptions_allowed: 1,
        current_healthy: 3,
        desired_healthy: 4,
        expected_pods: 5,
        disrupted: BTreeMap::new(),
        allowed_condition: allowed,
    };
    Update::Budget(Box::new(BudgetUpdate { budget, rv: "7".parse().unwrap(), status, over, transition }))
}

/// A strategic merge patch keeps what it does not name, so it names what changes and nothing else.
#[tokio::test(start_paused = true)]
async fn a_budget_patch_names_only_removed_entries_and_the_transition_time() {
    let allowed = DisruptionAllowedCondition {
        status: "False".into(),
        reason: "InsufficientPods".into(),
        message: "m".into(),
        observed_generation: 2,
    };
    let numbers = json!({ "observedGeneration": 2, "disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 4, "expectedPods": 5 });
    let condition = json!({ "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "m", "observedGeneration": 2 });
    let turned = json!({ "lastTransitionTime": "2026-11-21T12:00:00Z" });
    for (over, allowed, transition, more) in [
        (vec![], None, true, json!({})),
        (vec!["gone".into()], None, false, json!({ "disruptedPods": { "gone": null } })),
        (vec![], Some(allowed.clone()), false, json!({ "conditions": [condition] })),
        (vec![], Some(allowed), true, json!({ "conditions": [joined(&condition, &turned)] })),
    ] {
        let written = body(of_budget(allowed, over, transition)).await;
        assert_eq!(written["status"], joined(&numbers, &more));
    }
}

fn joined(one: &Value, other: &Value) -> Value {
    let both = [one, other].into_iter().flat_map(|part| part.as_object().unwrap().clone());
    Value::Object(both.collect())
}

#[tokio::test(start_paused = true)]
async fn a_cleared_disruption_target_has_no_reason_and_message() {
    let pod = pod("a").force(Claim::KubeletTerminated).pod;
    let written = body(Update::NotDisrupted(NotDisruptedUpdate { pod, rv: "7".parse().unwrap(), generation: 3 })).await;
    let condition = json!({
        "type": "DisruptionTarget", "status": "False", "reason": null, "message": null, "observedGeneration": 3,
        "lastTransitionTime": "2026-11-21T12:00:00Z",
    });
    assert_eq!(written["status"]["conditions"], json!([condition]));
}

/// Updates, their outcomes, and the beginning of the log line, if there is one.
fn logged() -> Vec<(Update, UpdateOutcome, &'static str)> {
    let of = |intent| match intent {
        Intent::Update(update) => update,
        other => panic!("{other:?}"),
    };
    let failed = || RequestError::Failed(ApiError::TimedOut { after: Duration::from_secs(30) });
    let node = || of(of_node(taint("n", "5")));
    let cleared = || of(status("1"));
    let ungate = Update::Ungate(UngateUpdate {
        pod: pod("a").force(Claim::KubeletTerminated).pod,
        rv: "1".parse().unwrap(),
        pin: None,
    });
    let (name, rv) = ("f".into(), "1".parse().unwrap());
    let past = FinishedObject { kind: Kind::NodeFences, node: "n".into(), name, uid: uid("uid-f"), rv };
    vec![
        (node(), UpdateOutcome::Written, ""),
        (node(), failed().into(), ""),
        (node(), UpdateOutcome::NoEffect, "WARN an update of a node had no effect: the node is already as wanted"),
        (node(), UpdateOutcome::Heard, "WARN the kubelet reported meanwhile, so nothing was written"),
        (node(), RequestError::Changed.into(), "DEBUG a status was not written; deciding again"),
        (of(of_volume(true, VolumeChange::Allow)), failed().into(), ""),
        (cleared(), failed().into(), "WARN a status was not written; trying again"),
        (cleared(), UpdateOutcome::NoEffect, "WARN an update of a status had no effect"),
        (cleared(), UpdateOutcome::Written, "INFO the pod was not disrupted after all"),
        (cleared(), RequestError::Changed.into(), "DEBUG a status was not written; deciding again"),
        (of_budget(None, Vec::new(), false), UpdateOutcome::Written, "DEBUG status written"),
        (ungate, UpdateOutcome::Written, "INFO the pod's exclusive volumes are free"),
        (Update::DeleteFinished(past), UpdateOutcome::Written, "INFO deleted: it is over"),
        (of(of_pod("a", true, None)), UpdateOutcome::Written, "DEBUG conditions of a pod written"),
    ]
}

/// Lines of the journal are not logged a second time.
#[test]
fn each_update_outcome_is_logged_once_at_its_level() {
    for (update, outcome, expected) in logged() {
        let log = CapturedLogs::capture();
        update.as_write().log(&outcome, "test");
        let lines = log.take_lines();
        assert_eq!(lines.len(), usize::from(!expected.is_empty()), "{update:?}: {lines:?}");
        assert!(lines.iter().all(|line| line.starts_with(expected)), "{expected}: {lines:?}");
    }
}
