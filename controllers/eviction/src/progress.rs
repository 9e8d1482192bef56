//! Which responder is active, and how an Eviction ends: rules 8 and 11 to 16.

use std::collections::BTreeSet;
use std::time::Duration;

use pod_safety_shared::authority::{ConditionChanges, EvictionChange, Precondition, StatusChange};
use pod_safety_shared::cache::Lookup;
use pod_safety_shared::clock::Mono;
use pod_safety_shared::controller_loop::Subject;
use pod_safety_shared::model::{
    CANCELED, Eviction, IMPERATIVE_EVICTOR, IMPERATIVE_EVICTOR_PRIORITY, Kind, NO_FURTHER_RESPONDER, Pod,
    RESPONDER_HEARTBEAT_DEADLINE, Requester, Responder, ResponderState, compare_turns,
};

use super::context::EvictionContext;
use super::evictions::list_requesters;
use super::holds::{Decision, Hold};
use super::requests::{NOT_EVICTED, awaiting_outcome, stated_outcome, unless_stated};

/// The pod is gone: its active responder may report within this time (`GracefulCompletionDelay` of
/// kubernetes#137133).
const GRACEFUL_COMPLETION: Duration = Duration::from_secs(5);

/// The API server accepts times that differ by less than this from its own (`pkg/apis/lifecycle/validation`).
const CLOCK_SKEW: Duration = Duration::from_secs(30);

/// How the pod ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PodEnd {
    Deleted,
    Terminal,
}

/// The changes of its status; `None`: it stays.
pub(super) fn progress(
    eviction: &Eviction,
    ctx: &EvictionContext<'_>,
    decision: &mut Decision,
) -> Option<EvictionChange> {
    let mut change = StatusChange { observed: eviction.generation, ..StatusChange::default() };
    let evaluated = evaluate(eviction, ctx, decision, &mut change);
    (change.requesters, change.dropped) = list_requesters(eviction, ctx);
    let named = |all: &[Requester]| all.iter().cloned().collect::<BTreeSet<_>>();
    let same = named(&change.requesters) == named(&eviction.requesters) && change.dropped.is_empty();
    if !evaluated && eviction.observed_generation == 0 && eviction.responders.is_empty() {
        // An Eviction without responders gets no other status.
        return None;
    }
    let is_changed = evaluated || !same || eviction.observed_generation != eviction.generation;
    is_changed.then(|| EvictionChange::Status(Box::new(change)))
}

/// Rule 12: gone, terminal, canceled, progress, in this order. Returns whether anything changes.
fn evaluate(
    eviction: &Eviction,
    ctx: &EvictionContext<'_>,
    decision: &mut Decision,
    change: &mut StatusChange,
) -> bool {
    if eviction.responders.iter().any(|one| one.state == ResponderState::Other) {
        push_hold(eviction, decision, Hold::UnknownState);
        return false;
    }
    let pod = match ctx.pod {
        Lookup::Absent => return finish_gone(eviction, ctx, decision, change, PodEnd::Deleted),
        Lookup::Known(pod) if pod.phase.is_terminal() => {
            return finish_gone(eviction, ctx, decision, change, PodEnd::Terminal);
        }
        Lookup::Known(pod) => pod,
        Lookup::Unknown(why) => {
            push_hold(eviction, decision, Hold::PodUnreadable { why: why.to_owned() });
            return false;
        }
    };
    if ctx.open_requests().next().is_none() {
        return finish_canceled(eviction, ctx, decision, change);
    }
    if eviction.responders.is_empty() {
        initialize(eviction, pod, change);
        return true;
    }
    advance(eviction, ctx, decision, change)
}

fn push_hold(eviction: &Eviction, decision: &mut Decision, hold: Hold) {
    decision.holds.push((Subject::Pod(eviction.pod.clone()), hold));
}

/// Rule 8: writes all responders at once, the first of which is active. Only names and its start: more would
/// anticipate the reports of responders (kubernetes#140804).
fn initialize(eviction: &Eviction, pod: &Pod, change: &mut StatusChange) {
    let own = pod.eviction_responders.iter().cloned();
    let evictor = (IMPERATIVE_EVICTOR.into(), IMPERATIVE_EVICTOR_PRIORITY);
    let mut responders: Vec<(Box<str>, i32)> = own.chain([evictor]).collect();
    responders.sort_by(|one, other| compare_turns((&one.0, one.1), (&other.0, other.1)));
    let first = responders.first().map(|(name, _)| name.clone());
    change.states = first.iter().map(|name| (name.clone(), ResponderState::Active)).collect();
    change.starts = first;
    change.responders = responders;
    change.conditions = unless_stated(&eviction.conditions, awaiting_outcome(&eviction.conditions));
}

