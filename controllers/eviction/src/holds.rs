//! Why the controller does not act: typed, with numbers, for Events and for programs.

use pod_safety_shared::cache::FreshnessError;
use pod_safety_shared::controller_loop::{self, HoldReason};
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
    /// Another controller, such as Kubernetes' own, serves this namespace.
    #[error(
        "another controller writes the states of Evictions in this namespace: set controllers.eviction.enabled of pod-safety to false once Kubernetes evicts, too, and no pod names pod-safety.dev/lost-node"
    )]
    AnotherController,
    /// The pod exists, and cannot be read.
    #[error("the pod cannot be read: {why}. It may be there")]
    PodUnreadable {
        /// What is wrong.
        why: String,
    },
    /// Some EvictionRequests cannot be decoded.
    #[error("some EvictionRequests cannot be read: one of them may ask for this eviction, so it is not canceled")]
    RequestsUnreadable,
    /// Some Evictions cannot be decoded.
    #[error("some Evictions cannot be read: one of them may be of this pod, so no other is created")]
    EvictionsUnreadable,
    /// A responder has a report from before its turn, written by another client.
    #[error(
        "responder {responder} has a report before its turn: whoever wrote it would let all responders be passed over. Delete the Eviction: a new one is created"
    )]
    ResponderPrefilled {
        /// The responder.
        responder: String,
    },
    /// A responder state that this version does not know.
    #[error("the Eviction has states that this version of pod-safety does not know")]
    UnknownState,
    /// All responders had their turns, and the pod still exists.
    #[error("every responder had its turn, and the pod was not evicted ({tries} times): the next Eviction waits")]
    NoFurtherResponder {
        /// How often.
        tries: u32,
    },
    /// The API server did not evict the pod.
    #[error("the pod is not evicted after {attempts} attempts: {message}")]
    EvictionRefused {
        /// The number of attempts.
        attempts: u32,
        /// The last message.
        message: String,
    },
}

impl HoldReason for Hold {
    fn reason(&self) -> &'static str {
        self.into()
    }

    fn event(&self) -> Option<(EventType, &'static str)> {
        match self {
            // Each attempt has an Event of its own.
            Self::Unfresh(_) | Self::EvictionRefused { .. } => None,
            Self::AnotherController => Some((EventType::Warning, "AnotherEvictionController")),
            Self::PodUnreadable { .. } | Self::RequestsUnreadable | Self::EvictionsUnreadable | Self::UnknownState => {
                Some((EventType::Warning, "EvictionHeld"))
            }
            Self::ResponderPrefilled { .. } => Some((EventType::Warning, "EvictionResponderPrefilled")),
            Self::NoFurtherResponder { .. } => Some((EventType::Warning, "EvictionBacksOff")),
        }
    }
}
