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
