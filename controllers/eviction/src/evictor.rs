//! The imperative evictor: `imperative-eviction.k8s.io/evictor`, the last responder of every Eviction. It asks the API server
//! to evict the pod, which asks the pod's budget.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use pod_safety_shared::authority::{EvictionChange, Report};
use pod_safety_shared::cache::Lookup;
use pod_safety_shared::drive::Subject;
use pod_safety_shared::model::{
    Budget, Eviction, EvictionTarget, IMPERATIVE_EVICTOR, LOST_NODE_RESPONDER, Pod, Readiness, Responder,
};

use super::holds::{Decision, Hold};
use super::scene::Scene;

/// After a refusal it asks again so much later, doubled each time up to the last (the reviewers' wish in kubernetes#137396).
const AGAIN_FIRST: Duration = Duration::from_secs(20);
/// See [`AGAIN_FIRST`]. It is shorter than the time within which a responder must report.
const AGAIN_LAST: Duration = Duration::from_secs(600);

/// A budget that opens is tried at most this often.
const OPENED_AGAIN: Duration = Duration::from_secs(5);

/// A pod whose eviction was accepted terminates at once. After this time the disruption controller takes its condition
/// back, and it is evicted again.
const ACCEPTED_FOR: Duration = Duration::from_secs(120);

/// How often a responder that works reports (KEP-4563).
pub(super) const HEARTBEAT_EACH: Duration = Duration::from_secs(180);
/// A responder reports no more often (the API's own words on `heartbeatTime`).
pub(super) const HEARTBEATS_APART: Duration = Duration::from_secs(20);

/// Why no eviction is tried, in the words of the responder.
const OF_DAEMON_SET: &str =
    "the pod belongs to a DaemonSet, which would replace it on the same node: it is not evicted";
const MIRROR: &str =
    "the pod is the API's copy of a static pod, which only its kubelet can end: it is not evicted";

/// What the last message says of attempts that were refused. It survives a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempts {
    /// How many.
    pub count: u32,
    /// When the last one was made, in seconds of the wall clock.
    pub last: i64,
    /// The API server does not want to be asked before.
    pub retry_after: Duration,
    /// A budget refused it.
    pub by_budget: bool,
}

/// Reads the end of a message: `REASON: … (attempts=N, last=TIME, retryAfter=Ns)`. Anything else says nothing.
#[must_use]
pub fn attempts(message: &str) -> Option<Attempts> {
    let (said, rest) = message.rsplit_once(" (attempts=")?;
    let mut parts = rest.strip_suffix("s)")?.split(", ");
    let count = parts.next()?.parse().ok()?;
    let last: Timestamp = parts.next()?.strip_prefix("last=")?.parse().ok()?;
    let pause: u64 = parts.next()?.strip_prefix("retryAfter=")?.parse().ok()?;
    // A person may write there, too: no pause is longer than the longest.
    let retry_after = Duration::from_secs(pause).min(AGAIN_LAST);
    let by_budget =
        ["BudgetBlocks: ", "BudgetBeingProcessed: "].iter().any(|reason| said.starts_with(reason));
    Some(Attempts { count, last: last.as_second(), retry_after, by_budget })
}

/// The second before which no time of it may lie.
pub(super) fn floor(responder: &Responder) -> i64 {
    responder.last_sign().unwrap_or(0)
}

/// A report, if there is something to say, or its time has come; else when that is.
pub(super) fn say(
    responder: &Responder,
    made: Report,
    scene: &Scene<'_>,
    decision: &mut Decision,
) -> Option<EvictionChange> {
    let since = responder.heartbeat.map(|at| scene.age(at));
    let news = *responder.message != *made.message || made.complete;
    let pause = if news { HEARTBEATS_APART } else { HEARTBEAT_EACH };
    let left = since.map_or(Duration::ZERO, |since| pause.saturating_sub(since));
    if left.is_zero() || made.complete {
        return Some(EvictionChange::Report(Box::new(made)));
    }
    *decision = std::mem::take(decision).and_recheck_at(scene.now + left);
    None
}

pub(super) fn report(responder: &Responder, name: &'static str, message: String) -> Report {
    let floor = floor(responder);
    Report { responder: name, message, heartbeat: true, expected: None, complete: false, floor }
}

pub(super) fn complete(responder: &Responder, name: &'static str, message: &str) -> Report {
    Report { complete: true, ..report(responder, name, message.to_owned()) }
}

/// What the evictor does, if it is its turn.
pub(super) fn act<'a>(scene: &Scene<'a>, decision: &mut Decision) -> Option<(&'a Eviction, EvictionChange)> {
    let (eviction, own, pod) = scene.turn_of(IMPERATIVE_EVICTOR)?;
    let change = if pod.mirror {
        say(own, complete(own, IMPERATIVE_EVICTOR, MIRROR), scene, decision)
    } else if pod.controller.as_ref().is_some_and(|controller| controller.is_daemon_set()) {
        say(own, complete(own, IMPERATIVE_EVICTOR, OF_DAEMON_SET), scene, decision)
    } else if let Some(deletion) = pod.deletion {
        let expected = Some(deletion.at);
        let made = Report { expected, ..report(own, IMPERATIVE_EVICTOR, terminates(pod, scene)) };
        say(own, made, scene, decision)
    } else {
        attempt(own, pod, scene, decision)
    };
    Some((eviction, change?))
}

