//! What depends on the driver of a device.

use super::*;

fn manual(device: &mut Value) {
    device["spec"]["driver"] = json!("Manual");
}

#[test]
fn a_manual_level_asks_a_person_at_once_and_names_the_command() {
    let mut fixture = Fixture::at(Phase::Pending, |_| ());
    fixture.device("hands", manual);
    fixture.policy(|policy| policy.levels = vec![level("hands", 2)]);
    assert_eq!(fixture.act("n"), ["write AwaitingOperator"]);
    let message = fixture.only().1.message;
    assert!(message.contains("pod-safety confirm-down n"), "{message}");
    assert!(fixture.only().1.attempts.is_empty(), "no device was used");
    assert_eq!(fixture.describe("n"), ["?AwaitingOperator"]);
    fixture.confirmation("n", "word", true);
    assert_eq!(fixture.act("n"), ["write Fenced"]);
}

#[test]
fn a_manual_level_follows_failed_levels_and_never_powers_on() {
    let mut fixture = Fixture::at(Phase::Pending, |_| ());
    fixture.device("hands", manual);
    fixture.policy(|policy| {
        policy.levels = vec![level("bmc", 1), level("hands", 1)];
        policy.recovery = Recovery::PowerOn;
    });
    assert_eq!(fixture.act("n"), ["off 1 by bmc"]);
    fixture.set_power("On");
    fixture.advance(60);
    assert_eq!(fixture.act("n"), ["write AwaitingOperator"]);
    fixture.confirmation("n", "word", true);
    assert_eq!(fixture.act("n"), ["write Fenced"]);
    assert_eq!(fixture.act("n"), ["taint"]);
    fixture.advance(20);
    assert_eq!(fixture.act("n"), ["on 2 by bmc"], "the first level that can");
    let mut alone = Fixture::at(Phase::Fenced, |status| {
        (status.tainted, status.evidence) = (true, Some("word".to_owned()));
    });
    alone.device("hands", manual);
    alone.policy(|policy| (policy.levels, policy.recovery) = (vec![level("hands", 1)], Recovery::PowerOn));
    alone.confirmation("n", "word", true);
    alone.advance(20);
    assert_eq!(alone.describe("n"), ["?NoDevices"]);
}

fn by(driver: &str) -> impl Fn(&mut Value) + use<'_> {
    move |device| {
        device["spec"]["driver"] = json!(driver);
        match driver {
            "External" => {
                let template = json!({ "apiVersion": "g/v1", "kind": "ATemplate", "name": "a" });
                device["spec"]["external"] = json!({ "templateRef": template });
            }
            "WatchdogLease" => device["spec"]["watchdogLease"] = json!({}),
            "NetworkFence" => device["spec"]["networkFence"] = json!({ "className": "rbd", "namespace": "rook-ceph" }),
            _ => {}
        }
    }
}

#[test]
fn an_external_device_is_not_used_where_verified_evidence_is_required() {
    let mut fixture = Fixture::at(Phase::Pending, |_| ());
    fixture.device("far", by("External"));
    fixture.policy(|policy| policy.levels = vec![level("far", 1)]);
    assert_eq!(fixture.describe("n"), ["off 1 by far"]);
    fixture.policy(|policy| policy.minimum_evidence = Grade::Verified);
    assert_eq!(fixture.describe("n"), ["write Pending", "?NoDevices"]);
    assert!(fixture.hold_message("n").contains("minimumEvidence is Verified"), "{}", fixture.hold_message("n"));
    fixture.policy(|policy| policy.levels = vec![level("far", 1), level("bmc", 1)]);
    assert_eq!(fixture.act("n"), ["off 1 by bmc"], "the next level can");
}

#[test]
fn a_level_of_storage_alone_ends_no_processes() {
    let mut fixture = Fixture::at(Phase::Pending, |_| ());
    fixture.device("rbd", by("NetworkFence"));
    fixture.policy(|policy| policy.levels = vec![level("rbd", 1)]);
    assert_eq!(fixture.describe("n"), ["write Pending", "?NoDevices"]);
    assert!(fixture.hold_message("n").contains("storage only"), "{}", fixture.hold_message("n"));
    fixture.policy(|policy| policy.levels[0].devices.extend(level("bmc", 1).devices));
    assert_eq!(fixture.act("n"), ["off 1 by rbd+bmc"]);
    fixture.set_power("Off");
    assert_eq!(fixture.act("n"), ["prove"]);
    fixture.policy(|policy| policy.recovery = Recovery::PowerOn);
    assert_eq!(fixture.act("n"), ["taint"]);
    fixture.advance(20);
    assert_eq!(fixture.act("n"), ["on 2 by bmc"], "what is fenced is lifted when the node is back");
}

