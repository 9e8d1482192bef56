//! From the first suspicion to evidence.

use super::*;

/// Its first attempt was begun in second 70.
fn begun() -> Fixture {
    let mut fixture = Fixture::at(Phase::Pending, |_| ());
    fixture.device("pdu", |_| ());
    fixture.policy(|policy| policy.levels.push(level("pdu", 1)));
    assert_eq!(fixture.act("n"), ["off 1 by bmc"]);
    fixture
}

/// An attempt after which a status check reported the machine on.
fn failed(id: u32) -> Attempt {
    let verified = Some(Verified { power: Power::On, ..Verified::default() });
    Attempt { id, act: DesiredPower::Off, verified, ..Attempt::default() }
}

#[test]
fn from_suspicion_to_evidence_in_order() {
    let mut fixture = Fixture::lost();
    assert_eq!(fixture.act("n"), ["open by p"]);
    assert_eq!(fixture.act("n"), ["off 1 by bmc"]);
    assert_eq!(fixture.act("n"), ["?AttemptUnderWay"]);
    fixture.set_outcome("timed out");
    assert_eq!(fixture.describe("n"), ["look"], "what was answered is a hint");
    fixture.set_power("Off");
    assert_eq!(fixture.act("n"), ["prove"]);
    let (spec, status) = fixture.only();
    let proof = pod_safety_shared::authority::incident_name(&spec.node);
    assert_eq!((status.phase, status.evidence.as_deref()), (Phase::Fenced, Some(&*proof)));
    assert_eq!(fixture.act("n"), ["taint"]);
    assert!(fixture.only().1.tainted);
}

#[test]
fn an_attempt_without_outcome_is_waited_for_from_when_it_was_first_seen_and_then_checked() {
    let mut fixture = begun();
    let waits = fixture.decide("n");
    assert_eq!((describe(&waits), waits.requeue_at), (vec!["?AttemptUnderWay".to_owned()], Some(at(70 + 60 + 2))));
    fixture.advance_to(131);
    assert_eq!(fixture.describe("n"), ["?AttemptUnderWay"]);
    fixture.advance_to(132);
    assert_eq!(fixture.describe("n"), ["look"]);
    fixture.edit(|_, status| status.message = "another process saw it later".to_owned());
    assert_eq!(fixture.describe("n"), ["?AttemptUnderWay"], "a restart only lengthens");
}

#[test]
fn after_a_failure_the_same_level_then_the_next_then_another_round_then_a_person_follows() {
    let mut fixture = begun();
    fixture.policy(|policy| policy.rounds = 2);
    let mut history = Vec::new();
    let mut pauses = Vec::new();
    loop {
        fixture.set_outcome("no");
        fixture.set_power("On");
        let began = fixture.now;
        while fixture.describe("n") == ["?RetryBackoff"] {
            fixture.advance(1);
        }
        pauses.push(fixture.now - began);
        let words = fixture.act("n");
        history.push(words.join(" "));
        if history.last().unwrap().starts_with("write") {
            break;
        }
    }
    let expected =
        ["off 2 by bmc", "off 3 by pdu", "off 4 by bmc", "off 5 by bmc", "off 6 by pdu", "write AwaitingOperator"];
    assert_eq!(history, expected, "bmc twice, pdu once, two rounds");
    assert_eq!(pauses, [5, 10, 20, 40, 60, 60]);
    assert_eq!(fixture.only().1.message, "all levels failed 2 times: level bmc: bmc says On; level pdu: bmc says On");
    assert_eq!(fixture.describe("n"), ["?AwaitingOperator"]);
    assert!(fixture.hold_message("n").contains("node n needs a person: all levels failed 2 times"));
}

#[test]
fn one_level_of_three_attempts_is_tried_three_times_a_round_and_more_attempts_than_are_kept_end_too() {
    for (attempts, rounds, tries) in [(3, 2, 6), (1, 3, 3), (10, 1, 10)] {
        let mut fixture = Fixture::at(Phase::Pending, |_| ());
        fixture.policy(|policy| {
            policy.levels = vec![level("bmc", attempts)];
            policy.rounds = rounds;
        });
        let mut tried = 0;
        while fixture.only().1.phase != Phase::AwaitingOperator {
            if fixture.act("n")[0].starts_with("off") {
                tried += 1;
                fixture.set_power("On");
            }
            fixture.advance(60);
        }
        assert_eq!(tried, tries, "{attempts} attempts, {rounds} rounds");
    }
    let mut fixture = Fixture::at(Phase::Fencing, |status| {
        status.attempts = (11..31).map(failed).collect();
        status.rounds = 2;
    });
    fixture.policy(|policy| policy.levels = vec![level("bmc", 9)]);
    fixture.advance(60);
    assert_eq!(fixture.describe("n"), ["write AwaitingOperator"], "of more than are kept each is the last");
}

