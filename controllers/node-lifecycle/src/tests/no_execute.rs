//! Which pods are evicted when: taints, turns and zones.

use std::time::Duration;

use pod_safety_shared::cache::ZoneCount;

use super::super::zones::{ZoneState, taint_interval, zone_state};
use super::*;

/// Ready nodes `PREFIX0`, `PREFIX1` … of these zones, this many of each.
fn cluster(zones: &[(&str, usize)]) -> Fixture {
    let mut stage = Fixture::new(config(), &[]);
    for (zone, number) in zones {
        for number in 0..*number {
            let name = format!("{zone}{number}");
            stage.put(Fixture::in_zone(Fixture::node(&name, "True", 0), zone));
            stage.heartbeat(&name);
            stage.alive.insert(name);
        }
    }
    stage
}

fn lose(stage: &mut Fixture, zone: &str, number: usize) {
    (0..number).for_each(|number| stage.report(&format!("{zone}{number}"), "Unknown"));
}

#[test]
fn a_zone_is_normal_partially_or_fully_disrupted() {
    let rates = config().rates;
    let cases: [(usize, usize, ZoneState, Option<u64>); 12] = [
        (0, 0, ZoneState::Normal, Some(10)),
        (1, 0, ZoneState::Normal, Some(10)),
        (0, 1, ZoneState::Full, Some(10)),
        (1, 2, ZoneState::Normal, Some(10)),
        (3, 3, ZoneState::Normal, Some(10)),
        (2, 3, ZoneState::Partial, None),
        (9, 11, ZoneState::Partial, None),
        (10, 11, ZoneState::Normal, Some(10)),
        (20, 30, ZoneState::Partial, None),
        (20, 31, ZoneState::Partial, Some(100)),
        (60, 60, ZoneState::Normal, Some(10)),
        (0, 500, ZoneState::Full, Some(10)),
    ];
    for (ready, not_ready, expected, seconds) in cases {
        let zone = ZoneCount { ready, not_ready, excluded: 9 };
        assert_eq!(zone_state(zone, &rates), expected, "{zone:?}");
        assert_eq!(taint_interval(zone, &rates), seconds.map(Duration::from_secs), "{zone:?}");
    }
    let never = Rates { normal: f32::MIN_POSITIVE, ..rates };
    assert_eq!(
        taint_interval(ZoneCount::default(), &never),
        Some(Duration::MAX),
        "hardly ever, and no overflow"
    );
}

#[test]
fn one_node_is_tainted_in_ten_seconds_and_the_longest_lost_first() {
    let mut stage = cluster(&[("a", 10)]);
    stage.advance_to(1);
    stage.report("a7", "False");
    stage.advance_to(2);
    stage.report("a3", "False");
    stage.report("a5", "Unknown");
    stage.act_on_all();
    assert_eq!(stage.no_execute_taints("a7"), ["not-ready"]);
    assert_eq!(stage.describe("a3"), ["EvictionQueued 0 10s"]);
    assert_eq!(stage.describe("a5"), ["EvictionQueued 1 10s"]);
    assert_eq!(stage.recheck_at("a3"), 7.0, "its zone may change");
    stage.advance_to(8);
    assert_eq!(stage.recheck_at("a3"), 12.0);
    stage.advance_to(12);
    assert_eq!(stage.describe("a5"), ["EvictionQueued 1 0s"]);
    assert_eq!(stage.recheck_at("a5"), 13.0);
    assert_eq!(stage.act("a3"), ["+not-ready:NoExecute"]);
    stage.advance_to(21);
    assert_eq!(stage.describe("a5"), ["EvictionQueued 0 1s"]);
    stage.advance_to(22);
    assert_eq!(stage.act("a5"), ["+unreachable:NoExecute"]);
}

#[test]
fn a_restart_neither_loses_nor_gains_a_turn() {
    let mut stage = cluster(&[("a", 10)]);
    lose(&mut stage, "a", 2);
    stage.act_on_all();
    stage.advance_to(4);
    stage.restart();
    stage.advance_to(9);
    assert_eq!(stage.describe("a1"), ["EvictionQueued 0 2s"], "a second more, for stamps have no fractions");
    stage.advance_to(11);
    assert_eq!(stage.act("a1"), ["+unreachable:NoExecute"]);
}

