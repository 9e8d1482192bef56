//! The pure decision: whose a volume is, and who has to wait for it.

use std::sync::Arc;
use std::time::Duration;

use crate::holds::{Decision, Doubt, Hold};
use pod_safety_shared::authority::{FencedBy, Intent, Refused, VolumeChange};
use pod_safety_shared::cache::{Lookup, STALE_AFTER, View, Word};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::drive::Subject;
use pod_safety_shared::model::{Held, Holder, Kind, Node, Uid, Volume, VolumeLease};

use super::case::{Case, LOOK_AGAIN, refuse, users};
use super::config::Config;
use super::detach::{
    barred, detach_first, detachable, detached_from, is_wanted_elsewhere, kept_from, left_mounted,
    storage_proof, until_detached,
};
use super::free::{free, held_by, next, take};
use super::gate;
use super::standing::{Holding, Standing};
use super::uses::{Use, first_pod, is_attached, is_left_mounted, uses};

/// What must be known.
pub(super) const NEEDS: &[Kind] = &[
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

/// Of these one that cannot be read may be about any volume.
const WITHOUT_GAPS: [Kind; 3] = [Kind::VolumeLeases, Kind::Attachments, Kind::Claims];

/// A node that is well and uses a volume no more, though its kubelet did not say that it ended its use, has given it
/// back after this: kubelets that live end what the API has no pod for within seconds, and the longest graces in use
/// are minutes. No proof; so it is asked for only where no better word can come, after a force deletion or our restart.
pub(super) const UNTOLD: Duration = Duration::from_secs(600);

/// The same where its kubelet says that it uses other volumes of that driver, and not this one.
///
/// Why that is its word: a kubelet reports an attachable volume in `volumesInUse` before it mounts it and until it has
/// unmounted it. That others of the driver are there says that the driver's volumes are reported at all, and that the
/// kubelet has filled the list since its Node was made: a new Node's is empty until the kubelet knows its mounts, and
/// later nobody shortens it but for an unmount. It mounts nothing anew: that takes an attachment, and there is none.
///
/// Why so late: the end of the last attachment, or our start, was seen at a time T, and the report of the mount came
/// before that attachment went. Other watches may be behind by `STALE_AFTER`, no more, or nothing is decided. So what
/// is read of the Node after T and that is not older than T, and shows that report, if there was one.
pub(super) const UNUSED: Duration = STALE_AFTER;

/// A kubelet reports the end of a pod's containers before it unmounts, and says of a volume that nobody attaches nothing
/// more; of a pod that somebody deleted, such as not the pod of a Job that has ended, it removes the object after that.
/// It gives each of the two calls that unmount a CSI volume two minutes (`csiTimeout`), and what takes longer than both
/// hangs for a reason that a person sees.
pub(super) const UNMOUNTED: Duration = Duration::from_secs(240);

/// What is decided about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The volume of this name.
    Volume(Arc<str>),
    /// A pod behind our gate.
    Gate(Uid),
}

/// Decides.
#[must_use]
pub fn decide(key: &Key, view: &View<'_>, now: Mono, config: &Config) -> Decision {
    for kind in NEEDS {
        if let Err(unfresh) = view.fresh(*kind, now) {
            return Decision::hold(Subject::Everything, unfresh).and_recheck_at(now + LOOK_AGAIN);
        }
    }
    match key {
        Key::Volume(name) => {
            let decision = volume(name, view, now, config);
            if decision.holds.is_empty() { decision } else { decision.and_recheck_at(now + LOOK_AGAIN) }
        }
        Key::Gate(uid) => match view.pod(uid) {
            Some(pod) => gate::decide(pod, view, now, config),
            None => Decision::default(),
        },
    }
}

