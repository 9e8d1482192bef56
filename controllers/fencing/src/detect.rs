//! Whether a node is lost, and whether that is a reason to fence it. Pure.

use std::sync::Arc;
use std::time::Duration;

use crate::holds::{Decision, Hold};
use pod_safety_shared::api::{
    FencePolicySpec, FenceTrigger, Incarnation, NodeFenceSpec, Phase, PolicyMode, Trigger, TriggerCondition, Unhealthy,
    When,
};
use pod_safety_shared::authority::{FinishedObject, Intent, Step, Update};
use pod_safety_shared::cache::{Lookup, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::controller_loop::Mode;
use pod_safety_shared::model::{
    FencePolicyObject, Kind, LeaseHolder, Node, NodeFenceObject, Pod, Readiness, lease_duration,
};

use super::config::Config;
use super::incident::{check_readable, fence_step, incident_subject, step_target};
use super::unhealthy::{ReportedHealth, reported_health};

/// The health of a node by the measures of a policy.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NodeHealth {
    /// Its kubelet reports that it is Ready, or did so last.
    Healthy,
    /// It counts as lost at this moment, if its kubelet does not report before.
    Suspected(Mono),
    /// It counts as lost; the reason, with its numbers.
    Lost(String),
    /// It reports, and counts as unhealthy; the reason, and the condition that triggered it.
    Unhealthy(String, Option<TriggerCondition>),
}

/// The health of a node by the measures of a policy.
pub(super) fn node_health(node: &Node, view: &View<'_>, now: Mono, measures: &Unhealthy) -> NodeHealth {
    let kubelet = kubelet_health(node, view, now, measures);
    match (kubelet, reported_health(node, now, measures)) {
        (NodeHealth::Lost(why), _) => NodeHealth::Lost(why),
        (_, ReportedHealth::Unhealthy(why, shown)) => NodeHealth::Unhealthy(why, shown),
        (NodeHealth::Suspected(a), ReportedHealth::Suspected(b)) => NodeHealth::Suspected(a.min(b)),
        (NodeHealth::Healthy, ReportedHealth::Suspected(due)) => NodeHealth::Suspected(due),
        (reports, _) => reports,
    }
}

/// The health of the kubelet. A Lease that is not renewed is not enough: the node must also not be
/// Ready any more, which node-lifecycle or, in mode `Guard`, kube-controller-manager writes.
fn kubelet_health(node: &Node, view: &View<'_>, now: Mono, measures: &Unhealthy) -> NodeHealth {
    if node.readiness == Readiness::Ready {
        return NodeHealth::Healthy;
    }
    let lost_at = |since: Mono, seconds: u32| since + Duration::from_secs(seconds.into());
    let last_report = view.last_report(node);
    let unreachable_at = lost_at(last_report, measures.silent_seconds);
    if unreachable_at <= now {
        let (unreachable_for, measure) = (now.since(last_report).as_secs(), measures.silent_seconds);
        return NodeHealth::Lost(format!(
            "its kubelet has not reported for {unreachable_for} s (unhealthy.silentSeconds: {measure})"
        ));
    }
    let not_ready_limit = measures.not_ready_seconds.filter(|_| node.readiness == Readiness::NotReady);
    let Some(measure) = not_ready_limit else { return NodeHealth::Suspected(unreachable_at) };
    let not_ready_at = lost_at(node.readiness_since, measure);
    if now < not_ready_at {
        return NodeHealth::Suspected(unreachable_at.min(not_ready_at));
    }
    let seconds = now.since(node.readiness_since).as_secs();
    NodeHealth::Lost(format!(
        "its kubelet has reported for {seconds} s that the node is not ready (unhealthy.notReadySeconds: {measure})"
    ))
}

/// Whether a pod is blocked by its node. A pod counts if it was bound at most one Lease duration after the kubelet's
/// last report: the kubelet renews its Lease more often than that, so it may have seen the pod. A later pod runs
/// nowhere, and must not cause a power-off, because any tenant can create one.
fn needs_fencing(pod: &Pod, node: &Node, policy: &FencePolicySpec, view: &View<'_>) -> bool {
    pod.placed_at <= view.last_report(node) + lease_duration(None) && is_blocked_by_node(pod, policy, view)
}

/// Whether a pod is being deleted, and can be replaced only after it has terminated.
fn is_blocked_by_node(pod: &Pod, policy: &FencePolicySpec, view: &View<'_>) -> bool {
    let named = |kind: &String| pod.controller.as_ref().is_some_and(|controller| *controller.kind == **kind);
    pod.deletion.is_some()
        && !pod.waits_for_finalizers()
        && (pod.keeps_identity() || policy.needed_by_kinds.iter().any(named) || holds_a_volume(pod, view))
}

/// Whether the node holds one of the pod's volumes exclusively, so that a replacement on another node waits for it.
/// Claims are cached where volumes are guarded.
fn holds_a_volume(pod: &Pod, view: &View<'_>) -> bool {
    pod.claims.iter().any(|claim| match view.claim(&pod.key.namespace, claim) {
        Lookup::Known(claim) => view.volume_of(claim).is_some_and(|volume| {
            let held = view.volume_lease(volume).map(|lease| &lease.holder);
            matches!(held, Some(LeaseHolder::By(holder)) if pod.node.as_ref() == Some(&holder.node))
        }),
        Lookup::Absent | Lookup::Unknown(_) => false,
    })
}

