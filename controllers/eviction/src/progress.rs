//! Whose turn it is, and how an Eviction ends: rules 8 and 11 to 16.

use std::collections::BTreeSet;
use std::time::Duration;

use pod_safety_shared::authority::{Check, EvictionChange, Stand, StatusChange};
use pod_safety_shared::cache::Lookup;
use pod_safety_shared::clock::Mono;
use pod_safety_shared::drive::Subject;
use pod_safety_shared::model::{
    CANCELED, Eviction, IMPERATIVE_EVICTOR, IMPERATIVE_EVICTOR_PRIORITY, Kind, NO_FURTHER_RESPONDER, Pod,
    RESPONDER_HEARTBEAT_DEADLINE, Requester, Responder, ResponderState, turn,
};

use super::evictions::requesters;
use super::holds::{Decision, Hold};
use super::requests::{NOT_EVICTED, awaiting, stand, unless_said};
use super::scene::Scene;

/// The pod is gone: its responder may report within this time (`GracefulCompletionDelay` of kubernetes#137133).
pub const GRACEFUL_COMPLETION: Duration = Duration::from_secs(5);

/// How the pod ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    Deleted,
    Terminal,
}

/// What its status should become; `None`: it stays.
pub(super) fn progress(
    eviction: &Eviction,
    scene: &Scene<'_>,
    decision: &mut Decision,
) -> Option<EvictionChange> {
    let mut change = StatusChange { observed: eviction.generation, ..StatusChange::default() };
    let evaluated = evaluate(eviction, scene, decision, &mut change);
    (change.requesters, change.dropped) = requesters(eviction, scene);
    let named = |all: &[Requester]| all.iter().cloned().collect::<BTreeSet<_>>();
    let same = named(&change.requesters) == named(&eviction.requesters) && change.dropped.is_empty();
    if !evaluated && eviction.observed == 0 && eviction.responders.is_empty() {
        // Nothing is said of an Eviction before it is initialized.
        return None;
    }
    let news = evaluated || !same || eviction.observed != eviction.generation;
    news.then(|| EvictionChange::Status(Box::new(change)))
}

/// Rule 12: gone, terminal, canceled, progress, in this order. Gives back whether anything changes.
fn evaluate(
    eviction: &Eviction,
    scene: &Scene<'_>,
    decision: &mut Decision,
    change: &mut StatusChange,
) -> bool {
    if eviction.responders.iter().any(|one| one.state == ResponderState::Other) {
        hold(eviction, decision, Hold::UnknownState);
        return false;
    }
    let pod = match scene.pod {
        Lookup::Absent => return gone(eviction, scene, decision, change, Ended::Deleted),
        Lookup::Known(pod) if pod.phase.is_terminal() => {
            return gone(eviction, scene, decision, change, Ended::Terminal);
        }
        Lookup::Known(pod) => pod,
        Lookup::Unknown(why) => {
            hold(eviction, decision, Hold::PodUnreadable { why: why.to_owned() });
            return false;
        }
    };
    if scene.wanted().next().is_none() {
        return canceled(eviction, scene, decision, change);
    }
    if eviction.responders.is_empty() {
        initialize(eviction, pod, change);
        return true;
    }
    go_on(eviction, scene, decision, change)
}

fn hold(eviction: &Eviction, decision: &mut Decision, hold: Hold) {
    decision.holds.push((Subject::Pod(eviction.pod.clone()), hold));
}

/// Rule 8: in one write all responders, the first of which is active. Names and its start alone: who writes more prejudges
/// what responders report (kubernetes#140804).
fn initialize(eviction: &Eviction, pod: &Pod, change: &mut StatusChange) {
    let own = pod.eviction_responders.iter().cloned();
    let evictor = (IMPERATIVE_EVICTOR.into(), IMPERATIVE_EVICTOR_PRIORITY);
    let mut responders: Vec<(Box<str>, i32)> = own.chain([evictor]).collect();
    responders.sort_by(|one, other| turn((&one.0, one.1), (&other.0, other.1)));
    let first = responders.first().map(|(name, _)| name.clone());
    change.states = first.iter().map(|name| (name.clone(), ResponderState::Active)).collect();
    change.starts = first;
    change.responders = responders;
    change.stand = unless_said(&eviction.verdicts, awaiting(&eviction.verdicts));
}