fn volume(name: &Arc<str>, view: &View<'_>, now: Mono, config: &Config) -> Decision {
    let lease = view.volume_lease(name);
    let volume = match view.volume(name) {
        Lookup::Known(volume) => Some(volume),
        Lookup::Absent => None,
        Lookup::Unknown(why) => {
            let case = Case { name, volume: None, is_gone: false, wanted: false, detaches: false, lease };
            let (volume, what) = (Arc::clone(name), "its PersistentVolume".to_owned());
            return case.hold(Hold::Unreadable { volume, what, why: why.to_owned() });
        }
    };
    let wanted = volume.is_some_and(|volume| config.guards(volume));
    let (is_gone, volume) = (volume.is_none(), view.volume_or_what_it_was(name));
    let detaches = config.detaches(volume);
    let case = Case { name, volume, is_gone, wanted, detaches, lease };
    if !case.wanted && lease.is_none() {
        return Decision::default();
    }
    for kind in WITHOUT_GAPS {
        let (_, count) = view.count(kind);
        if count > 0 && !(kind == Kind::Claims && has_its_claim(volume, view)) {
            return case.hold(Hold::KindUnreadable { volume: Arc::clone(name), kind, count });
        }
    }
    match lease.map(|lease| (&lease.held, lease)) {
        None | Some((Held::Free, _)) => free(&case, view, now, config.quarantine),
        Some((Held::Unreadable(identity), lease)) => {
            let hold = Hold::LeaseUnreadable { volume: Arc::clone(name), identity: identity.clone() };
            refuse(&case, lease, hold, None)
        }
        Some((Held::By(holder), lease)) => held(&case, lease, holder, view, now, config),
    }
}

/// Whether the claim that it is bound to can be read. Then a claim that cannot be read is not its claim.
fn has_its_claim(volume: Option<&Volume>, view: &View<'_>) -> bool {
    let bound = volume.and_then(|volume| volume.claim.as_ref());
    bound.is_some_and(|bound| match view.claim(&bound.namespace, &bound.name) {
        Lookup::Known(claim) => bound.uid.as_ref() == Some(&claim.uid),
        Lookup::Absent | Lookup::Unknown(_) => false,
    })
}

fn held(
    case: &Case<'_>,
    lease: &VolumeLease,
    holder: &Holder,
    view: &View<'_>,
    now: Mono,
    config: &Config,
) -> Decision {
    let holding = Holding { holder, volume: case.name, quarantine: config.quarantine };
    match holding.standing(view, now) {
        Standing::Well(node) => well(case, lease, node, view, now),
        Standing::Registered(node) => registered_anew(case, node, holder, view),
        // The taint says nothing, and its kubelet has: what is unmounted is nobody's.
        Standing::Tainted(node) => {
            let free_at = free_at(case, lease, node, view, now);
            if free_at.is_some_and(|at| now >= at) {
                return well(case, lease, node, view, now);
            }
            let mut decision = doubted(case, lease, holder, Doubt::OutOfService, view, now);
            match free_at {
                Some(at) => {
                    decision.holds.extend(unconfirmed(case, node, at, now).holds);
                    decision.and_recheck_at(at.min(now + LOOK_AGAIN))
                }
                None => decision,
            }
        }
        Standing::Doubted(doubt) => doubted(case, lease, holder, doubt, view, now),
        Standing::Missing { unasked, until } => {
            let mut decision = doubted(case, lease, holder, Doubt::Missing, view, now);
            if unasked {
                decision.intents.push(Intent::Witness { node: Arc::clone(&holder.node) });
            }
            let again = until.map_or(now + LOOK_AGAIN, |until| until.min(now + LOOK_AGAIN));
            decision.and_recheck_at(again.max(now + Duration::from_secs(1)))
        }
        // The judge may refuse what the cache shows: the volume stays refused to other nodes until the Lease is broken.
        Standing::Over(by)
            if !lease.refused_elsewhere
                && matches!(by, FencedBy::Evidence { .. } | FencedBy::NodeGone | FencedBy::Replaced(_)) =>
        {
            let doubt = match by {
                FencedBy::NodeGone => Doubt::Missing,
                FencedBy::Replaced(_) => Doubt::Replaced { booted: true },
                _ => Doubt::NotReady,
            };
            doubted(case, lease, holder, doubt, view, now)
        }
        Standing::Over(by) => {
            let next = next_boot(case, holder, &by, view, now, config);
            let mut decision = relieve(case, holder, by.clone(), next, view);
            // What is refused now may be found later: by a device that answers again.
            if matches!(by, FencedBy::Evidence { .. } | FencedBy::Replaced(_)) {
                decision = decision.and_recheck_at(now + LOOK_AGAIN);
            }
            decision
        }
    }
}

