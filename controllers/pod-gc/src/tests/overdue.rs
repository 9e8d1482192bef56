//! Pods that their kubelet does not terminate, though it reports.

use super::*;

/// Deleted, with a grace period of 30 s; its kubelet has reported the observed generation.
fn deleted(generation: i64, observed: i64) -> Obj {
    let deleted = pod("db-0").on("n").running().terminating().observed(observed);
    deleted.set("/metadata/generation", json!(generation))
}

fn decision(ready: &str, pod: &Obj, second: u64, namespace: Option<&str>) -> Decision {
    let world = World::listed();
    world.apply(Kind::Nodes, &node("n").ready(ready), at(0));
    world.apply(Kind::Pods, pod, at(0));
    world.confirm_all(at(second));
    let config = Config { agent_reports: namespace.map(Into::into), ..config() };
    decide_at(&world, &node_key("n"), at(second), &config)
}

#[test]
fn the_agents_report_is_read_when_the_kubelet_saw_the_deletion_and_had_its_time() {
    let ours = Some("pod-safety");
    let asks: &[&str] = &["remove db-0 because PodsEnded"];
    type Row = (&'static str, &'static str, Obj, u64, Option<&'static str>, &'static [&'static str]);
    let rows: [Row; 9] = [
        ("half a minute after its grace period", "True", deleted(2, 2), 60, ours, asks),
        ("its kubelet may report its end yet", "True", deleted(2, 2), 59, ours, &[]),
        ("its kubelet does not know of the deletion", "True", deleted(2, 1), 60, ours, &[]),
        ("its kubelet reports no generation", "True", deleted(2, 0), 60, ours, &[]),
        ("attack: a pod without a generation", "True", deleted(0, 0), 60, ours, &[]),
        ("reports of agents are not accepted", "True", deleted(2, 2), 60, None, &[]),
        ("its kubelet reports the node NotReady", "False", deleted(2, 2), 60, ours, asks),
        ("its kubelet does not report", "Unknown", deleted(2, 2), 60, ours, &[]),
        ("it was not deleted", "True", pod("db-0").on("n").running().observed(1), 60, ours, &[]),
    ];
    for (says, ready, pod, second, namespace, expected) in rows {
        assert_eq!(describe(&decision(ready, &pod, second, namespace)), expected, "{says}");
    }
}

#[test]
fn an_overdue_pod_is_checked_when_its_time_is_over_and_then_every_ten_seconds() {
    let again = |second| decision("True", &deleted(2, 2), second, Some("pod-safety")).requeue_at;
    assert_eq!((again(1), again(60)), (Some(at(60)), Some(at(70))));
}
