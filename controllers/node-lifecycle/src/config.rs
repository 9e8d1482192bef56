//! The settings of the node-lifecycle controller.

use std::time::Duration;

use pod_safety_shared::clock::Mono;
use pod_safety_shared::controller_loop::Mode;

use super::zones::Rates;

/// The operator's settings, and one result of leader election.
#[derive(Clone, Debug)]
pub struct Config {
    /// Beside KCM's controller or in place of it.
    pub mode: Mode,
    /// The grace period: a node that does not report for this long is lost.
    pub monitor_grace: Duration,
    /// The grace period of a new node that has not reported its conditions yet.
    pub startup_grace: Duration,
    /// Beside KCM: a node that does not report for this long is suspected.
    pub suspect_after: Duration,
    /// The rates at which lost nodes are tainted `NoExecute`.
    pub rates: Rates,
    /// Since when this process leads without a break, which shows that the API server accepts writes; `None`: it does
    /// not lead.
    pub led_since: Option<Mono>,
}

impl Config {
    /// KCM's defaults, and the default of `suspect_after`.
    #[must_use]
    pub const fn kcm_defaults() -> Self {
        Self {
            mode: Mode::Guard,
            monitor_grace: Duration::from_secs(50),
            startup_grace: Duration::from_secs(60),
            suspect_after: Duration::from_secs(25),
            rates: Rates { normal: 0.1, disrupted: 0.01, large: 50, unhealthy: 0.55 },
            led_since: None,
        }
    }
}
