//! Which Evictions there should be, and whose they are: rules 5 to 7, 9 and 10.

use std::collections::BTreeMap;
use std::time::Duration;

use pod_safety_shared::authority::{
    Check, EvictionChange, EvictionUpdate, Intent, OwnedBy, StatusChange, Update,
};
use pod_safety_shared::cache::Lookup;
use pod_safety_shared::drive::Subject;
use pod_safety_shared::model::{
    EVICTION_INVALID, Eviction, EvictionPhase, EvictionRequest, EvictionRole, Kind, NO_FURTHER_RESPONDER,
    PodKey, Requester, ResponderState, Rv,
};

use super::holds::{Decision, Hold};
use super::requests::{NOT_EVICTED, stand};
use super::scene::Scene;

/// After all responders had their turns in vain, the next Eviction comes so much later; doubled each time up to the last.
/// Upstream says nothing against a loop.
const AGAIN_FIRST: Duration = Duration::from_secs(20);
/// See [`AGAIN_FIRST`].
const AGAIN_LAST: Duration = Duration::from_secs(900);

/// So many failed Evictions of a pod are kept: they count how often it was tried, and say why it failed.
const KEPT: usize = 3;

/// The message of an Eviction that is one too many, in the words of kubernetes#137133.
const DUPLICATE: &str = "Active Eviction already exists for the same target.";

pub(super) fn write(eviction: &Eviction, change: EvictionChange) -> Intent {
    let Eviction { pod, name, uid, rv, .. } = eviction;
    let (pod, name, uid) = (pod.clone(), name.clone(), uid.clone());
    Intent::Update(Update::Eviction(Box::new(EvictionUpdate { pod, name, uid, rv: *rv, change })))
}

/// Rule 6: one Eviction, if any request asks and none goes on or succeeded.
pub(super) fn create(scene: &Scene<'_>, decision: &mut Decision) {
    let relevant = scene.relevant();
    if relevant.is_some_and(|eviction| eviction.phase() != EvictionPhase::Failed) {
        return;
    }
    let Some(pod) = asked_for(relevant, scene) else { return };
    if scene.has_unreadable(Kind::Evictions) {
        decision.holds.push((Subject::Pod(pod), Hold::EvictionsUnreadable));
        return;
    }
    if let Some(until) = relevant.and_then(|eviction| backs_off(eviction, scene)) {
        decision.holds.push((Subject::Pod(pod), Hold::NoFurtherResponder { tries: tries(scene) }));
        *decision = std::mem::take(decision).and_recheck_at(scene.now + until);
        return;
    }
    // It rests on its requests: a request that changed since was not seen.
    let rv = scene.requests.iter().map(|request| request.rv).fold(Rv::default(), Rv::max);
    let labels = roles(scene, None).into_iter().collect();
    let change = EvictionChange::Create { number: highest(scene) + 1, owners: owners(scene, None), labels };
    let (name, uid) = (Box::default(), pod.uid.clone());
    let update = EvictionUpdate { pod, name, uid, rv, change };
    decision.intents.push(Intent::Update(Update::Eviction(Box::new(update))));
}

/// The pod that is asked for. Requests of one that went are answered by another Eviction only where there was one before:
/// that says so, and the request of a pod that never had one is refused.
fn asked_for(before: Option<&Eviction>, scene: &Scene<'_>) -> Option<PodKey> {
    let mut asking = scene.wanted().filter(|request| !request.is_final());
    match (&scene.pod, before) {
        (Lookup::Known(pod), _) if pod.in_group => None,
        (Lookup::Known(pod), Some(_)) => asking.next().map(|_| pod.key.clone()),
        (Lookup::Known(pod), None) => {
            asking.find(|request| request.pod.name == pod.key.name).map(|_| pod.key.clone())
        }
        (Lookup::Absent, Some(_)) => asking.next().map(|request| request.pod.clone()),
        (Lookup::Absent, None) | (Lookup::Unknown(_), _) => None,
    }
}

