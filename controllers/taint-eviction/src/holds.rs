//! Why the controller does not act: typed, with numbers, for Events and for programs.

use std::sync::Arc;
use std::time::Duration;

use pod_safety_shared::cache::FreshnessError;
use pod_safety_shared::controller_loop::{self, FORCE_DELETE_HELD, HoldReason, NodeUnreadable};
use pod_safety_shared::events::EventType;
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
    /// The pod tolerates a taint of its node for some time to come.
    #[error("the pod tolerates the taint {taint} of node {node} for another {}s; then it is deleted", left.as_secs())]
    Tolerated {
        /// The node's name.
        node: Arc<str>,
        /// The taint.
        taint: String,
        /// For how long.
        left: Duration,
    },
    /// A toleration for a taint of its node cannot be parsed.
    #[error(
        "the pod does not tolerate the taint {taint} of node {node}, but has a toleration for it with the unknown operator {operator:?}, so the pod is not deleted. Use the operator Exists or Equal"
    )]
    TolerationUnreadable {
        /// The node's name.
        node: Arc<str>,
        /// The taint.
        taint: String,
        /// The unknown operator.
        operator: String,
    },
}

impl HoldReason for Hold {
    fn reason(&self) -> &'static str {
        self.into()
    }

    fn event(&self) -> Option<(EventType, &'static str)> {
        match self {
            Self::Unfresh(_) | Self::Tolerated { .. } => None,
            Self::NodeUnreadable(_) => Some((EventType::Warning, FORCE_DELETE_HELD)),
            Self::TolerationUnreadable { .. } => Some((EventType::Warning, "TaintEvictionHeld")),
        }
    }

    fn counts_down(&self) -> bool {
        matches!(self, Self::Tolerated { .. })
    }
}
