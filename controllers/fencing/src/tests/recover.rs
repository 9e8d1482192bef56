//! From evidence to a node that is back.

use super::fixture::own;

use super::*;

/// Fenced by its first attempt, with evidence and taint, and with a pod that is being deleted.
fn fenced() -> Fixture {
    let mut fixture = Fixture::at(Phase::Pending, |_| ());
    fixture.pod("db-0", "n", Fixture::terminating);
    assert_eq!(fixture.act("n"), ["off 1 by bmc"]);
    fixture.set_outcome("done");
    fixture.set_power("Off");
    assert_eq!(fixture.act("n"), ["prove"]);
    assert_eq!(fixture.act("n"), ["taint"]);
    fixture
}

/// As [`fenced`], released, and to be switched on again.
fn released() -> Fixture {
    let mut fixture = fenced();
    fixture.policy(|policy| policy.recovery = Recovery::PowerOn);
    fixture.delete(Kind::Pods, "db-0");
    fixture.advance(10);
    fixture
}

fn on() -> Fixture {
    let mut fixture = released();
    assert_eq!(fixture.act("n"), ["on 2 by bmc"]);
    fixture
}

#[test]
fn the_machine_stays_off_until_its_pods_are_released_and_then_as_the_policy_says() {
    let mut fixture = fenced();
    fixture.policy(|policy| policy.recovery = Recovery::PowerOn);
    fixture.advance(60);
    assert_eq!(fixture.describe("n"), ["?WaitsForPods"]);
    assert!(fixture.hold_message("n").contains("Still terminating: 1"), "{}", fixture.hold_message("n"));
    fixture.delete(Kind::Pods, "db-0");
    assert_eq!(fixture.describe("n"), ["on 2 by bmc"]);
    fixture.policy(|policy| policy.recovery = Recovery::Hold);
    assert_eq!(fixture.describe("n"), ["?MachinePoweredOff"]);
    let mut early = fenced();
    early.policy(|policy| policy.recovery = Recovery::PowerOn);
    early.delete(Kind::Pods, "db-0");
    assert_eq!(early.describe("n"), ["?WaitsForPods"], "the taint asks pods to end: not at once");
}

#[test]
fn the_pause_before_a_machine_is_switched_on_counts_from_the_taint() {
    let mut fixture = Fixture::at(Phase::Pending, |_| ());
    fixture.policy(|policy| policy.recovery = Recovery::PowerOn);
    assert_eq!(fixture.act("n"), ["off 1 by bmc"]);
    fixture.advance(30);
    fixture.set_outcome("done");
    fixture.set_power("Off");
    assert_eq!(fixture.act("n"), ["prove"]);
    assert_eq!(fixture.act("n"), ["taint"]);
    assert_eq!(fixture.describe("n"), ["?WaitsForPods"], "the taint asks pods to end: not at once");
    fixture.advance(10);
    assert_eq!(fixture.describe("n"), ["on 2 by bmc"]);
}

#[test]
fn no_machine_is_switched_on_if_paused_cancelled_or_without_devices() {
    for (change, word) in [
        ((|fixture| fixture.policy(|policy| policy.paused = Some("x".to_owned()))) as fn(&mut Fixture), "?Paused"),
        (|fixture| fixture.exclude_from_remediation("n"), "?FencingSuspended"),
        (|fixture| fixture.edit(|spec, _| spec.cancelled = true), "?MachinePoweredOff"),
        (|fixture| fixture.edit(|spec, _| spec.keep_off = true), "?MachinePoweredOff"),
        (|fixture| fixture.delete(Kind::FenceDevices, "bmc"), "?NoDevices"),
    ] {
        let mut fixture = released();
        change(&mut fixture);
        fixture.advance(10);
        assert_eq!(fixture.describe("n"), [word]);
        let mut again = on();
        again.set_power("Off");
        change(&mut again);
        again.advance(10);
        assert_eq!(again.describe("n"), [word], "nor in a further attempt");
    }
}

