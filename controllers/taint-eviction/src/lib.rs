//! # Eviction by taint
//!
//! **Duty.** Ask the pods of a node to end, by their own grace, that do not tolerate
//! a taint of the effect `NoExecute`, or no longer.
//!
//! **Inputs.** Pods with their tolerations, nodes with their taints.
//!
//! **Intents.**
//!
//! | rule | write |
//! |---|---|
//! | no toleration matches a taint | condition `DisruptionTarget`, then DELETE with the pod's grace |
//! | the first that matches has a `tolerationSeconds`, and they have passed; of several taints the shortest time counts | the same |
//! | a pod ends already, or has ended | none |
//!
//! Until then the pod is shown as held (`Tolerated`), and what is called off is told.
//! Pods of DaemonSets and mirror pods have the tolerations that their makers give
//! them, and no other exception. Disruption budgets are not asked, as Kubernetes
//! documents.
//!
//! **Invariants.** Nobody is deleted before the time that he tolerates has passed
//! since the taint was added *and* since he came, and never before the taint was seen;
//! a restart lengthens none of it where the taint says when it was added; a deletion
//! is about one UID at one version; it is decided once more when its turn comes, and
//! goes out only if a quorum read finds the node and its taints as they were; what
//! fails is tried again for as long as it is wanted. The same results as
//! kube-controller-manager (`pkg/controller/tainteviction`, v1.37.2), but for its weak
//! spots:
//!
//! | | KCM | here |
//! |---|---|---|
//! | W-TE1 | gives up after five tries in 50 ms | tries again, later each time |
//! | W-TE2 | timers by name: the successor of a pod may be deleted in its place | UIDs and versions |
//! | W-TE3 | time counts from when this process saw the taint | from `timeAdded` |
//! | W-TE4 | a timer once set is not moved: not by a changed `tolerationSeconds`, nor by a second taint, nor when its own taint goes | decided from what is there now |
//! | W-TE6 | four calls for each pod, 20 a second for all | two; the node is read once for 32 |
//! | W-TE7 | completed and ending pods are deleted (again) | left alone |
//!
//! It acts only in mode `replace`: beside KCM's own controller it reports.
#![forbid(unsafe_code)]

mod decide;
mod holds;
mod metrics;
mod run;

pub use decide::{Key, decide};
pub use holds::{Decision, Hold};
pub use run::TaintEviction;

#[cfg(test)]
mod tests;
