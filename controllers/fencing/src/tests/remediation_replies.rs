//! The status of remediations, and how a machine is switched on again: rows for mutants that other tests did not
//! catch.

use pod_safety_shared::api::Gate;

use super::*;

/// `n` is lost, and a remediation follows its incident, which is in this phase.
fn followed(phase: Phase, change: impl FnOnce(&mut NodeFenceStatus)) -> Fixture {
    let mut fixture = Fixture::lost();
    fixture.policy(|policy| policy.when = When::Manual);
    let mut status = NodeFenceStatus { phase, ..NodeFenceStatus::default() };
    change(&mut status);
    fixture.fence("n", Trigger::External, status);
    let name = incident_name(&fixture.incarnation("n"));
    fixture.remediation("n", |object| {
        object["metadata"]["finalizers"] = json!([REMEDIATION_FINALIZER]);
        object["status"] = json!({ "fence": name, "conditions": [] });
    });
    fixture
}

/// The status of its remediation.
fn answer(fixture: &Fixture) -> PodSafetyRemediationStatus {
    let decision = fixture.decide("n");
    match replies(&decision).as_slice() {
        [RemediationUpdate::WriteStatus(status)] => (**status).clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_phase_of_an_incident_has_its_remediation_status() {
    for (phase, expected) in [
        (Phase::Pending, "True/Unknown Fencing"),
        (Phase::Fencing, "True/Unknown Fencing"),
        (Phase::Fenced, "False/True Fenced"),
        (Phase::Recovering, "False/True Fenced"),
        (Phase::Done, "False/True Fenced"),
        (Phase::Superseded, "False/True Superseded"),
        (Phase::AwaitingOperator, "False/False AwaitingOperator"),
    ] {
        assert_eq!(condition_summary(&answer(&followed(phase, |_| ()))), expected, "{phase:?}");
    }
}

#[test]
fn a_cancelled_incident_is_reopened_for_a_request_while_its_node_is_lost_in_the_same_incarnation() {
    type Change = fn(&mut Fixture);
    let rows: [(&str, &str, Change); 6] = [
        ("it is lost again", "write Pending", |_| ()),
        ("it is Ready", "say False/False Cancelled", |fixture| {
            fixture.reboot("n", "b0000000-0000-4000-8000-00000000000a")
        }),
        ("it is lost in another incarnation", "say False/False Cancelled", |fixture| {
            fixture.change("n", |node| {
                node["status"]["nodeInfo"]["bootID"] = json!("b0000000-0000-4000-8000-000000000002")
            })
        }),
        ("a person cancelled it", "say False/False Cancelled", |fixture| fixture.edit(|spec, _| spec.cancelled = true)),
        ("it is being deleted", "say False/False Cancelled", |fixture| {
            let (spec, status) = fixture.only();
            let name = incident_name(&spec.node);
            let object = json!({ "metadata": { "name": name, "uid": format!("uid-{name}"), "resourceVersion": "900",
                    "deletionTimestamp": "2026-01-01T00:00:00Z" }, "spec": spec, "status": status });
            fixture.world.apply(Kind::NodeFences, &object, fixture.mono());
        }),
        ("its time is over", "say False/False Cancelled", |fixture| {
            fixture.remediation("n", |object| {
                object["metadata"]["annotations"] = json!({ TIMED_OUT_ANNOTATION: "2026-01-01T00:01:30Z" });
            });
        }),
    ];
    for (says, expected, change) in rows {
        let mut fixture = followed(Phase::Cancelled, |_| ());
        change(&mut fixture);
        assert_eq!(fixture.describe("n"), [expected], "{says}");
    }
}

#[test]
fn a_node_is_reported_as_never_returning_if_the_evidence_is_a_deleted_machine() {
    for (named, kind, gone) in [
        ("e", FenceEvidenceKind::Decommissioned, "True"),
        ("e", FenceEvidenceKind::PowerOff, "False"),
        ("other", FenceEvidenceKind::Decommissioned, "False"),
    ] {
        let mut fixture = followed(Phase::Fenced, |status| {
            (status.evidence, status.tainted) = (Some(named.to_owned()), true);
        });
        fixture.evidence("n", "e", kind);
        assert_eq!(answer(&fixture).condition_status("PermanentNodeDeletionExpected"), Some(gone), "{named} {kind:?}");
    }
}

/// The executor adds missing timestamps: a condition keeps its own as long as its status stays the same.
#[test]
fn a_condition_keeps_its_transition_time_until_its_status_changes() {
    let times = |phase: Phase| {
        let mut fixture = followed(phase, |_| ());
        let condition = |kind: &str, status: &str, time: &str| json!({ "type": kind, "status": status, "reason": "r", "message": "m", "lastTransitionTime": time });
        fixture.remediation("n", |object| {
            object["status"]["conditions"] = json!([
                condition("Processing", "True", "t1"),
                condition("Succeeded", "Unknown", "t2"),
                condition("PermanentNodeDeletionExpected", "False", "t3"),
            ]);
        });
        answer(&fixture).conditions.iter().map(|one| one.last_transition_time.clone()).collect::<Vec<_>>()
    };
    assert_eq!(times(Phase::Fencing), ["t1", "t2", "t3"], "in other words the same");
    assert_eq!(times(Phase::AwaitingOperator), ["", "", "t3"]);
}

#[test]
fn an_incident_names_its_requester() {
    let mut fixture = Fixture::lost();
    fixture.policy(|policy| policy.when = When::Manual);
    fixture.remediation("n", |_| ());
    for expected in ["keep", "say True/Unknown Fencing", "open by p"] {
        assert_eq!(fixture.act("n"), [expected]);
    }
    let trigger = fixture.only().0.trigger;
    assert_eq!(trigger.by.as_deref(), Some("PodSafetyRemediation ops/n"));
    assert_eq!(trigger.reason, "requested by PodSafetyRemediation ops/n");
}

/// Switched off by the second level, after the first had failed, and once more by the first.
fn released() -> Fixture {
    let attempt = |id, name: &str, index, power: &str| Attempt {
        id,
        act: DesiredPower::Off,
        level: index,
        devices: level(name, 1).devices,
        verified: Some(Verified { power: power.parse().unwrap(), ..Verified::default() }),
        ..Attempt::default()
    };
    let mut fixture = Fixture::at(Phase::Fenced, |status| {
        (status.evidence, status.tainted) = (Some("e".to_owned()), true);
        status.attempts = vec![attempt(1, "bmc", 0, "On"), attempt(2, "pdu", 1, "Off"), attempt(3, "bmc", 0, "On")];
    });
    fixture.device("pdu", |_| ());
    fixture.policy(|policy| {
        policy.levels.push(level("pdu", 1));
        policy.recovery = Recovery::PowerOn;
    });
    fixture.evidence("n", "e", FenceEvidenceKind::PowerOff);
    fixture.advance(10);
    fixture
}

#[test]
fn a_machine_is_switched_on_by_the_devices_that_switched_it_off() {
    let mut fixture = released();
    assert_eq!(fixture.act("n"), ["on 4 by pdu"]);
    assert_eq!(fixture.only().1.attempts.last().unwrap().level, 1);
}

#[test]
fn the_next_power_on_begins_exactly_after_its_backoff() {
    let mut fixture = released();
    assert_eq!(fixture.act("n"), ["on 4 by pdu"]);
    fixture.set_power("Off");
    fixture.advance(10);
    assert_eq!(fixture.act("n"), ["on 5 by pdu"]);
    fixture.set_power("Off");
    fixture.assert_turns(10, &["?RetryBackoff"], &["on 6 by pdu"]);
}

/// A recorded sign of life is removed with the evidence that it contradicted, and with the end of the incident.
#[test]
fn a_recorded_sign_of_life_is_removed_with_the_evidence_and_at_the_end() {
    let kept = || vec![Gate { name: "Paused".to_owned(), holds: true, message: String::new() }];
    let mut fixture = released();
    fixture.edit(|_, status| status.gates = kept());
    fixture.invalidate("e");
    assert_eq!(fixture.act("n"), ["withdraw"]);
    assert_eq!(fixture.only().1.gates, []);
    let mut fixture = released();
    fixture.edit(|_, status| status.gates = kept());
    fixture.reboot("n", "b0000000-0000-4000-8000-000000000002");
    assert_eq!(fixture.act("n"), ["untaint"]);
    assert_eq!((fixture.only().1.phase, fixture.only().1.gates), (Phase::Done, vec![]));
}

/// An object that cannot be decoded might be the owner of the taint.
#[test]
fn a_taint_is_not_reported_as_stale_while_an_incident_cannot_be_decoded() {
    let mut fixture = Fixture::new(&["n", "m", "k"]);
    let taint = json!([{ "key": "node.kubernetes.io/out-of-service", "value": "x", "effect": "NoExecute" }]);
    fixture.change("n", |node| node["spec"]["taints"] = taint);
    fixture.advance_to(200);
    assert_eq!(fixture.describe("n"), ["?StaleTaint"]);
    let fence = json!({ "metadata": { "name": "odd", "uid": "uid-odd", "resourceVersion": "x" },
        "spec": { "node": fixture.incarnation("m"), "policy": "p", "trigger": { "kind": "Detected", "reason": "r" } } });
    fixture.world.apply(Kind::NodeFences, &fence, fixture.mono());
    assert_eq!(fixture.describe("n"), [""; 0]);
}
