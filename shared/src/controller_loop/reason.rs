//! The trait for a controller's reasons to do nothing. Each controller has its own enum of reasons.

use std::fmt::Display;
use std::sync::Arc;

use strum::VariantNames;

use crate::cache::FreshnessError;
use crate::events::EventType;

/// The reason of Events about force deletions on hold. Their messages begin with the reason of the hold.
pub const FORCE_DELETE_HELD: &str = "ForceDeleteHeld";

/// A reason to do nothing now. Its `Display` is a sentence with the numbers. The names of the variants are the reasons in
/// metrics, except for the variant of [`FreshnessError`], which has its own names.
pub trait HoldReason: Display + From<FreshnessError> + VariantNames + Send + 'static {
    /// The reason as one CamelCase word, for metrics, Events and programs.
    fn reason(&self) -> &'static str;

    /// The type and reason of the Event; `None`: the hold will end by itself. Type and reason are those of
    /// kube-controller-manager if it has such an Event.
    fn event(&self) -> Option<(EventType, &'static str)>;

    /// Whether a deletion follows when the hold's time has passed; if the hold ends otherwise, the deletion is cancelled. A
    /// lost zone may have one such hold for each pod, so these holds are only shown, and not recorded.
    fn counts_down(&self) -> bool {
        false
    }

    /// Every value of [`Self::reason`], for metrics that must exist before they count.
    #[must_use]
    fn reason_names() -> Vec<&'static str> {
        let own = Self::VARIANTS.iter().filter(|name| **name != "Unfresh");
        FreshnessError::VARIANTS.iter().chain(own).copied().collect()
    }
}

/// The Node exists, or may exist, but cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("node {node} cannot be read: {why}. It may still exist")]
pub struct NodeUnreadable {
    /// The node's name.
    pub node: Arc<str>,
    /// What is wrong.
    pub why: String,
}

impl From<&NodeUnreadable> for &'static str {
    fn from(_: &NodeUnreadable) -> Self {
        "NodeUnreadable"
    }
}
