//! What an operator decided.

use std::sync::Arc;
use std::time::Duration;

use pod_safety_shared::controller_loop::Mode;

/// What an operator decided.
#[derive(Clone, Debug)]
pub struct Config {
    /// Whether anything is done.
    pub mode: Mode,
    /// The node that this process runs on, if it was told: it never shoots that one.
    pub own_node: Option<Arc<str>>,
    /// The volume guard runs: that storage is fenced frees volumes.
    pub guards_volumes: bool,
    /// Incidents that a person only wants written down are decided about too. `explain` tells of the others alone.
    pub include_dry_runs: bool,
    /// How long incidents and evidence are kept once nothing depends on them; `None`: indefinitely.
    pub history: Option<Duration>,
    /// So far the copies may be behind from which a provider answers.
    pub provider_lag: Duration,
}

/// Amazon's advice on its eventual consistency is to ask again for up to about five minutes. None of the others names a time.
/// docs/assumptions.md: provider-is-current
pub const PROVIDER_LAG: Duration = Duration::from_mins(5);
