//! Requests to evict pods in the simulated cluster: turns of responders, withdrawals, lost nodes, and the feature gate. Many
//! seeds of them are in `campaign`.

use std::collections::BTreeMap;

use pod_safety_simulator::campaign::{
    Behavior, Evictions, Extras, Fault, Fencing, Keeper, Limit, Plan, Trouble, Withdrawal, draw, report,
};
use pod_safety_simulator::world::{Outcome, run};

use crate::asked::number;
use crate::runs::{self, seconds_of_lines, seen, well};
use crate::shipped::SHIPPED;

/// A small world whose pods name these responders, and what happens in it.
fn plan(evictions: Evictions, faults: Vec<(u64, Fault)>) -> Plan {
    let with = Extras { evictions: Some(evictions), no_other_pods: true, ..Extras::default() };
    Plan { servers: 1, pods: 3, lease_collected_after: 1, heal_at: 160, with, ..runs::plan(faults) }
}

fn first(first: Behavior) -> Evictions {
    Evictions { first, ..Evictions::default() }
}

const fn request(pod: usize, requester: usize) -> Fault {
    Fault::RequestEviction { pod, requester, stale: false }
}

const fn withdraw(requester: usize, how: Withdrawal) -> Fault {
    Fault::WithdrawRequest { requester, how }
}

#[track_caller]
fn happened(outcome: &Outcome, probes: &[&str]) {
    for probe in probes {
        assert!(seen(outcome, probe) > 0, "{probe}: {:?}", outcome.probes);
    }
}

/// Each behavior of the first responder, and how the eviction ends.
#[test]
fn every_responder_has_its_turn_and_the_evictor_has_the_last() {
    for (behavior, probes) in [
        (Behavior::Moves, ["a responder evicted its pod", "evicted: PodDeleted"]),
        (Behavior::HandsOver, ["pod-safety evicted a pod by request", "evicted: PodDeleted"]),
        (Behavior::Declines, ["pod-safety evicted a pod by request", "evicted: PodDeleted"]),
        (Behavior::Lies, ["a responder reported a pod gone that was there", "evicted: PodDeleted"]),
        (Behavior::Crashes, ["pod-safety evicted a pod by request", "evicted: PodDeleted"]),
    ] {
        let evictions = Evictions { second: Some(Behavior::Declines), ..first(behavior) };
        let outcome = well(&plan(evictions, vec![(40, request(0, 0)), (45, request(1, 1))]));
        happened(&outcome, &probes);
    }
}

#[test]
fn a_responder_that_never_reports_loses_its_turn_after_twenty_minutes() {
    let plan = plan(first(Behavior::Stalls), vec![(40, request(0, 0))]);
    let outcome = well(&plan);
    happened(&outcome, &["a turn ended: Interrupted", "a responder that never reports was waited for"]);
    let turns = [
        seconds_of_lines(&outcome, &["turn of example.com/first"]),
        seconds_of_lines(&outcome, &["turn of imperative"]),
    ];
    let waited = turns[1].first().zip(turns[0].first()).map(|(evictor, first)| evictor - first);
    assert!(waited.is_some_and(|seconds| (1_199..1_215).contains(&seconds)), "{}", report(&plan, &outcome));
}

#[test]
fn a_request_is_withdrawn_deleted_and_made_again() {
    for (how, probe) in [
        (Withdrawal::Properly, "an Eviction failed: CanceledDueToNoRequesters"),
        (Withdrawal::Delete, "an Eviction was created"),
        (Withdrawal::Again, "evicted: PodDeleted"),
    ] {
        let faults = vec![(40, request(0, 0)), (44, withdraw(0, how)), (100, request(0, 0))];
        happened(&well(&plan(first(Behavior::HandsOver), faults)), &[probe, "evicted: PodDeleted"]);
    }
    // While another client requests the same, nothing is canceled.
    let faults = vec![(40, request(0, 0)), (41, request(0, 1)), (44, withdraw(0, Withdrawal::Properly))];
    let outcome = well(&plan(first(Behavior::HandsOver), faults));
    happened(&outcome, &["evicted: PodDeleted"]);
    assert_eq!(seen(&outcome, "an Eviction failed: CanceledDueToNoRequesters"), 0);
}

#[test]
fn a_request_for_a_gang_or_for_a_uid_that_no_pod_has_is_invalid() {
    let mut plan = plan(
        first(Behavior::Declines),
        vec![(40, Fault::RequestEviction { pod: 0, requester: 0, stale: true }), (45, request(3, 1))],
    );
    plan.with.no_other_pods = false;
    let outcome = well(&plan);
    assert_eq!(seen(&outcome, "a request failed: EvictionInvalid"), 2, "{}", report(&plan, &outcome));
    assert_eq!(seen(&outcome, "an Eviction was created"), 0);
}

/// The evictor wakes when the budget allows a disruption, long before its back-off is over.
#[test]
fn the_evictor_waits_for_the_budget_and_evicts_when_that_allows_it() {
    let limit = Limit::MaxUnavailable(0);
    let deploy = Fault::Deploy { workload: 0, replicas: 2, keeps_names: true, start_up: 2, limit };
    let opens = Fault::ChangeBudget { workload: 0, limit: Limit::MaxUnavailable(1) };
    let faults = vec![(18, deploy), (40, request(3, 0)), (150, opens)];
    let outcome = well(&plan(first(Behavior::Declines), faults));
    happened(&outcome, &["an eviction was refused: the budget is exhausted", "an eviction was let through"]);
    let ends = seconds_of_lines(&outcome, &["the eviction of shop-0-0 ends: PodDeleted"]);
    assert!(ends.first().is_some_and(|at| (150..185).contains(at)), "{ends:?}");
}

