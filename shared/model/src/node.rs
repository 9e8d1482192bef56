//! A Node: the fields that decisions read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::{BootId, Incarnation, Mono, Rv, Taint, Uid};

/// The taint by which an operator asserts that a node is off (KEP-2268).
pub const OUT_OF_SERVICE_TAINT: &str = "node.kubernetes.io/out-of-service";

/// The taint of a node whose kubelet reports that it is not Ready.
pub const NOT_READY_TAINT: &str = "node.kubernetes.io/not-ready";

/// The taint of a node whose kubelet does not report.
pub const UNREACHABLE_TAINT: &str = "node.kubernetes.io/unreachable";

/// pod-safety's taint on a node whose kubelet has not reported for a while, but not for long enough to count as lost.
pub const SUSPECT_TAINT: &str = "pod-safety.dev/suspect";

/// The node's Ready condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Its kubelet reports that it is ready.
    Ready,
    /// Its kubelet reports that it is not ready.
    NotReady,
    /// The kubelet has not reported for too long.
    Unknown,
    /// It has no Ready condition.
    Missing,
}

/// pod-safety's condition on nodes and on pods that terminate there: the node is unreachable, so whether they still
/// run is unknown.
pub const NODE_UNREACHABLE_CONDITION: &str = "pod-safety.dev/NodeUnreachable";

/// The state of a condition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConditionState {
    /// Its status is `True`.
    True,
    /// Its status is `False`.
    False,
    /// It has another status.
    Unknown,
    /// The node has no such condition.
    #[default]
    Missing,
}

impl ConditionState {
    /// Parses the status of a condition.
    #[must_use]
    pub fn parse(status: Option<&str>) -> Self {
        match status {
            Some("True") => Self::True,
            Some("False") => Self::False,
            _ => Self::Unknown,
        }
    }
}

/// The conditions besides Ready that become taints.
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

/// A condition of a node, other than Ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedCondition {
    /// Its type.
    pub kind: Arc<str>,
    /// Its status.
    pub state: ConditionState,
    /// When this process first saw it with this status, in this boot.
    pub first_seen: Mono,
}

/// The identity of a node: names can be used again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeKey {
    /// Its name.
    pub name: Arc<str>,
    /// The UID.
    pub uid: Uid,
}

/// The fields of a node that fencing reads: which machine and which boot it is, and its labels and conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeDetails {
    /// `status.nodeInfo.bootID`.
    pub boot_id: BootId,
    /// `status.nodeInfo.systemUUID`, empty if it is missing.
    pub system_uuid: Box<str>,
    /// `spec.providerID`, empty if it is missing.
    pub provider_id: Box<str>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The annotation or label that excludes it from remediation, if it has one.
    pub remediation_excluded_by: Option<&'static str>,
    /// The value of its taint [`OUT_OF_SERVICE_TAINT`], if it has one.
    pub out_of_service: Option<Box<str>>,
    /// Its conditions other than Ready: the first [`NodeDetails::MAX_CONDITIONS`].
    pub conditions: Box<[ReportedCondition]>,
    /// When this process first saw this boot, which began before.
    pub boot_first_seen: Mono,
    /// When this process saw its condition Ready change, in this boot: the last [`NodeDetails::MAX_READY_CHANGES`].
    pub ready_changes: Box<[Mono]>,
}

impl NodeDetails {
    /// A node has about ten conditions. A kubelet may write thousands, and they would be kept for each node.
    pub const MAX_CONDITIONS: usize = 64;

    /// The largest number of changes that a FencePolicy may count (`unhealthy.flapping.changes`).
    pub const MAX_READY_CHANGES: usize = 16;

    /// Keeps from `before`, if it has the same boot ID: when the boot was first seen, since when each condition has
    /// its status, and when Ready changed. `changed`: when Ready changed now, if it did.
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
        let excess =
            (before.ready_changes.len() + usize::from(changed.is_some())).saturating_sub(Self::MAX_READY_CHANGES);
        self.ready_changes = changes.skip(excess).collect();
    }
}

