//! Nodes that report, and are unhealthy by their policy.

use pod_safety_shared::api::{
    Condition, ConditionStatus, Drain, Flapping, TriggerCondition, UnhealthyCondition,
};
use pod_safety_shared::testing::at;
use pod_safety_shared::testing::objects::NEXT_BOOT;
use pod_safety_shared::testing::objects::{START_SECONDS, timestamp};

use super::*;

const DEADLOCK: &str = "KernelDeadlock";

fn deadlock() -> TriggerCondition {
    TriggerCondition { r#type: DEADLOCK.to_owned(), status: ConditionStatus::True }
}

/// Five nodes that report, with a policy that names the condition, and no drain.
fn named() -> Fixture {
    let mut stage = Fixture::new(&["n", "m", "k", "l", "o"]);
    stage.world.set_wall_time(START_SECONDS, at(0));
    stage.policy(|policy| {
        let (r#type, status) = (DEADLOCK.to_owned(), ConditionStatus::True);
        policy.unhealthy.conditions = vec![UnhealthyCondition { r#type, status, seconds: 60 }];
        policy.unhealthy.drain_seconds = 0;
    });
    stage
}

fn trigger() -> FenceTrigger {
    let reason = "it shows it".to_owned();
    FenceTrigger { kind: Trigger::Unhealthy, reason, by: None, condition: Some(deadlock()) }
}

/// With a pending incident of `n`, which shows the condition.
fn pending() -> Fixture {
    let mut stage = named();
    stage.set_condition("n", DEADLOCK, Some("True"));
    stage.fence_for("n", trigger(), NodeFenceStatus::default());
    stage
}

/// With a drain of five minutes, and a pod of a StatefulSet there.
fn draining() -> Fixture {
    let mut stage = pending();
    stage.policy(|policy| policy.unhealthy.drain_seconds = 300);
    stage.pod("db-0", "n", |_| ());
    stage
}

#[test]
fn a_condition_of_the_policy_opens_an_incident_exactly_after_its_seconds() {
    let mut stage = named();
    stage.advance_to(20);
    stage.set_condition("n", DEADLOCK, Some("True"));
    stage.advance_to(79);
    let early = stage.decide("n");
    assert_eq!((describe(&early), early.requeue_at), (vec![], Some(at(80))));
    stage.advance_to(80);
    let decision = stage.decide("n");
    let Some(Step::Open(spec)) = step(&decision) else { panic!("{decision:?}") };
    assert_eq!((spec.trigger.kind, &spec.trigger.condition), (Trigger::Unhealthy, &Some(deadlock())));
    assert_eq!(
        spec.trigger.reason,
        "it has reported KernelDeadlock=True for 60 s (unhealthy.conditions: 60 s)"
    );
    assert!(stage.describe("m").is_empty(), "the others show nothing");
}

#[test]
fn only_conditions_of_the_policy_count_without_a_break_and_within_one_boot() {
    type Change = fn(&mut Fixture);
    let rows: [(&str, Change, bool); 7] = [
        ("another condition", |stage| stage.set_condition("n", "ReadonlyFilesystem", Some("True")), false),
        ("another status", |stage| stage.set_condition("n", DEADLOCK, Some("Unknown")), false),
        ("it went", |stage| stage.set_condition("n", DEADLOCK, None), false),
        (
            "it went and came again",
            |stage| {
                stage.set_condition("n", DEADLOCK, Some("False"));
                stage.advance(1);
                stage.set_condition("n", DEADLOCK, Some("True"));
            },
            false,
        ),
        (
            "it booted, and its old condition is still written there",
            |stage| stage.change("n", |node| node["status"]["nodeInfo"]["bootID"] = json!(NEXT_BOOT)),
            false,
        ),
        (
            "it beats",
            |stage| {
                stage.change("n", |node| {
                    node["status"]["conditions"][0]["lastHeartbeatTime"] = json!(timestamp(50));
                })
            },
            true,
        ),
        ("nothing", |_| (), true),
    ];
    for (says, change, begins) in rows {
        let mut stage = named();
        if says != "another condition" {
            stage.set_condition("n", DEADLOCK, Some("True"));
        }
        stage.advance_to(50);
        change(&mut stage);
        stage.advance_to(70);
        let expected: &[&str] = if begins { &["open by p"] } else { &[] };
        assert_eq!(stage.describe("n"), expected, "{says}");
    }
}

#[test]
fn a_node_that_flaps_is_unhealthy_and_one_whose_changes_are_old_is_not() {
    let mut stage = named();
    stage.policy(|policy| policy.unhealthy.flapping = Some(Flapping { changes: 4, within_seconds: 100 }));
    for ready in ["False", "True", "Unknown"] {
        stage.advance(10);
        stage.set_ready("n", ready);
        assert!(stage.describe("n").is_empty(), "{ready}");
    }
    stage.advance(10);
    stage.set_ready("n", "True");
    let decision = stage.decide("n");
    let Some(Step::Open(spec)) = step(&decision) else { panic!("{decision:?}") };
    assert_eq!(
        spec.trigger.reason,
        "its condition Ready changed 4 times within 100 s (unhealthy.flapping.changes: 4)"
    );
    assert_eq!(spec.trigger.condition, None);
    stage.act("n");
    assert_eq!(stage.describe("n"), ["off 1 by bmc"]);
    stage.advance_to(109);
    assert_eq!(stage.describe("n"), ["off 1 by bmc"]);
    stage.advance_to(110);
    assert_eq!(stage.describe("n"), ["write Cancelled"], "the first change is too old");
    let mut stage = named();
    stage.policy(|policy| policy.unhealthy.flapping = Some(Flapping { changes: 3, within_seconds: 100 }));
    for ready in ["False", "True"] {
        stage.set_ready("n", ready);
    }
    stage.reboot("n", NEXT_BOOT);
    stage.set_ready("n", "False");
    assert!(stage.describe("n").is_empty(), "a boot is no flapping");
}

#[test]
fn the_field_when_applies_as_for_a_lost_node() {
    let mut stage = named();
    stage.policy(|policy| policy.when = When::Needed);
    stage.set_condition("n", DEADLOCK, Some("True"));
    stage.advance_to(60);
    assert_eq!(stage.describe("n"), ["?FenceNotNeeded"]);
    stage.pod("db-0", "n", Fixture::terminating);
    assert_eq!(stage.describe("n"), ["open by p"], "its kubelet does not end it");
}

/// A running kubelet is no objection: the node is switched off because it runs badly, and only status checks of
/// devices become evidence.
#[test]
fn a_reporting_node_is_switched_off_by_policy_and_only_devices_prove_it_off() {
    let mut stage = pending();
    stage.pod("db-0", "n", Fixture::terminating);
    assert_eq!(stage.act("n"), ["off 1 by bmc"]);
    assert!(stage.proofs.is_empty());
    stage.advance(30);
    stage.set_outcome("done");
    assert_eq!(stage.describe("n"), ["look"], "it reports, and that changes nothing");
    stage.set_power("On");
    assert_eq!(stage.describe("n"), ["?RetryBackoff"]);
    stage.set_power("Off");
    stage.alive.remove("n");
    assert_eq!(stage.act("n"), ["prove"]);
    assert_eq!(stage.describe("n"), ["?NodeStillReady"], "no taint while it is called Ready");
}

#[test]
fn a_cleared_condition_cancels_its_incident_and_another_condition_does_not() {
    let mut stage = pending();
    stage.set_condition("n", DEADLOCK, Some("False"));
    assert_eq!(stage.act("n"), ["write Cancelled"]);
    let (_, status) = stage.only();
    assert_eq!(status.message, "the node no longer shows what its policy calls unhealthy");
    assert!(stage.describe("n").is_empty());
    let mut stage = pending();
    stage.policy(|policy| policy.unhealthy.conditions.clear());
    assert_eq!(stage.describe("n"), ["write Cancelled"], "the policy no longer names it");
    let mut stage = pending();
    stage.set_ready("n", "Unknown");
    stage.set_condition("n", DEADLOCK, Some("True"));
    assert_eq!(stage.describe("n"), ["off 1 by bmc"], "it fell silent, and its condition stands");
}

/// The trigger is checked by a live read before each attempt. An incident that was cancelled for one trigger and
/// reopened for another would be checked for the wrong one, and never proceed.
#[test]
fn bug_a_cancelled_incident_was_reopened_for_another_trigger() {
    let mut stage = pending();
    stage.set_condition("n", DEADLOCK, None);
    stage.act("n");
    stage.lose_node("n");
    stage.advance(70);
    assert_eq!(stage.describe("n"), ["forget"]);
    let mut stage = named();
    stage.fence("n", Trigger::Detected, NodeFenceStatus { phase: Phase::Cancelled, ..Default::default() });
    stage.set_condition("n", DEADLOCK, Some("True"));
    stage.advance(60);
    assert_eq!(stage.describe("n"), ["forget"]);
    let mut stage = pending();
    stage.edit(|_, status| status.phase = Phase::Cancelled);
    stage.advance(60);
    assert_eq!(stage.describe("n"), ["write Pending"], "for the same reason it is");
    stage.edit(|spec, _| spec.cancelled = true);
    assert_eq!(stage.describe("n"), ["?FenceOver"], "a person called it off");
}

#[test]
fn an_unhealthy_node_is_cordoned_and_drained_in_rounds_and_then_switched_off() {
    let mut stage = draining();
    stage.pod("agent", "n", |pod| pod["metadata"]["ownerReferences"][0]["kind"] = json!("DaemonSet"));
    stage.pod("static", "n", |pod| {
        pod["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "x" });
    });
    stage.pod("elsewhere", "m", |_| ());
    assert_eq!(stage.act("n"), ["drain db-0", "?Drain"]);
    assert!(
        stage.hold_message("n").contains("1 are left. It is powered off in 300s (unhealthy.drainSeconds)"),
        "{}",
        stage.hold_message("n")
    );
    stage.advance(9);
    assert_eq!(stage.describe("n"), ["?Drain"], "a budget is not asked without end");
    stage.advance(1);
    assert_eq!(stage.act("n"), ["drain db-0", "?Drain"]);
    stage.pod("db-0", "n", Fixture::terminating);
    stage.advance(10);
    assert_eq!(stage.act("n"), ["drain ", "?Drain"], "it ends by its own grace");
    stage.delete(Kind::Pods, "db-0");
    assert_eq!(stage.act("n"), ["off 1 by bmc"]);
    let (_, status) = stage.only();
    assert_eq!(status.drain.unwrap().rounds, 3, "what was done is kept: the node is uncordoned at the end");
}

/// A pod that tolerates the cordon was evicted every ten seconds for five minutes.
#[test]
fn bug_a_successor_that_came_back_to_a_drained_node_was_evicted_in_each_round() {
    let mut stage = draining();
    assert_eq!(stage.act("n"), ["drain db-0", "?Drain"]);
    stage.delete(Kind::Pods, "db-0");
    let came = timestamp(stage.now + 5);
    stage.pod("db-0-again", "n", |pod| pod["metadata"]["creationTimestamp"] = json!(came));
    stage.advance(10);
    assert_eq!(stage.describe("n"), ["off 1 by bmc"]);
}

#[test]
fn a_drain_ends_after_its_time_or_when_the_node_stops_reporting() {
    let mut stage = draining();
    stage.act("n");
    stage.advance(299);
    assert_eq!(stage.describe("n"), ["drain db-0", "?Drain"]);
    stage.advance(1);
    assert_eq!(stage.describe("n"), ["off 1 by bmc"], "what is left is fenced with the machine");
    let mut stage = draining();
    stage.act("n");
    stage.set_ready("n", "Unknown");
    stage.set_condition("n", DEADLOCK, Some("True"));
    assert_eq!(stage.describe("n"), ["off 1 by bmc"], "nobody is there to end pods");
    let mut stage = draining();
    stage.act("n");
    stage.policy(|policy| policy.mode = PolicyMode::DryRun);
    assert_eq!(stage.describe("n")[1..], ["?DryRun"], "a dry run drains nothing");
}

#[test]
fn drains_wait_for_other_gates_and_run_one_after_the_other() {
    let mut stage = draining();
    stage.policy(|policy| policy.paused = Some("upgrade".to_owned()));
    assert_eq!(stage.describe("n"), ["write Pending", "?Paused", "?Drain"]);
    let mut stage = draining();
    stage.policy(|policy| policy.brakes.max_concurrent = 1);
    stage.set_condition("m", DEADLOCK, Some("True"));
    stage.advance(1);
    stage.fence_for("m", trigger(), NodeFenceStatus::default());
    assert_eq!(stage.describe("m"), ["write Pending", "?Drain", "?Concurrency"], "n came first");
    assert_eq!(stage.act("n"), ["drain db-0", "?Drain"]);
    assert_eq!(stage.describe("m"), ["write Pending", "?Drain", "?Concurrency"], "n is being drained");
    stage.lose_node("k");
    stage.advance(60);
    stage.fence("k", Trigger::Detected, NodeFenceStatus::default());
    assert_eq!(stage.describe("k"), ["off 1 by bmc"], "who is lost does not wait for who reports");
}

/// Also after `maxConcurrent` was lowered; drains of finished incidents do not count.
#[test]
fn a_begun_drain_continues_beside_others_and_holds_its_place() {
    let drained = |phase| NodeFenceStatus { phase, drain: Some(Drain::default()), ..Default::default() };
    for (phase, may) in [(Phase::Pending, false), (Phase::Done, true)] {
        let mut stage = draining();
        stage.policy(|policy| policy.brakes.max_concurrent = 1);
        stage.set_condition("m", DEADLOCK, Some("True"));
        // It is held itself, so it is not ahead of the other.
        stage.exclude_from_remediation("m");
        stage.fence_for("m", trigger(), drained(phase));
        assert_eq!(stage.describe("n").contains(&"?Concurrency".to_owned()), !may, "{phase:?}");
        stage.fence_for("n", trigger(), drained(Phase::Pending));
        assert!(!stage.describe("n").contains(&"?Concurrency".to_owned()), "it has its turn: {phase:?}");
    }
}

#[test]
fn a_lost_node_goes_before_an_unhealthy_one_whose_incident_is_older() {
    let mut stage = pending();
    stage.policy(|policy| policy.brakes.max_concurrent = 1);
    stage.lose_node("m");
    stage.advance(60);
    stage.fence("m", Trigger::Detected, NodeFenceStatus::default());
    assert_eq!(stage.describe("m"), ["off 1 by bmc"]);
    assert_eq!(stage.describe("n"), ["write Pending", "?Concurrency"]);
}

/// The trigger of the incident before this one, and whether an attempt was made.
#[test]
fn only_an_attempt_for_the_same_trigger_in_another_boot_is_a_repetition() {
    for (kind, tried, holds) in [
        (Trigger::Unhealthy, true, true),
        (Trigger::Unhealthy, false, false),
        (Trigger::Detected, true, false),
    ] {
        let mut stage = named();
        let attempt = Attempt { id: 1, act: DesiredPower::Off, at: timestamp(0), ..Attempt::default() };
        let fenced = Condition::transition(&[], "Fenced", "True", "R", "m", &timestamp(0));
        let (attempts, conditions) = (if tried { vec![attempt] } else { Vec::new() }, vec![fenced]);
        let over = NodeFenceStatus { phase: Phase::Done, attempts, conditions, ..Default::default() };
        stage.fence("n", kind, over);
        stage.reboot("n", NEXT_BOOT);
        stage.set_condition("n", DEADLOCK, Some("True"));
        stage.fence_for("n", trigger(), NodeFenceStatus::default());
        let held = stage.describe("n").contains(&"?Repeated".to_owned());
        assert_eq!(held, holds, "{kind:?}, tried: {tried}");
    }
    let mut stage = pending();
    stage.act("n");
    stage.edit(|_, status| status.attempts[0].at = timestamp(0));
    stage.set_outcome("done");
    stage.set_power("On");
    stage.advance(60);
    assert_eq!(stage.describe("n"), ["off 2 by bmc"], "its own attempt is none");
}

/// If many nodes show a condition, the condition is more likely wrong than every node broken. Lost nodes are fenced
/// all the same.
#[test]
fn a_condition_shown_by_most_nodes_fences_none_of_them() {
    let mut stage = pending();
    for name in ["m", "k"] {
        stage.set_condition(name, DEADLOCK, Some("True"));
    }
    assert_eq!(stage.describe("n"), ["write Pending", "?LargeOutage"]);
    stage.lose_node("l");
    stage.advance(60);
    stage.fence("l", Trigger::Detected, NodeFenceStatus::default());
    assert_eq!(stage.describe("l"), ["off 1 by bmc"]);
    let mut stage = pending();
    stage.policy(|policy| policy.brakes.max_unhealthy_percent = 100);
    stage.policy(|policy| policy.brakes.max_unhealthy_zone_percent = 55);
    for name in ["m", "k"] {
        stage.set_condition(name, DEADLOCK, Some("True"));
    }
    assert_eq!(stage.describe("n"), ["write Pending", "?ZoneInTrouble"]);
    for name in ["m", "k"] {
        stage.change(name, |node| node["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!("z"));
    }
    assert_eq!(stage.describe("n"), ["off 1 by bmc"], "those are of another zone");
    let mut stage = pending();
    stage.control_plane(&["n", "m", "k"]);
    stage.set_condition("m", DEADLOCK, Some("True"));
    assert_eq!(stage.describe("n"), ["write Pending", "?ControlPlane"], "it is not counted on");
}

/// A kubelet may write its own conditions, its own boot ID and its own readiness at will.
#[test]
fn attack_a_kubelet_that_reports_unhealthy_in_each_boot_is_fenced_once_and_delays_no_lost_node() {
    let mut stage = pending();
    stage.policy(|policy| policy.brakes.max_concurrent = 1);
    assert_eq!(stage.act("n"), ["off 1 by bmc"]);
    stage.edit(|_, status| {
        status.phase = Phase::Done;
        status.attempts[0].at = timestamp(0);
    });
    for boot in 2..12 {
        stage.change("n", |node| {
            node["status"]["nodeInfo"]["bootID"] =
                json!(format!("b0000000-0000-4000-8000-0000000000{boot:02}"))
        });
        stage.advance(60);
        // The incident of the previous boot is superseded, and another one begins.
        let acts: Vec<String> = (0..3).flat_map(|_| stage.act("n")).collect();
        assert!(acts.contains(&"?Repeated".to_owned()), "boot {boot}: {acts:?}");
        assert!(!acts.iter().any(|act| act.starts_with("off")), "boot {boot}: {acts:?}");
    }
    let sentence = stage.hold_message("n");
    assert!(sentence.contains("powering it off and on did not cure it. Repair or replace it"), "{sentence}");
    stage.lose_node("m");
    stage.advance(60);
    stage.fence("m", Trigger::Detected, NodeFenceStatus::default());
    assert_eq!(stage.act("m"), ["off 1 by bmc"]);
    stage.advance_to(3_600);
    let last = stage.describe("n");
    assert_eq!(last, ["write Pending", "?Concurrency"], "an hour later it may be fenced again, in its turn");
}
