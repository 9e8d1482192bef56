//! Which pods are evicted when: taints, turns and zones.

use super::super::zones::taint_interval;

use super::*;

/// Ready nodes `PREFIX0`, `PREFIX1` … of these zones, this many of each.
fn cluster(zones: &[(&str, usize)]) -> Fixture {
    let mut fixture = Fixture::new(config(), &[]);
    for (zone, number) in zones {
        for number in 0..*number {
            let name = format!("{zone}{number}");
            fixture.put(Fixture::in_zone(Fixture::node(&name, "True", 0), zone));
            fixture.heartbeat(&name);
            fixture.alive.insert(name);
        }
    }
    fixture
}

fn lose(fixture: &mut Fixture, zone: &str, number: usize) {
    (0..number).for_each(|number| fixture.report(&format!("{zone}{number}"), "Unknown"));
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
    assert_eq!(taint_interval(ZoneCount::default(), &never), Some(Duration::MAX), "hardly ever, and no overflow");
}

#[test]
fn one_node_is_tainted_in_ten_seconds_and_the_longest_lost_first() {
    let mut fixture = cluster(&[("a", 10)]);
    fixture.advance_to(1);
    fixture.report("a7", "False");
    fixture.advance_to(2);
    fixture.report("a3", "False");
    fixture.report("a5", "Unknown");
    fixture.act_on_all();
    assert_eq!(fixture.no_execute_taints("a7"), ["not-ready"]);
    assert_eq!(fixture.describe("a3"), ["EvictionQueued 0 10s"]);
    assert_eq!(fixture.describe("a5"), ["EvictionQueued 1 10s"]);
    assert_eq!(fixture.recheck_at("a3"), 7.0, "its zone may change");
    fixture.advance_to(8);
    assert_eq!(fixture.recheck_at("a3"), 12.0);
    fixture.advance_to(12);
    assert_eq!(fixture.describe("a5"), ["EvictionQueued 1 0s"]);
    assert_eq!(fixture.recheck_at("a5"), 13.0);
    assert_eq!(fixture.act("a3"), ["+not-ready:NoExecute"]);
    fixture.advance_to(21);
    assert_eq!(fixture.describe("a5"), ["EvictionQueued 0 1s"]);
    fixture.advance_to(22);
    assert_eq!(fixture.act("a5"), ["+unreachable:NoExecute"]);
}

#[test]
fn a_restart_neither_loses_nor_gains_a_turn() {
    let mut fixture = cluster(&[("a", 10)]);
    lose(&mut fixture, "a", 2);
    fixture.act_on_all();
    fixture.advance_to(4);
    fixture.restart();
    fixture.advance_to(9);
    assert_eq!(fixture.describe("a1"), ["EvictionQueued 0 2s"], "a second more, for stamps have no fractions");
    fixture.advance_to(11);
    assert_eq!(fixture.act("a1"), ["+unreachable:NoExecute"]);
}

#[test]
fn a_node_with_the_other_taint_gets_the_right_one_at_once_without_a_turn() {
    let mut fixture = cluster(&[("a", 10)]);
    lose(&mut fixture, "a", 2);
    fixture.act_on_all();
    fixture.advance_to(5);
    fixture.report("a0", "False");
    let swapped =
        ["back", "-unreachable:NoSchedule", "-unreachable:NoExecute", "+not-ready:NoSchedule", "+not-ready:NoExecute"];
    assert_eq!(fixture.act("a0"), swapped);
    assert_eq!(fixture.describe("a1"), ["EvictionQueued 0 5s"], "of the first taint, not of the second");
    fixture.report("a0", "True");
    assert_eq!(fixture.act("a0"), ["-not-ready:NoSchedule", "-not-ready:NoExecute"], "at once");
    assert_eq!(fixture.describe("a1"), ["EvictionQueued 0 5s"], "a node that comes back passes on no turn");
}