/// A status check of the last attempt reported the storage as fenced.
fn seen_fenced(fixture: &mut Fixture) {
    fixture.set_power("Off");
    let sample = Sample { driver: Some(DeviceDriver::NetworkFence), power: Power::Off, ..Sample::default() };
    fixture.edit(|_, status| {
        let verified = status.attempts.last_mut().unwrap().verified.as_mut().unwrap();
        verified.samples = vec![sample.clone(), sample];
    });
}

/// The first level fences storage, and a volume guard runs.
fn of_storage(second: &[&str]) -> Fixture {
    let mut fixture = Fixture::at(Phase::Pending, |_| ());
    fixture.config.guards_volumes = true;
    fixture.device("rbd", by("NetworkFence"));
    let levels = ["rbd"].iter().chain(second).map(|name| level(name, 1)).collect();
    fixture.policy(|policy| policy.levels = levels);
    assert_eq!(fixture.act("n"), ["off 1 by rbd"]);
    seen_fenced(&mut fixture);
    fixture
}

#[test]
fn fenced_storage_is_evidence_about_volumes_and_the_next_level_is_tried() {
    let mut fixture = of_storage(&["bmc"]);
    assert_eq!(fixture.act("n"), ["prove-storage"]);
    assert_eq!(fixture.only().1.phase, Phase::Fencing);
    assert_eq!(fixture.only().1.evidence, None, "of pods nothing is proved");
    assert_eq!(fixture.act("n"), ["off 2 by bmc"]);
    fixture.set_power("On");
    fixture.advance(60);
    assert_eq!(fixture.act("n"), ["off 3 by bmc"], "in the next round the storage is not fenced again");
    fixture.set_power("Off");
    assert_eq!(fixture.act("n"), ["prove"]);
    assert_eq!(fixture.act("n"), ["taint"]);
    fixture.policy(|policy| policy.recovery = Recovery::PowerOn);
    fixture.advance(20);
    assert_eq!(fixture.act("n"), ["on 4 by bmc"]);
    fixture.set_power("On");
    fixture.volume_of_another("db-1");
    fixture.reboot("n", "b0000000-0000-4000-8000-000000000002");
    assert_eq!(fixture.describe("n"), ["?WaitsForPods"], "another node holds a volume of a pod there");
    fixture.delete(Kind::Pods, "db-1");
    assert_eq!(fixture.act("n"), ["untaint"]);
}

#[test]
fn the_storage_of_a_second_level_is_fenced_after_that_of_the_first() {
    let mut fixture = of_storage(&["cephfs"]);
    fixture.device("cephfs", by("NetworkFence"));
    assert_eq!(fixture.act("n"), ["prove-storage"]);
    assert_eq!(fixture.act("n"), ["off 2 by cephfs"]);
}

#[test]
fn without_a_level_that_ends_processes_the_message_states_what_frees_the_pods() {
    let mut fixture = of_storage(&[]);
    assert_eq!(fixture.act("n"), ["prove-storage"]);
    assert_eq!(fixture.act("n"), ["write AwaitingOperator"]);
    let message = fixture.only().1.message;
    assert!(message.contains("its processes may still run") && message.contains("confirm-down n"), "{message}");
    fixture.evidence("n", "word", FenceEvidenceKind::OperatorConfirmed);
    assert_eq!(fixture.act("n"), ["write Fenced"], "a confirmation releases them");
}

/// Planted bugs: storage fencing is lifted because time passed, because of a confirmation, because the node reports
/// again.
#[test]
fn storage_fencing_is_lifted_when_no_pod_uses_a_volume_given_to_another_node() {
    let mut fixture = of_storage(&["bmc"]);
    assert_eq!(fixture.act("n"), ["prove-storage"]);
    fixture.edit(|spec, _| spec.cancelled = true);
    assert_eq!(fixture.describe("n"), ["?AwaitingNodeReady"], "it does not report: its processes would write");
    fixture.pod("db-0", "n", Fixture::terminating);
    let boot = fixture.incarnation("n").boot_id;
    fixture.reboot("n", &boot);
    assert_eq!(fixture.describe("n"), ["?WaitsForPods"]);
    fixture.delete(Kind::Pods, "db-0");
    fixture.volume_of_another("db-1");
    assert_eq!(fixture.describe("n"), ["?WaitsForPods"], "it is not deleted, and another node holds its volume");
    fixture.delete(Kind::Pods, "db-1");
    assert_eq!(fixture.act("n"), ["write Cancelled"]);
}

