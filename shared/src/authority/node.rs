//! What a controller wants written to a node: one update for all of it, because there is one turn of each node at a time.
//!
//! Source of the contract: `pkg/controller/nodelifecycle` (`tryUpdateNodeHealth`, `doNoScheduleTaintingPass`) and
//! `pkg/controller` (`PatchNodeTaints`), v1.37.2.
//!
//! Nothing ends by it at once, so it needs no evidence; but pods that bear no `NoExecute` taint do end by one, and no
//! endpoint leads to a node whose kubelet is called silent. So the cache only suspects: a quorum read of Node and Lease
//! comes first, and what it finds decides. At most two reads and two writes: the status, then taints and labels.
//! Invariants: all of it falls into the leader's term; each write carries the UID and the version of the read, or of
//! the answer, before it; whatever of the node is not named here stays as it is, unknown fields and their order
//! included; nobody adds the taint `node.kubernetes.io/out-of-service` (see [`taints`]).

mod conditions;
mod live;
mod taints;
mod write;

use jiff::Timestamp;

use crate::clock::Mono;
use crate::model::{NO_EXECUTE, NodeKey, Rv};

pub(super) use write::{NodeChanges, write};

/// The effects of the taints that controllers keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// No new pods.
    NoSchedule,
    /// No new pods, and those there end unless they tolerate it.
    NoExecute,
}

impl Effect {
    /// The API's word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::NoExecute => NO_EXECUTE,
        }
    }
}

/// A taint that a controller keeps. Their values are empty.
pub type ManagedTaint = (&'static str, Effect);

/// Nothing was heard of a kubelet for longer than the grace: a belief, which a quorum read of Node and Lease must bear out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotReporting {
    /// When we last saw a sign of life.
    pub last_report: Mono,
    /// The Lease's `renewTime` as the cache has it; `None`: there is no Lease, or it says nothing.
    pub renewed: Option<Timestamp>,
    /// `lastHeartbeatTime` of the Ready condition as the cache has it.
    pub heartbeat: Option<Timestamp>,
    /// It never had a Ready condition.
    pub never_posted: bool,
}

/// What should be written to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeUpdate {
    /// Which one.
    pub node: NodeKey,
    /// The version on which the decision rests.
    pub rv: Rv,
    /// Its conditions become Unknown, if a quorum read finds Node and Lease as the cache has them.
    pub not_reporting: Option<NotReporting>,
    /// What the condition `pod-safety.dev/NodeUnreachable` should say; `None`: it stays.
    pub unreachable: Option<bool>,
    /// Taints that should be there.
    pub add: Vec<ManagedTaint>,
    /// Taints that should not.
    pub remove: Vec<ManagedTaint>,
    /// Labels that should have these values.
    pub labels: Vec<(&'static str, std::sync::Arc<str>)>,
}

#[cfg(test)]
mod tests;
