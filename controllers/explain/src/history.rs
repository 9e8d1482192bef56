//! What happened, in order: timestamps of objects, and Events.

use std::collections::BTreeMap;

use jiff::Timestamp;
use pod_safety_shared::api::{FenceEvidenceKind, Incarnation};
use pod_safety_shared::cache::Lookup;
use pod_safety_shared::controller_loop::FORCE_DELETE_HELD;
use pod_safety_shared::model::{Deletion, FenceEvidenceObject, Node, NodeFenceObject, Pod, Readiness};

use super::answer::{Moment, Predecessors, format_duration, timestamp_from};
use super::context::{EventRecord, ExplainContext, object_ref, pod_ref};

/// How many Events of one object are listed, the last ones.
const MAX_EVENTS: usize = 8;

/// The prefix of an entry that a pod is held.
pub(super) const HELD: &str = "held: ";

/// How many pods are named that one node holds.
const HELD_SHOWN: usize = 3;

/// Events that repeat a NodeFence, its evidence or the taints of its node.
const REPEATED_BY_INCIDENTS: [&str; 3] = ["FenceAttempted", "Fenced", "OutOfServiceTaintAdded"];

/// The entry that a pod was deleted gracefully.
pub(super) const REQUESTED: &str = "deletion requested";

/// Events that every pod has.
const ROUTINE_REASONS: [&str; 7] =
    ["Scheduled", "Pulled", "Pulling", "Created", "Started", "SuccessfulCreate", "NodeHasSufficientMemory"];

fn moment_at(at: Option<Timestamp>, what: impl Into<String>, detail: impl Into<String>) -> Option<Moment> {
    Some(Moment::new(at?, what, detail))
}

/// What happened to a pod and to its node.
pub(super) fn pod_history(pod: &Pod, ctx: &ExplainContext<'_>) -> Vec<Moment> {
    let mut moments = Vec::new();
    let node = match pod.node.as_deref().map(|name| ctx.view.node(name)) {
        Some(Lookup::Known(node)) => Some(node),
        Some(Lookup::Unknown(_) | Lookup::Absent) | None => None,
    };
    if let Some(node) = node.filter(|node| node.readiness != Readiness::Ready) {
        moments.extend(unreachable_moments(node, ctx));
    }
    if let Some(target) = pod.disruption_target {
        let colon = if target.reason.is_empty() { "" } else { ": " };
        let what = format!("DisruptionTarget{colon}{}", target.reason);
        moments.extend(moment_at(timestamp_from(target.since), what, ""));
    }
    moments.extend(deletion_moments(pod, ctx));
    if let Some(name) = &pod.node {
        // Before the pod was bound, that happened to other pods.
        let bound = timestamp_from(pod.bound_at);
        let of_node = fencing_moments(name, ctx, |of| node.is_none_or(|node| of.uid == node.uid.to_string()));
        moments.extend(of_node.into_iter().filter(|moment| bound.is_none_or(|bound| moment.at >= bound)));
    }
    let events = ctx.events_of(&pod_ref(pod));
    moments.extend(moments_from_events(&events.into_iter().filter(|one| one.is_about(pod)).collect::<Vec<_>>()));
    moments.sort_by_key(|moment| moment.at);
    moments
}

/// When its deletion was requested, and when its grace period ended.
pub(super) fn deletion_moments(pod: &Pod, ctx: &ExplainContext<'_>) -> Vec<Moment> {
    let mut moments = Vec::new();
    if let Some(deletion) = pod.deletion {
        let grace = deletion.grace.unwrap_or(0);
        let detail = if grace > 0 { format!("grace {grace}s") } else { String::new() };
        moments.extend(moment_at(deletion_requested_at(deletion), REQUESTED, detail));
        let ended = timestamp_from(deletion.at).filter(|at| *at <= ctx.wall && grace > 0);
        moments.extend(moment_at(ended, "grace period ended", "its kubelet did not confirm"));
    }
    moments
}

/// What happened to a node in its present boot, and what happened to earlier boots and earlier Nodes of its name.
pub(super) fn node_history(node: &Node, ctx: &ExplainContext<'_>) -> (Vec<Moment>, Option<Predecessors>) {
    let events = new_events(&object_ref("node", "", &node.name), ctx);
    let (events, earlier_events): (Vec<_>, Vec<_>) = events.into_iter().partition(|one| one.is_about_node(node));
    let mut moments = readiness_moments(node, ctx);
    moments.extend(fencing_moments(&node.name, ctx, |of| !is_earlier(of, node)));
    moments.extend(moments_from_events(&events));
    moments.sort_by_key(|moment| moment.at);
    let mut earlier = fencing_moments(&node.name, ctx, |of| is_earlier(of, node));
    earlier.extend(moments_from_events(&earlier_events));
    earlier.sort_by_key(|moment| moment.at);
    let until = earlier.last().map(|last| last.at);
    (moments, until.map(|until| Predecessors { until, history: earlier }))
}

