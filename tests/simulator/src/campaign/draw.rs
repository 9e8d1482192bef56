//! A plan from a seed.

use super::plan::{Extras, Fault, Manner, Plan, Trouble};
use crate::chance::{Chance, Draws};

/// How long the Lease of a Node that is gone outlives it, by chance: garbage collection follows the owner within
/// seconds, unless kube-controller-manager is away, or some kind cannot be listed.
const COLLECTED_AFTER: [u64; 4] = [1, 2, 4, 240];
/// How long the chaos lasts.
const CHAOS: u64 = 210;

/// Draws the plan of a seed. Each seed switches some kinds of faults on, so that
/// rare combinations are not drowned by common ones.
#[must_use]
pub fn draw(seed: u64) -> Plan {
    let mut draws = Draws::new(Chance::new(seed).part("plan", 0));
    let mut plan = Plan {
        seed,
        servers: usize::try_from(1 + draws.below(2)).unwrap_or(1),
        nodes: usize::try_from(2 + draws.below(3)).unwrap_or(2),
        replicas: usize::try_from(2 + draws.below(2)).unwrap_or(2),
        pods: usize::try_from(2 + draws.below(3)).unwrap_or(2),
        lease_collected_after: COLLECTED_AFTER[usize::try_from(draws.below(4)).unwrap_or(0)],
        heal_at: CHAOS,
        with: Extras::default(),
        faults: Vec::new(),
    };
    enlarge(&mut plan);
    let kinds: Vec<u64> = (0..KINDS).filter(|_| draws.percent(50)).collect();
    // Without the deletion of a Node there is little to collect.
    let lost = draws.index(plan.nodes);
    let at = 20 + draws.below(100);
    match draws.below(3) {
        0 => plan.faults.push((at, Fault::PowerOff { node: lost, back: None })),
        1 => plan.faults.push((at, Fault::CutNode { node: lost, seconds: 30 + draws.below(200) })),
        _ => {}
    }
    plan.faults.push((at + draws.below(60), Fault::DeleteNode { node: lost }));
    for _ in 0..4 + draws.below(16) {
        let Some(kind) = draws.choose(&kinds).copied() else { break };
        let at = 5 + draws.below(CHAOS - 10);
        let fault = fault(kind, &plan, &mut draws);
        plan.faults.push((at, fault));
    }
    super::budgets::add(&mut plan);
    plan.faults.sort_by_key(|(at, _)| *at);
    plan.with = Extras { attached_volumes: draws.percent(25), static_pods: draws.percent(25), ..Extras::default() };
    let mut odd = Draws::new(Chance::new(seed).part("odd", 0));
    (plan.with.drift, plan.with.sidecars) = (odd.percent(30), odd.percent(25));
    super::taints::add(&mut plan);
    super::nodes::add(&mut plan);
    super::fencing::add(&mut plan);
    super::volumes::add(&mut plan);
    super::confirmations::add(&mut plan);
    super::sick::add(&mut plan);
    super::wires::add(&mut plan);
    super::workers::add(&mut plan);
    super::kubelets::add(&mut plan);
    super::pauses::add(&mut plan);
    super::evictions::add(&mut plan);
    super::tenants::add(&mut plan);
    plan
}

/// One world of so many is larger than most: several nodes of each zone.
const LARGE: u64 = 10;

fn enlarge(plan: &mut Plan) {
    let mut draws = Draws::new(Chance::new(plan.seed).part("size", 0));
    if draws.below(LARGE) == 0 {
        plan.nodes = usize::try_from(6 + draws.below(4)).unwrap_or(6);
    }
}

const KINDS: u64 = 27;

fn fault(kind: u64, plan: &Plan, draws: &mut Draws) -> Fault {
    let mut one = |count: usize| draws.index(count);
    let (node, replica, server, pod) = (one(plan.nodes), one(plan.replicas), one(plan.servers), one(plan.pods));
    let percent = 10 + draws.below(91);
    let seconds = 1 + [draws.below(5), draws.below(30), draws.below(120)][usize::try_from(draws.below(3)).unwrap_or(0)];
    let jump = i64::try_from(draws.below(8_000)).unwrap_or(0) - 4_000;
    match kind {
        0 => Fault::CutNode { node, seconds },
        1 => Fault::CutReplica { replica, seconds },
        2 | 3 => Fault::TroubleReplica { replica, trouble: trouble(draws), percent, seconds },
        4 => Fault::TroubleNode { node, trouble: trouble(draws), percent, seconds },
        5 => Fault::CutServer { server, answers_lost: draws.percent(50), seconds },
        6 => Fault::LagServer { server, seconds },
        7 => Fault::RestartServer { server },
        8 => Fault::Forget,
        9 => Fault::SwitchServer { replica },
        10 => Fault::CrashReplica { replica, seconds },
        11 => Fault::PauseReplica { replica, seconds },
        12 => Fault::StopReplica { replica, seconds },
        13 => Fault::JumpReplica { replica, seconds: jump },
        14 => Fault::JumpNode { node, seconds: jump },
        15 => Fault::PowerOff { node, back: draws.percent(60).then(|| 5 + seconds) },
        16 => Fault::Reboot { node },
        17 => Fault::KillKubelet { node, seconds },
        18 => Fault::Freeze { node, seconds },
        19 => Fault::Taint { node },
        20 => Fault::DeletePod { pod },
        21 => Fault::CutLink { node, server, seconds },
        22 => Fault::DeafKubelet { node, seconds },
        23 => Fault::StuckProcesses { node, seconds },
        // What a node asks arrives, and it hears of nothing.
        24 => Fault::TroubleNode { node, trouble: Trouble::LoseAnswer, percent: 100, seconds },
        25 => Fault::FenceByHand { node, manner: manner(draws) },
        _ if draws.percent(50) => Fault::DeleteNode { node },
        _ => Fault::Evict { pod },
    }
}

fn manner(draws: &mut Draws) -> Manner {
    match draws.below(6) {
        0 => Manner::Honest,
        1 => Manner::SaysOffWhileOn,
        2 => Manner::Late(1 + draws.below(60)),
        3 => Manner::Twice(1 + draws.below(60)),
        4 => Manner::DoneButSilent,
        _ => Manner::Dead,
    }
}

fn trouble(draws: &mut Draws) -> Trouble {
    match draws.below(8) {
        0 => Trouble::LoseAnswer,
        1 => Trouble::DropRequest,
        2 => Trouble::Error(409),
        3 => Trouble::Error(429),
        4 => Trouble::Error(500),
        5 => Trouble::Error(503),
        6 => Trouble::Delay(1_000 + draws.below(8_000)),
        _ => Trouble::Delay(100 + draws.below(20_000)),
    }
}
