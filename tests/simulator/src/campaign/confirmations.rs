//! The part of a drawn plan that is about people who confirm that a node is down: in time, for too short, and wrongly.

use super::fencing::Malfunction;
use super::plan::{Fault, Plan};
use crate::chance::{Chance, Draws};

/// So many of a hundred seeds in which nodes are fenced have them.
const CONFIRMED: u64 = 50;
/// From the loss until a person looks at it.
const LOOKS_AFTER: u64 = 90;
/// For how long a person's word holds at least (`FenceEvidence.spec.validSeconds`), and how much longer at most.
const VALID: u64 = 60;
const VALID_LONGER: u64 = 240;
/// From the loss to the evidence of devices, about: what fails then is not asked in vain before.
const FENCED_AFTER: u64 = 85;
/// So long before the healing nothing begins any more.
const SPARE: u64 = 5;

/// Adds them to the plan of some seeds. Drawn from a chance of their own: the rest of the plan is what it was.
pub(super) fn add(plan: &mut Plan) {
    let mut draws = Draws::new(Chance::new(plan.seed).part("confirmations", 0));
    if plan.with.fencing.is_none() && plan.with.guarded_volumes.is_none() || !draws.percent(CONFIRMED) {
        return;
    }
    let losses: Vec<(u64, usize)> = plan.faults.iter().filter_map(loss).collect();
    for (at, node) in losses {
        let device_is_lost = plan.with.fencing.is_some() && draws.percent(40);
        let looks = at + draws.below(LOOKS_AFTER) + if device_is_lost { FENCED_AFTER } else { 0 };
        let valid = VALID + draws.below(VALID_LONGER);
        plan.faults.push((looks, Fault::Confirm { node, wrong: draws.percent(20), valid }));
        if device_is_lost {
            // When it has proved the node off: then the person's word alone is left.
            let (how, from) = match draws.below(4) {
                0 => (Malfunction::Unreachable, at + FENCED_AFTER + draws.below(40)),
                1 => (Malfunction::Silent, at + FENCED_AFTER + draws.below(40)),
                _ => (Malfunction::DiesWithIt, at),
            };
            plan.faults.push((from, Fault::Malfunction { node, how, seconds: 100 + draws.below(200) }));
        }
        // Pods that are deleted later rest on what was said before.
        for _ in 0..draws.below(3) {
            let pod = usize::try_from(draws.below(plan.pods as u64)).unwrap_or(0);
            plan.faults.push((looks + draws.below(2 * valid), Fault::DeletePod { pod }));
        }
    }
    let last = plan.heal_at - SPARE;
    plan.faults.iter_mut().for_each(|(at, _)| *at = (*at).min(last));
    plan.faults.sort_by_key(|(at, _)| *at);
}

pub(super) fn loss((at, fault): &(u64, Fault)) -> Option<(u64, usize)> {
    match fault {
        Fault::PowerOff { node, .. }
        | Fault::CutNode { node, .. }
        | Fault::Freeze { node, .. }
        | Fault::KillKubelet { node, .. } => Some((*at, *node)),
        _ => None,
    }
}
