//! Objects of the custom resources of pod-safety, as decisions read them: they are few, so they are kept whole.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use pod_safety_model::{Mono, Rv, Uid};
use serde::de::DeserializeOwned;

use crate::{
    FenceDeviceSpec, FenceDeviceStatus, FenceEvidenceSpec, FenceEvidenceStatus, FencePolicySpec, FencePolicyStatus,
    NODE_NAME_ANNOTATION, NodeFenceSpec, NodeFenceStatus, PodSafetyRemediationSpec, PodSafetyRemediationStatus,
};

/// The spec of a custom resource of pod-safety.
pub trait CustomSpec: DeserializeOwned + Clone + Debug + PartialEq + Send + Sync + 'static {
    /// Its status.
    type Status: DeserializeOwned + Default + Clone + Debug + PartialEq + Send + Sync + 'static;

    /// The node that an object is about; `None`: it is about several.
    fn node_name(_object: &CustomObject<Self>) -> Option<&str> {
        None
    }
}

/// A fence device, by its UID.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceKey {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its UID.
    pub uid: Uid,
}

impl CustomSpec for FenceDeviceSpec {
    type Status = FenceDeviceStatus;
}

impl CustomSpec for FencePolicySpec {
    type Status = FencePolicyStatus;
}

impl CustomSpec for NodeFenceSpec {
    type Status = NodeFenceStatus;

    fn node_name(object: &CustomObject<Self>) -> Option<&str> {
        Some(&object.spec.node.name)
    }
}

impl CustomSpec for FenceEvidenceSpec {
    type Status = FenceEvidenceStatus;

    fn node_name(object: &CustomObject<Self>) -> Option<&str> {
        Some(&object.spec.node.name)
    }
}

impl CustomSpec for PodSafetyRemediationSpec {
    type Status = PodSafetyRemediationStatus;

    fn node_name(object: &CustomObject<Self>) -> Option<&str> {
        let annotated = object.annotations.get(NODE_NAME_ANNOTATION);
        Some(annotated.map_or(&*object.name, String::as_str))
    }
}

/// An object of a custom resource of pod-safety.
#[derive(Clone, Debug, PartialEq)]
pub struct CustomObject<S: CustomSpec> {
    /// Its name.
    pub name: Arc<str>,
    /// Its namespace; empty for cluster-scoped kinds.
    pub namespace: Arc<str>,
    /// Its UID.
    pub uid: Uid,
    /// The resourceVersion that was read.
    pub rv: Rv,
    /// The generation of its spec.
    pub generation: i64,
    /// `creationTimestamp`, seconds of the API server's clock.
    pub created: i64,
    /// Whether its deletion was requested.
    pub deleting: bool,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Its finalizers.
    pub finalizers: Vec<String>,
    /// Its spec.
    pub spec: S,
    /// Its status.
    pub status: S::Status,
    /// When this process first saw it.
    pub first_seen: Mono,
    /// When this process first saw this status. Deadlines in the status count from here, on the monotonic clock.
    pub status_seen: Mono,
}

impl<S: CustomSpec> CustomObject<S> {
    /// The node that it is about; `None`: it is about several.
    #[must_use]
    pub fn node(&self) -> Option<&str> {
        S::node_name(self)
    }
}

/// A FenceDevice.
pub type FenceDeviceObject = CustomObject<FenceDeviceSpec>;

/// The state of a device, for metrics, `status` and `doctor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
pub enum DeviceState {
    /// Every node was answered for at the last status check.
    Ready,
    /// Some were not, or the check found a problem.
    NotReady,
    /// Evidence from it was contradicted: it is not used, whatever it reports.
    NotTrusted,
    /// It was not checked since it was created or changed.
    Unseen,
}

impl DeviceState {
    /// All of them.
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    /// The state's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl FenceDeviceObject {
    /// The state by its conditions. A condition about an earlier spec does not count for this one, except
    /// `Trusted=False`.
    #[must_use]
    pub fn state(&self) -> DeviceState {
        if self.status.condition_status("Trusted") == Some("False") {
            return DeviceState::NotTrusted;
        }
        match self.status.condition_status("Ready").filter(|_| self.status.observed_generation == self.generation) {
            Some("True") => DeviceState::Ready,
            Some(_) => DeviceState::NotReady,
            None => DeviceState::Unseen,
        }
    }

    /// The result of the last status check, for operators.
    #[must_use]
    pub fn not_ready_reason(&self) -> &str {
        let ready = self.status.conditions.iter().find(|one| one.r#type == "Ready");
        ready.map(|ready| ready.message.as_str()).filter(|why| !why.is_empty()).unwrap_or("no reason is given")
    }
}

/// A FencePolicy.
pub type FencePolicyObject = CustomObject<FencePolicySpec>;
/// A NodeFence.
pub type NodeFenceObject = CustomObject<NodeFenceSpec>;
/// A FenceEvidence: the object. The kernel makes its own evidence of it, by live reads.
pub type FenceEvidenceObject = CustomObject<FenceEvidenceSpec>;
/// A PodSafetyRemediation.
pub type RemediationObject = CustomObject<PodSafetyRemediationSpec>;
