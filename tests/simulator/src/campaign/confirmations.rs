//! The part of a drawn plan that concerns people who confirm that a node is down: in time, for too short a time, and
//! wrongly.

use super::fencing::Malfunction;
use super::plan::{Fault, Plan};
use crate::chance::{Chance, Draws};

/// The share of seeds with fencing that have them, in percent.
const CONFIRMED: u64 = 50;
/// From the loss until a person checks the node.
const LOOKS_AFTER: u64 = 90;
/// The least time for which a confirmation is valid (`FenceEvidence.spec.validSeconds`), and the most that is added.
const VALID: u64 = 60;
const VALID_LONGER: u64 = 240;
/// The time from the loss to the evidence of devices, roughly: a device that fails from then on has answered before.
const FENCED_AFTER: u64 = 85;

/// Adds them to the plan of some seeds. Uses random numbers of its own: the rest of the plan stays as it was.
pub(super) fn add(plan: &mut Plan) {
    let mut draws = Draws::new(Chance::new(plan.seed).part("confirmations", 0));
    if plan.with.fencing.is_none() && plan.with.guarded_volumes.is_none() || !draws.percent(CONFIRMED) {
        return;
    }
    let losses: Vec<(u64, usize)> = plan.faults.iter().filter_map(loss).collect();
    for (at, node) in losses {
        let device_is_lost = plan.with.fencing.is_some() && draws.percent(40);
        let checked_at = at + draws.below(LOOKS_AFTER) + if device_is_lost { FENCED_AFTER } else { 0 };
        let valid = VALID + draws.below(VALID_LONGER);
        plan.faults.push((checked_at, Fault::Confirm { node, wrong: draws.percent(20), valid }));
        if device_is_lost {
            // When the device has proved the node off: then only the confirmation remains.
            let (how, from) = match draws.below(4) {
                0 => (Malfunction::Unreachable, at + FENCED_AFTER + draws.below(40)),
                1 => (Malfunction::Silent, at + FENCED_AFTER + draws.below(40)),
                _ => (Malfunction::DiesWithIt, at),
            };
            plan.faults.push((from, Fault::Malfunction { node, how, seconds: 100 + draws.below(200) }));
        }
        // Pods that are deleted later rest on the earlier confirmation.
        for _ in 0..draws.below(3) {
            let pod = draws.index(plan.pods);
            plan.faults.push((checked_at + draws.below(2 * valid), Fault::DeletePod { pod }));
        }
    }
    plan.end_faults_in_time();
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
