//! The part of a drawn plan that concerns agents: in some of the worlds in which nodes are fenced, each node has an
//! agent with a watchdog, alone or beside its devices. Agents are killed, freeze, and cannot end processes that hang.

use super::fencing::{Agents, Fencing};
use super::plan::{Fault, Plan};
use crate::chance::{Chance, Draws};

/// The share of fenced worlds without a provider, in percent.
const SHARE: u64 = 40;
/// A promise is fulfilled after forty seconds, and a reset takes another minute.
const HEAL: u64 = 480;

/// Changes how nodes are fenced, and which faults happen. Uses random numbers of its own.
pub(super) fn add(plan: &mut Plan) {
    let mut draws = Draws::new(Chance::new(plan.seed).part("agents", 0));
    let here = |fencing: &Fencing| fencing.behind_seconds.is_none();
    let Some(fencing) = plan.with.fencing.filter(here).filter(|_| draws.percent(SHARE)) else { return };
    let agents = if draws.percent(50) { Agents::Alone } else { Agents::Second };
    plan.with.fencing = Some(Fencing { agents: Some(agents), ..fencing });
    plan.with.static_pods = false;
    plan.heal_at = HEAL;
    let losses: Vec<_> = plan.faults.iter().filter_map(loss).collect();
    for (at, node) in losses {
        let around = |draws: &mut Draws| (at + draws.below(60)).saturating_sub(10);
        if draws.percent(40) {
            plan.faults.push((around(&mut draws), Fault::PauseAgent { node, seconds: 1 + draws.below(120) }));
        }
        if draws.percent(30) {
            plan.faults.push((around(&mut draws), Fault::KillAgent { node, seconds: draws.below(30) }));
        }
        if draws.percent(20) {
            plan.faults.push((around(&mut draws), Fault::StuckProcesses { node, seconds: 20 + draws.below(100) }));
        }
    }
    let node = draws.index(plan.nodes);
    let one = match draws.below(3) {
        0 => Fault::PauseAgent { node, seconds: 1 + draws.below(60) },
        1 => Fault::KillAgent { node, seconds: draws.below(30) },
        _ => Fault::CutNode { node, seconds: 3 + draws.below(60) },
    };
    plan.faults.push((20 + draws.below(200), one));
    if draws.percent(40) {
        overdue(plan, &mut draws);
    }
}

/// A pod is deleted on a node whose processes do not end, or whose runtime does not report the end.
fn overdue(plan: &mut Plan, draws: &mut Draws) {
    let (at, seconds) = (20 + draws.below(100), 120 + draws.below(120));
    plan.faults.extend((0..plan.nodes).map(|node| (at, Fault::StuckProcesses { node, seconds })));
    let pod = draws.index(plan.pods);
    plan.faults.push((at + 5, Fault::DeletePod { pod }));
}

/// The loss of a node on which processes may run.
fn loss((at, fault): &(u64, Fault)) -> Option<(u64, usize)> {
    match fault {
        Fault::CutNode { node, seconds } | Fault::Freeze { node, seconds } | Fault::KillKubelet { node, seconds }
            if *seconds > 60 =>
        {
            Some((*at, *node))
        }
        _ => None,
    }
}