/// It is its holder's no more.
fn relieve(
    case: &Case<'_>,
    holder: &Holder,
    by: FencedBy,
    next: Option<(&Node, Option<Uid>)>,
    view: &View<'_>,
) -> Decision {
    let (next, refused) = match next {
        Some((node, pod)) => {
            let (next, refused) = held_by(case, node, pod, view);
            (Some(next), refused)
        }
        None => (None, kept_from(case, view)),
    };
    case.write(VolumeChange::Break { holder: holder.clone(), by, next, refused })
}

/// The holder's node in its next boot, and its first pod, if it uses the volume. It has the volume from the write on that ends the
/// former boot: a pod that is force deleted before the next write would leave its writer without a Lease.
fn next_boot<'a>(
    case: &Case<'_>,
    holder: &Holder,
    by: &FencedBy,
    view: &View<'a>,
    now: Mono,
    config: &Config,
) -> Option<(&'a Node, Option<Uid>)> {
    if !case.wanted || !matches!(by, FencedBy::Rebooted | FencedBy::Replaced(_)) {
        return None;
    }
    let next = next(case, view, now, config.quarantine).ok().flatten();
    next.filter(|(node, _)| node.name == holder.node)
}

/// Its holder may still write: nobody else may have it, and those who wait are told. Until it is detached, where that
/// keeps it from writing.
fn doubted(
    case: &Case<'_>,
    lease: &VolumeLease,
    holder: &Holder,
    doubt: Doubt,
    view: &View<'_>,
    now: Mono,
) -> Decision {
    let detachable = detachable(case, holder, view);
    // Who is heard is not relieved: it would take what it uses at once again.
    let fenced = storage_proof(case, holder, view, now)
        .filter(|_| lease.refused_elsewhere && doubt != Doubt::OutOfService);
    let hold = case.unproved(holder, doubt, detachable.is_some());
    // It may be detached, was attached when that was written, and is not.
    let detached =
        detachable.is_some() && lease.was_attached_to(holder) && !is_attached(case.name, &holder.node, view);
    let mut decision = refuse(case, lease, hold, detachable);
    decision.holds.extend(waiting(case, holder, view));
    if detached {
        decision.intents = relieve(case, holder, FencedBy::Detached, None, view).intents;
    } else if let Some(proof) = fenced {
        decision.intents = relieve(case, holder, FencedBy::Storage(proof), None, view).intents;
    }
    decision
}

/// The pods that were bound to other nodes before anybody could stop them.
fn waiting(case: &Case<'_>, holder: &Holder, view: &View<'_>) -> Vec<(Subject, Hold)> {
    let elsewhere = view.users_of(case.name).filter(|pod| {
        !pod.is_over() && pod.running == 0 && pod.node.as_ref().is_some_and(|node| *node != holder.node)
    });
    let why = format!("node {} took it, and there is no evidence that it no longer writes", holder.node);
    elsewhere
        .map(|pod| {
            let hold = Hold::Waits { volume: Arc::clone(case.name), why: why.clone() };
            (Subject::Pod(pod.key.clone()), hold)
        })
        .collect()
}

