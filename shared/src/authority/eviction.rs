//! Writes about requested evictions (KEP-4563): EvictionRequests, Evictions, and the reports of pod-safety's responders.
//!
//! Danger note: a condition that is `True` never changes again, so what it rests on is read by quorum first: that a pod
//! exists or does not, that requests still ask for the eviction, that an older Eviction exists. None of this shows that a
//! process has ended: `TargetEvicted` repeats a pod's phase, which any client may have written, and no code that removes
//! pods or releases volumes reads it. Each write carries the UID and the version on which the decision rests, and is sent
//! within the leader's term.

mod body;
mod check;
mod record;
mod write;

use std::sync::atomic::AtomicI64;

use parking_lot::Mutex;

use write::write;

use crate::model::{EvictionRole, PodKey, Requester, ResponderState, Rv, Uid};
use check::Lists;

/// A write about the eviction of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictionUpdate {
    /// The pod.
    pub pod: PodKey,
    /// The name of the EvictionRequest or Eviction that is written. Empty for an Eviction that is created.
    pub name: Box<str>,
    /// The UID of the written object; for an Eviction that is created: the pod's UID.
    pub uid: Uid,
    /// The version on which the decision rests.
    pub rv: Rv,
    /// The change.
    pub change: EvictionChange,
}

/// The change that is written.
#[derive(Clone, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum EvictionChange {
    /// Write the status of an EvictionRequest.
    Request {
        /// The observed generation.
        observed: i64,
        /// The conditions; `None`: they stay. A final condition of a request was final on its Eviction before.
        conditions: Option<Box<ConditionChanges>>,
    },
    /// Mark an EvictionRequest as invalid, if a quorum read shows it: the pod does not exist, has another UID, or is
    /// scheduled in a group.
    Refuse {
        /// The observed generation.
        observed: i64,
        /// Whether the statuses of `Failed` and `TargetEvicted` change, or are new.
        transitions: (bool, bool),
    },
    /// Create an Eviction.
    Create {
        /// The number in its name.
        number: u32,
        /// The EvictionRequests that own it.
        owners: Vec<OwnerRequest>,
        /// Its labels.
        labels: Vec<(Box<str>, EvictionRole)>,
    },
    /// Change the owners and labels of an Eviction.
    #[strum(serialize = "labels")]
    Mark {
        /// Further EvictionRequests that own it.
        owners: Vec<OwnerRequest>,
        /// Labels to set, or to remove (`None`).
        labels: Vec<(Box<str>, Option<EvictionRole>)>,
    },
    /// The status of an Eviction, as its controller writes it.
    Status(Box<StatusChange>),
    /// Write the report of one of pod-safety's responders.
    Report(Box<Report>),
    /// Request the eviction of the pod from the API server, and report the answer.
    Evict {
        /// The number of this attempt.
        attempt: u32,
        /// See [`Report::floor`].
        floor: i64,
        /// The last report about the pod is old enough to be renewed.
        heartbeat: bool,
    },
    /// Delete an old failed Eviction that pod-safety created.
    Collect,
}

/// An EvictionRequest that owns an Eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerRequest {
    /// Its name.
    pub name: Box<str>,
    /// Its UID.
    pub uid: Uid,
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionChange {
    /// Whether the status is `True`.
    pub is_true: bool,
    /// The reason, in CamelCase.
    pub reason: String,
    /// The message; may be empty.
    pub message: String,
    /// Whether the status changes, or is new.
    pub transition: bool,
}

/// Both conditions of an EvictionRequest or an Eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionChanges {
    /// `Failed`.
    pub failed: ConditionChange,
    /// `TargetEvicted`.
    pub evicted: ConditionChange,
}

/// What the eviction controller writes to the status of an Eviction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusChange {
    /// The observed generation.
    pub observed: i64,
    /// The responders with their priorities, if the status has none yet.
    pub responders: Vec<(Box<str>, i32)>,
    /// The states of responders that change.
    pub states: Vec<(Box<str>, ResponderState)>,
    /// The responder that becomes active.
    pub starts: Option<Box<str>>,
    /// The requesters.
    pub requesters: Vec<Requester>,
    /// The requesters to remove.
    pub dropped: Vec<Box<str>>,
    /// The conditions; `None`: they stay.
    pub conditions: Option<ConditionChanges>,
    /// The precondition of the write.
    pub check: Precondition,
}

/// What a quorum read must show before a final condition is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Precondition {
    /// No final condition is written, or one is copied that is already final.
    #[default]
    Nothing,
    /// The pod does not exist, or another pod has its name.
    PodGone,
    /// The pod exists, and its phase is terminal.
    PodTerminal,
    /// The pod exists, and its phase is not terminal.
    PodRunning,
    /// No EvictionRequest asks for the eviction.
    NotRequested,
    /// This older Eviction of the same pod has not ended.
    Duplicate {
        /// Its name.
        of: Box<str>,
        /// Its UID.
        uid: Uid,
    },
}

/// The report of a responder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The name of the responder.
    pub responder: &'static str,
    /// What it does.
    pub message: String,
    /// Whether it writes a heartbeat time.
    pub heartbeat: bool,
    /// When it expects to complete, in seconds of the API server's clock.
    pub expected: Option<i64>,
    /// Whether it has completed.
    pub complete: bool,
    /// The second of the last heartbeat, or of the start: times are later.
    pub floor: i64,
}

impl EvictionChange {
    /// The name in metrics and logs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// Every name, for metrics that must exist before they count.
    pub const NAMES: &'static [&'static str] = <Self as strum::VariantNames>::VARIANTS;
}

/// State that all writes about evictions share: recently read lists, and by how many seconds the API server's clock is ahead.
#[derive(Debug, Default)]
pub(super) struct EvictionShared {
    lists: Mutex<Lists>,
    ahead: AtomicI64,
}
