//! What happened, in order: stamps of objects, and what was said.

use std::collections::BTreeMap;

use jiff::Timestamp;
use pod_safety_shared::api::KindOfEvidence;
use pod_safety_shared::cache::Lookup;
use pod_safety_shared::drive::FORCE_DELETE_HELD;
use pod_safety_shared::model::{Deletion, Fence, Node, Pod, Proof, Readiness};

use super::answer::{Moment, moment, span};
use super::scene::{Said, Scene, object, pod_object};

/// So many Events of one object are told: a person reads the last ones.
const EVENTS: usize = 8;

/// That a pod is held, before the reason.
pub(super) const HELD: &str = "held: ";

/// So many pods are named that one node holds.
const HELD_SHOWN: usize = 3;

/// Such Events repeat what a NodeFence, its evidence and the taints of its node say.
const TOLD_BY_INCIDENTS: [&str; 3] = ["FenceAttempted", "Fenced", "OutOfServiceTaintAdded"];

/// That a pod was deleted gracefully.
pub(super) const REQUESTED: &str = "deletion requested";

/// Such Events say what every pod goes through.
const USUAL: [&str; 7] =
    ["Scheduled", "Pulled", "Pulling", "Created", "Started", "SuccessfulCreate", "NodeHasSufficientMemory"];

fn told(at: Option<Timestamp>, what: impl Into<String>, detail: impl Into<String>) -> Option<Moment> {
    Some(Moment::new(at?, what, detail))
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
    moments.extend(told(target, "an eviction or preemption began", "condition DisruptionTarget"));
    moments.extend(ending(pod, scene));
    if let Some(node) = &pod.node {
        for fence in scene.view.fences_of(node) {
            moments.extend(fenced(fence));
        }
        moments.extend(scene.view.proofs_of(node).flat_map(proved));
    }
    let said = scene.said_of(&pod_object(pod));
    moments.extend(told_of(&said.into_iter().filter(|one| one.is_about(pod)).collect::<Vec<_>>()));
    moments.sort_by_key(|moment| moment.at);
    moments
}

/// That it was asked to end, and that its time for it is over.
pub(super) fn ending(pod: &Pod, scene: &Scene<'_>) -> Vec<Moment> {
    let mut moments = Vec::new();
    if let Some(deletion) = pod.deletion {
        let grace = deletion.grace.unwrap_or(0);
        let detail = if grace > 0 { format!("grace {grace}s") } else { String::new() };
        moments.extend(told(asked_at(deletion), REQUESTED, detail));
        let ended = moment(deletion.at).filter(|at| *at <= scene.wall && grace > 0);
        moments.extend(told(ended, "grace period ended", "its kubelet did not confirm"));
    }
    moments
}

/// What happened to a node.
pub(super) fn of_node(node: &Node, scene: &Scene<'_>) -> Vec<Moment> {
    let mut moments = stamps(node, scene);
    moments.extend(said(&object("node", "", &node.name), scene));
    moments.sort_by_key(|moment| moment.at);
    moments
}

/// What a node's own stamps say, and what is written down about it.
pub(super) fn stamps(node: &Node, scene: &Scene<'_>) -> Vec<Moment> {
    let mut moments = Vec::new();
    if node.readiness == Readiness::Ready {
        moments.extend(told(node.ready_since.and_then(moment), "Ready", ""));
    } else {
        moments.extend(silence(node, scene));
    }
    for fence in scene.view.fences_of(&node.name) {
        moments.extend(fenced(fence));
    }
    moments.extend(scene.view.proofs_of(&node.name).flat_map(proved));
    moments
}

/// Evidence that a node is off, and that it is no longer believed.
pub(super) fn proved(proof: &Proof) -> Vec<Moment> {
    let name = &proof.spec.node.name;
    let detail = match (&proof.spec.reason, proof.spec.kind) {
        (Some(reason), KindOfEvidence::Asserted) => format!("{}: {reason}", proof.spec.by),
        (_, kind) => format!("{kind:?}, found by {}", proof.spec.by),
    };
    let mut moments: Vec<Moment> =
        told(moment(proof.created), format!("evidence that {name} is off"), detail).into_iter().collect();
    if let Some(invalid) = &proof.status.invalidated {
        let word = format!("evidence that {name} is off was invalidated");
        moments.extend(told(invalid.at.parse().ok(), word, invalid.reason.clone()));
    }
    moments
}

/// When it fell silent, when that was noticed, and when its pods were given up.
pub(super) fn silence(node: &Node, scene: &Scene<'_>) -> Vec<Moment> {
    let beat = scene.view.last_beat(node);
    let lost = node.ready_since.and_then(moment);
    let after =
        lost.zip(beat).and_then(|(lost, beat)| std::time::Duration::try_from(lost.duration_since(beat)).ok());
    let after = after.map_or(String::new(), |after| format!("{} after its last heartbeat", span(after)));
    let word = match node.readiness {
        Readiness::Unknown => "counts as lost",
        Readiness::NotReady | Readiness::Missing => "reports that it is not ready",
        Readiness::Ready => "Ready",
    };
    let mut moments: Vec<Moment> =
        told(beat, format!("last heartbeat of {}", node.name), "").into_iter().collect();
    moments.extend(told(lost, format!("{} {word}", node.name), after));
    for taint in &node.no_execute {
        moments.extend(told(
            taint.time_added.and_then(moment),
            format!("{} is tainted", node.name),
            taint.to_string(),
        ));
    }
    moments
}