/// Rule 14. A responder that reported is completed; another one has five seconds to report.
fn finish_gone(
    eviction: &Eviction,
    ctx: &EvictionContext<'_>,
    decision: &mut Decision,
    change: &mut StatusChange,
    ended: PodEnd,
) -> bool {
    if let Some(active) = eviction.active() {
        let since = ctx.view.target_ended_at(ctx.target).unwrap_or(eviction.first_seen);
        let until = since + GRACEFUL_COMPLETION;
        if active.completed.is_none() && ctx.now < until {
            *decision = std::mem::take(decision).and_requeue_at(until);
            return false;
        }
        change.states = vec![(active.name.clone(), final_state(active, ResponderState::Interrupted))];
    }
    let (because, check) = match ended {
        PodEnd::Deleted => ("PodDeleted", Precondition::PodGone),
        PodEnd::Terminal => ("PodTerminal", Precondition::PodTerminal),
    };
    change.conditions = Some(stated_outcome(&eviction.conditions, (false, "Succeeded", ""), (true, because)));
    change.check = check;
    true
}

/// A responder that reported is completed.
fn final_state(active: &Responder, otherwise: ResponderState) -> ResponderState {
    if active.completed.is_some() { ResponderState::Completed } else { otherwise }
}

fn failed_status(eviction: &Eviction, why: &str, message: &str) -> ConditionChanges {
    stated_outcome(&eviction.conditions, (true, why, message), (false, NOT_EVICTED))
}

/// Rule 15. A request that cannot be decoded may be an open one.
fn finish_canceled(
    eviction: &Eviction,
    ctx: &EvictionContext<'_>,
    decision: &mut Decision,
    change: &mut StatusChange,
) -> bool {
    if ctx.has_unreadable(Kind::EvictionRequests) {
        push_hold(eviction, decision, Hold::RequestsUnreadable);
        return false;
    }
    let active = eviction.active();
    change.states =
        active.map(|one| (one.name.clone(), final_state(one, ResponderState::Canceled))).into_iter().collect();
    change.conditions = Some(failed_status(eviction, CANCELED, ""));
    change.check = Precondition::NotRequested;
    true
}

/// Whether a responder has a report from before its turn.
fn is_prefilled(responder: &Responder) -> bool {
    let Responder { started, heartbeat, expected, completed, .. } = responder;
    let has_status = [started, heartbeat, expected, completed].into_iter().any(Option::is_some);
    responder.state == ResponderState::Inactive && has_status
}

/// Rules 13 and 16: the next responder becomes active, or all had their turns.
fn advance(eviction: &Eviction, ctx: &EvictionContext<'_>, decision: &mut Decision, change: &mut StatusChange) -> bool {
    if let Some(prefilled) = eviction.responders.iter().find(|responder| is_prefilled(responder)) {
        push_hold(eviction, decision, Hold::ResponderPrefilled { responder: prefilled.name.to_string() });
        return false;
    }
    let next = eviction.responders.iter().find(|one| one.state == ResponderState::Inactive);
    let Some(active) = eviction.active() else {
        if next.is_some() {
            // The API server permits no such state.
            push_hold(eviction, decision, Hold::UnknownState);
            return false;
        }
        return finish_exhausted(eviction, change);
    };
    let until = heartbeat_deadline(active, ctx);
    if active.completed.is_none() && ctx.now < until {
        *decision = std::mem::take(decision).and_requeue_at(until);
        return false;
    }
    change.states = vec![(active.name.clone(), final_state(active, ResponderState::Interrupted))];
    match next {
        Some(next) => {
            change.states.push((next.name.clone(), ResponderState::Active));
            change.starts = Some(next.name.clone());
            true
        }
        None => finish_exhausted(eviction, change),
    }
}

/// When a responder that does not report loses its turn: 20 minutes after its last heartbeat, by the later of two
/// measures: when this process first saw it, and its timestamp. A timestamp counts for at most 30 s more, because the
/// API server accepts none that is further ahead. The API server would accept the interruption 30 s earlier, while a
/// report may be in flight.
fn heartbeat_deadline(active: &Responder, ctx: &EvictionContext<'_>) -> Mono {
    let age = ctx.view.age(active.last_heartbeat().unwrap_or(0), ctx.now);
    let by_time = ctx.now + RESPONDER_HEARTBEAT_DEADLINE.saturating_sub(age);
    let observed = active.seen.heartbeat + RESPONDER_HEARTBEAT_DEADLINE;
    by_time.clamp(observed, observed + CLOCK_SKEW)
}

fn finish_exhausted(eviction: &Eviction, change: &mut StatusChange) -> bool {
    change.conditions = Some(failed_status(eviction, NO_FURTHER_RESPONDER, ""));
    change.check = Precondition::PodRunning;
    true
}
