//! A real Kubernetes control plane for tests: etcd, kube-apiserver and, when asked, kube-controller-manager
//! and kube-scheduler, built from pinned sources (`tools/`), started in seconds on loopback, gone when the
//! test ends.
//!
//! ```no_run
//! # async fn example() -> Result<(), pod_safety_control_plane::Error> {
//! use pod_safety_control_plane::{ControlPlane, Options};
//! let plane = ControlPlane::start(Options::default()).await?;
//! let nodes = plane.kubectl(&["get", "nodes"]).await?.text()?;
//! # Ok(()) }
//! ```
//!
//! - [`ControlPlane`]: start it; stop, restart, pause its API server; compact its history, corrupt what it stores
//! - [`Balancer`]: a load balancer before several API servers, by readiness or pinned
//! - [`Program`]: one child process: its log, its signals, what it has used; [`usage`]: the same of any process
//! - [`PodSafety`]: the program under test, under its own service account, and its admin server
//! - [`Relay`]: a route to the API server that a test can block; [`AuditLog`]: the requests of one user
//! - [`scenarios!`]: several scenarios on one control plane concurrently
//! - [`Output`]: the result of a command such as kubectl
//! - [`until`]: polls until a condition is true, and reports the last observation if it never is; [`wait_until`] fails the test then;
//!   [`PATIENCE`] is the limit for hangs
//! - [`objects`]: nodes, pods and leases, and how to create them with their status
//! - [`kubelet`]: what a kubelet writes about its Lease and its pods
//! - [`workloads`]: the controllers of pods, also of custom kinds; [`budgets`]: PodDisruptionBudgets, and evictions
//! - [`SoleController`]: one controller alone, of kube-controller-manager or of pod-safety
//! - [`rigs`]: real fence agents, and management controllers for them to switch
//! - [`helm()`]: renders the chart that is shipped; `ControlPlane::helm` installs it; [`kube_score`]: the findings of kube-score
//! - [`Prometheus`]: it scrapes, with the chart's alerts and shorter times
//! - [`compare_golden`]: compares with a reviewed golden file
//! - [`observe`]: whether a pod still exists, and its Events
//!
//! Properties of all of it: nothing listens outside of loopback, no child outlives the test process (also when that is killed), the logs of
//! a failed test are kept and the message has their path, and no call blocks without a limit. Tests need Linux, because they read `/proc`
//! and rely on its parent-death signal.
#![expect(
    clippy::disallowed_methods,
    reason = "the harness runs in real time and writes to clusters of its own making"
)]

mod access;
mod agents;
mod apiserver;
mod audit;
mod balancer;
pub mod budgets;
mod command;
mod component;
mod control_plane;
mod error;
mod etcd;
mod eventually;
mod folder;
mod golden;
mod helm;
pub mod kubelet;
pub mod objects;
pub mod observe;
mod pki;
mod pod_safety;
mod port;
mod program;
mod prometheus;
mod raw;
mod read;
mod relay;
pub mod rigs;
mod scenarios;
mod sole_controller;
mod spawner;
mod spoil;
mod tools;
pub mod usage;
pub mod workloads;

pub use access::client;
pub use agents::agent;
pub use audit::{AuditEntry, AuditLog};
pub use balancer::Balancer;
pub use command::Output;
pub use component::Component;
pub use control_plane::{ControlPlane, Options};
pub use error::Error;
pub use eventually::{PATIENCE, check_that, eventually, until, wait_until};
pub use golden::compare_golden;
pub use helm::{chart, helm, kube_score};
pub use pod_safety::{Page, PodSafety, QUICK, SHORT_LEADER_LEASE, binary, manifests};
pub use port::Port;
pub use program::Program;
pub use prometheus::{Prometheus, rules};
pub use relay::Relay;
pub use scenarios::{Scenario, run_scenarios};
pub use sole_controller::{Implementation, SoleController};
pub use tools::{other_kubernetes, pinned_kubernetes, selected_kubernetes, tool};