#[test]
fn a_node_with_the_other_taint_gets_the_right_one_at_once_without_a_turn() {
    let mut stage = cluster(&[("a", 10)]);
    lose(&mut stage, "a", 2);
    stage.act_on_all();
    stage.advance_to(5);
    stage.report("a0", "False");
    let swapped = [
        "back",
        "-unreachable:NoSchedule",
        "-unreachable:NoExecute",
        "+not-ready:NoSchedule",
        "+not-ready:NoExecute",
    ];
    assert_eq!(stage.act("a0"), swapped);
    assert_eq!(stage.describe("a1"), ["EvictionQueued 0 5s"], "of the first taint, not of the second");
    stage.report("a0", "True");
    assert_eq!(stage.act("a0"), ["-not-ready:NoSchedule", "-not-ready:NoExecute"], "at once");
    assert_eq!(stage.describe("a1"), ["EvictionQueued 0 5s"], "who comes back gives its turn to nobody");
}

#[test]
fn a_node_with_both_taints_keeps_the_right_one() {
    let mut stage = cluster(&[("a", 3)]);
    let both = json!([{ "key": "node.kubernetes.io/not-ready", "effect": "NoExecute" },
        { "key": "node.kubernetes.io/unreachable", "effect": "NoExecute" }]);
    stage.change("a0", |node| with(node, "/spec/taints", both));
    stage.report("a0", "False");
    assert_eq!(stage.describe("a0"), ["-unreachable:NoExecute", "+not-ready:NoSchedule"]);
}

#[test]
fn a_turn_is_taken_only_by_the_written_taint() {
    let mut stage = cluster(&[("a", 10)]);
    lose(&mut stage, "a", 2);
    for second in 0..30 {
        stage.advance_to(second);
        assert!(
            stage.describe("a0").contains(&"+unreachable:NoExecute".to_owned()),
            "as long as it is not there"
        );
        assert!(!stage.describe("a1").contains(&"+unreachable:NoExecute".to_owned()), "it is another's turn");
    }
    stage.act("a0");
    assert_eq!(stage.no_execute_taints("a0"), ["unreachable"]);
}

#[test]
fn each_zone_has_its_own_turns() {
    let mut stage = cluster(&[("a", 5), ("b", 5)]);
    lose(&mut stage, "a", 2);
    lose(&mut stage, "b", 2);
    stage.act_on_all();
    for (name, wants) in [("a0", 1), ("a1", 0), ("b0", 1), ("b1", 0)] {
        assert_eq!(stage.no_execute_taints(name).len(), wants, "{name}");
    }
}

#[test]
fn a_disrupted_small_zone_is_held_with_its_numbers() {
    let mut stage = cluster(&[("a", 10), ("b", 1)]);
    lose(&mut stage, "a", 6);
    stage.act_on_all();
    assert_eq!(stage.describe("a0"), ["ZoneDisrupted 6/10"]);
    assert_eq!(stage.recheck_at("a0"), 5.0);
    let message = stage.decide("a0").holds[0].1.to_string();
    assert!(
        message.starts_with("6 of 10 nodes of zone a are not ready. ")
            && message.contains("--unhealthy-zone-threshold"),
        "{message}"
    );
    stage.report("a5", "True");
    assert!(
        stage.describe("a0").contains(&"+unreachable:NoExecute".to_owned()),
        "five of ten are not too many"
    );
}

/// Found beside KCM: nodes that stopped reporting together are found lost one after the other, and the first was
/// tainted before its zone was known to be disrupted. KCM's tick sees them together, if their renewals came together.
#[test]
fn bug_the_first_node_of_a_lost_zone_was_tainted_before_the_others_were_found_lost() {
    let mut stage = cluster(&[("a", 4), ("b", 4)]);
    for name in ["a0", "a1", "a2"] {
        stage.alive.remove(name);
    }
    stage.advance_to(45);
    stage.heartbeat("a1");
    stage.alive.insert("a1".to_owned());
    stage.report("a0", "Unknown");
    assert!(
        stage.describe("a0").contains(&"+unreachable:NoExecute".to_owned()),
        "one is lost, one was not heard"
    );
    stage.alive.remove("a1");
    stage.advance_to(94);
    stage.report("a0", "Unknown");
    assert_eq!(
        stage.describe("a0").last().unwrap(),
        "ZoneDisrupted 3/4",
        "and two have not been heard for 40 s"
    );
    stage.heartbeat("a1");
    assert!(stage.describe("a0").contains(&"+unreachable:NoExecute".to_owned()), "one of them is back");
}