/// The timestamps of the node, and what objects record about it and about earlier boots and Nodes of its name.
pub(super) fn node_moments(node: &Node, ctx: &ExplainContext<'_>) -> Vec<Moment> {
    let mut moments = readiness_moments(node, ctx);
    moments.extend(fencing_moments(&node.name, ctx, |_| true));
    moments
}

fn readiness_moments(node: &Node, ctx: &ExplainContext<'_>) -> Vec<Moment> {
    if node.readiness != Readiness::Ready {
        return unreachable_moments(node, ctx);
    }
    moment_at(node.ready_since.and_then(timestamp_from), "Ready", "").into_iter().collect()
}

/// What incidents and evidence record about those incarnations of a node that `keeps` accepts.
fn fencing_moments(name: &str, ctx: &ExplainContext<'_>, keeps: impl Fn(&Incarnation) -> bool) -> Vec<Moment> {
    let fences = ctx.view.node_fences_of(name).filter(|fence| keeps(&fence.spec.node));
    let evidence = ctx.view.fence_evidence_of(name).filter(|proof| keeps(&proof.spec.node));
    fences.flat_map(incident_moments).chain(evidence.flat_map(evidence_moments)).collect()
}

/// Whether this is another Node of the same name, or another boot of this one.
fn is_earlier(of: &Incarnation, node: &Node) -> bool {
    of.uid != node.uid.to_string() || node.boot().is_known_different(of.boot())
}

/// When evidence was written that a node is off, and when it was withdrawn.
pub(super) fn evidence_moments(proof: &FenceEvidenceObject) -> Vec<Moment> {
    let name = &proof.spec.node.name;
    let detail = match (&proof.spec.reason, proof.spec.kind) {
        (Some(reason), FenceEvidenceKind::OperatorConfirmed) => format!("{}: {reason}", proof.spec.by),
        (_, kind) => format!("{}, found by {}", kind.name(), proof.spec.by),
    };
    let mut moments: Vec<Moment> =
        moment_at(timestamp_from(proof.created), format!("evidence that {name} is off"), detail).into_iter().collect();
    if let Some(invalid) = &proof.status.invalidated {
        let title = format!("evidence that {name} is off was invalidated");
        moments.extend(moment_at(invalid.at.parse().ok(), title, invalid.reason.clone()));
    }
    moments
}

/// When the node's heartbeats ended, when that was noticed, and when its pods began to be evicted.
pub(super) fn unreachable_moments(node: &Node, ctx: &ExplainContext<'_>) -> Vec<Moment> {
    let heartbeat = ctx.view.last_report_timestamp(node);
    let lost = node.ready_since.and_then(timestamp_from);
    // Both are shown without fractions of a second.
    let after = lost.zip(heartbeat).and_then(|(lost, heartbeat)| {
        u64::try_from(lost.as_second().saturating_sub(heartbeat.as_second())).ok().map(std::time::Duration::from_secs)
    });
    let after = after.map_or(String::new(), |after| format!("{} after its last heartbeat", format_duration(after)));
    let state = match node.readiness {
        Readiness::Unknown => "counts as lost",
        Readiness::NotReady | Readiness::Missing => "reports that it is not ready",
        Readiness::Ready => "Ready",
    };
    let mut moments: Vec<Moment> =
        moment_at(heartbeat, format!("last heartbeat of {}", node.name), "").into_iter().collect();
    moments.extend(moment_at(lost, format!("{} {state}", node.name), after));
    for taint in &node.no_execute {
        moments.extend(moment_at(
            taint.time_added.and_then(timestamp_from),
            format!("{} is tainted", node.name),
            taint.to_string(),
        ));
    }
    moments
}

/// The history of an incident. The entries of a dry run are marked, because nothing was done.
pub(super) fn incident_moments(fence: &NodeFenceObject) -> Vec<Moment> {
    let mut moments = attempt_moments(fence);
    if fence.spec.dry_run {
        moments.iter_mut().for_each(|moment| moment.what.insert_str(0, "dry run: "));
    }
    moments
}

