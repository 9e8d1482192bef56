//! Why a controller does nothing: an enum of its own, of which the loop knows the words.

use std::fmt::Display;
use std::sync::Arc;

use strum::VariantNames;

use crate::cache::FreshnessError;
use crate::events::EventType;

/// The reason of Events about force deletions that are held; their messages begin with the hold's own.
pub const FORCE_DELETE_HELD: &str = "ForceDeleteHeld";

/// A reason to do nothing now. Its text is a sentence for people, with its numbers; the names of its variants are its words,
/// but for the one of [`FreshnessError`], which has words of its own.
pub trait HoldReason: Display + From<FreshnessError> + VariantNames + Send + 'static {
    /// The reason in one CamelCase word, for metrics, Events and programs.
    fn reason(&self) -> &'static str;

    /// The Event by which people hear of it; `None`: it will pass by itself. What
    /// KCM has an Event for has its type and reason.
    fn event(&self) -> Option<(EventType, &'static str)>;

    /// A deletion follows when its time has passed; if it ends otherwise, that is
    /// called off. There may be one for each pod of a lost zone: people look them up,
    /// nobody writes them down.
    fn counts_down(&self) -> bool {
        false
    }

    /// Every word that [`Self::reason`] may say, for metrics that must exist before they count.
    #[must_use]
    fn reason_names() -> Vec<&'static str> {
        let own = Self::VARIANTS.iter().filter(|name| **name != "Unfresh");
        FreshnessError::VARIANTS.iter().chain(own).copied().collect()
    }
}

/// The node is there, or may be, but cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("node {node} cannot be read: {why}. It may still exist")]
pub struct NodeUnreadable {
    /// Its name.
    pub node: Arc<str>,
    /// What is wrong.
    pub why: String,
}

impl From<&NodeUnreadable> for &'static str {
    fn from(_: &NodeUnreadable) -> Self {
        "NodeUnreadable"
    }
}
