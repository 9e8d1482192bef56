//! Decides which node holds a volume, and which nodes have to wait for it. Pure.

use std::sync::Arc;
use std::time::Duration;

use crate::holds::{Decision, Doubt, Hold};
use pod_safety_shared::authority::{AttachDenial, Intent, RevocationBasis, VolumeChange};
use pod_safety_shared::cache::{Lookup, STALE_AFTER, UseReport, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::controller_loop::Subject;
use pod_safety_shared::model::{Holder, Kind, LeaseHolder, Node, Uid, Volume, VolumeLease};

use super::config::Config;
use super::context::{RECHECK_AFTER, VolumeContext, find_users, refuse};
use super::detach::{
    detachable_from, detached_node, hold_detached, hold_until_detached, is_wanted_elsewhere, refusal_for_barred,
    refuse_left_mounted, refuse_until_detached, storage_evidence,
};
use super::free::{decide_free, holder_for, next_holder, take_lease};
use super::gate;
use super::holder_state::{HolderCheck, HolderState};
use super::uses::{Use, find_uses, first_pod, is_attached, is_left_mounted};

/// The kinds whose caches must be synced and fresh.
pub(super) const REQUIRED_KINDS: &[Kind] = &[
    Kind::Pods,
    Kind::Nodes,
    Kind::NodeLeases,
    Kind::FencePolicies,
    Kind::FenceEvidences,
    Kind::Volumes,
    Kind::Claims,
    Kind::Attachments,
    Kind::VolumeLeases,
];

/// An object of these kinds that cannot be decoded may be about any volume.
const COMPLETE_KINDS: [Kind; 3] = [Kind::VolumeLeases, Kind::Attachments, Kind::Claims];

/// A healthy node that no longer uses a volume, though its kubelet did not report the end of the use, has released it
/// after this time: running kubelets terminate pods that were removed from the API within seconds, and the longest
/// grace periods in use are minutes. This is no proof; so it is used only if no better report can come, after a force
/// delete or a restart of this process.
pub(super) const NO_REPORT_GRACE: Duration = Duration::from_secs(600);

/// The same if the kubelet reports other volumes of that driver in use, and not this one.
///
/// Why that is a report about this volume: a kubelet reports an attachable volume in `volumesInUse` before it mounts
/// it and until it has unmounted it. Other volumes of the driver in the list show that the driver's volumes are
/// reported at all, and that the kubelet has filled the list since its Node was created: the list of a new Node is
/// empty until the kubelet knows its mounts, and later it is shortened only after an unmount. The kubelet cannot
/// mount the volume again: that takes an attachment, and there is none.
///
/// Why so late: the end of the last attachment, or the start of this process, was seen at a time T, and the report of
/// the mount came before that attachment was deleted. Other watches may be behind by at most `STALE_AFTER`, or no
/// decision is made. So the Node that the cache has after that time is not older than T, and shows that report, if
/// there was one.
pub(super) const UNUSED_GRACE: Duration = STALE_AFTER;

/// A kubelet reports the end of a pod's containers before it unmounts, and then reports no more about a volume
/// without attachment; it removes a deleted pod after the unmount, but the pod of a Job that has completed is not
/// deleted. The kubelet gives each of the two calls that unmount a CSI volume two minutes (`csiTimeout`), and an
/// unmount that takes longer than both hangs for a reason that an operator sees.
pub(super) const UNMOUNT_GRACE: Duration = Duration::from_secs(240);

/// The key of a decision.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The volume of this name.
    Volume(Arc<str>),
    /// A pod with our scheduling gate.
    Gate(Uid),
}

/// Decides about one key.
#[must_use]
pub fn decide(key: &Key, view: &View<'_>, now: Mono, config: &Config) -> Decision {
    for kind in REQUIRED_KINDS {
        if let Err(unfresh) = view.check_fresh(*kind, now) {
            return Decision::hold(Subject::Everything, unfresh).and_requeue_at(now + RECHECK_AFTER);
        }
    }
    match key {
        Key::Volume(name) => {
            let decision = decide_volume(name, view, now, config);
            if decision.holds.is_empty() { decision } else { decision.and_requeue_at(now + RECHECK_AFTER) }
        }
        Key::Gate(uid) => match view.pod(uid) {
            Some(pod) => gate::decide(pod, view, now, config),
            None => Decision::default(),
        },
    }
}