/// Another node than its holder, which is well, writes to it: attached before we knew of its pod. Who writes is the
/// owner; where both do, people must know.
fn elsewhere(
    case: &Case<'_>,
    holder: &Node,
    users: &[(&Node, Use<'_>)],
    view: &View<'_>,
) -> Option<Decision> {
    let writers: Vec<_> = users.iter().filter(|(_, used)| used.writes).collect();
    if writers.len() > 1 {
        return Some(case.hold(case.several(&writers)));
    }
    // What is attached to its holder alone, a node that was lost while it waited has never had.
    let attached = is_attached(case.name, &holder.name, view);
    let has_it = |used: &Use<'_>| used.attachment || !attached;
    let (node, used) = writers.first().filter(|(node, used)| node.uid != holder.uid && has_it(used))?;
    Some(case.write(take(case, node, first_pod(used), view)))
}

/// From when on a holder that is heard uses a volume no more: at once by its kubelet's word. `None`: it uses it.
fn free_at(case: &Case<'_>, lease: &VolumeLease, node: &Node, view: &View<'_>, now: Mono) -> Option<Mono> {
    let used = uses(case.name, case.volume, view).remove(&node.name).unwrap_or_default();
    if !used.pods.is_empty() || node.mounts(case.volume) {
        return None;
    }
    let left = view.left(case.name, &node.name);
    let patience = match left.map_or(Word::None, |left| left.word) {
        // The name by which its kubelet reports it is not known. What the kubelet reported is about one pod, and another may use it.
        _ if case.volume.is_none() => UNTOLD,
        Word::Unmounted => return Some(now),
        // A kubelet says in `volumesInUse` what it has mounted of it.
        Word::Ended if view.attaches(case.name) => return Some(now),
        Word::Ended => UNMOUNTED,
        Word::None if node.mounts_others_like(case.volume) => UNUSED,
        Word::None => UNTOLD,
    };
    Some(left.map_or(lease.seen, |left| left.at) + patience)
}

fn unconfirmed(case: &Case<'_>, node: &Node, free_at: Mono, now: Mono) -> Decision {
    let (volume, node, left) = (Arc::clone(case.name), Arc::clone(&node.name), free_at.since(now));
    case.hold(Hold::Unconfirmed { volume, node, left })
}

/// Its holder goes on under a new Node, whose `volumesAttached` is empty. An attach/detach controller that restarts calls its
/// attachment uncertain (`processVolumeAttachments`), and attaches the volume to another node beside it.
fn registered_anew(case: &Case<'_>, node: &Node, holder: &Holder, view: &View<'_>) -> Decision {
    let (holder, refused) = held_by(case, node, holder.pod.clone(), view);
    let attached = is_attached(case.name, &node.name, view);
    let refused = refused.or_else(|| {
        let keeps = attached && is_wanted_elsewhere(case, node, view);
        keeps.then(|| Refused { why: until_detached(case, node).to_string(), detach_from: None })
    });
    case.write(VolumeChange::Take { holder, refused })
}

/// Its holder is well: it keeps what it uses, and gives back what it has ended.
fn well(case: &Case<'_>, lease: &VolumeLease, node: &Node, view: &View<'_>, now: Mono) -> Decision {
    let users = match users(case, view, now) {
        Ok(users) => users,
        Err(hold) => return case.hold(hold),
    };
    if let Some(decision) = elsewhere(case, node, &users, view) {
        return decision;
    }
    let attached = is_attached(case.name, &node.name, view);
    let kept = barred(case, view).filter(|kept| kept.uid != node.uid);
    let free_at = free_at(case, lease, node, view, now);
    // Of an exclusive backend a detachment is what ends the first writer.
    if !case.detaches && kept.is_none() && is_left_mounted(case.volume, case.name, node, view) {
        return left_mounted(case, lease, node);
    }
    if lease.refused_elsewhere && attached && kept.is_none() && is_wanted_elsewhere(case, node, view) {
        return match free_at {
            Some(at) if now < at => detach_first(case, lease, node, false).and_recheck_at(at),
            free_at => detach_first(case, lease, node, free_at.is_some()),
        };
    }
    match (free_at, kept) {
        (Some(at), _) if !attached && now >= at => {
            case.write(VolumeChange::Release { refused: kept_from(case, view) })
        }
        (Some(at), _) if !attached => {
            unconfirmed(case, node, at, now).and_recheck_at(at.min(now + LOOK_AGAIN))
        }
        (_, Some(kept)) => case.hold(detached_from(case, &kept.name)),
        (_, None) if lease.refused_elsewhere => case.write(VolumeChange::Allow),
        (_, None) => Decision::default(),
    }
}
