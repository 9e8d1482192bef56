//! The part of a drawn plan that concerns exclusive volumes: which node holds them when nodes are lost, and which pods
//! need them meanwhile.

use serde::{Deserialize, Serialize};

use super::fencing::draw_fencing;
use super::plan::{BEGIN, Fault, Keeper, Plan};
use crate::chance::{Chance, Draws};

/// How the volumes of a world are guarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Guarding {
    /// Pods with claims are created with a scheduling gate.
    pub gate: bool,
    /// The storage itself refuses writes from any node but the one to which it attached a volume last.
    pub excludes: bool,
    /// The volumes of the StatefulSet are `ReadWriteOncePod`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub one_pod: bool,
    /// The pods of the StatefulSet have two volumes each.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub two: bool,
}

/// Of twelve seeds these have guarded volumes: one with budgets, one with taints, one with neither.
const EACH: u64 = 12;
const GUARDED: [u64; 3] = [2, 6, 7];
/// The end of the faults in a fifth of these plans: volumes are force detached six minutes after no pod needs them.
const HEAL: u64 = 560;
/// The end of the faults in the other plans: nodes are lost for minutes, but for less than six.
const HEAL_SOON: u64 = 300;

/// Adds guarded volumes to the plan of some seeds. Uses random numbers of its own: the rest of the plan stays as it
/// was.
pub(super) fn add(plan: &mut Plan) {
    if !GUARDED.contains(&(plan.seed % EACH)) {
        return;
    }
    let mut draws = Draws::new(Chance::new(plan.seed).part("volumes", 0));
    plan.with.attached_volumes = true;
    let mut objects = Draws::new(Chance::new(plan.seed).part("volumes", 1));
    let two = Draws::new(Chance::new(plan.seed).part("volumes", 2)).percent(25);
    plan.with.guarded_volumes =
        Some(Guarding { gate: draws.percent(60), excludes: draws.percent(25), one_pod: objects.percent(30), two });
    plan.with.nodes = Keeper::Ours;
    plan.with.taints = true;
    plan.with.fencing = draws.percent(50).then(|| draw_fencing(&mut draws));
    if draws.percent(50) {
        plan.faults.retain(|(_, fault)| fault.troubles_control().is_none());
    }
    if draws.percent(70) {
        plan.faults.retain(|(_, fault)| !matches!(fault, Fault::DeleteNode { .. } | Fault::FenceByHand { .. }));
    }
    // Of two nodes one lost node is half of all: then pod-safety assumes that it is itself cut off.
    plan.nodes = plan.nodes.max(3);
    plan.heal_at = if draws.percent(20) { HEAL } else { HEAL_SOON };
    for _ in 0..1 + draws.below(2) {
        let faults = incident(plan, &mut draws);
        plan.faults.extend(faults);
    }
    let faults = of_objects(plan, &mut objects);
    plan.faults.extend(faults);
    plan.end_faults_in_time();
}

/// A node is lost, or only slow to end its processes; people force delete its pods, and other pods need its volumes.
fn incident(plan: &Plan, draws: &mut Draws) -> Vec<(u64, Fault)> {
    let at = BEGIN + draws.below(100);
    let node = draws.index(plan.nodes);
    let seconds = 60 + draws.below(plan.heal_at - 130);
    let lost = match draws.below(7) {
        0 => Fault::PowerOff { node, back: draws.percent(60).then_some(seconds) },
        1 => Fault::Freeze { node, seconds },
        2 => Fault::KillKubelet { node, seconds },
        3 => Fault::StuckProcesses { node, seconds },
        4 => Fault::DeafKubelet { node, seconds },
        _ => Fault::CutNode { node, seconds },
    };
    let mut faults = vec![(at, lost)];
    for pod in 0..plan.pods {
        let then = at + draws.below(120);
        match draws.below(4) {
            0 => faults.push((then, Fault::DeletePod { pod })),
            1 => {
                faults.push((then, Fault::DeletePod { pod }));
                faults.push((then + draws.below(90), Fault::ForceDelete { pod }));
            }
            2 => faults.push((then, Fault::MakePod { pod })),
            _ => {}
        }
    }
    if draws.percent(20) {
        faults.push((at + 40 + draws.below(100), Fault::Taint { node }));
    }
    if draws.percent(50) {
        let change = at + 40 + draws.below(100);
        let ends = |replica: usize| {
            (change + 10 * replica as u64, Fault::CrashReplica { replica, seconds: 5 + 5 * replica as u64 })
        };
        faults.extend((0..plan.replicas).map(ends));
    }
    faults
}

/// Volumes and claims come and go, and the attacher restarts without its state.
fn of_objects(plan: &Plan, draws: &mut Draws) -> Vec<(u64, Fault)> {
    let mut faults = Vec::new();
    for _ in 0..draws.below(3) {
        faults.push((BEGIN + draws.below(plan.heal_at - 100), Fault::RestartAttacher));
    }
    for number in 0..usize::try_from(draws.below(4)).unwrap_or(0) {
        faults.push((BEGIN + draws.below(200), Fault::MakeBrief { number }));
    }
    // No component refuses a detachment by a person from a healthy node; only the gate keeps the next pod from the
    // volume.
    let gated = plan.with.guarded_volumes.is_some_and(|guarding| guarding.gate);
    if draws.percent(30) && gated {
        let pod = draws.index(plan.pods);
        let at = BEGIN + draws.below(100);
        if draws.percent(60) {
            // Until the end of the faults at most: a volume that a deaf kubelet uses cannot be freed.
            let seconds = (plan.heal_at - at).min(350);
            let deaf = |node| (at, Fault::DeafKubelet { node, seconds });
            faults.extend((0..plan.nodes).map(deaf));
        }
        faults.extend([(at + 1, Fault::ForceDelete { pod }), (at + 2, Fault::TearOff { pod })]);
        let crash = |replica: usize| (at + 3, Fault::CrashReplica { replica, seconds: 2 });
        faults.extend((0..plan.replicas).map(crash));
    }
    if draws.percent(50) {
        let pod = draws.index(plan.pods);
        let at = BEGIN + draws.below(200);
        faults.push((at, Fault::RenewVolume { pod, force: draws.percent(30) }));
        faults.push((at + draws.below(30), Fault::DeletePod { pod }));
    }
    faults
}