fn decide_volume(name: &Arc<str>, view: &View<'_>, now: Mono, config: &Config) -> Decision {
    let lease = view.volume_lease(name);
    let volume = match view.volume(name) {
        Lookup::Known(volume) => Some(volume),
        Lookup::Absent => None,
        Lookup::Unknown(why) => {
            let ctx = VolumeContext { name, volume: None, is_gone: false, is_guarded: false, can_detach: false, lease };
            let (volume, what) = (Arc::clone(name), "its PersistentVolume".to_owned());
            return ctx.hold(Hold::Unreadable { volume, what, why: why.to_owned() });
        }
    };
    let is_guarded = volume.is_some_and(|volume| config.guards(volume));
    let (is_gone, volume) = (volume.is_none(), view.volume_or_last_seen(name));
    let can_detach = config.can_detach(volume);
    let ctx = VolumeContext { name, volume, is_gone, is_guarded, can_detach, lease };
    if !ctx.is_guarded && lease.is_none() {
        return Decision::default();
    }
    for kind in COMPLETE_KINDS {
        let (_, count) = view.count(kind);
        if count > 0 && !(kind == Kind::Claims && has_bound_claim(volume, view)) {
            return ctx.hold(Hold::KindUnreadable { volume: Arc::clone(name), kind, count });
        }
    }
    match lease.map(|lease| (&lease.holder, lease)) {
        None | Some((LeaseHolder::Free, _)) => decide_free(&ctx, view, now, config.quarantine),
        Some((LeaseHolder::Unreadable(identity), lease)) => {
            let hold = Hold::LeaseUnreadable { volume: Arc::clone(name), identity: identity.clone() };
            refuse(&ctx, lease, hold, None)
        }
        Some((LeaseHolder::By(holder), lease)) => decide_held(&ctx, lease, holder, view, now, config),
    }
}

/// Whether the claim that the volume is bound to can be read. Then an unreadable claim is not its claim.
fn has_bound_claim(volume: Option<&Volume>, view: &View<'_>) -> bool {
    let bound = volume.and_then(|volume| volume.claim.as_ref());
    bound.is_some_and(|bound| match view.claim(&bound.namespace, &bound.name) {
        Lookup::Known(claim) => bound.uid.as_ref() == Some(&claim.uid),
        Lookup::Absent | Lookup::Unknown(_) => false,
    })
}

fn decide_held(
    ctx: &VolumeContext<'_>,
    lease: &VolumeLease,
    holder: &Holder,
    view: &View<'_>,
    now: Mono,
    config: &Config,
) -> Decision {
    let holding = HolderCheck { holder, volume: ctx.name, quarantine: config.quarantine };
    match holding.state(view, now) {
        HolderState::Healthy(node) => decide_healthy(ctx, lease, node, view, now),
        HolderState::Reregistered(node) => take_for_new_node(ctx, node, holder, view),
        // The taint proves nothing, but the kubelet's report does: an unmounted volume is free.
        HolderState::Tainted(node) => {
            let free_at = free_at(ctx, lease, node, view, now);
            if free_at.is_some_and(|at| now >= at) {
                return decide_healthy(ctx, lease, node, view, now);
            }
            let mut decision = refuse_doubted(ctx, lease, holder, Doubt::OutOfService, view, now);
            match free_at {
                Some(at) => {
                    decision.holds.extend(hold_unconfirmed(ctx, node, at, now).holds);
                    decision.and_requeue_at(at.min(now + RECHECK_AFTER))
                }
                None => decision,
            }
        }
        HolderState::Doubted(doubt) => refuse_doubted(ctx, lease, holder, doubt, view, now),
        HolderState::Missing { needs_read, until } => {
            let mut decision = refuse_doubted(ctx, lease, holder, Doubt::Missing, view, now);
            if needs_read {
                decision.intents.push(Intent::ReadMissingNode { node: Arc::clone(&holder.node) });
            }
            let again = until.map_or(now + RECHECK_AFTER, |until| until.min(now + RECHECK_AFTER));
            decision.and_requeue_at(again.max(now + Duration::from_secs(1)))
        }
        // The verifier may reject what the cache shows: attaching the volume elsewhere stays denied until the Lease
        // is revoked.
        HolderState::Ended(by)
            if !lease.attach_and_detach_denied
                && matches!(
                    by,
                    RevocationBasis::Evidence { .. } | RevocationBasis::NodeGone | RevocationBasis::Replaced(_)
                ) =>
        {
            let doubt = match by {
                RevocationBasis::NodeGone => Doubt::Missing,
                RevocationBasis::Replaced(_) => Doubt::Replaced { booted: true },
                _ => Doubt::NotReady,
            };
            refuse_doubted(ctx, lease, holder, doubt, view, now)
        }
        HolderState::Ended(by) => {
            let next = next_boot(ctx, holder, &by, view, now, config);
            let mut decision = revoke_lease(ctx, holder, by.clone(), next, view);
            // A request that is refused now may succeed later: when a device answers again.
            if matches!(by, RevocationBasis::Evidence { .. } | RevocationBasis::Replaced(_)) {
                decision = decision.and_requeue_at(now + RECHECK_AFTER);
            }
            decision
        }
    }
}

