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

use std::sync::Arc;

use futures::future::BoxFuture;
use pod_safety_leader::outcome::{RequestError, version_of};
use pod_safety_leader::send::WriteContext;
use pod_safety_proof::RevocationBasis;
use serde_json::{Value, json};

pub use budget::BudgetUpdate;
pub use finished::FinishedObject;
pub use pod::{LostNodePodUpdate, NotDisruptedUpdate};

use super::eviction::{EvictionShared, EvictionUpdate};
use super::node::{NodeChanges, NodeUpdate};
use super::outcome::UpdateOutcome;
use super::verify::Verifier;
use super::volume::{UngateUpdate, VolumeUpdate};
use super::writer::{Authority, PriorityLevel, WorkerPool};
use crate::client::{Call, Method, WriteCall as _};
use crate::model::{Rv, Uid};
use crate::record::error_chain;

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

/// What a write returns: its outcome, and what it found or changed.
pub(super) type Written = (UpdateOutcome, NodeChanges);

/// The parts that a write needs.
pub(super) struct UpdateTurn<'a, 'b> {
    pub(super) writer: &'a WriteContext<'a>,
    pub(super) verifier: &'a mut Verifier<'b>,
    pub(super) evictions: &'a EvictionShared,
}

/// The object that is written.
pub(super) struct WriteTarget<'a> {
    pub(super) uid: &'a Uid,
    /// The version on which the update rests.
    pub(super) rv: Rv,
    /// The flow in the fair queue: there is one for each namespace, each node and each volume.
    pub(super) flow: &'a Arc<str>,
}

/// One kind of update. Updates of one object are serialized, whichever controller requests them.
pub(super) trait StatusWrite: Sync {
    /// What is written, and its place in the fair queue.
    fn target(&self) -> WriteTarget<'_>;

    /// The basis of a revocation.
    fn release_basis(&self) -> Option<RevocationBasis> {
        None
    }

    /// The priority level in the fair queue.
    fn level(&self) -> PriorityLevel {
        PriorityLevel::Update
    }

    /// The workers that execute it.
    fn pool(&self) -> WorkerPool {
        WorkerPool::Default
    }

    /// Executes it within the leader's term.
    fn write<'a>(&'a self, turn: UpdateTurn<'a, '_>) -> BoxFuture<'a, Written>;

    /// Logs that it was written, unless the journal has the line.
    fn log_written(&self, _controller: &'static str) {}

    /// Logs the outcome, unless the journal has this line already.
    fn log(&self, outcome: &UpdateOutcome, controller: &'static str) {
        let WriteTarget { uid, flow, .. } = self.target();
        match outcome {
            UpdateOutcome::Written => self.log_written(controller),
            UpdateOutcome::Error(RequestError::Failed(error)) => {
                tracing::warn!(controller, %uid, of = %flow, error = %error_chain(error), "a status was not written; trying again");
            }
            UpdateOutcome::NoEffect => {
                tracing::warn!(controller, %uid, of = %flow, "an update of a status had no effect: an admission webhook or policy reverts it; trying again");
            }
            _ => {
                tracing::debug!(controller, %uid, of = %flow, outcome = outcome.name(), "a status was not written; deciding again");
            }
        }
    }

    /// Records the outcome: a line in the journal, an Event.
    fn record(&self, _: &Authority, _: &UpdateOutcome, _: &NodeChanges, _controller: &'static str) {}
}

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

/// The call that writes a status.
fn patch(path: String, WriteTarget { uid, rv, .. }: WriteTarget<'_>, status: Value) -> Call {
    let body = json!({ "metadata": { "uid": uid, "resourceVersion": rv }, "status": status });
    Call::write(Method::Patch, path, &body)
}

/// Sends the one request of an update.
pub(super) fn send<'a>(turn: UpdateTurn<'a, '_>, rv: Rv, call: Call) -> BoxFuture<'a, Written> {
    let writer = turn.writer;
    Box::pin(async move {
        let outcome = match writer.send(call, None).await {
            Ok(answer) if version_of(&answer) == Some(rv) => UpdateOutcome::NoEffect,
            Ok(_) => UpdateOutcome::Written,
            Err(error) => error.into(),
        };
        (outcome, NodeChanges::default())
    })
}
