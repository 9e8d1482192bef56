//! What people hear of volumes: the journal's line, and an Event at the PersistentVolume.

use std::sync::Arc;

use pod_safety_leader::outcome::Outcome;
use pod_safety_proof::EvidenceKind;

use super::super::volume::{Refused, VolumeChange, VolumeUpdate};
use super::Authority;
use crate::events::{About, Event, EventType, Speaker};
use crate::model::{Holder, VolumeKey};
use crate::record::{Action, Record, error_chain};

/// The reason of Events about Leases that stay their holders', because live reads gave no evidence.
const NOT_REVOKED: &str = "VolumeLeaseNotRevoked";

impl Authority {
    pub(super) fn tell_volume(
        &self,
        update: &VolumeUpdate,
        outcome: &Outcome,
        found: &Option<EvidenceKind>,
        controller: &'static str,
    ) {
        let (action, reason, message) = match outcome {
            Outcome::Written => (Action::Guarded, update.change.name(), said(update, found.as_ref())),
            Outcome::Failed(error) => (Action::Failed, error.category(), error_chain(error)),
            Outcome::Refused(refusal) => (Action::Refused, refusal.reason(), error_chain(refusal)),
            _ => {
                tracing::debug!(controller, uid = %update.uid, volume = &*update.volume, outcome = outcome.name(), "the Lease of a volume was not written; deciding again");
                return;
            }
        };
        // Who takes a volume and gives it back is everyday; what people must know is the rest.
        let event = match (&update.change, outcome) {
            (VolumeChange::Break { .. }, Outcome::Refused(_)) => {
                Some((EventType::Warning, NOT_REVOKED, Some(reason)))
            }
            (
                VolumeChange::Break { .. } | VolumeChange::Refuse(_) | VolumeChange::Allow,
                Outcome::Written,
            ) => Some((EventType::Normal, reason, None)),
            _ => None,
        };
        if let Some((kind, reason, code)) = event {
            let about =
                About::Volume(VolumeKey { name: Arc::clone(&update.volume), uid: update.uid.clone() });
            let message = message.clone();
            self.events.record(Event { speaker: Speaker::Ours, about, kind, reason, code, message });
        }
        let (at, node) = (self.env.clock.wall(), node_of(&update.change));
        let (pod, budget, node_uid) = (None, None, None);
        let message = format!("volume {}: {message}", update.volume);
        self.journal.write(Record { at, controller, action, pod, budget, node, node_uid, reason, message });
    }
}

fn node_of(change: &VolumeChange) -> Option<Arc<str>> {
    match change {
        VolumeChange::Take { holder, .. } | VolumeChange::Break { holder, .. } => {
            Some(Arc::clone(&holder.node))
        }
        VolumeChange::Refuse(_)
        | VolumeChange::Allow
        | VolumeChange::Release { .. }
        | VolumeChange::Forget => None,
    }
}

fn said(update: &VolumeUpdate, found: Option<&EvidenceKind>) -> String {
    match &update.change {
        VolumeChange::Take { holder, refused: None } => format!("taken by node {}", holder.node),
        VolumeChange::Take { holder, refused: Some(Refused { why, .. }) } => {
            format!("taken by node {}, and not every node may attach it: {why}", holder.node)
        }
        VolumeChange::Refuse(Refused { why, .. }) => why.clone(),
        VolumeChange::Allow => "there is no objection any more: it may be attached and detached".to_owned(),
        VolumeChange::Release { .. } => "its node no longer uses it, and it is free".to_owned(),
        VolumeChange::Break { next: Some(Holder { node, .. }), .. } => format!(
            "taken by node {node} in its present boot: {}",
            found.map_or_else(String::new, ToString::to_string)
        ),
        VolumeChange::Break { holder, next: None, .. } => format!(
            "it is free, although node {} did not unmount it: {}",
            holder.node,
            found.map_or_else(String::new, ToString::to_string)
        ),
        VolumeChange::Forget => "it is gone, and so is its Lease".to_owned(),
    }
}
