//! The part of a drawn plan that concerns nodes that are lost, and nodes that only seem lost.

use super::plan::{BEGIN, Fault, Keeper, Plan, Trouble};
use crate::chance::{Chance, Draws};

/// One seed of so many runs pod-safety's node lifecycle in place of the world's, and one runs it beside.
const EACH: u64 = 6;
const IN_PLACE: u64 = 4;
const BESIDE: u64 = 3;
/// Longer than the grace period: a node that does not report for so long is lost.
const LOST_FOR: u64 = 53;

/// Adds them to the plan of some seeds. Uses random numbers of its own: the rest of the plan stays as it was.
pub(super) fn add(plan: &mut Plan) {
    plan.with.nodes = match plan.seed % EACH {
        IN_PLACE => Keeper::Ours,
        BESIDE => Keeper::Guarded,
        _ => return,
    };
    let mut draws = Draws::new(Chance::new(plan.seed).part("nodes", 0));
    // Some worlds with node lifecycle have no other disturbances: there the rules are strictest.
    let calm = draws.percent(50);
    if calm {
        plan.faults.retain(|(_, fault)| fault.troubles_control().is_none());
    }
    for _ in 0..1 + draws.below(2) {
        let faults = round(plan, calm, &mut draws);
        plan.faults.extend(faults);
    }
    plan.end_faults_in_time();
}

fn round(plan: &Plan, calm: bool, draws: &mut Draws) -> Vec<(u64, Fault)> {
    let at = BEGIN + draws.below(60);
    let node = draws.index(plan.nodes);
    let seconds = LOST_FOR + draws.below(90);
    match draws.below(if calm { 4 } else { 7 }) {
        // Several nodes at once or one after the other: a zone, or all of them.
        0 => {
            let apart = draws.below(12);
            let nodes = 0..1 + draws.index(plan.nodes);
            nodes.map(|node| (at + apart * node as u64, Fault::CutNode { node, seconds })).collect()
        }
        1 => flapping(at, node, draws),
        2 => clocks(plan, at, node, calm, draws),
        // The reports are late but do not stop; or they stop, if the delay is long enough.
        3 => {
            let trouble = Trouble::Delay(5_000 + draws.below(20_000));
            vec![(at, Fault::TroubleNode { node, trouble, percent: 100, seconds: seconds + 30 })]
        }
        4 => {
            let seconds = 20 + draws.below(100);
            let cut = |server| (at, Fault::CutServer { server, answers_lost: draws.percent(20), seconds });
            (0..plan.servers).map(cut).collect()
        }
        // No process under test receives anything, and all kubelets run.
        5 => {
            let seconds = 20 + draws.below(70);
            let (cut, frozen) = (draws.percent(50), 1 + draws.below(3));
            let deaf = |replica: usize| {
                if cut {
                    Fault::CutReplica { replica, seconds }
                } else {
                    Fault::PauseReplica { replica, seconds: seconds + frozen }
                }
            };
            (0..plan.replicas).map(|replica| (at, deaf(replica))).collect()
        }
        // A node is lost, and the controller that manages it changes.
        _ => {
            let lost = (at, Fault::CutNode { node, seconds: seconds + 30 });
            let change = at + 20 + draws.below(70);
            let back = 1 + draws.below(25);
            let ends = |replica: usize| {
                if draws.percent(50) {
                    Fault::CrashReplica { replica, seconds: back }
                } else {
                    Fault::StopReplica { replica, seconds: back }
                }
            };
            let changes = (0..plan.replicas).map(ends).enumerate();
            let changes: Vec<_> = changes.map(|(number, fault)| (change + 15 * number as u64, fault)).collect();
            [lost].into_iter().chain(changes).collect()
        }
    }
}

/// A node that comes and goes.
fn flapping(at: u64, node: usize, draws: &mut Draws) -> Vec<(u64, Fault)> {
    let mut faults = Vec::new();
    let mut at = at;
    for _ in 0..2 + draws.below(3) {
        let seconds = 15 + draws.below(60);
        faults.push((at, Fault::CutNode { node, seconds }));
        at += seconds + 1 + draws.below(25);
    }
    faults
}

/// Clocks jump on either side, and a node may be lost meanwhile.
fn clocks(plan: &Plan, at: u64, node: usize, calm: bool, draws: &mut Draws) -> Vec<(u64, Fault)> {
    let mut jump = || {
        let by = i64::try_from(60 + draws.below(7_000)).unwrap_or(60);
        if draws.percent(50) { by } else { -by }
    };
    let mut faults = vec![(at, Fault::JumpNode { node, seconds: jump() })];
    faults.push((at + 30, Fault::JumpNode { node, seconds: jump() }));
    if !calm {
        let jumps = (0..plan.replicas).map(|replica| (at + 10, Fault::JumpReplica { replica, seconds: jump() }));
        faults.extend(jumps);
    }
    if draws.percent(50) {
        faults.push((at + 15, Fault::CutNode { node, seconds: LOST_FOR + draws.below(60) }));
    }
    faults
}
