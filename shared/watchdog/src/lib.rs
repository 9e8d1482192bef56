//! The watchdog Lease: proof for nodes that no device can switch off.
//!
//! Duty: both sides of one promise, *"my guarded processes have ended, or my machine was reset, within this time of
//! the last grant"*. The agent of a node requests a grant by a write to its Lease, and pets its watchdog once for
//! each grant that was acknowledged. The controller revokes the last grant that it observed, and waits.
//! `docs/watchdog-lease.md` contains the proof.
//!
//! | file | subject |
//! |---|---|
//! | [`bound`] | how long the controller waits; z3 checks it in `tests/bound.rs` |
//! | | [`record`] | the content of the Lease |
//! | | [`agent`] | the state machine of the agent: what to do next, and what an answer means |
//! | | [`controller`] | the state machine of the controller: first observation, revocation, evidence |
//!
//! No file here reads a clock, sends a request or opens a device. Each state machine gets the time and the answers,
//! so that `tests/search.rs` can stop it between any two of its steps.

pub mod agent;
pub mod bound;
pub mod controller;
pub mod record;
