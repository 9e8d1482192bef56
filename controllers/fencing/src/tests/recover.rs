//! From evidence to a node that is back.

use super::fixture::own;
use super::*;
use pod_safety_shared::testing::objects::NEXT_BOOT;

/// Fenced by its first attempt, with evidence and taint, and with a pod that is being deleted.
fn fenced() -> Fixture {
    let mut stage = Fixture::at(Phase::Pending, |_| ());
    stage.pod("db-0", "n", Fixture::terminating);
    assert_eq!(stage.act("n"), ["off 1 by bmc"]);
    stage.set_outcome("done");
    stage.set_power("Off");
    assert_eq!(stage.act("n"), ["prove"]);
    assert_eq!(stage.act("n"), ["taint"]);
    stage
}

/// As [`fenced`], released, and to be switched on again.
fn released() -> Fixture {
    let mut stage = fenced();
    stage.policy(|policy| policy.recovery = Recovery::PowerOn);
    stage.delete(Kind::Pods, "db-0");
    stage.advance(10);
    stage
}

fn on() -> Fixture {
    let mut stage = released();
    assert_eq!(stage.act("n"), ["on 2 by bmc"]);
    stage
}

#[test]
fn the_machine_stays_off_until_its_pods_are_released_and_then_as_the_policy_says() {
    let mut stage = fenced();
    stage.policy(|policy| policy.recovery = Recovery::PowerOn);
    stage.advance(60);
    assert_eq!(stage.describe("n"), ["?WaitsForPods"]);
    assert!(stage.hold_message("n").contains("Still terminating: 1"), "{}", stage.hold_message("n"));
    stage.delete(Kind::Pods, "db-0");
    assert_eq!(stage.describe("n"), ["on 2 by bmc"]);
    stage.policy(|policy| policy.recovery = Recovery::Hold);
    assert_eq!(stage.describe("n"), ["?MachinePoweredOff"]);
    let mut early = fenced();
    early.policy(|policy| policy.recovery = Recovery::PowerOn);
    early.delete(Kind::Pods, "db-0");
    assert_eq!(early.describe("n"), ["?WaitsForPods"], "the taint asks pods to end: not at once");
}

#[test]
fn the_pause_before_a_machine_is_switched_on_counts_from_the_taint() {
    let mut stage = Fixture::at(Phase::Pending, |_| ());
    stage.policy(|policy| policy.recovery = Recovery::PowerOn);
    assert_eq!(stage.act("n"), ["off 1 by bmc"]);
    stage.advance(30);
    stage.set_outcome("done");
    stage.set_power("Off");
    assert_eq!(stage.act("n"), ["prove"]);
    assert_eq!(stage.act("n"), ["taint"]);
    assert_eq!(stage.describe("n"), ["?WaitsForPods"], "the taint asks pods to end: not at once");
    stage.advance(10);
    assert_eq!(stage.describe("n"), ["on 2 by bmc"]);
}

#[test]
fn no_machine_is_switched_on_if_paused_cancelled_or_without_devices() {
    for (change, word) in [
        (
            (|stage| stage.policy(|policy| policy.paused = Some("x".to_owned()))) as fn(&mut Fixture),
            "?Paused",
        ),
        (|stage| stage.exclude_from_remediation("n"), "?FencingSuspended"),
        (|stage| stage.edit(|spec, _| spec.cancelled = true), "?MachinePoweredOff"),
        (|stage| stage.edit(|spec, _| spec.keep_off = true), "?MachinePoweredOff"),
        (|stage| stage.delete(Kind::FenceDevices, "bmc"), "?NoDevices"),
    ] {
        let mut stage = released();
        change(&mut stage);
        stage.advance(10);
        assert_eq!(stage.describe("n"), [word]);
    }
}

#[test]
fn s13_no_machine_is_switched_on_while_an_attempt_is_in_flight() {
    let mut stage = Fixture::at(Phase::Pending, |_| ());
    stage.policy(|policy| policy.recovery = Recovery::PowerOn);
    assert_eq!(stage.act("n"), ["off 1 by bmc"]);
    stage.confirmation("n", "by-hand", true);
    assert_eq!(stage.act("n"), ["write Fenced"]);
    assert_eq!(stage.act("n"), ["taint"]);
    stage.advance(60);
    assert_eq!(stage.describe("n"), ["?AttemptUnderWay"]);
    stage.advance(2);
    assert_eq!(stage.describe("n"), ["on 2 by bmc"]);
}

