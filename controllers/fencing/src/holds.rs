//! Why nothing is done: typed, with its numbers, for people and for checkers.

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

/// A reason to do nothing now. The names of the variants are the words of metrics and of programs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, IntoStaticStr, VariantNames)]
pub enum Hold {
    /// A kind cannot be believed now.
    #[error(transparent)]
    #[strum(transparent)]
    Unfresh(#[from] FreshnessError),
    /// The node is there, or may be, but cannot be read.
    #[error(transparent)]
    #[strum(transparent)]
    NodeUnreadable(#[from] NodeUnreadable),
    /// Some of what fencing rests on cannot be read.
    #[error("{count} of the {} cannot be read, so no node is fenced. Correct or delete them", kind.resource())]
    FencingUnreadable {
        /// Of which kind.
        kind: Kind,
        /// How many.
        count: usize,
    },
    /// Which life of the node would be fenced cannot be said.
    #[error(
        "node {node} is lost and has no UUID in status.nodeInfo.bootID. Without it, evidence about this boot cannot be told from evidence about the next one. Find out what is wrong with the node, and start it by hand"
    )]
    NoBootId {
        /// Its name.
        node: Arc<str>,
    },
    /// It is lost, and nobody is hindered by that.
    #[error(
        "node {node} is lost: {why}. It is fenced when a pod with a stable identity there (of a StatefulSet, or of an operator's custom resource) is deleted and does not terminate (when: WhenNeeded)"
    )]
    FenceNotNeeded {
        /// Its name.
        node: Arc<str>,
        /// Why it counts as lost.
        why: String,
    },
    /// It would be fenced, if this process acted.
    #[error(
        "node {node} is lost: {why}. It would be fenced by the FencePolicy {policy}, but the mode is observe"
    )]
    WouldFence {
        /// Its name.
        node: Arc<str>,
        /// Why it counts as lost.
        why: String,
        /// By which FencePolicy.
        policy: Arc<str>,
    },
    /// The incident of this life of the node is over, and the node is lost.
    #[error(
        "node {node} is lost, but the NodeFence {fence} about this boot of it is {phase}. Delete that NodeFence to start again"
    )]
    FenceOver {
        /// Its name.
        node: Arc<str>,
        /// The NodeFence.
        fence: Arc<str>,
        /// Its phase.
        phase: &'static str,
    },
    /// Two incidents of one life of a node.
    #[error(
        "the NodeFence {fence} is about the same boot of node {node} as {first}, which counts. Delete one"
    )]
    DuplicateFence {
        /// The node's name.
        node: Arc<str>,
        /// The one that waits.
        fence: Arc<str>,
        /// The one that counts.
        first: Arc<str>,
    },
    /// Its policy is gone.
    #[error(
        "the FencePolicy {policy} that the NodeFence of node {node} names does not exist. Create it, or delete the NodeFence"
    )]
    NoPolicy {
        /// The node's name.
        node: Arc<str>,
        /// The FencePolicy.
        policy: String,
    },
    /// It is only written down.
    #[error("dry run: node {node} would be fenced {plan}")]
    DryRun {
        /// The node's name.
        node: Arc<str>,
        /// By which level with which devices.
        plan: String,
    },
    /// Its policy pauses.
    #[error(
        "the FencePolicy {policy} is paused: {reason}. To resume: pod-safety resume --policy {policy} --reason TEXT"
    )]
    Paused {
        /// The FencePolicy.
        policy: Arc<str>,
        /// What its spec says.
        reason: String,
    },
    /// Somebody wants the node left alone.
    #[error("node {node} has {mark}, so it is not fenced. Remove that to continue")]
    FencingSuspended {
        /// Its name.
        node: Arc<str>,
        /// The annotation or label.
        mark: &'static str,
    },
    /// So much is lost that it is rather us.
    #[error(
        "{lost} of {of} nodes {} lost, more than {percent} % (brakes.maxUnhealthyPercent). It is more likely that this process, the API server or its network is cut off. Find that out first, and bring nodes back. No node is fenced until then",
        is_or_are(*lost)
    )]
    #[strum(serialize = "LargeOutage")]
    TooManyLost {
        /// How many seem lost.
        lost: usize,
        /// Of how many.
        of: usize,
        /// The brake.
        percent: u32,
    },
    /// So much of its zone is lost that it is rather the zone.
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
        /// The brake.
        percent: u32,
    },
    /// Nodes of the control plane are never fenced.
    #[error(
        "node {node} belongs to the control plane, and the FencePolicy {policy} never fences such nodes (brakes.controlPlane)"
    )]
    ControlPlane {
        /// Its name.
        node: Arc<str>,
        /// The FencePolicy.
        policy: Arc<str>,
    },
    /// Without it too few nodes of the control plane would be left.
    #[error(
        "node {node} belongs to the control plane. Without it only {ready} of {of} such nodes {} Ready, and etcd needs more than half. Bring another one back first",
        is_or_are(*ready)
    )]
    #[strum(serialize = "ControlPlane")]
    ControlPlaneQuorum {
        /// Its name.
        node: Arc<str>,
        /// How many others are Ready.
        ready: usize,
        /// How many there are with it.
        of: usize,
    },
    /// Without its member etcd would lose its quorum.
    #[error(
        "node {node} runs an etcd member. Without it only {ready} of {of} members {} Ready, and etcd needs more than half. Bring another one back first",
        is_or_are(*ready)
    )]
    EtcdQuorum {
        /// Its name.
        node: Arc<str>,
        /// How many others are Ready.
        ready: usize,
        /// How many there are with it.
        of: usize,
    },
    /// It would end healthy pods that a budget cannot spare.
    #[error(
        "{here} healthy pods of the PodDisruptionBudget {budget} run on node {node}: {healthy} healthy - {here} here is less than {needed} needed. The node is fenced anyway in {}s (brakes.collateralSeconds), or when more are healthy elsewhere",
        left.as_secs()
    )]
    Collateral {
        /// Its name.
        node: Arc<str>,
        /// Namespace and name of the budget.
        budget: String,
        /// How many run there.
        here: usize,
        /// How many are healthy, by the budget's status.
        healthy: i32,
        /// How many must be.
        needed: i32,
        /// How long is left.
        left: Duration,
    },
    /// Nobody can say whether a budget can spare its pods.
    #[error(
        "the PodDisruptionBudgets cannot be read, so it is not known whether they can spare the pods of node {node}. The node is fenced anyway in {}s (brakes.collateralSeconds)",
        left.as_secs()
    )]
    #[strum(serialize = "Collateral")]
    BudgetsUnread {
        /// Its name.
        node: Arc<str>,
        /// How long is left.
        left: Duration,
    },
    /// It still reports: its pods are evicted first.
    #[error(
        "node {node} is cordoned and its pods are evicted within their PodDisruptionBudgets: {pods} are left{blocked}. It is powered off in {}s (unhealthy.drainSeconds), or when none is left",
        left.as_secs()
    )]
    Drain {
        /// Its name.
        node: Arc<str>,
        /// How many are left.
        pods: usize,
        /// What the last round did not evict, and why; may be empty.
        blocked: String,
        /// How long is left.
        left: Duration,
    },
    /// It was fenced for that before, and it did not help.
    #[error(
        "node {node} was fenced {}s ago because it was unhealthy, and is unhealthy again: powering it off and on did not cure it. Repair or replace it. It can be fenced for that again in {}s (brakes.repeatSeconds)",
        ago.as_secs(), left.as_secs()
    )]
    Repeated {
        /// Its name.
        node: Arc<str>,
        /// How long ago.
        ago: Duration,
        /// How long is left.
        left: Duration,
    },
    /// The out-of-service taint, on a node that is in service.
    #[error(
        "node {node} is Ready and has the taint node.kubernetes.io/out-of-service={value}, which {whose}. kube-controller-manager detaches its volumes and force deletes its pods as soon as it is not Ready. Ask the person who added it, or remove it: kubectl taint node {node} node.kubernetes.io/out-of-service-"
    )]
    StaleTaint {
        /// Its name.
        node: Arc<str>,
        /// The value of the taint.
        value: String,
        /// Whose it is, as far as that is known.
        whose: &'static str,
    },
    /// Others are fenced now, or before it.
    #[error(
        "nodes being fenced: {fencing}; ahead of this one: {ahead}; at most {most} at a time (brakes.maxConcurrent)"
    )]
    Concurrency {
        /// How many are being fenced.
        fencing: usize,
        /// How many that wait go first.
        ahead: usize,
        /// The brake.
        most: u32,
    },
    /// Another one was fenced a moment ago.
    #[error("node {other} was fenced a moment ago. The next node can be fenced in {}s (brakes.cooldownSeconds)", left.as_secs())]
    Cooldown {
        /// Which one.
        other: Arc<str>,
        /// How long is left.
        left: Duration,
    },
    /// Who asked for it was told that its time is over.
    #[error("{remediation} requested that node {node} be fenced, and has timed out. No new attempt is begun")]
    RemediationTimedOut {
        /// The node's name.
        node: Arc<str>,
        /// Namespace and name of the PodSafetyRemediation.
        remediation: String,
    },
    /// This process runs on it.
    #[error(
        "this process runs on node {node} and never fences its own node. Run a second replica on another node: it fences this node when this process, or its machine, has stopped"
    )]
    SelfNode {
        /// Its name.
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
    /// Something was begun and may still land.
    #[error("an attempt to switch node {node} {act} is in flight. It ends within {}s, and then the power state is checked", left.as_secs())]
    AttemptUnderWay {
        /// Its name.
        node: Arc<str>,
        /// `off` or `on`.
        act: DesiredPower,
        /// How long is left.
        left: Duration,
    },
    /// What its provider shows may be about the boot before.
    #[error("what the provider reports of node {node} may be from before its present boot. Its power state is checked in {}s", left.as_secs())]
    ProviderBehind {
        /// Its name.
        node: Arc<str>,
        /// How long is left.
        left: Duration,
    },
    /// An attempt failed; the next one waits a little.
    #[error("switching node {node} {act} failed: {why}. It is tried again in {}s", left.as_secs())]
    RetryBackoff {
        /// Its name.
        node: Arc<str>,
        /// `off` or `on`.
        act: DesiredPower,
        /// What was seen.
        why: String,
        /// How long is left.
        left: Duration,
    },
    /// All ways were tried, or what was proved is not true.
    #[error(
        "node {node} needs a person: {why}. {}",
        way_out.describe(node)
    )]
    AwaitingOperator {
        /// Its name.
        node: Arc<str>,
        /// What happened.
        why: String,
        /// What helps.
        way_out: Remedy,
    },
    /// What the NodeFence rests on is not there.
    #[error(
        "the evidence {evidence} of node {node} does not exist, and fencing cannot continue without it. If it was deleted, delete the NodeFence, too"
    )]
    EvidenceMissing {
        /// The node's name.
        node: Arc<str>,
        /// The FenceEvidence.
        evidence: String,
    },
    /// A kubelet lives where none can.
    #[error(
        "node {node} was proved off, but shows a sign of life: {sign}. If it does not report a new boot within {}s, the evidence is contradicted",
        left.as_secs()
    )]
    SignOfLife {
        /// Its name.
        node: Arc<str>,
        /// What showed it.
        sign: &'static str,
        /// How long is left.
        left: Duration,
    },
    /// It is off, and nobody has noticed yet.
    #[error(
        "node {node} is proved off and still marked as Ready. It gets the taint out-of-service when that is corrected"
    )]
    NodeStillReady {
        /// Its name.
        node: Arc<str>,
    },
    /// Its pods are being released.
    #[error("node {node} waits for its pods. Still terminating: {pods}")]
    WaitsForPods {
        /// Its name.
        node: Arc<str>,
        /// How many.
        pods: usize,
    },
    /// It stays off.
    #[error(
        "node {node} is off and its pods are released. Repair and start it: pod-safety removes its taint when the node is Ready again"
    )]
    MachinePoweredOff {
        /// Its name.
        node: Arc<str>,
    },
    /// It boots, or is about to.
    #[error("node {node} is not back: it is not Ready with a new boot yet")]
    AwaitingNodeReady {
        /// Its name.
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
