//! Rows for mutants of the state machine that other tests did not catch.

use super::*;

fn pending() -> Fixture {
    Fixture::at(Phase::Pending, |_| ())
}

/// Evidence about this incarnation of `n` as stored in the API, with this change.
fn evidence(fixture: &Fixture, change: impl FnOnce(&mut Value)) {
    let node = fixture.incarnation("n");
    let mut proof = json!({
        "metadata": { "name": "e", "uid": "uid-e", "resourceVersion": "400" },
        "spec": { "node": node, "kind": "Asserted", "by": "somebody", "reason": "I saw it", "powerOn": true },
    });
    change(&mut proof);
    fixture.world.apply(Kind::FenceEvidences, &proof, fixture.mono());
}

/// Evidence about a deleted node is checked against its incident, and nothing less.
#[test]
fn evidence_about_a_deleted_node_must_match_its_incarnation_and_its_policy() {
    type Change = fn(&mut Value);
    let rows: [(&str, Grade, bool, Change); 8] = [
        ("a confirmation", Grade::Asserted, true, |_| ()),
        ("a confirmation, where more is required", Grade::Verified, false, |_| ()),
        ("two looks", Grade::Verified, true, |proof| proof["spec"]["kind"] = json!("PowerOff")),
        ("another boot", Grade::Asserted, false, |proof| {
            proof["spec"]["node"]["bootID"] = json!("b0000000-0000-4000-8000-000000000000")
        }),
        ("another Node", Grade::Asserted, false, |proof| proof["spec"]["node"]["uid"] = json!("uid-m")),
        ("another name", Grade::Asserted, false, |proof| proof["spec"]["node"]["name"] = json!("m")),
        ("invalid", Grade::Asserted, false, |proof| {
            proof["status"] = json!({ "invalidated": { "at": "2026-01-01T00:00:00Z", "reason": "wrong" } });
        }),
        ("of storage", Grade::Asserted, false, |proof| {
            proof["spec"]["kind"] = json!("StorageFenced");
            proof["spec"]["storage"] = json!([{ "driver": "d", "className": "c" }]);
        }),
    ];
    for (says, minimum, counts, change) in rows {
        let mut fixture = Fixture::at(Phase::AwaitingOperator, |_| ());
        fixture.policy(|policy| policy.minimum_evidence = minimum);
        of_last_renewal(&fixture, change);
        fixture.delete(Kind::Nodes, "n");
        let word = if counts { "write Fenced" } else { "?AwaitingOperator" };
        assert_eq!(fixture.describe("n"), [word], "{says}");
    }
}

/// Evidence that names the last renewal of the Lease of `n`.
fn of_last_renewal(fixture: &Fixture, change: impl FnOnce(&mut Value)) {
    let renewed = fixture.renewed("n");
    evidence(fixture, |proof| {
        proof["spec"]["leaseRenewed"] = json!(renewed);
        change(proof);
    });
}

/// For a deleted Node the incident required less than the verifier did.
#[test]
fn bug_evidence_about_a_deleted_node_was_valid_despite_a_report_or_an_unreadable_policy() {
    let fixture = || {
        let mut fixture = Fixture::at(Phase::AwaitingOperator, |_| ());
        fixture.policy(|policy| policy.minimum_evidence = Grade::Asserted);
        fixture
    };
    let mut reporting = fixture();
    of_last_renewal(&reporting, |_| ());
    reporting.advance(1);
    reporting.heartbeat("n");
    reporting.delete(Kind::Nodes, "n");
    assert_eq!(reporting.describe("n"), ["?AwaitingOperator"], "its kubelet renewed its Lease since");
    let mut unreadable = fixture();
    of_last_renewal(&unreadable, |_| ());
    unreadable.delete(Kind::Nodes, "n");
    // Without a resourceVersion it is undecodable.
    let policy = json!({ "metadata": { "name": "q", "uid": "uid-q" }, "spec": { "levels": [] } });
    unreadable.world.apply(Kind::FencePolicies, &policy, unreadable.mono());
    assert_eq!(unreadable.describe("n"), ["?AwaitingOperator"], "that policy may ask for verified evidence");
}