/// Takes the Lease from its holder.
fn revoke_lease(
    ctx: &VolumeContext<'_>,
    holder: &Holder,
    by: RevocationBasis,
    next: Option<(&Node, Option<Uid>)>,
    view: &View<'_>,
) -> Decision {
    let (next, refused) = match next {
        Some((node, pod)) => {
            let (next, refused) = holder_for(ctx, node, pod, view);
            (Some(next), refused)
        }
        None => (None, refusal_for_barred(ctx, view)),
    };
    ctx.write(VolumeChange::Revoke { holder: holder.clone(), basis: by, next, denial: refused })
}

/// The holder's node in its next boot, and its first pod, if it uses the volume. The node gets the Lease by the same
/// write that revokes it from the former boot: otherwise a pod that is force deleted between two writes would leave
/// its writer without a Lease.
fn next_boot<'a>(
    ctx: &VolumeContext<'_>,
    holder: &Holder,
    by: &RevocationBasis,
    view: &View<'a>,
    now: Mono,
    config: &Config,
) -> Option<(&'a Node, Option<Uid>)> {
    if !ctx.is_guarded || !matches!(by, RevocationBasis::Rebooted | RevocationBasis::Replaced(_)) {
        return None;
    }
    let next = next_holder(ctx, view, now, config.quarantine).ok().flatten();
    next.filter(|(node, _)| node.name == holder.node)
}

/// The holder may still write: attaching elsewhere is denied, and waiting pods are held. If detaching ends the
/// holder's writes: until it is detached.
fn refuse_doubted(
    ctx: &VolumeContext<'_>,
    lease: &VolumeLease,
    holder: &Holder,
    doubt: Doubt,
    view: &View<'_>,
    now: Mono,
) -> Decision {
    let detachable = detachable_from(ctx, holder, view);
    // A Ready node is not relieved of the volume: it would use it again at once.
    let fenced = storage_evidence(ctx, holder, view, now)
        .filter(|_| lease.attach_and_detach_denied && doubt != Doubt::OutOfService);
    let hold = ctx.hold_no_evidence(holder, doubt, detachable.is_some());
    // The volume may be detached, was attached when that was recorded, and is not attached any more.
    let detached =
        detachable.is_some() && lease.was_attached_to_holder(holder) && !is_attached(ctx.name, &holder.node, view);
    let mut decision = refuse(ctx, lease, hold, detachable);
    decision.holds.extend(pods_waiting_elsewhere(ctx, holder, view));
    if detached {
        decision.intents = revoke_lease(ctx, holder, RevocationBasis::Detached, None, view).intents;
    } else if let Some(proof) = fenced {
        decision.intents = revoke_lease(ctx, holder, RevocationBasis::Storage(proof), None, view).intents;
    }
    decision
}

/// The pods that were bound to other nodes before admission could prevent it.
fn pods_waiting_elsewhere(ctx: &VolumeContext<'_>, holder: &Holder, view: &View<'_>) -> Vec<(Subject, Hold)> {
    let elsewhere = view.pods_using(ctx.name).filter(|pod| {
        !pod.has_terminated()
            && pod.running_containers == 0
            && pod.node.as_ref().is_some_and(|node| *node != holder.node)
    });
    let why = format!("node {} took it, and there is no evidence that it no longer writes", holder.node);
    elsewhere
        .map(|pod| {
            let hold = Hold::Waits { volume: Arc::clone(ctx.name), why: why.clone() };
            (Subject::Pod(pod.key.clone()), hold)
        })
        .collect()
}

