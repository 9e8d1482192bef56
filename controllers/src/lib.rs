//! The controllers of pod-safety, one folder each and all of one shape:
//!
//! `mod.rs` (duty, inputs, intents, invariants) · `decide.rs` (pure) · `run.rs`
//! (wiring) · `metrics.rs` · `tests.rs`.
//!
//! Beside them the pure cores of two commands, [`explain`] and [`drain`], and what is exported of incidents, [`traces`].
//!
//! This crate has no Kubernetes client and cannot get one (see `deny.toml`):
//! what it wants done it says in [`pod_safety_shared::authority::Intent`]s.
#![forbid(unsafe_code)]

pub mod disruption;
pub mod drain;
pub mod explain;
pub mod fencing;
#[cfg(test)]
mod fuzz;
pub mod instance;
pub mod node_lifecycle;
pub mod pod_gc;
pub mod registry;
#[cfg(test)]
mod staged;
pub mod taint_eviction;
pub mod traces;
pub mod volume_guard;