#[test]
fn no_machine_is_switched_on_while_an_attempt_is_in_flight() {
    let mut fixture = Fixture::at(Phase::Pending, |_| ());
    fixture.policy(|policy| policy.recovery = Recovery::PowerOn);
    assert_eq!(fixture.act("n"), ["off 1 by bmc"]);
    fixture.confirmation("n", "by-hand", true);
    assert_eq!(fixture.act("n"), ["write Fenced"]);
    assert_eq!(fixture.act("n"), ["taint"]);
    fixture.advance(60);
    assert_eq!(fixture.describe("n"), ["?AttemptUnderWay"]);
    fixture.advance(2);
    assert_eq!(fixture.describe("n"), ["on 2 by bmc"]);
}

/// Ten seconds after a technician had confirmed that a machine is off, it was switched on, without any notice.
#[test]
fn bug_a_machine_that_a_person_confirmed_down_was_switched_on_without_permission() {
    let mut fixture = Fixture::at(Phase::Pending, |_| ());
    fixture.policy(|policy| policy.recovery = Recovery::PowerOn);
    fixture.confirmation("n", "by-hand", false);
    assert_eq!(fixture.act("n"), ["write Fenced"]);
    assert_eq!(fixture.act("n"), ["taint"]);
    fixture.advance(60);
    assert_eq!(fixture.describe("n"), ["?MachinePoweredOff"]);
    fixture.confirmation("n", "and-on", true);
    assert_eq!(fixture.describe("n"), ["?MachinePoweredOff"], "of the same second");
    fixture.invalidate("by-hand");
    assert_eq!(fixture.act("n"), ["write Fenced"]);
    fixture.advance(20);
    assert_eq!(fixture.describe("n"), ["on 1 by bmc"], "the last valid confirmation counts");
    let mut fenced = released();
    fenced.confirmation("n", "hands-in-it", false);
    assert_eq!(fenced.describe("n"), ["?MachinePoweredOff"], "also where a device proved it off");
    let (mut spec, status) = fenced.proofs["hands-in-it"].clone();
    spec.node.boot_id = NEXT_BOOT.to_owned();
    fenced.put_evidence("hands-in-it", spec, status);
    assert_eq!(fenced.describe("n"), ["on 2 by bmc"], "it was about another boot");
}

#[test]
fn of_several_confirmations_the_last_decides_whether_the_machine_is_switched_on() {
    for (later, expected) in [(true, "on 1 by bmc"), (false, "?MachinePoweredOff")] {
        let mut fixture = Fixture::at(Phase::Pending, |_| ());
        fixture.policy(|policy| policy.recovery = Recovery::PowerOn);
        for (name, power_on, created) in
            [("first", !later, "2026-01-01T00:00:10Z"), ("last", later, "2026-01-01T00:00:20Z")]
        {
            fixture.confirmation("n", name, power_on);
            let (spec, status) = fixture.proofs[name].clone();
            let object = own(name).set("/spec", json!(spec)).set("/status", json!(status));
            let object = object.set("/metadata/creationTimestamp", json!(created)).rv(50);
            fixture.world.put(Kind::FenceEvidences, object, fixture.mono());
        }
        assert_eq!(fixture.act("n"), ["write Fenced"]);
        assert_eq!(fixture.act("n"), ["taint"]);
        fixture.advance(60);
        assert_eq!(fixture.describe("n"), [expected]);
    }
}

