//! What keeps a node from a volume that it did not release: that it was detached, or that its storage is fenced.

use std::sync::Arc;

use crate::holds::{Decision, Hold};
use pod_safety_shared::authority::AttachDenial;
use pod_safety_shared::cache::{Lookup, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{Holder, Node, NodeKey, VolumeLease};

use super::context::{VolumeContext, refuse};
use super::uses::{find_uses, has_lost, is_attached};

/// The node from which the volume was detached, if its pods would have it attached there again.
pub(super) fn detached_node(ctx: &VolumeContext<'_>, view: &View<'_>) -> Option<NodeKey> {
    let node = find_uses(ctx.name, ctx.volume, view).into_keys().find_map(|name| match view.node(&name) {
        Lookup::Known(node) => Some(node).filter(|node| has_lost(ctx.lease, node, view)),
        Lookup::Absent | Lookup::Unknown(_) => None,
    });
    node.map(Node::key)
}

pub(super) fn hold_detached(ctx: &VolumeContext<'_>, node: &Arc<str>) -> Hold {
    Hold::Detached { volume: Arc::clone(ctx.name), node: Arc::clone(node) }
}

/// The denial for a free volume, or one with a healthy holder, while a barred node still wants it.
pub(super) fn refusal_for_barred(ctx: &VolumeContext<'_>, view: &View<'_>) -> Option<AttachDenial> {
    let node = detached_node(ctx, view)?;
    Some(AttachDenial { why: hold_detached(ctx, &node.name).to_string(), detach_from: Some(node) })
}

/// Whether the volume may be detached from its holder, which may still write: only if that will prove something. So
/// it must be attached there when the Lease records that; a volume that never was attached cannot be detached.
pub(super) fn detachable_from(ctx: &VolumeContext<'_>, holder: &Holder, view: &View<'_>) -> Option<NodeKey> {
    let written = ctx.lease.is_some_and(|lease| lease.attach_and_detach_denied && lease.was_attached_to_holder(holder));
    let is_detachable = ctx.can_detach && (written || is_attached(ctx.name, &holder.node, view));
    is_detachable.then(|| NodeKey { name: Arc::clone(&holder.node), uid: holder.node_uid.clone() })
}

/// The evidence that the volume's storage accepts no writes from its holder.
pub(super) fn storage_evidence(
    ctx: &VolumeContext<'_>,
    holder: &Holder,
    view: &View<'_>,
    now: Mono,
) -> Option<Arc<str>> {
    let driver = ctx.volume?.driver.as_ref()?;
    view.storage_evidence(holder, driver, now).map(|proof| Arc::clone(&proof.name))
}

/// Whether a pod that uses it is bound to another node.
pub(super) fn is_wanted_elsewhere(ctx: &VolumeContext<'_>, holder: &Node, view: &View<'_>) -> bool {
    let mut waiting = view.pods_using(ctx.name).filter(|pod| !pod.has_terminated());
    waiting.any(|pod| pod.node.as_ref().is_some_and(|node| *node != holder.name))
}

/// The holder is healthy and has the volume mounted, and its pods were force deleted. The out-of-service taint, or a
/// deleted VolumeAttachment, would give the volume to a second writer: it stays where it is until the kubelet has
/// unmounted it.
pub(super) fn refuse_left_mounted(ctx: &VolumeContext<'_>, lease: &VolumeLease, node: &Node) -> Decision {
    let why = format!(
        "its pods on node {} were force deleted, and the kubelet reports that it is still mounted there",
        node.name
    );
    let hold = Hold::Waits { volume: Arc::clone(ctx.name), why };
    refuse(ctx, lease, hold, None)
}

/// The holder was not healthy, and is again. The attach/detach controller treats an attachment whose detachment was
/// denied as uncertain, and then attaches the volume to a second node as well: so it must first be detached from the
/// holder, once that no longer uses it.
pub(super) fn refuse_until_detached(ctx: &VolumeContext<'_>, lease: &VolumeLease, node: &Node, idle: bool) -> Decision {
    refuse(ctx, lease, hold_until_detached(ctx, node), idle.then(|| node.key()))
}

pub(super) fn hold_until_detached(ctx: &VolumeContext<'_>, node: &Node) -> Hold {
    let why = format!("it is attached to node {}, and must be detached there first", node.name);
    Hold::Waits { volume: Arc::clone(ctx.name), why }
}
