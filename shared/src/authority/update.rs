//! Status updates: what a controller calculated, written by compare-and-swap. Each kind is a [`StatusWrite`] in a file of its
//! own, and the enum [`Update`] lists them: no other crate can add one.
//!
//! Only `Revoke`, which takes a volume from its holder, needs evidence. No process terminates through the others: for
//! instance the numbers of a budget, or a condition that no longer holds. They need the leader's term and the version on which the calculation rests, so they never
//! overwrite the API server's own writes (an eviction that it allowed). Updates of nodes take more than one request: see
//! [`super::node`].

mod budget;
mod finished;
mod pod;

use pod_safety_proof::RevocationBasis;

pub use budget::BudgetUpdate;
pub use finished::FinishedObject;
pub use pod::{LostNodePodUpdate, NotDisruptedUpdate};

use super::eviction::EvictionUpdate;
use super::node::NodeUpdate;
use super::status_write::StatusWrite;
use super::volume::{UngateUpdate, VolumeUpdate};
use crate::model::{Rv, Uid};

/// A status that is to be written.
#[derive(Clone, Debug, PartialEq, Eq, strum::EnumDiscriminants)]
#[strum_discriminants(name(UpdateKind), vis(pub(super)), derive(PartialOrd, Ord))]
pub enum Update {
    /// The status of a budget.
    Budget(Box<BudgetUpdate>),
    /// Conditions, taints and labels of a node.
    Node(Box<NodeUpdate>),
    /// Conditions of a pod whose node is not ready.
    PodOfLostNode(LostNodePodUpdate),
    /// Set the condition `DisruptionTarget` of a pod to False, because the pod is not deleted after all.
    NotDisrupted(NotDisruptedUpdate),
    /// Change the Lease of an exclusive volume.
    Volume(Box<VolumeUpdate>),
    /// Write an EvictionRequest or an Eviction.
    Eviction(Box<EvictionUpdate>),
    /// Remove pod-safety's scheduling gate from a pod whose exclusive volumes are free.
    Ungate(UngateUpdate),
    /// Delete a NodeFence or FenceEvidence that is over and old.
    DeleteFinished(FinishedObject),
}

/// What an update rests on: a version, and for a revoked volume Lease the basis.
pub(super) type Basis = (Rv, Option<RevocationBasis>);

impl Update {
    /// The only match on the kind of an update.
    pub(super) fn as_write(&self) -> &dyn StatusWrite {
        match self {
            Self::Budget(update) => &**update,
            Self::Node(update) => &**update,
            Self::PodOfLostNode(update) => update,
            Self::NotDisrupted(update) => update,
            Self::Volume(update) => &**update,
            Self::Eviction(update) => &**update,
            Self::Ungate(update) => update,
            Self::DeleteFinished(object) => object,
        }
    }

    /// The UID of the object that is written.
    #[must_use]
    pub fn uid(&self) -> &Uid {
        self.as_write().target().uid
    }

    /// What the update rests on.
    pub(super) fn basis(&self) -> Basis {
        let write = self.as_write();
        (write.target().rv, write.release_basis())
    }

    pub(super) fn kind(&self) -> UpdateKind {
        self.into()
    }
}
