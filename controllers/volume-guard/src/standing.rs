//! What can be said of a volume's holder.

use std::sync::Arc;
use std::time::Duration;

use crate::holds::Doubt;
use pod_safety_shared::authority::FencedBy;
use pod_safety_shared::cache::{Lookup, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{Holder, Node, Readiness};

/// What can be said of it.
#[derive(Debug)]
pub(super) enum Standing<'a> {
    /// It is in the life in which it took the volume, and Ready.
    Well(&'a Node),
    /// The same machine in the same life, registered anew.
    Registered(&'a Node),
    /// The same, but for the out-of-service taint, which lets attach/detach take the volume at once.
    Tainted(&'a Node),
    /// It may still write.
    Doubted(Doubt),
    /// It may still write; its Node is gone, and the quarantine has so long to go.
    Missing {
        /// Nobody has asked for it by quorum read yet.
        unasked: bool,
        /// When to look again.
        until: Option<Mono>,
    },
    /// It cannot write any more.
    Over(FencedBy),
}

impl Holding<'_> {
    pub(super) fn standing<'a>(&self, view: &View<'a>, now: Mono) -> Standing<'a> {
        let holder = self.holder;
        let node = match view.node(&holder.node) {
            Lookup::Known(node) => node,
            Lookup::Unknown(why) => return Standing::Doubted(Doubt::Unreadable(why.to_owned())),
            Lookup::Absent => return self.missing(view, now),
        };
        let boot_id = node.boot();
        if node.uid != holder.node_uid {
            if boot_id.is(holder.boot_id) {
                return Standing::Registered(node);
            }
            // The boot that took it cannot come back, so what ended it stays true.
            let booted = boot_id.differs(holder.boot_id);
            let ended = view.proof_of_former(holder, now).filter(|_| booted);
            return match ended {
                Some(proof) => Standing::Over(FencedBy::Replaced(Arc::clone(&proof.name))),
                None => Standing::Doubted(Doubt::Replaced { booted }),
            };
        }
        if boot_id.differs(holder.boot_id) {
            return Standing::Over(FencedBy::Rebooted);
        }
        if node.readiness != Readiness::Ready {
            return match view.proof_of(node, now) {
                Some(proof) => {
                    let newest = view.newest_evidence(proof);
                    Standing::Over(FencedBy::Evidence { proof: Arc::clone(&proof.name), newest })
                }
                None => Standing::Doubted(Doubt::NotReady),
            };
        }
        if node.out_of_service { Standing::Tainted(node) } else { Standing::Well(node) }
    }

    fn missing<'a>(&self, view: &View<'_>, now: Mono) -> Standing<'a> {
        let Self { holder, volume, quarantine } = *self;
        let Some(absence) = view.absence(&holder.node) else {
            return Standing::Missing { unasked: false, until: None };
        };
        let Some(witness) = &absence.witness else { return Standing::Missing { unasked: true, until: None } };
        let quiet = view.last_sign_of_life(&holder.node).filter(|sign| sign.at >= witness.asked_at());
        if let Some(sign) = quiet {
            // Only a read that is taken after the kubelet fell silent can start a quarantine.
            let until = sign.at + quarantine;
            return Standing::Missing { unasked: now >= until, until: Some(until) };
        }
        // Another client removed a pod. A kubelet that sees only the removal still gives the processes their grace period.
        let ends = view.removed_pods_end_on_missing(volume, holder);
        let until = ends.map_or(witness.answered_at(), |ends| ends.max(witness.answered_at())) + quarantine;
        if now < until {
            return Standing::Missing { unasked: false, until: Some(until) };
        }
        // Its pods are asked to end first.
        if view.is_used_on_missing(volume, holder) {
            return Standing::Missing { unasked: false, until: None };
        }
        Standing::Over(FencedBy::NodeGone)
    }
}

/// A holder, and what it takes to judge it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holding<'h> {
    pub(super) holder: &'h Holder,
    /// Of this volume.
    pub(super) volume: &'h str,
    /// For how long a node must have been missing.
    pub(super) quarantine: Duration,
}
