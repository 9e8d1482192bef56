//! Terminated pods above the threshold.

use pod_safety_shared::testing::hold_reasons;
use pod_safety_shared::testing::objects::{node, pod};

use super::*;

fn made_at(time: &str, pod: Obj) -> Obj {
    pod.set("/metadata/creationTimestamp", json!(time))
}

fn terminated_world() -> World {
    let world = World::listed();
    world.apply(Kind::Nodes, &node("n").ready("True"), at(0));
    for (name, second) in [("young", 9), ("old", 1), ("b", 5), ("a", 5)] {
        let made = format!("2026-01-01T00:00:0{second}Z");
        world.apply(Kind::Pods, &made_at(&made, pod(name).on("n").terminated()), at(0));
    }
    let evicted = pod("evicted").on("n").terminated().phase("Failed").set("/status/reason", json!("Evicted"));
    world.apply(Kind::Pods, &made_at("2026-01-02T00:00:00Z", evicted), at(0));
    world
}

#[test]
fn terminated_pods_above_the_threshold_are_deleted_evicted_first_then_oldest_then_by_name() {
    let with = |threshold| Config { terminated_threshold: threshold, ..config() };
    let world = terminated_world();
    let order = ["evicted", "old", "a", "b", "young"];
    for threshold in 1..=6_usize {
        let expected: Vec<_> = order
            .iter()
            .take(5_usize.saturating_sub(threshold))
            .map(|name| format!("remove {name} because KubeletTerminated"))
            .collect();
        assert_eq!(
            describe(&decide_at(&world, &Key::Terminated, at(1), &with(Some(threshold)))),
            expected,
            "threshold {threshold}"
        );
    }
    assert_eq!(decide_at(&world, &Key::Terminated, at(1), &with(None)), Decision::default(), "it is switched off");
}

#[test]
fn a_pod_that_was_deleted_and_has_volumes_is_left_to_its_kubelet() {
    let same: fn(Obj) -> Obj = |pod| pod;
    for (what, change, old) in [("was not deleted", same, 1), ("was deleted", Obj::terminating, 0)] {
        let world = World::listed();
        world.apply(Kind::Nodes, &node("n").ready("True"), at(0));
        let ended = |name: &str| pod(name).on("n").using_claim("c").terminated();
        world.apply(Kind::Pods, &made_at("2026-01-01T00:00:01Z", change(ended("old"))), at(0));
        world.apply(Kind::Pods, &made_at("2026-01-01T00:00:02Z", ended("young")), at(0));
        let config = Config { terminated_threshold: Some(0), ..config() };
        let requests = describe(&decide_at(&world, &Key::Terminated, at(1), &config));
        let of = |name: &str| requests.iter().filter(|word| word.contains(name)).count();
        assert_eq!((of("old"), of("young")), (old, 1), "the pod {what}: {requests:?}");
    }
}

/// Pods that were deleted and that a finalizer or a kubelet keeps are the oldest of those above the threshold.
#[test]
fn bug_terminated_pods_below_the_threshold_were_deleted_beside_those_that_finalizers_keep() {
    let kept = |pod: Obj| pod.terminating().set("/metadata/deletionGracePeriodSeconds", json!(0));
    let by_finalizer = |pod: Obj| kept(pod).set("/metadata/finalizers", json!(["example.com/a"]));
    let by_kubelet = |pod: Obj| pod.terminating().using_claim("c");
    let rows: [(&str, &dyn Fn(Obj) -> Obj); 2] = [("a finalizer", &by_finalizer), ("its kubelet", &by_kubelet)];
    for (what, keep) in rows {
        let world = terminated_world();
        for older in ["first", "second"] {
            let older = keep(pod(older).on("n").terminated());
            world.apply(Kind::Pods, &made_at("2025-01-01T00:00:00Z", older), at(0));
        }
        // An evicted pod goes before older ones.
        for (threshold, expected) in [(5, &["evicted"][..]), (4, &["evicted"]), (3, &["evicted", "old"])] {
            let config = Config { terminated_threshold: Some(threshold), ..config() };
            let expected: Vec<_> =
                expected.iter().map(|name| format!("remove {name} because KubeletTerminated")).collect();
            let requests = describe(&decide_at(&world, &Key::Terminated, at(1), &config));
            assert_eq!(requests, expected, "{what} keeps two, {threshold} may stay");
        }
    }
}

#[test]
fn a_phase_without_proof_is_held_and_does_not_hold_up_the_others() {
    let world = terminated_world();
    let lying = pod("lying").on("n").running().phase("Failed");
    let odd = pod("odd").on("n").set("/status", json!({}));
    for older in [lying, odd] {
        world.apply(Kind::Pods, &made_at("2025-01-01T00:00:00Z", older), at(0));
    }
    let decision = decide_at(&world, &Key::Terminated, at(1), &Config { terminated_threshold: Some(5), ..config() });
    assert_eq!(
        describe(&decision),
        ["remove evicted because KubeletTerminated", "remove old because KubeletTerminated"]
    );
    assert_eq!(hold_reasons(&decision), ["TerminalButRunning", "PhaseUnreadable"]);
}

#[test]
fn a_pod_that_is_being_removed_as_an_orphan_is_not_held_as_terminated() {
    // Between our PATCH and our DELETE it is Failed, with containers reported running.
    let world = orphan();
    for name in ["web-0", "web-1", "web-2"] {
        world.apply(Kind::Pods, &pod(name).on("gone").running().phase("Failed"), at(41));
    }
    assert_eq!(decide_at(&world, &Key::Terminated, at(42), &config()), Decision::default());
}

#[test]
fn bug_an_orphan_between_our_two_writes_pushed_another_pod_over_the_threshold() {
    let world = terminated_world();
    let failed = pod("orphan").on("gone").running().phase("Failed");
    world.apply(Kind::Pods, &failed, at(1));
    let exactly = Config { terminated_threshold: Some(5), ..config() };
    assert_eq!(decide_at(&world, &Key::Terminated, at(2), &exactly), Decision::default());
    let one_less = Config { terminated_threshold: Some(4), ..config() };
    assert_eq!(
        describe(&decide_at(&world, &Key::Terminated, at(2), &one_less)),
        ["remove evicted because KubeletTerminated"]
    );
}
