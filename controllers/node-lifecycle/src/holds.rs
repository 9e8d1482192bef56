//! Why nothing is done: typed, with its numbers, for people and for checkers.

use std::sync::Arc;
use std::time::Duration;

use pod_safety_shared::cache::FreshnessError;
use pod_safety_shared::controller_loop::{self, FORCE_DELETE_HELD, HoldReason, NodeUnreadable};
use pod_safety_shared::events::EventType;
use pod_safety_shared::model::{describe_zone, is_or_are};
use strum::{IntoStaticStr, VariantNames};

/// What this controller decides about a key.
pub type Decision = controller_loop::Decision<Hold>;

/// A reason to do nothing now. The names of the variants are the words of metrics and of programs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, IntoStaticStr, VariantNames)]
pub enum Hold {
    /// A kind cannot be believed now.
    #[error(transparent)]
    #[strum(transparent)]
    Unfresh(#[from] FreshnessError),
    /// The node is there, or may be, but cannot be read.
    #[error(transparent)]
    #[strum(transparent)]
    NodeUnreadable(#[from] NodeUnreadable),
    /// So much is lost at once that it is rather us who lost it.
    #[error(
        "{silent} of {of} nodes {} unreachable or not ready. It is more likely that this process, the API server or its network is cut off. Nothing follows until some nodes report again, or live reads confirm the outage",
        is_or_are(*silent)
    )]
    LargeOutage {
        /// How many seem lost.
        silent: usize,
        /// Of how many.
        of: usize,
    },
    /// So many nodes of its zone are lost that no more of them are given up.
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
    /// No node is given up.
    #[error(
        "its pods stay: with --node-eviction-rate=0 no node is tainted NoExecute. Delete the pods, or the Node if its machine no longer exists"
    )]
    EvictionOff,
    /// Other nodes of its zone are given up before it.
    #[error("its pods stay until it is tainted NoExecute. Nodes of {} ahead of it: {ahead}. The next node is tainted in {}s. --node-eviction-rate sets how many are tainted per second", describe_zone(zone), next.as_secs())]
    EvictionQueued {
        /// The zone, by KCM's key.
        zone: Arc<str>,
        /// How many are before it.
        ahead: usize,
        /// When the next one's turn is.
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
