//! One process of pod-safety, put together: its controllers, which are crates of their own and all of one shape:
//!
//! `lib.rs` (duty, inputs, intents, invariants) · `decide.rs` (pure) · `run.rs`
//! (wiring) · `metrics.rs` · `tests.rs`.
//!
//! Beside them the pure cores of two commands, [`explain`] and [`drain`], and what is exported of incidents, [`traces`].
//!
//! This crate has no Kubernetes client and cannot get one (see `deny.toml`):
//! what it wants done it says in [`pod_safety_shared::authority::Intent`]s.
#![forbid(unsafe_code)]

pub mod drain;
pub mod explain;
#[cfg(test)]
mod fuzz;
pub mod instance;
pub mod registry;
#[cfg(test)]
mod staged;
pub mod traces;

// The controllers, under their names.
pub use pod_safety_disruption as disruption;
pub use pod_safety_fencing as fencing;
pub use pod_safety_node_lifecycle as node_lifecycle;
pub use pod_safety_pod_gc as pod_gc;
pub use pod_safety_taint_eviction as taint_eviction;
pub use pod_safety_volume_guard as volume_guard;
