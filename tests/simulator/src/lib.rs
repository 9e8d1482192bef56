//! A Kubernetes cluster that is not there: the same seed gives the same run, and
//! no run touches a clock, a thread, a disk or the network.
//!
//! ```text
//!  controllers under test ── kube::Client ── Door ─► ApiServer ─┐
//!  kubelets, peers ───────── kube::Client ── Door ─► ApiServer ─┴─► Etcd (one log)
//! ```
//!
//! | module | subject |
//! |---|---|
//! | [`chance`] | keyed randomness: a value depends on its seed and its purpose, not on what was drawn before |
//! | [`api`] | the API servers and their one log: what a client can see of Kubernetes |
//! | [`scenario`] | plans that people write, as files |
//! | [`comparison`] | one plan by all rules, measured |
//! | [`differential`] | random requests to two API servers, and the comparison of their answers |
//! | [`serve`] | real `kubectl`, from outside, over HTTP |
//!
//! The world (nodes, kubelets, processes, power, disks, links) and the checker
//! stand above [`api`] and know it by [`api::Etcd`], [`api::ApiServer`],
//! [`api::Door`] and [`api::Conduct`] only.
//!
//! What keeps the simulator honest is `tests/differential.rs`: the requests that
//! our code sends, and thousands more, go to the real kube-apiserver too, and the
//! answers must be the same.

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
