//! The requests that a decision can result in.

use std::sync::Arc;

use pod_safety_fence::{FenceStepRequest, MonitorRequest, PolicyStatusUpdate, RemediationRequest};
use pod_safety_proof::ForceDeleteRequest;

use super::update::Update;
use crate::clock::Mono;
use crate::model::{Controller, Pod, PodKey, Rv};

/// Why a pod is deleted gracefully.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeleteCause {
    /// Its node has a taint that it does not tolerate, or no longer tolerates.
    #[error("node {node} has the taint {taint}, which the pod does not tolerate, or no longer tolerates")]
    Taint {
        /// The node's name.
        node: Arc<str>,
        /// The taint.
        taint: Box<str>,
    },
    /// Its Node does not exist. The kubelet was active until the Node was deleted: it may still run, and terminate the pod
    /// itself.
    #[error("node {node} does not exist any more, and its kubelet may still run: the pod is deleted gracefully")]
    NodeGone {
        /// The node's name.
        node: Arc<str>,
    },
}

impl DeleteCause {
    /// The node that the cause names.
    #[must_use]
    pub const fn node(&self) -> &Arc<str> {
        match self {
            Self::Taint { node, .. } | Self::NodeGone { node } => node,
        }
    }
}

/// A request to delete one pod gracefully, at the version that the controller saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GracefulDeleteRequest {
    /// The pod.
    pub pod: PodKey,
    /// The version that the controller saw.
    pub rv: Rv,
    /// The pod's generation, which the condition names.
    pub generation: i64,
    /// Since when the condition `DisruptionTarget` is already true.
    pub disrupted_since: Option<i64>,
    /// Why the pod is deleted.
    pub cause: DeleteCause,
    /// Since when the deletion is due.
    pub due: Mono,
}

impl GracefulDeleteRequest {
    /// The request to delete `pod` because of `cause`, due since `due`.
    #[must_use]
    pub fn new(pod: &Pod, cause: DeleteCause, due: Mono) -> Self {
        let disrupted_since = pod.disruption_target.map(|target| target.since);
        Self { pod: pod.key.clone(), rv: pod.rv, generation: pod.generation, disrupted_since, cause, due }
    }
}

/// What a controller's decision requests.
#[derive(Clone, Debug, PartialEq)]
pub enum Intent {
    /// Make the first quorum read of a node that is missing from the cache. It only reads: standbys do it too, so that a
    /// quarantine continues when the leader changes.
    ReadMissingNode {
        /// The node's name.
        node: Arc<str>,
    },
    /// Force delete a pod, if there is evidence.
    Force(ForceDeleteRequest),
    /// Delete a pod gracefully.
    Delete(GracefulDeleteRequest),
    /// Write a status.
    Update(Update),
    /// Read the desired replicas of a controller whose kind the cache does not watch. It only reads.
    Scale {
        /// The controller's namespace.
        namespace: Arc<str>,
        /// The controller.
        controller: Arc<Controller>,
    },
    /// Take a step of fencing a node.
    Fence(Box<FenceStepRequest>),
    /// Check the status of all nodes of a device, and record the result.
    Monitor(Box<MonitorRequest>),
    /// Update the status of a remediation request of another system.
    Remediate(Box<RemediationRequest>),
    /// Write the status of a FencePolicy.
    Review(Box<PolicyStatusUpdate>),
}

impl Intent {
    /// The graceful deletion that it requests; `None`: it requests another action.
    pub(crate) const fn as_delete(&self) -> Option<&GracefulDeleteRequest> {
        if let Self::Delete(delete) = self { Some(delete) } else { None }
    }
}
