//! Why the controller does not act: typed, with numbers, for Events and for programs.

use std::sync::Arc;
use std::time::Duration;

use pod_safety_shared::cache::FreshnessError;
use pod_safety_shared::controller_loop::{self, FORCE_DELETE_HELD, HoldReason, NodeUnreadable};
use pod_safety_shared::events::EventType;
use pod_safety_shared::model::{describe_zone, is_or_are};
use strum::{IntoStaticStr, VariantNames};

/// What this controller decides about a key.
pub type Decision = controller_loop::Decision<Hold>;

/// A reason not to act now. The names of the variants are values of metrics and of programs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, IntoStaticStr, VariantNames)]
pub enum Hold {
    /// The cache of a kind is not synced, or is stale.
    #[error(transparent)]
    #[strum(transparent)]
    Unfresh(#[from] FreshnessError),
    /// The node exists, or may exist, but cannot be read.
    #[error(transparent)]
    #[strum(transparent)]
    NodeUnreadable(#[from] NodeUnreadable),
    /// So many nodes are lost at once that the cause is more likely this process or its network.
    #[error(
        "{lost} of {of} nodes {} unreachable or not ready. It is more likely that this process, the API server or its network is cut off. Nothing follows until some nodes report again, or live reads confirm the outage",
        is_or_are(*lost)
    )]
    LargeOutage {
        /// How many seem lost.
        lost: usize,
        /// Of how many.
        of: usize,
    },
    /// So many nodes of the zone are lost that no further one is tainted `NoExecute`.
    #[error(
        "{not_ready} of {of} nodes of {} {} not ready. The zone itself probably has a problem, so their pods stay. Bring nodes back, or delete the Nodes of machines that no longer exist. The thresholds are --unhealthy-zone-threshold and --large-cluster-size-threshold",
        describe_zone(zone),
        is_or_are(*not_ready)
    )]
    ZoneDisrupted {
        /// The zone, by KCM's key.
        zone: Arc<str>,
        /// How many are not ready.
        not_ready: usize,
        /// Of how many that count.
        of: usize,
    },
    /// The rate of its zone is zero: no node there is tainted `NoExecute`.
    #[error(
        "its pods stay: with --node-eviction-rate=0 no node of its zone is tainted NoExecute. Delete the pods, or the Node if its machine no longer exists"
    )]
    EvictionOff,
    /// Other nodes of its zone are tainted before it.
    #[error("its pods stay until it is tainted NoExecute. Nodes of {} ahead of it: {ahead}. The next node is tainted in {}s. --node-eviction-rate sets how many are tainted per second", describe_zone(zone), next.as_secs())]
    EvictionQueued {
        /// The zone, by KCM's key.
        zone: Arc<str>,
        /// How many are ahead of it.
        ahead: usize,
        /// The time until the next turn.
        next: Duration,
    },
}

impl HoldReason for Hold {
    fn reason(&self) -> &'static str {
        self.into()
    }

    fn event(&self) -> Option<(EventType, &'static str)> {
        match self {
            Self::Unfresh(_)
            | Self::LargeOutage { .. }
            | Self::ZoneDisrupted { .. }
            | Self::EvictionOff
            | Self::EvictionQueued { .. } => None,
            Self::NodeUnreadable(_) => Some((EventType::Warning, FORCE_DELETE_HELD)),
        }
    }
}
