//! A controller's changes to a node: one update has all of them, because a node has one write at a time.
//!
//! Source of the contract: `pkg/controller/nodelifecycle` (`tryUpdateNodeHealth`, `doNoScheduleTaintingPass`) and
//! `pkg/controller` (`PatchNodeTaints`), v1.37.2.
//!
//! The write terminates no process at once, so it needs no evidence. But pods that do not tolerate a `NoExecute` taint are
//! evicted because of it, and a node whose conditions are Unknown gets no traffic. So the cache only gives a suspicion: a
//! quorum read of Node and Lease comes first, and decides. There are at most two reads and two writes: the status, then
//! taints and labels. Invariants: all requests are sent within the leader's term. Each write carries the UID and the
//! version of the read, or of the answer, before it. Fields of the node that an update does not name stay unchanged,
//! unknown fields and their order included. No update adds the taint `node.kubernetes.io/out-of-service` (see [`taints`]).

mod conditions;
mod live;
mod record;
mod taints;
mod write;

use jiff::Timestamp;

use crate::clock::Mono;
use crate::model::{NO_EXECUTE, NodeKey, Rv};

pub(super) use record::NODE_NOT_READY;
pub(super) use write::NodeChanges;
use write::write;

/// The effects of the taints that controllers manage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// No new pods are scheduled.
    NoSchedule,
    /// No new pods are scheduled, and running pods that do not tolerate the taint are evicted.
    NoExecute,
}

impl Effect {
    /// The value in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::NoExecute => NO_EXECUTE,
        }
    }
}

/// The key and effect of a taint that a controller manages. Its value is empty.
pub type ManagedTaint = (&'static str, Effect);

/// A kubelet has not reported for longer than the grace period, according to the cache. A quorum read of Node and Lease
/// must confirm it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotReporting {
    /// When this process last saw a report.
    pub last_report: Mono,
    /// The Lease's `renewTime` in the cache; `None`: there is no Lease, or it has none.
    pub renewed: Option<Timestamp>,
    /// `lastHeartbeatTime` of the Ready condition in the cache.
    pub heartbeat: Option<Timestamp>,
    /// The node never had a Ready condition.
    pub never_posted: bool,
}

/// The changes to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeUpdate {
    /// The node.
    pub node: NodeKey,
    /// The version on which the decision rests.
    pub rv: Rv,
    /// If set, the conditions become Unknown, provided that a quorum read returns Node and Lease as the cache has them.
    pub not_reporting: Option<NotReporting>,
    /// The status of the condition `pod-safety.dev/NodeUnreachable`; `None`: it stays.
    pub unreachable: Option<bool>,
    /// Taints to add.
    pub add: Vec<ManagedTaint>,
    /// Taints to remove.
    pub remove: Vec<ManagedTaint>,
    /// Labels to set.
    pub labels: Vec<(&'static str, std::sync::Arc<str>)>,
}

#[cfg(test)]
mod tests;