/// Whether a sign of life came after the evidence is decided by two `renewTime`s of one kubelet, or else by when this
/// process saw both.
#[test]
fn a_lease_renewal_is_a_sign_of_life_only_after_the_evidence() {
    let fenced = |renewed: Option<String>| {
        let mut fixture = Fixture::at(Phase::Fenced, |status| {
            (status.evidence, status.tainted) = (Some("e".to_owned()), true);
        });
        fixture.advance(5);
        evidence(&fixture, |proof| proof["spec"]["leaseRenewed"] = json!(renewed));
        fixture
    };
    let doubted = |fixture: &Fixture| fixture.describe("n").contains(&"?SignOfLife".to_owned());
    let last = Fixture::at(Phase::Fenced, |_| ()).renewed("n");
    let mut fixture = fenced(Some(last.clone()));
    assert!(!doubted(&fixture), "the stamp that was there is no sign");
    fixture.advance(1);
    fixture.heartbeat("n");
    assert!(doubted(&fixture), "a later one is");
    assert!(doubted(&fenced(Some("2025-12-31T23:59:59Z".to_owned()))), "it was renewed since by its own clock");
    assert!(!doubted(&fenced(Some("2026-01-01T01:00:00Z".to_owned()))), "the evidence knows of a later stamp");
    let mut fixture = fenced(None);
    assert!(!doubted(&fixture), "an earlier report is no sign");
    fixture.heartbeat("n");
    assert!(!doubted(&fixture), "nor is a report of the same moment");
    fixture.advance(1);
    fixture.heartbeat("n");
    assert!(doubted(&fixture));
}

/// A status update that was there when the evidence was first seen does not contradict it.
#[test]
fn a_ready_status_is_a_sign_of_life_only_after_the_evidence() {
    let mut fixture = Fixture::at(Phase::Fenced, |status| {
        (status.evidence, status.tainted) = (Some("e".to_owned()), true);
    });
    fixture.set_ready("n", "True");
    let renewed = fixture.renewed("n");
    evidence(&fixture, |proof| proof["spec"]["leaseRenewed"] = json!(renewed));
    let doubted = |fixture: &Fixture| fixture.describe("n").contains(&"?SignOfLife".to_owned());
    assert!(!doubted(&fixture), "in the same moment");
    fixture.advance(1);
    assert!(!doubted(&fixture));
    fixture.set_ready("n", "False");
    assert!(!doubted(&fixture), "a node that reports NotReady is not healthy");
    fixture.set_ready("n", "True");
    assert!(doubted(&fixture));
}

#[test]
fn a_node_counts_as_reporting_for_exactly_the_policys_time() {
    let mut fixture = pending();
    fixture.reboot("n", "b0000000-0000-4000-8000-00000000000a");
    fixture.alive.remove("n");
    // That it is called Ready is old.
    fixture.assert_turns(60, &["write Cancelled"], &["off 1 by bmc"]);
}

#[test]
fn a_pod_that_waits_for_its_finalizers_does_not_keep_a_machine_off() {
    let mut fixture = Fixture::at(Phase::Fenced, |status| {
        (status.evidence, status.tainted) = (Some("e".to_owned()), true);
    });
    fixture.policy(|policy| policy.recovery = Recovery::PowerOn);
    let renewed = fixture.renewed("n");
    evidence(&fixture, |proof| proof["spec"]["leaseRenewed"] = json!(renewed));
    fixture.advance(10);
    fixture.pod("db-0", "n", Fixture::terminating);
    assert_eq!(fixture.describe("n"), ["?WaitsForPods"]);
    fixture.pod("db-0", "n", Fixture::finalized);
    assert_eq!(fixture.describe("n"), ["on 1 by bmc"]);
    fixture.pod("db-0", "n", |_| ());
    assert_eq!(fixture.describe("n"), ["on 1 by bmc"], "the pod is not deleted");
}

