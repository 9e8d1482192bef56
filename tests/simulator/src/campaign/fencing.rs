//! The part of a drawn plan that concerns fencing: how nodes are fenced, and how their devices fail and report falsely.

use serde::{Deserialize, Serialize};

use super::objects::{Objects, Project};
use super::plan::{BEGIN, Fault, Keeper, Plan};
use crate::chance::{Chance, Draws};

/// How the nodes of a world are fenced: each has a policy and a device of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Fencing {
    /// Nodes are fenced whenever they are lost; otherwise only when a pod of the `StatefulSet` waits there.
    pub always: bool,
    /// The devices report which machine they reach.
    pub tells: bool,
    /// `identityCheck: Required`.
    pub required: bool,
    /// There is a second level, with a reliable device that does not report which machine it reaches.
    pub backup: bool,
    /// A machine that was switched off is switched on again.
    pub power_on: bool,
    /// The first level has two devices, the outlets of the two power supplies of a machine: it has power while one of
    /// them is on, and neither reports which machine it reaches.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pair: bool,
    /// A device's report counts only if the kubelet's port does not answer either.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub corroborated: bool,
    /// The machines are instances of a provider, whose answers may be stale by so many seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind_seconds: Option<u32>,
    /// Each node has an agent with a watchdog, which is in the first level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agents: Option<Agents>,
    /// A node whose Ready has not been True for so many seconds counts as lost, though its kubelet reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_ready_seconds: Option<u32>,
    /// Objects of another project fence the nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<Objects>,
}

impl Fencing {
    /// Whether a device switches on again what was fenced: the agent of a node cannot, and a machine that is gone
    /// stays so.
    pub(crate) fn switches_on(&self) -> bool {
        let ends = self.objects.is_some_and(|objects| objects.project != Project::Medik8s);
        self.power_on && !ends && (self.agents != Some(Agents::Alone) || self.backup)
    }

    /// Nodes are fenced whenever they are lost, by devices that report which machine they reach, and must.
    pub const STRICT: Self = Self {
        always: true,
        tells: true,
        required: true,
        backup: false,
        power_on: true,
        pair: false,
        corroborated: false,
        behind_seconds: None,
        agents: None,
        not_ready_seconds: None,
        objects: None,
    };
}

/// How agents are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Agents {
    /// There is no other device.
    Alone,
    /// They are a second fact beside the devices of the level.
    Second,
}

/// How a device fails, or reports falsely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Malfunction {
    /// It acts, and does not answer in time.
    DoneButSilent,
    /// It acknowledges an order, and does not act. Its status is true.
    AcksOnly,
    /// It reports a failure, and acts so many seconds later.
    LateAfterFailure(u64),
    /// It reaches the machine of another node.
    WrongMachine(usize),
    /// It does not act, and reports off and on in turns.
    Flaps,
    /// The connection fails.
    Unreachable,
    /// It does not act, and no answer comes.
    Silent,
    /// It does not act, and reports off: from a stale cache.
    StaleOff,
    /// A provider that limits the rate of requests: most are refused.
    Throttles,
    /// A provider whose region is lost: no answer, or one that finds nothing.
    RegionLost,
    /// A provider that takes so many seconds to stop the instance, which runs meanwhile.
    StopsSlowly(u64),
    /// It acts, reports off in two status checks, and is unreachable from then on: its own power came from what it
    /// switches.
    DiesWithIt,
}

/// Of twelve seeds these have fencing, one with taints of its own and two with budgets. With half of those that guard
/// volumes, more than a third of all seeds have it.
const EACH: u64 = 12;
const FENCED: [u64; 3] = [5, 10, 11];
/// Long enough for evidence: the grace of nodes, the policy's delay, and the status checks.
const LOST_FOR: u64 = 100;
/// The least time for which a device fails: an incident begins a minute after the loss.
const FAILS_FOR: u64 = 120;
/// The end of the faults in these plans: an incident has its time before.
const HEAL: u64 = 360;
/// The latest act of a device that reported a failure.
const LATEST: u64 = 300;

