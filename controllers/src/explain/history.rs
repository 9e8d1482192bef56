//! What happened, in order: stamps of objects, and what was said.

use jiff::Timestamp;
use pod_safety_shared::cache::Lookup;
use pod_safety_shared::model::{Fence, Node, Pod, Readiness};

use super::answer::{Moment, moment, span};
use super::pod::asked_at;
use super::scene::{Scene, object, pod_object};

/// So many Events of one object are told: a person reads the last ones.
const EVENTS: usize = 8;

/// Such Events say what every pod goes through.
const USUAL: [&str; 7] =
    ["Scheduled", "Pulled", "Pulling", "Created", "Started", "SuccessfulCreate", "NodeHasSufficientMemory"];

fn told(at: Option<Timestamp>, what: impl Into<String>, detail: impl Into<String>) -> Option<Moment> {
    Some(Moment { at: at?, what: what.into(), detail: detail.into() })
}

/// What happened to a pod and to its node.
pub(super) fn of_pod(pod: &Pod, scene: &Scene<'_>) -> Vec<Moment> {
    let mut moments = Vec::new();
    if let Some(Lookup::Known(node)) = pod.node.as_deref().map(|name| scene.view.node(name))
        && node.readiness != Readiness::Ready
    {
        moments.extend(silence(node, scene));
    }
    let target = pod.disruption_target.and_then(|target| moment(target.since));
    moments.extend(told(target, "somebody was about to end it", "condition DisruptionTarget"));
    if let Some(deletion) = pod.deletion {
        let grace = deletion.grace.unwrap_or(0);
        let detail = if grace > 0 { format!("grace {grace}s") } else { String::new() };
        moments.extend(told(asked_at(deletion), "asked to end", detail));
        let ended = moment(deletion.at).filter(|at| *at <= scene.wall && grace > 0);
        moments.extend(told(ended, "grace ended", "its kubelet did not confirm"));
    }
    if let Some(node) = &pod.node {
        for fence in scene.view.fences_of(node) {
            moments.extend(fenced(fence));
        }
    }
    moments.extend(said(&pod_object(pod), scene));
    moments.sort_by_key(|moment| moment.at);
    moments
}

/// What happened to a node.
pub(super) fn of_node(node: &Node, scene: &Scene<'_>) -> Vec<Moment> {
    let mut moments = Vec::new();
    if node.readiness == Readiness::Ready {
        moments.extend(told(node.ready_since.and_then(moment), "Ready", ""));
    } else {
        moments.extend(silence(node, scene));
    }
    for fence in scene.view.fences_of(&node.name) {
        moments.extend(fenced(fence));
    }
    moments.extend(said(&object("node", "", &node.name), scene));
    moments.sort_by_key(|moment| moment.at);
    moments
}

/// When it fell silent, when that was noticed, and when its pods were given up.
fn silence(node: &Node, scene: &Scene<'_>) -> Vec<Moment> {
    let beat = scene.last_beat(node);
    let lost = node.ready_since.and_then(moment);
    let after =
        lost.zip(beat).and_then(|(lost, beat)| std::time::Duration::try_from(lost.duration_since(beat)).ok());
    let after = after.map_or(String::new(), |after| format!("{} after its last heartbeat", span(after)));
    let word = match node.readiness {
        Readiness::Unknown => "counts as lost",
        Readiness::NotReady | Readiness::Missing => "not Ready, by its own word",
        Readiness::Ready => "Ready",
    };
    let mut moments: Vec<Moment> =
        told(beat, format!("last heartbeat of {}", node.name), "").into_iter().collect();
    moments.extend(told(lost, format!("{} {word}", node.name), after));
    for taint in &node.no_execute {
        moments.extend(told(
            taint.time_added.and_then(moment),
            format!("{} gets a taint", node.name),
            taint.to_string(),
        ));
    }
    moments
}

/// How an incident went.
pub(super) fn fenced(fence: &Fence) -> Vec<Moment> {
    let mut moments = Vec::new();
    for attempt in &fence.status.attempts {
        let devices: Vec<String> = attempt.devices.iter().map(ToString::to_string).collect();
        let begun = attempt.at.parse().ok();
        moments.extend(told(
            begun,
            format!("switch {} {}", fence.spec.node.name, attempt.act),
            format!("with {}", devices.join(" and ")),
        ));
        let Some(verified) = &attempt.verified else { continue };
        let looked = verified.samples.iter().filter_map(|sample| sample.at.parse().ok()).max();
        let detail = if verified.message.is_empty() { String::new() } else { verified.message.clone() };
        moments.extend(told(looked, format!("its power is {}", verified.power), detail));
    }
    for condition in fence.status.conditions.iter().filter(|one| one.status == "True") {
        let at = condition.last_transition_time.parse().ok();
        moments.extend(told(at, format!("NodeFence {}", condition.r#type), condition.message.clone()));
    }
    moments
}

/// The last Events of an object, each once.
pub(super) fn said(object: &str, scene: &Scene<'_>) -> Vec<Moment> {
    let said = scene.said_of(object);
    let mut moments: Vec<Moment> = Vec::new();
    for one in said.iter().rev().filter(|one| !USUAL.contains(&one.reason.as_str())) {
        if moments.len() == EVENTS {
            break;
        }
        let times = if one.count > 1 { format!("{} times, {}", one.count, one.by) } else { one.by.clone() };
        let moment =
            Moment { at: one.at, what: one.reason.clone(), detail: format!("{} ({times})", one.message) };
        if !moments.iter().any(|other| (&other.what, &other.detail) == (&moment.what, &moment.detail)) {
            moments.push(moment);
        }
    }
    moments
}
