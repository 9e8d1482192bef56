//! Which changes enqueue a decision, and which Events and metrics it produces.

use pod_safety_shared::authority::MonitorRequest;
use pod_safety_shared::cache::Change;
use pod_safety_shared::controller_loop::{Controller, HoldReason as _, Subject};

use super::*;

fn page(registry: &prometheus::Registry) -> String {
    let mut page = Vec::new();
    prometheus::Encoder::encode(&prometheus::TextEncoder::new(), &registry.gather(), &mut page).unwrap();
    String::from_utf8(page).unwrap()
}

#[test]
fn relevant_changes_enqueue_their_node_and_a_policy_or_a_device_enqueues_all() {
    let controller = Fencing::new(config(), &prometheus::Registry::new()).unwrap();
    let marked = |change: &Change<'_>| {
        let mut keys = Vec::new();
        controller.keys_for(change, &mut |key| keys.push(key));
        keys
    };
    let (name, node): (Arc<str>, Key) = ("n".into(), Key::Node("n".into()));
    assert!(marked(&Change::Heartbeat { name: &name, relevant: false }).is_empty());
    for change in [
        Change::Heartbeat { name: &name, relevant: true },
        Change::Node { name: &name, taints: false, readiness: true },
        Change::Fencing { node: Some(&name) },
    ] {
        assert_eq!(marked(&change), std::slice::from_ref(&node), "{change:?}");
        assert!(!controller.affects_all(&change));
    }
    assert!(controller.affects_all(&Change::Fencing { node: None }));

    let mut fixture = Fixture::at(Phase::Pending, |_| ());
    fixture.pod("db-0", "n", |_| ());
    fixture.pod("db-1", "n", Fixture::terminating);
    let guard = fixture.world.read();
    let pod = |name: &str| guard.view().pod(&Uid::new(&format!("uid-{name}")).unwrap()).unwrap();
    let (lives, ends) = (pod("db-0"), pod("db-1"));
    assert!(marked(&Change::Pod { before: None, after: Some(lives) }).is_empty());
    assert!(marked(&Change::Pod { before: Some(ends), after: Some(ends) }).is_empty(), "noise");
    assert_eq!(marked(&Change::Pod { before: Some(lives), after: Some(ends) }), std::slice::from_ref(&node));
    assert_eq!(marked(&Change::Pod { before: Some(ends), after: None }), std::slice::from_ref(&node));
    let mut all = Vec::new();
    controller.list_keys(&guard.view(), &mut |key| all.push(key));
    assert!(all.contains(&node) && all.contains(&Key::Device(Uid::new("uid-bmc").unwrap())), "{all:?}");
}

#[test]
fn fencing_runs_beside_kcm_and_in_its_place_and_announces_every_reason() {
    let controller = Fencing::new(config(), &prometheus::Registry::new()).unwrap();
    let acts = [Mode::Observe, Mode::Guard, Mode::Replace].map(|mode| controller.acts_in(mode));
    assert_eq!(acts, [false, true, true]);
    for gate in super::super::gates::NAMES {
        assert!(Hold::reason_names().contains(&gate), "{gate}");
    }
    for reason in ["AwaitingOperator", "WaitsForPods", "AttemptUnderWay", "SignOfLife", "NotSynced"] {
        assert!(Hold::reason_names().contains(&reason), "{reason}");
    }
}

#[test]
fn a_hold_that_needs_a_person_is_an_event_of_the_node() {
    let fixture = Fixture::at(Phase::AwaitingOperator, |status| status.message = "all was tried".to_owned());
    let decision = fixture.decide("n");
    let (subject, hold) = &decision.holds[0];
    assert_eq!(*subject, Subject::Fencing { node: "n".into(), uid: Uid::new("uid-n").unwrap() });
    assert_eq!(hold.event().map(|(_, reason)| reason), Some("FencingHeld"));
    let passes = Hold::Cooldown { other: "m".into(), left: Duration::from_secs(1) };
    assert_eq!(passes.event(), None, "it passes by itself");
}

/// Every kubelet that boots renews its Lease seconds before its status has the new boot: in a kind cluster each
/// recovery ended with a Warning that the evidence would be contradicted. If it is contradicted, `AwaitingOperator`
/// shows it.
#[test]
fn bug_a_normal_recovery_emitted_a_warning() {
    let sign = Hold::SignOfLife { node: "n".into(), sign: "its Lease was renewed", left: Duration::from_secs(30) };
    assert_eq!(sign.event(), None);
}