/// The attempts of earlier acts do not count for this one.
#[test]
fn power_on_attempts_do_not_count_as_power_off_attempts() {
    let attempt = |id, act: &str, power: &str| Attempt {
        id,
        act: act.parse().unwrap(),
        devices: level("bmc", 1).devices,
        verified: Some(Verified { power: power.parse().unwrap(), ..Verified::default() }),
        ..Attempt::default()
    };
    let mut fixture = Fixture::at(Phase::Fencing, |status| {
        status.attempts = vec![attempt(1, "off", "On"), attempt(2, "on", "Off")];
    });
    fixture.policy(|policy| policy.rounds = 1);
    assert_eq!(fixture.describe("n"), ["off 3 by bmc"], "no shot has failed: no pause, and its level is fresh");
    let mut fixture = Fixture::at(Phase::Recovering, |status| {
        (status.evidence, status.tainted) = (Some("e".to_owned()), true);
        status.attempts = vec![attempt(1, "on", "On"), attempt(2, "off", "On")];
    });
    fixture.policy(|policy| policy.recovery = Recovery::PowerOn);
    let renewed = fixture.renewed("n");
    evidence(&fixture, |proof| proof["spec"]["leaseRenewed"] = json!(renewed));
    fixture.advance(10);
    assert_eq!(fixture.describe("n"), ["on 3 by bmc"], "a check of a power-off does not count for a power-on");
}

/// The devices that switch on a machine that another source switched off.
#[test]
fn a_machine_switched_off_by_a_person_is_switched_on_by_the_first_capable_level() {
    let driver = |name: &'static str, driver: &'static str| {
        move |fixture: &mut Fixture| fixture.device(name, |device| device["spec"]["driver"] = json!(driver))
    };
    type Change = Box<dyn Fn(&mut Fixture)>;
    let rows: [(&str, Vec<Change>, &str); 5] = [
        ("both can", vec![], "on 1 by first"),
        ("the first is a person's", vec![Box::new(driver("first", "Manual"))], "on 1 by second"),
        ("the first is a Machine", vec![Box::new(driver("first", "Machine"))], "on 1 by second"),
        (
            "the first is deleted",
            vec![Box::new(|fixture: &mut Fixture| fixture.delete(Kind::FenceDevices, "first"))],
            "on 1 by second",
        ),
        ("neither can", vec![Box::new(driver("first", "Manual")), Box::new(driver("second", "Manual"))], "?NoDevices"),
    ];
    for (says, changes, expected) in rows {
        let mut fixture = Fixture::at(Phase::Fenced, |status| {
            (status.evidence, status.tainted) = (Some("e".to_owned()), true);
        });
        ["first", "second"].iter().for_each(|name| fixture.device(name, |_| ()));
        fixture.policy(|policy| {
            policy.recovery = Recovery::PowerOn;
            policy.levels = vec![level("first", 1), level("second", 1)];
        });
        changes.iter().for_each(|change| change(&mut fixture));
        let renewed = fixture.renewed("n");
        evidence(&fixture, |proof| proof["spec"]["leaseRenewed"] = json!(renewed));
        fixture.advance(10);
        assert_eq!(fixture.describe("n"), [expected], "{says}");
    }
}

/// Which pods of a node that reports again keep its storage fenced, and which do not.
#[test]
fn storage_fencing_is_lifted_when_no_pod_uses_a_volume_of_another_node() {
    let fenced = || {
        let mut fixture = Fixture::at(Phase::Fencing, |status| {
            let sample = Sample { driver: Some(DeviceDriver::NetworkFence), power: Power::Off, ..Sample::default() };
            let verified = Verified { power: Power::Off, samples: vec![sample.clone(), sample], ..Verified::default() };
            status.attempts = vec![Attempt {
                id: 1,
                act: DesiredPower::Off,
                devices: level("rbd", 1).devices,
                verified: Some(verified),
                evidence: Some("s".to_owned()),
                ..Attempt::default()
            }];
        });
        fixture.config.guards_volumes = true;
        fixture.reboot("n", "b0000000-0000-4000-8000-00000000000a");
        fixture
    };
    type Change = fn(&mut Fixture);
    let rows: [(&str, &str, Change); 6] = [
        ("nothing runs there", "write Cancelled", |_| ()),
        ("its volume is another's", "?WaitsForPods", |fixture| fixture.volume_of_another("db-1")),
        ("its volume is another's, and it is over", "write Cancelled", |fixture| {
            fixture.volume_of_another("db-1");
            fixture.pod("db-1", "n", |pod| {
                pod["spec"]["volumes"] = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "c" } }]);
                pod["status"] = json!({ "phase": "Succeeded" });
            });
        }),
        ("its volume is its own", "write Cancelled", |fixture| {
            fixture.volume_of_another("db-1");
            let lease = json!({ "metadata": { "namespace": "pod-safety-volumes", "name": "v", "uid": "uid-v", "resourceVersion": "500" },
                "spec": { "holderIdentity": "n/uid-n/b0000000-0000-4000-8000-00000000000a/-" } });
            fixture.world.apply(Kind::VolumeLeases, &lease, fixture.mono());
        }),
        ("its claim is deleted, and the volume guard runs", "write Cancelled", |fixture| {
            fixture.volume_of_another("db-1");
            fixture.delete(Kind::Claims, "c");
        }),
        ("its claim is deleted, and no volume guard runs", "?WaitsForPods", |fixture| {
            fixture.volume_of_another("db-1");
            fixture.delete(Kind::Claims, "c");
            fixture.config.guards_volumes = false;
        }),
    ];
    for (says, expected, change) in rows {
        let mut fixture = fenced();
        change(&mut fixture);
        assert_eq!(fixture.describe("n"), [expected], "{says}");
    }
}