#[test]
fn a_node_back_with_another_boot_completes_the_incident_and_loses_our_taint() {
    let mut early = on();
    early.reboot("n", NEXT_BOOT);
    assert_eq!(early.describe("n"), ["?AttemptUnderWay"], "the order may still take effect, on the new boot");
    let mut fixture = on();
    assert_eq!(fixture.describe("n"), ["?AttemptUnderWay"]);
    fixture.set_outcome("done");
    assert_eq!(fixture.describe("n"), ["look"]);
    fixture.set_power("On");
    assert_eq!(fixture.describe("n"), ["?AwaitingNodeReady"]);
    fixture.reboot("n", NEXT_BOOT);
    fixture.set_ready("n", "False");
    assert_eq!(fixture.describe("n"), ["?AwaitingNodeReady"], "not Ready yet");
    fixture.reboot("n", NEXT_BOOT);
    assert_eq!(fixture.act("n"), ["untaint"]);
    let (_, status) = fixture.only();
    assert_eq!((status.phase, status.tainted), (Phase::Done, false));
    assert!(fixture.describe("n").is_empty());
}

#[test]
fn a_node_that_comes_back_by_itself_terminates_its_old_pods_first() {
    let mut fixture = fenced();
    fixture.reboot("n", NEXT_BOOT);
    assert_eq!(fixture.act("n"), ["untaint"], "nothing proves this boot over");
    assert_eq!(fixture.describe("n"), ["?WaitsForPods"]);
    fixture.delete(Kind::Pods, "db-0");
    assert_eq!(fixture.describe("n"), ["write Done"], "it has no taint of ours");
}

#[test]
fn a_machine_that_cannot_be_switched_on_is_tried_three_times() {
    let mut fixture = on();
    for attempt in [3, 4] {
        fixture.set_power("Off");
        assert_eq!(fixture.describe("n"), ["?RetryBackoff"]);
        fixture.advance(20);
        assert_eq!(fixture.act("n"), [format!("on {attempt} by bmc")]);
    }
    fixture.set_power("Unknown");
    fixture.advance(60);
    assert_eq!(fixture.act("n"), ["write AwaitingOperator"]);
    assert_eq!(fixture.describe("n"), ["?AwaitingOperator"], "the evidence is valid, and is not adopted again");
    fixture.reboot("n", NEXT_BOOT);
    assert_eq!(fixture.describe("n"), ["untaint"]);
}

#[test]
fn a_further_power_on_waits_for_pods_deleted_meanwhile() {
    let mut fixture = on();
    fixture.set_power("Off");
    fixture.pod("db-1", "n", Fixture::terminating);
    fixture.advance(60);
    assert_eq!(fixture.describe("n"), ["?WaitsForPods"]);
}

#[test]
fn without_valid_evidence_the_incident_does_not_proceed() {
    let mut fixture = Fixture::at(Phase::Fenced, |status| status.evidence = Some("lost".to_owned()));
    assert_eq!(fixture.describe("n"), ["?EvidenceMissing"]);
    fixture.evidence("m", "lost", FenceEvidenceKind::OperatorConfirmed);
    assert_eq!(fixture.describe("n"), ["?EvidenceMissing"], "it is about another node");
    let mut fixture = Fixture::at(Phase::Fenced, |status| status.evidence = Some("lost".to_owned()));
    fixture.evidence("n", "lost", FenceEvidenceKind::OperatorConfirmed);
    let (mut spec, status) = fixture.proofs["lost"].clone();
    spec.node.boot_id = NEXT_BOOT.to_owned();
    fixture.put_evidence("lost", spec, status);
    assert_eq!(fixture.describe("n"), ["?EvidenceMissing"], "it is about another boot");
}

/// A pod that was deleted after the confirmation had expired was released by kube-controller-manager, because of the
/// taint.
#[test]
fn the_taint_of_an_expired_confirmation_is_removed() {
    let mut fixture = fenced();
    fixture.edit(|_, status| status.tainted = true);
    let name = fixture.only().1.evidence.unwrap();
    fixture.expire(&name);
    assert_eq!(fixture.act("n"), ["withdraw"]);
    let (_, status) = fixture.only();
    assert_eq!((status.phase, status.tainted), (Phase::AwaitingOperator, false));
    assert!(status.message.ends_with("confirm again if it is still true"), "{}", status.message);
    fixture.evidence("n", "by-hand", FenceEvidenceKind::OperatorConfirmed);
    assert_eq!(fixture.act("n"), ["write Fenced"], "it was confirmed anew");
}