/// How an incident went. What a dry run wrote is marked: nothing was done.
pub(super) fn fenced(fence: &Fence) -> Vec<Moment> {
    let mut moments = steps(fence);
    if fence.spec.dry_run {
        moments.iter_mut().for_each(|moment| moment.what.insert_str(0, "dry run: "));
    }
    moments
}

fn steps(fence: &Fence) -> Vec<Moment> {
    let mut moments = Vec::new();
    for attempt in &fence.status.attempts {
        let devices: Vec<String> = attempt.devices.iter().map(ToString::to_string).collect();
        moments.extend(told(
            attempt.begun(),
            format!("switch {} {}", fence.spec.node.name, attempt.act),
            format!("with {}", devices.join(" and ")),
        ));
        let Some(verified) = &attempt.verified else { continue };
        let detail = if verified.message.is_empty() { String::new() } else { verified.message.clone() };
        moments.extend(told(attempt.checked(), format!("its power is {}", verified.power), detail));
    }
    for condition in fence.status.conditions.iter().filter(|one| one.status == "True") {
        moments.extend(told(
            condition.since(),
            format!("NodeFence {}", condition.r#type),
            condition.message.clone(),
        ));
    }
    moments
}

/// The last Events of an object, each once. What its incidents and evidence tell is not told again.
pub(super) fn said(object: &str, scene: &Scene<'_>) -> Vec<Moment> {
    let known = object.strip_prefix("node/").is_some_and(|node| scene.view.fences_of(node).next().is_some());
    let is_new = |one: &&Said| !known || !TOLD_BY_INCIDENTS.contains(&one.reason.as_str());
    told_of(&scene.said_of(object).into_iter().filter(is_new).collect::<Vec<_>>())
}

/// The last of these Events, each once.
pub(super) fn told_of(said: &[&Said]) -> Vec<Moment> {
    let mut moments: Vec<Moment> = Vec::new();
    for one in said.iter().rev().filter(|one| !USUAL.contains(&one.reason.as_str())) {
        if moments.len() == EVENTS {
            break;
        }
        let moment = told_by(one);
        if !moments.iter().any(|other| (&other.what, &other.detail) == (&moment.what, &moment.detail)) {
            moments.push(moment);
        }
    }
    moments
}

/// What one Event says. Why a pod is held is told in two words: the verdict has the sentence.
fn told_by(one: &Said) -> Moment {
    if let Some((code, node)) = held(one) {
        let node = node.map_or(String::new(), |node| format!("node {node}"));
        return Moment::new(one.first, format!("{HELD}{code}"), node);
    }
    let times = if one.count > 1 { format!("{} times, {}", one.count, one.by) } else { one.by.clone() };
    Moment::new(one.at, one.reason.clone(), format!("{} ({times})", one.message))
}

/// Why a pod is held, in one word, and because of which node.
fn held(one: &Said) -> Option<(&str, Option<&str>)> {
    let (code, why) = one.message.split_once(": ").filter(|_| one.reason == FORCE_DELETE_HELD)?;
    let mut words = why.split(' ').skip_while(|word| !word.eq_ignore_ascii_case("node")).skip(1);
    Some((code, words.next().map(|name| name.trim_end_matches([',', '.', ':']))))
}

/// Why pods are held, each reason once for each node.
pub(super) fn held_by_node(scene: &Scene<'_>) -> Vec<Moment> {
    let mut all: BTreeMap<(&str, &str), Vec<&Said>> = BTreeMap::new();
    for one in scene.said {
        if let Some((code, Some(node))) = held(one) {
            all.entry((code, node)).or_default().push(one);
        }
    }
    let row = |((code, node), said): ((&str, &str), Vec<&Said>)| {
        let mut pods: Vec<&str> = said.iter().filter_map(|one| one.object.strip_prefix("pod/")).collect();
        pods.sort_unstable();
        pods.dedup();
        let more = pods.len().saturating_sub(HELD_SHOWN);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        pods.truncate(HELD_SHOWN);
        let first = said.iter().map(|one| one.first).min()?;
        let detail = format!("{}{more}", pods.join(", "));
        Some(Moment::new(first, format!("{HELD}{code}"), detail).to(&object("node", "", node)))
    };
    all.into_iter().filter_map(row).collect()
}

/// When its deletion was asked for: the API writes down when its grace ends.
pub(super) fn asked_at(deletion: Deletion) -> Option<Timestamp> {
    moment(deletion.at.saturating_sub(deletion.grace.unwrap_or(0)))
}
