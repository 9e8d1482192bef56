//! The part of a drawn plan that is about nodes whose kubelets say that they are not ready, and go on renewing.

use super::fencing::Malfunction;
use super::plan::{Ailment, Fault, Plan};
use crate::chance::{Chance, Draws};

/// So many of a hundred seeds have them.
const SICK: u64 = 30;
/// When the first node may fall ill: the pods run.
const BEGIN: u64 = 28;
/// So long before the healing nothing begins any more.
const SPARE: u64 = 5;
/// Where nodes are fenced because they are not ready, of so many of a hundred sick ones a device says off.
const LIED_ABOUT: u64 = 40;
/// So much longer the device says it: the looks come after the ailment has lasted.
const LIES_ON: u64 = 60;

/// Adds them to the plan of some seeds. Drawn from a chance of their own: the rest of the plan is what it was.
pub(super) fn add(plan: &mut Plan) {
    let mut draws = Draws::new(Chance::new(plan.seed).part("sick", 0));
    if !draws.percent(SICK) {
        return;
    }
    for number in 0..1 + draws.below(2) {
        let node = usize::try_from(draws.below(plan.nodes as u64)).unwrap_or(0);
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

/// A device that says off of a machine whose kubelet renews: the renewals alone tell that it does not act. Drawn from a
/// chance of its own, too.
fn lie(plan: &Plan, number: u64, node: usize, seconds: u64) -> Option<Fault> {
    plan.with.fencing.and_then(|fencing| fencing.not_ready_seconds)?;
    let lies = Draws::new(Chance::new(plan.seed).part("lies", number)).percent(LIED_ABOUT);
    let seconds = seconds + LIES_ON;
    lies.then_some(Fault::Malfunction { node, how: Malfunction::StaleOff, seconds })
}
