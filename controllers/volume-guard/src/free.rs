//! A volume without a holder: the node that becomes its holder.

use std::sync::Arc;
use std::time::Duration;

use crate::holds::{Decision, Doubt, Hold};
use pod_safety_shared::authority::{AttachDenial, VolumeChange};
use pod_safety_shared::cache::{Lookup, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::controller_loop::Subject;
use pod_safety_shared::model::{Holder, Node, Pod, Readiness, Uid};

use super::context::{VolumeContext, find_users};
use super::detach::{detachable_from, detached_node, hold_detached, refusal_for_barred};
use super::uses::{Use, find_uses, first_bound, first_pod, is_proved_off};

/// A volume without a holder: the node that uses it becomes the holder.
pub(super) fn decide_free(ctx: &VolumeContext<'_>, view: &View<'_>, now: Mono, quarantine: Duration) -> Decision {
    if !ctx.is_guarded {
        return ctx.write(VolumeChange::DeleteLease);
    }
    match next_holder(ctx, view, now, quarantine) {
        Ok(Some((node, pod))) => ctx.write(take_lease(ctx, node, pod, view)),
        Ok(None) => decide_unused(ctx, view),
        Err(waits) => waits,
    }
}

/// The node that becomes the holder, and the first pod that uses the volume there; or the holds of waiting pods.
pub(super) fn next_holder<'a>(
    ctx: &VolumeContext<'_>,
    view: &View<'a>,
    now: Mono,
    quarantine: Duration,
) -> Result<Option<(&'a Node, Option<Uid>)>, Decision> {
    let users = find_users(ctx, view, now).map_err(|hold| ctx.hold(hold))?;
    let writers: Vec<_> = users.iter().filter(|(_, used)| used.writes).collect();
    if writers.len() > 1 {
        return Err(ctx.hold(ctx.hold_several_nodes(&writers)));
    }
    if writers.is_empty()
        && let Some((node, used)) = last_writer_proved_off(ctx, view, now)
    {
        return Ok(Some((node, first_pod(&used))));
    }
    let chosen = users
        .iter()
        .min_by_key(|(node, used)| (!used.writes, !used.attachment, first_bound(used), Arc::clone(&node.name)));
    let Some((node, used)) = chosen else { return Ok(None) };
    if let Some(pod) = user_on_missing_node(ctx, view) {
        let node = pod.node.as_deref().unwrap_or_default();
        let may_run = "has no Node object, and may run until that pod is gone";
        return Err(hold_waiting(ctx, used, format!("pod {} uses it on node {node}, which {may_run}", pod.key)));
    }
    if let Some((why, until)) = removed_on_missing_node(ctx.name, view, now, quarantine) {
        return Err(until.into_iter().fold(hold_waiting(ctx, used, why), Decision::and_requeue_at));
    }
    Ok(Some((node, first_pod(used))))
}

/// The node that wrote to the volume by its last report and is proved off, if the Lease was never revoked. It becomes
/// the holder first: the evidence in the cache may be invalid by now, and a revocation verifies it again.
fn last_writer_proved_off<'a>(ctx: &VolumeContext<'_>, view: &View<'a>, now: Mono) -> Option<(&'a Node, Use<'a>)> {
    if ctx.lease.is_some_and(|lease| lease.generation > 0) {
        return None;
    }
    find_uses(ctx.name, ctx.volume, view).into_iter().filter(|(_, used)| used.writes).find_map(
        |(name, used)| match view.node(&name) {
            Lookup::Known(node) if is_proved_off(node, view, now) => Some((node, used)),
            Lookup::Known(_) | Lookup::Absent | Lookup::Unknown(_) => None,
        },
    )
}

/// A pod that uses the volume and is bound to a missing node. A Lease can name no incarnation of that node, and its
/// kubelet may run the pod until the pod is gone: the pod garbage collector decides about that.
fn user_on_missing_node<'a>(ctx: &VolumeContext<'_>, view: &View<'a>) -> Option<&'a Pod> {
    let users = find_uses(ctx.name, ctx.volume, view).into_iter();
    let mut missing = users.filter(|(node, _)| matches!(view.node(node), Lookup::Absent));
    missing.find_map(|(_, used)| used.pods.first().copied())
}

/// Another client removed a pod on a missing node. A kubelet that sees only the removal still gives the processes
/// their grace period. Returns the message, and when that is over, if known.
pub(super) fn removed_on_missing_node(
    volume: &str,
    view: &View<'_>,
    now: Mono,
    quarantine: Duration,
) -> Option<(String, Option<Mono>)> {
    let (node, ends) = view.last_termination_on_missing_node(volume)?;
    let until = ends.map(|ends| ends + quarantine);
    let why = match until {
        Some(until) if now >= until => return None,
        Some(_) => "until its grace period and the quarantine are over",
        None => {
            "for its kubelet may have been starting a container of it, or itself. Restart that kubelet, so that it registers its Node again"
        }
    };
    let pod = format!("a pod that was removed on node {node}, which has no Node object, may still run");
    Some((format!("{pod} {why}"), until))
}

fn hold_waiting(ctx: &VolumeContext<'_>, used: &Use<'_>, why: String) -> Decision {
    let hold = Hold::Waits { volume: Arc::clone(ctx.name), why };
    let waiting = used.pods.iter().map(|pod| (Subject::Pod(pod.key.clone()), hold.clone()));
    Decision { holds: waiting.collect(), ..Decision::default() }
}

/// Without a holder and without users: the denial of attachments ends with the last barred node.
fn decide_unused(ctx: &VolumeContext<'_>, view: &View<'_>) -> Decision {
    match (ctx.lease, detached_node(ctx, view)) {
        (_, Some(node)) => ctx.hold(hold_detached(ctx, &node.name)),
        (Some(lease), None) if lease.detach_from.is_some() => ctx.write(VolumeChange::Allow),
        (_, None) => Decision::default(),
    }
}

/// The node becomes the holder, or remains so.
pub(super) fn take_lease(ctx: &VolumeContext<'_>, node: &Node, pod: Option<Uid>, view: &View<'_>) -> VolumeChange {
    let (holder, refused) = holder_for(ctx, node, pod, view);
    VolumeChange::Acquire { holder, denial: refused }
}

/// The holder in the Lease for this node, and the denial that goes with it.
pub(super) fn holder_for(
    ctx: &VolumeContext<'_>,
    node: &Node,
    pod: Option<Uid>,
    view: &View<'_>,
) -> (Holder, Option<AttachDenial>) {
    let holder = Holder::for_node(node, pod);
    let doubt = match node.readiness {
        Readiness::Ready if node.out_of_service => Some(Doubt::OutOfService),
        Readiness::Ready => None,
        _ => Some(Doubt::NotReady),
    };
    let refused = match doubt {
        Some(doubt) => {
            let detach_from = detachable_from(ctx, &holder, view);
            let why = ctx.hold_no_evidence(&holder, doubt, detach_from.is_some()).to_string();
            Some(AttachDenial { why, detach_from })
        }
        None => refusal_for_barred(ctx, view)
            .filter(|kept| kept.detach_from.as_ref().is_none_or(|from| from.uid != node.uid)),
    };
    (holder, refused)
}
