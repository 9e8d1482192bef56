//! What an operator decided.

use std::time::Duration;

use pod_safety_shared::clock::Mono;
use pod_safety_shared::controller_loop::Mode;

use super::zones::Rates;

/// What an operator decided, and one thing that the election did.
#[derive(Clone, Debug)]
pub struct Config {
    /// Beside KCM's controller or in its place.
    pub mode: Mode,
    /// For how long a node may be silent.
    pub monitor_grace: Duration,
    /// For how long a new node may not say how it is.
    pub startup_grace: Duration,
    /// Beside KCM: after how long a silent node is suspected.
    pub suspect_after: Duration,
    /// How fast nodes are given up.
    pub rates: Rates,
    /// Since when this process leads without a break, which shows that the API server takes writes; `None`: it does not.
    pub led_since: Option<Mono>,
}

impl Config {
    /// KCM's defaults, and ours beside it.
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
