//! # Disruption budgets
//!
//! **Duty.** Keep the status of every PodDisruptionBudget true: how many evictions
//! the API server may let through now. And take back the condition
//! `DisruptionTarget` of pods that were to end and did not.
//!
//! **Inputs.** Pods, budgets, the workloads that pods belong to, and the scales of
//! workloads of other kinds (asked for by the authority).
//!
//! **Intents.**
//!
//! | rule | write |
//! |---|---|
//! | a budget's numbers differ from its status | `poddisruptionbudgets/status`, by compare-and-swap |
//! | they cannot be calculated | the same: nothing is let through, and the condition says why |
//! | a pod was to end two minutes ago and does not | `pods/status`: `DisruptionTarget` is `False` |
//!
//! **Invariants.** What is let through leaves as many healthy pods as the budget
//! wants, as far as the cache knows; an eviction that the API server let through
//! is never forgotten by a write (resourceVersion); an entry of `disruptedPods` is
//! about one UID; two minutes are measured by our own clock. The same results as
//! kube-controller-manager (`pkg/controller/disruption`, v1.37.2), but for its weak
//! spots:
//!
//! | | KCM | here |
//! |---|---|---|
//! | W-DC1 | one worker; each pod is tried on each budget of its namespace | an index; as many writers as the authority has |
//! | W-DC2 | scaling wakes nobody | wakes the budget |
//! | W-DC3 | of several budgets one is woken, and never the one that a pod left | all of them |
//! | W-DC4 | after a failure nothing until the next event | asked again |
//! | W-DC5 | one pod whose controller has no scale blinds the budget | that pod does not count |
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
    Calculation, CalculationError, DELETION_TIMEOUT, INSUFFICIENT_PODS, Member, Owner, SUFFICIENT_PODS,
    SYNC_FAILED, calculate, fail_safe_status, needs_scales,
};
pub use config::Config;
pub use decide::{Key, decide};
pub use holds::{Decision, Hold};
pub use owners::{OwnerLookup, find_owner};
pub use run::Disruption;

#[cfg(test)]
mod tests;