/// The pod is gone, or ran to its end: the responder of ours whose turn it is says so, so that it counts as completed. Of a
/// phase beside a container that is reported running it says nothing: what it calls ended may run.
pub(super) fn ends<'a>(scene: &Scene<'a>) -> Option<(&'a Eviction, EvictionChange)> {
    let message = match scene.pod {
        Lookup::Absent => "the pod does not exist any more",
        Lookup::Known(pod) if pod.is_over() => "the pod ran to its end",
        Lookup::Known(_) | Lookup::Unknown(_) => return None,
    };
    let eviction = scene.active()?;
    let active = eviction.active().filter(|active| active.completed.is_none())?;
    let own = [IMPERATIVE_EVICTOR, LOST_NODE_RESPONDER].into_iter().find(|own| **own == *active.name)?;
    Some((eviction, EvictionChange::Report(Box::new(complete(active, own, message)))))
}

/// A second eviction could only shorten its grace.
fn terminates(pod: &Pod, scene: &Scene<'_>) -> String {
    let node = pod.node.as_ref().filter(|name| match scene.view.node(name) {
        Lookup::Known(node) => node.readiness != Readiness::Ready,
        Lookup::Absent | Lookup::Unknown(_) => true,
    });
    match node {
        Some(node) => format!(
            "the pod is terminating, and node {node} does not report: it is removed with evidence that its processes have ended"
        ),
        None => "the pod is terminating".to_owned(),
    }
}

fn attempt(own: &Responder, pod: &Pod, scene: &Scene<'_>, decision: &mut Decision) -> Option<EvictionChange> {
    let made = attempts(&own.message);
    if let Some(made) = &made {
        let (attempts, message) = (made.count, own.message.to_string());
        decision.holds.push((Subject::Pod(pod.key.clone()), Hold::EvictionRefused { attempts, message }));
    }
    let left = left(own, pod, scene);
    if !left.is_zero() {
        *decision = std::mem::take(decision).and_recheck_at(scene.now + left);
        return None;
    }
    if let Some(budget) = waits_for_turn(own, pod, scene) {
        let message = waiting(budget, &own.message);
        *decision = std::mem::take(decision).and_recheck_at(scene.now + AGAIN_FIRST);
        return say(own, report(own, IMPERATIVE_EVICTOR, message), scene, decision);
    }
    let heartbeat = own.heartbeat.is_none_or(|at| scene.age(at) >= HEARTBEATS_APART);
    let attempt = made.map_or(0, |made| made.count).saturating_add(1);
    Some(EvictionChange::Evict { attempt, floor: floor(own), heartbeat })
}

/// What it waits for, and what the message said of attempts before.
fn waiting(budget: &Budget, before: &str) -> String {
    let attempts = before.rfind(" (attempts=").map_or("", |at| &before[at..]);
    format!("other pods of PodDisruptionBudget {} are evicted first{attempts}", budget.key.name)
}

/// How long it does not ask.
fn left(own: &Responder, pod: &Pod, scene: &Scene<'_>) -> Duration {
    let Some(made) = attempts(&own.message) else {
        let accepted = own.message.starts_with("the API server accepted");
        let since = own.heartbeat.filter(|_| accepted).map(|at| scene.age(at));
        return since.map_or(Duration::ZERO, |since| ACCEPTED_FOR.saturating_sub(since));
    };
    let since = scene.age(made.last);
    let pause = AGAIN_FIRST.saturating_mul(1 << made.count.saturating_sub(1).min(10)).min(AGAIN_LAST);
    let pause = if made.by_budget && is_open(pod, scene) { OPENED_AGAIN } else { pause };
    pause.max(made.retry_after).saturating_sub(since)
}

/// Whether its budgets let something through now.
fn is_open(pod: &Pod, scene: &Scene<'_>) -> bool {
    let mut budgets = scene.view.budgets_of_pod(pod).peekable();
    budgets.peek().is_some() && budgets.all(|budget| budget.status.disruptions_allowed > 0)
}

/// The budget whose other pods have their turns before this one: as many at a time as it allows, and one where it allows
/// none, for pods that are not Ready may be let through.
fn waits_for_turn<'a>(own: &Responder, pod: &Pod, scene: &Scene<'a>) -> Option<&'a Budget> {
    scene.view.budgets_of_pod(pod).find(|budget| {
        let allowed = usize::try_from(budget.status.disruptions_allowed).unwrap_or(0).max(1);
        let others = scene.view.pods_of_budget(&budget.key.uid).filter(|other| other.key.uid != pod.key.uid);
        others.filter(|other| goes_before(other, own, pod, scene)).take(allowed).count() == allowed
    })
}

/// Whether this pod is to be evicted now, too, and began to wait earlier.
fn goes_before(other: &Pod, own: &Responder, pod: &Pod, scene: &Scene<'_>) -> bool {
    if other.deletion.is_some() || other.phase.is_terminal() {
        return false;
    }
    let target = EvictionTarget { namespace: Arc::clone(scene.namespace()), uid: other.key.uid.clone() };
    if !scene.view.is_eviction_target(&target) {
        return false;
    }
    let beside = Scene::new(&target, scene.view, scene.now);
    let Some((_, theirs, _)) = beside.turn_of(IMPERATIVE_EVICTOR) else { return false };
    let order = |responder: &Responder, pod: &Pod| (responder.started, pod.key.uid.clone());
    order(theirs, other) < order(own, pod) && left(theirs, other, scene).is_zero()
}