#[test]
fn only_the_last_attempts_are_kept_and_their_numbers_go_on() {
    let mut fixture = Fixture::at(Phase::Fencing, |status| status.attempts = (11..31).map(failed).collect());
    fixture.advance(60);
    assert_eq!(fixture.act("n"), ["off 31 by bmc"]);
    let attempts = fixture.only().1.attempts;
    assert_eq!((attempts.len(), attempts[0].id), (Attempt::MAX_ATTEMPTS, 12));
}

#[test]
fn a_further_attempt_passes_the_gates_again_but_keeps_its_place() {
    let failed = || {
        let mut fixture = begun();
        fixture.set_power("On");
        fixture.advance(10);
        fixture
    };
    let mut fixture = failed();
    fixture.policy(|policy| (policy.brakes.max_concurrent, policy.brakes.cooldown_seconds) = (1, 600));
    let other = NodeFenceStatus { phase: Phase::Fencing, ..NodeFenceStatus::default() };
    fixture.fence("m", Trigger::Person, other);
    assert_eq!(fixture.describe("n"), ["off 2 by bmc"]);
    for (close, gate) in [
        ((|fixture| fixture.runs_on("n")) as fn(&mut Fixture), "?SelfNode"),
        (|fixture| fixture.policy(|policy| policy.paused = Some("x".to_owned())), "?Paused"),
        (|fixture| fixture.lose(&["m", "k", "l"]), "?LargeOutage"),
    ] {
        let mut fixture = failed();
        close(&mut fixture);
        assert_eq!(fixture.act("n"), ["write Fencing", gate]);
        assert_eq!(fixture.describe("n"), [gate]);
    }
    let mut fixture = failed();
    fixture.policy(|policy| policy.mode = PolicyMode::DryRun);
    assert_eq!(fixture.describe("n"), ["?DryRun"]);
}

#[test]
fn a_node_that_reports_again_is_not_fenced_unless_requested_or_in_flight() {
    let back = |mut fixture: Fixture| {
        fixture.reboot("n", "b0000000-0000-4000-8000-00000000000a");
        fixture
    };
    assert_eq!(back(Fixture::at(Phase::Pending, |_| ())).describe("n"), ["write Cancelled"]);
    assert_eq!(back(begun()).describe("n"), ["?AttemptUnderWay"], "the shot may still land");
    let mut fixture = back(begun());
    fixture.set_power("On");
    assert_eq!(fixture.describe("n"), ["write Cancelled"]);
    let asked_for = |phase| {
        let mut fixture = Fixture::new(&["n", "m", "k"]);
        fixture.fence("n", Trigger::Person, NodeFenceStatus { phase, ..NodeFenceStatus::default() });
        fixture
    };
    assert_eq!(asked_for(Phase::Pending).describe("n"), ["off 1 by bmc"]);
    assert_eq!(back(Fixture::at(Phase::AwaitingOperator, |_| ())).describe("n"), ["write Cancelled"]);
    assert_eq!(asked_for(Phase::AwaitingOperator).describe("n"), ["?AwaitingOperator"]);
}

#[test]
fn a_cancellation_takes_effect_before_the_next_attempt_and_not_during_one() {
    let cancelled = |mut fixture: Fixture| {
        fixture.edit(|spec, _| spec.cancelled = true);
        fixture
    };
    assert_eq!(cancelled(Fixture::at(Phase::Pending, |_| ())).describe("n"), ["write Cancelled"]);
    let mut fixture = cancelled(begun());
    assert_eq!(fixture.describe("n"), ["?AttemptUnderWay"]);
    fixture.set_outcome("done");
    assert_eq!(fixture.describe("n"), ["look"]);
    fixture.set_power("On");
    assert_eq!(fixture.describe("n"), ["write Cancelled"]);
    fixture.set_power("Off");
    assert_eq!(fixture.describe("n"), ["prove"], "it landed: that is a fact");
}

#[test]
fn another_incarnation_before_evidence_supersedes_the_incident_once_nothing_is_in_flight() {
    for phase in [Phase::Pending, Phase::AwaitingOperator] {
        let mut fixture = Fixture::at(phase, |_| ());
        fixture.reboot("n", "b0000000-0000-4000-8000-000000000002");
        assert_eq!(fixture.describe("n"), ["write Superseded"], "{phase:?}");
    }
    let mut fixture = begun();
    fixture.reboot("n", "b0000000-0000-4000-8000-000000000002");
    assert_eq!(fixture.describe("n"), ["?AttemptUnderWay"]);
    fixture.advance_to(132);
    assert_eq!(fixture.act("n"), ["write Superseded"]);
    assert!(fixture.describe("n").is_empty(), "it is well");
    let mut fixture = Fixture::at(Phase::Pending, |_| ());
    fixture.change("n", |node| node["metadata"]["uid"] = json!("uid-anew"));
    fixture.world.remove(Kind::Nodes, "uid-n", fixture.mono());
    assert_eq!(fixture.describe("n")[0], "write Superseded", "a recreated Node");
}