fn monitored(fixture: &Fixture) -> Option<MonitorRequest> {
    let key = Key::Device(Uid::new("uid-bmc").unwrap());
    let decision = decide(&key, &fixture.world.read().view(), fixture.mono(), &fixture.config);
    decision.intents.into_iter().next().map(|intent| match intent {
        Intent::Monitor(monitor) => *monitor,
        other => panic!("{other:?}"),
    })
}

/// Found by the simulator: from the second status check on nothing changed, so it was always due.
#[test]
fn bug_a_device_without_nodes_was_always_due() {
    let mut fixture = Fixture::new(&["n"]);
    fixture.device("bmc", |device| {
        device["spec"]["nodeSelector"] = json!({ "matchLabels": { "rack": "none" } });
        device["status"]["targets"] = json!([]);
    });
    fixture.advance_to(1_000);
    assert_eq!(monitored(&fixture), None);
    fixture.change("n", |node| node["metadata"]["labels"]["rack"] = json!("none"));
    assert!(monitored(&fixture).is_some(), "it has a node, and is due");
}

/// A FenceDevice that was applied before its nodes joined showed `NoNodes` for up to `monitorSeconds` after they had.
#[test]
fn bug_a_device_showed_no_nodes_for_minutes_after_one_had_joined() {
    let mut fixture = Fixture::new(&["n"]);
    let of_rack_7 = |device: &mut Value| {
        device["spec"]["nodeSelector"] = json!({ "matchLabels": { "rack": "7" } });
        device["status"]["targets"] = json!([]);
    };
    fixture.device("bmc", of_rack_7);
    fixture.advance(20);
    let key = Key::Device(Uid::new("uid-bmc").unwrap());
    let decision = decide(&key, &fixture.world.read().view(), fixture.mono(), &fixture.config);
    assert_eq!(decision.requeue_at, Some(fixture.mono() + Duration::from_secs(60)));
    fixture.change("n", |node| node["metadata"]["labels"]["rack"] = json!("7"));
    assert!(monitored(&fixture).is_some());
    fixture.device("bmc", |device| {
        of_rack_7(device);
        device["spec"]["driver"] = json!("Manual");
    });
    assert_eq!(monitored(&fixture), None, "what a person switches has no targets");
}

