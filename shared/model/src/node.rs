//! A node as decisions see it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::{BootId, Incarnation, Mono, Rv, Taint, Uid};

/// The taint by which somebody asserts that a node is off (KEP-2268).
pub const OUT_OF_SERVICE_TAINT: &str = "node.kubernetes.io/out-of-service";

/// The taint of a node whose kubelet says that it is not ready.
pub const NOT_READY_TAINT: &str = "node.kubernetes.io/not-ready";

/// The taint of a node whose kubelet is silent.
pub const UNREACHABLE_TAINT: &str = "node.kubernetes.io/unreachable";

/// Our taint on a node whose kubelet has been silent for long enough to doubt it, and not for
/// long enough to say that it is lost.
pub const SUSPECT_TAINT: &str = "pod-safety.dev/suspect";

/// The node's Ready condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Its kubelet says that it is well.
    Ready,
    /// Its kubelet says that it is not.
    NotReady,
    /// Nobody heard of it.
    Unknown,
    /// It has no Ready condition.
    Missing,
}

/// Our condition on nodes and on pods that terminate there: the node is cut off, so nobody can say whether
/// they still run (seed 001's partition condition).
pub const NODE_UNREACHABLE_CONDITION: &str = "pod-safety.dev/NodeUnreachable";

/// What a condition says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConditionState {
    /// It is there and true.
    True,
    /// It is there and false.
    False,
    /// It is there, and says neither.
    Unknown,
    /// It is not there.
    #[default]
    Missing,
}

impl ConditionState {
    /// Reads the status of a condition that is there.
    #[must_use]
    pub fn parse(word: Option<&str>) -> Self {
        match word {
            Some("True") => Self::True,
            Some("False") => Self::False,
            _ => Self::Unknown,
        }
    }
}

/// The conditions beside Ready that become taints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressures {
    /// `MemoryPressure`.
    pub memory: ConditionState,
    /// `DiskPressure`.
    pub disk: ConditionState,
    /// `PIDPressure`.
    pub pid: ConditionState,
    /// `NetworkUnavailable`.
    pub network: ConditionState,
}

/// A condition that a node shows, beside Ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedCondition {
    /// Its type.
    pub kind: Arc<str>,
    /// Its status.
    pub state: ConditionState,
    /// When this process first saw it like this, in this boot.
    pub first_seen: Mono,
}

/// Which node: a name may be used again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeKey {
    /// Its name.
    pub name: Arc<str>,
    /// Its identity.
    pub uid: Uid,
}

/// What fencing asks of a node: which machine it is, which life of it, and what is said of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeDetails {
    /// `status.nodeInfo.bootID`.
    pub boot_id: BootId,
    /// `status.nodeInfo.systemUUID`, empty if nobody says.
    pub system_uuid: Box<str>,
    /// `spec.providerID`, empty if nobody says.
    pub provider_id: Box<str>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// An annotation or a label by which somebody wants it left alone.
    pub remediation_excluded_by: Option<&'static str>,
    /// The value of its taint [`OUT_OF_SERVICE_TAINT`], if it has one.
    pub out_of_service: Option<Box<str>>,
    /// Its conditions beside Ready: the first [`NodeDetails::MAX_CONDITIONS`].
    pub conditions: Box<[ReportedCondition]>,
    /// When this process first saw this boot: it began before.
    pub boot_first_seen: Mono,
    /// When this process saw its condition Ready change, in this boot: the last [`NodeDetails::MAX_READY_CHANGES`].
    pub ready_changes: Box<[Mono]>,
}

impl NodeDetails {
    /// A node has about ten conditions. A kubelet may write thousands, and they are kept for each node.
    pub const MAX_CONDITIONS: usize = 64;

    /// As many as a FencePolicy may count (`unhealthy.flapping.changes`).
    pub const MAX_READY_CHANGES: usize = 16;

    /// What was known `before` of the same boot goes on: since when it is known, since when its conditions are as they are, and
    /// when Ready changed.
    pub fn carry_over(&mut self, before: &Self, changed: Option<Mono>) {
        if before.boot_id != self.boot_id {
            return;
        }
        self.boot_first_seen = before.boot_first_seen;
        for condition in &mut self.conditions {
            let same = |one: &&ReportedCondition| one.kind == condition.kind && one.state == condition.state;
            if let Some(earlier) = before.conditions.iter().find(same) {
                condition.first_seen = earlier.first_seen;
            }
        }
        let changes = before.ready_changes.iter().copied().chain(changed);
        let excess = (before.ready_changes.len() + usize::from(changed.is_some()))
            .saturating_sub(Self::MAX_READY_CHANGES);
        self.ready_changes = changes.skip(excess).collect();
    }
}

