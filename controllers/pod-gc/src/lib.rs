//! # Pod garbage collection
//!
//! **Duty.** Remove the API objects of pods whose processes cannot run, and of no others: the only controller that
//! requests force deletes.
//!
//! **Inputs.** Pods, nodes, the Leases of nodes; first quorum reads of missing nodes; evidence, where the controller
//! `fencing` runs.
//!
//! **Intents.**
//!
//! | rule | condition | claim | KCM's metric reason |
//! |---|---|---|---|
//! | orphaned | the node has been missing for the quarantine and its kubelet does not report, and had stopped before the Node was deleted | `NodeGone` | `orphaned` |
//! | orphaned | the same, but the kubelet was active until then: the pod is deleted gracefully first, and a quarantine without a report follows | `NodeGone` | `orphaned` |
//! | orphaned | the kubelet renews its Lease without a Node for five minutes: the pods are deleted gracefully | – | – |
//! | fenced | terminating, on a node that is not Ready and with evidence about its incarnation | `Fenced` | `out-of-service` |
//! | out of service | terminating, on a node that is not Ready and carries the taint, *if* the operator trusts the taint | `OutOfService` | `out-of-service` |
//! | unscheduled | terminating, and it was never scheduled | `NeverScheduled` | `unscheduled` |
//! | overdue | terminating, on a node whose kubelet reports; its grace period is over, its kubelet saw the deletion, and the reports of agents are accepted | `PodsEnded` | `terminated` |
//! | terminated | more than the threshold have terminated; evicted pods first, then the oldest | `KubeletTerminated` | `terminated` |
//!
//! **Invariants.** A decision is never a deletion: the verifier reads the node or the agent that a claim names, and the
//! requests name the pod's UID and version. A node that cannot
//! be read is not missing. A quarantine starts again with every sign of life. The rules are those of
//! kube-controller-manager's PodGC (`pkg/controller/podgc`), which deletes by name and without evidence that the
//! processes have ended.
#![forbid(unsafe_code)]

mod config;
mod decide;
mod flags;
mod holds;
mod metrics;
mod run;

pub use config::Config;
pub use decide::{Key, decide};
pub use flags::Flags;
pub use holds::{Decision, Hold};
pub use run::PodGc;

#[cfg(test)]
mod tests;
