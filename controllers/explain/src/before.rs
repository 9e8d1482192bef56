//! What became of the pods that had a name before the pod that has it now: what was said of them is not true of it.

use std::time::Duration;

use jiff::Timestamp;
use pod_safety_shared::cache::Lookup;
use pod_safety_shared::model::{Pod, Readiness};
use serde_json::Value;

use super::answer::{Before, Moment, moment, since, span};
use super::history::{REQUESTED, fenced, proved, silence, told_of};
use super::scene::{Said, Scene, pod_object, text};

/// The Event that a pod was removed with proof.
const FORCE_DELETED: &str = "ForceDeleted";

/// Events that say that a pod was about to end: since the first of them its identity did not serve, or was about not to.
const ENDS: [&str; 6] =
    ["NodeNotReady", "TaintManagerEviction", "ForceDeleteHeld", FORCE_DELETED, "Killing", "Preempted"];

/// What happened to its node earlier than this belongs to another story.
const STORY: Duration = Duration::from_secs(86_400);

/// What is known of them.
pub(super) fn of_pod(pod: &Pod, scene: &Scene<'_>) -> Option<Before> {
    let all = scene.said_of(&pod_object(pod));
    let theirs: Vec<&Said> = all.into_iter().filter(|one| !one.is_about(pod)).collect();
    let removed = theirs.iter().rev().find(|one| one.reason == FORCE_DELETED);
    let until = removed
        .map_or_else(|| moment(pod.created), |one| Some(one.at))
        .or(theirs.last().map(|one| one.at))?;
    let mut history = told_of(&theirs);
    if let Some(removed) = removed {
        history.extend(removed.requested.map(|at| Moment::new(at, REQUESTED, "")));
        let began = until.saturating_sub(jiff::SignedDuration::try_from(STORY).unwrap_or_default());
        let began = began.unwrap_or(until);
        let of_node = node_story(&removed.node, scene).into_iter();
        history.extend(of_node.filter(|one| one.at >= began && one.at <= until));
    }
    history.sort_by_key(|one| one.at);
    (!theirs.is_empty()).then_some(Before { until, history })
}

/// What happened to the node on which the last one ran.
fn node_story(name: &str, scene: &Scene<'_>) -> Vec<Moment> {
    let mut moments = Vec::new();
    if let Lookup::Known(node) = scene.view.node(name)
        && node.readiness != Readiness::Ready
    {
        moments.extend(silence(node, scene));
    }
    moments.extend(scene.view.fences_of(name).flat_map(fenced));
    moments.extend(scene.view.proofs_of(name).flat_map(proved));
    moments
}

/// When this pod was scheduled and Ready, and for how long nobody of its name had been there until then.
pub(super) fn back(pod: &Pod, before: Option<&Before>, scene: &Scene<'_>) -> Vec<Moment> {
    let uid = pod.uid().to_string();
    let Some(whole) = scene.successors.iter().find(|one| *text(one, "/metadata/uid") == *uid) else {
        return Vec::new();
    };
    let became = |condition: &str| -> Option<Timestamp> {
        let all = whole.pointer("/status/conditions").and_then(Value::as_array)?;
        let is_true = all.iter().find(|one| one["type"] == condition && one["status"] == "True")?;
        text(is_true, "/lastTransitionTime").parse().ok()
    };
    let on = text(whole, "/spec/nodeName");
    let scheduled = became("PodScheduled").map(|at| Moment::new(at, format!("scheduled to {on}"), ""));
    let ready = became("Ready").map(|at| {
        let away = before.and_then(|before| away_from(&before.history)).map(|from| span(since(from, at)));
        let away = away.map_or(String::new(), |away| format!("{} was away for {away}", pod.key.name));
        Moment::new(at, format!("Ready on {on}"), away)
    });
    scheduled.into_iter().chain(ready).collect()
}

/// Since when the one before did not serve, as far as that was said.
fn away_from(history: &[Moment]) -> Option<Timestamp> {
    let ends = |one: &&Moment| {
        ENDS.iter().any(|reason| one.what == *reason)
            || ["held: ", "last heartbeat of ", REQUESTED].iter().any(|word| one.what.starts_with(word))
    };
    history.iter().find(ends).map(|one| one.at)
}
