//! What statuses show, and when devices get a status check: rows for mutants that other tests did not catch.

use super::*;

fn pending() -> Fixture {
    Fixture::at(Phase::Pending, |_| ())
}

/// A status check reported the last attempt as failed, with this output.
fn failed(fixture: &mut Fixture, words: &str) {
    fixture.set_power("On");
    fixture.edit(|_, status| {
        status.attempts.last_mut().unwrap().verified.as_mut().unwrap().message = words.to_owned();
    });
    fixture.advance(60);
}

#[test]
fn after_all_levels_failed_the_message_names_the_last_problem_of_each() {
    let mut fixture = pending();
    fixture.device("pdu", |_| ());
    fixture.policy(|policy| {
        policy.levels = vec![level("bmc", 2), level("pdu", 1)];
        policy.rounds = 1;
    });
    for (attempt, words) in [("off 1 by bmc", "first"), ("off 2 by bmc", "second"), ("off 3 by pdu", "third")] {
        assert_eq!(fixture.act("n"), [attempt]);
        failed(&mut fixture, words);
    }
    assert_eq!(fixture.act("n"), ["write AwaitingOperator"]);
    assert_eq!(fixture.only().1.message, "all levels failed: level bmc: second; level pdu: third");
}

#[test]
fn the_message_of_fenced_storage_states_that_processes_may_still_run() {
    let mut fixture = pending();
    fixture.config.guards_volumes = true;
    fixture.device("rbd", |device| {
        device["spec"]["driver"] = json!("NetworkFence");
        device["spec"]["networkFence"] = json!({ "className": "rbd", "namespace": "rook-ceph" });
    });
    fixture.policy(|policy| {
        policy.levels = vec![level("rbd", 1), level("bmc", 1)];
        policy.rounds = 1;
    });
    assert_eq!(fixture.act("n"), ["off 1 by rbd"]);
    fixture.set_power("Off");
    let sample = Sample { driver: Some(DeviceDriver::NetworkFence), power: Power::Off, ..Sample::default() };
    fixture.edit(|_, status| {
        status.attempts.last_mut().unwrap().verified.as_mut().unwrap().samples = vec![sample.clone(), sample];
    });
    assert_eq!(fixture.act("n"), ["prove-storage"]);
    assert_eq!(fixture.act("n"), ["off 2 by bmc"]);
    failed(&mut fixture, "it is on");
    assert_eq!(fixture.act("n"), ["write AwaitingOperator"]);
    let message = fixture.only().1.message;
    let expected = "level rbd: its storage is fenced, but its processes may still run; level bmc: it is on";
    assert!(message.ends_with(expected), "{message}");
}

/// A gate that held one phase does not hold the next one.
#[test]
fn gates_are_removed_from_the_status_when_there_is_evidence() {
    let mut fixture = pending();
    fixture.runs_on("n");
    assert_eq!(fixture.act("n"), ["write Pending", "?SelfNode"]);
    assert_eq!(fixture.only().1.gates.iter().filter(|gate| gate.holds).count(), 1);
    fixture.evidence("n", "by-hand", FenceEvidenceKind::OperatorConfirmed);
    assert_eq!(fixture.act("n"), ["write Fenced"]);
    assert_eq!(fixture.only().1.gates, []);
    let mut fixture = pending();
    assert_eq!(fixture.act("n"), ["off 1 by bmc"]);
    assert_ne!(fixture.only().1.gates, []);
    fixture.set_power("Off");
    assert_eq!(fixture.act("n"), ["prove"]);
    assert_eq!(fixture.only().1.gates, []);
}

#[test]
fn a_dry_run_is_written_again_when_its_plan_changes() {
    let mut fixture = pending();
    fixture.edit(|spec, _| spec.dry_run = true);
    assert_eq!(fixture.act("n"), ["write Pending", "?DryRun"]);
    assert_eq!(fixture.describe("n"), ["?DryRun"]);
    fixture.policy(|policy| policy.levels[0].name = "other".to_owned());
    assert_eq!(fixture.act("n"), ["write Pending", "?DryRun"]);
    assert!(fixture.only().1.message.contains("by the level other"), "{}", fixture.only().1.message);
    fixture.edit(|_, status| status.gates.iter_mut().for_each(|gate| gate.holds = true));
    assert_eq!(fixture.act("n"), ["write Pending", "?DryRun"], "its words are the same, and its gates are open");
    assert!(fixture.only().1.gates.iter().all(|gate| !gate.holds));
}