/// The number in the name of an Eviction: `pod-N-NAME`.
fn number(eviction: &Eviction) -> u32 {
    let number = eviction.name.strip_prefix("pod-").and_then(|rest| rest.split('-').next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn highest(scene: &Scene<'_>) -> u32 {
    scene.evictions.iter().map(|eviction| number(eviction)).max().unwrap_or(0)
}

/// How often all responders had their turns in vain. Of more than are kept the number in the last name tells.
fn tries(scene: &Scene<'_>) -> u32 {
    let vain = |one: &&&Eviction| one.verdicts.failed_for() == Some(NO_FURTHER_RESPONDER);
    let kept = scene.evictions.iter().filter(vain).count();
    let kept = u32::try_from(kept).unwrap_or(u32::MAX);
    if usize::try_from(kept).unwrap_or(usize::MAX) < KEPT { kept } else { kept.max(highest(scene)) }
}

/// How long the next Eviction waits; `None`: it does not.
fn backs_off(last: &Eviction, scene: &Scene<'_>) -> Option<Duration> {
    if last.verdicts.failed_for() != Some(NO_FURTHER_RESPONDER) || scene.there().is_none() {
        return None;
    }
    let doubled = AGAIN_FIRST.saturating_mul(1 << tries(scene).saturating_sub(1).min(10));
    let left = doubled.min(AGAIN_LAST).saturating_sub(scene.age(last.ended().unwrap_or(0)));
    (!left.is_zero()).then_some(left)
}

/// Rule 7: every Eviction that goes on but the oldest fails.
pub(super) fn duplicates(scene: &Scene<'_>, decision: &mut Decision) {
    let mut active = scene.evictions.iter().filter(|eviction| eviction.phase() == EvictionPhase::Active);
    let Some(oldest) = active.next() else { return };
    for other in active {
        let states = other.active().map(|one| (one.name.clone(), ResponderState::Canceled));
        let change = StatusChange {
            observed: other.generation,
            states: states.into_iter().collect(),
            stand: Some(stand(&other.verdicts, (true, EVICTION_INVALID, DUPLICATE), (false, NOT_EVICTED))),
            check: Check::Duplicate { of: oldest.name.clone(), uid: oldest.uid.clone() },
            ..StatusChange::default()
        };
        decision.intents.push(write(other, EvictionChange::Status(Box::new(change))));
    }
}

/// Old failed Evictions that we created go before their last request does: a loop would leave one each 15 minutes.
pub(super) fn collect(scene: &Scene<'_>, decision: &mut Decision) {
    let failed = |eviction: &&&Eviction| eviction.phase() == EvictionPhase::Failed && !eviction.deleting;
    let failed: Vec<&Eviction> = scene.evictions.iter().filter(failed).copied().collect();
    let over = failed.len().saturating_sub(KEPT);
    for old in failed.into_iter().take(over).filter(|eviction| eviction.ours) {
        decision.intents.push(write(old, EvictionChange::Collect));
    }
}

/// Rule 10: the requests that should own it and do not. One that is deleted is never added again.
fn owners(scene: &Scene<'_>, eviction: Option<&Eviction>) -> Vec<OwnedBy> {
    let owns = |request: &EvictionRequest| eviction.is_some_and(|one| one.owners.contains(&request.uid));
    let missing = scene.requests.iter().filter(|request| !request.deleting && !owns(request));
    missing.map(|request| OwnedBy { name: request.name.clone(), uid: request.uid.clone() }).collect()
}

/// Rule 9: who asks, and who evicts. Responders stay, also when the pod is gone.
fn roles(scene: &Scene<'_>, eviction: Option<&Eviction>) -> BTreeMap<Box<str>, EvictionRole> {
    let live = scene.requests.iter().filter(|request| !request.deleting);
    let mut roles: BTreeMap<Box<str>, EvictionRole> =
        live.map(|request| (request.requester.clone(), EvictionRole::Requester)).collect();
    for responder in eviction.into_iter().flat_map(|eviction| &eviction.responders) {
        let role = match roles.get(&responder.name) {
            Some(EvictionRole::Requester | EvictionRole::RequesterResponder) => {
                EvictionRole::RequesterResponder
            }
            Some(EvictionRole::Responder) | None => EvictionRole::Responder,
        };
        roles.insert(responder.name.clone(), role);
    }
    roles
}

/// What its metadata lack; `None`: nothing.
pub(super) fn mark(eviction: &Eviction, scene: &Scene<'_>) -> Option<EvictionChange> {
    let wanted = roles(scene, Some(eviction));
    let has = |name: &str| eviction.labels.iter().find(|(key, _)| **key == *name).map(|(_, role)| *role);
    let gone = eviction
        .labels
        .iter()
        .filter(|(key, _)| !wanted.contains_key(key))
        .map(|(key, _)| (key.clone(), None));
    let changed = wanted.iter().filter(|(key, role)| has(key) != Some(**role));
    let labels: Vec<_> = changed.map(|(key, role)| (key.clone(), Some(*role))).chain(gone).collect();
    let owners = owners(scene, Some(eviction));
    let lacks = !labels.is_empty() || !owners.is_empty();
    (lacks && !eviction.deleting).then_some(EvictionChange::Mark { owners, labels })
}

/// So many requesters an Eviction names at most.
const MOST_REQUESTERS: usize = 100;

/// Rule 11: all who asked. Those who do so no more are withdrawn; where there are too many, they are not named.
pub(super) fn requesters(eviction: &Eviction, scene: &Scene<'_>) -> (Vec<Requester>, Vec<Box<str>>) {
    use pod_safety_shared::model::EvictionIntent::{Eviction as Asks, Withdrawn};
    let mut all: BTreeMap<Box<str>, _> =
        eviction.requesters.iter().map(|one| (one.name.clone(), Withdrawn)).collect();
    for request in &scene.requests {
        let asks = if request.counts() { Asks } else { Withdrawn };
        all.entry(request.requester.clone())
            .and_modify(|known| {
                if asks == Asks {
                    *known = Asks
                }
            })
            .or_insert(asks);
    }
    let mut named: Vec<Requester> =
        all.into_iter().map(|(name, intent)| Requester { name, intent }).collect();
    // Those who ask first; by name among equals.
    named.sort_by_key(|one| (one.intent != Asks, one.name.clone()));
    let dropped = named.split_off(named.len().min(MOST_REQUESTERS));
    let was = |name: &str| eviction.requesters.iter().any(|one| *one.name == *name);
    let dropped = dropped.into_iter().map(|one| one.name).filter(|name| was(name)).collect();
    (named, dropped)
}
