//! The state of a volume's holder.

use std::sync::Arc;
use std::time::Duration;

use crate::holds::Doubt;
use pod_safety_shared::authority::RevocationBasis;
use pod_safety_shared::cache::{Lookup, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{Holder, Node, Readiness};

/// The state of a volume's holder.
#[derive(Debug)]
pub(super) enum HolderState<'a> {
    /// The node is Ready, in the incarnation in which it acquired the volume.
    Healthy(&'a Node),
    /// The same machine in the same boot, with a new Node.
    Reregistered(&'a Node),
    /// As `Healthy`, but with the out-of-service taint, by which the attach/detach controller takes the volume at
    /// once.
    Tainted(&'a Node),
    /// It may still write.
    Doubted(Doubt),
    /// It may still write; its Node was deleted, and the quarantine is not over.
    Missing {
        /// No quorum read of the Node was made yet.
        needs_read: bool,
        /// When to check again.
        until: Option<Mono>,
    },
    /// It cannot write any more.
    Ended(RevocationBasis),
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
            // The boot that acquired the volume cannot come back, so evidence about its end stays valid.
            let booted = boot_id.is_known_different(holder.boot_id);
            let ended = view.evidence_for_former(holder, now).filter(|_| booted);
            return match ended {
                Some(proof) => HolderState::Ended(RevocationBasis::Replaced(Arc::clone(&proof.name))),
                None => HolderState::Doubted(Doubt::Replaced { booted }),
            };
        }
        if boot_id.is_known_different(holder.boot_id) {
            return HolderState::Ended(RevocationBasis::Rebooted);
        }
        if node.readiness != Readiness::Ready {
            return match view.evidence_for(node, now) {
                Some(proof) => {
                    let newest = view.newest_evidence(proof);
                    HolderState::Ended(RevocationBasis::Evidence { proof: Arc::clone(&proof.name), newest })
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
        let last_heartbeat = view.last_heartbeat(&holder.node).filter(|sign| sign.at >= absence_read.requested_at());
        if let Some(sign) = last_heartbeat {
            // Only a read that is taken after the kubelet stopped reporting can start a quarantine.
            let until = sign.at + quarantine;
            return HolderState::Missing { needs_read: now >= until, until: Some(until) };
        }
        // Another client removed a pod. A kubelet that sees only the removal still gives the processes their grace period.
        let ends = view.removed_pods_terminate_at(volume, holder);
        let until = ends.map_or(absence_read.answered_at(), |ends| ends.max(absence_read.answered_at())) + quarantine;
        if now < until {
            return HolderState::Missing { needs_read: false, until: Some(until) };
        }
        // Its pods are deleted gracefully first.
        if view.is_used_on_missing_node(volume, holder) {
            return HolderState::Missing { needs_read: false, until: None };
        }
        HolderState::Ended(RevocationBasis::NodeGone)
    }
}

/// A holder, and the data for its state.
#[derive(Clone, Copy, Debug)]
pub(super) struct HolderCheck<'h> {
    pub(super) holder: &'h Holder,
    /// The name of the volume.
    pub(super) volume: &'h str,
    /// How long a node must have been missing.
    pub(super) quarantine: Duration,
}
