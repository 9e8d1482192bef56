//! What happened to earlier pods of the same name: their Events are not about the pod that exists now.

use std::time::Duration;

use jiff::Timestamp;
use pod_safety_shared::cache::Lookup;
use pod_safety_shared::model::{Pod, Readiness};
use serde_json::Value;

use super::answer::{Moment, Predecessors, elapsed, format_duration, timestamp_from};
use super::context::{EventRecord, ExplainContext, pod_ref, str_at};
use super::history::{REQUESTED, evidence_moments, incident_moments, moments_from_events, unreachable_moments};

/// The reason of the Event that a pod was removed with evidence.
const FORCE_DELETED: &str = "ForceDeleted";

/// Reasons of Events that a pod was about to terminate: from the first of them its identity was unavailable, or soon
/// would be.
const TERMINATION_REASONS: [&str; 6] =
    ["NodeNotReady", "TaintManagerEviction", "ForceDeleteHeld", FORCE_DELETED, "Killing", "Preempted"];

/// What happened to the node longer before is not about the same failure.
const NODE_HISTORY_WINDOW: Duration = Duration::from_secs(86_400);

/// What is known of the earlier pods.
pub(super) fn find_predecessors(pod: &Pod, ctx: &ExplainContext<'_>) -> Option<Predecessors> {
    let all = ctx.events_of(&pod_ref(pod));
    let earlier_events: Vec<&EventRecord> = all.into_iter().filter(|one| !one.is_about(pod)).collect();
    let removed = earlier_events.iter().rev().find(|one| one.reason == FORCE_DELETED);
    let until = removed
        .map_or_else(|| timestamp_from(pod.created), |one| Some(one.at))
        .or(earlier_events.last().map(|one| one.at))?;
    let mut history = moments_from_events(&earlier_events);
    if let Some(removed) = removed {
        history.extend(removed.requested.map(|at| Moment::new(at, REQUESTED, "")));
        let began = until.saturating_sub(jiff::SignedDuration::try_from(NODE_HISTORY_WINDOW).unwrap_or_default());
        let began = began.unwrap_or(until);
        let of_node = last_node_history(&removed.node, ctx).into_iter();
        history.extend(of_node.filter(|one| one.at >= began && one.at <= until));
    }
    history.sort_by_key(|one| one.at);
    (!earlier_events.is_empty()).then_some(Predecessors { until, history })
}

/// What happened to the node on which the last one ran.
fn last_node_history(name: &str, ctx: &ExplainContext<'_>) -> Vec<Moment> {
    let mut moments = Vec::new();
    if let Lookup::Known(node) = ctx.view.node(name)
        && node.readiness != Readiness::Ready
    {
        moments.extend(unreachable_moments(node, ctx));
    }
    moments.extend(ctx.view.node_fences_of(name).flat_map(incident_moments));
    moments.extend(ctx.view.fence_evidence_of(name).flat_map(evidence_moments));
    moments
}

/// When this pod was scheduled and Ready, and for how long no pod of its name was available until then.
pub(super) fn recovery_moments(pod: &Pod, before: Option<&Predecessors>, ctx: &ExplainContext<'_>) -> Vec<Moment> {
    let uid = pod.uid().to_string();
    let Some(object) = ctx.successors.iter().find(|one| *str_at(one, "/metadata/uid") == *uid) else {
        return Vec::new();
    };
    let became = |condition: &str| -> Option<Timestamp> {
        let all = object.pointer("/status/conditions").and_then(Value::as_array)?;
        let is_true = all.iter().find(|one| one["type"] == condition && one["status"] == "True")?;
        str_at(is_true, "/lastTransitionTime").parse().ok()
    };
    let on = str_at(object, "/spec/nodeName");
    let scheduled = became("PodScheduled").map(|at| Moment::new(at, format!("scheduled to {on}"), ""));
    let ready = became("Ready").map(|at| {
        let away =
            before.and_then(|before| unavailable_since(&before.history)).map(|from| format_duration(elapsed(from, at)));
        let away = away.map_or(String::new(), |away| format!("{} was away for {away}", pod.key.name));
        Moment::new(at, format!("Ready on {on}"), away)
    });
    scheduled.into_iter().chain(ready).collect()
}

/// Since when the earlier pod was unavailable, as far as the history records it.
fn unavailable_since(history: &[Moment]) -> Option<Timestamp> {
    let is_termination = |moment: &&Moment| {
        TERMINATION_REASONS.iter().any(|reason| moment.what == *reason)
            || ["held: ", "last heartbeat of ", REQUESTED].iter().any(|word| moment.what.starts_with(word))
    };
    history.iter().find(is_termination).map(|moment| moment.at)
}
