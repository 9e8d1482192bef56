//! The settings of the disruption controller.

use std::time::Duration;

/// The settings of the disruption controller.
#[derive(Clone, Debug)]
pub struct Config {
    /// A pod with the condition `DisruptionTarget` that is not deleted within this time no longer counts as disrupted.
    pub stale_pod_timeout: Duration,
}
