//! # Draining a node
//!
//! **Duty.** Say of every pod of a node what becomes of it when the node is drained,
//! and why: which budget holds it, in which order pods go, where they could go. Pure:
//! the command asks the API server and acts; this decides what it asks and does.
//!
//! **Inputs.** One [`View`](pod_safety_shared::cache::View), what pods need and what
//! nodes have, and the API server's own answers to dry runs.
//!
//! **Invariants.** Nothing is deleted, only evicted. What would lose data or would
//! not come back goes only with a person's consent; what may run although it is
//! called finished does not go at all; what cannot be read is not passed over. What
//! an EvictionRequest says is no evidence: that a pod is gone is read of the pod.

mod action;
mod cluster;
mod exceptions;
mod fit;
mod plan;
mod quantity;
mod requests;
mod rights;
mod work;

pub use action::{Action, Consent};
pub use cluster::{Cluster, DaemonSet};
pub use fit::{ClusterCapacity, Needs, NodeCapacity, Place};
pub use plan::{DryRun, EvictionMethod, Plan, Row, Summary, place, plan};
pub use requests::{EvictionRequester, Withdrawn, withdraw};
pub use rights::{missing_drain_rights, missing_right, right};
pub use work::{Count, DrainProgress, Line, Outcome, Tone};

#[cfg(test)]
mod tests;
