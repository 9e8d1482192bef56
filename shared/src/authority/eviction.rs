//! What is written about evictions that are asked for (KEP-4563): requests, Evictions, and what our responders report.
//!
//! Danger note: a condition that is `True` is so for ever, so what it rests on is read by quorum first: a pod that is gone or
//! not, requests that still ask, an older Eviction. No process is known to have ended by any of it: `TargetEvicted` says what
//! somebody wrote into a phase, and nothing that removes pods or frees volumes reads it. Each write carries the UID and the
//! version on which the decision rests, and falls into the leader's term.

mod body;
mod check;
mod write;

use std::sync::atomic::AtomicI64;

use parking_lot::Mutex;

pub(super) use write::write;

use crate::model::{EvictionRole, PodKey, Requester, ResponderState, Rv, Uid};
use check::Lists;

/// A write about the eviction of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictionUpdate {
    /// Which pod.
    pub pod: PodKey,
    /// The name of the request or Eviction that is written; of one that is created no one's.
    pub name: Box<str>,
    /// Its identity; of an Eviction that is created the pod's.
    pub uid: Uid,
    /// The version on which the decision rests.
    pub rv: Rv,
    /// What is written.
    pub change: EvictionChange,
}

/// What is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvictionChange {
    /// The status of a request.
    Request {
        /// The generation that it is about.
        observed: i64,
        /// Its conditions; `None`: they stay. What is final of them was final of its Eviction before.
        conditions: Option<Box<ConditionChanges>>,
    },
    /// A request is invalid, if a quorum read shows it: the pod is gone, or another one, or scheduled in a group.
    Refuse {
        /// The generation that it is about.
        observed: i64,
        /// The status of `Failed` and of `TargetEvicted` changes, or they are new.
        transitions: (bool, bool),
    },
    /// A new Eviction.
    Create {
        /// The number in its name.
        number: u32,
        /// The requests that own it.
        owners: Vec<OwnerRequest>,
        /// Its labels.
        labels: Vec<(Box<str>, EvictionRole)>,
    },
    /// The owners and labels of an Eviction.
    Mark {
        /// Requests that own it, too.
        owners: Vec<OwnerRequest>,
        /// Labels that it gets, or loses.
        labels: Vec<(Box<str>, Option<EvictionRole>)>,
    },
    /// The status of an Eviction, as its controller writes it.
    Status(Box<StatusChange>),
    /// What a responder of ours says.
    Report(Box<Report>),
    /// The API server is asked to evict the pod, and what it answers is reported.
    Evict {
        /// The how manieth time.
        attempt: u32,
        /// No time that is written may lie before this second.
        floor: i64,
        /// The pod's last report is so old that it may be renewed.
        heartbeat: bool,
    },
    /// An old failed Eviction of ours goes.
    Collect,
}

/// A request that owns an Eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerRequest {
    /// Its name.
    pub name: Box<str>,
    /// Its identity.
    pub uid: Uid,
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionChange {
    /// It is `True`.
    pub is_true: bool,
    /// One word.
    pub reason: String,
    /// A sentence; may be empty.
    pub message: String,
    /// Its status changes, or it is new.
    pub transition: bool,
}

/// Both conditions of a request or an Eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionChanges {
    /// `Failed`.
    pub failed: ConditionChange,
    /// `TargetEvicted`.
    pub evicted: ConditionChange,
}

/// What its controller writes to an Eviction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusChange {
    /// The generation that it is about.
    pub observed: i64,
    /// Who evicts, with priorities, if nobody said so before.
    pub responders: Vec<(Box<str>, i32)>,
    /// States that change.
    pub states: Vec<(Box<str>, ResponderState)>,
    /// Whose turn begins.
    pub starts: Option<Box<str>>,
    /// Who asks.
    pub requesters: Vec<Requester>,
    /// Who is not named any more.
    pub dropped: Vec<Box<str>>,
    /// Its conditions; `None`: they stay.
    pub conditions: Option<ConditionChanges>,
    /// What must be true.
    pub check: Precondition,
}

/// What a quorum read must show before a condition that is final is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Precondition {
    /// Nothing final is written, or what is copied is final already.
    #[default]
    Nothing,
    /// The pod is gone, or another one has its name.
    PodGone,
    /// The pod is there, and its phase is terminal.
    PodTerminal,
    /// The pod is there, and its phase is not terminal.
    PodRunning,
    /// Nobody asks for the eviction.
    NotRequested,
    /// This older Eviction of the same pod goes on.
    Duplicate {
        /// Its name.
        of: Box<str>,
        /// Its identity.
        uid: Uid,
    },
}

/// What a responder reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Who.
    pub responder: &'static str,
    /// What it does.
    pub message: String,
    /// It shows that it works.
    pub heartbeat: bool,
    /// When it expects to be done, in seconds of the API server's clock.
    pub expected: Option<i64>,
    /// It is done.
    pub complete: bool,
    /// No time that is written may lie before this second.
    pub floor: i64,
}

impl EvictionChange {
    /// Its name in metrics and logs.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Request { .. } => "request",
            Self::Refuse { .. } => "refuse",
            Self::Create { .. } => "create",
            Self::Mark { .. } => "labels",
            Self::Status(_) => "status",
            Self::Report(_) => "report",
            Self::Evict { .. } => "evict",
            Self::Collect => "collect",
        }
    }

    /// Every name, for metrics that must exist before they count.
    pub const NAMES: [&'static str; 8] =
        ["request", "refuse", "create", "labels", "status", "report", "evict", "collect"];
}

/// What writers of evictions share: lists that were read just now, and how far the API server's clock is ahead of ours.
#[derive(Debug, Default)]
pub(super) struct EvictionShared {
    lists: Mutex<Lists>,
    ahead: AtomicI64,
}
