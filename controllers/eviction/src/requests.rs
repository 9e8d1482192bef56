//! What a request says: rules 3, 4 and 17.

use pod_safety_shared::authority::{EvictionChange, EvictionUpdate, Intent, Stand, Stated, Update};
use pod_safety_shared::cache::Lookup;
use pod_safety_shared::drive::Subject;
use pod_safety_shared::model::{CANCELED, Eviction, EvictionRequest, Verdict, Verdicts};

use super::holds::{Decision, Hold};
use super::scene::Scene;

/// Both conditions of what goes on.
pub(super) const AWAITING: &str = "AwaitingEviction";
/// The condition `TargetEvicted` of what failed.
pub(super) const NOT_EVICTED: &str = "EvictionFailed";

/// A condition as it should be, beside what it is.
pub(super) fn stated(before: Option<&Verdict>, holds: bool, reason: &str, message: &str) -> Stated {
    let transition = before.is_none_or(|before| before.holds != holds);
    Stated { holds, reason: reason.to_owned(), message: message.to_owned(), transition }
}

/// Both conditions as they should be.
pub(super) fn stand(
    before: &Verdicts,
    (failed, why, message): (bool, &str, &str),
    (evicted, because): (bool, &str),
) -> Stand {
    Stand {
        failed: stated(before.failed.as_ref(), failed, why, message),
        evicted: stated(before.evicted.as_ref(), evicted, because, ""),
    }
}

pub(super) fn awaiting(before: &Verdicts) -> Stand {
    stand(before, (false, AWAITING, ""), (false, AWAITING))
}

/// Whether that is what stands there.
fn is_said(before: Option<&Verdict>, stated: &Stated) -> bool {
    before.is_some_and(|before| {
        before.holds == stated.holds && *before.reason == *stated.reason && *before.message == *stated.message
    })
}

/// The conditions, unless both stand there as they should be.
pub(super) fn unless_said(before: &Verdicts, wanted: Stand) -> Option<Stand> {
    let said =
        is_said(before.failed.as_ref(), &wanted.failed) && is_said(before.evicted.as_ref(), &wanted.evicted);
    (!said).then_some(wanted)
}

/// What each request should say.
pub(super) fn decide(scene: &Scene<'_>, decision: &mut Decision) {
    for request in &scene.requests {
        if let Some(change) = change(request, scene, decision) {
            decision.intents.push(write(request, change));
        }
    }
}

fn write(request: &EvictionRequest, change: EvictionChange) -> Intent {
    let EvictionRequest { pod, name, uid, rv, .. } = request;
    let (pod, name, uid) = (pod.clone(), name.clone(), uid.clone());
    Intent::Update(Update::Eviction(Box::new(EvictionUpdate { pod, name, uid, rv: *rv, change })))
}

fn change(request: &EvictionRequest, scene: &Scene<'_>, decision: &mut Decision) -> Option<EvictionChange> {
    let observed = request.generation;
    let written = |stand: Option<Stand>| {
        let news = stand.is_some() || request.observed != observed;
        news.then(|| EvictionChange::Request { observed, stand: stand.map(Box::new) })
    };
    // Rule 4: nothing else changes any more.
    if request.is_final() {
        return written(None);
    }
    // Always, also of an Eviction that somebody else created.
    if scene.there().is_some_and(|pod| pod.in_group) {
        return Some(refusal(request));
    }
    let wanted = match scene.relevant() {
        Some(eviction) if is_replaced(eviction, request) => awaiting(&request.verdicts),
        Some(eviction) => copied(eviction, &request.verdicts),
        // Rule 3. The pod that the UID names may have another name than the request says.
        None => match scene.pod {
            Lookup::Known(pod) if pod.key.name == request.pod.name => awaiting(&request.verdicts),
            Lookup::Known(_) | Lookup::Absent => return Some(refusal(request)),
            Lookup::Unknown(why) => {
                let hold = Hold::PodUnreadable { why: why.to_owned() };
                decision.holds.push((Subject::Pod(request.pod.clone()), hold));
                return None;
            }
        },
    };
    written(unless_said(&request.verdicts, wanted))
}

/// A new Eviction follows at once: the request does not show that the one before was canceled.
fn is_replaced(eviction: &Eviction, request: &EvictionRequest) -> bool {
    request.counts() && eviction.verdicts.failed_for() == Some(CANCELED)
}

/// Rule 17: as the Eviction says, with a time of its own.
fn copied(eviction: &Eviction, before: &Verdicts) -> Stand {
    let copy = |of: Option<&Verdict>, before: Option<&Verdict>| match of {
        Some(of) => stated(before, of.holds, &of.reason, &of.message),
        None => stated(before, false, AWAITING, ""),
    };
    let Verdicts { failed, evicted } = &eviction.verdicts;
    Stand {
        failed: copy(failed.as_ref(), before.failed.as_ref()),
        evicted: copy(evicted.as_ref(), before.evicted.as_ref()),
    }
}

fn refusal(request: &EvictionRequest) -> EvictionChange {
    let Verdicts { failed, evicted } = &request.verdicts;
    let transitions = (!failed.as_ref().is_some_and(|one| one.holds), evicted.is_none());
    EvictionChange::Refuse { observed: request.generation, transitions }
}
