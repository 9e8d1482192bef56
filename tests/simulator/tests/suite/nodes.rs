//! Nodes that are lost, and nodes that only seem lost, in the simulated cluster: pod-safety's node lifecycle in place
//! of the world's, and beside it. Many seeds of them are in `campaign`.

use pod_safety_simulator::campaign::{Extras, Fault, Keeper, Plan, Plant, Trouble, report};
use pod_safety_simulator::world::{Outcome, Subject, run};

use crate::runs::{self, seconds_of_lines, well};
use crate::shipped;

/// When faults begin, in seconds.
const BEGIN: u64 = 40;
const GRACE: u64 = 50;
/// A kubelet renewed its Lease up to so many seconds before it was cut off, or will after.
const RENEWS: u64 = 10;
/// The time that reads and writes take.
const SOON: u64 = 2;
/// A kubelet that is cut off waits for answers, and then a while.
const BACK: u64 = 25;

fn plan(faults: Vec<(u64, Fault)>) -> Plan {
    let with = Extras { taints: true, nodes: Keeper::Ours, ..Extras::default() };
    Plan { with, ..runs::plan(faults) }
}

fn guarded(faults: Vec<(u64, Fault)>) -> Plan {
    Plan { with: Extras { nodes: Keeper::Guarded, ..Extras::default() }, ..plan(faults) }
}

const fn cut(node: usize, seconds: u64) -> (u64, Fault) {
    (BEGIN, Fault::CutNode { node, seconds })
}

const CALLED: &str = "is marked Unknown by replica";
const GIVEN_UP: &[&str] = &["replica", "taints node-0 with unreachable:NoExecute"];
const FREED: &[&str] = &["replica", "removes unreachable:NoExecute from node-0"];

#[track_caller]
fn once(outcome: &Outcome, words: &[&str], when: std::ops::RangeInclusive<u64>) -> u64 {
    let at = seconds_of_lines(outcome, words);
    assert!(at.len() == 1 && when.contains(&at[0]), "{words:?} at {at:?}: {:#?}", outcome.timeline);
    at[0]
}

#[track_caller]
fn check_no_node_is_lost(plan: &Plan) {
    let outcome = well(plan);
    let called = seconds_of_lines(&outcome, &[CALLED]);
    assert!(called.is_empty(), "{called:?}: {}", report(plan, &outcome));
}

#[test]
fn a_lost_node_is_marked_in_time_and_unmarked_when_its_kubelet_reports() {
    let outcome = well(&plan(vec![cut(0, 150)]));
    let due = BEGIN + GRACE;
    let called = once(&outcome, &["node-0", CALLED], due - RENEWS..=due + SOON);
    once(&outcome, &["replica", "taints node-0 with unreachable:NoSchedule"], called..=called + SOON);
    once(&outcome, GIVEN_UP, called..=called + SOON);
    let back = BEGIN + 150;
    once(&outcome, FREED, back..=back + BACK);
    assert_eq!(seconds_of_lines(&outcome, &[CALLED]).len(), 1, "no other node is lost");
}

#[test]
fn a_new_leader_keeps_taints_and_does_not_restart_deadlines() {
    let crash = |at, replica| (at, Fault::CrashReplica { replica, seconds: 5 });
    let changes = plan(vec![cut(0, 200), crash(60, 0), crash(120, 1), crash(160, 0), crash(200, 1)]);
    let outcome = well(&changes);
    let due = BEGIN + GRACE;
    // The time may be over while there is no leader.
    let called = once(&outcome, &["node-0", CALLED], due - RENEWS..=due + 5);
    once(&outcome, GIVEN_UP, called..=called + SOON);
    once(&outcome, FREED, BEGIN + 200..=BEGIN + 200 + 40);
    assert!(outcome.probes.contains_key("the leader changed while a node was silent"), "{:?}", outcome.probes);
}

#[test]
fn a_process_that_receives_no_report_marks_no_node_lost() {
    for seconds in [40, 80, 130] {
        let of_both =
            |fault: fn(usize, u64) -> Fault| plan((0..2).map(|replica| (BEGIN, fault(replica, seconds))).collect());
        check_no_node_is_lost(&of_both(|replica, seconds| Fault::CutReplica { replica, seconds }));
        check_no_node_is_lost(&of_both(|replica, seconds| Fault::PauseReplica { replica, seconds }));
        check_no_node_is_lost(&of_both(|server, seconds| Fault::LagServer { server, seconds }));
    }
}

/// During some of them comes the bookmark that an API server sends each minute, even without a connection to etcd: it
/// was taken as a sign that the API server is reachable, and kubelets that were cut off from it for as long were marked
/// as lost.
#[test]
fn bug_an_outage_of_all_api_servers_marks_no_node_lost() {
    for seed in 0..12 {
        let seconds = 45 + 7 * seed;
        let out = |server| (BEGIN + seed, Fault::CutServer { server, answers_lost: false, seconds });
        check_no_node_is_lost(&Plan { seed, ..plan((0..2).map(out).collect()) });
    }
}