/// The verifier rejected a confirmation because the policy required more by then, but the taint went on releasing
/// pods.
#[test]
fn bug_the_taint_of_a_confirmation_stayed_when_the_policy_required_verified_evidence() {
    let mut fixture = fenced();
    fixture.edit(|_, status| status.tainted = true);
    let name = fixture.only().1.evidence.unwrap();
    fixture.evidence("n", &name, FenceEvidenceKind::OperatorConfirmed);
    assert!(!fixture.act("n").contains(&"withdraw".to_owned()), "a confirmation is enough");
    fixture.policy(|policy| policy.minimum_evidence = Grade::Verified);
    assert_eq!(fixture.act("n"), ["withdraw"]);
    let (_, status) = fixture.only();
    assert_eq!((status.phase, status.tainted), (Phase::AwaitingOperator, false));
    assert!(status.message.contains("requires verified evidence"), "{}", status.message);
    fixture.policy(|policy| policy.minimum_evidence = Grade::Asserted);
    fixture.evidence("n", "by-hand", FenceEvidenceKind::OperatorConfirmed);
    assert_eq!(fixture.act("n"), ["write Fenced"], "it was confirmed anew");
}

/// kube-controller-manager acts on the taint: after the evidence was withdrawn it went on releasing pods there.
#[test]
fn bug_the_taint_of_withdrawn_evidence_stayed_on_the_node() {
    let mut fixture = fenced();
    fixture.edit(|_, status| status.tainted = true);
    let name = fixture.only().1.evidence.unwrap();
    fixture.invalidate(&name);
    assert_eq!(fixture.act("n"), ["withdraw"]);
    let (_, status) = fixture.only();
    assert_eq!((status.phase, status.tainted), (Phase::AwaitingOperator, false));
    assert!(status.message.ends_with("was invalidated: wrong"), "{}", status.message);
    assert_eq!(fixture.describe("n"), ["?AwaitingOperator"], "once");
    // The evidence was withdrawn while the incident awaited a person, because the machine could not be switched on.
    fixture.edit(|_, status| status.tainted = true);
    assert_eq!(fixture.describe("n"), ["withdraw"]);
    // Another confirmation is valid.
    fixture.evidence("n", "by-hand", FenceEvidenceKind::OperatorConfirmed);
    assert_eq!(fixture.act("n"), ["write Fenced"]);
    let (_, status) = fixture.only();
    assert_eq!((status.evidence.as_deref(), status.tainted), (Some("by-hand"), true), "the taint is true still");
}

#[test]
fn a_node_still_marked_ready_is_tainted_once_it_is_not() {
    let mut fixture = Fixture::new(&["n", "m", "k"]);
    fixture.fence("n", Trigger::Person, NodeFenceStatus::default());
    assert_eq!(fixture.act("n"), ["off 1 by bmc"]);
    fixture.alive.remove("n");
    fixture.advance(10);
    fixture.set_power("Off");
    assert_eq!(fixture.act("n"), ["prove"]);
    fixture.advance(30);
    assert_eq!(fixture.describe("n"), ["?NodeStillReady"], "that it is called Ready is old");
    fixture.set_ready("n", "Unknown");
    assert_eq!(fixture.describe("n"), ["taint"]);
}

