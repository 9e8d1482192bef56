//! # Explanations
//!
//! **Duty.** Say what a budget lets through and why, what an eviction of each of its
//! pods would be answered, and what a person can do about it. Pure: the same view as
//! decisions have, no client, no clock.
//!
//! **Inputs.** Pods, budgets and workloads of one [`View`](pod_safety_shared::cache::View), and the
//! scales of controllers that it does not follow ([`asks`] names them: ask first).
//!
//! **Invariants.** The rules are those of the API server
//! (`pkg/registry/core/pod/storage/eviction.go`, v1.36.3) and of this program's own
//! [`crate::disruption`], which is asked, not copied. What is not known is said to be
//! unknown.

mod eviction;
mod verdict;
mod ways;

pub use eviction::{NotCounted, RefusedBy, Unguarded, Would, would};
pub use verdict::{Arithmetic, Explained, Member, Verdict, asks, explain, owner_of};
pub use ways::Way;

#[cfg(test)]
mod tests;
