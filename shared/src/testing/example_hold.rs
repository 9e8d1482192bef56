//! The holds of the test controller.

use std::sync::Arc;
use std::time::Duration;

use strum::{IntoStaticStr, VariantNames};

use crate::cache::FreshnessError;
use crate::controller_loop::{FORCE_DELETE_HELD, HoldReason, NodeUnreadable};
use crate::events::EventType;

/// A reason to do nothing now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, IntoStaticStr, VariantNames)]
pub(crate) enum Hold {
    #[error(transparent)]
    #[strum(transparent)]
    Unfresh(#[from] FreshnessError),
    #[error(transparent)]
    #[strum(transparent)]
    NodeUnreadable(#[from] NodeUnreadable),
    /// It ends by itself.
    #[error("node {node} counts as gone in {}s", left.as_secs())]
    Quarantine { node: Arc<str>, left: Duration },
    /// It has an Event.
    #[error("the pod's phase does not prove that it terminated")]
    PhaseUnreadable,
    /// It counts down to a deletion.
    #[error("the pod is deleted in {}s", left.as_secs())]
    Tolerated { left: Duration },
}

impl HoldReason for Hold {
    fn reason(&self) -> &'static str {
        self.into()
    }

    fn event(&self) -> Option<(EventType, &'static str)> {
        match self {
            Self::Unfresh(_) | Self::Quarantine { .. } | Self::Tolerated { .. } => None,
            Self::NodeUnreadable(_) | Self::PhaseUnreadable => Some((EventType::Warning, FORCE_DELETE_HELD)),
        }
    }

    fn counts_down(&self) -> bool {
        matches!(self, Self::Tolerated { .. })
    }
}