/// Ten seconds after a technician had confirmed that a machine is off, it was switched on, without any notice.
#[test]
fn bug_a_machine_that_a_person_confirmed_down_was_switched_on_without_permission() {
    let mut stage = Fixture::at(Phase::Pending, |_| ());
    stage.policy(|policy| policy.recovery = Recovery::PowerOn);
    stage.confirmation("n", "by-hand", false);
    assert_eq!(stage.act("n"), ["write Fenced"]);
    assert_eq!(stage.act("n"), ["taint"]);
    stage.advance(60);
    assert_eq!(stage.describe("n"), ["?MachinePoweredOff"]);
    stage.confirmation("n", "and-on", true);
    assert_eq!(stage.describe("n"), ["?MachinePoweredOff"], "of the same second");
    stage.invalidate("by-hand");
    assert_eq!(stage.act("n"), ["write Fenced"]);
    stage.advance(20);
    assert_eq!(stage.describe("n"), ["on 1 by bmc"], "the last word that holds counts");
    let mut fenced = released();
    fenced.confirmation("n", "hands-in-it", false);
    assert_eq!(fenced.describe("n"), ["?MachinePoweredOff"], "also where a device proved it off");
}

#[test]
fn of_several_confirmations_the_last_decides_whether_the_machine_is_switched_on() {
    for (later, expected) in [(true, "on 1 by bmc"), (false, "?MachinePoweredOff")] {
        let mut stage = Fixture::at(Phase::Pending, |_| ());
        stage.policy(|policy| policy.recovery = Recovery::PowerOn);
        for (name, power_on, created) in
            [("first", !later, "2026-01-01T00:00:10Z"), ("last", later, "2026-01-01T00:00:20Z")]
        {
            stage.confirmation("n", name, power_on);
            let (spec, status) = stage.proofs[name].clone();
            let object = own(name).set("/spec", json!(spec)).set("/status", json!(status));
            let object = object.set("/metadata/creationTimestamp", json!(created)).rv(50);
            stage.world.put(Kind::FenceEvidences, object, stage.mono());
        }
        assert_eq!(stage.act("n"), ["write Fenced"]);
        assert_eq!(stage.act("n"), ["taint"]);
        stage.advance(60);
        assert_eq!(stage.describe("n"), [expected]);
    }
}

#[test]
fn a_node_back_with_another_boot_completes_the_incident_and_loses_our_taint() {
    let mut stage = on();
    assert_eq!(stage.describe("n"), ["?AttemptUnderWay"]);
    stage.set_outcome("done");
    assert_eq!(stage.describe("n"), ["look"]);
    stage.set_power("On");
    assert_eq!(stage.describe("n"), ["?AwaitingNodeReady"]);
    stage.reboot("n", NEXT_BOOT);
    stage.set_ready("n", "False");
    assert_eq!(stage.describe("n"), ["?AwaitingNodeReady"], "not Ready yet");
    stage.reboot("n", NEXT_BOOT);
    assert_eq!(stage.act("n"), ["untaint"]);
    let (_, status) = stage.only();
    assert_eq!((status.phase, status.tainted), (Phase::Done, false));
    assert!(stage.describe("n").is_empty());
}

#[test]
fn a_node_that_comes_back_by_itself_terminates_its_old_pods_first() {
    let mut stage = fenced();
    stage.reboot("n", NEXT_BOOT);
    assert_eq!(stage.act("n"), ["untaint"], "nothing proves this boot over");
    assert_eq!(stage.describe("n"), ["?WaitsForPods"]);
    stage.delete(Kind::Pods, "db-0");
    assert_eq!(stage.describe("n"), ["write Done"], "nothing of ours is on it");
}

#[test]
fn a_machine_that_cannot_be_switched_on_is_tried_three_times() {
    let mut stage = on();
    for attempt in [3, 4] {
        stage.set_power("Off");
        assert_eq!(stage.describe("n"), ["?RetryBackoff"]);
        stage.advance(20);
        assert_eq!(stage.act("n"), [format!("on {attempt} by bmc")]);
    }
    stage.set_power("Unknown");
    stage.advance(60);
    assert_eq!(stage.act("n"), ["write AwaitingOperator"]);
    assert_eq!(stage.describe("n"), ["?AwaitingOperator"], "the evidence holds, and is not taken anew");
    stage.reboot("n", NEXT_BOOT);
    assert_eq!(stage.describe("n"), ["untaint"]);
}