fn attempt_moments(fence: &NodeFenceObject) -> Vec<Moment> {
    let mut moments = Vec::new();
    for attempt in &fence.status.attempts {
        let devices: Vec<String> = attempt.devices.iter().map(ToString::to_string).collect();
        moments.extend(moment_at(
            attempt.started_at(),
            format!("switch {} {}", fence.spec.node.name, attempt.act),
            format!("with {}", devices.join(" and ")),
        ));
        let Some(verified) = &attempt.verified else { continue };
        let detail = if verified.message.is_empty() { String::new() } else { verified.message.clone() };
        moments.extend(moment_at(attempt.last_checked_at(), format!("its power is {}", verified.power), detail));
    }
    for condition in fence.status.conditions.iter().filter(|one| one.status == "True") {
        moments.extend(moment_at(
            condition.last_transition(),
            format!("NodeFence {}", condition.r#type),
            condition.message.clone(),
        ));
    }
    moments
}

/// The last Events of an object, each once, without those that repeat its incidents and evidence.
pub(super) fn event_moments(object: &str, ctx: &ExplainContext<'_>) -> Vec<Moment> {
    moments_from_events(&new_events(object, ctx))
}

/// The Events of an object without those that repeat its incidents and evidence.
fn new_events<'c>(object: &str, ctx: &'c ExplainContext<'_>) -> Vec<&'c EventRecord> {
    let has_incidents = object.strip_prefix("node/").is_some_and(|node| ctx.view.node_fences_of(node).next().is_some());
    let is_new = |event: &&EventRecord| !has_incidents || !REPEATED_BY_INCIDENTS.contains(&event.reason.as_str());
    ctx.events_of(object).into_iter().filter(is_new).collect()
}

/// The last of these Events, each once.
pub(super) fn moments_from_events(events: &[&EventRecord]) -> Vec<Moment> {
    let mut moments: Vec<Moment> = Vec::new();
    for event in events.iter().rev().filter(|one| !ROUTINE_REASONS.contains(&one.reason.as_str())) {
        if moments.len() == MAX_EVENTS {
            break;
        }
        let moment = moment_from_event(event);
        if !moments.iter().any(|other| (&other.what, &other.detail) == (&moment.what, &moment.detail)) {
            moments.push(moment);
        }
    }
    moments
}

/// The entry of one Event. For a held pod it has only the reason: the verdict has the sentence.
fn moment_from_event(event: &EventRecord) -> Moment {
    if let Some((code, node)) = parse_hold(event) {
        let node = node.map_or(String::new(), |node| format!("node {node}"));
        return Moment::new(event.first, format!("{HELD}{code}"), node);
    }
    let times = if event.count > 1 { format!("{} times, {}", event.count, event.by) } else { event.by.clone() };
    Moment::new(event.at, event.reason.clone(), format!("{} ({times})", event.message))
}

/// Why a pod is held, in CamelCase, and because of which node.
pub(super) fn parse_hold(event: &EventRecord) -> Option<(&str, Option<&str>)> {
    let (code, why) = event.message.split_once(": ").filter(|_| event.reason == FORCE_DELETE_HELD)?;
    let mut words = why.split(' ').skip_while(|word| !word.eq_ignore_ascii_case("node")).skip(1);
    Some((code, words.next().map(|name| name.trim_end_matches([',', '.', ':']))))
}

/// Why pods are held, each reason once for each node.
pub(super) fn holds_by_node(ctx: &ExplainContext<'_>) -> Vec<Moment> {
    let mut all: BTreeMap<(&str, &str), Vec<&EventRecord>> = BTreeMap::new();
    for event in ctx.events {
        if let Some((code, Some(node))) = parse_hold(event) {
            all.entry((code, node)).or_default().push(event);
        }
    }
    let row = |((code, node), events): ((&str, &str), Vec<&EventRecord>)| {
        let mut pods: Vec<&str> = events.iter().filter_map(|one| one.object.strip_prefix("pod/")).collect();
        pods.sort_unstable();
        pods.dedup();
        let more = pods.len().saturating_sub(HELD_SHOWN);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        pods.truncate(HELD_SHOWN);
        let first = events.iter().map(|one| one.first).min()?;
        let detail = format!("{}{more}", pods.join(", "));
        Some(Moment::new(first, format!("{HELD}{code}"), detail).about_object(&object_ref("node", "", node)))
    };
    all.into_iter().filter_map(row).collect()
}

/// When its deletion was requested, calculated: the API object has the time when the grace period ends.
pub(super) fn deletion_requested_at(deletion: Deletion) -> Option<Timestamp> {
    timestamp_from(deletion.at.saturating_sub(deletion.grace.unwrap_or(0)))
}
