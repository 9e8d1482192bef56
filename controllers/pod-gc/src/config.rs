//! The settings of the pod garbage collector.

use std::sync::Arc;
use std::time::Duration;

/// The settings of the pod garbage collector.
#[derive(Clone, Debug)]
pub struct Config {
    /// Terminated pods above this number are deleted; `None` switches the rule off.
    pub terminated_threshold: Option<usize>,
    /// How long a node must have been missing.
    pub quarantine: Duration,
    /// Accept the out-of-service taint as proof, as KCM does.
    pub trust_out_of_service_taint: bool,
    /// The namespace of the Leases of node agents, if their reports about pods are accepted.
    pub agent_reports: Option<Arc<str>>,
}
