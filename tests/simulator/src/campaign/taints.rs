//! The part of a drawn plan that concerns taints of the effect `NoExecute`: which actors add and remove them, and the
//! faults while the toleration times of pods run.

use super::plan::{BEGIN, Fault, Plan, Trouble};
use crate::chance::{Chance, Draws};

/// One seed of so many has taints: the second of them, which has no budgets.
const EACH: u64 = 3;

/// Adds taints to the plan of some seeds. Uses random numbers of its own: the rest of the plan stays as it was.
pub(super) fn add(plan: &mut Plan) {
    if plan.seed % EACH != 1 {
        return;
    }
    plan.with.taints = true;
    let mut draws = Draws::new(Chance::new(plan.seed).part("taints", 0));
    // In some worlds evictions by taint are not disturbed: there the rules are strictest.
    if draws.percent(50) {
        plan.faults.retain(|(_, fault)| fault.troubles_control().is_none());
    }
    for _ in 0..1 + draws.below(3) {
        let taint = round(plan, &mut draws);
        plan.faults.extend(taint);
    }
    plan.end_faults_in_time();
}

/// Requests of all processes under test fail now and then, when pods are to be evicted.
fn refused(plan: &Plan, at: u64, draws: &mut Draws) -> Vec<(u64, Fault)> {
    let troubles = [Trouble::Error(500), Trouble::Error(409), Trouble::LoseAnswer, Trouble::DropRequest];
    let trouble = draws.choose(&troubles).copied().unwrap_or(Trouble::Error(500));
    let (percent, seconds) = (30 + draws.below(40), 5 + draws.below(20));
    let troubled = |replica| (at, Fault::TroubleReplica { replica, trouble, percent, seconds });
    (0..plan.replicas).map(troubled).collect()
}

/// A taint, and possible faults while the toleration times of pods run.
fn round(plan: &Plan, draws: &mut Draws) -> Vec<(u64, Fault)> {
    let mut one = |count: usize| draws.index(count);
    let (node, key, pod, server) = (one(plan.nodes), one(2), one(plan.pods), one(plan.servers));
    let at = BEGIN + draws.below(100);
    let mut faults = vec![(at, Fault::AddTaint { node, key, stamped: draws.percent(75) })];
    if draws.percent(40) {
        let also = Fault::AddTaint { node, key: 1 - key, stamped: draws.percent(75) };
        faults.push((at + draws.below(15), also));
    }
    if draws.percent(50) {
        let then = at + 2 + draws.below(15);
        for pod in 0..plan.pods {
            let seconds = draws.choose(&[None, Some(0), Some(5), Some(40), Some(120)]).copied().flatten();
            faults.push((then, Fault::Tolerate { pod, key, seconds }));
        }
    }
    if draws.percent(25) {
        faults.extend(refused(plan, at - 1 + draws.below(22), draws));
    }
    if draws.percent(35) {
        // Its successor gets its name while its time runs.
        faults.push((at + 2 + draws.below(12), Fault::DeletePod { pod }));
    }
    if draws.percent(25) {
        let restart = at + 10 + draws.below(60);
        for replica in 0..plan.replicas {
            faults.push((restart, Fault::CrashReplica { replica, seconds: 1 + draws.below(20) }));
        }
    }
    if draws.percent(45) {
        let lift = at + 2 + draws.below(70);
        if draws.percent(40) {
            faults.push((lift - 1, Fault::LagServer { server, seconds: 5 + draws.below(40) }));
        }
        faults.push((lift, Fault::LiftTaint { node, key }));
    }
    if draws.percent(30) {
        // Long enough for the node lifecycle controller to taint it.
        faults.push((at + draws.below(20), Fault::CutNode { node, seconds: 55 + draws.below(60) }));
    }
    faults
}
