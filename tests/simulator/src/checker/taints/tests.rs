//! Evictions by taint that no controller here performs, recorded in the checker as if one had.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::super::tests::{self, ME, POD, change, seconds};
use super::super::{Checker, Invariant};
use crate::api::ApiRequest;
use crate::world::stamp;

const NODE: &str = "/api/v1/nodes/node-0";

/// A node with a taint that was added after so many seconds, and `data-0` on it, which tolerates the taint for `bears`
/// seconds; `None`: without limit.
fn broken(bears: Option<u64>, history: impl AsyncFnOnce(&Arc<Checker>)) -> Vec<Invariant> {
    tests::broken(async |checker| {
        let lease = json!({ "metadata": { "name": "pod-safety" }, "spec": { "holderIdentity": ME } });
        changed(checker, "Lease", "kube-system/pod-safety", lease);
        changed(checker, "Pod", "default/data-0", pod(bears));
        seconds(10).await;
        changed(checker, "Node", "node-0", node(true));
        history(checker).await;
    })
}

fn pod(bears: Option<u64>) -> Value {
    let mut toleration = json!({ "key": "k", "operator": "Exists" });
    if let Some(seconds) = bears {
        toleration["tolerationSeconds"] = seconds.into();
    }
    json!({
        "metadata": { "name": "data-0", "namespace": "default", "uid": "u1", "creationTimestamp": stamp(Duration::ZERO) },
        "spec": { "nodeName": "node-0", "terminationGracePeriodSeconds": 30, "tolerations": [toleration] },
        "status": { "phase": "Running" },
    })
}

fn node(tainted: bool) -> Value {
    let taint = json!({ "key": "k", "effect": "NoExecute", "timeAdded": stamp(Duration::from_secs(10)) });
    json!({ "metadata": { "name": "node-0" }, "spec": { "taints": if tainted { json!([taint]) } else { json!([]) } } })
}

fn changed(checker: &Checker, kind: &str, name: &str, after: Value) {
    changed_by(checker, "somebody", kind, name, after);
}

fn changed_by(checker: &Checker, caller: &str, kind: &str, name: &str, after: Value) {
    checker.executed(&ApiRequest::new(caller, Method::POST, "/"), 201, &[change(kind, name, None, Some(after))]);
}

fn read_node(checker: &Checker) {
    checker.executed(&ApiRequest::new(ME, Method::GET, NODE), 200, &[]);
}

fn request_with_body(checker: &Checker, method: Method, path: &str, body: &Value) {
    checker.executed(&ApiRequest { body: body.to_string().into(), ..ApiRequest::new(ME, method, path) }, 200, &[]);
}

fn marks(checker: &Checker) {
    let condition = json!({ "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager" });
    let body = json!({ "metadata": { "uid": "u1", "resourceVersion": "1" }, "status": { "conditions": [condition] } });
    request_with_body(checker, Method::PATCH, &format!("{POD}/status"), &body);
}

fn deletes(checker: &Checker, grace: i64) {
    let preconditions = json!({ "uid": "u1", "resourceVersion": "2" });
    request_with_body(
        checker,
        Method::DELETE,
        POD,
        &json!({ "gracePeriodSeconds": grace, "preconditions": preconditions }),
    );
}

fn reads_and_marks(checker: &Checker) {
    read_node(checker);
    marks(checker);
}

#[test]
fn s14_no_pod_is_evicted_before_its_time() {
    let due = broken(Some(20), async |checker| {
        seconds(20).await;
        reads_and_marks(checker);
        deletes(checker, 30);
    });
    assert_eq!(due, [], "its time is over");
    let early = broken(Some(20), async |checker| {
        seconds(19).await;
        reads_and_marks(checker);
    });
    assert_eq!(early, [Invariant::Tolerance]);
    let ever = broken(None, async |checker| {
        seconds(500).await;
        reads_and_marks(checker);
    });
    assert_eq!(ever, [Invariant::Tolerance]);
}

