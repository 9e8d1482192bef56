//! The settings of the disruption controller, which are its flags.

use std::time::Duration;

use clap::Args;
use pod_safety_shared::clock::duration;

/// The settings of the disruption controller.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Disruption budgets")]
#[group(skip)]
pub struct Config {
    /// How long after its eviction a pod that is not terminating loses its condition DisruptionTarget
    #[arg(
        long = "stale-pod-disruption-timeout",
        value_name = "DURATION",
        default_value = "2m",
        value_parser = duration::parse,
        allow_hyphen_values = true,
        env = "POD_SAFETY_STALE_POD_DISRUPTION_TIMEOUT"
    )]
    pub stale_pod_timeout: Duration,
}
