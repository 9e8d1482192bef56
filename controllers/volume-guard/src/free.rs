//! A volume without a holder: the node that becomes its holder.

use std::sync::Arc;
use std::time::Duration;

use crate::holds::{Decision, Doubt, Hold};
use pod_safety_shared::authority::{Refused, VolumeChange};
use pod_safety_shared::cache::{Lookup, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::drive::Subject;
use pod_safety_shared::model::{Holder, Node, Pod, Readiness, Uid};

use super::case::{Case, users};
use super::detach::{barred, detachable, detached_from, kept_from};
use super::uses::{Use, first_bound, first_pod, is_proved_off, uses};

/// Without a holder: the node that uses it becomes the holder.
pub(super) fn free(case: &Case<'_>, view: &View<'_>, now: Mono, quarantine: Duration) -> Decision {
    if !case.wanted {
        return case.write(VolumeChange::Forget);
    }
    match next(case, view, now, quarantine) {
        Ok(Some((node, pod))) => case.write(take(case, node, pod, view)),
        Ok(None) => unused(case, view),
        Err(waits) => waits,
    }
}

/// The node that becomes the holder, and the first pod that uses it there; or what is waited for.
pub(super) fn next<'a>(
    case: &Case<'_>,
    view: &View<'a>,
    now: Mono,
    quarantine: Duration,
) -> Result<Option<(&'a Node, Option<Uid>)>, Decision> {
    let users = users(case, view, now).map_err(|hold| case.hold(hold))?;
    let writers: Vec<_> = users.iter().filter(|(_, used)| used.writes).collect();
    if writers.len() > 1 {
        return Err(case.hold(case.several(&writers)));
    }
    if writers.is_empty()
        && let Some((node, used)) = unjudged(case, view, now)
    {
        return Ok(Some((node, first_pod(&used))));
    }
    let chosen = users.iter().min_by_key(|(node, used)| {
        (!used.writes, !used.attachment, first_bound(used), Arc::clone(&node.name))
    });
    let Some((node, used)) = chosen else { return Ok(None) };
    if let Some(other) = user_on_missing(case, view) {
        let node = other.node.as_deref().unwrap_or_default();
        let may_run = "has no Node object, and may run until that pod is gone";
        return Err(wait(case, used, format!("pod {} uses it on node {node}, which {may_run}", other.key)));
    }
    if let Some((why, until)) = removed_on_missing(case.name, view, now, quarantine) {
        return Err(until.into_iter().fold(wait(case, used, why), Decision::and_recheck_at));
    }
    Ok(Some((node, first_pod(used))))
}

/// The lost node that writes to it by its last report, where the judge has never broken its Lease: that there is evidence
/// is what the cache shows, and it may hold no more. As its holder the node is relieved of it by the judge.
fn unjudged<'a>(case: &Case<'_>, view: &View<'a>, now: Mono) -> Option<(&'a Node, Use<'a>)> {
    if case.lease.is_some_and(|lease| lease.generation > 0) {
        return None;
    }
    uses(case.name, case.volume, view).into_iter().filter(|(_, used)| used.writes).find_map(|(name, used)| {
        match view.node(&name) {
            Lookup::Known(node) if is_proved_off(node, view, now) => Some((node, used)),
            Lookup::Known(_) | Lookup::Absent | Lookup::Unknown(_) => None,
        }
    })
}

/// A pod that uses it and is bound to a node that is missing. A Lease can name no life of that node, and its kubelet may
/// run the pod until the pod is gone: that is judged with the pod.
fn user_on_missing<'a>(case: &Case<'_>, view: &View<'a>) -> Option<&'a Pod> {
    let users = uses(case.name, case.volume, view).into_iter();
    let mut missing = users.filter(|(node, _)| matches!(view.node(node), Lookup::Absent));
    missing.find_map(|(_, used)| used.pods.first().copied())
}

/// Another client removed a pod on a node that is missing. A kubelet that sees only the removal still gives the processes their
/// grace period. What to tell, and when that is over, if that is known.
pub(super) fn removed_on_missing(
    volume: &str,
    view: &View<'_>,
    now: Mono,
    quarantine: Duration,
) -> Option<(String, Option<Mono>)> {
    let (node, ends) = view.last_end_on_missing(volume)?;
    let until = ends.map(|ends| ends + quarantine);
    let why = match until {
        Some(until) if now >= until => return None,
        Some(_) => "until its grace period and the quarantine are over",
        None => {
            "for its kubelet may have been starting a container of it. Restart that kubelet, so that it registers its Node again"
        }
    };
    let pod = format!("a pod that was removed on node {node}, which has no Node object, may still run");
    Some((format!("{pod} {why}"), until))
}

fn wait(case: &Case<'_>, used: &Use<'_>, why: String) -> Decision {
    let hold = Hold::Waits { volume: Arc::clone(case.name), why };
    let waiting = used.pods.iter().map(|pod| (Subject::Pod(pod.key.clone()), hold.clone()));
    Decision { holds: waiting.collect(), ..Decision::default() }
}

/// Without a holder and without users: what admission refuses about it ends with the last node that is kept out.
fn unused(case: &Case<'_>, view: &View<'_>) -> Decision {
    match (case.lease, barred(case, view)) {
        (_, Some(node)) => case.hold(detached_from(case, &node.name)),
        (Some(lease), None) if lease.detach_from.is_some() => case.write(VolumeChange::Allow),
        (_, None) => Decision::default(),
    }
}

/// The node becomes its holder, or stays so.
pub(super) fn take(case: &Case<'_>, node: &Node, pod: Option<Uid>, view: &View<'_>) -> VolumeChange {
    let (holder, refused) = held_by(case, node, pod, view);
    VolumeChange::Take { holder, refused }
}

/// What its Lease says when the node is its holder.
pub(super) fn held_by(
    case: &Case<'_>,
    node: &Node,
    pod: Option<Uid>,
    view: &View<'_>,
) -> (Holder, Option<Refused>) {
    let holder = Holder::of(node, pod);
    let doubt = match node.readiness {
        Readiness::Ready if node.out_of_service => Some(Doubt::OutOfService),
        Readiness::Ready => None,
        _ => Some(Doubt::NotReady),
    };
    let refused = match doubt {
        Some(doubt) => {
            let detach_from = detachable(case, &holder, view);
            let why = case.unproved(&holder, doubt, detach_from.is_some()).to_string();
            Some(Refused { why, detach_from })
        }
        None => kept_from(case, view)
            .filter(|kept| kept.detach_from.as_ref().is_none_or(|from| from.uid != node.uid)),
    };
    (holder, refused)
}
