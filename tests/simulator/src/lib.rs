//! A simulated Kubernetes cluster: the same seed gives the same run, and no run uses a real clock, a thread, a disk or
//! the network.
//!
//! ```text
//!  controllers under test ── kube::Client ── Transport ─► ApiServer ─┐
//!  kubelets, peers ───────── kube::Client ── Transport ─► ApiServer ─┴─► Etcd (one log)
//! ```
//!
//! | module | subject |
//! |---|---|
//! | [`chance`] | keyed randomness: a value depends on its seed and its purpose, not on what was drawn before |
//! | [`api`] | the API servers and their one log: what a client can observe of Kubernetes |
//! | [`scenario`] | plans that people write, as files |
//! | [`comparison`] | one plan by all rules, measured |
//! | [`differential`] | random requests to two API servers, and the comparison of their answers |
//! | [`serve`] | real `kubectl`, from outside, over HTTP |
//!
//! The world (nodes, kubelets, processes, power, disks, links) and the checker stand above [`api`] and use only
//! [`api::Etcd`], [`api::ApiServer`], [`api::Transport`] and [`api::Conduct`] of it.
//!
//! `tests/suite/differential.rs` verifies the simulator: the requests that pod-safety sends, and thousands more, go to the
//! real kube-apiserver too, and the answers must be the same.

pub mod api;
pub mod campaign;
pub mod chance;
pub mod checker;
pub mod comparison;
pub mod differential;
#[cfg(test)]
#[path = "../tests/suite/paused/mod.rs"]
mod paused;
pub mod scenario;
pub mod serve;
pub mod world;
