//! Why the controller does not act: typed, with numbers, for Events and for programs.

use std::sync::Arc;
use std::time::Duration;

use pod_safety_shared::api::DesiredPower;
use pod_safety_shared::cache::FreshnessError;
use pod_safety_shared::controller_loop::{self, FORCE_DELETE_HELD, HoldReason, NodeUnreadable};
use pod_safety_shared::events::EventType;
use pod_safety_shared::model::{Kind, describe_zone, is_or_are};
use strum::{IntoStaticStr, VariantNames};

use super::remedy::Remedy;

/// What this controller decides about a key.
pub type Decision = controller_loop::Decision<Hold>;

/// A reason not to act now. The names of the variants are values of metrics and of programs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, IntoStaticStr, VariantNames)]
pub enum Hold {
    /// The cache of a kind is not synced, or is stale.
    #[error(transparent)]
    #[strum(transparent)]
    Unfresh(#[from] FreshnessError),
    /// The node exists, or may exist, but cannot be read.
    #[error(transparent)]
    #[strum(transparent)]
    NodeUnreadable(#[from] NodeUnreadable),
    /// Some objects that fencing depends on cannot be read.
    #[error("{count} of the {} cannot be read, so no node is fenced. Correct or delete them", kind.resource())]
    FencingUnreadable {
        /// Their kind.
        kind: Kind,
        /// Their number.
        count: usize,
    },
    /// The incarnation of the node is unknown.
    #[error(
        "node {node} is lost and has no UUID in status.nodeInfo.bootID. Without it, evidence about this boot cannot be told from evidence about the next one. Find out what is wrong with the node, and start it by hand"
    )]
    NoBootId {
        /// The node's name.
        node: Arc<str>,
    },
    /// The node is lost, and no pod is blocked by that.
    #[error(
        "node {node} is lost: {why}. It is fenced when a pod with a stable identity there (of a StatefulSet, or of an operator's custom resource) is deleted and does not terminate (when: WhenNeeded)"
    )]
    FenceNotNeeded {
        /// The node's name.
        node: Arc<str>,
        /// Why it counts as lost.
        why: String,
    },
    /// The node would be fenced, but the mode is observe.
    #[error("node {node} is lost: {why}. It would be fenced by the FencePolicy {policy}, but the mode is observe")]
    WouldFence {
        /// The node's name.
        node: Arc<str>,
        /// Why it counts as lost.
        why: String,
        /// The FencePolicy.
        policy: Arc<str>,
    },
    /// The incident of this incarnation is over, and the node is lost.
    #[error(
        "node {node} is lost, but the NodeFence {fence} about this boot of it is {phase}. Delete that NodeFence to start again"
    )]
    FenceOver {
        /// The node's name.
        node: Arc<str>,
        /// The NodeFence.
        fence: Arc<str>,
        /// Its phase.
        phase: &'static str,
    },
    /// Two incidents of one incarnation.
    #[error("the NodeFence {fence} is about the same boot of node {node} as {first}, which counts. Delete one")]
    DuplicateFence {
        /// The node's name.
        node: Arc<str>,
        /// The one that waits.
        fence: Arc<str>,
        /// The one that counts.
        first: Arc<str>,
    },
    /// The FencePolicy of the incident does not exist.
    #[error(
        "the FencePolicy {policy} that the NodeFence of node {node} names does not exist. Create it, or delete the NodeFence"
    )]
    NoPolicy {
        /// The node's name.
        node: Arc<str>,
        /// The FencePolicy.
        policy: String,
    },
    /// A dry run: the plan is only recorded.
    #[error("dry run: node {node} would be fenced {plan}")]
    DryRun {
        /// The node's name.
        node: Arc<str>,
        /// The level and the devices that would be used.
        plan: String,
    },
    /// The FencePolicy is paused.
    #[error(
        "the FencePolicy {policy} is paused: {reason}. To resume: pod-safety resume --policy {policy} --reason TEXT"
    )]
    Paused {
        /// The FencePolicy.
        policy: Arc<str>,
        /// The reason that its spec states.
        reason: String,
    },
    /// The node is excluded from remediation.
    #[error("node {node} has {mark}, so it is not fenced. Remove that to continue")]
    FencingSuspended {
        /// The node's name.
        node: Arc<str>,
        /// The annotation or label.
        mark: &'static str,
    },
    /// So many nodes are lost that the cause is more likely this process or its network.
    #[error(
        "{lost} of {of} nodes {} lost, more than {percent} % (brakes.maxUnhealthyPercent). It is more likely that this process, the API server or its network is cut off. Find that out first, and bring nodes back. No node is fenced until then",
        is_or_are(*lost)
    )]
    #[strum(serialize = "LargeOutage")]
    TooManyLost {
        /// How many nodes seem lost.
        lost: usize,
        /// Of how many.
        of: usize,
        /// The brake's percentage.
        percent: u32,
    },
    /// So many nodes of the zone are lost that the cause is more likely the zone.
    #[error(
        "{not_ready} of {of} nodes of {} {} not ready, more than {percent} % (brakes.maxUnhealthyZonePercent). The zone itself probably has a problem. Bring nodes back. For a machine that a person saw powered off: pod-safety confirm-down NODE --reason TEXT",
        describe_zone(zone),
        is_or_are(*not_ready)
    )]
    ZoneInTrouble {
        /// The zone, by KCM's key.
        zone: Arc<str>,
        /// How many are not ready.
        not_ready: usize,
        /// Of how many that count.
        of: usize,
        /// The brake's percentage.
        percent: u32,
    },
    /// The policy never fences nodes of the control plane.
    #[error(
        "node {node} belongs to the control plane, and the FencePolicy {policy} never fences such nodes (brakes.controlPlane)"
    )]
    ControlPlane {
        /// The node's name.
        node: Arc<str>,
        /// The FencePolicy.
        policy: Arc<str>,
    },
    /// Without this node too few nodes of the control plane would remain.
    #[error(
        "node {node} belongs to the control plane. Without it only {ready} of {of} such nodes {} Ready, and etcd needs more than half. Bring another one back first",
        is_or_are(*ready)
    )]
    #[strum(serialize = "ControlPlane")]
    ControlPlaneQuorum {
        /// The node's name.
        node: Arc<str>,
        /// How many others are Ready.
        ready: usize,
        /// How many there are, this node included.
        of: usize,
    },
    /// Without its member etcd would lose its quorum.
    #[error(
        "node {node} runs an etcd member. Without it only {ready} of {of} members {} Ready, and etcd needs more than half. Bring another one back first",
        is_or_are(*ready)
    )]
    EtcdQuorum {
        /// The node's name.
        node: Arc<str>,
        /// How many others are Ready.
        ready: usize,
        /// How many there are, this member included.
        of: usize,
    },
    /// Fencing would end healthy pods that a PodDisruptionBudget requires.
    #[error(
        "{here} healthy pods of the PodDisruptionBudget {budget} run on node {node}: {healthy} healthy - {here} here is less than {needed} needed. The node is fenced anyway in {}s (brakes.collateralSeconds), or when more are healthy elsewhere",
        left.as_secs()
    )]
    Collateral {
        /// The node's name.
        node: Arc<str>,
        /// Namespace and name of the budget.
        budget: String,
        /// How many healthy pods run there.
        here: usize,
        /// How many are healthy, by the budget's status.
        healthy: i32,
        /// How many must be healthy.
        needed: i32,
        /// The time until fencing goes on.
        left: Duration,
    },
    /// The PodDisruptionBudgets cannot be read.
    #[error(
        "the PodDisruptionBudgets cannot be read, so it is not known whether they can spare the pods of node {node}. The node is fenced anyway in {}s (brakes.collateralSeconds)",
        left.as_secs()
    )]
    #[strum(serialize = "Collateral")]
    BudgetsUnread {
        /// The node's name.
        node: Arc<str>,
        /// The time until fencing goes on.
        left: Duration,
    },
    /// The node still reports: its pods are evicted first.
    #[error(
        "node {node} is cordoned and its pods are evicted within their PodDisruptionBudgets: {pods} are left{blocked}. It is powered off in {}s (unhealthy.drainSeconds), or when none is left",
        left.as_secs()
    )]
    Drain {
        /// The node's name.
        node: Arc<str>,
        /// How many pods remain.
        pods: usize,
        /// What the last round did not evict, and why; may be empty.
        blocked: String,
        /// The time until the drain ends.
        left: Duration,
    },
    /// The node was fenced for this before, and it did not help.
    #[error(
        "node {node} was fenced {}s ago because it was unhealthy, and is unhealthy again: powering it off and on did not cure it. Repair or replace it. It can be fenced for that again in {}s (brakes.repeatSeconds)",
        ago.as_secs(), left.as_secs()
    )]
    Repeated {
        /// The node's name.
        node: Arc<str>,
        /// The time since then.
        ago: Duration,
        /// The time until it can be fenced again.
        left: Duration,
    },
    /// The out-of-service taint, on a node that is Ready.
    #[error(
        "node {node} is Ready and has the taint node.kubernetes.io/out-of-service={value}, which {whose}. kube-controller-manager detaches its volumes and force deletes its pods as soon as it is not Ready. Ask the person who added it, or remove it: kubectl taint node {node} node.kubernetes.io/out-of-service-"
    )]
    StaleTaint {
        /// The node's name.
        node: Arc<str>,
        /// The value of the taint.
        value: String,
        /// Who added it, as far as that is known.
        whose: &'static str,
    },
    /// Other nodes are being fenced, or are ahead of this one.
    #[error(
        "nodes being fenced: {fencing}; ahead of this one: {ahead}; at most {most} at a time (brakes.maxConcurrent)"
    )]
    Concurrency {
        /// How many are being fenced.
        fencing: usize,
        /// How many that wait are ahead of it.
        ahead: usize,
        /// The brake's limit.
        most: u32,
    },
    /// Another node was fenced a moment ago.
    #[error("node {other} was fenced a moment ago. The next node can be fenced in {}s (brakes.cooldownSeconds)", left.as_secs())]
    Cooldown {
        /// That node.
        other: Arc<str>,
        /// The remaining cooldown.
        left: Duration,
    },
    /// The remediation that requested it was reported as timed out.
    #[error("{remediation} requested that node {node} be fenced, and has timed out. No new attempt is begun")]
    RemediationTimedOut {
        /// The node's name.
        node: Arc<str>,
        /// Namespace and name of the PodSafetyRemediation.
        remediation: String,
    },
    /// This process runs on the node.
    #[error(
        "this process runs on node {node} and never fences its own node. Run a second replica on another node: it fences this node when this process, or its machine, has stopped"
    )]
    SelfNode {
        /// The node's name.
        node: Arc<str>,
    },
    /// No level of the policy can be used.
    #[error("no level of the FencePolicy {policy} can be used: {why}")]
    NoDevices {
        /// The FencePolicy.
        policy: Arc<str>,
        /// What each level lacks.
        why: String,
    },
    /// An attempt is in flight, and may still take effect.
    #[error("an attempt to switch node {node} {act} is in flight. It ends within {}s, and then the power state is checked", left.as_secs())]
    AttemptUnderWay {
        /// The node's name.
        node: Arc<str>,
        /// `off` or `on`.
        act: DesiredPower,
        /// When it can take effect no more.
        left: Duration,
    },
    /// What the provider reports may be about the previous boot.
    #[error("what the provider reports of node {node} may be from before its present boot. Its power state is checked in {}s", left.as_secs())]
    ProviderBehind {
        /// The node's name.
        node: Arc<str>,
        /// The time until the power state is checked.
        left: Duration,
    },
    /// An attempt failed; the next one waits for the backoff.
    #[error("switching node {node} {act} failed: {why}. It is tried again in {}s", left.as_secs())]
    RetryBackoff {
        /// The node's name.
        node: Arc<str>,
        /// `off` or `on`.
        act: DesiredPower,
        /// What failed.
        why: String,
        /// The remaining backoff.
        left: Duration,
    },
    /// All levels were tried, or the evidence is wrong: a person must act.
    #[error(
        "node {node} needs a person: {why}. {}",
        remedy.describe(node)
    )]
    AwaitingOperator {
        /// The node's name.
        node: Arc<str>,
        /// What happened.
        why: String,
        /// What the person can do.
        remedy: Remedy,
    },
    /// The evidence that the NodeFence names does not exist.
    #[error(
        "the evidence {evidence} of node {node} does not exist, and fencing cannot continue without it. If it was deleted, delete the NodeFence, too"
    )]
    EvidenceMissing {
        /// The node's name.
        node: Arc<str>,
        /// The FenceEvidence.
        evidence: String,
    },
    /// A node that was proved off shows a sign of life.
    #[error(
        "node {node} was proved off, but shows a sign of life: {sign}. If it does not report a new boot within {}s, the evidence is contradicted",
        left.as_secs()
    )]
    SignOfLife {
        /// The node's name.
        node: Arc<str>,
        /// The sign.
        sign: &'static str,
        /// The remaining grace period.
        left: Duration,
    },
    /// The node is off, and is still marked as Ready.
    #[error(
        "node {node} is proved off and still marked as Ready. It gets the taint out-of-service when that is corrected"
    )]
    NodeStillReady {
        /// The node's name.
        node: Arc<str>,
    },
    /// Its pods are being released.
    #[error("node {node} waits for its pods. Still terminating: {pods}")]
    WaitsForPods {
        /// The node's name.
        node: Arc<str>,
        /// How many pods.
        pods: usize,
    },
    /// The node stays off.
    #[error(
        "node {node} is off and its pods are released. Repair and start it: pod-safety removes its taint when the node is Ready again"
    )]
    MachinePoweredOff {
        /// The node's name.
        node: Arc<str>,
    },
    /// The node boots, or is about to.
    #[error("node {node} is not back: it is not Ready with a new boot yet")]
    AwaitingNodeReady {
        /// The node's name.
        node: Arc<str>,
    },
}

