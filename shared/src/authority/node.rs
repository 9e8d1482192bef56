//! What a controller wants written to a node: one update for all of it, because there is one turn of each node at a time.

use jiff::Timestamp;

use crate::clock::Mono;
use crate::model::{NodeKey, Rv};

/// The effects of the taints that controllers keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// No new pods.
    NoSchedule,
    /// No new pods, and those there end unless they tolerate it.
    NoExecute,
}

/// A taint that a controller keeps. Their values are empty.
pub type OurTaint = (&'static str, Effect);

/// Nothing was heard of a kubelet for longer than the grace: a belief, which a quorum read of Node and Lease must bear out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silence {
    /// When we last saw a sign of life.
    pub last_heard: Mono,
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
    pub silent: Option<Silence>,
    /// What the condition `pod-safety.dev/NodeUnreachable` should say; `None`: it stays.
    pub unreachable: Option<bool>,
    /// Taints that should be there.
    pub add: Vec<OurTaint>,
    /// Taints that should not.
    pub remove: Vec<OurTaint>,
    /// Labels that should have these values.
    pub labels: Vec<(&'static str, std::sync::Arc<str>)>,
}
