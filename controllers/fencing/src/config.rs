//! The settings of the fencing controller.

use std::sync::Arc;
use std::time::Duration;

use pod_safety_shared::controller_loop::Mode;

/// The settings of the fencing controller.
#[derive(Clone, Debug)]
pub struct Config {
    /// Whether the controller acts or only observes.
    pub mode: Mode,
    /// The node that this process runs on, if it is configured: the controller never fences that node.
    pub own_node: Option<Arc<str>>,
    /// The volume guard runs: evidence that storage is fenced frees volumes.
    pub guards_volumes: bool,
    /// Dry-run incidents, which a person creates to see what would happen, are decided about too. `explain` leaves
    /// them out.
    pub include_dry_runs: bool,
    /// How long incidents and evidence are kept once nothing depends on them; `None`: indefinitely.
    pub history: Option<Duration>,
    /// How far behind the replicas may be from which a cloud provider answers.
    pub provider_lag: Duration,
}

/// Amazon's advice on its eventual consistency is to repeat a request for up to about five minutes. The other
/// providers state no time.
/// docs/assumptions.md: provider-is-current
pub const PROVIDER_LAG: Duration = Duration::from_mins(5);
