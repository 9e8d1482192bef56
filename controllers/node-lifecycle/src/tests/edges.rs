//! Rows for mutants of the decisions that other tests did not catch.

use super::*;

/// One node, alone in its cluster, whose kubelet never reports; this process leads since this second.
fn alone(led_since: Option<u64>) -> Fixture {
    let mut fixture = Fixture::new(Config { led_since: led_since.map(at), ..config() }, &["n0"]);
    fixture.alive.clear();
    fixture
}

/// An event at the very moment at which a node was due, or fifteen seconds ago, would have included its renewal.
#[test]
fn the_watch_has_a_break_when_it_had_no_event_for_more_than_fifteen_seconds_before_a_node_was_due() {
    for (spoke_last, now, is_lost) in [(50, 66, true), (49, 66, false), (40, 55, true), (40, 56, false)] {
        let mut fixture = alone(Some(0));
        fixture.advance_to(spoke_last);
        fixture.advance_without_events(now);
        let words = fixture.describe("n0");
        if is_lost {
            assert_eq!(words, LOST, "it spoke at {spoke_last}, and it is {now}");
        } else {
            assert_eq!(words, ["LargeOutage 1/1"], "it spoke at {spoke_last}, and it is {now}");
        }
    }
}

/// "0 of 1 nodes are unreachable or not ready", of a node that was both.
#[test]
fn bug_a_large_outage_did_not_count_a_held_node_that_was_not_ready() {
    let mut fixture = Fixture::new(config(), &["n0", "n1"]);
    fixture.report("n0", "False");
    fixture.alive.remove("n0");
    fixture.advance_to(40);
    fixture.advance_without_events(56);
    assert_eq!(fixture.describe("n0").last().unwrap(), "LargeOutage 1/2");
}

/// The last event was at second 50, and this process leads since second 48.
#[test]
fn a_new_leader_waits_for_kubelets_when_the_watch_had_no_event_for_more_than_fifteen_seconds() {
    for (now, is_lost) in [(65, true), (66, false), (67, false)] {
        let mut fixture = alone(Some(48));
        fixture.advance_to(50);
        fixture.advance_without_events(now);
        assert_eq!(fixture.describe("n0") == LOST, is_lost, "at {now}: {:?}", fixture.describe("n0"));
    }
}

/// The next event came at second 60 after a break of a minute: kubelets have until 80 to come back, and until twenty
/// seconds after a leader that leads since then began.
#[test]
fn a_leader_that_began_after_a_watch_break_waits_for_two_renewals() {
    for (led_since, lost_at) in [(30, 80), (60, 80), (70, 90), (79, 99), (80, 80), (85, 85)] {
        let mut fixture = alone(Some(led_since));
        fixture.advance_without_events(60);
        fixture.world.confirm_all(fixture.mono());
        fixture.advance_to(lost_at - 1);
        if lost_at > led_since {
            assert!(fixture.describe("n0").is_empty(), "who leads since {led_since} waits until {lost_at}");
        }
        fixture.advance_to(lost_at);
        assert_eq!(fixture.describe("n0"), LOST, "who leads since {led_since} waits until {lost_at}");
    }
}

#[test]
fn a_standby_finds_a_node_lost_only_while_the_watch_has_events() {
    let mut fixture = alone(None);
    fixture.assert_lost_from("n0", 50);
}

/// A node that never reports its conditions: from its creation, unless it has reported in another way since.
#[test]
fn a_node_without_condition_but_with_a_report_has_the_startup_grace_from_that_report() {
    let bare = |born: u64| {
        let node = with(Fixture::node("new", "", 0), "/status", json!({ "conditions": [] }));
        with(node, "/metadata/creationTimestamp", json!(fixture::timestamp(born)))
    };
    let mut lost_it = Fixture::new(config(), &["m0", "m1", "m2"]);
    lost_it.put(Fixture::node("new", "True", 0));
    lost_it.advance_to(30);
    lost_it.put(bare(0));
    // Seen to lose its condition, without a Lease.
    lost_it.assert_lost_from("new", 90);

    let mut leased = Fixture::new(config(), &["m0", "m1", "m2"]);
    leased.heartbeat("new");
    leased.advance_to(30);
    leased.put(bare(10));
    // With a Lease that was there before it.
    leased.assert_lost_from("new", 90);

    let mut born = Fixture::new(config(), &["m0", "m1", "m2"]);
    born.advance_to(30);
    born.put(bare(10));
    // From its birth.
    born.assert_lost_from("new", 70);
}