#[test]
fn a_manual_level_shows_its_level_and_round_and_open_gates() {
    let mut fixture = pending();
    fixture.policy(|policy| policy.levels = vec![level("hands", 1), level("bmc", 1)]);
    assert_eq!(fixture.act("n"), ["off 1 by bmc"], "there is no device of that name yet");
    assert_eq!((fixture.only().1.level, fixture.only().1.rounds), (1, 0));
    fixture.device("hands", |device| device["spec"]["driver"] = json!("Manual"));
    fixture.edit(|_, status| status.gates.clear());
    failed(&mut fixture, "it is on");
    assert_eq!(fixture.act("n"), ["write AwaitingOperator"]);
    let (_, status) = fixture.only();
    assert_eq!((status.level, status.rounds), (0, 1));
    assert!(!status.gates.is_empty() && status.gates.iter().all(|gate| !gate.holds), "{status:?}");
}

fn of_device(fixture: &Fixture, name: &str) -> Decision {
    let key = Key::Device(Uid::new(&format!("uid-{name}")).unwrap());
    decide(&key, &fixture.world.read().view(), fixture.mono(), &fixture.config)
}

/// Which device gets a status check now, and for which nodes.
fn checked_devices(decision: &Decision) -> Vec<String> {
    let words = |intent: &Intent| match intent {
        Intent::Monitor(wish) => format!("{}: {}", wish.device.name, wish.nodes.join(" ")),
        other => panic!("{other:?}"),
    };
    decision.intents.iter().map(words).collect()
}

#[test]
fn a_device_gets_a_status_check_when_new_and_after_its_interval() {
    let mut fixture = Fixture::new(&["n", "m"]);
    fixture.device("other", |_| ());
    let early = of_device(&fixture, "other");
    assert_eq!((checked_devices(&early).len(), early.requeue_at), (0, Some(at(300))), "when its time is over");
    fixture.advance(100);
    assert_eq!(of_device(&fixture, "other").requeue_at, Some(at(300)));
    fixture.advance(200);
    assert_eq!(checked_devices(&of_device(&fixture, "other")), ["other: m n"]);
    assert_eq!(checked_devices(&of_device(&fixture, "bmc")), ["bmc: m n"]);
    fixture.device("other", |device| device["metadata"]["generation"] = json!(2));
    assert_eq!(checked_devices(&of_device(&fixture, "other")), ["other: m n"], "it was changed");
    fixture.device("other", |device| {
        device["metadata"]["generation"] = json!(2);
        device["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    });
    assert_eq!(of_device(&fixture, "other"), Decision::default(), "it is being deleted");
    assert_eq!(of_device(&fixture, "nosuch"), Decision::default());
}

#[test]
fn a_device_without_monitoring_is_not_checked_and_one_without_nodes_is_rechecked_later() {
    let mut fixture = Fixture::new(&["n", "m"]);
    fixture.device("never", |device| device["spec"]["monitorSeconds"] = json!(0));
    fixture.device("spare", |device| {
        device["spec"]["nodeSelector"] = json!({ "matchLabels": { "rack": "7" } });
        device["status"]["targets"] = json!([]);
    });
    fixture.advance(1_000);
    assert_eq!(of_device(&fixture, "never"), Decision::default());
    let spare = of_device(&fixture, "spare");
    assert_eq!((checked_devices(&spare).len(), spare.requeue_at), (0, Some(at(1_060))), "a node may come");
    fixture.change("n", |node| node["metadata"]["labels"]["rack"] = json!("7"));
    assert_eq!(checked_devices(&of_device(&fixture, "spare")), ["spare: n"]);
}
