//! The history of an object is that of its UID, and that of a node is of its present boot.

use pod_safety_explain::timeline;

use super::*;

const EARLIER_BOOT: &str = "b0000000-0000-4000-8000-000000000000";

fn has(history: &[Moment], what: &str) -> bool {
    history.iter().any(|one| one.what.contains(what))
}

#[test]
fn bug_earlier_boots_and_earlier_nodes_were_in_the_history_of_the_present_node() {
    let mut fixture = Fixture::with_lost_node();
    fixture.incident(EARLIER_BOOT, "2026-11-14T10:00:00Z", &[("Fenced", "2026-11-14T10:01:00Z")]);
    // Kubelets give the name of the node as its UID.
    for (reason, uid) in
        [("FencingBegins", "uid-earlier"), ("NodeNotReady", "uid-worker-b1"), ("Rebooted", "worker-b1")]
    {
        fixture.add_event("node/worker-b1", reason, "why");
        fixture.events.last_mut().unwrap().uid = uid.to_owned();
    }
    let answer = fixture.node("worker-b1");
    let before = &answer.before.as_ref().unwrap().history;
    for (what, is_earlier) in
        [("NodeFence Fenced", true), ("FencingBegins", true), ("NodeNotReady", false), ("Rebooted", false)]
    {
        assert_eq!((has(before, what), has(&answer.history, what)), (is_earlier, !is_earlier), "{what}: {answer:?}");
    }
    let text = page(&answer, false, Paint::plain());
    let title = "BEFORE: an earlier boot or Node of this name, until 2026-11-21 10:22:40 (UTC)\n";
    assert!(text.contains(title), "{text}");
    let since = "2026-11-14T00:00:00Z".parse().unwrap();
    assert!(has(&fixture.with_context(|ctx| timeline(since, ctx)), "NodeFence Fenced"), "the timeline has all of it");
}

/// The eviction by a taint was called "an eviction or preemption", and 50 seconds were 49.
#[test]
fn bug_a_disruption_had_no_reason_and_the_time_to_the_loss_was_a_second_short() {
    let fixture = Fixture::with_lost_node();
    fixture.pod_with("orders-1", "worker-b1", |pod| {
        fixture::terminating(pod);
        let (kind, reason, at) = ("DisruptionTarget", "DeletionByTaintManager", "2026-11-21T10:19:55Z");
        pod["status"]["conditions"] =
            json!([{ "type": kind, "status": "True", "reason": reason, "lastTransitionTime": at }]);
    });
    let renewed = json!("2026-11-21T10:14:05.700000Z");
    fixture.put(Kind::NodeLeases, objects::lease("worker-b1", 0).set("/spec/renewTime", renewed));
    let history = fixture.pod("orders-1").history;
    assert!(has(&history, "DisruptionTarget: DeletionByTaintManager"), "{history:?}");
    assert!(history.iter().any(|one| one.detail == "50s after its last heartbeat"), "{history:?}");
}

/// The successor on a node that was fenced last week had "switch worker-a off" in its history.
#[test]
fn bug_fencing_from_before_a_pod_existed_was_in_its_history() {
    let fixture = Fixture::with_lost_node();
    fixture.policy("Asserted");
    fixture.fence("Fencing", &[("2026-11-21T10:15:10Z", Some("why")), ("2026-11-21T10:17:10Z", Some("why"))]);
    fixture.incident(EARLIER_BOOT, "2026-11-21T10:18:00Z", &[("Fenced", "2026-11-21T10:19:50Z")]);
    for (created, switched, fenced) in [
        ("2026-11-02T08:00:00Z", 2, true),
        ("2026-11-21T10:16:00Z", 1, true),
        ("2026-11-21T10:19:00Z", 0, true),
        ("2026-11-21T10:20:00Z", 0, false),
    ] {
        fixture.pod_with("orders-1", "worker-b1", |pod| {
            fixture::terminating(pod);
            pod["metadata"]["creationTimestamp"] = json!(created);
        });
        let history = fixture.pod("orders-1").history;
        let attempts = history.iter().filter(|one| one.what == "switch worker-b1 off").count();
        assert_eq!(attempts, switched, "{created}: {history:?}");
        assert_eq!(has(&history, "NodeFence Fenced"), fenced, "{created}: {history:?}");
    }
}