#[test]
fn storage_stays_fenced_after_a_boot_until_the_old_pods_are_gone() {
    let mut fixture = of_storage(&["bmc"]);
    assert_eq!(fixture.act("n"), ["prove-storage"]);
    fixture.pod("db-0", "n", Fixture::terminating);
    fixture.reboot("n", "b0000000-0000-4000-8000-000000000002");
    assert_eq!(fixture.describe("n"), ["?WaitsForPods"]);
    fixture.delete(Kind::Pods, "db-0");
    assert_eq!(fixture.act("n"), ["write Superseded"]);
}

#[test]
fn storage_is_fenced_again_when_the_node_is_lost_again() {
    let mut fixture = of_storage(&[]);
    assert_eq!(fixture.act("n"), ["prove-storage"]);
    let proof = fixture.only().1.attempts[0].evidence.clone().unwrap();
    let boot = fixture.incarnation("n").boot_id;
    fixture.reboot("n", &boot);
    assert_eq!(fixture.act("n"), ["write Cancelled"]);
    // As the executor does before it lifts it.
    fixture.invalidate(&proof);
    fixture.lose_node("n");
    fixture.advance(120);
    assert_eq!(fixture.act("n"), ["write Pending"]);
    assert_eq!(fixture.act("n"), ["off 2 by rbd"]);
    seen_fenced(&mut fixture);
    assert_eq!(fixture.act("n"), ["prove-storage"]);
    assert_ne!(fixture.only().1.attempts[1].evidence, Some(proof), "what is invalid stays so");
    fixture.pod("db-0", "n", Fixture::terminating);
    fixture.reboot("n", &boot);
    assert_eq!(fixture.describe("n"), ["?WaitsForPods"], "only the evidence of the first attempt is invalid");
}

#[test]
fn a_deleted_machine_is_not_switched_on_and_its_incident_ends_with_its_node() {
    let fenced = |driver, kind| {
        let mut fixture = Fixture::at(Phase::Fenced, |status| {
            (status.tainted, status.evidence) = (true, Some("gone".to_owned()));
            let verified = Verified { power: Power::Off, ..Verified::default() };
            let devices = level("machine", 1).devices;
            let verified = Some(verified);
            status.attempts = vec![Attempt { id: 1, act: DesiredPower::Off, devices, verified, ..Attempt::default() }];
        });
        fixture.device("machine", by(driver));
        fixture.policy(|policy| {
            (policy.levels, policy.recovery) = (vec![level("machine", 1)], Recovery::PowerOn);
        });
        fixture.evidence("n", "gone", kind);
        fixture.advance(20);
        fixture
    };
    // The driver of an instance could switch it on, but there is no instance any more.
    for (driver, kind) in [("Machine", FenceEvidenceKind::Decommissioned), ("Redfish", FenceEvidenceKind::InstanceGone)]
    {
        assert_eq!(fenced(driver, kind).describe("n"), ["?MachinePoweredOff"], "{kind:?}");
        let mut gone = fenced(driver, kind);
        gone.delete(Kind::Nodes, "n");
        assert_eq!(gone.act("n"), ["write Done"], "{kind:?}");
    }
    assert_eq!(fenced("WatchdogLease", FenceEvidenceKind::WatchdogLease).describe("n"), ["?AwaitingNodeReady"]);
    let on = fenced("Redfish", FenceEvidenceKind::InstanceStopped).act("n");
    assert!(on.len() == 1 && on[0].starts_with("on "), "{on:?}");
}

/// It is switched off at once. What a replica of a provider then reports may be the stop before this boot.
#[test]
fn a_provider_is_checked_only_after_this_boot_has_been_observed_for_its_lag() {
    for (agent, waits) in [("fence_aws", true), ("fence_ipmilan", false)] {
        let mut fixture = Fixture::at(Phase::Pending, |_| ());
        fixture.device("bmc", |device| {
            (device["spec"]["driver"], device["spec"]["agent"]) = (json!("Agent"), json!(agent));
        });
        assert_eq!(fixture.act("n"), ["off 1 by bmc"], "{agent}");
        fixture.set_outcome("it is stopping");
        if waits {
            assert_eq!(fixture.describe("n"), ["?ProviderBehind"]);
            fixture.advance_to(299);
            assert_eq!(fixture.describe("n"), ["?ProviderBehind"]);
            fixture.advance_to(300);
        }
        assert_eq!(fixture.describe("n"), ["look"], "{agent}");
    }
}
