//! The part of a drawn plan that concerns tenants who write what only a kubelet may, or have pods that do not end; and
//! operators who confirm the end of a node's former life.

use super::kubelets::Edit;
use super::plan::{BEGIN, Fault, Plan, SPARE};
use crate::chance::{Chance, Draws};

/// The share of seeds with a tenant who reports about its pods, in percent.
const REPORTED: u64 = 10;
/// The share of seeds with fencing in which a tenant has pods that do not end, in percent.
const LINGERING: u64 = 10;
/// The share of seeds with guarded volumes and such operators, in percent.
const CONFIRMED: u64 = 30;

/// Adds them to the plan of some seeds. Uses random numbers of its own: the rest of the plan stays as it was.
pub(super) fn add(plan: &mut Plan) {
    let mut draws = Draws::new(Chance::new(plan.seed).part("tenants", 10));
    let at = BEGIN + draws.below(plan.heal_at - BEGIN - SPARE);
    let (reported, pod) = (draws.percent(REPORTED), draws.index(plan.pods));
    let (lingering, confirmed) = (draws.percent(LINGERING), draws.percent(CONFIRMED));
    if reported {
        plan.faults.push((at, Fault::EditPod { pod, how: Edit::Report }));
    }
    if lingering && plan.with.fencing.is_some() {
        plan.faults.extend((0..plan.nodes).map(|node| (BEGIN, Fault::Linger { node })));
    }
    if confirmed && plan.with.guarded_volumes.is_some() {
        plan.faults.extend((0..plan.nodes).map(|node| (plan.heal_at - SPARE, Fault::ConfirmFormer { node })));
    }
    plan.faults.sort_by_key(|(at, _)| *at);
}
