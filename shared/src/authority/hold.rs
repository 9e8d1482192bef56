//! Why nothing is done: typed, with its numbers, for people and for checkers.

use std::sync::Arc;
use std::time::Duration;

use crate::cache::Sign;
use crate::events::EventType;
use crate::model::Kind;

/// A reason to do nothing now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Hold {
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
    OutOfServiceUnproved {
        /// Its name.
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
    /// As long as nobody changes it or scales, no eviction will ever be let through.
    #[error(
        "no eviction can ever be let through: {desired} of {expected} pods must be healthy. Use maxUnavailable: 1, or scale up"
    )]
    NeverAllows {
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
    NotDeleted {
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
    MaybeItIsUs {
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
        Sign::MirrorPodCreated => "it created a mirror pod",
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

impl Hold {
    /// The reason in one CamelCase word, for metrics, Events and programs.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NotSynced { .. } => "NotSynced",
            Self::Stale { .. } => "Stale",
            Self::NodeUnreadable { .. } => "NodeUnreadable",
            Self::Quarantine { .. } => "Quarantine",
            Self::KubeletAlive { .. } => "KubeletAlive",
            Self::OutOfServiceUnproved { .. } => "OutOfServiceUnproved",
            Self::OutOfServiceButReady { .. } => "OutOfServiceButReady",
            Self::TerminalButRunning => "TerminalButRunning",
            Self::PhaseUnreadable => "PhaseUnreadable",
            Self::NoPods => "NoPods",
            Self::BudgetFailed { .. } => "BudgetFailed",
            Self::UnmanagedPods { .. } => "UnmanagedPods",
            Self::PodsNotCounted { .. } => "PodsNotCounted",
            Self::NeverAllows { .. } => "NeverAllows",
            Self::MultipleBudgets { .. } => "MultipleBudgets",
            Self::NotDeleted { .. } => "NotDeleted",
            Self::ScaleAsked { .. } => "ScaleAsked",
            Self::Tolerated { .. } => "Tolerated",
            Self::TolerationUnreadable { .. } => "TolerationUnreadable",
            Self::MaybeItIsUs { .. } => "MaybeItIsUs",
            Self::ZoneDisrupted { .. } => "ZoneDisrupted",
            Self::EvictionQueued { .. } => "EvictionQueued",
            Self::Finalizers { .. } => "Finalizers",
        }
    }

    /// Every reason of a controller that removes pods, for metrics that must exist
    /// before they count.
    pub const OF_PODS: &'static [&'static str] = &[
        "NotSynced",
        "Stale",
        "NodeUnreadable",
        "Quarantine",
        "KubeletAlive",
        "OutOfServiceUnproved",
        "OutOfServiceButReady",
        "TerminalButRunning",
        "PhaseUnreadable",
        "Finalizers",
    ];

    /// Every reason of the controller of disruption budgets.
    pub const OF_BUDGETS: &'static [&'static str] = &[
        "NotSynced",
        "Stale",
        "NoPods",
        "BudgetFailed",
        "UnmanagedPods",
        "PodsNotCounted",
        "NeverAllows",
        "MultipleBudgets",
        "NotDeleted",
        "ScaleAsked",
    ];

    /// Every reason of the controller of taints.
    pub const OF_TAINTS: &'static [&'static str] =
        &["NotSynced", "Stale", "NodeUnreadable", "Tolerated", "TolerationUnreadable"];

    /// Every reason of the controller of lost nodes.
    pub const OF_NODES: &'static [&'static str] =
        &["NotSynced", "Stale", "NodeUnreadable", "MaybeItIsUs", "ZoneDisrupted", "EvictionQueued"];

    /// A deletion follows when its time has passed; if it ends otherwise, that is
    /// called off. There may be one for each pod of a lost zone: people look them up,
    /// nobody writes them down.
    #[must_use]
    pub const fn counts_down(&self) -> bool {
        matches!(self, Self::Tolerated { .. })
    }

    /// The Event by which people hear of it; `None`: it will pass by itself. What
    /// KCM has an Event for has its type and reason.
    #[must_use]
    pub const fn event(&self) -> Option<(EventType, &'static str)> {
        match self {
            Self::NotSynced { .. }
            | Self::Stale { .. }
            | Self::Quarantine { .. }
            | Self::NeverAllows { .. }
            | Self::ScaleAsked { .. }
            | Self::Tolerated { .. }
            | Self::MaybeItIsUs { .. }
            | Self::ZoneDisrupted { .. }
            | Self::EvictionQueued { .. }
            | Self::Finalizers { .. } => None,
            Self::NodeUnreadable { .. }
            | Self::KubeletAlive { .. }
            | Self::OutOfServiceUnproved { .. }
            | Self::OutOfServiceButReady { .. }
            | Self::TerminalButRunning
            | Self::PhaseUnreadable => Some((EventType::Warning, FORCE_DELETE_HELD)),
            Self::TolerationUnreadable { .. } => Some((EventType::Warning, "TaintEvictionHeld")),
            Self::NoPods => Some((EventType::Normal, "NoPods")),
            Self::BudgetFailed { .. } => Some((EventType::Warning, "CalculateExpectedPodCountFailed")),
            Self::UnmanagedPods { .. } => Some((EventType::Warning, "UnmanagedPods")),
            Self::PodsNotCounted { .. } => Some((EventType::Warning, "PodsNotCounted")),
            Self::MultipleBudgets { .. } => Some((EventType::Warning, "MultiplePodDisruptionBudgets")),
            Self::NotDeleted { .. } => Some((EventType::Warning, "NotDeleted")),
        }
    }
}

/// The reason of Events about force deletions that are held; their messages begin
/// with the hold's own.
pub const FORCE_DELETE_HELD: &str = "ForceDeleteHeld";
