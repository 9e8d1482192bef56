//! What depends on the driver of a device.

use super::*;

fn manual(device: &mut Value) {
    device["spec"]["driver"] = json!("Manual");
}

#[test]
fn a_level_that_is_a_persons_asks_at_once_and_says_the_command() {
    let mut stage = Stage::at(Phase::Pending, |_| ());
    stage.device("hands", manual);
    stage.policy(|policy| policy.levels = vec![level("hands", 2)]);
    assert_eq!(stage.act("n"), ["write AwaitingOperator"]);
    let message = stage.only().1.message;
    assert!(message.contains("pod-safety confirm-down n"), "{message}");
    assert!(stage.only().1.attempts.is_empty(), "nobody was asked to switch anything");
    assert_eq!(stage.words("n"), ["?AwaitingOperator"]);
    stage.proof("n", "word", KindOfEvidence::Asserted);
    assert_eq!(stage.act("n"), ["write Fenced"]);
}

#[test]
fn a_person_is_asked_when_the_levels_before_failed_and_never_to_switch_it_on() {
    let mut stage = Stage::at(Phase::Pending, |_| ());
    stage.device("hands", manual);
    stage.policy(|policy| {
        policy.levels = vec![level("bmc", 1), level("hands", 1)];
        policy.recovery = Recovery::PowerOn;
    });
    assert_eq!(stage.act("n"), ["off 1 by bmc"]);
    stage.seen("On");
    stage.wait(60);
    assert_eq!(stage.act("n"), ["write AwaitingOperator"]);
    stage.proof("n", "word", KindOfEvidence::Asserted);
    assert_eq!(stage.act("n"), ["write Fenced"]);
    assert_eq!(stage.act("n"), ["taint"]);
    stage.wait(20);
    assert_eq!(stage.act("n"), ["on 2 by bmc"], "the first level that can");
    let mut alone = Stage::at(Phase::Fenced, |status| {
        (status.tainted, status.evidence) = (true, Some("word".to_owned()));
    });
    alone.device("hands", manual);
    alone.policy(|policy| (policy.levels, policy.recovery) = (vec![level("hands", 1)], Recovery::PowerOn));
    alone.proof("n", "word", KindOfEvidence::Asserted);
    alone.wait(20);
    assert_eq!(alone.words("n"), ["?NoDevices"]);
}

fn by(driver: &str) -> impl Fn(&mut Value) + use<'_> {
    move |device| {
        device["spec"]["driver"] = json!(driver);
        match driver {
            "External" => {
                let template = json!({ "apiVersion": "g/v1", "kind": "ATemplate", "name": "a" });
                device["spec"]["external"] = json!({ "templateRef": template });
            }
            "NetworkFence" => device["spec"]["networkFence"] = json!({ "className": "rbd" }),
            _ => {}
        }
    }
}

#[test]
fn the_word_of_another_remediator_is_not_asked_for_where_only_what_was_verified_counts() {
    let mut stage = Stage::at(Phase::Pending, |_| ());
    stage.device("far", by("External"));
    stage.policy(|policy| policy.levels = vec![level("far", 1)]);
    assert_eq!(stage.words("n"), ["off 1 by far"]);
    stage.policy(|policy| policy.minimum_evidence = Grade::Verified);
    assert_eq!(stage.words("n"), ["write Pending", "?NoDevices"]);
    assert!(stage.sentence("n").contains("minimumEvidence is Verified"), "{}", stage.sentence("n"));
    stage.policy(|policy| policy.levels = vec![level("far", 1), level("bmc", 1)]);
    assert_eq!(stage.act("n"), ["off 1 by bmc"], "the next level can");
}

#[test]
fn fencing_the_storage_alone_ends_nothing_that_runs() {
    let mut stage = Stage::at(Phase::Pending, |_| ());
    stage.device("rbd", by("NetworkFence"));
    stage.policy(|policy| policy.levels = vec![level("rbd", 1)]);
    assert_eq!(stage.words("n"), ["write Pending", "?NoDevices"]);
    assert!(stage.sentence("n").contains("storage alone"), "{}", stage.sentence("n"));
    stage.policy(|policy| policy.levels[0].devices.extend(level("bmc", 1).devices));
    assert_eq!(stage.act("n"), ["off 1 by rbd+bmc"]);
    stage.seen("Off");
    assert_eq!(stage.act("n"), ["prove"]);
    stage.policy(|policy| policy.recovery = Recovery::PowerOn);
    assert_eq!(stage.act("n"), ["taint"]);
    stage.wait(20);
    assert_eq!(stage.act("n"), ["on 2 by bmc"], "what is fenced is lifted when the node is back");
}

#[test]
fn a_machine_that_is_gone_is_not_switched_on_and_its_incident_ends_with_its_node() {
    let fenced = || {
        let mut stage = Stage::at(Phase::Fenced, |status| {
            (status.tainted, status.evidence) = (true, Some("gone".to_owned()));
            let verified = Verified { power: "Off".to_owned(), ..Verified::default() };
            let devices = level("machine", 1).devices;
            let off = "off".to_owned();
            let verified = Some(verified);
            status.attempts = vec![Attempt { id: 1, act: off, devices, verified, ..Attempt::default() }];
        });
        stage.device("machine", by("Machine"));
        stage.policy(|policy| {
            (policy.levels, policy.recovery) = (vec![level("machine", 1)], Recovery::PowerOn);
        });
        stage.proof("n", "gone", KindOfEvidence::Decommissioned);
        stage.wait(20);
        stage
    };
    assert_eq!(fenced().words("n"), ["?MachineHeld"]);
    let mut gone = fenced();
    gone.gone(Kind::Nodes, "n");
    assert_eq!(gone.act("n"), ["write Done"]);
}