#[test]
fn a_further_power_on_waits_for_pods_deleted_meanwhile() {
    let mut stage = on();
    stage.set_power("Off");
    stage.pod("db-1", "n", Fixture::terminating);
    stage.advance(60);
    assert_eq!(stage.describe("n"), ["?WaitsForPods"]);
}

#[test]
fn without_valid_evidence_the_incident_does_not_proceed() {
    let mut stage = Fixture::at(Phase::Fenced, |status| status.evidence = Some("lost".to_owned()));
    assert_eq!(stage.describe("n"), ["?EvidenceMissing"]);
    stage.evidence("m", "lost", FenceEvidenceKind::OperatorConfirmed);
    assert_eq!(stage.describe("n"), ["?EvidenceMissing"], "it is about another node");
    let mut stage = fenced();
    let name = stage.only().1.evidence.unwrap();
    stage.invalidate(&name);
    assert_eq!(stage.act("n"), ["withdraw"]);
    assert!(stage.only().1.message.ends_with("was invalidated: wrong"));
}

/// A pod that was deleted after the confirmation had expired was released by kube-controller-manager, because of the
/// taint.
#[test]
fn the_taint_of_an_expired_confirmation_is_removed() {
    let mut stage = fenced();
    stage.edit(|_, status| status.tainted = true);
    let name = stage.only().1.evidence.unwrap();
    stage.expire(&name);
    assert_eq!(stage.act("n"), ["withdraw"]);
    let (_, status) = stage.only();
    assert_eq!((status.phase, status.tainted), (Phase::AwaitingOperator, false));
    assert!(status.message.ends_with("confirm again if it is still true"), "{}", status.message);
    stage.evidence("n", "by-hand", FenceEvidenceKind::OperatorConfirmed);
    assert_eq!(stage.act("n"), ["write Fenced"], "it was confirmed anew");
}

/// The verifier rejected a confirmation because the policy required more by then, but the taint went on releasing
/// pods.
#[test]
fn bug_the_taint_of_a_confirmation_stayed_when_the_policy_required_verified_evidence() {
    let mut stage = fenced();
    stage.edit(|_, status| status.tainted = true);
    let name = stage.only().1.evidence.unwrap();
    stage.evidence("n", &name, FenceEvidenceKind::OperatorConfirmed);
    assert!(!stage.act("n").contains(&"withdraw".to_owned()), "a word is enough");
    stage.policy(|policy| policy.minimum_evidence = Grade::Verified);
    assert_eq!(stage.act("n"), ["withdraw"]);
    let (_, status) = stage.only();
    assert_eq!((status.phase, status.tainted), (Phase::AwaitingOperator, false));
    assert!(status.message.contains("requires verified evidence"), "{}", status.message);
    stage.policy(|policy| policy.minimum_evidence = Grade::Asserted);
    stage.evidence("n", "by-hand", FenceEvidenceKind::OperatorConfirmed);
    assert_eq!(stage.act("n"), ["write Fenced"], "it was confirmed anew");
}

/// kube-controller-manager acts on the taint: after the evidence was withdrawn it went on releasing pods there.
#[test]
fn bug_the_taint_of_withdrawn_evidence_stayed_on_the_node() {
    let mut stage = fenced();
    stage.edit(|_, status| status.tainted = true);
    let name = stage.only().1.evidence.unwrap();
    stage.invalidate(&name);
    assert_eq!(stage.act("n"), ["withdraw"]);
    let (_, status) = stage.only();
    assert_eq!((status.phase, status.tainted), (Phase::AwaitingOperator, false));
    assert!(status.message.ends_with("was invalidated: wrong"), "{}", status.message);
    assert_eq!(stage.describe("n"), ["?AwaitingOperator"], "once");
    // The evidence was withdrawn while the incident awaited a person, because the machine could not be switched on.
    stage.edit(|_, status| status.tainted = true);
    assert_eq!(stage.describe("n"), ["withdraw"]);
    // Another confirmation is valid.
    stage.evidence("n", "by-hand", FenceEvidenceKind::OperatorConfirmed);
    assert_eq!(stage.act("n"), ["write Fenced"]);
    let (_, status) = stage.only();
    assert_eq!(
        (status.evidence.as_deref(), status.tainted),
        (Some("by-hand"), true),
        "the taint is true still"
    );
}

