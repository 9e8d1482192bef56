//! Which Evictions should exist, and their owners: rules 5 to 7, 9 and 10.

use std::collections::BTreeMap;
use std::time::Duration;

use pod_safety_shared::authority::{
    EvictionChange, EvictionUpdate, Intent, OwnerRequest, Precondition, StatusChange, Update,
};
use pod_safety_shared::cache::Lookup;
use pod_safety_shared::clock::Backoff;
use pod_safety_shared::controller_loop::Subject;
use pod_safety_shared::model::{
    EVICTION_INVALID, Eviction, EvictionPhase, EvictionRequest, EvictionRole, Kind, NO_FURTHER_RESPONDER, PodKey,
    Requester, ResponderState, Rv,
};

use super::context::EvictionContext;
use super::holds::{Decision, Hold};
use super::requests::{NOT_EVICTED, stated_outcome};

/// The pauses before the next Eviction after one that failed in all its responders. The upstream design has no rule
/// against a loop.
const BACKOFF: Backoff = Backoff { initial: Duration::from_secs(20), maximum: Duration::from_secs(900) };

/// This many failed Evictions of a pod are kept: they count the attempts, and state why they failed.
const MAX_KEPT: usize = 3;
/// No pod has so many Evictions. A higher number is in a name of another client, and could have none after it.
const MAX_NUMBER: u32 = 1_000_000;

/// The message of a duplicate Eviction, as in kubernetes#137133.
const DUPLICATE: &str = "Active Eviction already exists for the same target.";

pub(super) fn eviction_write(eviction: &Eviction, change: EvictionChange) -> Intent {
    let Eviction { pod, name, uid, rv, .. } = eviction;
    let (pod, name, uid) = (pod.clone(), name.clone(), uid.clone());
    Intent::Update(Update::Eviction(Box::new(EvictionUpdate { pod, name, uid, rv: *rv, change })))
}

/// Rule 6: one Eviction, if any request is open and no Eviction is active or succeeded.
pub(super) fn create(ctx: &EvictionContext<'_>, decision: &mut Decision) {
    let relevant = ctx.relevant();
    if relevant.is_some_and(|eviction| eviction.phase() != EvictionPhase::Failed) {
        return;
    }
    let Some(pod) = requested_pod(relevant, ctx) else { return };
    if ctx.has_unreadable(Kind::Evictions) {
        decision.holds.push((Subject::Pod(pod), Hold::EvictionsUnreadable));
        return;
    }
    if let Some(until) = relevant.and_then(|eviction| remaining_backoff(eviction, ctx)) {
        decision.holds.push((Subject::Pod(pod), Hold::NoFurtherResponder { tries: failed_attempts(ctx) }));
        *decision = std::mem::take(decision).and_requeue_at(ctx.now + until);
        return;
    }
    // It depends on its requests: a request that changed since was not seen.
    let rv = ctx.requests.iter().map(|request| request.rv).fold(Rv::default(), Rv::max);
    let labels = requester_roles(ctx, None).into_iter().collect();
    let change = EvictionChange::Create { number: highest_number(ctx) + 1, owners: missing_owners(ctx, None), labels };
    let (name, uid) = (Box::default(), pod.uid.clone());
    let update = EvictionUpdate { pod, name, uid, rv, change };
    decision.intents.push(Intent::Update(Update::Eviction(Box::new(update))));
}

/// The requested pod. If the pod is gone, its requests get another Eviction only if there was one before: that one
/// reports the removal, and the request for a pod that never had an Eviction is refused.
fn requested_pod(before: Option<&Eviction>, ctx: &EvictionContext<'_>) -> Option<PodKey> {
    let mut requesting = ctx.open_requests().filter(|request| !request.is_final());
    match (&ctx.pod, before) {
        (Lookup::Known(pod), _) if pod.in_group => None,
        (Lookup::Known(pod), Some(_)) => requesting.next().map(|_| pod.key.clone()),
        (Lookup::Known(pod), None) => {
            requesting.find(|request| request.pod.name == pod.key.name).map(|_| pod.key.clone())
        }
        (Lookup::Absent, Some(_)) => requesting.next().map(|request| request.pod.clone()),
        (Lookup::Absent, None) | (Lookup::Unknown(_), _) => None,
    }
}

/// The number in the name of an Eviction: `pod-N-NAME`.
fn eviction_number(eviction: &Eviction) -> u32 {
    let number = eviction.name.strip_prefix("pod-").and_then(|rest| rest.split('-').next());
    number.and_then(|number| number.parse().ok()).filter(|number| *number <= MAX_NUMBER).unwrap_or(0)
}

fn highest_number(ctx: &EvictionContext<'_>) -> u32 {
    ctx.evictions.iter().map(|eviction| eviction_number(eviction)).max().unwrap_or(0)
}

/// How often all responders failed. If more Evictions failed than are kept, the number in the last name shows it.
fn failed_attempts(ctx: &EvictionContext<'_>) -> u32 {
    let is_exhausted = |one: &&&Eviction| one.conditions.failure_reason() == Some(NO_FURTHER_RESPONDER);
    let kept = ctx.evictions.iter().filter(is_exhausted).count();
    let kept = u32::try_from(kept).unwrap_or(u32::MAX);
    if usize::try_from(kept).unwrap_or(usize::MAX) < MAX_KEPT { kept } else { kept.max(highest_number(ctx)) }
}

