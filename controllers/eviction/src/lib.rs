//! # Evictions that are asked for
//!
//! **Duty.** Serve the Eviction API of Kubernetes (KEP-4563, `lifecycle.k8s.io/v1alpha1`), whose controllers
//! kube-controller-manager 1.37 does not have: each pod for which somebody has an EvictionRequest gets one Eviction, whose
//! responders have their turns until the pod is gone; the last one asks the API server to evict it.
//!
//! **Inputs.** EvictionRequests, Evictions, pods, budgets, nodes and NodeFences.
//!
//! **Intents.**
//!
//! | rule | write |
//! |---|---|
//! | a request is new, invalid, or its Eviction says something new | `evictionrequests/status` |
//! | a pod is asked for, and no Eviction of it goes on | POST of an Eviction |
//! | a responder is done, silent for too long, or the pod is gone | `evictions/status` |
//! | requesters or responders changed | labels and owners of an Eviction |
//! | it is the turn of `imperative-eviction.k8s.io/evictor` | POST `pods/eviction`, and its answer to `evictions/status` |
//! | it is the turn of `pod-safety.dev/lost-node` | `evictions/status` |
//! | a pod has more than three failed Evictions of ours | DELETE of the oldest |
//!
//! **Invariants.** One Eviction of a pod goes on at a time, and one responder of it is active. A state never goes back. What
//! is final is written only after quorum reads, by compare-and-swap within the leader's term. An eviction never deletes
//! without grace, and never a pod of another UID. `TargetEvicted` is no evidence: nothing that removes pods or frees volumes
//! reads it.
//!
//! | file | says |
//! |---|---|
//! | `decide` | which of the rules below apply |
//! | `scene` | what is known of one pod |
//! | `requests` | what a request says |
//! | `evictions` | which Evictions there should be, and whose they are |
//! | `progress` | whose turn it is |
//! | `evictor`, `lost_node` | what our responders do |
#![forbid(unsafe_code)]

mod context;
mod decide;
mod evictions;
mod evictor;
mod holds;
mod lost_node;
mod metrics;
mod progress;
mod requests;
mod run;

pub use decide::{Key, decide};
pub use evictor::{Attempts, parse_attempts};
pub use holds::{Decision, Hold};
pub use progress::{GRACEFUL_COMPLETION, heartbeat_deadline};
pub use run::EvictionController;

#[cfg(test)]
mod tests;