#[test]
fn wrong_clocks_mark_no_node_lost() {
    for by in [-86_400, -600, -51, 51, 600, 86_400] {
        let jumps = |at| (at, Fault::JumpNode { node: 0, seconds: by });
        check_no_node_is_lost(&plan(vec![jumps(BEGIN), jumps(BEGIN + 25)]));
        let ours = |replica| (BEGIN, Fault::JumpReplica { replica, seconds: by });
        check_no_node_is_lost(&plan((0..2).map(ours).collect()));
    }
}

#[test]
fn slow_heartbeats_mark_no_node_lost() {
    let trouble = Trouble::Delay(9_000);
    check_no_node_is_lost(&plan(vec![(BEGIN, Fault::TroubleNode { node: 0, trouble, percent: 100, seconds: 150 })]));
    // Each time it is back within its grace.
    let flaps = (0..5).map(|time| (BEGIN + 35 * time, Fault::CutNode { node: 0, seconds: 15 }));
    check_no_node_is_lost(&plan(flaps.collect()));
}

/// The first node that came back ended the state "all lost", and the others were tainted in the seconds before they
/// came back.
#[test]
fn bug_when_all_nodes_are_lost_none_is_tainted_noexecute_before_or_after() {
    for seed in 0..6 {
        let outcome = well(&Plan { seed, ..plan((0..3).map(|node| cut(node, 150)).collect()) });
        assert_eq!(seconds_of_lines(&outcome, &[CALLED]).len(), 3);
        let ended = seconds_of_lines(&outcome, &["is deleted because of a taint"]);
        assert!(ended.is_empty(), "{:#?}", outcome.timeline);
    }
}

/// They are lost one after the other: the first is tainted as if it were alone, and untainted when all are lost.
#[test]
fn a_node_tainted_noexecute_is_untainted_when_every_node_is_lost() {
    let apart = |node: usize| (BEGIN + 30 * node as u64, Fault::CutNode { node, seconds: 200 });
    let outcome = well(&Plan { heal_at: 330, ..plan((0..3).map(apart).collect()) });
    let freed = seconds_of_lines(&outcome, &["removes unreachable:NoExecute", ": every node is lost"]);
    assert_eq!(freed.len(), 2, "{:#?}", outcome.timeline);
}

#[test]
fn nodes_of_a_zone_are_tainted_noexecute_one_after_the_other() {
    // node-0, node-3 and node-6 are a zone, and so are the three others.
    let lost = Plan { nodes: 9, ..plan([0, 3, 6].map(|node| cut(node, 300)).to_vec()) };
    let outcome = well(&Plan { heal_at: 360, ..lost });
    let given_up = seconds_of_lines(&outcome, &["replica", "unreachable:NoExecute", "taints"]);
    let apart: Vec<u64> = given_up.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(given_up.len() == 3 && apart.iter().all(|apart| (10..=13).contains(apart)), "{given_up:?}");
}

#[test]
fn beside_kcm_an_unreachable_node_is_only_suspected() {
    let outcome = well(&guarded(vec![cut(0, 150)]));
    let due = BEGIN + 25;
    once(&outcome, &["replica", "taints node-0 with suspect:NoSchedule"], due - RENEWS..=due + SOON);
    // Until its own controller sets Unknown.
    once(&outcome, &["replica", "removes suspect:NoSchedule from node-0"], BEGIN + 40..=BEGIN + GRACE + 8);
    assert!(seconds_of_lines(&outcome, &[CALLED]).is_empty());
    let short = well(&guarded(vec![cut(0, 32)]));
    once(&short, &["replica", "removes suspect:NoSchedule from node-0"], BEGIN + 32..=BEGIN + 32 + BACK);
}

#[test]
fn each_planted_bug_breaks_its_rule_in_a_plan_that_breaks_none_without_it() {
    let crash = |at, replica| (at, Fault::CrashReplica { replica, seconds: 5 });
    let out = |server| (BEGIN + 5, Fault::CutServer { server, answers_lost: false, seconds: 80 });
    let plans = [
        (Plant::TrustsNodeClocks, vec![(BEGIN, Fault::JumpNode { node: 0, seconds: -600 })]),
        (Plant::RetaintsWhenLeading, vec![cut(0, 200), crash(120, 0), crash(160, 1)]),
        (Plant::NeverMaybeUs, (0..2).map(out).collect()),
        (Plant::LiftsUnread, vec![cut(0, 150)]),
    ];
    for (plant, faults) in plans {
        let plan = Plan { seed: 5, ..plan(faults) };
        well(&plan);
        let outcome = run(&plan, Subject::Shipped(shipped::launch, Some(plant)));
        let rule = Plant::ALL.into_iter().find(|(known, _)| *known == plant).map(|(_, rule)| rule);
        let caught = outcome.violations.iter().any(|violation| Some(violation.invariant) == rule);
        assert!(caught, "{plant:?}: {}", report(&plan, &outcome));
    }
}
