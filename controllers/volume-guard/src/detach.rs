//! What keeps a node from a volume that it did not give back: that it was detached, or that its storage is fenced.

use std::sync::Arc;

use crate::holds::{Decision, Hold};
use pod_safety_shared::authority::Refused;
use pod_safety_shared::cache::{Lookup, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{Holder, Node, NodeKey, VolumeLease};

use super::case::{Case, refuse};
use super::uses::{is_attached, lost_it, uses};

/// The node from which it was detached, if its pods would have it attached there again.
pub(super) fn barred(case: &Case<'_>, view: &View<'_>) -> Option<NodeKey> {
    let found = uses(case.name, case.volume, view).into_keys().find_map(|name| match view.node(&name) {
        Lookup::Known(node) => Some(node).filter(|node| lost_it(case.lease, node, view)),
        Lookup::Absent | Lookup::Unknown(_) => None,
    });
    found.map(Node::key)
}

pub(super) fn detached_from(case: &Case<'_>, node: &Arc<str>) -> Hold {
    Hold::Detached { volume: Arc::clone(case.name), node: Arc::clone(node) }
}

/// What admission refuses about a volume that is nobody's, or that of a node that is well.
pub(super) fn kept_from(case: &Case<'_>, view: &View<'_>) -> Option<Refused> {
    let node = barred(case, view)?;
    Some(Refused { why: detached_from(case, &node.name).to_string(), detach_from: Some(node) })
}

/// Whether it may be detached from its holder, who is in doubt: only where that will prove something. So it must be
/// attached there when that is written down; what never was cannot be detached.
pub(super) fn detachable(case: &Case<'_>, holder: &Holder, view: &View<'_>) -> Option<NodeKey> {
    let written = case.lease.is_some_and(|lease| lease.refused_elsewhere && lease.was_attached_to(holder));
    let may = case.detaches && (written || is_attached(case.name, &holder.node, view));
    may.then(|| NodeKey { name: Arc::clone(&holder.node), uid: holder.node_uid.clone() })
}

/// The evidence that the volume's storage takes nothing from its holder.
pub(super) fn storage_proof(
    case: &Case<'_>,
    holder: &Holder,
    view: &View<'_>,
    now: Mono,
) -> Option<Arc<str>> {
    let driver = case.volume?.driver.as_ref()?;
    view.storage_proof(holder, driver, now).map(|proof| Arc::clone(&proof.name))
}

/// Whether a pod that uses it is bound to another node.
pub(super) fn is_wanted_elsewhere(case: &Case<'_>, holder: &Node, view: &View<'_>) -> bool {
    let mut waiting = view.users_of(case.name).filter(|pod| !pod.is_over());
    waiting.any(|pod| pod.node.as_ref().is_some_and(|node| *node != holder.name))
}

/// Its holder is well and has it mounted, and its pods were removed by force. Whoever taints the node out-of-service, or
/// deletes the VolumeAttachment, would give it to a second writer: it stays where it is until the kubelet has unmounted it.
pub(super) fn left_mounted(case: &Case<'_>, lease: &VolumeLease, node: &Node) -> Decision {
    let why = format!(
        "its pods on node {} were force deleted, and the kubelet reports that it is still mounted there",
        node.name
    );
    let hold = Hold::Waits { volume: Arc::clone(case.name), why };
    refuse(case, lease, hold, None)
}

/// Its holder was in doubt, and is well. Attach/detach takes an attachment whose detachment was refused for uncertain, and
/// then attaches the volume to a second node as well: not before it is detached from the first, once that uses it no more.
pub(super) fn detach_first(case: &Case<'_>, lease: &VolumeLease, node: &Node, idle: bool) -> Decision {
    refuse(case, lease, until_detached(case, node), idle.then(|| node.key()))
}

pub(super) fn until_detached(case: &Case<'_>, node: &Node) -> Hold {
    let why = format!("it is attached to node {}, and must be detached there first", node.name);
    Hold::Waits { volume: Arc::clone(case.name), why }
}