#[test]
fn a_node_still_marked_ready_is_tainted_once_it_is_not() {
    let mut stage = Fixture::new(&["n", "m", "k"]);
    stage.fence("n", Trigger::Person, NodeFenceStatus::default());
    assert_eq!(stage.act("n"), ["off 1 by bmc"]);
    stage.alive.remove("n");
    stage.advance(10);
    stage.set_power("Off");
    assert_eq!(stage.act("n"), ["prove"]);
    stage.advance(30);
    assert_eq!(stage.describe("n"), ["?NodeStillReady"], "that it is called Ready is old");
    stage.set_ready("n", "Unknown");
    assert_eq!(stage.describe("n"), ["taint"]);
}

#[test]
fn a_kubelet_reporting_in_the_same_boot_contradicts_the_evidence_within_half_a_minute() {
    type Sign = fn(&mut Fixture);
    let (renews, reports): (Sign, Sign) =
        (|stage| stage.heartbeat("n"), |stage| stage.set_ready("n", "True"));
    let rows = [(fenced(), renews, "its Lease was renewed"), (on(), reports, "it reports that it is Ready")];
    for (mut stage, sign, words) in rows {
        let phase = stage.only().1.phase.name();
        stage.advance(1);
        sign(&mut stage);
        assert_eq!(stage.act("n"), [&format!("write {phase}"), "?SignOfLife"]);
        assert_eq!(stage.describe("n"), ["?SignOfLife"]);
        assert!(stage.hold_message("n").contains(words), "{}", stage.hold_message("n"));
        stage.advance(29);
        assert_eq!(stage.describe("n"), ["?SignOfLife"]);
        stage.advance(1);
        assert_eq!(stage.act("n"), ["contradict"]);
        let (_, status) = stage.only();
        assert_eq!((status.phase, status.tainted, status.gates.len()), (Phase::AwaitingOperator, false, 0));
        assert_eq!(stage.describe("n"), ["?AwaitingOperator"]);
        stage.reboot("n", "b0000000-0000-4000-8000-00000000000a");
        assert_eq!(stage.describe("n"), ["?AwaitingOperator"], "a person finds out which machine it was");
    }
}

/// The machine was switched on and its kubelet renewed its Lease, but the API server refused its status. Its devices
/// became untrusted.
#[test]
fn bug_a_booted_machine_whose_status_was_refused_contradicted_its_devices() {
    let mut stage = on();
    stage.advance(10);
    stage.set_power("On");
    stage.advance(1);
    stage.heartbeat("n");
    assert_eq!(stage.act("n"), ["write Recovering", "?SignOfLife"]);
    stage.advance(299);
    assert_eq!(
        stage.describe("n"),
        ["?SignOfLife"],
        "it was told on: its kubelet may not have said its boot yet"
    );
    stage.advance(1);
    assert_eq!(stage.describe("n"), ["contradict"], "it had as long as a boot may take");
}

/// The confirmation of the incident had expired, and its devices became untrusted because of a renewal that a newer
/// confirmation includes.
#[test]
fn bug_expired_evidence_was_contradicted_although_a_newer_confirmation_is_valid() {
    let mut stage = fenced();
    stage.edit(|_, status| status.tainted = true);
    let name = stage.only().1.evidence.unwrap();
    stage.expire(&name);
    stage.advance(1);
    stage.heartbeat("n");
    stage.advance(20);
    stage.evidence("n", "by-hand", FenceEvidenceKind::OperatorConfirmed);
    for phase in [Phase::Fenced, Phase::Recovering, Phase::AwaitingOperator] {
        stage.edit(|_, status| status.phase = phase);
        assert_eq!(stage.describe("n"), ["write Fenced"], "{phase:?}");
    }
    assert_eq!(stage.act("n"), ["write Fenced"]);
    assert_eq!(stage.only().1.evidence.as_deref(), Some("by-hand"));
}

