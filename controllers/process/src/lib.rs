//! One process of pod-safety: the flags of `pod-safety run`, and its controllers, joined in one process.
//!
//! Duty: the flags of `run` and of `fence-agents`, the table of the controllers ([`registry`]), and [`instance`], which
//! joins feeds, cache, authority, controllers, leadership and the admin server. CLI commands parse a process's settings
//! from its flags ([`run::parse_config`]), so the flags are in this crate, and those of a controller in its own.
//!
//! Inputs: arguments and the environment; [`instance::run`] gets time, tasks and connections.
//!
//! Invariants:
//! - Controllers are crates of their own; only this one names them all.
//! - No control characters leave the process except its own ([`sanitize`]).
//! - This crate has no Kubernetes client and cannot get one (see `deny.toml`): controllers request actions by
//!   [`pod_safety_shared::authority::Intent`]s.
#![forbid(unsafe_code)]

pub mod account;
pub mod fence_agents;
#[cfg(test)]
mod fuzz;
pub mod instance;
mod logging;
mod memory;
pub mod registry;
pub mod run;
pub mod sanitize;
mod start;

use anyhow::Context as _;

// The controllers, under their names.
pub use pod_safety_disruption as disruption;
pub use pod_safety_eviction as eviction;
pub use pod_safety_fencing as fencing;
pub use pod_safety_node_lifecycle as node_lifecycle;
pub use pod_safety_pod_gc as pod_gc;
pub use pod_safety_taint_eviction as taint_eviction;
pub use pod_safety_volume_guard as volume_guard;

pub use pod_safety_shared::clock::duration;

/// Threads of the process: one reads the watches while another writes.
const THREADS: usize = 2;

/// Starts the threads of the process and runs `work` on them.
///
/// # Errors
/// Those of `work`, or there are no threads.
pub fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .context("starting threads")?;
    let done = runtime.block_on(work);
    // Watches never end by themselves, and no work of ours is left to wait for.
    runtime.shutdown_background();
    done
}

/// A number that no other process has, from the operating system.
#[must_use]
pub fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}