#[test]
fn a_node_with_both_taints_keeps_the_right_one() {
    let mut fixture = cluster(&[("a", 3)]);
    let both = json!([{ "key": "node.kubernetes.io/not-ready", "effect": "NoExecute" },
        { "key": "node.kubernetes.io/unreachable", "effect": "NoExecute" }]);
    fixture.change("a0", |node| with(node, "/spec/taints", both));
    fixture.report("a0", "False");
    assert_eq!(fixture.describe("a0"), ["-unreachable:NoExecute", "+not-ready:NoSchedule"]);
}

#[test]
fn a_turn_is_taken_only_by_the_written_taint() {
    let mut fixture = cluster(&[("a", 10)]);
    lose(&mut fixture, "a", 2);
    for second in 0..30 {
        fixture.advance_to(second);
        assert!(fixture.describe("a0").contains(&"+unreachable:NoExecute".to_owned()), "as long as it is not there");
        assert!(!fixture.describe("a1").contains(&"+unreachable:NoExecute".to_owned()), "it is another's turn");
    }
    fixture.act("a0");
    assert_eq!(fixture.no_execute_taints("a0"), ["unreachable"]);
}

#[test]
fn each_zone_has_its_own_turns() {
    let mut fixture = cluster(&[("a", 5), ("b", 5)]);
    lose(&mut fixture, "a", 2);
    lose(&mut fixture, "b", 2);
    fixture.act_on_all();
    for (name, wants) in [("a0", 1), ("a1", 0), ("b0", 1), ("b1", 0)] {
        assert_eq!(fixture.no_execute_taints(name).len(), wants, "{name}");
    }
}

#[test]
fn a_disrupted_small_zone_is_held_with_its_numbers() {
    let mut fixture = cluster(&[("a", 10), ("b", 1)]);
    lose(&mut fixture, "a", 6);
    fixture.act_on_all();
    assert_eq!(fixture.describe("a0"), ["ZoneDisrupted 6/10"]);
    assert_eq!(fixture.recheck_at("a0"), 5.0);
    let message = fixture.decide("a0").holds[0].1.to_string();
    assert!(
        message.starts_with("6 of 10 nodes of zone a are not ready.") && message.contains("--unhealthy-zone-"),
        "{message}"
    );
    fixture.report("a5", "True");
    assert!(fixture.describe("a0").contains(&"+unreachable:NoExecute".to_owned()), "five of ten are not too many");
}

/// Found beside KCM: nodes that stopped reporting together are found lost one after the other, and the first was
/// tainted before its zone was known to be disrupted. KCM's tick sees them together, if their renewals came together.
#[test]
fn bug_the_first_node_of_a_lost_zone_was_tainted_before_the_others_were_found_lost() {
    let mut fixture = cluster(&[("a", 4), ("b", 4)]);
    for name in ["a0", "a1", "a2"] {
        fixture.alive.remove(name);
    }
    fixture.advance_to(45);
    fixture.heartbeat("a1");
    fixture.alive.insert("a1".to_owned());
    fixture.report("a0", "Unknown");
    assert!(fixture.describe("a0").contains(&"+unreachable:NoExecute".to_owned()), "one is lost, one has not reported");
    fixture.alive.remove("a1");
    fixture.advance_to(94);
    fixture.report("a0", "Unknown");
    assert_eq!(fixture.describe("a0").last().unwrap(), "ZoneDisrupted 3/4", "and two have not reported for 40 s");
    fixture.heartbeat("a1");
    assert!(fixture.describe("a0").contains(&"+unreachable:NoExecute".to_owned()), "one of them is back");
}

#[test]
fn a_disrupted_large_zone_is_tainted_ten_times_slower() {
    let mut fixture = cluster(&[("a", 60), ("b", 1)]);
    lose(&mut fixture, "a", 40);
    fixture.act_on_all();
    assert_eq!(fixture.describe("a1"), ["EvictionQueued 0 100s"]);
    assert_eq!(fixture.describe("a9"), ["EvictionQueued 38 100s"], "by the names: a1, a10, a11 …");
}