/// One confirmation was contradicted, and the out-of-service taint was removed although a second one is valid.
#[test]
fn bug_a_contradiction_removed_the_taint_although_other_evidence_is_valid() {
    type Change = fn(&mut Fixture);
    let rows: [(&str, Change, bool); 4] = [
        ("a second confirmation, given after the renewal", |_| (), true),
        ("one that was withdrawn", |stage| stage.invalidate("by-hand"), false),
        ("one that is older than the last renewal", |stage| stage.heartbeat("n"), false),
        ("one of a node that says that it is Ready", |stage| stage.set_ready("n", "True"), false),
    ];
    for (what, change, keeps) in rows {
        let mut stage = fenced();
        stage.edit(|_, status| status.tainted = true);
        stage.advance(1);
        stage.heartbeat("n");
        assert_eq!(stage.act("n"), ["write Fenced", "?SignOfLife"]);
        stage.advance(20);
        stage.evidence("n", "by-hand", FenceEvidenceKind::OperatorConfirmed);
        stage.advance(10);
        change(&mut stage);
        assert_eq!(stage.act("n"), ["contradict"], "{what}");
        assert_eq!(stage.only().1.tainted, keeps, "{what}");
        if keeps {
            assert_eq!(stage.act("n"), ["write Fenced"], "{what}");
            assert_eq!(stage.only().1.evidence.as_deref(), Some("by-hand"), "{what}");
        }
    }
}

/// Found by the simulator: a power-off took effect minutes after it had failed, on a machine that had just been
/// reported on, and its incident never ended.
#[test]
fn bug_a_machine_that_went_off_after_it_was_reported_on_was_never_switched_on_again() {
    let mut stage = on();
    for number in [3, 4] {
        stage.advance(10);
        stage.set_power("On");
        stage.advance(299);
        assert_eq!(stage.describe("n"), ["?AwaitingNodeReady"]);
        stage.advance(1);
        assert_eq!(stage.act("n"), [format!("on {number} by bmc")]);
    }
    stage.advance(10);
    stage.set_power("On");
    stage.advance(300);
    assert_eq!(stage.act("n"), ["write AwaitingOperator"]);
    assert!(stage.only().1.message.contains("switched on 3 times"), "{}", stage.only().1.message);
    stage.reboot("n", NEXT_BOOT);
    assert_eq!(stage.act("n"), ["untaint"], "late is not never");
}

/// Found by the simulator: a device that reports a wrong power state cannot switch on either, so the incident awaited
/// a person; the node came back in the incarnation that had been proved off, and kept its taint, and its device
/// stayed trusted.
#[test]
fn bug_a_node_that_reported_while_awaiting_a_person_did_not_contradict_its_evidence() {
    let mut stage = on();
    stage.edit(|_, status| status.phase = Phase::AwaitingOperator);
    assert_eq!(stage.describe("n"), ["?AwaitingOperator"]);
    stage.advance(1);
    stage.heartbeat("n");
    assert_eq!(stage.act("n"), ["write AwaitingOperator", "?SignOfLife"]);
    stage.advance(30);
    assert_eq!(stage.act("n"), ["contradict"]);
    let (_, status) = stage.only();
    assert_eq!((status.phase, status.tainted), (Phase::AwaitingOperator, false));
    assert_eq!(stage.describe("n"), ["?AwaitingOperator"]);
}

#[test]
fn a_booting_kubelet_that_renews_its_lease_first_contradicts_nothing() {
    let mut stage = fenced();
    stage.delete(Kind::Pods, "db-0");
    stage.advance(600);
    stage.heartbeat("n");
    assert_eq!(stage.act("n"), ["write Fenced", "?SignOfLife"]);
    stage.advance(5);
    stage.reboot("n", NEXT_BOOT);
    assert_eq!(stage.act("n"), ["untaint"]);
}

#[test]
fn a_ready_status_or_a_new_registration_without_a_boot_is_a_sign_of_life() {
    let mut stage = fenced();
    stage.advance(1);
    stage.set_ready("n", "True");
    assert_eq!(stage.describe("n"), ["write Fenced", "?SignOfLife"]);
    stage.set_ready("n", "Unknown");
    assert!(!stage.describe("n").contains(&"?SignOfLife".to_owned()));
    stage.world.remove(Kind::Nodes, "uid-n", stage.mono());
    stage.change("n", |node| node["metadata"]["uid"] = json!("uid-anew"));
    assert_eq!(stage.describe("n")[..2], ["write Fenced", "?SignOfLife"]);
}

