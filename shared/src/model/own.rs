//! Objects of our own kinds, as decisions see them: few, so they are kept whole.

use std::fmt::Debug;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::{Rv, Uid};
use crate::api::{
    FenceDeviceSpec, FenceDeviceStatus, FenceEvidenceSpec, FenceEvidenceStatus, FencePolicySpec,
    FencePolicyStatus, NodeFenceSpec, NodeFenceStatus,
};
use crate::clock::Mono;

/// The spec of a kind of ours.
pub trait OwnSpec: DeserializeOwned + Clone + Debug + PartialEq + Send + Sync + 'static {
    /// Its status.
    type Status: DeserializeOwned + Default + Clone + Debug + PartialEq + Send + Sync + 'static;

    /// The node that it is about; `None`: about several.
    fn node(&self) -> Option<&str> {
        None
    }
}

impl OwnSpec for FenceDeviceSpec {
    type Status = FenceDeviceStatus;
}

impl OwnSpec for FencePolicySpec {
    type Status = FencePolicyStatus;
}

impl OwnSpec for NodeFenceSpec {
    type Status = NodeFenceStatus;

    fn node(&self) -> Option<&str> {
        Some(&self.node.name)
    }
}

impl OwnSpec for FenceEvidenceSpec {
    type Status = FenceEvidenceStatus;

    fn node(&self) -> Option<&str> {
        Some(&self.node.name)
    }
}

/// An object of a kind of ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Own<S: OwnSpec> {
    /// Its name.
    pub name: Arc<str>,
    /// Its namespace; empty for cluster-scoped kinds.
    pub namespace: Arc<str>,
    /// Its identity.
    pub uid: Uid,
    /// The version that was read.
    pub rv: Rv,
    /// Counts changes of the spec.
    pub generation: i64,
    /// Somebody asked for its deletion.
    pub deleting: bool,
    /// What is wanted.
    pub spec: S,
    /// What became of it.
    pub status: S::Status,
    /// When this process first saw it.
    pub first_seen: Mono,
    /// When this process first saw its status as it is. Deadlines that the status names count from here, by our clock.
    pub status_seen: Mono,
}

/// A FenceDevice.
pub type Device = Own<FenceDeviceSpec>;
/// A FencePolicy.
pub type Policy = Own<FencePolicySpec>;
/// A NodeFence.
pub type Fence = Own<NodeFenceSpec>;
/// A FenceEvidence. Not [`crate::authority::Evidence`]: this is what an object says.
pub type Proof = Own<FenceEvidenceSpec>;
