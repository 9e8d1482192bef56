//! What an operator decided.

use std::time::Duration;

/// What an operator decided.
#[derive(Clone, Debug)]
pub struct Config {
    /// A pod that somebody was about to end so long ago, and that does not end, is
    /// not disrupted after all.
    pub stale_pod_timeout: Duration,
}
