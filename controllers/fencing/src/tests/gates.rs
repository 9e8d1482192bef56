//! The gates that hold fencing back.

use super::*;

fn pending() -> Fixture {
    Fixture::at(Phase::Pending, |_| ())
}

/// The closed gates by their holds, without the write that shows them.
fn closed(fixture: &Fixture) -> Vec<String> {
    fixture.describe("n").into_iter().filter(|word| word.starts_with('?')).collect()
}

#[test]
fn with_all_gates_open_the_first_level_is_tried() {
    let mut fixture = pending();
    assert_eq!(fixture.act("n"), ["off 1 by bmc"]);
    let (_, status) = fixture.only();
    let last = status.attempts.last().unwrap();
    assert_eq!((status.phase, last.within_seconds, last.at.as_str()), (Phase::Fencing, 60, ""));
    assert!(
        status.gates.len() == crate::gates::NAMES.len() && status.gates.iter().all(|gate| !gate.holds),
        "{status:?}"
    );
    assert_eq!(status.message, "switching it off by the level bmc with fencing/bmc");
}

fn in_phase(phase: Phase) -> NodeFenceStatus {
    NodeFenceStatus { phase, ..NodeFenceStatus::default() }
}

/// A gate, its message, and what closes it.
type Row = (&'static str, &'static str, fn(&mut Fixture));

#[test]
fn each_closed_gate_shows_its_numbers_and_is_written_once() {
    let rows: [Row; 10] = [
        ("Paused", "upgrade", |fixture| fixture.policy(|policy| policy.paused = Some("upgrade".to_owned()))),
        ("FencingSuspended", "pod-safety.dev/pause-fencing", |fixture| fixture.exclude_from_remediation("n")),
        ("LargeOutage", "3 of 5 nodes are lost, more than 49 %", |fixture| fixture.lose(&["m", "k"])),
        ("ControlPlane", "only 1 of 2 such nodes is Ready", |fixture| fixture.control_plane(&["n", "m"])),
        ("EtcdQuorum", "only 1 of 2 members is Ready", |fixture| fixture.etcd(&["n", "m"])),
        (
            "Collateral",
            "ns/db run on node n: 2 healthy - 1 here is less than 2 needed. The node is fenced anyway in 300s",
            |fixture| fixture.guarded(2, 2),
        ),
        ("SelfNode", "this process runs on node n", |fixture| fixture.runs_on("n")),
        ("NoDevices", "level bmc: device fencing/bmc does not exist", |fixture| {
            fixture.delete(Kind::FenceDevices, "bmc")
        }),
        ("Concurrency", "nodes being fenced: 1; ahead of this one: 0; at most 1 at a time", |fixture| {
            fixture.policy(|policy| policy.brakes.max_concurrent = 1);
            fixture.lose_node("m");
            fixture.fence("m", Trigger::Detected, in_phase(Phase::Fencing));
        }),
        ("Cooldown", "node m was fenced a moment ago. The next node can be fenced in 60s", |fixture| {
            fixture.policy(|policy| policy.brakes.cooldown_seconds = 60);
            let attempts = vec![Attempt::default()];
            fixture.fence("m", Trigger::Person, NodeFenceStatus { attempts, ..in_phase(Phase::Done) });
        }),
    ];
    for (gate, numbers, close) in rows {
        let mut fixture = pending();
        close(&mut fixture);
        assert_eq!(fixture.describe("n"), ["write Pending".to_owned(), format!("?{gate}")], "{gate}");
        assert!(fixture.hold_message("n").contains(numbers), "{gate}: {}", fixture.hold_message("n"));
        assert!(fixture.decide("n").requeue_at.is_some(), "{gate}: asked again");
        let decision = fixture.decide("n");
        let shown = status(step(&decision).unwrap()).unwrap();
        let held: Vec<_> = shown.gates.iter().filter(|one| one.holds).collect();
        assert_eq!(held.len(), 1, "{gate}");
        assert!(held[0].name == gate && held[0].message.contains(numbers) && shown.message == held[0].message);
    }
}

