//! What an operator decided.

use std::sync::Arc;
use std::time::Duration;

/// What an operator decided.
#[derive(Clone, Debug)]
pub struct Config {
    /// Terminated pods above this number are collected; `None` switches the rule off.
    pub terminated_threshold: Option<usize>,
    /// For how long a node must have been missing.
    pub quarantine: Duration,
    /// Take the out-of-service taint for proof, as KCM does.
    pub trust_out_of_service_taint: bool,
    /// The namespace of the Leases of node agents, if what they report of pods is accepted.
    pub agent_reports: Option<Arc<str>>,
}
