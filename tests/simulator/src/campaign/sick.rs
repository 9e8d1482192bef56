//! The part of a drawn plan that concerns nodes whose kubelets report that they are not ready, and go on renewing.

use super::fencing::Malfunction;
use super::plan::{Ailment, BEGIN, Fault, Plan, SPARE};
use crate::chance::{Chance, Draws};

/// The share of seeds that have them, in percent.
const SICK: u64 = 30;
/// Where nodes are fenced because they are not ready: the share of them for which a device falsely reports off, in
/// percent.
const LIED_ABOUT: u64 = 40;
/// How much longer the device reports it: the status checks come after the ailment has lasted.
const LIES_ON: u64 = 60;

/// Adds them to the plan of some seeds. Uses random numbers of its own: the rest of the plan stays as it was.
pub(super) fn add(plan: &mut Plan) {
    let mut draws = Draws::new(Chance::new(plan.seed).part("sick", 0));
    if !draws.percent(SICK) {
        return;
    }
    for number in 0..1 + draws.below(2) {
        let node = draws.index(plan.nodes);
        let at = BEGIN + draws.below(plan.heal_at - BEGIN - SPARE);
        let seconds = 20 + draws.below(200);
        let ailment = if draws.percent(60) { Ailment::Runtime } else { Ailment::Network };
        let heals = draws.percent(25).then(|| (at + draws.below(seconds)).min(plan.heal_at - SPARE));
        plan.faults.push((at, Fault::SickenNode { node, ailment, seconds }));
        let lie = lie(plan, number, node, seconds).map(|lie| (at, lie));
        plan.faults.extend(lie);
        plan.faults.extend(heals.map(|at| (at, Fault::HealNode { node })));
    }
    plan.faults.sort_by_key(|(at, _)| *at);
}

/// A device that reports off for a machine whose kubelet renews: only the renewals show that it does not act. Also
/// drawn with random numbers of its own.
fn lie(plan: &Plan, number: u64, node: usize, seconds: u64) -> Option<Fault> {
    plan.with.fencing.and_then(|fencing| fencing.not_ready_seconds)?;
    let lies = Draws::new(Chance::new(plan.seed).part("lies", number)).percent(LIED_ABOUT);
    let seconds = seconds + LIES_ON;
    lies.then_some(Fault::Malfunction { node, how: Malfunction::StaleOff, seconds })
}
