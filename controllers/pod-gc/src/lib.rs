//! # Pod garbage collection
//!
//! **Duty.** Remove the API objects of pods whose processes cannot run, and of no
//! others: the only controller that asks for force deletion.
//!
//! **Inputs.** Pods, nodes, the Leases of nodes; first quorum reads of missing
//! nodes (from the authority); evidence, where the controller `fencing` runs.
//!
//! **Intents.**
//!
//! | rule | belief | claim | KCM's metric reason |
//! |---|---|---|---|
//! | orphaned | the node has been missing for the quarantine and its kubelet is silent, and was before the Node went | `NodeGone` | `orphaned` |
//! | orphaned | the same, but the kubelet was active until then: the pod is deleted gracefully first, and a quarantine of silence follows | `NodeGone` | `orphaned` |
//! | orphaned | the kubelet renews its Lease without a Node for five minutes: the pods are deleted gracefully | – | – |
//! | fenced | terminating, on a node that is not Ready and about whose life there is evidence | `Fenced` | `out-of-service` |
//! | out of service | terminating, on a node that is not Ready and carries the taint, *if* the operator trusts the taint | `OutOfService` | `out-of-service` |
//! | unscheduled | terminating, and no node ever took it | `NeverScheduled` | `unscheduled` |
//! | overdue | terminating, on a node whose kubelet reports; its grace period is over, its kubelet saw the deletion, and the reports of agents are accepted | `PodsEnded` | `terminated` |
//! | terminated | more than the threshold have ended; evicted ones first, then the oldest | `KubeletTerminated` | `terminated` |
//!
//! **Invariants.** A belief is never an act: the authority verifies each claim by
//! live reads. A node that cannot be read is not missing. A quarantine starts
//! anew with every sign of life. The same rules as kube-controller-manager's
//! PodGC (`pkg/controller/podgc`), but for its holes H-1, H-3, H-4 and H-5.
#![forbid(unsafe_code)]

mod config;
mod decide;
mod holds;
mod metrics;
mod run;

pub use config::Config;
pub use decide::{Key, decide};
pub use holds::{Decision, Hold};
pub use run::PodGc;

#[cfg(test)]
mod tests;
