//! What a controller concludes from its cache. Any claim can be made: it has no effect until the judge has verified it with
//! facts.

use std::sync::Arc;

use pod_safety_model::{Pod, PodKey, Rv};

/// Why a pod's processes cannot run, according to a controller's cache.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, strum::EnumDiscriminants)]
#[strum_discriminants(name(ClaimKind), derive(PartialOrd, Ord), doc = "The kind of a claim.")]
pub enum Claim {
    /// The Node to which the pod is bound does not exist.
    NodeGone {
        /// The node's name.
        node: Arc<str>,
    },
    /// The pod was never bound to a node.
    NeverScheduled,
    /// The kubelet reported that all of the pod's containers terminated.
    KubeletTerminated,
    /// The agent on the pod's node reports that no process and no mount of the pod remains.
    PodsEnded {
        /// The node's name.
        node: Arc<str>,
    },
    /// The out-of-service taint states that the pod's node is off.
    OutOfService {
        /// The node's name.
        node: Arc<str>,
    },
    /// A FenceEvidence states that this incarnation of the pod's node has ended.
    Fenced {
        /// The node's name.
        node: Arc<str>,
        /// The name of the FenceEvidence.
        proof: Arc<str>,
        /// The resourceVersion of the newest FenceEvidence about the node in the cache. A refusal does not apply to newer
        /// evidence.
        newest: Rv,
    },
}

impl Claim {
    /// The node that the claim names.
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

/// A request to force delete one pod at the version that the controller saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForceDeleteRequest {
    /// The pod.
    pub pod: PodKey,
    /// The resourceVersion on which the claim rests. The request is void at any other version.
    pub rv: Rv,
    /// Why the pod's processes cannot run.
    pub claim: Claim,
    /// When the pod's deletion was requested, in seconds of the API server's clock. It is only displayed.
    pub requested: Option<i64>,
}

impl ForceDeleteRequest {
    /// The request to force delete `pod` because of `claim`.
    #[must_use]
    pub fn new(pod: &Pod, claim: Claim) -> Self {
        let requested = pod.deletion.map(|deletion| deletion.at.saturating_sub(deletion.grace.unwrap_or(0)));
        Self { pod: pod.key.clone(), rv: pod.rv, claim, requested }
    }
}

/// Why the holder of a volume no longer writes to it, according to a controller's cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RevocationBasis {
    /// A FenceEvidence is about the holder's incarnation.
    Evidence {
        /// The name of the FenceEvidence.
        proof: Arc<str>,
        /// As in [`Claim::Fenced`].
        newest: Rv,
    },
    /// The holder's Node does not exist.
    NodeGone,
    /// The holder's machine has booted since.
    Rebooted,
    /// The FenceEvidence of this name is about the holder's incarnation, and another Node with another boot ID has the
    /// holder's name.
    Replaced(Arc<str>),
    /// The volume is detached from the node, and its storage accepts no writes from a node without an attachment. This
    /// shows nothing about the node or its pods.
    Detached,
    /// The FenceEvidence of this name states that the storage accepts no writes from the node. This shows nothing about pods.
    Storage(Arc<str>),
}