/// Rule 14. Who reported is completed; who did not gets five seconds to.
fn gone(
    eviction: &Eviction,
    scene: &Scene<'_>,
    decision: &mut Decision,
    change: &mut StatusChange,
    ended: Ended,
) -> bool {
    if let Some(active) = eviction.active() {
        let since = scene.view.target_ended(scene.target).unwrap_or(eviction.first_seen);
        let until = since + GRACEFUL_COMPLETION;
        if active.completed.is_none() && scene.now < until {
            *decision = std::mem::take(decision).and_recheck_at(until);
            return false;
        }
        change.states = vec![(active.name.clone(), done(active, ResponderState::Interrupted))];
    }
    let (because, check) = match ended {
        Ended::Deleted => ("PodDeleted", Check::PodGone),
        Ended::Terminal => ("PodTerminal", Check::PodTerminal),
    };
    change.stand = Some(stand(&eviction.verdicts, (false, "Succeeded", ""), (true, because)));
    change.check = check;
    true
}

/// Who reported is completed.
fn done(active: &Responder, otherwise: ResponderState) -> ResponderState {
    if active.completed.is_some() { ResponderState::Completed } else { otherwise }
}

fn failed(eviction: &Eviction, why: &str, message: &str) -> Stand {
    stand(&eviction.verdicts, (true, why, message), (false, NOT_EVICTED))
}

/// Rule 15. A request that cannot be read may ask.
fn canceled(
    eviction: &Eviction,
    scene: &Scene<'_>,
    decision: &mut Decision,
    change: &mut StatusChange,
) -> bool {
    if scene.has_unreadable(Kind::EvictionRequests) {
        hold(eviction, decision, Hold::RequestsUnreadable);
        return false;
    }
    let active = eviction.active();
    change.states =
        active.map(|one| (one.name.clone(), done(one, ResponderState::Canceled))).into_iter().collect();
    change.stand = Some(failed(eviction, CANCELED, ""));
    change.check = Check::NotRequested;
    true
}

/// Whether it is only its turn that lets a responder report.
fn is_prefilled(responder: &Responder) -> bool {
    let Responder { started, heartbeat, expected, completed, .. } = responder;
    let said = [started, heartbeat, expected, completed].into_iter().any(Option::is_some);
    responder.state == ResponderState::Inactive && said
}

/// Rules 13 and 16: the next one has its turn, or all had theirs.
fn go_on(eviction: &Eviction, scene: &Scene<'_>, decision: &mut Decision, change: &mut StatusChange) -> bool {
    if let Some(prefilled) = eviction.responders.iter().find(|responder| is_prefilled(responder)) {
        hold(eviction, decision, Hold::ResponderPrefilled { responder: prefilled.name.to_string() });
        return false;
    }
    let next = eviction.responders.iter().find(|one| one.state == ResponderState::Inactive);
    let Some(active) = eviction.active() else {
        if next.is_some() {
            // The API server permits no such state.
            hold(eviction, decision, Hold::UnknownState);
            return false;
        }
        return no_further(eviction, change);
    };
    let until = deadline(active, scene.age(active.last_sign().unwrap_or(0)), scene.now);
    if active.completed.is_none() && scene.now < until {
        *decision = std::mem::take(decision).and_recheck_at(until);
        return false;
    }
    change.states = vec![(active.name.clone(), done(active, ResponderState::Interrupted))];
    match next {
        Some(next) => {
            change.states.push((next.name.clone(), ResponderState::Active));
            change.starts = Some(next.name.clone());
            true
        }
        None => no_further(eviction, change),
    }
}

/// When a silent responder loses its turn: 20 minutes after this process saw its last sign, and by its own time. The API
/// would take it 30 s earlier, while a report may be on its way.
#[must_use]
pub fn deadline(active: &Responder, age: Duration, now: Mono) -> Mono {
    let by_time = now + RESPONDER_HEARTBEAT_DEADLINE.saturating_sub(age);
    by_time.max(active.heard + RESPONDER_HEARTBEAT_DEADLINE)
}

fn no_further(eviction: &Eviction, change: &mut StatusChange) -> bool {
    change.stand = Some(failed(eviction, NO_FURTHER_RESPONDER, ""));
    change.check = Check::PodLeft;
    true
}
