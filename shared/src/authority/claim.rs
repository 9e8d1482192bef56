//! What a decision wants done.

use std::sync::Arc;

use pod_safety_fence::{FenceStepRequest, MonitorRequest, PolicyStatusUpdate, RemediationRequest};
use pod_safety_proof::{Claim, ForceDeleteRequest};

use super::update::Update;
use crate::clock::Mono;
use crate::model::{Controller, Pod, PodKey, Rv};

/// The kinds of claims: closed, for metrics and turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClaimKind {
    /// [`Claim::NodeGone`].
    NodeGone,
    /// [`Claim::NeverScheduled`].
    NeverScheduled,
    /// [`Claim::KubeletTerminated`].
    KubeletTerminated,
    /// [`Claim::PodsEnded`].
    PodsEnded,
    /// [`Claim::OutOfService`].
    OutOfService,
    /// [`Claim::Fenced`].
    Fenced,
}

impl ClaimKind {
    /// The kind of this claim.
    #[must_use]
    pub const fn from_claim(claim: &Claim) -> Self {
        match claim {
            Claim::NodeGone { .. } => Self::NodeGone,
            Claim::NeverScheduled => Self::NeverScheduled,
            Claim::KubeletTerminated => Self::KubeletTerminated,
            Claim::PodsEnded { .. } => Self::PodsEnded,
            Claim::OutOfService { .. } => Self::OutOfService,
            Claim::Fenced { .. } => Self::Fenced,
        }
    }
}

/// Why a pod should end by its own grace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeleteCause {
    /// Its node bears a taint that it does not tolerate, or no longer.
    #[error("node {node} has the taint {taint}, which the pod does not tolerate, or no longer tolerates")]
    Taint {
        /// The node's name.
        node: Arc<str>,
        /// The taint.
        taint: Box<str>,
    },
    /// Its node does not exist any more. The kubelet was active until then: it may still run, and end the pod itself.
    #[error(
        "node {node} does not exist any more, and its kubelet may still run: the pod is deleted gracefully"
    )]
    NodeGone {
        /// The node's name.
        node: Arc<str>,
    },
}

impl DeleteCause {
    /// The node that it speaks of.
    #[must_use]
    pub const fn node(&self) -> &Arc<str> {
        match self {
            Self::Taint { node, .. } | Self::NodeGone { node } => node,
        }
    }
}

/// The wish that one incarnation of a pod ends by its own grace, at the version that
/// was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GracefulDeleteRequest {
    /// Which pod.
    pub pod: PodKey,
    /// The version that was seen.
    pub rv: Rv,
    /// Its generation, which the condition names.
    pub generation: i64,
    /// Since when its condition `DisruptionTarget` is true already.
    pub disrupted_since: Option<i64>,
    /// Why it should end.
    pub cause: DeleteCause,
    /// Since when.
    pub due: Mono,
}

impl GracefulDeleteRequest {
    /// The wish that `pod` ends because of `cause`, since `due`.
    #[must_use]
    pub fn new(pod: &Pod, cause: DeleteCause, due: Mono) -> Self {
        let disrupted_since = pod.disruption_target.map(|target| target.since);
        Self { pod: pod.key.clone(), rv: pod.rv, generation: pod.generation, disrupted_since, cause, due }
    }
}

/// What a decision wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Intent {
    /// Take the first quorum read of a node that the cache misses. Reads only:
    /// standbys do it too, so that a quarantine survives a change of leader.
    ReadMissingNode {
        /// The node's name.
        node: Arc<str>,
    },
    /// Remove a pod, if there is evidence.
    Force(ForceDeleteRequest),
    /// Ask a pod to end by its own grace.
    Delete(GracefulDeleteRequest),
    /// Write a status.
    Update(Update),
    /// Ask how many pods a controller wants whose kind the cache does not follow.
    /// Reads only.
    Scale {
        /// Its namespace.
        namespace: Arc<str>,
        /// Which one.
        controller: Arc<Controller>,
    },
    /// Take a step of fencing a node.
    Fence(Box<FenceStepRequest>),
    /// Look at all nodes of a device, and write down what it says.
    Monitor(Box<MonitorRequest>),
    /// Answer somebody who wants a node fenced.
    Remediate(Box<RemediationRequest>),
    /// Write what is known of a FencePolicy.
    Review(Box<PolicyStatusUpdate>),
}
