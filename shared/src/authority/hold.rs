//! Why nothing is done: typed, with its numbers, for people and for checkers.

mod reasons;
mod volumes;

use std::sync::Arc;
use std::time::Duration;

use crate::cache::Unfresh;
use crate::model::Kind;
use pod_safety_proof::Sign;

pub use volumes::{Doubt, VolumeHold};

/// A reason to do nothing now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Hold {
    /// Of an exclusive volume.
    #[error(transparent)]
    Volume(#[from] VolumeHold),
    /// A kind cannot be believed now.
    #[error(transparent)]
    Unfresh(#[from] Unfresh),
    /// The node is there, or may be, but cannot be read.
    #[error("node {node} cannot be read: {why}. It may still exist")]
    NodeUnreadable {
        /// Its name.
        node: Arc<str>,
        /// What is wrong.
        why: String,
    },
    /// The node is missing, but not for long enough.
    #[error("node {node} is missing. It counts as gone in {}s, unless it or its Lease returns", left.as_secs())]
    Quarantine {
        /// Its name.
        node: Arc<str>,
        /// How long is left.
        left: Duration,
    },
    /// The node is missing, and its kubelet was active until then: the pod was deleted gracefully.
    #[error("node {node} does not exist. Its kubelet was active until the Node was deleted, so the pod was deleted gracefully. If the kubelet reports nothing, the pod is removed in {}s", left.as_secs())]
    AwaitsKubelet {
        /// Its name.
        node: Arc<str>,
        /// How long is left.
        left: Duration,
    },
    /// The node is missing, but its kubelet acts.
    #[error("node {node} does not exist, but its kubelet still runs: {} {}s ago. Its pods may still run. Stop that kubelet, or let it register its Node again", sign_words(*sign), ago.as_secs())]
    KubeletAlive {
        /// Its name.
        node: Arc<str>,
        /// What showed it.
        sign: Sign,
        /// How long ago.
        ago: Duration,
    },
    /// The out-of-service taint is only somebody's word.
    #[error(
        "node {node} has the taint node.kubernetes.io/out-of-service, but there is no evidence that it is off. Fence the node, or start pod-safety with --trust-out-of-service-taint to accept the taint as proof"
    )]
    OutOfServiceWithoutEvidence {
        /// Its name.
        node: Arc<str>,
    },
    /// The commonest of all: the pod was asked to end, and nobody can say whether it did.
    #[error(
        "node {node} is unreachable. It may be off, or cut off with this pod still running. The pod is removed when the node reports again or is proved off: by a FencePolicy (kubectl get nodefences shows its progress), or by your confirmation (pod-safety confirm-down {node})"
    )]
    NoEvidence {
        /// The node's name.
        node: Arc<str>,
    },
    /// The node says itself that it is well.
    #[error("node {node} has the taint node.kubernetes.io/out-of-service, but is Ready: it is in service")]
    OutOfServiceButReady {
        /// Its name.
        node: Arc<str>,
    },
    /// Its phase says ended, its containers say running.
    #[error(
        "the pod's phase says that it terminated, but its last report shows a running container: the phase was not written by its kubelet"
    )]
    TerminalButRunning,
    /// Its phase is a word that proves nothing, though KCM takes it for ended.
    #[error("the pod's phase is empty or unknown: that does not prove that it terminated")]
    PhaseUnreadable,
    /// The budget chooses no pods.
    #[error("the PodDisruptionBudget selects no pods")]
    NoPods,
    /// The budget's numbers cannot be calculated: nothing is let through.
    #[error("no eviction is allowed, because the numbers cannot be calculated: {why}")]
    BudgetFailed {
        /// What is wrong, and the way out.
        why: String,
        /// It is the selector: nobody knows its pods.
        selector: bool,
    },
    /// Pods that nobody manages.
    #[error(
        "these pods have no controller: they count as healthy, but not as expected. Set spec.minAvailable to a whole number to count them: {}", pods.join(", ")
    )]
    UnmanagedPods {
        /// Their names.
        pods: Vec<String>,
    },
    /// Pods whose controllers want no number of pods.
    #[error("these pods count neither as expected nor as healthy, because their controllers have no scale: {}", pods.join(", "))]
    PodsNotCounted {
        /// Their names and controllers.
        pods: Vec<String>,
    },
    /// Pods of its namespace of which is not known whether it chooses them.
    #[error("these pods count in no PodDisruptionBudget, because they have more labels than pod-safety keeps (128, or 16 KiB): {}", pods.join(", "))]
    TooManyLabels {
        /// Their names.
        pods: Vec<String>,
    },
    /// As long as nobody changes it or scales, no eviction will ever be let through.
    #[error(
        "no eviction can ever be allowed: {desired} of {expected} pods must be healthy. Use maxUnavailable: 1, or scale up"
    )]
    DisruptionsNeverAllowed {
        /// How many must be healthy.
        desired: i32,
        /// How many there should be.
        expected: i32,
    },
    /// The eviction API refuses a pod of several budgets.
    #[error("the pod matches multiple PodDisruptionBudgets: {}. The eviction API denies its eviction until only one is left", budgets.join(", "))]
    MultipleBudgets {
        /// Their names.
        budgets: Vec<String>,
    },
    /// Its eviction was let through, and it is still there.
    #[error(
        "its eviction was allowed by the PodDisruptionBudget {budget} two minutes ago, and it is not terminating yet"
    )]
    EvictionNotCompleted {
        /// By which budget.
        budget: String,
    },
    /// A controller was asked how many pods it wants, and has not answered yet.
    #[error("waiting for the scale of {controller}")]
    ScaleAsked {
        /// Its kind and name.
        controller: String,
    },
    /// It bears a taint of its node for some time to come.
    #[error("the pod tolerates the taint {taint} of node {node} for another {}s; then it is deleted", left.as_secs())]
    Tolerated {
        /// The node's name.
        node: Arc<str>,
        /// The taint.
        taint: String,
        /// For how long.
        left: Duration,
    },
    /// Whether it bears a taint of its node cannot be read.
    #[error(
        "the pod does not tolerate the taint {taint} of node {node}, but has a toleration for it with the unknown operator {operator:?}, so the pod is not deleted. Use the operator Exists or Equal"
    )]
    TolerationUnreadable {
        /// The node's name.
        node: Arc<str>,
        /// The taint.
        taint: String,
        /// What stands there.
        operator: String,
    },
    /// So much is lost at once that it is rather us who lost it.
    #[error(
        "{silent} of {of} nodes are unreachable or not ready. It is more likely that this process, the API server or its network is cut off. Nothing follows until some nodes report again, or live reads confirm the outage"
    )]
    LargeOutage {
        /// How many seem lost.
        silent: usize,
        /// Of how many.
        of: usize,
    },
    /// So many nodes of its zone are lost that no more of them are given up.
    #[error(
        "{not_ready} of {of} nodes of {} are not ready. More likely the zone has a problem than each of them, so their pods stay. Bring nodes back, or delete the Nodes that are gone. The thresholds are --unhealthy-zone-threshold and --large-cluster-size-threshold",
        zone_words(zone)
    )]
    ZoneDisrupted {
        /// The zone, by KCM's key.
        zone: Arc<str>,
        /// How many are not ready.
        not_ready: usize,
        /// Of how many that count.
        of: usize,
    },
    /// No node is given up.
    #[error(
        "its pods stay: with --node-eviction-rate=0 no node is tainted NoExecute. Delete the pods, or the Node if it is gone"
    )]
    EvictionOff,
    /// Other nodes of its zone are given up before it.
    #[error("its pods stay until it is tainted NoExecute. Nodes of {} ahead of it: {ahead}. The next node is tainted in {}s. --node-eviction-rate sets how many are tainted per second", zone_words(zone), next.as_secs())]
    EvictionQueued {
        /// The zone, by KCM's key.
        zone: Arc<str>,
        /// How many are before it.
        ahead: usize,
        /// When the next one's turn is.
        next: Duration,
    },
    /// Evidence says that the node is off, and it says that it is well.
    #[error(
        "the evidence {proof} says that node {node} is off, but it is Ready, so none of its pods is force deleted. Find out which machine was switched off"
    )]
    EvidenceConflictsWithReady {
        /// Its name.
        node: Arc<str>,
        /// The name of the FenceEvidence.
        proof: Arc<str>,
    },
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
        "node {node} is lost and has no status.nodeInfo.bootID. Without it, evidence about this boot cannot be told from evidence about the next one. Find out what is wrong with the node, and start it by hand"
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
        "node {node} is lost, but the NodeFence {fence} about this incarnation of it is {phase}. Delete that NodeFence to start again"
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
        "the NodeFence {fence} is about the same incarnation of node {node} as {first}, which counts. Delete one"
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
        "{lost} of {of} nodes are lost, more than {percent} % (brakes.maxUnhealthyPercent). It is more likely that this process, the API server or its network is cut off. Bring nodes back, or fence by hand and confirm it"
    )]
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
        "{not_ready} of {of} nodes of {} are not ready, more than {percent} % (brakes.maxUnhealthyZonePercent). More likely the zone has a problem than each of them. Bring nodes back, or fence by hand and confirm it",
        zone_words(zone)
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
        "node {node} belongs to the control plane. Without it only {ready} of {of} such nodes are Ready, and etcd needs more than half. Bring another one back first"
    )]
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
        "node {node} runs an etcd member. Without it only {ready} of {of} members are Ready, and etcd needs more than half. Bring another one back first"
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
        "this process runs on node {node} and never fences its own node. Run a second replica on another node, or delete this pod if that replica can lead"
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
        act: String,
        /// How long is left.
        left: Duration,
    },
    /// What its provider shows may be about the boot before.
    #[error("the provider of node {node} may still show what was so before this boot. Its power state is checked in {}s", left.as_secs())]
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
        act: String,
        /// What was seen.
        why: String,
        /// How long is left.
        left: Duration,
    },
    /// All ways were tried, or what was proved is not true.
    #[error(
        "node {node} needs a person: {why}. Make sure that it is off and confirm that (pod-safety confirm-down {node}), or start it, or delete its NodeFence to start again"
    )]
    AwaitingOperator {
        /// Its name.
        node: Arc<str>,
        /// What happened.
        why: String,
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
    /// Somebody's mark of a node that is off, on one that is not.
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
    /// Only the owners of its finalizers can let it go.
    #[error("the pod is deleted and waits for its finalizers: {}", finalizers.join(", "))]
    Finalizers {
        /// Their names.
        finalizers: Vec<String>,
    },
}

const fn sign_words(sign: Sign) -> &'static str {
    match sign {
        Sign::LeaseRenewed => "its Lease was renewed",
        Sign::PodReported => "it reported on a pod",
    }
}

/// KCM's key is region and zone with a null character between.
fn zone_words(zone: &str) -> String {
    match zone.split_once(":\0:") {
        None => "the cluster".to_owned(),
        Some(("", zone)) => format!("zone {zone}"),
        Some((region, "")) => format!("region {region}"),
        Some((region, zone)) => format!("zone {zone} of region {region}"),
    }
}

/// The reason of Events about force deletions that are held; their messages begin
/// with the hold's own.
pub const FORCE_DELETE_HELD: &str = "ForceDeleteHeld";
