//! Leader election, requests within the leader's term, Events, records and metrics.
//!
//! | module | subject |
//! |---|---|
//! | [`lease`] | leadership by client-go's rules |
//! | [`send`] | one request, within the leader's term and before its evidence expires |
//! | [`outcome`] | what every request can end with, and why there was no evidence |
//! | [`events`] | Kubernetes Events |
//! | [`record`] | the journal of decisions and outcomes |
//! | [`metrics`] | Prometheus metrics of the shared parts |
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