#[test]
fn a_kubelet_reporting_in_the_same_boot_contradicts_the_evidence_within_half_a_minute() {
    type Sign = fn(&mut Fixture);
    let (renews, reports): (Sign, Sign) = (|fixture| fixture.heartbeat("n"), |fixture| fixture.set_ready("n", "True"));
    let rows = [(fenced(), renews, "its Lease was renewed"), (on(), reports, "it reports that it is Ready")];
    for (mut fixture, sign, words) in rows {
        let phase = fixture.only().1.phase.name();
        fixture.advance(1);
        sign(&mut fixture);
        assert_eq!(fixture.act("n"), [&format!("write {phase}"), "?SignOfLife"]);
        assert_eq!(fixture.describe("n"), ["?SignOfLife"]);
        assert!(fixture.hold_message("n").contains(words), "{}", fixture.hold_message("n"));
        fixture.advance(29);
        assert_eq!(fixture.describe("n"), ["?SignOfLife"]);
        fixture.advance(1);
        assert_eq!(fixture.act("n"), ["contradict"]);
        let (_, status) = fixture.only();
        assert_eq!((status.phase, status.tainted, status.gates.len()), (Phase::AwaitingOperator, false, 0));
        assert_eq!(fixture.describe("n"), ["?AwaitingOperator"]);
        fixture.reboot("n", "b0000000-0000-4000-8000-00000000000a");
        assert_eq!(fixture.describe("n"), ["?AwaitingOperator"], "a person finds out which machine it was");
    }
}

/// The machine was switched on and its kubelet renewed its Lease, but the API server refused its status. Its devices
/// became untrusted.
#[test]
fn bug_a_booted_machine_whose_status_was_refused_contradicted_its_devices() {
    let mut fixture = on();
    fixture.advance(10);
    fixture.set_power("On");
    fixture.advance(1);
    fixture.heartbeat("n");
    assert_eq!(fixture.act("n"), ["write Recovering", "?SignOfLife"]);
    // Its kubelet may not have reported its boot yet; then it had as long as a boot may take.
    fixture.assert_turns(300, &["?SignOfLife"], &["contradict"]);
}

/// The confirmation of the incident had expired, and its devices became untrusted because of a renewal that a newer
/// confirmation includes.
#[test]
fn bug_expired_evidence_was_contradicted_although_a_newer_confirmation_is_valid() {
    let mut fixture = fenced();
    fixture.edit(|_, status| status.tainted = true);
    let name = fixture.only().1.evidence.unwrap();
    fixture.expire(&name);
    fixture.advance(1);
    fixture.heartbeat("n");
    fixture.advance(20);
    fixture.evidence("n", "by-hand", FenceEvidenceKind::OperatorConfirmed);
    for phase in [Phase::Fenced, Phase::Recovering, Phase::AwaitingOperator] {
        fixture.edit(|_, status| status.phase = phase);
        assert_eq!(fixture.describe("n"), ["write Fenced"], "{phase:?}");
    }
    assert_eq!(fixture.act("n"), ["write Fenced"]);
    assert_eq!(fixture.only().1.evidence.as_deref(), Some("by-hand"));
}

/// One confirmation was contradicted, and the out-of-service taint was removed although a second one is valid.
#[test]
fn bug_a_contradiction_removed_the_taint_although_other_evidence_is_valid() {
    type Change = fn(&mut Fixture);
    let rows: [(&str, Change, bool); 4] = [
        ("a second confirmation, given after the renewal", |_| (), true),
        ("one that was withdrawn", |fixture| fixture.invalidate("by-hand"), false),
        ("one that is older than the last renewal", |fixture| fixture.heartbeat("n"), false),
        ("one of a Ready node", |fixture| fixture.set_ready("n", "True"), false),
    ];
    for (what, change, keeps) in rows {
        let mut fixture = fenced();
        fixture.edit(|_, status| status.tainted = true);
        fixture.advance(1);
        fixture.heartbeat("n");
        assert_eq!(fixture.act("n"), ["write Fenced", "?SignOfLife"]);
        fixture.advance(20);
        fixture.evidence("n", "by-hand", FenceEvidenceKind::OperatorConfirmed);
        fixture.advance(10);
        change(&mut fixture);
        assert_eq!(fixture.act("n"), ["contradict"], "{what}");
        assert_eq!(fixture.only().1.tainted, keeps, "{what}");
        if keeps {
            assert_eq!(fixture.act("n"), ["write Fenced"], "{what}");
            assert_eq!(fixture.only().1.evidence.as_deref(), Some("by-hand"), "{what}");
        }
    }
}

