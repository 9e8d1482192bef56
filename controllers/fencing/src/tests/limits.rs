//! The limits that safety depends on, as numbers. Each is repeated here with its reason: whoever changes a limit must
//! change its reason, too.

use pod_safety_shared::api::{ActTime, Brakes, ControlPlane, Timeouts, Unhealthy};

use super::*;

/// Fenced and released, with the machine off, to be switched on again.
fn fenced() -> Fixture {
    let mut fixture = Fixture::at(Phase::Pending, |_| ());
    fixture.policy(|policy| policy.recovery = Recovery::PowerOn);
    fixture.act("n");
    fixture.set_outcome("done");
    fixture.set_power("Off");
    assert_eq!(fixture.act("n"), ["prove"]);
    assert_eq!(fixture.act("n"), ["taint"]);
    fixture
}

/// A device is stopped after its 60 s by its own clock; two seconds more cover the difference of the clocks.
#[test]
fn an_attempt_is_in_flight_for_its_timeout_plus_two_seconds() {
    let mut fixture = Fixture::at(Phase::Pending, |_| ());
    fixture.act("n");
    fixture.assert_turns(62, &["?AttemptUnderWay"], &["look"]);
}

/// A pod that does not tolerate the taint is deleted within seconds of it; a machine that boots before that starts
/// it.
#[test]
fn a_machine_stays_off_for_ten_seconds_after_its_taint() {
    fenced().assert_turns(10, &["?WaitsForPods"], &["on 2 by bmc"]);
}

/// A device that is busy, or locked after wrong logins, is not helped by quick retries: 5 s, doubled up to a minute.
#[test]
fn pauses_between_attempts_are_five_seconds_doubled_up_to_a_minute() {
    let mut fixture = Fixture::at(Phase::Pending, |_| ());
    fixture.policy(|policy| policy.levels = vec![level("bmc", 10)]);
    fixture.act("n");
    for (attempt, pause) in (2_u32..).zip([5, 10, 20, 40, 60, 60]) {
        fixture.set_power("On");
        fixture.assert_turns(pause, &["?RetryBackoff"], &[&format!("off {attempt} by bmc")]);
        fixture.act("n");
    }
}

/// Other remediators remove their taint within a minute after their node is Ready; twice that is no coincidence.
#[test]
fn a_stale_taint_is_reported_after_two_minutes() {
    let mut fixture = Fixture::new(&["n", "m", "k"]);
    let taint = json!([{ "key": "node.kubernetes.io/out-of-service", "value": "x", "effect": "NoExecute" }]);
    fixture.change("n", |node| node["spec"]["taints"] = taint);
    fixture.assert_turns(120, &[], &["?StaleTaint"]);
}

/// The decision when `lost` of `of` nodes are lost, with the default brakes.
fn lost(lost: usize, of: usize, zone: impl Fn(usize) -> &'static str) -> Vec<String> {
    let names: Vec<String> = (0..of).map(|number| format!("n{number}")).collect();
    let mut fixture = Fixture::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
    fixture.policy(|policy| policy.brakes = Brakes::default());
    for (number, name) in names.iter().enumerate() {
        let zone = zone(number);
        fixture.change(name, |node| node["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!(zone));
    }
    names[..lost].iter().for_each(|name| fixture.lose_node(name));
    fixture.advance_to(70);
    fixture.fence("n0", Trigger::Detected, NodeFenceStatus::default());
    fixture.describe("n0")
}

/// One of two is half of them, and proves nothing; if two of four are lost, this process is more likely cut off than
/// they are. One half of a hundred is one node more than 49 %.
#[test]
fn no_node_is_fenced_while_half_of_two_or_more_are_lost() {
    let held = ["write Pending", "?LargeOutage"];
    for (many, of, is_held) in
        [(1, 1, false), (1, 2, false), (2, 2, true), (2, 4, true), (2, 5, false), (3, 6, true), (3, 7, false)]
    {
        // Each node is in a zone of its own: the zone gate does not apply.
        let zones = ["a", "b", "c", "d", "e", "f", "g"];
        let words = lost(many, of, |number| zones[number]);
        if is_held {
            assert_eq!(words, held, "{many} of {of}")
        } else {
            assert_eq!(words, ["off 1 by bmc"], "{many} of {of}")
        }
    }
}

/// As for kube-controller-manager: with fewer than three lost nodes the percentage of a zone is not evaluated, and
/// more than 55 % of it are too many.
#[test]
fn no_node_of_a_zone_is_fenced_while_three_and_more_than_55_percent_of_it_are_lost() {
    let held = ["write Pending", "?ZoneInTrouble"];
    for (many, of_zone, is_held) in [
        (2, 2, false),
        (2, 3, false),
        (3, 3, true),
        (3, 5, true),
        (3, 6, false),
        (5, 9, true),
        (6, 11, false),
        (11, 20, false),
        (12, 20, true),
    ] {
        let words = lost(many, 40, |number| if number < of_zone { "a" } else { "b" });
        if is_held {
            assert_eq!(words, held, "{many} of {of_zone}")
        } else {
            assert_eq!(words, ["off 1 by bmc"], "{many} of {of_zone}")
        }
    }
}

/// One at a time, a minute apart: a wrong assignment of devices shows at the first node. Five minutes for healthy
/// pods is as long as pods tolerate a lost node by default.
#[test]
fn the_default_brakes_of_a_policy() {
    assert_eq!(
        Brakes::default(),
        Brakes {
            max_concurrent: 1,
            max_unhealthy_percent: 49,
            max_unhealthy_zone_percent: 55,
            cooldown_seconds: 60,
            repeat_seconds: 3_600,
            collateral_seconds: 300,
            control_plane: ControlPlane::KeepQuorum,
        }
    );
    let brakes: Brakes = serde_json::from_value(json!({})).unwrap();
    assert_eq!(brakes, Brakes::default(), "an empty object is as none");
}

/// In a minute a kubelet misses six renewals of its Lease; kube-controller-manager's grace period is 50 s.
#[test]
fn a_node_is_lost_after_a_minute_and_a_device_has_a_minute_to_switch() {
    let (conditions, flapping) = (Vec::new(), None);
    let expected = Unhealthy { silent_seconds: 60, not_ready_seconds: None, conditions, flapping, drain_seconds: 300 };
    assert_eq!(Unhealthy::default(), expected);
    assert_eq!(Timeouts::default(), Timeouts { power_off: ActTime(60), power_on: ActTime(60), status: ActTime(20) });
}

/// A status must stay far below the megabyte that etcd accepts; a person needs only the last few rounds.
#[test]
fn twenty_attempts_are_kept() {
    assert_eq!(Attempt::MAX_ATTEMPTS, 20);
}