/// Nodes of one zone, of which the first is not ready since the first event after a break of the watch.
#[test]
fn a_node_lost_with_all_others_is_tainted_only_after_kubelets_had_time_to_come_back() {
    let after = |ready: &str, first_seen: u64, spoke: u64| {
        let mut fixture = Fixture::new(config(), &["a1", "a2", "a3", "a4"]);
        fixture.advance_without_events(first_seen);
        fixture.put(Fixture::node("a0", "True", 0));
        fixture.advance_without_events(spoke);
        fixture.world.confirm_all(fixture.mono());
        for name in ["a0", "a1", "a2", "a3", "a4"] {
            fixture.heartbeat(name);
        }
        fixture.report("a0", ready);
        fixture
    };
    let queued = |seconds: u64| format!("EvictionQueued 0 {seconds}s");
    let mut fixture = after("Unknown", 0, 60);
    assert_eq!(fixture.describe("a0").last().unwrap(), &queued(35), "15 s until a break counts, and two renewals");
    fixture.advance_to(94);
    assert_eq!(fixture.describe("a0").last().unwrap(), &queued(1));
    fixture.advance_to(95);
    assert_eq!(fixture.describe("a0").last().unwrap(), "+unreachable:NoExecute");
    let given_up = |fixture: Fixture| fixture.describe("a0").last().unwrap().ends_with(":NoExecute");
    assert!(given_up(after("False", 0, 60)), "a node whose kubelet reports NotReady is not lost with the others");
    assert!(!given_up(after("Unknown", 0, 16)));
    assert!(given_up(after("Unknown", 1, 16)), "the process is as young as the break: it knows of none");
    assert!(!given_up(after("Unknown", 1, 17)));
}

/// A pod that turned ready at the very moment at which its node was found lost was reported before.
#[test]
fn a_pod_stays_ready_only_if_it_turned_ready_after_its_node_was_lost() {
    let pod = |ready: &str, rv: u64| {
        json!({
            "metadata": { "namespace": "ns", "name": "p", "uid": "uid-p", "resourceVersion": rv.to_string(), "generation": 4 },
            "spec": { "nodeName": "n" },
            "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": ready }] },
        })
    };
    for (turned, speaks) in [(9, false), (10, false), (11, true)] {
        let mut fixture = Fixture::new(config(), &["n", "m"]);
        fixture.world.apply(Kind::Pods, &pod("False", 7), fixture.mono());
        for second in 1..=11 {
            fixture.advance_to(second);
            if second == 10 {
                fixture.report("n", "Unknown");
            }
            if second == turned {
                fixture.world.apply(Kind::Pods, &pod("True", 8), fixture.mono());
            }
        }
        let key = Key::Pods("n".into());
        let decision = decide(&key, &fixture.world.read().view(), fixture.mono(), &fixture.config);
        assert_eq!(decision.intents.is_empty(), speaks, "it turned ready at {turned}: {decision:?}");
    }
}

#[test]
fn an_excluded_node_is_tainted_on_its_own_and_is_no_large_outage() {
    let mut fixture = Fixture::new(config(), &["n0"]);
    fixture.change("n0", |node| with(node, "/metadata/labels/node.kubernetes.io~1exclude-disruption", json!("")));
    fixture.report("n0", "Unknown");
    let words = fixture.describe("n0");
    assert!(words.contains(&"+unreachable:NoExecute".to_owned()), "{words:?}");
}

#[test]
fn a_hold_names_its_zone() {
    let queued = |zone: &str| Hold::EvictionQueued { zone: zone.into(), ahead: 1, next: Duration::ZERO };
    for (hold, words) in [
        (queued(""), "Nodes of the cluster ahead of it: 1"),
        (queued(":\0:a"), "Nodes of zone a ahead of it: 1"),
        (queued("r:\0:"), "Nodes of region r ahead of it: 1"),
        (queued("r:\0:a"), "Nodes of zone a of region r ahead of it: 1"),
    ] {
        assert!(hold.to_string().contains(words), "{hold}");
    }
}
