//! Pairs of plans: in one world a node is dead, in the other it runs and is cut off. No observation distinguishes them.

use super::draw::draw;
use super::plan::{Fault, Plan};

/// The plan of a seed with a node that dies, and its twin, in which that node is cut off instead. Both run the same
/// until their `heal_at`.
#[must_use]
pub fn twin_plans(seed: u64) -> (Plan, Plan) {
    let mut dead = draw(seed);
    let node = dead.nodes - 1;
    // A device distinguishes a dead machine from one that runs: that is its purpose.
    dead.with.fencing = None;
    // A node with another fault would show that it runs, or would have to be dead twice.
    dead.faults.retain(|(_, fault)| !befalls(fault, node));
    let at = 40 + seed % 60;
    let mut alive = dead.clone();
    dead.faults.push((at, Fault::PowerOff { node, back: None }));
    alive.faults.push((at, Fault::CutNode { node, seconds: 10_000 }));
    for plan in [&mut dead, &mut alive] {
        plan.faults.push((at + 1 + seed % 40, Fault::DeleteNode { node }));
        plan.faults.sort_by_key(|(at, _)| *at);
    }
    (dead, alive)
}

fn befalls(fault: &Fault, which: usize) -> bool {
    match fault {
        Fault::CutNode { node, .. }
        | Fault::CutLink { node, .. }
        | Fault::TroubleNode { node, .. }
        | Fault::JumpNode { node, .. }
        | Fault::PowerOff { node, .. }
        | Fault::Reboot { node }
        | Fault::KillKubelet { node, .. }
        | Fault::Freeze { node, .. }
        | Fault::DeafKubelet { node, .. }
        | Fault::StuckProcesses { node, .. }
        | Fault::SickenNode { node, .. }
        | Fault::HealNode { node }
        | Fault::DeleteNode { node }
        | Fault::FenceByHand { node, .. }
        | Fault::Confirm { node, .. }
        | Fault::ConfirmFormer { node }
        | Fault::Linger { node }
        | Fault::Malfunction { node, .. }
        | Fault::Terminate { node }
        | Fault::StartAgain { node }
        | Fault::Taint { node } => *node == which,
        // Which pod it is, and on which node, is not known beforehand.
        Fault::Evict { .. } | Fault::RestartContainer { .. } | Fault::EditPod { .. } => true,
        _ => false,
    }
}
