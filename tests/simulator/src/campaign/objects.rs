//! The part of a drawn plan that concerns objects of other projects: in some of the worlds in which nodes are fenced,
//! that is done by them, and tenants write such objects in their own namespace.

use serde::{Deserialize, Serialize};

use super::fencing::Fencing;
use super::plan::{Fault, Plan};
use crate::chance::{Chance, Draws};

/// The objects by which nodes are fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Objects {
    /// Whose they are.
    pub project: Project,
    /// Their controller removes the finalizer, or reports success, and the machine runs on.
    pub careless: bool,
    /// The Nodes name their objects.
    pub named: bool,
    /// The number of a node for which there is no object but that of a tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub without: Option<usize>,
}

/// A project whose objects fence nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Project {
    /// Machines of Cluster API.
    ClusterApi,
    /// Machines of OpenShift.
    OpenShift,
    /// NodeClaims of Karpenter.
    Karpenter,
    /// FenceAgentsRemediations of medik8s.
    Medik8s,
}

/// The share of fenced worlds without a provider and without agents, in percent.
const SHARE: u64 = 20;
/// A controller takes up to a minute to end a machine.
const HEAL: u64 = 480;

/// Changes how nodes are fenced. Uses random numbers of its own.
pub(super) fn add(plan: &mut Plan) {
    let mut draws = Draws::new(Chance::new(plan.seed).part("objects", 0));
    let here = |fencing: &Fencing| fencing.behind_seconds.is_none() && fencing.agents.is_none();
    let Some(fencing) = plan.with.fencing.filter(here).filter(|_| draws.percent(SHARE)) else { return };
    let projects = [Project::ClusterApi, Project::OpenShift, Project::Karpenter, Project::Medik8s];
    let Some(project) = draws.choose(&projects).copied() else { return };
    let (careless, named) = (draws.percent(40), draws.percent(50));
    let without = draws.percent(40).then(|| draws.index(plan.nodes)).filter(|_| project != Project::Medik8s);
    let objects = Some(Objects { project, careless, named, without });
    let (tells, required, pair, backup) = (false, false, false, false);
    plan.with.fencing = Some(Fencing { objects, tells, required, pair, backup, ..fencing });
    plan.heal_at = HEAL;
    plan.faults.retain(|(_, fault)| !matches!(fault, Fault::Malfunction { .. }));
}
