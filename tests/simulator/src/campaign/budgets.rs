//! The part of a drawn plan that concerns disruption budgets: workloads, changes of them by people, and drains, before
//! the faults end and after.

use super::plan::{Fault, Limit, Plan};
use crate::chance::{Chance, Draws};

/// One seed of so many has budgets: the last of them.
const EACH: u64 = 3;
/// When workloads are created: the machines have booted.
const DEPLOYED_AT: u64 = 17;
/// How long after the end of the faults people act again, when all controllers are healthy.
const WELL_AFTER: u64 = 86;
/// For how long they act then.
const EXAM: u64 = 40;

/// Adds budgets to the plan of some seeds. Uses random numbers of its own: the rest of the plan stays as it was.
pub(super) fn add(plan: &mut Plan) {
    if plan.seed % EACH < EACH - 1 {
        return;
    }
    let mut draws = Draws::new(Chance::new(plan.seed).part("budgets", 0));
    // In some worlds the calculation is not disturbed: there the rules are strictest.
    if draws.percent(40) {
        plan.faults.retain(|(_, fault)| fault.troubles_control().is_none());
    }
    let workloads = usize::try_from(1 + draws.below(2)).unwrap_or(1);
    for workload in 0..workloads {
        let deploy = Fault::Deploy {
            workload,
            replicas: 2 + draws.below(4),
            keeps_names: draws.percent(50),
            start_up: draws.below(8),
            limit: limit(&mut draws),
        };
        plan.faults.push((DEPLOYED_AT, deploy));
    }
    for _ in 0..2 + draws.below(5) {
        let at = 45 + draws.below(plan.heal_at - 50);
        let fault = fault(plan, workloads, &mut draws);
        plan.faults.push((at, fault));
    }
    if draws.percent(30) {
        let at = 60 + draws.below(plan.heal_at - 90);
        plan.faults.extend(scaled_and_late(at, &mut draws));
    }
    if draws.percent(40) {
        let at = 60 + draws.below(plan.heal_at - 90);
        plan.faults.extend(raise_requirement(at));
    }
    for _ in 0..1 + draws.below(3) {
        let at = plan.heal_at + WELL_AFTER + draws.below(EXAM);
        let fault = fault(plan, workloads, &mut draws);
        plan.faults.push((at, fault));
    }
}

/// A workload is scaled while its controller is late: the existing pods do not match the desired ones, and no pod shows
/// that.
fn scaled_and_late(at: u64, draws: &mut Draws) -> [(u64, Fault); 3] {
    [
        (at, Fault::StallWorkloads { seconds: 25 }),
        (at + 1, Fault::Scale { workload: 0, replicas: 1 + draws.below(9) }),
        (at + 7 + draws.below(10), Fault::EvictAtOnce { workload: 0, clients: 4, stale: false }),
    ]
}

/// A budget requires more at the very moment at which clients evict: the numbers of its status are those of its earlier
/// spec.
const fn raise_requirement(at: u64) -> [(u64, Fault); 2] {
    [
        (at, Fault::ChangeBudget { workload: 0, limit: Limit::MaxUnavailable(0) }),
        (at, Fault::EvictAtOnce { workload: 0, clients: 4, stale: false }),
    ]
}

fn limit(draws: &mut Draws) -> Limit {
    match draws.below(4) {
        0 => Limit::MinAvailable(1 + draws.below(3)),
        1 => Limit::MinPercent(10 + draws.below(81)),
        2 => Limit::MaxUnavailable(draws.below(3)),
        _ => Limit::MaxPercent(10 + draws.below(61)),
    }
}

fn fault(plan: &Plan, workloads: usize, draws: &mut Draws) -> Fault {
    let mut one = |count: usize| draws.index(count);
    let (node, workload, pod) = (one(plan.nodes), one(workloads), one(3));
    let clients = 2 + one(8);
    match draws.below(12) {
        0..=3 => Fault::Drain { node, careful: draws.percent(50), seconds: 10 + draws.below(40) },
        4 | 5 => Fault::EvictAtOnce { workload, clients, stale: draws.percent(20) },
        6 | 7 => Fault::Scale { workload, replicas: 1 + draws.below(7) },
        8 | 9 => Fault::ChangeBudget { workload, limit: limit(draws) },
        10 => Fault::StallWorkloads { seconds: 5 + draws.below(40) },
        _ => Fault::Sicken { workload, pod, seconds: 2 + draws.below(30) },
    }
}
