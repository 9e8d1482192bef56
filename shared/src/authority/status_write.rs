//! The writer's side of an update: what a kind of update states, and the one way in which it is sent.

use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;
use pod_safety_leader::outcome::{RequestError, version_of};
use pod_safety_leader::send::WriteContext;
use pod_safety_proof::RevocationBasis;
use serde_json::{Value, json};

use super::eviction::EvictionShared;
use super::node::NodeChanges;
use super::outcome::UpdateOutcome;
use super::priority::{PriorityLevel, WorkerPool};
use super::verify::Verifier;
use crate::client::{Call, Method, WriteCall as _};
use crate::events::Recorder;
use crate::model::{Rv, Uid};
use crate::record::{Journal, error_chain};

/// What a write returns: its outcome, and what it found or changed.
pub(super) type Written = (UpdateOutcome, NodeChanges);

/// The parts that a write needs.
pub(super) struct UpdateTurn<'a, 'b> {
    pub(super) writer: &'a WriteContext<'a>,
    pub(super) verifier: &'a mut Verifier<'b>,
    pub(super) evictions: &'a EvictionShared,
}

/// Where an outcome is recorded, and when it was.
pub(super) struct Records<'a> {
    pub(super) events: &'a Recorder,
    pub(super) journal: &'a Journal,
    pub(super) at: Timestamp,
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
    fn record(&self, _: &Records<'_>, _: &UpdateOutcome, _: &NodeChanges, _controller: &'static str) {}
}

/// The call that writes a status.
pub(super) fn patch(path: String, WriteTarget { uid, rv, .. }: WriteTarget<'_>, status: Value) -> Call {
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
