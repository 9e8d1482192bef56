//! The status of a request: rules 3, 4 and 17.

use pod_safety_shared::authority::{ConditionChange, ConditionChanges, EvictionChange, EvictionUpdate, Intent, Update};
use pod_safety_shared::cache::Lookup;
use pod_safety_shared::controller_loop::Subject;
use pod_safety_shared::model::{CANCELED, Eviction, EvictionCondition, EvictionConditions, EvictionRequest};

use super::context::EvictionContext;
use super::holds::{Decision, Hold};

/// The reason of both conditions while the Eviction is active.
pub(super) const AWAITING: &str = "AwaitingEviction";
/// The reason of `TargetEvicted` after a failure.
pub(super) const NOT_EVICTED: &str = "EvictionFailed";

/// A condition as it should be, with its present state.
pub(super) fn stated_condition(
    before: Option<&EvictionCondition>,
    holds: bool,
    reason: &str,
    message: &str,
) -> ConditionChange {
    let transition = before.is_none_or(|before| before.is_true != holds);
    ConditionChange { is_true: holds, reason: reason.to_owned(), message: message.to_owned(), transition }
}

/// Both conditions as they should be.
pub(super) fn stated_outcome(
    before: &EvictionConditions,
    (failed, why, message): (bool, &str, &str),
    (evicted, because): (bool, &str),
) -> ConditionChanges {
    ConditionChanges {
        failed: stated_condition(before.failed.as_ref(), failed, why, message),
        evicted: stated_condition(before.evicted.as_ref(), evicted, because, ""),
    }
}

pub(super) fn awaiting_outcome(before: &EvictionConditions) -> ConditionChanges {
    stated_outcome(before, (false, AWAITING, ""), (false, AWAITING))
}

/// Whether the condition is already as it should be.
fn is_stated(before: Option<&EvictionCondition>, stated: &ConditionChange) -> bool {
    before.is_some_and(|before| {
        before.is_true == stated.is_true && *before.reason == *stated.reason && *before.message == *stated.message
    })
}

/// The conditions, unless both are as they should be.
pub(super) fn unless_stated(before: &EvictionConditions, desired: ConditionChanges) -> Option<ConditionChanges> {
    let is_stated =
        is_stated(before.failed.as_ref(), &desired.failed) && is_stated(before.evicted.as_ref(), &desired.evicted);
    (!is_stated).then_some(desired)
}

/// The status that each request should have.
pub(super) fn decide(ctx: &EvictionContext<'_>, decision: &mut Decision) {
    for request in &ctx.requests {
        if let Some(change) = request_change(request, ctx, decision) {
            decision.intents.push(write(request, change));
        }
    }
}

fn write(request: &EvictionRequest, change: EvictionChange) -> Intent {
    let EvictionRequest { pod, name, uid, rv, .. } = request;
    let (pod, name, uid) = (pod.clone(), name.clone(), uid.clone());
    Intent::Update(Update::Eviction(Box::new(EvictionUpdate { pod, name, uid, rv: *rv, change })))
}

fn request_change(
    request: &EvictionRequest,
    ctx: &EvictionContext<'_>,
    decision: &mut Decision,
) -> Option<EvictionChange> {
    let observed = request.generation;
    let status_change = |stand: Option<ConditionChanges>| {
        let is_changed = stand.is_some() || request.observed_generation != observed;
        is_changed.then(|| EvictionChange::Request { observed, conditions: stand.map(Box::new) })
    };
    // Rule 4: a final status does not change any more.
    if request.is_final() {
        return status_change(None);
    }
    // Always, also for an Eviction that another client created.
    if ctx.existing_pod().is_some_and(|pod| pod.in_group) {
        return Some(refusal(request));
    }
    let desired = match ctx.relevant() {
        Some(eviction) if is_replaced(eviction, request) => awaiting_outcome(&request.conditions),
        Some(eviction) => copy_outcome(eviction, &request.conditions),
        // Rule 3. The pod with the UID may have another name than in the request.
        None => match ctx.pod {
            Lookup::Known(pod) if pod.key.name == request.pod.name => awaiting_outcome(&request.conditions),
            Lookup::Known(_) | Lookup::Absent => return Some(refusal(request)),
            Lookup::Unknown(why) => {
                let hold = Hold::PodUnreadable { why: why.to_owned() };
                decision.holds.push((Subject::Pod(request.pod.clone()), hold));
                return None;
            }
        },
    };
    status_change(unless_stated(&request.conditions, desired))
}

/// A new Eviction follows at once: the request does not show that the former one was canceled.
fn is_replaced(eviction: &Eviction, request: &EvictionRequest) -> bool {
    request.is_effective() && eviction.conditions.failure_reason() == Some(CANCELED)
}

/// Rule 17: as in the Eviction, with its own transition time.
fn copy_outcome(eviction: &Eviction, before: &EvictionConditions) -> ConditionChanges {
    let copy = |of: Option<&EvictionCondition>, before: Option<&EvictionCondition>| match of {
        Some(of) => stated_condition(before, of.is_true, &of.reason, &of.message),
        None => stated_condition(before, false, AWAITING, ""),
    };
    let EvictionConditions { failed, evicted } = &eviction.conditions;
    ConditionChanges {
        failed: copy(failed.as_ref(), before.failed.as_ref()),
        evicted: copy(evicted.as_ref(), before.evicted.as_ref()),
    }
}

fn refusal(request: &EvictionRequest) -> EvictionChange {
    let EvictionConditions { failed, evicted } = &request.conditions;
    let transitions = (!failed.as_ref().is_some_and(|one| one.is_true), evicted.is_none());
    EvictionChange::Refuse { observed: request.generation, transitions }
}