#[test]
fn a_disrupted_large_zone_is_tainted_ten_times_slower() {
    let mut stage = cluster(&[("a", 60), ("b", 1)]);
    lose(&mut stage, "a", 40);
    stage.act_on_all();
    assert_eq!(stage.describe("a1"), ["EvictionQueued 0 100s"]);
    assert_eq!(stage.describe("a9"), ["EvictionQueued 38 100s"], "by the names: a1, a10, a11 …");
}

#[test]
fn a_fully_lost_zone_is_tainted_at_the_normal_rate_and_excluded_nodes_do_not_count() {
    let mut stage = cluster(&[("a", 4), ("b", 1)]);
    lose(&mut stage, "a", 4);
    stage.act_on_all();
    assert_eq!(stage.describe("a1"), ["EvictionQueued 0 10s"]);
    let excluded = |node| with(node, "/metadata/labels/node.kubernetes.io~1exclude-disruption", json!(""));
    let mut stage = cluster(&[("a", 5), ("b", 1)]);
    lose(&mut stage, "a", 3);
    stage.act_on_all();
    assert_eq!(stage.describe("a0"), ["ZoneDisrupted 3/5"]);
    stage.change("a0", excluded);
    assert_eq!(stage.act("a0"), ["+unreachable:NoExecute"], "two of four, and it is given up all the same");
}

#[test]
fn when_all_zones_are_lost_no_node_is_tainted_and_existing_taints_are_removed() {
    let mut stage = cluster(&[("a", 3), ("b", 1)]);
    lose(&mut stage, "a", 1);
    stage.act_on_all();
    assert_eq!(stage.no_execute_taints("a0"), ["unreachable"]);
    lose(&mut stage, "a", 3);
    lose(&mut stage, "b", 1);
    assert_eq!(stage.act("a0"), ["-unreachable:NoExecute", "LargeOutage 4/4"]);
    assert_eq!(stage.act("b0"), ["cut off", "+unreachable:NoSchedule", "LargeOutage 4/4"]);
    stage.advance_to(100);
    stage.act_on_all();
    assert!(["a0", "a1", "a2", "b0"].iter().all(|name| stage.no_execute_taints(name).is_empty()));
    stage.report("b0", "True");
    stage.act_on_all();
    assert_eq!(stage.no_execute_taints("a0"), ["unreachable"], "one is heard: it is them");
    assert_eq!(stage.describe("a1"), ["EvictionQueued 0 10s"]);
}

/// As kube-controller-manager's never-limiter.
#[test]
fn a_rate_of_zero_taints_no_node_and_holds() {
    let mut stage = cluster(&[("a", 4)]);
    stage.config.rates.normal = 0.0;
    lose(&mut stage, "a", 1);
    stage.advance_to(100);
    stage.act_on_all();
    assert!(stage.no_execute_taints("a0").is_empty());
    assert_eq!(stage.describe("a0"), ["EvictionOff"]);
}

#[test]
fn a_node_with_two_zone_labels_is_in_the_zone_of_the_old_label_as_in_kcm() {
    let mut stage = cluster(&[("new", 4), ("old", 2)]);
    let old = |node| with(node, "/metadata/labels/failure-domain.beta.kubernetes.io~1zone", json!("old"));
    stage.change("new0", old);
    let guard = stage.world.read();
    let zones: Vec<_> = guard.view().zones().map(|(zone, count)| (zone.to_string(), count.ready)).collect();
    assert_eq!(zones, [(":\0:new".to_owned(), 3), (":\0:old".to_owned(), 3)]);
}

#[test]
fn a_node_that_never_reported_conditions_counts_as_lost_and_is_not_tainted() {
    let mut stage = cluster(&[("a", 2)]);
    stage.change("a0", |node| with(node, "/status/conditions", json!([])));
    assert!(stage.describe("a0").is_empty());
    assert_eq!(stage.world.read().view().zone(":\0:a"), ZoneCount { ready: 1, not_ready: 1, excluded: 0 });
}