/// Found by the simulator: a power-off took effect minutes after it had failed, on a machine that had just been
/// reported on, and its incident never ended.
#[test]
fn bug_a_machine_that_went_off_after_it_was_reported_on_was_never_switched_on_again() {
    let mut fixture = on();
    for number in [3, 4] {
        fixture.advance(10);
        fixture.set_power("On");
        fixture.advance(299);
        assert_eq!(fixture.describe("n"), ["?AwaitingNodeReady"]);
        fixture.advance(1);
        assert_eq!(fixture.act("n"), [format!("on {number} by bmc")]);
    }
    fixture.advance(10);
    fixture.set_power("On");
    fixture.advance(300);
    assert_eq!(fixture.act("n"), ["write AwaitingOperator"]);
    assert!(fixture.only().1.message.contains("switched on 3 times"), "{}", fixture.only().1.message);
    fixture.reboot("n", NEXT_BOOT);
    assert_eq!(fixture.act("n"), ["untaint"], "late is not never");
}

/// Found by the simulator: a device that reports a wrong power state cannot switch on either, so the incident awaited
/// a person; the node came back in the incarnation that had been proved off, and kept its taint, and its device
/// stayed trusted.
#[test]
fn bug_a_node_that_reported_while_awaiting_a_person_did_not_contradict_its_evidence() {
    let mut fixture = on();
    fixture.edit(|_, status| status.phase = Phase::AwaitingOperator);
    assert_eq!(fixture.describe("n"), ["?AwaitingOperator"]);
    fixture.advance(1);
    fixture.heartbeat("n");
    assert_eq!(fixture.act("n"), ["write AwaitingOperator", "?SignOfLife"]);
    fixture.advance(30);
    assert_eq!(fixture.act("n"), ["contradict"]);
    let (_, status) = fixture.only();
    assert_eq!((status.phase, status.tainted), (Phase::AwaitingOperator, false));
    assert_eq!(fixture.describe("n"), ["?AwaitingOperator"]);
}

#[test]
fn a_booting_kubelet_that_renews_its_lease_first_contradicts_nothing() {
    let mut fixture = fenced();
    fixture.delete(Kind::Pods, "db-0");
    fixture.advance(600);
    fixture.heartbeat("n");
    assert_eq!(fixture.act("n"), ["write Fenced", "?SignOfLife"]);
    fixture.advance(5);
    fixture.reboot("n", NEXT_BOOT);
    assert_eq!(fixture.act("n"), ["untaint"]);
}

#[test]
fn a_ready_status_or_a_new_registration_without_a_boot_is_a_sign_of_life() {
    let mut fixture = fenced();
    fixture.advance(1);
    fixture.set_ready("n", "True");
    assert_eq!(fixture.describe("n"), ["write Fenced", "?SignOfLife"]);
    fixture.set_ready("n", "Unknown");
    assert!(!fixture.describe("n").contains(&"?SignOfLife".to_owned()));
    fixture.world.remove(Kind::Nodes, "uid-n", fixture.mono());
    fixture.change("n", |node| node["metadata"]["uid"] = json!("uid-anew"));
    assert_eq!(fixture.describe("n")[..2], ["write Fenced", "?SignOfLife"]);
}

/// Machines of one image count the same numbers of boots: a new machine contradicted correct evidence about the one
/// before.
#[test]
fn bug_an_equal_number_of_boots_made_a_device_untrusted() {
    let mut fixture = fenced();
    fixture.advance(1);
    fixture.world.remove(Kind::Nodes, "uid-n", fixture.mono());
    fixture.change("n", |node| {
        node["metadata"]["uid"] = json!("uid-anew");
        node["status"]["nodeInfo"]["bootID"] = json!("5");
    });
    assert!(!fixture.describe("n").contains(&"?SignOfLife".to_owned()), "{:?}", fixture.describe("n"));
}

