//! The imperative evictor: `imperative-eviction.k8s.io/evictor`, the last responder of every Eviction. It uses the
//! eviction subresource of the pod, which respects the pod's budget.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use pod_safety_shared::authority::{EvictionChange, Report};
use pod_safety_shared::cache::Lookup;
use pod_safety_shared::clock::Backoff;
use pod_safety_shared::controller_loop::Subject;
use pod_safety_shared::model::{
    Budget, Eviction, EvictionTarget, IMPERATIVE_EVICTOR, LOST_NODE_RESPONDER, Pod, Readiness, Responder,
};

use super::context::{EvictionContext, Turn};
use super::holds::{Decision, Hold};

/// The backoff after a refusal (requested by the reviewers of kubernetes#137396). The maximum is shorter than the time
/// within which a responder must report.
const BACKOFF: Backoff = Backoff { initial: Duration::from_secs(20), maximum: Duration::from_secs(600) };

/// After a budget allows a disruption again, an eviction is tried at most this often.
const REOPENED_BACKOFF: Duration = Duration::from_secs(5);

/// A pod whose eviction was accepted terminates at once. After this time the disruption controller resets its
/// condition, and it is evicted again.
const ACCEPTED_GRACE: Duration = Duration::from_secs(120);

/// How often an active responder reports (KEP-4563).
pub(super) const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(180);
/// A responder reports no more often (API documentation of `heartbeatTime`).
pub(super) const MIN_HEARTBEAT_INTERVAL: Duration = Duration::from_secs(20);

/// The beginning of the message of a pod that waits for other pods. It is written only after the pod's own backoff.
const WAITS_FOR_OTHERS: &str = "other pods of PodDisruptionBudget ";

/// Why no eviction is tried, as the responder's message.
const OF_DAEMON_SET: &str =
    "the pod belongs to a DaemonSet, which would replace it on the same node: it is not evicted";
const MIRROR: &str = "the pod is the API's copy of a static pod, which only its kubelet can end: it is not evicted";

/// Why a terminal phase does not complete our responder.
const MAY_RUN: &str =
    "the pod's phase is terminal, but its last report shows a running container: evidence that it ended is missing";

/// The attempts that were refused, from the last message. They survive a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attempts {
    /// How many.
    pub(super) count: u32,
    /// When the last attempt was made, in seconds of the wall clock.
    pub(super) last: i64,
    /// The API server's `Retry-After`.
    pub(super) retry_after: Duration,
    /// A budget refused it.
    pub(super) by_budget: bool,
}

/// Parses the end of a message: `REASON: … (attempts=N, last=TIME, retryAfter=Ns)`. Any other text means no attempts.
pub(super) fn parse_attempts(message: &str) -> Option<Attempts> {
    let (message_text, rest) = message.rsplit_once(" (attempts=")?;
    let mut parts = rest.strip_suffix("s)")?.split(", ");
    let count = parts.next()?.parse().ok()?;
    let last: Timestamp = parts.next()?.strip_prefix("last=")?.parse().ok()?;
    let pause: u64 = parts.next()?.strip_prefix("retryAfter=")?.parse().ok()?;
    // Another client may write there, too: no pause is longer than the maximum.
    let retry_after = Duration::from_secs(pause).min(BACKOFF.maximum);
    let by_budget = ["BudgetBlocks: ", "BudgetBeingProcessed: "].iter().any(|reason| message_text.starts_with(reason));
    Some(Attempts { count, last: last.as_second(), retry_after, by_budget })
}

/// The second before which its next `heartbeatTime` must not lie.
pub(super) fn heartbeat_floor(responder: &Responder) -> i64 {
    responder.last_heartbeat().unwrap_or(0)
}

/// A report, if the message changes or the heartbeat is due; else the time when it is due.
pub(super) fn send_report(
    turn: Turn<'_>,
    report: Report,
    ctx: &EvictionContext<'_>,
    decision: &mut Decision,
) -> Option<EvictionChange> {
    let is_news = *turn.responder.message != *report.message || report.complete;
    let pause = if is_news { MIN_HEARTBEAT_INTERVAL } else { HEARTBEAT_INTERVAL };
    let remaining = turn.since_heartbeat(ctx).map_or(Duration::ZERO, |since| pause.saturating_sub(since));
    if remaining.is_zero() || report.complete {
        return Some(EvictionChange::Report(Box::new(report)));
    }
    *decision = std::mem::take(decision).and_requeue_at(ctx.now + remaining);
    None
}