/// A node as decisions see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: Arc<str>,
    /// The UID: a node registered again under the same name is another one.
    pub uid: Uid,
    /// The version that was read.
    pub rv: Rv,
    /// Its Ready condition.
    pub readiness: Readiness,
    /// Whether it has [`OUT_OF_SERVICE_TAINT`], with any value and effect, as KCM reads it.
    pub out_of_service: bool,
    /// Its NoExecute taints, in the order of its spec.
    pub no_execute: Box<[Taint]>,
    /// The keys of its taints with the effect `NoSchedule`.
    pub no_schedule: Box<[Arc<str>]>,
    /// `lastTransitionTime` of its Ready condition, in seconds of the writer's clock.
    pub ready_since: Option<i64>,
    /// `lastHeartbeatTime` of its Ready condition: only compared for change, never with this process's time.
    pub heartbeat: Option<Timestamp>,
    /// Its other conditions.
    pub pressures: Pressures,
    /// The condition [`NODE_UNREACHABLE_CONDITION`].
    pub unreachable: ConditionState,
    /// `spec.unschedulable`: it is cordoned.
    pub unschedulable: bool,
    /// Region and zone in one text, empty if it has neither; KCM's key (`GetZoneKey`).
    pub zone: Arc<str>,
    /// Whether it has the label `node.kubernetes.io/exclude-disruption`: zones do not count it.
    pub excluded: bool,
    /// The labels that should have these values (`beta.kubernetes.io/os` and `arch`) and do not.
    pub stale_labels: Box<[(&'static str, Arc<str>)]>,
    /// `creationTimestamp`, seconds of the API server's clock.
    pub created: i64,
    /// When this process first saw it.
    pub first_seen: Mono,
    /// How old it was then, by its creation timestamp.
    pub age: Duration,
    /// When this process last saw a report of its kubelet in the Node's status; initially when it first saw the Node.
    pub last_report: Mono,
    /// When this process first saw its Ready condition with this status.
    pub readiness_since: Mono,
    /// Kept where nodes are fenced, or volumes guarded.
    pub details: Option<Arc<NodeDetails>>,
    /// The attachable volumes that its kubelet has mounted or is about to mount, by their unique names, sorted. Kept
    /// where volumes are guarded.
    pub volumes_in_use: Box<[Box<str>]>,
    /// Whether its kubelet has a version that reports at once that it saw the deletion of a pod (Kubernetes 1.34).
    pub reports_deletions: bool,
}

impl Node {
    /// Its name and UID.
    #[must_use]
    pub fn key(&self) -> NodeKey {
        NodeKey { name: Arc::clone(&self.name), uid: self.uid.clone() }
    }

    /// Its labels; none where they are not kept.
    #[must_use]
    pub fn labels(&self) -> &BTreeMap<String, String> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        self.details.as_ref().map_or(&NONE, |details| &details.labels)
    }

    /// The boot ID of its machine, if it is kept and known.
    #[must_use]
    pub fn boot(&self) -> BootId {
        self.details.as_ref().map(|details| details.boot_id).unwrap_or_default()
    }

    /// Whether the node is in this incarnation.
    #[must_use]
    pub fn matches_incarnation(&self, incarnation: &Incarnation) -> bool {
        self.boot().is_known_same(incarnation.boot()) && self.uid.to_string() == incarnation.uid
    }

    /// Its current incarnation, if its boot ID is known. Where nodes are not fenced that is not kept.
    #[must_use]
    pub fn incarnation(&self) -> Option<Incarnation> {
        let boot_id = Some(self.boot()).filter(|id| !id.is_unknown())?.to_string();
        Some(Incarnation { name: self.name.to_string(), uid: self.uid.to_string(), boot_id })
    }

    /// Its taints not-ready and unreachable with the effect NoExecute; it may have both.
    pub fn lost_taints(&self) -> impl Iterator<Item = &Taint> {
        self.no_execute.iter().filter(|taint| matches!(&*taint.key, NOT_READY_TAINT | UNREACHABLE_TAINT))
    }

    /// Whether it has a NoSchedule taint with this key.
    #[must_use]
    pub fn has_no_schedule_taint(&self, key: &str) -> bool {
        self.no_schedule.iter().any(|one| **one == *key)
    }

    /// Whether a report would change a decision about it.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        self.readiness != Readiness::Ready || self.has_no_schedule_taint(SUSPECT_TAINT)
    }

    /// Whether `after`, a later state of the same node, differs only in its version and in the time of the kubelet's
    /// last report.
    pub fn differs_only_in_heartbeat(&self, after: &Self) -> bool {
        *after == Self { rv: after.rv, heartbeat: after.heartbeat, last_report: after.last_report, ..self.clone() }
    }
}

/// A zone as text for messages. KCM's key is region and zone with a null character between.
#[must_use]
pub fn describe_zone(zone: &str) -> String {
    match zone.split_once(":\0:") {
        None => "the cluster".to_owned(),
        Some(("", zone)) => format!("zone {zone}"),
        Some((region, "")) => format!("region {region}"),
        Some((region, zone)) => format!("zone {zone} of region {region}"),
    }
}
