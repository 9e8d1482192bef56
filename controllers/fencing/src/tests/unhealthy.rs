//! Nodes that report, and are unhealthy by their policy.

use pod_safety_shared::api::{Condition, ConditionStatus, Flapping, TriggerCondition, UnhealthyCondition};

use super::*;

const DEADLOCK: &str = "KernelDeadlock";

fn deadlock() -> TriggerCondition {
    TriggerCondition { r#type: DEADLOCK.to_owned(), status: ConditionStatus::True }
}

/// Five nodes that report, with a policy that names the condition, and no drain.
fn named() -> Fixture {
    let mut fixture = Fixture::new(&["n", "m", "k", "l", "o"]);
    fixture.world.set_wall_time(START_SECONDS, at(0));
    fixture.policy(|policy| {
        let (r#type, status) = (DEADLOCK.to_owned(), ConditionStatus::True);
        policy.unhealthy.conditions = vec![UnhealthyCondition { r#type, status, seconds: 60 }];
        policy.unhealthy.drain_seconds = 0;
    });
    fixture
}

fn trigger() -> FenceTrigger {
    let reason = "it shows it".to_owned();
    FenceTrigger { kind: Trigger::Unhealthy, reason, by: None, condition: Some(deadlock()) }
}

/// With a pending incident of `n`, which shows the condition.
fn pending() -> Fixture {
    let mut fixture = named();
    fixture.set_condition("n", DEADLOCK, Some("True"));
    fixture.fence_for("n", trigger(), NodeFenceStatus::default());
    fixture
}

/// With a drain of five minutes, and a pod of a StatefulSet there.
fn draining() -> Fixture {
    let mut fixture = pending();
    fixture.policy(|policy| policy.unhealthy.drain_seconds = 300);
    fixture.pod("db-0", "n", |_| ());
    fixture
}

#[test]
fn a_condition_of_the_policy_opens_an_incident_exactly_after_its_seconds() {
    let mut fixture = named();
    fixture.advance_to(20);
    fixture.set_condition("n", DEADLOCK, Some("True"));
    fixture.advance_to(79);
    let early = fixture.decide("n");
    assert_eq!((describe(&early), early.requeue_at), (vec![], Some(at(80))));
    fixture.advance_to(80);
    let decision = fixture.decide("n");
    let Some(Step::Open(spec)) = step(&decision) else { panic!("{decision:?}") };
    assert_eq!((spec.trigger.kind, &spec.trigger.condition), (Trigger::Unhealthy, &Some(deadlock())));
    assert_eq!(spec.trigger.reason, "it has reported KernelDeadlock=True for 60 s (unhealthy.conditions: 60 s)");
    assert!(fixture.describe("m").is_empty(), "the others show nothing");
}

#[test]
fn only_conditions_of_the_policy_count_without_a_break_and_within_one_boot() {
    type Change = fn(&mut Fixture);
    let rows: [(&str, bool, Change); 7] = [
        ("another condition", false, |fixture| fixture.set_condition("n", "ReadonlyFilesystem", Some("True"))),
        ("another status", false, |fixture| fixture.set_condition("n", DEADLOCK, Some("Unknown"))),
        ("it went", false, |fixture| fixture.set_condition("n", DEADLOCK, None)),
        ("it went and came again", false, |fixture| {
            fixture.set_condition("n", DEADLOCK, Some("False"));
            fixture.advance(1);
            fixture.set_condition("n", DEADLOCK, Some("True"));
        }),
        ("it booted, and its old condition is still written there", false, |fixture| {
            fixture.change("n", |node| node["status"]["nodeInfo"]["bootID"] = json!(NEXT_BOOT))
        }),
        ("it beats", true, |fixture| {
            fixture.change("n", |node| {
                node["status"]["conditions"][0]["lastHeartbeatTime"] = json!(timestamp(50));
            })
        }),
        ("nothing", true, |_| ()),
    ];
    for (says, begins, change) in rows {
        let mut fixture = named();
        if says != "another condition" {
            fixture.set_condition("n", DEADLOCK, Some("True"));
        }
        fixture.advance_to(50);
        change(&mut fixture);
        fixture.advance_to(70);
        let expected: &[&str] = if begins { &["open by p"] } else { &[] };
        assert_eq!(fixture.describe("n"), expected, "{says}");
    }
}

#[test]
fn a_node_that_flaps_is_unhealthy_and_one_whose_changes_are_old_is_not() {
    let mut fixture = named();
    fixture.policy(|policy| policy.unhealthy.flapping = Some(Flapping { changes: 4, within_seconds: 100 }));
    for ready in ["False", "True", "Unknown"] {
        fixture.advance(10);
        fixture.set_ready("n", ready);
        assert!(fixture.describe("n").is_empty(), "{ready}");
    }
    fixture.advance(10);
    fixture.set_ready("n", "True");
    let decision = fixture.decide("n");
    let Some(Step::Open(spec)) = step(&decision) else { panic!("{decision:?}") };
    assert_eq!(spec.trigger.reason, "its condition Ready changed 4 times within 100 s (unhealthy.flapping.changes: 4)");
    assert_eq!(spec.trigger.condition, None);
    fixture.act("n");
    assert_eq!(fixture.describe("n"), ["off 1 by bmc"]);
    fixture.advance_to(109);
    assert_eq!(fixture.describe("n"), ["off 1 by bmc"]);
    fixture.advance_to(110);
    assert_eq!(fixture.describe("n"), ["write Cancelled"], "the first change is too old");
    let mut fixture = named();
    fixture.policy(|policy| policy.unhealthy.flapping = Some(Flapping { changes: 3, within_seconds: 100 }));
    for ready in ["False", "True"] {
        fixture.set_ready("n", ready);
    }
    fixture.reboot("n", NEXT_BOOT);
    fixture.set_ready("n", "False");
    assert!(fixture.describe("n").is_empty(), "a boot is no flapping");
}

#[test]
fn the_field_when_applies_as_for_a_lost_node() {
    let mut fixture = named();
    fixture.policy(|policy| policy.when = When::Needed);
    fixture.set_condition("n", DEADLOCK, Some("True"));
    fixture.advance_to(60);
    assert_eq!(fixture.describe("n"), ["?FenceNotNeeded"]);
    fixture.pod("db-0", "n", Fixture::terminating);
    assert_eq!(fixture.describe("n"), ["open by p"], "its kubelet does not end it");
}

/// A running kubelet is no objection: the node is switched off because it runs badly, and only status checks of
/// devices become evidence.
#[test]
fn a_reporting_node_is_switched_off_by_policy_and_only_devices_prove_it_off() {
    let mut fixture = pending();
    fixture.pod("db-0", "n", Fixture::terminating);
    assert_eq!(fixture.act("n"), ["off 1 by bmc"]);
    assert!(fixture.proofs.is_empty());
    fixture.advance(30);
    fixture.set_outcome("done");
    assert_eq!(fixture.describe("n"), ["look"], "it reports, and that changes nothing");
    fixture.set_power("On");
    assert_eq!(fixture.describe("n"), ["?RetryBackoff"]);
    fixture.set_power("Off");
    fixture.alive.remove("n");
    assert_eq!(fixture.act("n"), ["prove"]);
    assert_eq!(fixture.describe("n"), ["?NodeStillReady"], "no taint while it is called Ready");
}

#[test]
fn a_cleared_condition_cancels_its_incident_and_another_condition_does_not() {
    let mut fixture = pending();
    fixture.set_condition("n", DEADLOCK, Some("False"));
    assert_eq!(fixture.act("n"), ["write Cancelled"]);
    let (_, status) = fixture.only();
    assert_eq!(status.message, "the node no longer shows what its policy calls unhealthy");
    assert!(fixture.describe("n").is_empty());
    let mut fixture = pending();
    fixture.policy(|policy| policy.unhealthy.conditions.clear());
    assert_eq!(fixture.describe("n"), ["write Cancelled"], "the policy no longer names it");
    let mut fixture = pending();
    fixture.policy(|policy| {
        let (r#type, status) = ("ReadonlyFilesystem".to_owned(), ConditionStatus::True);
        policy.unhealthy.conditions.push(UnhealthyCondition { r#type, status, seconds: 60 });
    });
    fixture.set_condition("n", DEADLOCK, None);
    fixture.set_condition("n", "ReadonlyFilesystem", Some("True"));
    assert_eq!(fixture.describe("n"), ["write Cancelled"], "its policy names both");
    let mut fixture = pending();
    fixture.set_ready("n", "Unknown");
    fixture.set_condition("n", DEADLOCK, Some("True"));
    assert_eq!(fixture.describe("n"), ["off 1 by bmc"], "it stopped reporting, and its condition remains");
}

/// The trigger is checked by a live read before each attempt. An incident that was cancelled for one trigger and
/// reopened for another would be checked for the wrong one, and never proceed.
#[test]
fn bug_a_cancelled_incident_was_reopened_for_another_trigger() {
    let mut fixture = pending();
    fixture.set_condition("n", DEADLOCK, None);
    fixture.act("n");
    fixture.lose_node("n");
    fixture.advance(70);
    assert_eq!(fixture.describe("n"), ["forget"]);
    let mut fixture = named();
    fixture.fence("n", Trigger::Detected, NodeFenceStatus { phase: Phase::Cancelled, ..Default::default() });
    fixture.set_condition("n", DEADLOCK, Some("True"));
    fixture.advance(60);
    assert_eq!(fixture.describe("n"), ["forget"]);
    let mut fixture = pending();
    fixture.edit(|_, status| (status.phase, status.drain) = (Phase::Cancelled, Some(Drain::default())));
    fixture.advance(60);
    assert_eq!(fixture.describe("n"), ["write Pending"], "for the same reason it is");
    assert_eq!(status(step(&fixture.decide("n")).unwrap()).unwrap().drain, None, "and it is drained again");
    fixture.edit(|spec, _| spec.cancelled = true);
    assert_eq!(fixture.describe("n"), ["?FenceOver"], "a person called it off");
}

#[test]
fn an_unhealthy_node_is_cordoned_and_drained_in_rounds_and_then_switched_off() {
    let mut fixture = draining();
    fixture.pod("agent", "n", |pod| pod["metadata"]["ownerReferences"][0]["kind"] = json!("DaemonSet"));
    fixture.pod("static", "n", |pod| {
        pod["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "x" });
    });
    fixture.pod("elsewhere", "m", |_| ());
    assert_eq!(fixture.act("n"), ["drain db-0", "?Drain"]);
    assert!(
        fixture.hold_message("n").contains("1 are left. It is powered off in 300s (unhealthy.drainSeconds)"),
        "{}",
        fixture.hold_message("n")
    );
    fixture.advance(9);
    assert_eq!(fixture.describe("n"), ["?Drain"], "a budget is not asked without end");
    fixture.advance(1);
    assert_eq!(fixture.act("n"), ["drain db-0", "?Drain"]);
    fixture.pod("db-0", "n", Fixture::terminating);
    fixture.advance(10);
    assert_eq!(fixture.act("n"), ["drain ", "?Drain"], "it ends by its own grace");
    fixture.delete(Kind::Pods, "db-0");
    assert_eq!(fixture.act("n"), ["off 1 by bmc"]);
    let (_, status) = fixture.only();
    assert_eq!(status.drain.unwrap().rounds, 3, "what was done is kept: the node is uncordoned at the end");
}

/// A pod that tolerates the cordon was evicted every ten seconds for five minutes.
#[test]
fn bug_a_successor_that_came_back_to_a_drained_node_was_evicted_in_each_round() {
    let mut fixture = draining();
    assert_eq!(fixture.act("n"), ["drain db-0", "?Drain"]);
    fixture.delete(Kind::Pods, "db-0");
    let came = timestamp(fixture.now + 5);
    fixture.pod("db-0-again", "n", |pod| pod["metadata"]["creationTimestamp"] = json!(came));
    fixture.advance(10);
    assert_eq!(fixture.describe("n"), ["off 1 by bmc"]);
}

#[test]
fn a_drain_ends_after_its_time_or_when_the_node_stops_reporting() {
    let mut fixture = draining();
    fixture.act("n");
    // What is left is fenced with the machine.
    fixture.assert_turns(300, &["drain db-0", "?Drain"], &["off 1 by bmc"]);
    let mut fixture = draining();
    fixture.act("n");
    fixture.set_ready("n", "Unknown");
    fixture.set_condition("n", DEADLOCK, Some("True"));
    assert_eq!(fixture.describe("n"), ["off 1 by bmc"], "no kubelet terminates pods");
    let mut fixture = draining();
    fixture.act("n");
    fixture.policy(|policy| policy.mode = PolicyMode::DryRun);
    assert_eq!(fixture.describe("n")[1..], ["?DryRun"], "a dry run drains nothing");
}

#[test]
fn drains_wait_for_other_gates_and_run_one_after_the_other() {
    let mut fixture = draining();
    fixture.policy(|policy| policy.paused = Some("upgrade".to_owned()));
    assert_eq!(fixture.describe("n"), ["write Pending", "?Paused", "?Drain"]);
    let mut fixture = draining();
    fixture.policy(|policy| policy.brakes.max_concurrent = 1);
    fixture.set_condition("m", DEADLOCK, Some("True"));
    fixture.advance(1);
    fixture.fence_for("m", trigger(), NodeFenceStatus::default());
    assert_eq!(fixture.describe("m"), ["write Pending", "?Drain", "?Concurrency"], "n came first");
    assert_eq!(fixture.act("n"), ["drain db-0", "?Drain"]);
    assert_eq!(fixture.describe("m"), ["write Pending", "?Drain", "?Concurrency"], "n is being drained");
    fixture.lose_node("k");
    fixture.advance(60);
    fixture.fence("k", Trigger::Detected, NodeFenceStatus::default());
    assert_eq!(fixture.describe("k"), ["off 1 by bmc"], "a lost node does not wait for one that reports");
}

/// Also after `maxConcurrent` was lowered; drains of finished incidents do not count.
#[test]
fn a_begun_drain_continues_beside_others_and_holds_its_place() {
    let drained = |phase| NodeFenceStatus { phase, drain: Some(Drain::default()), ..Default::default() };
    for (phase, may) in [(Phase::Pending, false), (Phase::Done, true)] {
        let mut fixture = draining();
        fixture.policy(|policy| policy.brakes.max_concurrent = 1);
        fixture.set_condition("m", DEADLOCK, Some("True"));
        // It is held itself, so it is not ahead of the other.
        fixture.exclude_from_remediation("m");
        fixture.fence_for("m", trigger(), drained(phase));
        assert_eq!(fixture.describe("n").contains(&"?Concurrency".to_owned()), !may, "{phase:?}");
        fixture.fence_for("n", trigger(), drained(Phase::Pending));
        assert!(!fixture.describe("n").contains(&"?Concurrency".to_owned()), "it has its turn: {phase:?}");
    }
}

#[test]
fn a_lost_node_goes_before_an_unhealthy_one_whose_incident_is_older() {
    let mut fixture = pending();
    fixture.policy(|policy| policy.brakes.max_concurrent = 1);
    fixture.lose_node("m");
    fixture.advance(60);
    fixture.fence("m", Trigger::Detected, NodeFenceStatus::default());
    assert_eq!(fixture.describe("m"), ["off 1 by bmc"]);
    assert_eq!(fixture.describe("n"), ["write Pending", "?Concurrency"]);
}

/// The trigger of the incident before this one, and whether an attempt was made.
#[test]
fn only_an_attempt_for_the_same_trigger_in_another_boot_is_a_repetition() {
    for (kind, tried, holds) in
        [(Trigger::Unhealthy, true, true), (Trigger::Unhealthy, false, false), (Trigger::Detected, true, false)]
    {
        let mut fixture = named();
        let attempt = Attempt { id: 1, act: DesiredPower::Off, at: timestamp(0), ..Attempt::default() };
        let fenced = Condition::transition(&[], "Fenced", "True", "R", "m", &timestamp(0));
        let (attempts, conditions) = (if tried { vec![attempt] } else { Vec::new() }, vec![fenced]);
        let over = NodeFenceStatus { phase: Phase::Done, attempts, conditions, ..Default::default() };
        fixture.fence("n", kind, over);
        fixture.reboot("n", NEXT_BOOT);
        fixture.set_condition("n", DEADLOCK, Some("True"));
        fixture.fence_for("n", trigger(), NodeFenceStatus::default());
        let held = fixture.describe("n").contains(&"?Repeated".to_owned());
        assert_eq!(held, holds, "{kind:?}, tried: {tried}");
    }
    let mut fixture = pending();
    fixture.act("n");
    fixture.edit(|_, status| status.attempts[0].at = timestamp(0));
    fixture.set_outcome("done");
    fixture.set_power("On");
    fixture.advance(60);
    assert_eq!(fixture.describe("n"), ["off 2 by bmc"], "its own attempt is none");
}

#[test]
fn a_repetition_counts_from_the_last_incident_and_holds_no_requested_one() {
    let mut fixture = named();
    for (boot, at) in [(NEXT_BOOT, -3_600_i64), ("b0000000-0000-4000-8000-000000000003", 0)] {
        let attempt = Attempt { id: 1, act: DesiredPower::Off, at: timestamp(at), ..Attempt::default() };
        let over = NodeFenceStatus { phase: Phase::Done, attempts: vec![attempt], ..Default::default() };
        fixture.fence("n", Trigger::Unhealthy, over);
        fixture.reboot("n", boot);
    }
    fixture.set_condition("n", DEADLOCK, Some("True"));
    fixture.fence_for("n", trigger(), NodeFenceStatus::default());
    assert!(fixture.describe("n").contains(&"?Repeated".to_owned()), "an hour ago, and a moment ago");
    fixture.fence("n", Trigger::Person, NodeFenceStatus::default());
    assert_eq!(fixture.describe("n"), ["off 1 by bmc"]);
}

/// If many nodes show a condition, the condition is more likely wrong than every node broken. Lost nodes are fenced
/// all the same.
#[test]
fn a_condition_shown_by_most_nodes_fences_none_of_them() {
    let mut fixture = pending();
    for name in ["m", "k"] {
        fixture.set_condition(name, DEADLOCK, Some("True"));
    }
    assert_eq!(fixture.describe("n"), ["write Pending", "?LargeOutage"]);
    fixture.lose_node("l");
    fixture.advance(60);
    fixture.fence("l", Trigger::Detected, NodeFenceStatus::default());
    assert_eq!(fixture.describe("l"), ["off 1 by bmc"]);
    let mut fixture = pending();
    fixture.policy(|policy| policy.brakes.max_unhealthy_percent = 100);
    fixture.policy(|policy| policy.brakes.max_unhealthy_zone_percent = 55);
    for name in ["m", "k"] {
        fixture.set_condition(name, DEADLOCK, Some("True"));
    }
    assert_eq!(fixture.describe("n"), ["write Pending", "?ZoneInTrouble"]);
    for name in ["m", "k"] {
        fixture.change(name, |node| node["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!("z"));
    }
    assert_eq!(fixture.describe("n"), ["off 1 by bmc"], "those are of another zone");
    let mut fixture = pending();
    fixture.control_plane(&["n", "m", "k"]);
    fixture.set_condition("m", DEADLOCK, Some("True"));
    assert_eq!(fixture.describe("n"), ["write Pending", "?ControlPlane"], "it is not counted on");
}

/// A kubelet may write its own conditions, its own boot ID and its own readiness at will.
#[test]
fn attack_a_kubelet_that_reports_unhealthy_in_each_boot_is_fenced_once_and_delays_no_lost_node() {
    let mut fixture = pending();
    fixture.policy(|policy| policy.brakes.max_concurrent = 1);
    assert_eq!(fixture.act("n"), ["off 1 by bmc"]);
    fixture.edit(|_, status| {
        status.phase = Phase::Done;
        status.attempts[0].at = timestamp(0);
    });
    for boot in 2..12 {
        fixture.change("n", |node| {
            node["status"]["nodeInfo"]["bootID"] = json!(format!("b0000000-0000-4000-8000-0000000000{boot:02}"))
        });
        fixture.advance(60);
        // The incident of the previous boot is superseded, and another one begins.
        let acts: Vec<String> = (0..3).flat_map(|_| fixture.act("n")).collect();
        assert!(acts.contains(&"?Repeated".to_owned()), "boot {boot}: {acts:?}");
        assert!(!acts.iter().any(|act| act.starts_with("off")), "boot {boot}: {acts:?}");
    }
    let sentence = fixture.hold_message("n");
    assert!(sentence.contains("powering it off and on did not cure it. Repair or replace it"), "{sentence}");
    fixture.lose_node("m");
    fixture.advance(60);
    fixture.fence("m", Trigger::Detected, NodeFenceStatus::default());
    assert_eq!(fixture.act("m"), ["off 1 by bmc"]);
    fixture.advance_to(3_600);
    let last = fixture.describe("n");
    assert_eq!(last, ["write Pending", "?Concurrency"], "an hour later it may be fenced again, in its turn");
}
