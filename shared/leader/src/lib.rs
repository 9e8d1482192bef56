//! A process that leads: its Lease, what it sends within its term, and what it says.
//!
//! | module | subject |
//! |---|---|
//! | [`lease`] | leadership by client-go's rules |
//! | [`send`] | one request, within the leader's term and while its evidence lasts |
//! | [`outcome`] | how an intent ended, and why there was no evidence for it |
//! | [`events`] | Kubernetes Events |
//! | [`record`] | what was decided and done, for people and for checkers |
//! | [`metrics`] | what Prometheus sees of all this |
//!
//! Invariants: nothing is written after the term ends, and no request is sent twice.
#![forbid(unsafe_code)]

pub mod events;
pub mod lease;
pub mod metrics;
pub mod outcome;
pub mod record;
pub mod send;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use pod_safety_cache::model;
use pod_safety_client as client;
use pod_safety_clock as clock;
use pod_safety_crds as api;
use pod_safety_wire as wire;
