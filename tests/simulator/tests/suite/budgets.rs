//! Disruption budgets in the simulated cluster: drains, races, and gaps of kube-controller-manager's rules. Many seeds
//! of them are in `campaign`.

use pod_safety_simulator::campaign::{Fault, Limit, Plan, report};
use pod_safety_simulator::checker::Invariant;
use pod_safety_simulator::world::{Outcome, run};

use crate::runs::{self, KCM, well};

/// A workload of `replicas` with a budget, and its faults.
fn plan(replicas: u64, limit: Limit, faults: Vec<(u64, Fault)>) -> Plan {
    let deploy = Fault::Deploy { workload: 0, replicas, keeps_names: true, start_up: 2, limit };
    let faults = [(17, deploy)].into_iter().chain(faults).collect();
    Plan { servers: 1, pods: 1, lease_collected_after: 1, heal_at: 160, ..runs::plan(faults) }
}

#[track_caller]
fn happened(outcome: &Outcome, name: &str) {
    assert!(outcome.probes.contains_key(name), "{name}: {:?}", outcome.probes);
}

#[test]
fn a_drain_completes_while_the_budget_counts_its_pods() {
    let drain = |node| Fault::Drain { node, careful: true, seconds: 50 };
    let outcome = well(&plan(6, Limit::MaxUnavailable(1), vec![(40, drain(0)), (95, drain(1)), (150, drain(2))]));
    for wanted in [
        "an eviction was let through",
        "an eviction was refused: the budget is exhausted",
        "a drain came to its end",
        "a budget came to rest",
    ] {
        happened(&outcome, wanted);
    }
}

#[test]
fn many_clients_at_once_get_no_more_than_the_budget_allows() {
    let burst = Fault::EvictAtOnce { workload: 0, clients: 20, stale: false };
    let outcome = well(&plan(10, Limit::MinPercent(55), vec![(60, burst.clone()), (61, burst)]));
    happened(&outcome, "an eviction was let through");
    happened(&outcome, "an eviction was refused: the budget is exhausted");
}

#[test]
fn a_disruption_counted_for_a_failed_eviction_is_restored_after_two_minutes() {
    let burst = |stale| Fault::EvictAtOnce { workload: 0, clients: 3, stale };
    let outcome = well(&plan(3, Limit::MaxUnavailable(1), vec![(40, burst(true)), (230, burst(false))]));
    happened(&outcome, "an eviction was counted and refused");
    happened(&outcome, "an entry went, and its pod did not");
    happened(&outcome, "an eviction was let through");
}

/// The garbage collector of objects owned by Nodes once treated them as ownerless.
#[test]
fn pods_of_a_workload_stay_without_faults() {
    let outcome = well(&plan(3, Limit::MaxUnavailable(1), Vec::new()));
    let ended = |what: &str| what.starts_with("process of default/shop-") && what.contains(" ends");
    let ended: Vec<_> = outcome.timeline.iter().filter(|(_, what)| ended(what)).collect();
    assert!(ended.is_empty(), "{ended:?}");
    assert!(outcome.timeline.iter().any(|(_, what)| what.starts_with("process of default/shop-0-2")));
}

/// A node monitor and a kubelet without a Lease once contradicted each other every second, and the budget followed
/// them.
#[test]
fn pods_of_a_running_kubelet_whose_node_was_deleted_stay_ready() {
    well(&plan(3, Limit::MaxUnavailable(1), vec![(40, Fault::DeleteNode { node: 0 })]));
}

#[test]
fn scaling_triggers_no_sync_in_kcm_and_one_in_pod_safety() {
    let late = vec![
        (90, Fault::StallWorkloads { seconds: 30 }),
        (91, Fault::Scale { workload: 0, replicas: 5 }),
        (105, Fault::EvictAtOnce { workload: 0, clients: 1, stale: false }),
    ];
    let plan = plan(3, Limit::MaxUnavailable(1), late);
    let kcm = run(&plan, KCM);
    assert!(kcm.broke(Invariant::Budget), "{}", report(&plan, &kcm));
    well(&plan);
}
