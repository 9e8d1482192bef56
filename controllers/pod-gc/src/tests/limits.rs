//! The limits that safety depends on, as numbers, each with its reason; and which node evidence is about.

use super::*;

/// Two and a half minutes are two bookmarks of an API server and half a minute more: a watch without an event for
/// longer may have lost its connection, and the cache is stale.
#[test]
fn the_cache_is_fresh_for_150_seconds() {
    let world = orphan();
    let last_heard = 100;
    let decided = |now: u64| decide_at(&world, &node_key("gone"), at(now), &config());
    assert_eq!(describe(&decided(last_heard + 150)), ["remove web-0 because NodeGone"]);
    let late = decided(last_heard + 151);
    assert_eq!((describe(&late), hold_reasons(&late)), (vec![], vec!["Stale"]));
    assert_eq!(late.requeue_at, Some(at(last_heard + 151 + 10)), "and it is looked at again in ten seconds");
}

/// A first read at the same moment as a report may be older than that report: only a later one begins a quarantine.
#[test]
fn a_read_at_the_moment_of_a_report_begins_no_quarantine() {
    for (reported_at, is_alive) in [(0, false), (1, true), (2, true)] {
        let world = World::listed();
        world.apply(Kind::NodeLeases, &lease("gone", 0).rv(1), at(0));
        world.apply(Kind::Pods, &pod("web-0").on("gone"), at(0));
        if reported_at > 0 {
            world.apply(Kind::NodeLeases, &lease("gone", 10).rv(2), at(reported_at));
        }
        world.record_absence_read("gone", at(1));
        world.confirm_all(at(20));
        let expected = if is_alive { "KubeletAlive" } else { "Quarantine" };
        assert_eq!(
            hold_reasons(&decide_at(&world, &node_key("gone"), at(20), &config())),
            [expected],
            "reported at {reported_at}, read at 1"
        );
    }
}

/// As long as the default tolerations last that admission gives each pod (`DefaultTolerationSeconds`): a kubelet that
/// is restarted within them registers again, and keeps its pods. `connected` shows that ten seconds earlier is too
/// early.
#[test]
fn a_running_kubelet_without_a_node_has_five_minutes_to_register() {
    assert_eq!(super::super::decide::REGISTRATION_GRACE, Duration::from_secs(300));
}

/// A waiting decision is made again every ten seconds, and exactly at the end.
#[test]
fn a_missing_node_is_checked_every_ten_seconds_and_at_the_end_of_its_quarantine() {
    let world = orphan();
    for (now, again) in [(1, 11), (20, 30), (30, 40), (31, 41), (35, 41), (40, 41)] {
        assert_eq!(decide_at(&world, &node_key("gone"), at(now), &config()).requeue_at, Some(at(again)), "at {now}");
    }
    world.apply(Kind::NodeLeases, &lease("gone", 0), at(30));
    for (now, again) in [(31, 41), (60, 70), (61, 70), (69, 70), (70, 71), (90, 91)] {
        assert_eq!(decide_at(&world, &node_key("gone"), at(now), &config()).requeue_at, Some(at(again)), "at {now}");
    }
}

/// The flag enforces the lowest quarantine; here none is added and none is taken away.
#[test]
fn the_quarantine_is_as_long_as_configured_and_counts_from_the_answer() {
    for quarantine in [1, 40, 300] {
        let world = orphan();
        world.confirm_all(at(1 + quarantine));
        let config = Config { quarantine: Duration::from_secs(quarantine), ..config() };
        let decided = |now: u64| decide_at(&world, &node_key("gone"), at(now), &config);
        assert_eq!(hold_reasons(&decided(quarantine)), ["Quarantine"], "{quarantine}");
        assert_eq!(describe(&decided(1 + quarantine)), ["remove web-0 because NodeGone"], "{quarantine}");
    }
}

/// A few hundred pods are deleted per second, so two thousand are enough until the next decision; a person reads the
/// first few holds.
#[test]
fn two_thousand_terminated_pods_are_requested_at_once_and_a_hundred_holds_are_shown() {
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
    assert_eq!(decide_at(&world, &Key::Terminated, at(1), &some).intents.len(), 5, "never more than are too many");
}

#[test]
fn a_hundred_pods_of_a_missing_node_with_a_running_kubelet_are_shown_and_all_are_held() {
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

/// Evidence with this name, about a Node with this UID and this boot ID.
fn evidence(name: &str, uid: &str, boot: &str) -> Value {
    json!({
        "metadata": { "name": "e", "uid": "uid-e", "resourceVersion": "9" },
        "spec": { "node": { "name": name, "uid": uid, "bootID": boot }, "kind": "PowerOff", "by": "somebody" },
    })
}

/// Name, UID and boot ID must all match.
#[test]
fn evidence_that_matches_only_two_of_name_uid_and_boot_releases_no_pod() {
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