#[test]
fn a_fully_lost_zone_is_tainted_at_the_normal_rate_and_excluded_nodes_do_not_count() {
    let mut fixture = cluster(&[("a", 4), ("b", 1)]);
    lose(&mut fixture, "a", 4);
    fixture.act_on_all();
    assert_eq!(fixture.describe("a1"), ["EvictionQueued 0 10s"]);
    let excluded = |node| with(node, "/metadata/labels/node.kubernetes.io~1exclude-disruption", json!(""));
    let mut fixture = cluster(&[("a", 5), ("b", 1)]);
    lose(&mut fixture, "a", 3);
    fixture.act_on_all();
    assert_eq!(fixture.describe("a0"), ["ZoneDisrupted 3/5"]);
    fixture.change("a0", excluded);
    assert_eq!(fixture.act("a0"), ["+unreachable:NoExecute"], "two of four, and it is given up all the same");
}

#[test]
fn when_all_zones_are_lost_no_node_is_tainted_and_existing_taints_are_removed() {
    let mut fixture = cluster(&[("a", 3), ("b", 1)]);
    lose(&mut fixture, "a", 1);
    fixture.act_on_all();
    assert_eq!(fixture.no_execute_taints("a0"), ["unreachable"]);
    lose(&mut fixture, "a", 3);
    lose(&mut fixture, "b", 1);
    assert_eq!(fixture.act("a0"), ["-unreachable:NoExecute", "LargeOutage 4/4"]);
    assert_eq!(fixture.act("b0"), ["cut off", "+unreachable:NoSchedule", "LargeOutage 4/4"]);
    fixture.advance_to(100);
    fixture.act_on_all();
    assert!(["a0", "a1", "a2", "b0"].iter().all(|name| fixture.no_execute_taints(name).is_empty()));
    fixture.report("b0", "True");
    fixture.act_on_all();
    assert_eq!(fixture.no_execute_taints("a0"), ["unreachable"], "one reports: the others are lost");
    assert_eq!(fixture.describe("a1"), ["EvictionQueued 0 10s"]);
}

/// As kube-controller-manager's never-limiter, in whose place a large disrupted zone has the secondary rate.
#[test]
fn a_rate_of_zero_taints_no_node_and_holds() {
    let mut fixture = cluster(&[("a", 4)]);
    fixture.config.rates.normal = 0.0;
    lose(&mut fixture, "a", 1);
    fixture.advance_to(100);
    fixture.act_on_all();
    assert!(fixture.no_execute_taints("a0").is_empty());
    assert_eq!(fixture.describe("a0"), ["EvictionOff"]);
    let mut large = cluster(&[("a", 60), ("b", 1)]);
    large.config.rates.normal = 0.0;
    lose(&mut large, "a", 40);
    assert_eq!(large.describe("a0").last().unwrap(), "+unreachable:NoExecute");
}

#[test]
fn a_node_with_two_zone_labels_is_in_the_zone_of_the_old_label_as_in_kcm() {
    let mut fixture = cluster(&[("new", 4), ("old", 2)]);
    let old = |node| with(node, "/metadata/labels/failure-domain.beta.kubernetes.io~1zone", json!("old"));
    fixture.change("new0", old);
    let guard = fixture.world.read();
    let zones: Vec<_> = guard.view().zones().map(|(zone, count)| (zone.to_string(), count.ready)).collect();
    assert_eq!(zones, [(":\0:new".to_owned(), 3), (":\0:old".to_owned(), 3)]);
}

#[test]
fn a_node_that_never_reported_conditions_counts_as_lost_and_is_not_tainted() {
    let mut fixture = cluster(&[("a", 2)]);
    fixture.change("a0", |node| with(node, "/status/conditions", json!([])));
    assert!(fixture.describe("a0").is_empty());
    assert_eq!(fixture.world.read().view().zone(":\0:a"), ZoneCount { ready: 1, not_ready: 1, excluded: 0 });
}
