//! The write of a volume's Lease as a [`StatusWrite`], and its records: the line in the journal, and an Event on the
//! PersistentVolume.

use std::sync::Arc;

use futures::future::BoxFuture;
use pod_safety_leader::outcome::RequestError;
use pod_safety_proof::{EvidenceKind, RevocationBasis};

use super::super::node::NodeChanges;
use super::super::outcome::UpdateOutcome;
use super::super::priority::WorkerPool;
use super::super::status_write::{Records, StatusWrite, UpdateTurn, WriteTarget, Written};
use super::{AttachDenial, VolumeChange, VolumeUpdate, write};
use crate::events::{Event, EventType, InvolvedObject, ReportingController};
use crate::model::{Holder, VolumeKey};
use crate::record::{Action, Record, error_chain};

/// The reason of Events about Leases that were not revoked, because quorum reads gave no evidence.
const NOT_REVOKED: &str = "VolumeLeaseNotRevoked";

impl StatusWrite for VolumeUpdate {
    fn target(&self) -> WriteTarget<'_> {
        // Revocations use the node's flow: those of one node rest on the same evidence, so they share the reads for it, and
        // wait only once for a device that does not answer.
        let flow = if let VolumeChange::Revoke { holder, .. } = &self.change { &holder.node } else { &self.volume };
        WriteTarget { uid: &self.uid, rv: self.rv, flow }
    }

    fn release_basis(&self) -> Option<RevocationBasis> {
        if let VolumeChange::Revoke { basis, .. } = &self.change { Some(basis.clone()) } else { None }
    }

    fn pool(&self) -> WorkerPool {
        match self.release_basis() {
            Some(RevocationBasis::Evidence { .. } | RevocationBasis::Storage(_)) => WorkerPool::EvidenceChecks,
            _ => WorkerPool::Default,
        }
    }

    fn write<'a>(&'a self, turn: UpdateTurn<'a, '_>) -> BoxFuture<'a, Written> {
        Box::pin(async move {
            let (outcome, evidence) = write(turn.writer, turn.verifier, self).await;
            (outcome, NodeChanges { evidence, ..NodeChanges::default() })
        })
    }

    fn log(&self, _: &UpdateOutcome, _controller: &'static str) {}

    fn record(&self, records: &Records<'_>, outcome: &UpdateOutcome, done: &NodeChanges, controller: &'static str) {
        let (action, reason, message) = match outcome {
            UpdateOutcome::Written => (Action::Guarded, self.change.name(), message_for(self, done.evidence.as_ref())),
            UpdateOutcome::Error(RequestError::Failed(error)) => (Action::Failed, error.category(), error_chain(error)),
            UpdateOutcome::Refused(refusal) => (Action::Refused, refusal.reason(), error_chain(refusal)),
            _ => {
                tracing::debug!(controller, uid = %self.uid, volume = &*self.volume, outcome = outcome.name(), "the Lease of a volume was not written; deciding again");
                return;
            }
        };
        // Acquiring and releasing a volume is routine and causes no Event.
        let event = match (&self.change, outcome) {
            (VolumeChange::Revoke { .. }, UpdateOutcome::Refused(_)) => {
                Some((EventType::Warning, NOT_REVOKED, Some(reason)))
            }
            (
                VolumeChange::Revoke { .. } | VolumeChange::DenyAttach(_) | VolumeChange::Allow,
                UpdateOutcome::Written,
            ) => Some((EventType::Normal, reason, None)),
            _ => None,
        };
        if let Some((kind, reason, code)) = event {
            let object = InvolvedObject::Volume(VolumeKey { name: Arc::clone(&self.volume), uid: self.uid.clone() });
            let message = message.clone();
            records.events.record(Event { reporter: ReportingController::Own, object, kind, reason, code, message });
        }
        let (at, node) = (records.at, node_of(&self.change));
        let (pod, budget, node_uid) = (None, None, None);
        let message = format!("volume {}: {message}", self.volume);
        records.journal.write(Record { at, controller, action, pod, budget, node, node_uid, reason, message });
    }
}

fn node_of(change: &VolumeChange) -> Option<Arc<str>> {
    match change {
        VolumeChange::Acquire { holder, .. } | VolumeChange::Revoke { holder, .. } => Some(Arc::clone(&holder.node)),
        VolumeChange::DenyAttach(_)
        | VolumeChange::Allow
        | VolumeChange::Release { .. }
        | VolumeChange::DeleteLease => None,
    }
}

fn message_for(update: &VolumeUpdate, evidence: Option<&EvidenceKind>) -> String {
    match &update.change {
        VolumeChange::Acquire { holder, denial: None } => format!("taken by node {}", holder.node),
        VolumeChange::Acquire { holder, denial: Some(AttachDenial { why, .. }) } => {
            format!("taken by node {}, and not every node may attach it: {why}", holder.node)
        }
        VolumeChange::DenyAttach(AttachDenial { why, .. }) => why.clone(),
        VolumeChange::Allow => "there is no objection any more: it may be attached and detached".to_owned(),
        VolumeChange::Release { .. } => "its node no longer uses it, and it is free".to_owned(),
        VolumeChange::Revoke { next: Some(Holder { node, .. }), .. } => format!(
            "taken by node {node} in its present boot: {}",
            evidence.map_or_else(String::new, ToString::to_string)
        ),
        VolumeChange::Revoke { holder, next: None, .. } => format!(
            "it is free, although node {} did not unmount it: {}",
            holder.node,
            evidence.map_or_else(String::new, ToString::to_string)
        ),
        VolumeChange::DeleteLease => "it is gone, and so is its Lease".to_owned(),
    }
}