pub(super) fn report(responder: &Responder, name: &'static str, message: String) -> Report {
    let floor = heartbeat_floor(responder);
    Report { responder: name, message, heartbeat: true, expected: None, complete: false, floor }
}

pub(super) fn completed_report(responder: &Responder, name: &'static str, message: &str) -> Report {
    Report { complete: true, ..report(responder, name, message.to_owned()) }
}

/// The evictor's action, if it is active.
pub(super) fn act<'a>(ctx: &EvictionContext<'a>, decision: &mut Decision) -> Option<(&'a Eviction, EvictionChange)> {
    let turn = ctx.turn_of(IMPERATIVE_EVICTOR)?;
    let Turn { eviction, responder: own, pod } = turn;
    let change = if pod.mirror {
        send_report(turn, completed_report(own, IMPERATIVE_EVICTOR, MIRROR), ctx, decision)
    } else if pod.controller.as_ref().is_some_and(|controller| controller.is_daemon_set()) {
        send_report(turn, completed_report(own, IMPERATIVE_EVICTOR, OF_DAEMON_SET), ctx, decision)
    } else if let Some(deletion) = pod.deletion {
        let expected = Some(deletion.at);
        let report = Report { expected, ..report(own, IMPERATIVE_EVICTOR, describe_terminating(pod, ctx)) };
        send_report(turn, report, ctx, decision)
    } else {
        attempt(turn, ctx, decision)
    };
    Some((eviction, change?))
}

/// The pod is gone or has terminated: our active responder reports that, so that it counts as completed. If a
/// container is reported running despite a terminal phase, it is not completed: the pod may still run.
pub(super) fn complete_if_gone<'a>(ctx: &EvictionContext<'a>) -> Option<(&'a Eviction, EvictionChange)> {
    let message = match ctx.pod {
        Lookup::Absent => "the pod does not exist any more",
        Lookup::Known(pod) if pod.has_terminated() => "the pod ran to its end",
        Lookup::Known(_) | Lookup::Unknown(_) => return None,
    };
    let (eviction, active, own) = own_turn(ctx)?;
    Some((eviction, EvictionChange::Report(Box::new(completed_report(active, own, message)))))
}

/// Reports once that a terminal phase is no evidence, because the last report shows a running container.
pub(super) fn report_missing_evidence<'a>(ctx: &EvictionContext<'a>) -> Option<(&'a Eviction, EvictionChange)> {
    let terminal = |existing: &&Pod| existing.phase.is_terminal() && !existing.has_terminated();
    let pod = ctx.existing_pod().filter(terminal)?;
    let (eviction, responder, own) = own_turn(ctx).filter(|(_, active, _)| *active.message != *MAY_RUN)?;
    let since = Turn { eviction, responder, pod }.since_heartbeat(ctx);
    let heartbeat = since.is_none_or(|since| since >= MIN_HEARTBEAT_INTERVAL);
    let report = Report { heartbeat, ..report(responder, own, MAY_RUN.to_owned()) };
    Some((eviction, EvictionChange::Report(Box::new(report))))
}

/// The active Eviction, whose active responder is one of pod-safety's and not completed, and its name.
fn own_turn<'a>(ctx: &EvictionContext<'a>) -> Option<(&'a Eviction, &'a Responder, &'static str)> {
    let eviction = ctx.active()?;
    let active = eviction.active().filter(|active| active.completed.is_none())?;
    let own = [IMPERATIVE_EVICTOR, LOST_NODE_RESPONDER].into_iter().find(|own| **own == *active.name)?;
    Some((eviction, active, own))
}

