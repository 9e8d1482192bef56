//! The part of a drawn plan that concerns people who pause fencing, or delete its policy, while a node is fenced.

use super::plan::{Fault, Plan, SPARE};
use crate::chance::{Chance, Draws};

/// The share of seeds with fencing that have them, in percent.
const PAUSED: u64 = 35;
/// From the loss of a node until a person intervenes: an incident begins a minute after it.
const WITHIN: u64 = 130;

/// Adds them to the plan of some seeds. Uses random numbers of its own: the rest of the plan stays as it was.
pub(super) fn add(plan: &mut Plan) {
    let mut draws = Draws::new(Chance::new(plan.seed).part("pauses", 0));
    if plan.with.fencing.is_none() || !draws.percent(PAUSED) {
        return;
    }
    let losses: Vec<(u64, usize)> = plan.faults.iter().filter_map(super::confirmations::loss).collect();
    for (lost, node) in losses {
        let at = lost + draws.below(WITHIN);
        let Some(left) = plan.heal_at.checked_sub(at + SPARE).filter(|left| *left > 0) else { continue };
        let seconds = (1 + draws.below(120)).min(left);
        let pause = Fault::PauseFencing { node, seconds };
        let fault = if draws.percent(60) { pause } else { Fault::RemovePolicy { node, seconds } };
        plan.faults.push((at, fault));
    }
    plan.faults.sort_by_key(|(at, _)| *at);
}
