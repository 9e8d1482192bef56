//! What a decision wants done about fencing.

use std::sync::Arc;

use crate::api::{DeviceRef, FencePolicyStatus, NodeFenceSpec, NodeFenceStatus, PodSafetyRemediationStatus};
use crate::model::{NodeKey, PodKey, Rv, Uid};

/// A NodeFence at the version that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceKey {
    /// Its name.
    pub name: Arc<str>,
    /// Its identity.
    pub uid: Uid,
    /// The version that was seen.
    pub rv: Rv,
}

/// One step for one node.
#[derive(Clone, Debug, PartialEq)]
pub struct FenceStepRequest {
    /// The node's name: one step at a time is taken for it.
    pub node: Arc<str>,
    /// What is done.
    pub step: Step,
}

/// What is done. Each writes the status that it carries, at the version that was seen, or nothing.
#[derive(Clone, Debug, PartialEq, strum::IntoStaticStr, strum::VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum Step {
    /// An incident begins.
    Open(Box<NodeFenceSpec>),
    /// A status is written, and nothing else is done.
    Write(Target),
    /// The node is cordoned, and these pods are evicted within their budgets.
    Drain(Target, Vec<PodKey>),
    /// The last attempt of the status is new: it is written, then its devices are asked, then what they answered is
    /// written.
    Attempt(Target),
    /// The devices of the last attempt are looked at, twice; what was seen is written into it.
    Look(Target),
    /// What the last attempt's looks showed becomes evidence, if the kubelet has been silent since.
    Prove(Target),
    /// That the last attempt's storage is fenced becomes evidence about volumes; the incident goes on.
    ProveStorage(Target),
    /// The out-of-service taint is put on the node, for the evidence that the status names.
    Taint(Target),
    /// Our out-of-service taint is taken from the node, which is Ready with another boot.
    Untaint(Target),
    /// What was proved was declared invalid by somebody: our taint goes.
    Withdraw(Target),
    /// What was proved is not true: the evidence is invalidated, its devices are no longer trusted, and our taint goes unless
    /// the status keeps it.
    Contradict(Target),
}

/// A NodeFence, and the status that it should have.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Which one.
    pub fence: FenceKey,
    /// What it is about.
    pub spec: Box<NodeFenceSpec>,
    /// As it should be.
    pub status: Box<NodeFenceStatus>,
}

impl Step {
    /// Its name in logs and metrics: closed.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// The names of all steps, for metrics; `monitor` and `remediate` are steps of their own.
    pub const NAMES: &[&str] = <Self as strum::VariantNames>::VARIANTS;

    /// Whether it waits for devices to switch a machine: for minutes, where others do that.
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

    /// Whom it is about; `Err`: there is none yet, and this is what it will be about.
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

    /// Whom it is about, if that is there.
    #[must_use]
    pub fn target(&self) -> Option<&Target> {
        self.target_or_spec().ok()
    }

    /// What it is about.
    #[must_use]
    pub fn spec(&self) -> &NodeFenceSpec {
        self.target_or_spec().map_or_else(|spec| spec, |target| &target.spec)
    }
}

/// What is written into the status of a FencePolicy, at the version that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyStatusUpdate {
    /// Its name.
    pub name: Arc<str>,
    /// Its identity.
    pub uid: Uid,
    /// The version that was seen.
    pub rv: Rv,
    /// What. Conditions without a time began now.
    pub status: FencePolicyStatus,
}

/// What is written into a PodSafetyRemediation, at the version that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemediationRequest {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its identity.
    pub uid: Uid,
    /// The version that was seen.
    pub rv: Rv,
    /// The node that it is about, if it is there: people hear of it there.
    pub node: Option<NodeKey>,
    /// What.
    pub update: RemediationUpdate,
}

/// What somebody who wants a node fenced is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemediationUpdate {
    /// Our finalizer: it is kept until nothing is begun for it any more.
    AddFinalizer,
    /// This status. Conditions without a time began now.
    WriteStatus(Box<PodSafetyRemediationStatus>),
    /// Our finalizer goes.
    RemoveFinalizer,
}

/// A device that should be looked through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonitorRequest {
    /// Its namespace and name.
    pub device: DeviceRef,
    /// Its identity.
    pub uid: Uid,
    /// The nodes that are looked at.
    pub nodes: Vec<Arc<str>>,
    /// Those are all that it can switch; else what is known of the others stays.
    pub is_complete: bool,
    /// The wish of a person ([`crate::api::TEST_ANNOTATION`]) that is answered by it.
    pub test: Option<String>,
}
