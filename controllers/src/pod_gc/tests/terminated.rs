//! Terminated pods above the threshold.

use pod_safety_shared::drive::Decision;
use pod_safety_shared::model::Kind;
use pod_safety_shared::testing::{World, at};
use serde_json::json;

use super::{Config, Key, asked, config, decided, ended, node, orphan, pod, reasons};

fn terminated_world() -> World {
    let world = World::listed();
    world.apply(Kind::Nodes, &node("n", "True", None), at(0));
    for (name, second) in [("young", 9), ("old", 1), ("b", 5), ("a", 5)] {
        let made = format!("2026-01-01T00:00:0{second}Z");
        world.apply(
            Kind::Pods,
            &pod(name, "n", |pod| {
                ended(pod);
                pod["metadata"]["creationTimestamp"] = json!(made);
            }),
            at(0),
        );
    }
    let evicted = pod("evicted", "n", |pod| {
        ended(pod);
        pod["status"]["phase"] = json!("Failed");
        pod["status"]["reason"] = json!("Evicted");
        pod["metadata"]["creationTimestamp"] = json!("2026-01-02T00:00:00Z");
    });
    world.apply(Kind::Pods, &evicted, at(0));
    world
}

#[test]
fn terminated_pods_above_the_threshold_go_evicted_first_then_oldest_then_by_name() {
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
            asked(&decided(&world, &Key::Terminated, at(1), &with(Some(threshold)))),
            expected,
            "threshold {threshold}"
        );
    }
    assert_eq!(
        decided(&world, &Key::Terminated, at(1), &with(None)),
        Decision::default(),
        "0 or less switches it off"
    );
}

#[test]
fn a_phase_without_proof_is_held_and_lets_the_others_pass() {
    let world = terminated_world();
    let lying = pod("lying", "n", |pod| {
        pod["status"]["phase"] = json!("Failed");
        pod["metadata"]["creationTimestamp"] = json!("2025-01-01T00:00:00Z");
    });
    let odd = pod("odd", "n", |pod| {
        pod["status"] = json!({});
        pod["metadata"]["creationTimestamp"] = json!("2025-01-01T00:00:00Z");
    });
    world.apply(Kind::Pods, &lying, at(0));
    world.apply(Kind::Pods, &odd, at(0));
    let decision =
        decided(&world, &Key::Terminated, at(1), &Config { terminated_threshold: Some(5), ..config() });
    assert_eq!(
        asked(&decision),
        ["remove evicted because KubeletTerminated", "remove old because KubeletTerminated"]
    );
    assert_eq!(reasons(&decision), ["TerminalButRunning", "PhaseUnreadable"]);
}

#[test]
fn a_pod_that_is_being_removed_as_an_orphan_is_not_held_as_terminated() {
    // Between our PATCH and our DELETE it is Failed, with containers reported running.
    let world = orphan();
    for name in ["web-0", "web-1", "web-2"] {
        world.apply(Kind::Pods, &pod(name, "gone", |pod| pod["status"]["phase"] = json!("Failed")), at(41));
    }
    assert_eq!(decided(&world, &Key::Terminated, at(42), &config()), Decision::default());
}

#[test]
fn bug_an_orphan_between_our_two_writes_pushed_another_pod_over_the_threshold() {
    let world = terminated_world();
    let failed = pod("orphan", "gone", |pod| pod["status"]["phase"] = json!("Failed"));
    world.apply(Kind::Pods, &failed, at(1));
    let exactly = Config { terminated_threshold: Some(5), ..config() };
    assert_eq!(decided(&world, &Key::Terminated, at(2), &exactly), Decision::default());
    let one_less = Config { terminated_threshold: Some(4), ..config() };
    assert_eq!(
        asked(&decided(&world, &Key::Terminated, at(2), &one_less)),
        ["remove evicted because KubeletTerminated"]
    );
}
