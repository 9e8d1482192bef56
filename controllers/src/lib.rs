//! One process of pod-safety, put together: its controllers, which are crates of their own and all of one shape:
//!
//! `lib.rs` (duty, inputs, intents, invariants) · `decide.rs` (pure) · `run.rs`
//! (wiring) · `metrics.rs` · `tests.rs`.
//!
//! The pure cores of two commands, `pod-safety-explain` and `pod-safety-drain`, and what is exported of incidents,
//! `pod-safety-traces`, are crates, too.
//!
//! This crate has no Kubernetes client and cannot get one (see `deny.toml`):
//! what it wants done it says in [`pod_safety_shared::authority::Intent`]s.
#![forbid(unsafe_code)]

#[cfg(test)]
mod fuzz;
pub mod instance;
pub mod registry;

// The controllers, under their names.
pub use pod_safety_disruption as disruption;
pub use pod_safety_fencing as fencing;
pub use pod_safety_node_lifecycle as node_lifecycle;
pub use pod_safety_pod_gc as pod_gc;
pub use pod_safety_taint_eviction as taint_eviction;
pub use pod_safety_volume_guard as volume_guard;
