//! What a controller believes from its cache. Anything can be claimed: nothing follows from it until the judge has the facts.

use std::sync::Arc;

use pod_safety_model::{Pod, PodKey, Rv};

/// Why a pod's processes cannot run, as a controller believes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// The node that it is bound to does not exist any more.
    NodeGone {
        /// The node's name.
        node: Arc<str>,
    },
    /// It was never bound to a node.
    NeverScheduled,
    /// Its kubelet reported that all of its containers ended.
    KubeletTerminated,
    /// A taint asserts that its node is off.
    OutOfService {
        /// The node's name.
        node: Arc<str>,
    },
    /// The agent of its node reports that nothing of it is left there.
    PodsEnded {
        /// The node's name.
        node: Arc<str>,
    },
    /// A FenceEvidence says that this incarnation of its node has ended.
    Fenced {
        /// The node's name.
        node: Arc<str>,
        /// The name of the FenceEvidence.
        proof: Arc<str>,
        /// The version of the newest evidence about the node that was seen: a refusal says nothing about what came since.
        newest: Rv,
    },
}

impl Claim {
    /// The node that it is about.
    #[must_use]
    pub const fn node(&self) -> Option<&Arc<str>> {
        match self {
            Self::NodeGone { node }
            | Self::OutOfService { node }
            | Self::PodsEnded { node }
            | Self::Fenced { node, .. } => Some(node),
            Self::NeverScheduled | Self::KubeletTerminated => None,
        }
    }
}

/// The wish to force delete one pod, at the version that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForceDeleteRequest {
    /// The pod.
    pub pod: PodKey,
    /// The version on which the claim rests. Any other makes it void.
    pub rv: Rv,
    /// The claim.
    pub claim: Claim,
    /// When its deletion was requested, in seconds of the API server's clock: for people.
    pub requested: Option<i64>,
}

impl ForceDeleteRequest {
    /// The wish to force delete `pod` because of `claim`.
    #[must_use]
    pub fn new(pod: &Pod, claim: Claim) -> Self {
        let requested = pod.deletion.map(|deletion| deletion.at.saturating_sub(deletion.grace.unwrap_or(0)));
        Self { pod: pod.key.clone(), rv: pod.rv, claim, requested }
    }
}

/// Why the holder of a volume writes to it no more, as a controller believes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleaseBasis {
    /// A FenceEvidence about its incarnation.
    Evidence {
        /// Its name.
        proof: Arc<str>,
        /// As in [`Claim::Fenced`].
        newest: Rv,
    },
    /// Its Node is gone.
    NodeGone,
    /// Its machine has booted since.
    Rebooted,
    /// A FenceEvidence of this name about its incarnation, and another Node with another boot has its name.
    Replaced(Arc<str>),
    /// The volume is detached from it, and its storage takes no writes from a node without an attachment. Of the node and its
    /// pods this says nothing.
    Detached,
    /// A FenceEvidence of this name says that its storage takes no writes from the node. Nor does this say anything of pods.
    Storage(Arc<str>),
}