#[test]
fn a_shown_gate_is_not_written_again_when_its_numbers_change() {
    let mut fixture = pending();
    fixture.lose(&["m", "k"]);
    assert_eq!(fixture.act("n"), ["write Pending", "?LargeOutage"]);
    assert_eq!(fixture.describe("n"), ["?LargeOutage"]);
    fixture.lose_node("l");
    assert_eq!(fixture.describe("n"), ["?LargeOutage"]);
    fixture.policy(|policy| policy.paused = Some("x".to_owned()));
    assert_eq!(fixture.act("n"), ["write Pending", "?Paused", "?LargeOutage"], "another one is news");
    fixture.policy(|policy| policy.paused = None);
    for name in ["m", "k", "l"] {
        fixture.reboot(name, super::fixture::boot_of(name));
    }
    assert_eq!(fixture.act("n"), ["off 1 by bmc"]);
}

#[test]
fn one_lost_node_of_two_is_fenced_and_unreachable_nodes_count_even_if_marked_ready() {
    let mut fixture = Fixture::new(&["n", "m"]);
    fixture.lose_node("n");
    fixture.advance_to(70);
    fixture.fence("n", Trigger::Detected, NodeFenceStatus::default());
    assert_eq!(fixture.describe("n"), ["off 1 by bmc"]);
    fixture.alive.remove("m");
    fixture.advance_to(129);
    assert_eq!(closed(&fixture), [""; 0], "one of two is lost");
    fixture.advance_to(130);
    assert_eq!(closed(&fixture), ["?LargeOutage"], "no node reports: this process is more likely cut off");
}