/// Decides about a node that has no open incident for its incarnation; `finished`: the incident of this incarnation
/// that is over.
pub(super) fn detect(
    node: &Node,
    finished: Option<&NodeFenceObject>,
    view: &View<'_>,
    now: Mono,
    config: &Config,
) -> Decision {
    let Some(details) = &node.details else { return Decision::default() };
    let hold = |hold: Hold| Decision::hold(incident_subject(node), hold);
    let name = || Arc::clone(&node.name);
    let Some(policy) = view.policy_of(&details.labels) else { return Decision::default() };
    let (why, kind, condition) = match node_health(node, view, now, &policy.spec.unhealthy) {
        NodeHealth::Healthy => return Decision::default(),
        NodeHealth::Suspected(until) => return Decision::default().and_requeue_at(until),
        NodeHealth::Lost(why) => (why, Trigger::Detected, None),
        NodeHealth::Unhealthy(why, shown) => (why, Trigger::Unhealthy, shown),
    };
    // A person cancelled the incident: it does not begin again, whatever pod waits.
    let is_cancelled = finished.is_some_and(|fence| fence.spec.cancelled && !fence.deleting);
    match policy.spec.when {
        When::Manual => return Decision::default(),
        When::Needed | When::Always if is_cancelled => {}
        When::Needed if !view.pods_on(&node.name).any(|pod| needs_fencing(pod, node, &policy.spec, view)) => {
            return hold(Hold::FenceNotNeeded { node: name(), why });
        }
        When::Needed | When::Always => {}
    }
    // An object that cannot be decoded might be the policy of this node, or its incident.
    if let Some(unread) = check_readable(view, &[Kind::FencePolicies, Kind::NodeFences]) {
        return hold(unread);
    }
    let Some(incarnation) = node.incarnation() else {
        return hold(Hold::NoBootId { node: name() });
    };
    if config.mode == Mode::Observe {
        return hold(Hold::WouldFence { node: name(), why, policy: Arc::clone(&policy.name) });
    }
    let trigger = FenceTrigger { kind, reason: why.clone(), by: None, condition };
    match finished {
        None => open_incident(incarnation, policy, trigger),
        Some(fence) if fence.deleting => Decision::default(),
        Some(fence) if may_reopen(fence) && is_different_trigger(&fence.spec.trigger, &trigger) => {
            delete_to_replace(fence)
        }
        Some(fence) if may_reopen(fence) => reopen_incident(fence, &why),
        Some(fence) => {
            let (fence, phase) = (Arc::clone(&fence.name), fence.status.phase.name());
            hold(Hold::FenceOver { node: name(), fence, phase })
        }
    }
}

fn may_reopen(fence: &NodeFenceObject) -> bool {
    fence.status.phase == Phase::Cancelled && !fence.spec.cancelled
}

/// Whether an incident opened for the trigger `before` would be checked for another reason than one for `now`.
fn is_different_trigger(before: &FenceTrigger, now: &FenceTrigger) -> bool {
    (before.kind == Trigger::Unhealthy || now.kind == Trigger::Unhealthy)
        && (before.kind, &before.condition) != (now.kind, &now.condition)
}

/// The trigger of an incident is immutable, and two incidents of one incarnation would have the same name: the
/// cancelled one is deleted first. Nothing of it is in flight.
fn delete_to_replace(fence: &NodeFenceObject) -> Decision {
    let past = FinishedObject {
        kind: Kind::NodeFences,
        node: fence.spec.node.name.as_str().into(),
        name: Arc::clone(&fence.name),
        uid: fence.uid.clone(),
        rv: fence.rv,
    };
    Decision { intents: vec![Intent::Update(Update::DeleteFinished(past))], ..Decision::default() }
}

/// Opens an incident for this incarnation of a node.
pub(super) fn open_incident(incarnation: Incarnation, policy: &FencePolicyObject, trigger: FenceTrigger) -> Decision {
    let node: Arc<str> = incarnation.name.as_str().into();
    let spec = NodeFenceSpec {
        node: incarnation,
        policy: policy.name.to_string(),
        trigger,
        dry_run: policy.spec.mode == PolicyMode::DryRun,
        cancelled: false,
        keep_off: false,
    };
    fence_step(&node, Step::Open(Box::new(spec)))
}

/// Reopens the incident of this incarnation: it was cancelled because the node reported again, and the node is lost
/// again. The name would be the same, so a second incident cannot be created.
pub(super) fn reopen_incident(fence: &NodeFenceObject, why: &str) -> Decision {
    let mut status = fence.status.clone();
    (status.phase, status.level, status.rounds) = (Phase::Pending, 0, 0);
    status.drain = None;
    status.gates.clear();
    // The node has reported since: that an order met the machine on shows nothing about an off that is read later.
    status.attempts.iter_mut().for_each(|attempt| attempt.met.clear());
    status.message = format!("lost again: {why}");
    let node: Arc<str> = fence.spec.node.name.as_str().into();
    fence_step(&node, Step::Write(step_target(fence, status)))
}