#[test]
fn a_sign_of_life_that_is_gone_is_removed_from_the_status() {
    let mut fixture = fenced();
    fixture.set_ready("n", "True");
    fixture.advance(1);
    fixture.set_ready("n", "True");
    assert_eq!(fixture.act("n"), ["write Fenced", "?SignOfLife"]);
    fixture.set_ready("n", "Unknown");
    assert_eq!(fixture.act("n"), ["write Fenced"]);
    assert_eq!(fixture.describe("n"), ["?WaitsForPods"]);
}

#[test]
fn a_lost_new_incarnation_gets_its_own_incident_and_waits_for_attempts_in_flight() {
    let mut fixture = released();
    fixture.advance(600);
    assert_eq!(fixture.act("n"), ["on 2 by bmc"]);
    fixture.change("n", |node| node["status"]["nodeInfo"]["bootID"] = json!(NEXT_BOOT));
    assert_eq!(fixture.describe("n"), ["?AwaitingNodeReady", "?AttemptUnderWay"]);
    fixture.advance(62);
    assert_eq!(fixture.act("n"), ["open by p", "?AwaitingNodeReady"]);
    assert_eq!(fixture.describe("n"), ["off 1 by bmc", "?AwaitingNodeReady"]);
}

/// The Node was deleted while its machine was fenced, and its Lease with it. A tenant with `pods/status` marks their
/// own pod Ready.
#[test]
fn attack_a_tenant_that_marks_its_pod_ready_does_not_make_a_device_untrusted() {
    let mut fixture = fenced();
    let evil = |fixture: &mut Fixture, ready: &str| {
        fixture.pod("evil", "n", |pod| {
            pod["metadata"]["namespace"] = json!("tenant");
            pod["metadata"]["ownerReferences"] = json!([]);
            pod["status"]["conditions"] = json!([{ "type": "Ready", "status": ready }]);
        });
    };
    evil(&mut fixture, "False");
    let name = fixture.only().1.evidence.unwrap();
    let (mut spec, status) = fixture.proofs[&name].clone();
    spec.lease_renewed = None;
    fixture.put_evidence(&name, spec, status);
    fixture.world.remove(Kind::Nodes, "uid-n", fixture.mono());
    fixture.delete(Kind::NodeLeases, "n");
    fixture.advance(5);
    evil(&mut fixture, "True");
    fixture.act("n");
    fixture.advance(31);
    let acts = fixture.act("n");
    assert!(!acts.contains(&"contradict".to_owned()), "the device of all nodes is not trusted any more: {acts:?}");
}

/// The node is back with another boot. A tenant has a pod there that tolerates everything, is being deleted, and does
/// not terminate.
#[test]
fn attack_a_pod_of_the_new_boot_that_does_not_terminate_does_not_keep_the_taint() {
    let mut fixture = on();
    fixture.set_outcome("done");
    fixture.set_power("On");
    fixture.reboot("n", NEXT_BOOT);
    fixture.advance(1);
    fixture.pod("evil", "n", |pod| {
        pod["metadata"]["namespace"] = json!("tenant");
        pod["metadata"]["ownerReferences"] = json!([]);
        pod["metadata"]["deletionTimestamp"] = json!("2090-01-01T00:00:00Z");
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(2_000_000_000);
        pod["status"]["conditions"] = json!([{ "type": "Ready", "status": "True" }]);
    });
    fixture.advance(86_400);
    assert_eq!(fixture.act("n"), ["untaint"]);
    assert_eq!(fixture.only().1.phase, Phase::Done, "a pod of the former boot would be waited for");
}
