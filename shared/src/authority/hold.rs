//! Why nothing is done: typed, with its numbers, for people and for checkers.

mod reasons;
mod volumes;

use std::sync::Arc;
use std::time::Duration;

use crate::cache::Sign;
use crate::model::Kind;

pub use volumes::{Doubt, VolumeHold};

/// A reason to do nothing now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Hold {
    /// Of an exclusive volume.
    #[error(transparent)]
    Volume(#[from] VolumeHold),
    /// Not everything was listed yet.
    #[error("{} are not listed yet", kind.resource())]
    NotSynced {
        /// Of which kind.
        kind: Kind,
    },
    /// The API server has said nothing for too long.
    #[error("the API server has been silent on {} for {}s; nothing is decided from what may be old", kind.resource(), silent.as_secs())]
    Stale {
        /// On which kind.
        kind: Kind,
        /// For how long.
        silent: Duration,
    },
    /// The node is there, or may be, but cannot be read.
    #[error("node {node} cannot be read: {why}; unknown is not absent")]
    NodeUnreadable {
        /// Its name.
        node: Arc<str>,
        /// What is wrong.
        why: String,
    },
    /// The node is missing, but not for long enough.
    #[error("node {node} is missing; it is believed to be gone in {}s, if neither it nor its Lease returns", left.as_secs())]
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
    #[error("node {node} does not exist, but its kubelet lives: {} {}s ago. Its pods may run. Stop that kubelet, or let it register its Node again", sign_words(*sign), ago.as_secs())]
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
        "node {node} carries the taint node.kubernetes.io/out-of-service, which nobody has proved. Fence the node, or start with --trust-out-of-service-taint to take the taint for proof"
    )]
    OutOfServiceWithoutEvidence {
        /// Its name.
        node: Arc<str>,
    },
    /// The commonest of all: the pod was asked to end, and nobody can say whether it did.
    #[error(
        "node {node} is not heard: it is off, or cut off with this pod still running, and nobody has proved which. The pod goes when the node is heard again or proved off: by a FencePolicy (kubectl get nodefences says how far that is), or by you (pod-safety confirm-down {node})"
    )]
    NoEvidence {
        /// The node's name.
        node: Arc<str>,
    },
    /// The node says itself that it is well.
    #[error(
        "node {node} carries the taint node.kubernetes.io/out-of-service, but is Ready: it is in service"
    )]
    OutOfServiceButReady {
        /// Its name.
        node: Arc<str>,
    },
    /// Its phase says ended, its containers say running.
    #[error(
        "the pod's phase says that it ended, but its last report shows a running container: somebody else wrote the phase"
    )]
    TerminalButRunning,
    /// Its phase is a word that proves nothing, though KCM takes it for ended.
    #[error("the pod's phase is empty or unknown: that does not prove that it ended")]
    PhaseUnreadable,
    /// The budget chooses no pods.
    #[error("the budget chooses no pods")]
    NoPods,
    /// The budget's numbers cannot be calculated: nothing is let through.
    #[error("no eviction is let through, for the numbers cannot be calculated: {why}")]
    BudgetFailed {
        /// What is wrong, and the way out.
        why: String,
        /// It is the selector: nobody knows its pods.
        selector: bool,
    },
    /// Pods that nobody manages.
    #[error(
        "nobody manages these pods: they count as healthy, but not as expected. Set spec.minAvailable to a whole number to count them: {}", pods.join(", ")
    )]
    UnmanagedPods {
        /// Their names.
        pods: Vec<String>,
    },
    /// Pods whose controllers want no number of pods.
    #[error("these pods do not count, neither as expected nor as healthy, for their controllers have no scale: {}", pods.join(", "))]
    PodsNotCounted {
        /// Their names and controllers.
        pods: Vec<String>,
    },
    /// Pods of its namespace of which is not known whether it chooses them.
    #[error("these pods count in no budget, for they have more labels than are kept (128, or 16 KiB): {}", pods.join(", "))]
    TooManyLabels {
        /// Their names.
        pods: Vec<String>,
    },
    /// As long as nobody changes it or scales, no eviction will ever be let through.
    #[error(
        "no eviction can ever be let through: {desired} of {expected} pods must be healthy. Use maxUnavailable: 1, or scale up"
    )]
    DisruptionsNeverAllowed {
        /// How many must be healthy.
        desired: i32,
        /// How many there should be.
        expected: i32,
    },
    /// The eviction API refuses a pod of several budgets.
    #[error("the pod matches multiple PodDisruptionBudgets: {}. The eviction API refuses it until only one is left", budgets.join(", "))]
    MultipleBudgets {
        /// Their names.
        budgets: Vec<String>,
    },
    /// Its eviction was let through, and it is still there.
    #[error(
        "its eviction was let through by the budget {budget} two minutes ago, and it has not begun to end"
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
        "the pod does not tolerate the taint {taint} of node {node}, but has a toleration for it whose operator {operator:?} cannot be read: unknown is not intolerant. Give it one that Exists or is Equal"
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
        "{silent} of {of} nodes are silent or not ready: rather this process, the API server or the network before it is cut off than all of them. Nothing follows until some are heard again, or live reads bear it out"
    )]
    LargeOutage {
        /// How many seem lost.
        silent: usize,
        /// Of how many.
        of: usize,
    },
    /// So many nodes of its zone are lost that no more of them are given up.
    #[error(
        "{not_ready} of {of} nodes of {} are not ready: rather the zone is in trouble than each of them, so their pods stay. Bring nodes back, or delete those that are gone; --unhealthy-zone-threshold and --large-cluster-size-threshold say when",
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
        "its pods stay: --node-eviction-rate=0 gives up no node. Delete the pods, or the Node if it is gone"
    )]
    EvictionOff,
    /// Other nodes of its zone are given up before it.
    #[error("its pods stay until it is its turn: nodes of {} before it: {ahead}; the next one's turn is in {}s. --node-eviction-rate says how many have theirs in a second", zone_words(zone), next.as_secs())]
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
        "the evidence {proof} says that node {node} is off, but it is Ready: nothing is released. Find out which machine was switched off"
    )]
    EvidenceConflictsWithReady {
        /// Its name.
        node: Arc<str>,
        /// The name of the FenceEvidence.
        proof: Arc<str>,
    },
    /// Some of what fencing rests on cannot be read.
    #[error("{count} of the {} cannot be read, so no node is fenced: unknown is not absent. Correct or delete them", kind.resource())]
    FencingUnreadable {
        /// Of which kind.
        kind: Kind,
        /// How many.
        count: usize,
    },
    /// Which life of the node would be fenced cannot be said.
    #[error(
        "node {node} is lost and does not say its status.nodeInfo.bootID: a fact about it could not be told from one about its next boot. See what is wrong with it, and start it by hand"
    )]
    NoBootId {
        /// Its name.
        node: Arc<str>,
    },
    /// It is lost, and nobody is hindered by that.
    #[error(
        "node {node} is lost: {why}; it is fenced when a pod with a lasting identity (of a StatefulSet, or of a kind of an operator) there is asked to end and does not (when: WhenNeeded)"
    )]
    FenceNotNeeded {
        /// Its name.
        node: Arc<str>,
        /// Why it counts as lost.
        why: String,
    },
    /// It would be fenced, if this process acted.
    #[error("node {node} is lost: {why}; it would be fenced by the policy {policy}, but the mode is observe")]
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
        "node {node} is lost, but the NodeFence {fence} about this life of it is {phase}. Delete that to have it decided anew"
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
        "the NodeFence {fence} is about the same life of node {node} as {first}, which counts. Delete one"
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
    #[error("the policy {policy} is paused: {reason}. pod-safety resume --policy {policy} lets it go on")]
    Paused {
        /// The FencePolicy.
        policy: Arc<str>,
        /// What its spec says.
        reason: String,
    },
    /// Somebody wants the node left alone.
    #[error("node {node} carries {mark}: somebody wants it left alone. Take that away to go on")]
    FencingSuspended {
        /// Its name.
        node: Arc<str>,
        /// The annotation or label.
        mark: &'static str,
    },
    /// So much is lost that it is rather us.
    #[error(
        "{lost} of {of} nodes are lost, more than {percent} % (brakes.maxUnhealthyPercent): rather this process, the API server or the network before it is cut off than all of them. Bring nodes back, or fence by hand and confirm it"
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
        "{not_ready} of {of} nodes of {} are not ready, more than {percent} % (brakes.maxUnhealthyZonePercent): rather the zone is in trouble than each of them. Bring nodes back, or fence by hand and confirm it",
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
        "node {node} is of the control plane, and the policy {policy} never fences those (brakes.controlPlane)"
    )]
    ControlPlane {
        /// Its name.
        node: Arc<str>,
        /// The FencePolicy.
        policy: Arc<str>,
    },
    /// Without it too few nodes of the control plane would be left.
    #[error(
        "node {node} is of the control plane, and without it only {ready} of {of} such nodes are Ready: etcd needs more than half. Bring another one back first"
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
        "node {node} runs a member of etcd, and without it only {ready} of {of} members are Ready: etcd needs more than half. Bring another one back first"
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
        "{here} healthy pods of the disruption budget {budget} run on node {node}: {healthy} healthy - {here} here is less than {needed} needed. It is fenced all the same in {}s (brakes.collateralSeconds), or when more are healthy elsewhere",
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
        "the disruption budgets cannot be read, so whether they can spare the pods of node {node} is not known. It is fenced all the same in {}s (brakes.collateralSeconds)",
        left.as_secs()
    )]
    BudgetsUnread {
        /// Its name.
        node: Arc<str>,
        /// How long is left.
        left: Duration,
    },
    /// Others are fenced now, or before it.
    #[error(
        "{fencing} nodes are being fenced and {ahead} go before it; {most} may be at a time (brakes.maxConcurrent)"
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
    #[error("node {other} was fenced a moment ago; the next one may be in {}s (brakes.cooldownSeconds)", left.as_secs())]
    Cooldown {
        /// Which one.
        other: Arc<str>,
        /// How long is left.
        left: Duration,
    },
    /// Who asked for it was told that its time is over.
    #[error(
        "{remediation} asked for node {node} to be fenced and was told that its time is over: no new attempt is begun"
    )]
    RemediationTimedOut {
        /// The node's name.
        node: Arc<str>,
        /// Namespace and name of the PodSafetyRemediation.
        remediation: String,
    },
    /// This process runs on it.
    #[error(
        "this process runs on node {node}, and nobody shoots the node that he stands on. Run a second replica on another node, or delete this pod if that one can lead"
    )]
    SelfNode {
        /// Its name.
        node: Arc<str>,
    },
    /// No level of the policy can be used.
    #[error("no level of the policy {policy} can be used: {why}")]
    NoDevices {
        /// The FencePolicy.
        policy: Arc<str>,
        /// What each level lacks.
        why: String,
    },
    /// Something was begun and may still land.
    #[error("switching node {node} {act} was begun; in {}s nothing of it runs any more, and its devices are looked at", left.as_secs())]
    AttemptUnderWay {
        /// Its name.
        node: Arc<str>,
        /// `off` or `on`.
        act: String,
        /// How long is left.
        left: Duration,
    },
    /// An attempt failed; the next one waits a little.
    #[error("switching node {node} {act} did not succeed: {why}; it is tried again in {}s", left.as_secs())]
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
        "node {node} needs a person: {why}. Make sure that it is off and confirm that (pod-safety confirm-down {node}), or start it, or delete its NodeFence to have it decided anew"
    )]
    AwaitingOperator {
        /// Its name.
        node: Arc<str>,
        /// What happened.
        why: String,
    },
    /// What the NodeFence rests on is not there.
    #[error(
        "the evidence {evidence} of node {node} is not there: nothing goes on without it. If somebody deleted it, delete the NodeFence, too"
    )]
    EvidenceMissing {
        /// The node's name.
        node: Arc<str>,
        /// The FenceEvidence.
        evidence: String,
    },
    /// A kubelet lives where none can.
    #[error(
        "node {node} was proved off, and gives a sign of life: {sign}. If it does not say that it booted within {}s, the evidence is contradicted",
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
        "node {node} is proved off and still marked as Ready; it gets the taint out-of-service when that is corrected"
    )]
    NodeStillReady {
        /// Its name.
        node: Arc<str>,
    },
    /// Somebody's mark of a node that is off, on one that is not.
    #[error(
        "node {node} is Ready and carries the taint node.kubernetes.io/out-of-service={value}, which {whose}: kube-controller-manager detaches its volumes and force deletes its pods as soon as it is not Ready. Ask whoever put it there, or take it away: kubectl taint node {node} node.kubernetes.io/out-of-service-"
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
    #[error("node {node} waits for its pods: {pods} that were asked to end are still there")]
    WaitsForPods {
        /// Its name.
        node: Arc<str>,
        /// How many.
        pods: usize,
    },
    /// It stays off.
    #[error(
        "node {node} is off and its pods are released. Repair and start it: what we put on it goes when it is Ready again"
    )]
    MachinePoweredOff {
        /// Its name.
        node: Arc<str>,
    },
    /// It has power, and is not back.
    #[error("node {node} has power again and is not Ready with another boot yet")]
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
