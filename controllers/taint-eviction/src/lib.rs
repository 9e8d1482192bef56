//! # Eviction by taint
//!
//! **Duty.** Delete the pods of a node, with their own grace period, that do not tolerate a taint with the effect
//! `NoExecute`, or no longer.
//!
//! **Inputs.** Pods with their tolerations, nodes with their taints.
//!
//! **Intents.**
//!
//! | rule | write |
//! |---|---|
//! | no toleration matches a taint | condition `DisruptionTarget`, then DELETE with the pod's grace |
//! | the first that matches has a `tolerationSeconds`, and they have passed; of several taints the shortest time counts | the same |
//! | a pod is being deleted, or has terminated | none |
//!
//! Until then the pod is shown as held (`Tolerated`), and a cancelled eviction has an Event. Pods of DaemonSets and
//! mirror pods have the tolerations that their controllers give them, and no other exception. PodDisruptionBudgets do
//! not apply, as Kubernetes documents.
//!
//! **Invariants.** No pod is deleted before its toleration period has passed since the taint was added *and* since
//! the pod was bound, and never before the taint was seen; a restart does not lengthen it if the taint has
//! `timeAdded`; a deletion is about one UID at one resourceVersion; it is decided again when its turn comes, and is
//! sent only if a quorum read finds the node and its taints unchanged; a failed deletion is retried as long as it is
//! needed. The results are those of kube-controller-manager (`pkg/controller/tainteviction`, v1.37.2), but for its
//! weak spots:
//!
//! | deviation | KCM | here |
//! |---|---|---|
//! | W-TE1 | gives up after five tries in 50 ms | retries with backoff |
//! | W-TE2 | timers by name: the successor of a pod may be deleted in its place | UIDs and versions |
//! | W-TE3 | time counts from when this process saw the taint | from `timeAdded` |
//! | W-TE4 | a timer once set is not moved: not by a changed `tolerationSeconds`, nor by a second taint, nor when its own taint goes | decided from the present state |
//! | W-TE6 | four calls for each pod, 20 a second for all | two; the node is read once for 32 |
//! | W-TE7 | completed and terminating pods are deleted (again) | left alone |
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
