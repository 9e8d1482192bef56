//! The Kubernetes API in memory.
//!
//! Purpose: everything that a client can observe of kube-apiserver and etcd, for the kinds that pod-safety and its
//! peers use. [`Etcd`] is the one log; any number of [`ApiServer`]s stand above it, each with its own delay, its own
//! window of history and its own disturbances; a [`Transport`] is one caller's connection.
//!
//! | file | subject |
//! |---|---|
//! | `log`, `etcd` | revisions, versions of objects, history, compaction |
//! | `route`, `execute` | from a request to the rule that it falls under |
//! | `admission`, `node_restriction` | what pod-safety's policies refuse and change; what kubelets may not do |
//! | `kinds/` | the table of kinds: defaults, validation, what an update may change |
//! | `write`, `delete`, `eviction` | create, replace, patch; grace and finalizers; budgets and bindings |
//! | `patch/` | the four patch types |
//! | `read`, `select`, `watch` | lists, selectors, events |
//! | `discovery` | the list of kinds |
//! | `server`, `reply`, `transport`, `conduct` | which server executes when, and which part of the answer reaches the sender |
//! | `failure` | `Status` objects |
//!
//! Invariants: a request is executed by the server's own task; the same requests in the same order give the same
//! answers, byte for byte, in any process; unknown paths, parameters and media types are answered with 501 and counted
//! ([`Etcd::unimplemented`]).

mod admission;
mod conduct;
mod delete;
pub(crate) mod discovery;
mod etcd;
mod eviction;
mod execute;
mod failure;
mod fields;
mod kinds;
mod log;
mod node_restriction;
mod patch;
mod read;
mod reply;
mod route;
mod select;
mod server;
mod transport;
mod watch;
mod write;

pub use admission::Policies;
pub use conduct::{Conduct, Course, Disturbance, Fate, Following, Prompt, Reach};
pub use etcd::{Etcd, ObservedChange};
pub use failure::Failure;
pub use kinds::{Kind, Rules};
pub use route::ApiRequest;
pub use server::ApiServer;
pub use transport::Transport;
pub use watch::parse_event;

pub(crate) use patch::merge as merge_patch;
pub(crate) use route::Route;
pub(crate) use select::label_selector_matches as selects_labels;
/// The code under which the first half of a request is shown to the checker.
pub(crate) const CONTINUE: u16 = 100;

#[cfg(test)]
mod tests;