#[test]
fn a_deleted_node_is_fenced_by_the_data_of_its_incident() {
    let mut fixture = Fixture::at(Phase::Pending, |_| ());
    fixture.delete(Kind::Nodes, "n");
    assert_eq!(fixture.act("n"), ["off 1 by bmc"]);
    fixture.set_power("Off");
    assert_eq!(fixture.act("n"), ["prove"]);
    fixture.advance(20);
    assert_eq!(fixture.describe("n"), ["?MachinePoweredOff"], "there is nothing to taint");
}

#[test]
fn a_confirmation_or_evidence_from_before_a_crash_is_adopted_in_every_phase_before_fenced() {
    let waits = |fixture: &mut Fixture| fixture.evidence("n", "by-hand", FenceEvidenceKind::OperatorConfirmed);
    for phase in [Phase::Pending, Phase::Fencing, Phase::AwaitingOperator] {
        let mut fixture = Fixture::at(phase, |_| ());
        fixture.runs_on("n");
        waits(&mut fixture);
        assert_eq!(fixture.act("n"), ["write Fenced"], "{phase:?}");
        assert_eq!(fixture.only().1.evidence.as_deref(), Some("by-hand"));
    }
    let mut fixture = Fixture::at(Phase::AwaitingOperator, |_| ());
    fixture.policy(|policy| policy.minimum_evidence = Grade::Verified);
    waits(&mut fixture);
    assert_eq!(fixture.describe("n"), ["?AwaitingOperator"], "its policy wants more");
    fixture.policy(|policy| policy.minimum_evidence = Grade::Asserted);
    fixture.invalidate("by-hand");
    assert_eq!(fixture.describe("n"), ["?AwaitingOperator"], "it is not believed");
    let mut fixture = Fixture::at(Phase::Pending, |_| ());
    fixture.edit(|spec, _| spec.trigger.kind = Trigger::Person);
    fixture.reboot("n", "b0000000-0000-4000-8000-00000000000a");
    waits(&mut fixture);
    assert_eq!(fixture.describe("n"), ["?NodeStillReady"], "no evidence is adopted for a Ready node");
}

/// A confirmation of an earlier loss of the same incarnation ended the fencing of the next loss.
#[test]
fn a_confirmation_from_before_the_kubelet_reported_again_is_not_adopted() {
    let mut fixture = Fixture::at(Phase::Pending, |_| ());
    fixture.evidence("n", "by-hand", FenceEvidenceKind::OperatorConfirmed);
    fixture.heartbeat("n");
    assert_eq!(fixture.act("n"), ["off 1 by bmc"]);
}

#[test]
fn an_incident_without_its_policy_is_held() {
    let mut fixture = Fixture::at(Phase::Pending, |_| ());
    fixture.delete(Kind::FencePolicies, "p");
    assert_eq!(fixture.describe("n"), ["?NoPolicy"]);
}

#[test]
fn an_incident_that_is_being_deleted_is_ignored() {
    let mut fixture = Fixture::at(Phase::Pending, |_| ());
    let (spec, status) = fixture.only();
    let name = pod_safety_shared::authority::incident_name(&spec.node);
    let object = named(&name).terminating().set("/spec", json!(spec)).set("/status", json!(status));
    fixture.world.put(Kind::NodeFences, object, fixture.mono());
    assert!(fixture.describe("n").is_empty(), "and its name is not free yet");
    fixture.delete(Kind::NodeFences, &name);
    fixture.fences.clear();
    assert_eq!(fixture.describe("n"), ["open by p"]);
}

#[test]
fn withdrawn_evidence_is_not_created_again() {
    let mut fixture = begun();
    fixture.set_power("Off");
    fixture.evidence("n", "by-hand", FenceEvidenceKind::OperatorConfirmed);
    fixture.invalidate("by-hand");
    assert_eq!(fixture.describe("n"), ["prove"], "a confirmation that was withdrawn is another object");
    let name = pod_safety_shared::authority::incident_name(&fixture.incarnation("n"));
    fixture.evidence("n", &name, FenceEvidenceKind::OperatorConfirmed);
    fixture.invalidate(&name);
    assert_eq!(fixture.act("n"), ["write AwaitingOperator"]);
    assert!(fixture.only().1.message.contains("was invalidated: wrong"));
}
