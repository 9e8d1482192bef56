//! What can be said of a volume's holder.

use std::sync::Arc;
use std::time::Duration;

use crate::holds::Doubt;
use pod_safety_shared::authority::ReleaseBasis;
use pod_safety_shared::cache::{Lookup, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{Holder, Node, Readiness};

/// What can be said of it.
#[derive(Debug)]
pub(super) enum HolderState<'a> {
    /// It is in the life in which it took the volume, and Ready.
    Healthy(&'a Node),
    /// The same machine in the same life, registered anew.
    Reregistered(&'a Node),
    /// The same, but for the out-of-service taint, which lets attach/detach take the volume at once.
    Tainted(&'a Node),
    /// It may still write.
    Doubted(Doubt),
    /// It may still write; its Node is gone, and the quarantine has so long to go.
    Missing {
        /// Nobody has asked for it by quorum read yet.
        needs_read: bool,
        /// When to look again.
        until: Option<Mono>,
    },
    /// It cannot write any more.
    Ended(ReleaseBasis),
}

impl HolderCheck<'_> {
    pub(super) fn state<'a>(&self, view: &View<'a>, now: Mono) -> HolderState<'a> {
        let holder = self.holder;
        let node = match view.node(&holder.node) {
            Lookup::Known(node) => node,
            Lookup::Unknown(why) => return HolderState::Doubted(Doubt::Unreadable(why.to_owned())),
            Lookup::Absent => return self.missing_state(view, now),
        };
        let boot_id = node.boot();
        if node.uid != holder.node_uid {
            if boot_id.is_known_same(holder.boot_id) {
                return HolderState::Reregistered(node);
            }
            // The boot that took it cannot come back, so what ended it stays true.
            let booted = boot_id.is_known_different(holder.boot_id);
            let ended = view.evidence_for_former(holder, now).filter(|_| booted);
            return match ended {
                Some(proof) => HolderState::Ended(ReleaseBasis::Replaced(Arc::clone(&proof.name))),
                None => HolderState::Doubted(Doubt::Replaced { booted }),
            };
        }
        if boot_id.is_known_different(holder.boot_id) {
            return HolderState::Ended(ReleaseBasis::Rebooted);
        }
        if node.readiness != Readiness::Ready {
            return match view.evidence_for(node, now) {
                Some(proof) => {
                    let newest = view.newest_evidence(proof);
                    HolderState::Ended(ReleaseBasis::Evidence { proof: Arc::clone(&proof.name), newest })
                }
                None => HolderState::Doubted(Doubt::NotReady),
            };
        }
        if node.out_of_service { HolderState::Tainted(node) } else { HolderState::Healthy(node) }
    }

    fn missing_state<'a>(&self, view: &View<'_>, now: Mono) -> HolderState<'a> {
        let Self { holder, volume, quarantine } = *self;
        let Some(absence) = view.absence(&holder.node) else {
            return HolderState::Missing { needs_read: false, until: None };
        };
        let Some(absence_read) = &absence.first_read else {
            return HolderState::Missing { needs_read: true, until: None };
        };
        let last_heartbeat =
            view.last_heartbeat(&holder.node).filter(|sign| sign.at >= absence_read.requested_at());
        if let Some(sign) = last_heartbeat {
            // Only a read that is taken after the kubelet fell silent can start a quarantine.
            let until = sign.at + quarantine;
            return HolderState::Missing { needs_read: now >= until, until: Some(until) };
        }
        // Another client removed a pod. A kubelet that sees only the removal still gives the processes their grace period.
        let ends = view.removed_pods_terminate_at(volume, holder);
        let until =
            ends.map_or(absence_read.answered_at(), |ends| ends.max(absence_read.answered_at())) + quarantine;
        if now < until {
            return HolderState::Missing { needs_read: false, until: Some(until) };
        }
        // Its pods are asked to end first.
        if view.is_used_on_missing_node(volume, holder) {
            return HolderState::Missing { needs_read: false, until: None };
        }
        HolderState::Ended(ReleaseBasis::NodeGone)
    }
}

/// A holder, and what it takes to judge it.
#[derive(Clone, Copy, Debug)]
pub(super) struct HolderCheck<'h> {
    pub(super) holder: &'h Holder,
    /// Of this volume.
    pub(super) volume: &'h str,
    /// For how long a node must have been missing.
    pub(super) quarantine: Duration,
}
