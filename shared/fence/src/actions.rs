//! What a decision requests about fencing.

use std::sync::Arc;

use crate::api::{DeviceRef, FencePolicyStatus, NodeFenceSpec, NodeFenceStatus, PodSafetyRemediationStatus};
use crate::model::{NodeKey, PodKey, Rv, Uid};

/// A NodeFence at the resourceVersion from which it was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceKey {
    /// Its name.
    pub name: Arc<str>,
    /// Its UID.
    pub uid: Uid,
    /// Its resourceVersion, from which it was decided.
    pub rv: Rv,
}

/// One step for one node.
#[derive(Clone, Debug, PartialEq)]
pub struct FenceStepRequest {
    /// The node's name: at most one step at a time is executed for a node.
    pub node: Arc<str>,
    /// The step.
    pub step: Step,
}

/// One step. Each writes the status that it carries, at the resourceVersion from which it was decided, or nothing.
#[derive(Clone, Debug, PartialEq, strum::IntoStaticStr, strum::VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum Step {
    /// Creates the NodeFence.
    Open(Box<NodeFenceSpec>),
    /// Writes a status. When the incident is over, what was made for it is removed first.
    Write(Target),
    /// Cordons the node, and evicts these pods within their PodDisruptionBudgets.
    Drain(Target, Vec<PodKey>),
    /// Starts the last attempt of the status, which is new: writes it, sends the order to its devices, and writes
    /// what they answered.
    Attempt(Target),
    /// Checks the devices of the last attempt, twice for `off`, and writes the samples into the attempt.
    Look(Target),
    /// Creates evidence from the samples of the last attempt, if the kubelet has not renewed its Lease since.
    Prove(Target),
    /// Creates evidence about volumes, as the last attempt fenced the storage. The incident goes on.
    ProveStorage(Target),
    /// Adds the out-of-service taint to the node, for the evidence that the status names.
    Taint(Target),
    /// Removes our out-of-service taint from the node, which is Ready with another boot.
    Untaint(Target),
    /// Removes our taint, as the evidence was declared invalid or no longer counts.
    Withdraw(Target),
    /// The evidence is wrong: invalidates it, marks its devices as not trusted, and removes our taint unless the
    /// status keeps it.
    Contradict(Target),
}

/// A NodeFence, and the status that it should have.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The NodeFence.
    pub fence: FenceKey,
    /// Its spec.
    pub spec: Box<NodeFenceSpec>,
    /// The status to write.
    pub status: Box<NodeFenceStatus>,
}

impl Step {
    /// The step's name in logs and metrics, one of [`Self::NAMES`].
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// The names of all steps, for metrics. `monitor` and `remediate` are requests of their own.
    pub const NAMES: &[&str] = <Self as strum::VariantNames>::VARIANTS;

    /// Whether the step waits until devices have switched a machine, which takes minutes.
    #[must_use]
    pub const fn switches_power(&self) -> bool {
        match self {
            Self::Attempt(_) => true,
            Self::Open(_)
            | Self::Write(_)
            | Self::Drain(..)
            | Self::Look(_)
            | Self::Prove(_)
            | Self::ProveStorage(_)
            | Self::Taint(_)
            | Self::Untaint(_)
            | Self::Withdraw(_)
            | Self::Contradict(_) => false,
        }
    }

    /// The NodeFence. `Err`: it does not exist yet; its spec.
    pub(crate) fn target_or_spec(&self) -> Result<&Target, &NodeFenceSpec> {
        match self {
            Self::Open(spec) => Err(spec),
            Self::Write(target)
            | Self::Drain(target, _)
            | Self::Attempt(target)
            | Self::Look(target)
            | Self::Prove(target)
            | Self::ProveStorage(target)
            | Self::Taint(target)
            | Self::Untaint(target)
            | Self::Withdraw(target)
            | Self::Contradict(target) => Ok(target),
        }
    }

    /// The NodeFence, if it exists.
    #[must_use]
    pub fn target(&self) -> Option<&Target> {
        self.target_or_spec().ok()
    }

    /// The spec of the NodeFence.
    #[must_use]
    pub fn spec(&self) -> &NodeFenceSpec {
        self.target_or_spec().map_or_else(|spec| spec, |target| &target.spec)
    }
}

/// A status of a FencePolicy to write, at the resourceVersion from which it was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyStatusUpdate {
    /// Its name.
    pub name: Arc<str>,
    /// Its UID.
    pub uid: Uid,
    /// Its resourceVersion, from which it was decided.
    pub rv: Rv,
    /// The status. A condition without a time gets the current one.
    pub status: FencePolicyStatus,
}

/// A change of a PodSafetyRemediation, at the resourceVersion from which it was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemediationRequest {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its UID.
    pub uid: Uid,
    /// Its resourceVersion, from which it was decided.
    pub rv: Rv,
    /// The node that it is about, if that exists: Events are recorded on it.
    pub node: Option<NodeKey>,
    /// The change.
    pub update: RemediationUpdate,
}

/// What is written into the PodSafetyRemediation of another operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemediationUpdate {
    /// Adds our finalizer, which keeps the object until nothing that was started for it is in progress.
    AddFinalizer,
    /// Writes this status. A condition without a time gets the current one.
    WriteStatus(Box<PodSafetyRemediationStatus>),
    /// Removes our finalizer.
    RemoveFinalizer,
}

/// A device whose nodes should be checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonitorRequest {
    /// Its namespace and name.
    pub device: DeviceRef,
    /// Its UID.
    pub uid: Uid,
    /// The nodes to check.
    pub nodes: Vec<Arc<str>>,
    /// Whether these are all nodes that the device can switch. If not, what is recorded of other nodes stays.
    pub is_complete: bool,
    /// An operator's request ([`crate::api::TEST_ANNOTATION`]) that this check answers.
    pub test: Option<String>,
}