impl HoldReason for Hold {
    fn reason(&self) -> &'static str {
        self.into()
    }

    fn event(&self) -> Option<(EventType, &'static str)> {
        match self {
            Self::Unfresh(_)
            | Self::FenceNotNeeded { .. }
            | Self::WouldFence { .. }
            | Self::DryRun { .. }
            | Self::Paused { .. }
            | Self::FencingSuspended { .. }
            | Self::RemediationTimedOut { .. }
            | Self::TooManyLost { .. }
            | Self::ZoneInTrouble { .. }
            | Self::ControlPlane { .. }
            | Self::Collateral { .. }
            | Self::BudgetsUnread { .. }
            | Self::Drain { .. }
            | Self::Concurrency { .. }
            | Self::Cooldown { .. }
            | Self::AttemptUnderWay { .. }
            | Self::ProviderBehind { .. }
            | Self::RetryBackoff { .. }
            | Self::NodeStillReady { .. }
            | Self::WaitsForPods { .. }
            | Self::AwaitingNodeReady { .. }
            | Self::SignOfLife { .. } => None,
            Self::NodeUnreadable(_) => Some((EventType::Warning, FORCE_DELETE_HELD)),
            Self::FencingUnreadable { .. }
            | Self::Repeated { .. }
            | Self::NoBootId { .. }
            | Self::FenceOver { .. }
            | Self::DuplicateFence { .. }
            | Self::NoPolicy { .. }
            | Self::SelfNode { .. }
            | Self::NoDevices { .. }
            | Self::ControlPlaneQuorum { .. }
            | Self::EtcdQuorum { .. }
            | Self::AwaitingOperator { .. }
            | Self::EvidenceMissing { .. } => Some((EventType::Warning, "FencingHeld")),
            Self::StaleTaint { .. } => Some((EventType::Warning, "StaleOutOfServiceTaint")),
            Self::MachinePoweredOff { .. } => Some((EventType::Normal, "MachinePoweredOff")),
        }
    }
}