/// The pod terminates already: a second eviction could only shorten its grace period.
fn describe_terminating(pod: &Pod, ctx: &EvictionContext<'_>) -> String {
    let node = pod.node.as_ref().filter(|name| match ctx.view.node(name) {
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

fn attempt(turn: Turn<'_>, ctx: &EvictionContext<'_>, decision: &mut Decision) -> Option<EvictionChange> {
    let Turn { responder: own, pod, .. } = turn;
    let previous = parse_attempts(&own.message);
    if let Some(made) = &previous {
        let (attempts, message) = (made.count, own.message.to_string());
        decision.holds.push((Subject::Pod(pod.key.clone()), Hold::EvictionRefused { attempts, message }));
    }
    let remaining = remaining_backoff(turn, ctx);
    if !remaining.is_zero() {
        *decision = std::mem::take(decision).and_requeue_at(ctx.now + remaining);
        return None;
    }
    if let Some(budget) = blocking_budget(own, pod, ctx) {
        let message = describe_waiting(budget, &own.message);
        *decision = std::mem::take(decision).and_requeue_at(ctx.now + BACKOFF.initial);
        return send_report(turn, report(own, IMPERATIVE_EVICTOR, message), ctx, decision);
    }
    let heartbeat = turn.since_heartbeat(ctx).is_none_or(|since| since >= MIN_HEARTBEAT_INTERVAL);
    let attempt = previous.map_or(0, |made| made.count).saturating_add(1);
    Some(EvictionChange::Evict { attempt, floor: heartbeat_floor(own), heartbeat })
}

/// The message of a waiting pod, with the attempts of the message before.
fn describe_waiting(budget: &Budget, before: &str) -> String {
    let attempts = before.rfind(" (attempts=").map_or("", |at| &before[at..]);
    format!("{WAITS_FOR_OTHERS}{} are evicted first{attempts}", budget.key.name)
}

/// The remaining backoff.
fn remaining_backoff(turn: Turn<'_>, ctx: &EvictionContext<'_>) -> Duration {
    let Turn { eviction, responder: own, pod } = turn;
    if own.message.starts_with(WAITS_FOR_OTHERS) {
        return Duration::ZERO;
    }
    let Some(previous) = parse_attempts(&own.message) else {
        let accepted = own.message.starts_with("the API server accepted");
        let since = turn.since_heartbeat(ctx).filter(|_| accepted);
        if since.is_none() && !own.message.is_empty() && ctx.view.has_foreign_evictions(ctx.namespace()) {
            // An evictor of Kubernetes writes the same entry.
            return BACKOFF.initial.saturating_sub(ctx.now.since(own.seen.message));
        }
        return since.map_or(Duration::ZERO, |since| ACCEPTED_GRACE.saturating_sub(since));
    };
    let since = ctx.age(eviction, previous.last, own.seen.message);
    let reopened = previous.by_budget && is_open(pod, ctx);
    let pause = if reopened { REOPENED_BACKOFF } else { BACKOFF.after(previous.count) };
    pause.max(previous.retry_after).saturating_sub(since)
}

/// Whether its budgets allow a disruption now.
fn is_open(pod: &Pod, ctx: &EvictionContext<'_>) -> bool {
    let mut budgets = ctx.view.budgets_of_pod(pod).peekable();
    budgets.peek().is_some() && budgets.all(|budget| budget.status.disruptions_allowed > 0)
}

/// The budget whose other pods go before this one: as many at a time as it allows, and one if it allows none, because
/// pods that are not Ready may be evicted.
fn blocking_budget<'a>(own: &Responder, pod: &Pod, ctx: &EvictionContext<'a>) -> Option<&'a Budget> {
    ctx.view.budgets_of_pod(pod).find(|budget| {
        let allowed = usize::try_from(budget.status.disruptions_allowed).unwrap_or(0).max(1);
        let others = ctx.view.pods_of_budget(&budget.key.uid).filter(|other| other.key.uid != pod.key.uid);
        others.filter(|other| goes_before(other, own, pod, ctx)).take(allowed).count() == allowed
    })
}

/// Whether this other pod is to be evicted now, too, and has waited longer.
fn goes_before(other: &Pod, own: &Responder, pod: &Pod, ctx: &EvictionContext<'_>) -> bool {
    if other.deletion.is_some() || other.phase.is_terminal() {
        return false;
    }
    let target = EvictionTarget { namespace: Arc::clone(ctx.namespace()), uid: other.key.uid.clone() };
    if !ctx.view.is_eviction_target(&target) {
        return false;
    }
    let other_ctx = EvictionContext::new(&target, ctx.view, ctx.now);
    let Some(theirs) = other_ctx.turn_of(IMPERATIVE_EVICTOR) else { return false };
    let order = |responder: &Responder, pod: &Pod| (responder.started, pod.key.uid.clone());
    order(theirs.responder, other) < order(own, pod) && remaining_backoff(theirs, &other_ctx).is_zero()
}