/// Both processes have the same wrong clock: the evictor reports by the clock of the API server, and neither its retries nor the
/// other responder's turn wait for its own.
#[test]
fn bug_a_clock_that_jumped_stopped_the_evictor() {
    for (at, seconds) in [(5, -3_600), (60, -3_600), (5, 3_600), (60, 3_600), (60, -31)] {
        let limit = Limit::MaxUnavailable(0);
        let deploy = Fault::Deploy { workload: 0, replicas: 2, keeps_names: true, start_up: 2, limit };
        let opens = Fault::ChangeBudget { workload: 0, limit: Limit::MaxUnavailable(1) };
        let jumps = [0, 1].map(|replica| (at, Fault::JumpReplica { replica, seconds }));
        let mut faults = vec![(18, deploy), (40, request(3, 0)), (1_400, opens)];
        faults.extend(jumps);
        faults.sort_by_key(|(at, _)| *at);
        let plan = Plan { heal_at: 1_450, ..plan(first(Behavior::Declines), faults) };
        let outcome = well(&plan);
        let ends = seconds_of_lines(&outcome, &["the eviction of shop-0-0 ends: PodDeleted"]);
        assert!(ends.first().is_some_and(|at| (1_400..1_435).contains(at)), "{seconds}: {}", report(&plan, &outcome));
        assert_eq!(seen(&outcome, "a turn ended: Interrupted"), 0, "{seconds}: {}", report(&plan, &outcome));
    }
}

/// Nothing ends but by proof, and the responders of the application are not waited for.
#[test]
fn requests_for_pods_of_a_lost_node_end_with_proof() {
    let evictions = Evictions { lost_node: true, ..first(Behavior::Stalls) };
    let fencing = Fencing { always: true, tells: true, power_on: true, ..Fencing::default() };
    let faults = vec![
        (45, Fault::CutNode { node: 0, seconds: 200 }),
        // Its node does not report any more.
        (100, request(0, 0)),
        (100, request(1, 1)),
        (100, request(2, 2)),
        (100, request(3, 3)),
        (100, request(4, 4)),
    ];
    let mut plan = Plan { pods: 5, ..plan(evictions, faults) };
    plan.with = Extras { taints: true, nodes: Keeper::Ours, fencing: Some(fencing), ..plan.with };
    plan.heal_at = 360;
    let outcome = well(&plan);
    let proved = seconds_of_lines(&outcome, &["default/data-", "removed by replica-", "on evidence"]);
    let ended = seconds_of_lines(&outcome, &["the eviction of data-", "ends: PodDeleted"]);
    let follows = |at: &u64| ended.iter().any(|end| (*at..at + 15).contains(end));
    assert!(!proved.is_empty() && proved.iter().all(follows), "{}", report(&plan, &outcome));
}

#[test]
fn requests_outlive_leaders_lost_answers_and_the_gate() {
    let requests = |at: u64| (0..3).map(move |pod| (at, request(pod, pod)));
    let lost = |replica| Fault::TroubleReplica { replica, trouble: Trouble::LoseAnswer, percent: 60, seconds: 40 };
    let troubles: [Vec<(u64, Fault)>; 4] = [
        vec![
            (42, Fault::CrashReplica { replica: 0, seconds: 10 }),
            (60, Fault::CrashReplica { replica: 1, seconds: 10 }),
        ],
        vec![(41, lost(0)), (41, lost(1))],
        vec![(41, Fault::PauseReplica { replica: 0, seconds: 30 }), (41, Fault::LagServer { server: 0, seconds: 20 })],
        vec![(43, Fault::SwitchGateOff { seconds: 60 })],
    ];
    for trouble in troubles {
        let faults = requests(40).chain(trouble.clone()).collect();
        let plan = plan(first(Behavior::HandsOver), faults);
        let outcome = well(&plan);
        assert!(seen(&outcome, "evicted: PodDeleted") >= 3, "{trouble:?}: {}", report(&plan, &outcome));
    }
}

/// `POD_SAFETY_EVICTION_SEEDS=N` and `POD_SAFETY_EVICTION_FIRST=S`: so many seeds that have requests, from the S-th. By default
/// some that `campaign` does not run.
#[test]
fn no_seed_with_requests_breaks_a_rule() {
    let seeds = number("POD_SAFETY_EVICTION_SEEDS").unwrap_or(25);
    let from = number("POD_SAFETY_EVICTION_FIRST").unwrap_or(1_000);
    let mut probes: BTreeMap<String, u64> = BTreeMap::new();
    let mut broken = Vec::new();
    for seed in (from..from + seeds).map(|number| 4 * number + 3) {
        let outcome = run(&draw(seed), SHIPPED);
        for (probe, count) in &outcome.probes {
            *probes.entry(probe.clone()).or_default() += count;
        }
        for one in &outcome.violations {
            println!("{seed} {:?} {}: {}", one.at, one.invariant, one.what);
        }
        broken.extend((!outcome.violations.is_empty()).then_some(seed));
    }
    println!("{probes:#?}");
    assert!(broken.is_empty(), "seeds that broke a rule: {broken:?}");
}
