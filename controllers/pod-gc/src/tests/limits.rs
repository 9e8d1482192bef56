//! The limits that safety rests on, as numbers, each with its argument; and whose evidence it is.

use pod_safety_shared::testing::objects::{BOOT, NEXT_BOOT};
use std::time::Duration;

use pod_safety_shared::model::Kind;
use pod_safety_shared::testing::{World, at};
use serde_json::{Value, json};

use super::{Config, Key, config, decide_at, describe, hold_reasons, lease, node, node_key, orphan, pod};

/// Two minutes and a half are two bookmarks of an API server and half a minute more: who is silent for longer may have
/// lost its connection, and what is known is old.
#[test]
fn what_is_known_counts_for_150_seconds() {
    let world = orphan();
    let last_heard = 100;
    let decided = |now: u64| decide_at(&world, &node_key("gone"), at(now), &config());
    assert_eq!(describe(&decided(last_heard + 150)), ["remove web-0 because NodeGone"]);
    let late = decided(last_heard + 151);
    assert_eq!((describe(&late), hold_reasons(&late)), (vec![], vec!["Stale"]));
    assert_eq!(late.requeue_at, Some(at(last_heard + 151 + 10)), "and it is looked at again in ten seconds");
}

/// A first look whose kubelet was heard at the same moment may be older than that sign: only a later one begins.
#[test]
fn a_read_of_the_moment_of_a_sign_of_life_begins_no_quarantine() {
    for (heard, is_alive) in [(0, false), (1, true), (2, true)] {
        let world = World::listed();
        world.apply(Kind::NodeLeases, &lease("gone", 0).rv(1), at(0));
        world.apply(Kind::Pods, &pod("web-0").on("gone"), at(0));
        if heard > 0 {
            world.apply(Kind::NodeLeases, &lease("gone", 10).rv(2), at(heard));
        }
        world.record_absence_read("gone", at(1));
        world.confirm_all(at(20));
        let expected = if is_alive { "KubeletAlive" } else { "Quarantine" };
        assert_eq!(
            hold_reasons(&decide_at(&world, &node_key("gone"), at(20), &config())),
            [expected],
            "heard at {heard}, read at 1"
        );
    }
}

/// As long as the tolerations last that admission gives each pod (`DefaultTolerationSeconds`): a kubelet that is restarted
/// within them registers again, and keeps its pods. `connected` shows that ten seconds before is too early.
#[test]
fn a_kubelet_that_lives_without_its_node_has_five_minutes_to_register() {
    assert_eq!(super::super::decide::REGISTRATION_GRACE, Duration::from_secs(300));
}

/// While something is waited for, it is looked at each ten seconds, and at the last to the moment.
#[test]
fn a_missing_node_is_looked_at_each_ten_seconds_and_at_the_end_of_its_quarantine() {
    let world = orphan();
    for (now, again) in [(1, 11), (20, 30), (30, 40), (31, 41), (35, 41), (40, 41)] {
        assert_eq!(
            decide_at(&world, &node_key("gone"), at(now), &config()).requeue_at,
            Some(at(again)),
            "at {now}"
        );
    }
    world.apply(Kind::NodeLeases, &lease("gone", 0), at(30));
    for (now, again) in [(31, 41), (60, 70), (61, 70), (69, 70), (70, 71), (90, 91)] {
        assert_eq!(
            decide_at(&world, &node_key("gone"), at(now), &config()).requeue_at,
            Some(at(again)),
            "at {now}"
        );
    }
}

/// The lowest quarantine that a flag takes is its matter; here none is added and none is taken away.
#[test]
fn the_quarantine_is_as_long_as_was_said_and_counts_from_the_answer() {
    for quarantine in [1, 40, 300] {
        let world = orphan();
        world.confirm_all(at(1 + quarantine));
        let config = Config { quarantine: Duration::from_secs(quarantine), ..config() };
        let decided = |now: u64| decide_at(&world, &node_key("gone"), at(now), &config);
        assert_eq!(hold_reasons(&decided(quarantine)), ["Quarantine"], "{quarantine}");
        assert_eq!(describe(&decided(1 + quarantine)), ["remove web-0 because NodeGone"], "{quarantine}");
    }
}

/// They leave at a few hundred a second, so two thousand are enough until the next look; of those that are held a person
/// reads the first few.
#[test]
fn two_thousand_terminated_pods_are_asked_for_at_once_and_a_hundred_holds_are_shown() {
    let world = World::listed();
    world.apply(Kind::Nodes, &node("n").ready("True"), at(0));
    for number in 0..2_010 {
        world.apply(Kind::Pods, &pod(&format!("p{number}")).on("n").terminated(), at(0));
    }
    for number in 0..110 {
        let lying = pod(&format!("q{number}")).on("n").running().modify(|pod| {
            pod["status"]["phase"] = json!("Failed");
            pod["metadata"]["creationTimestamp"] = json!("2025-01-01T00:00:00Z");
        });
        world.apply(Kind::Pods, &lying, at(0));
    }
    let all = Config { terminated_threshold: Some(0), ..config() };
    let decision = decide_at(&world, &Key::Terminated, at(1), &all);
    assert_eq!((decision.intents.len(), decision.holds.len()), (2_000, 100));
    let some = Config { terminated_threshold: Some(2_115), ..config() };
    assert_eq!(
        decide_at(&world, &Key::Terminated, at(1), &some).intents.len(),
        5,
        "and never more than there are too many"
    );
}

#[test]
fn a_hundred_pods_of_a_missing_node_whose_kubelet_lives_are_held_aloud_and_all_are_held() {
    let world = World::listed();
    for number in 0..120 {
        world.apply(Kind::Pods, &pod(&format!("web-{number}")).on("gone"), at(0));
    }
    world.record_absence_read("gone", at(1));
    world.apply(Kind::NodeLeases, &lease("gone", 0), at(30));
    world.confirm_all(at(60));
    let decision = decide_at(&world, &node_key("gone"), at(60), &config());
    assert_eq!((decision.intents.len(), decision.holds.len()), (0, 100));
}

/// Evidence of a node whose Node has this UID and this boot, and that is called so.
fn evidence(name: &str, uid: &str, boot: &str) -> Value {
    json!({
        "metadata": { "name": "e", "uid": "uid-e", "resourceVersion": "9" },
        "spec": { "node": { "name": name, "uid": uid, "bootID": boot }, "kind": "PowerOff", "by": "somebody" },
    })
}

/// Name, UID and boot: it takes all three.
#[test]
fn evidence_about_another_node_frees_no_pod_though_two_of_three_are_the_same() {
    for (name, uid, boot, frees) in [
        ("n", "uid-n", BOOT, true),
        ("m", "uid-n", BOOT, false),
        ("n", "uid-m", BOOT, false),
        ("n", "uid-n", NEXT_BOOT, false),
        ("m", "uid-m", BOOT, false),
    ] {
        let world = World::listed();
        for (node_name, boot) in [("n", BOOT), ("m", BOOT)] {
            world.apply(Kind::Nodes, &node(node_name).boot(boot), at(0));
        }
        world.apply(Kind::Pods, &pod("web-0").on("n").terminating(), at(0));
        world.apply(Kind::FenceEvidences, &evidence(name, uid, boot), at(0));
        let decision = decide_at(&world, &node_key("n"), at(1), &config());
        let expected: &[&str] = if frees { &["remove web-0 because Fenced"] } else { &[] };
        assert_eq!(describe(&decision), expected, "{name} {uid} {boot}");
    }
}