#[test]
fn a_device_gets_a_status_check_when_new_or_changed_and_then_periodically() {
    let mut fixture = Fixture::new(&["n", "m", "k"]);
    assert_eq!(monitored(&fixture), None);
    fixture.advance_to(299);
    assert_eq!(monitored(&fixture), None);
    fixture.advance_to(300);
    let names = |monitor: Option<MonitorRequest>| {
        monitor.unwrap().nodes.iter().map(|name| name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(monitored(&fixture)), ["k", "m", "n"]);
    fixture.device("bmc", |device| device["spec"]["monitorSeconds"] = json!(0));
    assert_eq!(monitored(&fixture), None, "never while nothing is wrong");
    fixture.change("m", |node| node["metadata"]["labels"]["rack"] = json!("7"));
    fixture.device("bmc", |device| {
        device["spec"]["nodeSelector"] = json!({ "matchLabels": { "rack": "7" } });
        device["metadata"]["generation"] = json!(2);
    });
    assert_eq!(names(monitored(&fixture)), ["m"], "its spec is new");
    fixture.delete(Kind::FenceDevices, "bmc");
    assert_eq!(monitored(&fixture), None);
}

/// The wait for the expiry of a watchdog grant begins with the last time the grant was observed.
#[test]
fn the_watchdog_lease_of_a_suspected_node_is_checked_before_the_node_counts_as_lost() {
    let agents = |device: &mut Value| {
        device["spec"]["driver"] = json!("WatchdogLease");
        device["spec"]["watchdogLease"] = json!({});
    };
    let mut fixture = Fixture::new(&["n", "m"]);
    fixture.device("bmc", agents);
    let key = Key::Device(Uid::new("uid-bmc").unwrap());
    let decision = decide(&key, &fixture.world.read().view(), fixture.mono(), &fixture.config);
    assert_eq!(decision.requeue_at, Some(fixture.mono() + Duration::from_secs(5)));
    fixture.lose(&["n", "m"]);
    let mut looked = Vec::new();
    for second in 1..60 {
        fixture.advance_to(second);
        if let Some(monitor) = monitored(&fixture) {
            assert!(!monitor.is_complete && monitor.nodes == [Arc::from("m"), Arc::from("n")], "{monitor:?}");
            looked.push(second);
            // The result is in its status.
            fixture.device("bmc", |device| {
                agents(device);
                device["status"]["targets"][0]["looked"] = json!(second.to_string());
            });
        }
    }
    assert_eq!(looked, [15, 20], "twice, and not again while they stay lost");
    let mut switch = Fixture::new(&["n"]);
    switch.lose(&["n"]);
    switch.advance_to(16);
    assert_eq!(monitored(&switch), None, "a switch tells nothing earlier");
}

#[test]
fn a_requested_device_test_runs_once_and_for_one_node_if_named() {
    let mut fixture = Fixture::new(&["n", "m", "k"]);
    let asks = |fixture: &mut Fixture, test: &str, tested: Option<&str>| {
        fixture.device("bmc", |device| {
            device["metadata"]["annotations"] = json!({ "pod-safety.dev/test": test });
            device["status"]["tested"] = json!(tested);
            device["spec"]["monitorSeconds"] = json!(0);
        });
        monitored(fixture)
    };
    let all = asks(&mut fixture, "first", None).unwrap();
    assert_eq!((all.nodes.len(), all.is_complete, all.test.as_deref()), (3, true, Some("first")));
    assert_eq!(asks(&mut fixture, "first", Some("first")), None, "it was answered");
    let one = asks(&mut fixture, "second m", Some("first")).unwrap();
    assert_eq!((one.nodes, one.is_complete), (vec![Arc::from("m")], false));
    assert_eq!(one.test.as_deref(), Some("second m"));
    let none = asks(&mut fixture, "third x", None).unwrap();
    assert_eq!((none.nodes.len(), none.is_complete), (0, false), "a node that is not there is answered, too");
    fixture.device("bmc", |device| {
        device["metadata"]["annotations"] = json!({ "pod-safety.dev/test": "fourth m" });
        device["metadata"]["generation"] = json!(2);
    });
    let due = monitored(&fixture).unwrap();
    assert_eq!((due.nodes.len(), due.is_complete), (3, true), "all are due, and that answers it");
}

#[test]
fn the_metrics_show_incidents_by_phase_time_to_proof_and_devices_without_answer() {
    let registry = prometheus::Registry::new();
    let controller = Fencing::new(config(), &registry).unwrap();
    let mut fixture = Fixture::at(Phase::Pending, |_| ());
    fixture.device("bmc", |device| {
        device["status"]["targets"] = json!([{ "node": "n", "power": "Unknown", "problem": "LoginDenied" },
            { "node": "k", "power": "Off", "problem": "SaysOff" }, { "node": "l", "power": "Off" }, { "node": "m", "power": "On" }]);
    });
    let decide =
        |fixture: &Fixture| controller.decide(&Key::Node("n".into()), &fixture.world.read().view(), fixture.mono());
    decide(&fixture);
    assert_eq!(fixture.act("n"), ["off 1 by bmc"]);
    decide(&fixture);
    fixture.set_power("Off");
    fixture.advance(20);
    assert_eq!(fixture.act("n"), ["prove"]);
    decide(&fixture);
    decide(&fixture);
    controller.list_keys(&fixture.world.read().view(), &mut |_| {});
    let page = page(&registry);
    for line in [
        "pod_safety_fences{phase=\"Fenced\"} 1",
        "pod_safety_fences{phase=\"Pending\"} 0",
        "pod_safety_fence_phases_total{phase=\"Fencing\"} 1",
        "pod_safety_fence_phases_total{phase=\"Fenced\"} 1",
        "pod_safety_fence_time_to_evidence_seconds_count 1",
        "pod_safety_fence_time_to_evidence_seconds_sum 20",
        "pod_safety_fence_device_unreachable_targets 2",
        "pod_safety_fence_device_problems{problem=\"LoginDenied\"} 1",
        "pod_safety_fence_device_problems{problem=\"SaysOff\"} 1",
        "pod_safety_fence_device_problems{problem=\"BadSecret\"} 0",
    ] {
        assert!(page.lines().any(|one| one == line), "no {line} in {page}");
    }
}

#[test]
fn bug_an_incident_that_was_deleted_was_counted_until_something_else_changed() {
    let registry = prometheus::Registry::new();
    let controller = Fencing::new(config(), &registry).unwrap();
    let mut fixture = Fixture::at(Phase::AwaitingOperator, |_| ());
    let shown = |fixture: &Fixture| {
        controller.decide(&Key::Node("n".into()), &fixture.world.read().view(), fixture.mono());
        let page = page(&registry);
        page.lines().find(|line| line.contains("pod_safety_fences{phase=\"AwaitingOperator\"}")).unwrap().to_owned()
    };
    assert_eq!(shown(&fixture), "pod_safety_fences{phase=\"AwaitingOperator\"} 1");
    let name = incident_name(&fixture.incarnation("n"));
    fixture.delete(Kind::NodeFences, &name);
    assert_eq!(shown(&fixture), "pod_safety_fences{phase=\"AwaitingOperator\"} 0");
}
