//! A level with two devices: the two power supplies of one machine.

use super::*;

/// One level, `both`, with the devices `left` and `right`.
fn two_supplies(fixture: &mut Fixture) {
    fixture.device("left", |device| {
        device["spec"]["timeouts"] = json!({ "powerOff": "40s", "powerOn": "90s", "status": "20s" })
    });
    fixture.device("right", |device| {
        device["spec"]["timeouts"] = json!({ "powerOff": "70s", "powerOn": "30s", "status": "20s" })
    });
    let devices = ["left", "right"].iter().flat_map(|name| level(name, 2).devices).collect();
    fixture.policy(|policy| {
        policy.levels = vec![Level { name: "both".to_owned(), devices, corroborate: Vec::new(), attempts: 2 }];
        policy.recovery = Recovery::PowerOn;
    });
}

fn pending() -> Fixture {
    let mut fixture = Fixture::at(Phase::Pending, |_| ());
    two_supplies(&mut fixture);
    fixture
}

/// Switched off at both, proved and tainted; its pods are gone.
fn released() -> Fixture {
    let mut fixture = pending();
    assert_eq!(fixture.act("n"), ["off 1 by left+right"]);
    fixture.set_outcome("done");
    fixture.set_power("Off");
    assert_eq!(fixture.act("n"), ["prove"]);
    assert_eq!(fixture.act("n"), ["taint"]);
    fixture.advance(10);
    fixture
}

#[test]
fn both_are_switched_off_in_one_attempt_that_may_take_as_long_as_the_slower_one() {
    let mut fixture = pending();
    assert_eq!(fixture.act("n"), ["off 1 by left+right"]);
    assert_eq!(fixture.only().1.attempts[0].within_seconds, 70);
    assert_eq!(fixture.only().1.message, "switching it off by the level both with fencing/left and fencing/right");
    // The slower one may still answer.
    fixture.assert_turns(72, &["?AttemptUnderWay"], &["look"]);
}

#[test]
fn an_attempt_may_take_as_long_as_its_slower_device_whichever_is_named_first() {
    let mut fixture = pending();
    fixture.policy(|policy| policy.levels[0].devices.reverse());
    assert_eq!(fixture.act("n"), ["off 1 by right+left"]);
    assert_eq!(fixture.only().1.attempts[0].within_seconds, 70);
}

#[test]
fn the_machine_is_off_only_if_both_devices_report_off_or_else_both_are_tried_again() {
    for one_says in ["On", "Unknown"] {
        let mut fixture = pending();
        fixture.act("n");
        fixture.set_outcome("fencing/left: done; fencing/right: failed");
        fixture.set_power(one_says);
        assert_eq!(fixture.describe("n"), ["?RetryBackoff"], "one of them: {one_says}");
        fixture.advance(5);
        assert_eq!(fixture.act("n"), ["off 2 by left+right"], "one of them: {one_says}");
        fixture.set_power(one_says);
        fixture.advance(60);
        assert_eq!(fixture.act("n"), ["off 3 by left+right"], "in the next round");
        assert_eq!(fixture.only().1.evidence, None, "half of a machine is no evidence");
    }
    let mut fixture = pending();
    fixture.act("n");
    fixture.set_power("Off");
    assert_eq!(fixture.describe("n"), ["prove"]);
}

#[test]
fn an_unusable_device_closes_the_level_whichever_of_the_two_it_is() {
    type Change = fn(&mut Fixture, &str);
    let changes: [(&str, Change); 3] = [
        ("does not exist", |fixture, name| fixture.delete(Kind::FenceDevices, name)),
        ("is not trusted", |fixture, name| {
            fixture.device(name, |device| {
                device["status"]["conditions"] = json!([
                    { "type": "Trusted", "status": "False", "reason": "r", "message": "m", "lastTransitionTime": "t" },
                ]);
            });
        }),
        ("is not for this node", |fixture, name| {
            fixture.device(name, |device| {
                device["spec"]["nodeSelector"] = json!({ "matchLabels": { "rack": "7" } });
            });
        }),
    ];
    for (why, change) in changes {
        for name in ["left", "right"] {
            let mut fixture = pending();
            change(&mut fixture, name);
            assert_eq!(fixture.describe("n"), ["write Pending", "?NoDevices"], "{name} {why}");
            let sentence = fixture.hold_message("n");
            assert!(sentence.contains(&format!("level both: device fencing/{name} {why}")), "{sentence}");
        }
    }
}

#[test]
fn recovery_switches_both_on_and_waits_as_long_as_the_slower_one_may_take() {
    let mut fixture = released();
    assert_eq!(fixture.act("n"), ["on 2 by left+right"]);
    assert_eq!(fixture.only().1.attempts[1].within_seconds, 90);
    fixture.set_power("Off");
    fixture.advance(10);
    assert_eq!(fixture.act("n"), ["on 3 by left+right"], "one of them is not on: both are switched on again");
}

#[test]
fn one_supply_alone_is_not_switched_on() {
    for name in ["left", "right"] {
        let mut fixture = released();
        fixture.delete(Kind::FenceDevices, name);
        assert_eq!(fixture.describe("n"), ["?NoDevices"], "{name} is deleted");
        let sentence = fixture.hold_message("n");
        assert!(sentence.contains(&format!("device fencing/{name} does not exist")), "{sentence}");
    }
}

#[test]
fn a_level_with_a_manual_device_switches_nothing() {
    for name in ["left", "right"] {
        let mut fixture = pending();
        fixture.device(name, |device| device["spec"]["driver"] = json!("Manual"));
        assert_eq!(fixture.act("n"), ["write AwaitingOperator"], "{name} is a person's");
        assert!(fixture.only().1.attempts.is_empty());
    }
}

#[test]
fn a_level_with_an_external_device_is_not_enough_where_verified_evidence_is_required() {
    for name in ["left", "right"] {
        let mut fixture = pending();
        fixture.device(name, |device| {
            device["spec"]["driver"] = json!("External");
            let template = json!({ "apiVersion": "g/v1", "kind": "ATemplate", "name": "a" });
            device["spec"]["external"] = json!({ "templateRef": template });
        });
        assert_eq!(fixture.describe("n"), ["off 1 by left+right"], "{name}");
        fixture.policy(|policy| policy.minimum_evidence = Grade::Verified);
        assert_eq!(fixture.describe("n"), ["write Pending", "?NoDevices"], "{name}");
    }
}

#[test]
fn the_other_requirements_of_a_level_are_written_into_its_attempts() {
    use pod_safety_shared::api::Corroboration::KubeletPort;
    let mut fixture = pending();
    fixture.policy(|policy| policy.levels[0].corroborate = vec![KubeletPort]);
    assert_eq!(fixture.act("n"), ["off 1 by left+right"]);
    assert_eq!(fixture.only().1.attempts[0].corroborate, [KubeletPort]);
}