/// The remaining backoff of the next Eviction; `None`: it does not wait.
fn remaining_backoff(last: &Eviction, ctx: &EvictionContext<'_>) -> Option<Duration> {
    if last.conditions.failure_reason() != Some(NO_FURTHER_RESPONDER) || ctx.existing_pod().is_none() {
        return None;
    }
    let since = ctx.age(last, last.ended_at().unwrap_or(0), last.ended_seen);
    let remaining = BACKOFF.after(failed_attempts(ctx)).saturating_sub(since);
    (!remaining.is_zero()).then_some(remaining)
}

/// Rule 7: every active Eviction except the oldest fails.
pub(super) fn fail_duplicates(ctx: &EvictionContext<'_>, decision: &mut Decision) {
    let mut active = ctx.evictions.iter().filter(|eviction| eviction.phase() == EvictionPhase::Active);
    let Some(oldest) = active.next() else { return };
    for other in active {
        let states = other.active().map(|one| (one.name.clone(), ResponderState::Canceled));
        let change = StatusChange {
            observed: other.generation,
            states: states.into_iter().collect(),
            conditions: Some(stated_outcome(
                &other.conditions,
                (true, EVICTION_INVALID, DUPLICATE),
                (false, NOT_EVICTED),
            )),
            check: Precondition::Duplicate { of: oldest.name.clone(), uid: oldest.uid.clone() },
            ..StatusChange::default()
        };
        decision.intents.push(eviction_write(other, EvictionChange::Status(Box::new(change))));
    }
}

/// Old failed Evictions that this controller created are deleted before their last request is: a loop would leave one
/// every 15 minutes.
pub(super) fn delete_old_failures(ctx: &EvictionContext<'_>, decision: &mut Decision) {
    let failed = |eviction: &&&Eviction| eviction.phase() == EvictionPhase::Failed && !eviction.deleting;
    let failed: Vec<&Eviction> = ctx.evictions.iter().filter(failed).copied().collect();
    let over = failed.len().saturating_sub(MAX_KEPT);
    for old in failed.into_iter().take(over).filter(|eviction| eviction.managed_by_us) {
        decision.intents.push(eviction_write(old, EvictionChange::Collect));
    }
}

/// Rule 10: the requests that should own it and do not. A request that is being deleted is never added again.
fn missing_owners(ctx: &EvictionContext<'_>, eviction: Option<&Eviction>) -> Vec<OwnerRequest> {
    let is_owner = |request: &EvictionRequest| eviction.is_some_and(|one| one.owners.contains(&request.uid));
    let missing = ctx.requests.iter().filter(|request| !request.deleting && !is_owner(request));
    missing.map(|request| OwnerRequest { name: request.name.clone(), uid: request.uid.clone() }).collect()
}

/// Rule 9: labels for requesters and responders. Responders stay, also when the pod is gone.
fn requester_roles(ctx: &EvictionContext<'_>, eviction: Option<&Eviction>) -> BTreeMap<Box<str>, EvictionRole> {
    let live = ctx.requests.iter().filter(|request| !request.deleting);
    let mut roles: BTreeMap<Box<str>, EvictionRole> =
        live.map(|request| (request.requester.clone(), EvictionRole::Requester)).collect();
    for responder in eviction.into_iter().flat_map(|eviction| &eviction.responders) {
        let role = match roles.get(&responder.name) {
            Some(EvictionRole::Requester | EvictionRole::RequesterResponder) => EvictionRole::RequesterResponder,
            Some(EvictionRole::Responder) | None => EvictionRole::Responder,
        };
        roles.insert(responder.name.clone(), role);
    }
    roles
}

/// The missing metadata; `None`: nothing is missing.
pub(super) fn update_metadata(eviction: &Eviction, ctx: &EvictionContext<'_>) -> Option<EvictionChange> {
    let desired = requester_roles(ctx, Some(eviction));
    let has = |name: &str| eviction.labels.iter().find(|(key, _)| **key == *name).map(|(_, role)| *role);
    let gone = eviction.labels.iter().filter(|(key, _)| !desired.contains_key(key)).map(|(key, _)| (key.clone(), None));
    let changed = desired.iter().filter(|(key, role)| has(key) != Some(**role));
    let labels: Vec<_> = changed.map(|(key, role)| (key.clone(), Some(*role))).chain(gone).collect();
    let owners = missing_owners(ctx, Some(eviction));
    let is_incomplete = !labels.is_empty() || !owners.is_empty();
    (is_incomplete && !eviction.deleting).then_some(EvictionChange::Mark { owners, labels })
}

/// The maximum number of requesters that an Eviction names.
const MAX_REQUESTERS: usize = 100;

/// Rule 11: all requesters. Those without an open request are withdrawn; above the maximum they are not named.
pub(super) fn list_requesters(eviction: &Eviction, ctx: &EvictionContext<'_>) -> (Vec<Requester>, Vec<Box<str>>) {
    use pod_safety_shared::model::EvictionIntent::{Eviction as Asks, Withdrawn};
    let mut all: BTreeMap<Box<str>, _> = eviction.requesters.iter().map(|one| (one.name.clone(), Withdrawn)).collect();
    for request in &ctx.requests {
        let intent = if request.is_effective() { Asks } else { Withdrawn };
        all.entry(request.requester.clone())
            .and_modify(|known| {
                if intent == Asks {
                    *known = Asks
                }
            })
            .or_insert(intent);
    }
    let mut named: Vec<Requester> = all.into_iter().map(|(name, intent)| Requester { name, intent }).collect();
    // Requesters with an open request first; then by name.
    named.sort_by_key(|one| (one.intent != Asks, one.name.clone()));
    let dropped = named.split_off(named.len().min(MAX_REQUESTERS));
    let was = |name: &str| eviction.requesters.iter().any(|one| *one.name == *name);
    let dropped = dropped.into_iter().map(|one| one.name).filter(|name| was(name)).collect();
    (named, dropped)
}