#[test]
fn the_attempt_that_fenced_storage_is_kept_when_old_attempts_are_dropped() {
    let failed = Verified { power: Power::On, ..Verified::default() };
    let sample = Sample { driver: Some(DeviceDriver::NetworkFence), power: Power::Off, ..Sample::default() };
    let fenced = Verified { power: Power::Off, samples: vec![sample.clone(), sample], ..Verified::default() };
    let mut fixture = Fixture::at(Phase::Fencing, |status| {
        let attempt = |id| Attempt {
            id,
            act: DesiredPower::Off,
            verified: Some(if id == 11 { fenced.clone() } else { failed.clone() }),
            ..Attempt::default()
        };
        status.attempts = (11..31).map(attempt).collect();
    });
    fixture.advance(60);
    assert_eq!(fixture.act("n"), ["off 31 by bmc"]);
    let ids: Vec<u32> = fixture.only().1.attempts.iter().map(|attempt| attempt.id).collect();
    let expected: Vec<u32> = [11].into_iter().chain(13..=31).collect();
    assert_eq!(ids, expected, "what is in force is lifted by what stands there");
}

#[test]
fn of_two_incidents_of_one_incarnation_the_one_without_the_derived_name_is_the_duplicate() {
    for other in ["a", "zz"] {
        let fixture = pending();
        let (spec, status) = fixture.only();
        let first = pod_safety_shared::authority::incident_name(&spec.node);
        let object = json!({ "metadata": { "name": other, "uid": "uid-other", "resourceVersion": "7" }, "spec": spec, "status": status });
        fixture.world.apply(Kind::NodeFences, &object, fixture.mono());
        let decision = fixture.decide("n");
        let Hold::DuplicateFence { fence, first: counts, .. } = &decision.holds[0].1 else { panic!("{decision:?}") };
        assert_eq!((&**fence, &**counts), (other, &*first));
        let target = step(&decision).unwrap().target().unwrap();
        assert_eq!(*target.fence.name, *first, "and nothing is begun for the duplicate");
    }
}

/// Neither a gate of another name nor an open gate of this name makes a sign of life recorded.
#[test]
fn a_sign_of_life_is_recorded_only_by_a_closed_gate_of_that_name() {
    let gate =
        |name: &str, holds| pod_safety_shared::api::Gate { name: name.to_owned(), holds, message: String::new() };
    for (kept, word) in [
        (gate("SignOfLife", true), "contradict"),
        (gate("SignOfLife", false), "write Fenced"),
        (gate("Paused", true), "write Fenced"),
    ] {
        let mut fixture = Fixture::at(Phase::Fenced, |status| {
            (status.evidence, status.tainted, status.gates) = (Some("e".to_owned()), true, vec![kept.clone()]);
        });
        let renewed = fixture.renewed("n");
        evidence(&fixture, |proof| proof["spec"]["leaseRenewed"] = json!(renewed));
        fixture.advance(60);
        fixture.heartbeat("n");
        assert_eq!(fixture.describe("n")[0], word, "{kept:?}");
    }
}