/// Machines of one image count the same numbers of boots: a new machine contradicted correct evidence about the one
/// before.
#[test]
fn bug_an_equal_number_of_boots_made_a_device_untrusted() {
    let mut stage = fenced();
    stage.advance(1);
    stage.world.remove(Kind::Nodes, "uid-n", stage.mono());
    stage.change("n", |node| {
        node["metadata"]["uid"] = json!("uid-anew");
        node["status"]["nodeInfo"]["bootID"] = json!("5");
    });
    assert!(!stage.describe("n").contains(&"?SignOfLife".to_owned()), "{:?}", stage.describe("n"));
}

#[test]
fn a_sign_of_life_that_is_gone_is_removed_from_the_status() {
    let mut stage = fenced();
    stage.set_ready("n", "True");
    stage.advance(1);
    stage.set_ready("n", "True");
    assert_eq!(stage.act("n"), ["write Fenced", "?SignOfLife"]);
    stage.set_ready("n", "Unknown");
    assert_eq!(stage.act("n"), ["write Fenced"]);
    assert_eq!(stage.describe("n"), ["?WaitsForPods"]);
}

#[test]
fn a_lost_new_incarnation_gets_its_own_incident_and_waits_for_attempts_in_flight() {
    let mut stage = released();
    stage.advance(600);
    assert_eq!(stage.act("n"), ["on 2 by bmc"]);
    stage.change("n", |node| node["status"]["nodeInfo"]["bootID"] = json!(NEXT_BOOT));
    assert_eq!(stage.describe("n"), ["?AwaitingNodeReady", "?AttemptUnderWay"]);
    stage.advance(62);
    assert_eq!(stage.act("n"), ["open by p", "?AwaitingNodeReady"]);
    assert_eq!(stage.describe("n"), ["off 1 by bmc", "?AwaitingNodeReady"]);
}

/// The Node was deleted while its machine was fenced, and its Lease with it. A tenant with `pods/status` marks their
/// own pod Ready.
#[test]
fn attack_a_tenant_that_marks_its_pod_ready_does_not_make_a_device_untrusted() {
    let mut stage = fenced();
    let evil = |stage: &mut Fixture, ready: &str| {
        stage.pod("evil", "n", |pod| {
            pod["metadata"]["namespace"] = json!("tenant");
            pod["metadata"]["ownerReferences"] = json!([]);
            pod["status"]["conditions"] = json!([{ "type": "Ready", "status": ready }]);
        });
    };
    evil(&mut stage, "False");
    let name = stage.only().1.evidence.unwrap();
    let (mut spec, status) = stage.proofs[&name].clone();
    spec.lease_renewed = None;
    stage.put_evidence(&name, spec, status);
    stage.world.remove(Kind::Nodes, "uid-n", stage.mono());
    stage.delete(Kind::NodeLeases, "n");
    stage.advance(5);
    evil(&mut stage, "True");
    stage.act("n");
    stage.advance(31);
    let acts = stage.act("n");
    assert!(
        !acts.contains(&"contradict".to_owned()),
        "the device of all nodes is not trusted any more: {acts:?}"
    );
}

/// The node is back with another boot. A tenant has a pod there that tolerates everything, is being deleted, and does
/// not terminate.
#[test]
fn attack_a_pod_of_the_new_boot_that_does_not_terminate_does_not_keep_the_taint() {
    let mut stage = on();
    stage.set_outcome("done");
    stage.set_power("On");
    stage.reboot("n", NEXT_BOOT);
    stage.advance(1);
    stage.pod("evil", "n", |pod| {
        pod["metadata"]["namespace"] = json!("tenant");
        pod["metadata"]["ownerReferences"] = json!([]);
        pod["metadata"]["deletionTimestamp"] = json!("2090-01-01T00:00:00Z");
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(2_000_000_000);
        pod["status"]["conditions"] = json!([{ "type": "Ready", "status": "True" }]);
    });
    stage.advance(86_400);
    assert_eq!(stage.act("n"), ["untaint"]);
    assert_eq!(stage.only().1.phase, Phase::Done, "a pod of the former boot would be waited for");
}
