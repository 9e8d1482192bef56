//! # Disruption budgets
//!
//! **Duty.** Keep the status of every PodDisruptionBudget current: how many evictions the API server may allow now.
//! And set the condition `DisruptionTarget` to False on pods that were to be deleted and were not.
//!
//! **Inputs.** Pods, budgets, the workloads that pods belong to, and the scales of workloads of other kinds (read by
//! the executor on request).
//!
//! **Intents.**
//!
//! | rule | write |
//! |---|---|
//! | a budget's numbers differ from its status | `poddisruptionbudgets/status`, by compare-and-swap |
//! | they cannot be calculated | the same: nothing is allowed, and the condition states the reason |
//! | a pod was to be deleted two minutes ago and is not | `pods/status`: `DisruptionTarget` is `False` |
//!
//! **Invariants.** Allowed evictions leave as many healthy pods as the budget requires, as far as the cache shows; an
//! eviction that the API server allowed is never lost by a write (resourceVersion); an entry of `disruptedPods` is
//! about one UID; two minutes are measured by our own clock. The results are those of kube-controller-manager
//! (`pkg/controller/disruption`, v1.37.2), but for its weak spots:
//!
//! | deviation | KCM | here |
//! |---|---|---|
//! | W-DC1 | one worker; each pod is tried on each budget of its namespace | an index; as many writers as the executor has |
//! | W-DC2 | scaling enqueues nothing | enqueues the budget |
//! | W-DC3 | of several budgets one is enqueued, and never the one that a pod left | all of them |
//! | W-DC4 | after a failure nothing until the next event | retried |
//! | W-DC5 | one pod whose controller has no scale fails the budget | that pod does not count |
//! | W-DC6 | the successor of an evicted pod counts as evicted | entries are bound to UIDs |
//! | W-DC8 | two minutes by two clocks | by ours alone |
//! | W-DC9 | an Event with each sync of an empty budget | one |
//!
//! It acts only in mode `replace`: beside KCM's own controller it reports.
#![forbid(unsafe_code)]

mod best_case;
mod calculate;
mod config;
mod decide;
mod holds;
mod metrics;
mod owners;
mod run;

pub use best_case::{BestCase, PodTotals};
pub use calculate::{
    Calculation, CalculationError, DELETION_TIMEOUT, INSUFFICIENT_PODS, Member, Owner, SUFFICIENT_PODS, SYNC_FAILED,
    calculate, fail_safe_status, needs_scales,
};
pub use config::Config;
pub use decide::{Key, decide};
pub use holds::{Decision, Hold};
pub use owners::{OwnerLookup, find_owner};
pub use run::Disruption;

#[cfg(test)]
mod tests;