/// A node as decisions see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: Arc<str>,
    /// Its identity: a node re-registered under the same name is another one.
    pub uid: Uid,
    /// The version that was read.
    pub rv: Rv,
    /// Its Ready condition.
    pub readiness: Readiness,
    /// It carries [`OUT_OF_SERVICE_TAINT`], with any value and effect (KCM's reading).
    pub out_of_service: bool,
    /// Its taints that end pods, in its own order.
    pub no_execute: Box<[Taint]>,
    /// The keys of its taints with the effect `NoSchedule`.
    pub no_schedule: Box<[Arc<str>]>,
    /// When its Ready condition last changed its status, in seconds of the clock of whoever wrote it.
    pub ready_since: Option<i64>,
    /// `lastHeartbeatTime` of its Ready condition: compared for change, never with our time.
    pub heartbeat: Option<Timestamp>,
    /// Its other conditions.
    pub pressures: Pressures,
    /// Our condition [`NODE_UNREACHABLE_CONDITION`].
    pub unreachable: ConditionState,
    /// `spec.unschedulable`: it is cordoned.
    pub unschedulable: bool,
    /// Region and zone in one text, empty if neither is known; KCM's key (`GetZoneKey`).
    pub zone: Arc<str>,
    /// It has the label `node.kubernetes.io/exclude-disruption`: zones do not count it.
    pub excluded: bool,
    /// The labels that should have these values (`beta.kubernetes.io/os` and `arch`) and have not.
    pub stale_labels: Box<[(&'static str, Arc<str>)]>,
    /// `creationTimestamp`, seconds of the API server's clock.
    pub created: i64,
    /// When this process first saw it.
    pub first_seen: Mono,
    /// How old it was then, by its creation stamp.
    pub age: Duration,
    /// When this process last saw its kubelet report something; at first when it saw the node.
    pub last_report: Mono,
    /// When this process first saw its Ready condition as it is.
    pub readiness_since: Mono,
    /// Kept where nodes are fenced, or volumes guarded.
    pub details: Option<Arc<NodeDetails>>,
    /// The attachable volumes that its kubelet has mounted or is about to, by their unique names and in order.
    /// Kept where volumes are guarded.
    pub volumes_in_use: Box<[Box<str>]>,
    /// Its kubelet is of a version that reports at once that it saw the deletion of a pod (Kubernetes 1.34).
    pub reports_deletions: bool,
}

impl Node {
    /// Which node it is.
    #[must_use]
    pub fn key(&self) -> NodeKey {
        NodeKey { name: Arc::clone(&self.name), uid: self.uid.clone() }
    }

    /// Its labels; none where they are not kept.
    #[must_use]
    pub fn labels(&self) -> &BTreeMap<String, String> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        self.details.as_ref().map_or(&NONE, |life| &life.labels)
    }

    /// The boot of its machine, as far as it is kept and known.
    #[must_use]
    pub fn boot(&self) -> BootId {
        self.details.as_ref().map(|life| life.boot_id).unwrap_or_default()
    }

    /// Whether it is in this life.
    #[must_use]
    pub fn matches_incarnation(&self, incarnation: &Incarnation) -> bool {
        self.boot().is_known_same(incarnation.boot()) && self.uid.to_string() == incarnation.uid
    }

    /// The life in which it is, if it says so; nobody asks where nodes are not fenced.
    #[must_use]
    pub fn incarnation(&self) -> Option<Incarnation> {
        let boot_id = Some(self.boot()).filter(|id| !id.is_unknown())?.to_string();
        Some(Incarnation { name: self.name.to_string(), uid: self.uid.to_string(), boot_id })
    }

    /// The taint that ends pods and says why the node is not ready; it may have both.
    pub fn lost_taints(&self) -> impl Iterator<Item = &Taint> {
        self.no_execute.iter().filter(|taint| matches!(&*taint.key, NOT_READY_TAINT | UNREACHABLE_TAINT))
    }

    /// Whether its pods should not be sent to it, by a taint of this key.
    #[must_use]
    pub fn has_no_schedule_taint(&self, key: &str) -> bool {
        self.no_schedule.iter().any(|one| **one == *key)
    }

    /// Whether a sign of life would change what is thought of it.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        self.readiness != Readiness::Ready || self.has_no_schedule_taint(SUSPECT_TAINT)
    }

    /// Whether another state of the same node differs from it in no more than its version and
    /// the time of its kubelet's last report.
    pub fn differs_only_in_heartbeat(&self, after: &Self) -> bool {
        *after
            == Self {
                rv: after.rv,
                heartbeat: after.heartbeat,
                last_report: after.last_report,
                ..self.clone()
            }
    }
}

/// A zone for people. KCM's key is region and zone with a null character between.
#[must_use]
pub fn describe_zone(zone: &str) -> String {
    match zone.split_once(":\0:") {
        None => "the cluster".to_owned(),
        Some(("", zone)) => format!("zone {zone}"),
        Some((region, "")) => format!("region {region}"),
        Some((region, zone)) => format!("zone {zone} of region {region}"),
    }
}