/// Adds fencing to the plan of some seeds. Uses random numbers of its own: the rest of the plan stays as it was.
pub(super) fn add(plan: &mut Plan) {
    if !FENCED.contains(&(plan.seed % EACH)) {
        return;
    }
    let mut draws = Draws::new(Chance::new(plan.seed).part("fencing", 0));
    plan.with.nodes = Keeper::Ours;
    plan.with.taints = true;
    plan.with.fencing = Some(draw_fencing(&mut draws));
    // Some worlds with fencing have no other disturbances: there the rules are strictest.
    if draws.percent(50) {
        plan.faults.retain(|(_, fault)| fault.troubles_control().is_none());
    }
    // The other seeds cover nodes whose object is gone.
    if draws.percent(70) {
        plan.faults.retain(|(_, fault)| !matches!(fault, Fault::DeleteNode { .. }));
    }
    // Of two nodes one lost node is half of all: then pod-safety assumes that it is itself cut off.
    plan.nodes = plan.nodes.max(3);
    plan.heal_at = HEAL;
    for _ in 0..1 + draws.below(2) {
        let faults = incident(plan, &mut draws);
        plan.faults.extend(faults);
    }
    super::provider::add(plan);
    super::agents::add(plan);
    super::objects::add(plan);
    plan.end_faults_in_time();
}

/// How nodes are fenced.
pub(super) fn draw_fencing(draws: &mut Draws) -> Fencing {
    Fencing {
        tells: draws.percent(60),
        required: draws.percent(40),
        always: draws.percent(60),
        backup: draws.percent(40),
        power_on: draws.percent(75),
        pair: draws.percent(25),
        not_ready_seconds: draws.percent(50).then(|| 30 + draws.below(60)).and_then(|seconds| seconds.try_into().ok()),
        ..Fencing::default()
    }
}

/// A node is lost, its device may fail, and its fencing may change meanwhile.
fn incident(plan: &Plan, draws: &mut Draws) -> Vec<(u64, Fault)> {
    let at = BEGIN + draws.below(120);
    let node = draws.index(plan.nodes);
    let seconds = LOST_FOR + draws.below(200);
    let lost = match draws.below(4) {
        0 => Fault::PowerOff { node, back: draws.percent(50).then_some(seconds) },
        1 => Fault::Freeze { node, seconds },
        2 => Fault::KillKubelet { node, seconds },
        _ => Fault::CutNode { node, seconds },
    };
    let mut faults = vec![(at, lost)];
    if draws.percent(60) {
        let how = malfunction(plan, node, draws);
        let began = (at + draws.below(60)).saturating_sub(20);
        faults.push((began, Fault::Malfunction { node, how, seconds: FAILS_FOR + draws.below(300) }));
    }
    if draws.percent(40) {
        // Around the evidence: not reporting at 60 s, then status checks, then releases, then power.
        let change = at + 60 + draws.below(80);
        let end = |replica: usize, draws: &mut Draws| match draws.below(4) {
            0 => Fault::StopReplica { replica, seconds: 1 + draws.below(20) },
            1 => Fault::PauseReplica { replica, seconds: 5 + draws.below(80) },
            2 => Fault::CutReplica { replica, seconds: 5 + draws.below(40) },
            _ => Fault::CrashReplica { replica, seconds: draws.below(25) },
        };
        faults.extend((0..plan.replicas).map(|replica| (change + 20 * replica as u64, end(replica, draws))));
    }
    faults
}

fn malfunction(plan: &Plan, node: usize, draws: &mut Draws) -> Malfunction {
    match draws.below(8) {
        0 => Malfunction::DoneButSilent,
        1 => Malfunction::AcksOnly,
        2 => Malfunction::LateAfterFailure(1 + draws.below(LATEST)),
        3 => {
            let further = 1 + usize::try_from(draws.below(plan.nodes as u64 - 1)).unwrap_or(0);
            Malfunction::WrongMachine((node + further) % plan.nodes)
        }
        4 => Malfunction::Flaps,
        5 => Malfunction::Unreachable,
        6 => Malfunction::Silent,
        _ => Malfunction::StaleOff,
    }
}