#[test]
fn the_zone_gate_holds_from_three_lost_nodes_on() {
    let zoned = |lost: &[&str]| {
        let mut fixture = Fixture::new(&["n", "m", "k", "l", "a", "b", "c", "d", "e", "f"]);
        for name in ["n", "m", "k", "l"] {
            fixture.change(name, |node| node["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!("z"));
        }
        fixture.lose(lost);
        fixture.advance_to(70);
        fixture.policy(|policy| policy.brakes.max_unhealthy_zone_percent = 55);
        fixture.fence("n", Trigger::Detected, NodeFenceStatus::default());
        fixture
    };
    assert!(closed(&zoned(&["n", "m"])).is_empty(), "two of four: half");
    let three = zoned(&["n", "m", "k"]);
    assert_eq!(closed(&three), ["?ZoneInTrouble"]);
    assert!(three.hold_message("n").contains("3 of 4 nodes of zone z are not ready, more than 55 %"));
    let mut fixture = zoned(&["n", "m", "k"]);
    fixture.policy(|policy| policy.brakes.max_unhealthy_zone_percent = 75);
    assert!(closed(&fixture).is_empty());
}

#[test]
fn the_control_plane_is_fenced_only_within_its_quorum_or_never() {
    let mut fixture = pending();
    fixture.control_plane(&["n", "m", "k", "l", "o"]);
    assert_eq!(closed(&fixture), [""; 0], "the quorum remains");
    fixture.policy(|policy| policy.brakes.control_plane = pod_safety_shared::api::ControlPlane::Never);
    assert_eq!(closed(&fixture), ["?ControlPlane"]);
    assert!(fixture.hold_message("n").contains("never fences such nodes"));
}

#[test]
fn a_level_is_used_only_if_all_its_devices_can_be() {
    fn says(device: &mut Value, conditions: &[(&str, &str)]) {
        let condition = |(kind, status): &(&str, &str)| json!({ "type": kind, "status": status, "reason": "r", "message": "m", "lastTransitionTime": "t" });
        device["status"]["conditions"] = conditions.iter().map(condition).collect();
    }
    type Row = (&'static str, bool, fn(&mut Value));
    let rows: [Row; 7] = [
        ("as it is", true, |_| ()),
        ("trusted, and ready", true, |device| says(device, &[("Trusted", "True"), ("Ready", "True")])),
        ("not trusted", false, |device| says(device, &[("Trusted", "False")])),
        ("unanswered at its last check, which is old", true, |device| says(device, &[("Ready", "False")])),
        ("for other nodes", false, |device| device["spec"]["nodeSelector"] = json!({ "matchLabels": { "rack": "7" } })),
        ("one machine for whichever node has no rack", false, |device| {
            device["spec"]["nodeSelector"] =
                json!({ "matchExpressions": [{ "key": "rack", "operator": "DoesNotExist" }] })
        }),
        ("the machine that the node reports, if it has no rack", true, |device| {
            device["spec"]["nodeSelector"] =
                json!({ "matchExpressions": [{ "key": "rack", "operator": "DoesNotExist" }] });
            device["spec"]["identityCheck"] = json!("Required");
        }),
    ];
    for (says, can, change) in rows {
        let mut fixture = pending();
        fixture.device("bmc", change);
        assert_eq!(closed(&fixture).is_empty(), can, "{says}");
        fixture.device("pdu", |_| ());
        fixture.policy(|policy| policy.levels.push(level("pdu", 1)));
        let used = if can { "off 1 by bmc" } else { "off 1 by pdu" };
        assert_eq!(fixture.describe("n"), [used], "{says}: or the next level");
        fixture.policy(|policy| {
            let devices = policy.levels.iter().flat_map(|level| level.devices.clone()).collect();
            policy.levels = vec![Level { name: "both".to_owned(), devices, corroborate: Vec::new(), attempts: 1 }];
        });
        assert_eq!(closed(&fixture).is_empty(), can, "{says}: both are needed");
    }
}

#[test]
fn waiting_incidents_begin_by_priority_then_age_then_name() {
    let two = |concurrent: u32| {
        let mut fixture = Fixture::new(&["n", "m", "a", "b", "c", "d", "e"]);
        fixture.policy(|policy| policy.brakes.max_concurrent = concurrent);
        fixture.lose(&["n", "m"]);
        fixture.advance_to(70);
        fixture.fence("n", Trigger::Detected, NodeFenceStatus::default());
        fixture
    };
    let mut fixture = two(1);
    fixture.fence("m", Trigger::Detected, NodeFenceStatus::default());
    assert_eq!(fixture.describe("m"), ["off 1 by bmc"], "of one age the first by name");
    assert_eq!(fixture.describe("n"), ["write Pending", "?Concurrency"]);
    let mut fixture = two(1);
    fixture.advance(1);
    fixture.fence("m", Trigger::Detected, NodeFenceStatus::default());
    assert_eq!((fixture.describe("n").len(), fixture.describe("m").len()), (1, 2), "the older incident first");
    fixture.exclude_from_remediation("n");
    assert_eq!(fixture.describe("m"), ["off 1 by bmc"], "a held incident holds no other");
    let mut fixture = two(2);
    fixture.fence("m", Trigger::Detected, NodeFenceStatus::default());
    assert_eq!((fixture.describe("n").len(), fixture.describe("m").len()), (1, 1), "both may");
}

#[test]
fn a_dry_run_records_its_plan_and_holds_no_other_incident() {
    let mut fixture = pending();
    fixture.edit(|spec, _| spec.dry_run = true);
    assert_eq!(fixture.act("n"), ["write Pending", "?DryRun"]);
    let (_, status) = fixture.only();
    assert_eq!(status.message, "dry run: node n would be fenced by the level bmc with fencing/bmc");
    assert_eq!(fixture.describe("n"), ["?DryRun"], "written once");
    fixture.runs_on("n");
    assert_eq!(fixture.describe("n"), ["write Pending", "?SelfNode"], "its gates are those of a real one");
    fixture.evidence("n", "by-hand", FenceEvidenceKind::OperatorConfirmed);
    assert_eq!(fixture.describe("n"), ["write Pending", "?SelfNode"], "and it stays what it is");
    fixture.policy(|policy| policy.brakes.max_concurrent = 1);
    fixture.lose_node("m");
    fixture.advance(70);
    fixture.fence("m", Trigger::Detected, NodeFenceStatus::default());
    assert_eq!(fixture.describe("m"), ["off 1 by bmc"]);
}

#[test]
fn a_budget_holds_fencing_for_collateral_seconds_and_only_for_healthy_pods() {
    let mut fixture = pending();
    fixture.guarded(3, 2);
    assert_eq!(closed(&fixture), [""; 0], "it can spare one");
    fixture.budget(2, 2);
    assert_eq!(closed(&fixture), ["?Collateral"]);
    fixture.advance(299);
    assert_eq!(fixture.act("n"), ["write Pending", "?Collateral"]);
    fixture.advance(1);
    assert_eq!(fixture.describe("n"), ["off 1 by bmc"], "a budget does not hold indefinitely");
    let mut fixture = pending();
    fixture.budget(2, 2);
    fixture.pod("db-0", "n", |pod| pod["metadata"]["labels"] = json!({ "app": "db" }));
    assert_eq!(closed(&fixture), [""; 0], "a pod that is not Ready does not count");
    fixture.ready_pod("ns", "db-0", "n", &json!({ "app": "db" }));
    fixture.policy(|policy| policy.brakes.collateral_seconds = 0);
    assert_eq!(closed(&fixture), [""; 0], "the brake is off");
    fixture.policy(|policy| policy.brakes.collateral_seconds = 300);
    fixture.edit(|_, status| status.phase = Phase::Fencing);
    assert_eq!(closed(&fixture), [""; 0], "what has begun goes on");
}

#[test]
fn an_etcd_member_is_fenced_only_if_more_than_half_remain_on_healthy_nodes() {
    let mut fixture = pending();
    fixture.etcd(&["n", "m", "k"]);
    assert_eq!(closed(&fixture), [""; 0], "two of three");
    fixture.lose_node("k");
    assert_eq!(closed(&fixture), ["?EtcdQuorum"], "one of them is called Ready on a node that is lost");
    let mut fixture = pending();
    fixture.etcd(&["m", "k"]);
    fixture.lose_node("k");
    assert_eq!(closed(&fixture), [""; 0], "no member runs there");
}

#[test]
fn open_gates_show_their_numbers() {
    let mut fixture = pending();
    fixture.etcd(&["n", "m", "k"]);
    fixture.guarded(3, 2);
    fixture.control_plane(&["n", "m", "k"]);
    fixture.policy(|policy| policy.brakes.cooldown_seconds = 60);
    fixture.act("n");
    let (_, status) = fixture.only();
    let message_of = |name: &str| status.gates.iter().find(|gate| gate.name == name).unwrap().message.clone();
    for (gate, numbers) in [
        ("LargeOutage", "1 of 5 nodes is lost; the limit is 49 %"),
        ("ZoneInTrouble", "1 of 5 nodes of its zone is not ready; the limit is 100 %"),
        ("EtcdQuorum", "without it 2 of 3 etcd members are Ready"),
        ("Collateral", "ns/db: 3 healthy, 1 of them here, 2 needed"),
        ("Concurrency", "0 others are being fenced; at most 10 at a time"),
        ("ControlPlane", "without it 2 of 3 such nodes are Ready"),
        ("Cooldown", "no other node was fenced in the last 60s"),
    ] {
        assert_eq!(message_of(gate), numbers, "{gate}");
    }
}

#[test]
fn without_dry_runs_only_the_incident_is_decided() {
    let mut fixture = Fixture::lost();
    fixture.config.include_dry_runs = false;
    fixture.dry_run_incident("n");
    assert_eq!(fixture.act("n"), ["open by p"]);
    assert_eq!(fixture.describe("n"), ["off 1 by bmc"]);
}

/// A dry run of a node that was not deleted kept the node from ever being fenced.
#[test]
fn bug_a_dry_run_that_was_not_deleted_kept_a_lost_node_from_being_fenced() {
    let mut fixture = Fixture::lost();
    fixture.dry_run_incident("n");
    assert_eq!(fixture.describe("n"), ["write Pending", "?DryRun"], "the plan");
    assert_eq!(fixture.act("n")[1..], ["?DryRun"]);
    let mut fixture = Fixture::lost();
    let name = fixture.dry_run_incident("n");
    let planned = NodeFenceStatus::default();
    assert_eq!(planned.phase, Phase::Pending);
    // Its plan is recorded already.
    let shown = fixture.decide("n");
    let target = step(&shown).unwrap().target().unwrap().clone();
    let object = named(&name).set("/spec", json!(*target.spec)).set("/status", json!(*target.status));
    fixture.world.put(Kind::NodeFences, object, fixture.mono());
    assert_eq!(fixture.describe("n"), ["open by p", "?DryRun"], "the node is lost all the same");
    fixture.act("n");
    assert_eq!(fixture.describe("n"), ["off 1 by bmc", "?DryRun"], "and they are not one about the same");
}
