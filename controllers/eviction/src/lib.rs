//! # Requested evictions
//!
//! **Duty.** Serve the Eviction API of Kubernetes (KEP-4563, `lifecycle.k8s.io/v1alpha1`), whose controllers
//! kube-controller-manager 1.37 does not have: each pod with an EvictionRequest gets one Eviction, whose responders
//! are active in turn until the pod is gone; the last one evicts it through the API server.
//!
//! **Inputs.** EvictionRequests, Evictions, pods, budgets, nodes and NodeFences.
//!
//! **Intents.**
//!
//! | rule | write |
//! |---|---|
//! | a request is new, invalid, or its Eviction changed | `evictionrequests/status` |
//! | a pod has an open request, and no active Eviction | POST of an Eviction |
//! | a responder is completed, has not reported for too long, or the pod is gone | `evictions/status` |
//! | requesters or responders changed | labels and owners of an Eviction |
//! | `imperative-eviction.k8s.io/evictor` is active | POST `pods/eviction`, and its answer to `evictions/status` |
//! | `pod-safety.dev/lost-node` is active | `evictions/status` |
//! | a pod has more than three failed Evictions of ours | DELETE of the oldest |
//!
//! **Invariants.** One Eviction of a pod is active at a time, and one responder of it. A state never goes back. Final
//! states are written only after quorum reads, by compare-and-swap within the leader's term. An eviction never
//! deletes without the grace period, and never a pod of another UID. `TargetEvicted` is no evidence: nothing that
//! removes pods or frees volumes reads it.
//!
//! | file | decides |
//! |---|---|
//! | `decide` | which of the rules below apply |
//! | `context` | the objects about one pod |
//! | `requests` | the status of requests |
//! | `evictions` | which Evictions should exist, and their owners |
//! | `progress` | which responder is active, and how an Eviction ends |
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
pub use holds::{Decision, Hold};
pub use run::EvictionController;

#[cfg(test)]
mod tests;