/// Another node than the healthy holder writes to the volume: it was attached before this process knew of its pod.
/// The node that writes becomes the holder; if both write, the hold reports it.
fn move_to_writer(
    ctx: &VolumeContext<'_>,
    holder: &Node,
    users: &[(&Node, Use<'_>)],
    view: &View<'_>,
) -> Option<Decision> {
    let writers: Vec<_> = users.iter().filter(|(_, used)| used.writes).collect();
    if writers.len() > 1 {
        return Some(ctx.hold(ctx.hold_several_nodes(&writers)));
    }
    // If the volume is attached to its holder only, a lost node that waited for it has never had it.
    let attached = is_attached(ctx.name, &holder.name, view);
    let has_it = |used: &Use<'_>| used.attachment || !attached;
    let (node, used) = writers.first().filter(|(node, used)| node.uid != holder.uid && has_it(used))?;
    Some(ctx.write(take_lease(ctx, node, first_pod(used), view)))
}

/// When the volume of a reporting holder becomes free: at once if its kubelet reported the end of the use. `None`: it
/// is in use.
fn free_at(ctx: &VolumeContext<'_>, lease: &VolumeLease, node: &Node, view: &View<'_>, now: Mono) -> Option<Mono> {
    let used = find_uses(ctx.name, ctx.volume, view).remove(&node.name).unwrap_or_default();
    if !used.pods.is_empty() || node.reports_in_use(ctx.volume) {
        return None;
    }
    let last_use = view.last_use(ctx.name, &node.name);
    let grace = match last_use.map_or(UseReport::None, |last_use| last_use.report) {
        // The name by which its kubelet reports it is unknown. The kubelet's report is about one pod, and another may
        // use the volume.
        _ if ctx.volume.is_none() => NO_REPORT_GRACE,
        UseReport::Unmounted => return Some(now),
        // The kubelet lists in `volumesInUse` what it has mounted of this driver.
        UseReport::Terminated if view.driver_attaches(ctx.name) => return Some(now),
        UseReport::Terminated => UNMOUNT_GRACE,
        UseReport::None if node.reports_others_of_driver(ctx.volume) => UNUSED_GRACE,
        UseReport::None => NO_REPORT_GRACE,
    };
    Some(last_use.map_or(lease.holder_since, |last_use| last_use.at) + grace)
}

fn hold_unconfirmed(ctx: &VolumeContext<'_>, node: &Node, free_at: Mono, now: Mono) -> Decision {
    let (volume, node, left) = (Arc::clone(ctx.name), Arc::clone(&node.name), free_at.since(now));
    ctx.hold(Hold::Unconfirmed { volume, node, left })
}

/// The holder continues under a new Node, whose `volumesAttached` is empty. An attach/detach controller that restarts
/// marks its attachment uncertain (`processVolumeAttachments`), and attaches the volume to another node beside it.
fn take_for_new_node(ctx: &VolumeContext<'_>, node: &Node, holder: &Holder, view: &View<'_>) -> Decision {
    let (holder, refused) = holder_for(ctx, node, holder.pod.clone(), view);
    let attached = is_attached(ctx.name, &node.name, view);
    let refused = refused.or_else(|| {
        let keeps = attached && is_wanted_elsewhere(ctx, node, view);
        keeps.then(|| AttachDenial { why: hold_until_detached(ctx, node).to_string(), detach_from: None })
    });
    ctx.write(VolumeChange::Acquire { holder, denial: refused })
}

/// The holder is healthy: it keeps the volume while it uses it, and releases it afterwards.
fn decide_healthy(ctx: &VolumeContext<'_>, lease: &VolumeLease, node: &Node, view: &View<'_>, now: Mono) -> Decision {
    let users = match find_users(ctx, view, now) {
        Ok(users) => users,
        Err(hold) => return ctx.hold(hold),
    };
    if let Some(decision) = move_to_writer(ctx, node, &users, view) {
        return decision;
    }
    let attached = is_attached(ctx.name, &node.name, view);
    let barred = detached_node(ctx, view).filter(|kept| kept.uid != node.uid);
    let free_at = free_at(ctx, lease, node, view, now);
    // With an exclusive backend a detachment ends the first writer.
    if !ctx.can_detach && barred.is_none() && is_left_mounted(ctx.volume, ctx.name, node, view) {
        return refuse_left_mounted(ctx, lease, node);
    }
    if lease.attach_and_detach_denied && attached && barred.is_none() && is_wanted_elsewhere(ctx, node, view) {
        return match free_at {
            Some(at) if now < at => refuse_until_detached(ctx, lease, node, false).and_requeue_at(at),
            free_at => refuse_until_detached(ctx, lease, node, free_at.is_some()),
        };
    }
    match (free_at, barred) {
        (Some(at), _) if !attached && now >= at => {
            ctx.write(VolumeChange::Release { denial: refusal_for_barred(ctx, view) })
        }
        (Some(at), _) if !attached => hold_unconfirmed(ctx, node, at, now).and_requeue_at(at.min(now + RECHECK_AFTER)),
        (_, Some(kept)) => ctx.hold(hold_detached(ctx, &kept.name)),
        (_, None) if lease.attach_and_detach_denied => ctx.write(VolumeChange::Allow),
        (_, None) => Decision::default(),
    }
}