/// Seed 23344: the leader's clock was an hour ahead, and the whole second in which it stamped a taint began 0.2 s
/// earlier. The pod was deleted gracefully by that stamp, as it is by the stamps of clocks that are right.
#[test]
fn s14_a_taint_stamped_by_a_fast_clock_counts_from_that_second_and_no_other_future_one() {
    const AHEAD: u64 = 3_600;
    for (what, by, ahead, marked, expected) in [
        ("by a clock that is ahead", ME, 3_600, 30_000, vec![]),
        ("by that clock, before its second", ME, 3_600, 29_900, vec![Invariant::Tolerance]),
        ("by a clock that was set right since", ME, 0, 30_000, vec![Invariant::Tolerance]),
        ("by a clock that is ahead by less", ME, 1_800, 30_000, vec![Invariant::Tolerance]),
        ("by somebody else", "replica-1.1", 3_600, 30_000, vec![Invariant::Tolerance]),
        ("by somebody else, when its time is over", "replica-1.1", 3_600, 30_400, vec![]),
    ] {
        let violations = broken(Some(20), async |checker| {
            changed(checker, "Node", "node-0", node(false));
            checker.clock_of(ME, ahead);
            tokio::time::sleep(Duration::from_millis(400)).await;
            let mut tainted = node(true);
            tainted["spec"]["taints"][0]["timeAdded"] = json!(stamp(Duration::from_secs(10 + AHEAD)));
            changed_by(checker, by, "Node", "node-0", tainted);
            tokio::time::sleep(Duration::from_millis(marked) - checker.now()).await;
            reads_and_marks(checker);
        });
        assert_eq!(violations, expected, "stamped {what}");
    }
}

#[test]
fn s14_the_node_is_read_right_before_the_eviction_and_that_read_counts() {
    let blind = broken(Some(5), async |checker| {
        seconds(5).await;
        marks(checker);
    });
    assert_eq!(blind, [Invariant::Tolerance], "nobody looked");
    let old = broken(Some(5), async |checker| {
        read_node(checker);
        seconds(5).await;
        marks(checker);
    });
    assert_eq!(old, [Invariant::Tolerance], "somebody looked long ago");
    let lifted = broken(Some(5), async |checker| {
        seconds(5).await;
        changed(checker, "Node", "node-0", node(false));
        reads_and_marks(checker);
    });
    assert_eq!(lifted, [Invariant::Tolerance], "the look found no taint");
    let since = broken(Some(5), async |checker| {
        seconds(5).await;
        read_node(checker);
        changed(checker, "Node", "node-0", node(false));
        marks(checker);
    });
    assert_eq!(since, [], "it was lifted after the look: nobody can know");
}

#[test]
fn s12_and_s5_a_graceful_deletion_is_marked_and_has_the_pods_own_grace() {
    let unmarked = broken(Some(0), async |checker| deletes(checker, 30));
    assert_eq!(unmarked, [Invariant::Hygiene]);
    let short = broken(Some(0), async |checker| {
        reads_and_marks(checker);
        deletes(checker, 29);
    });
    assert_eq!(short, [Invariant::Grace]);
}

#[test]
fn l10_a_pod_whose_toleration_expired_is_evicted_in_time() {
    let late = broken(Some(20), async |checker| {
        seconds(25).await;
        checker.check_taints();
        seconds(1).await;
        checker.check_taints();
        checker.check_taints();
    });
    assert_eq!(late, [Invariant::Evicted], "said once, and not before five seconds are over");
    let troubled = broken(Some(20), async |checker| {
        checker.control_is_troubled(checker.now() + Duration::from_secs(60));
        seconds(100).await;
        checker.check_taints();
    });
    assert_eq!(troubled, [], "what failed may be tried again for a while");
    let ever = broken(None, async |checker| {
        seconds(500).await;
        checker.check_taints();
    });
    assert_eq!(ever, []);
}

#[test]
fn l10_a_clock_that_jumped_back_may_lengthen_what_a_new_leader_sees() {
    let behind = broken(Some(20), async |checker| {
        checker.clock_of(ME, -3_600);
        seconds(26).await;
        checker.check_taints();
    });
    assert_eq!(behind, [Invariant::Evicted], "it saw the taint come");
}
