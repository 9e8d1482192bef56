//! # Draining a node
//!
//! **Duty.** Plan for every pod of a node what happens to it when the node is drained, and why: which budget blocks it,
//! in which order pods are evicted, where they would fit. Pure: the command sends the requests to the API server; this
//! crate decides which.
//!
//! **Inputs.** One [`View`](pod_safety_shared::cache::View), what pods request and what nodes have, and the API
//! server's answers to dry runs.
//!
//! **Invariants.** Nothing is deleted, only evicted. A pod that would lose data, or that no controller recreates, is
//! evicted only with an operator's consent. A pod that may run although its phase is terminal is not evicted. Pods that
//! cannot be read are not ignored. The status of an EvictionRequest is no evidence: whether a pod is gone is read from
//! the pod.

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
