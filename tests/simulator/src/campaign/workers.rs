//! The part of a drawn plan that concerns kubelets that cannot report when their Node is deleted: their workers are busy,
//! or they have just started.

use super::plan::{BEGIN, Fault, Plan, Restart, SPARE};
use crate::chance::{Chance, Draws};

/// The share of seeds that have them, in percent.
const BUSY: u64 = 15;
/// The share of seeds with a kubelet whose Node is deleted as it starts, in percent.
const STARTING: u64 = 15;

/// Adds them to the plan of some seeds. Uses random numbers of its own: the rest of the plan stays as it was.
///
/// A failing liveness probe is not drawn: by the last report of its kubelet all containers run, so that the busy worker
/// cannot be detected (docs/proof.md names it).
pub(super) fn add(plan: &mut Plan) {
    let mut draws = Draws::new(Chance::new(plan.seed).part("starts", 0));
    if draws.percent(STARTING) {
        let (node, seconds) = (draws.index(plan.nodes), 1 + draws.below(20));
        let at = BEGIN + draws.below(plan.heal_at - BEGIN - SPARE);
        plan.faults.push((at, Fault::KillKubelet { node, seconds }));
        plan.faults.push((at + seconds, Fault::DeleteNode { node }));
        plan.faults.sort_by_key(|(at, _)| *at);
    }
    let mut draws = Draws::new(Chance::new(plan.seed).part("workers", 0));
    if !draws.percent(BUSY) {
        return;
    }
    plan.with.slow_start = Some(1 + draws.below(120));
    for _ in 0..1 + draws.below(3) {
        let pod = draws.index(plan.pods);
        let node = draws.index(plan.nodes);
        let at = BEGIN + draws.below(plan.heal_at - BEGIN - SPARE);
        let seconds = (1 + draws.below(250)).min(plan.heal_at - SPARE - at);
        plan.faults.push((at, Fault::RestartContainer { pod, why: Restart::Crashed, seconds }));
        if draws.percent(50) {
            plan.faults.push((at + draws.below(SPARE), Fault::DeleteNode { node }));
        }
    }
    plan.faults.sort_by_key(|(at, _)| *at);
}
