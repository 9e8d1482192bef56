//! Whether a node is lost, and whether that is a reason to fence it. Pure.

use std::sync::Arc;
use std::time::Duration;

use crate::holds::{Decision, Hold};
use pod_safety_shared::api::{
    FencePolicySpec, FenceTrigger, Incarnation, NodeFenceSpec, Phase, PolicyMode, Trigger, TriggerCondition,
    Unhealthy, When,
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

/// How well a node is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NodeHealth {
    /// Its kubelet says that it is well, or said so last.
    Healthy,
    /// It counts as lost at this moment, if nothing is heard.
    Suspected(Mono),
    /// It counts as lost, for this reason with its numbers.
    Lost(String),
    /// It reports, and counts as unhealthy: the same, and the condition that it shows.
    Unhealthy(String, Option<TriggerCondition>),
}

/// How well a node is by the measures of a policy.
pub(super) fn node_health(node: &Node, view: &View<'_>, now: Mono, measures: &Unhealthy) -> NodeHealth {
    let kubelet = kubelet_health(node, view, now, measures);
    match (kubelet, reported_health(node, now, measures)) {
        (NodeHealth::Lost(why), _) => NodeHealth::Lost(why),
        (_, ReportedHealth::Unhealthy(why, shown)) => NodeHealth::Unhealthy(why, shown),
        (NodeHealth::Suspected(one), ReportedHealth::Suspected(other)) => {
            NodeHealth::Suspected(one.min(other))
        }
        (NodeHealth::Healthy, ReportedHealth::Suspected(due)) => NodeHealth::Suspected(due),
        (reports, _) => reports,
    }
}

/// Whether its kubelet reports. That it is silent is not enough: whoever watches over readiness must have found the
/// same, by live reads.
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

/// Whether a pod waits for its node. A kubelet renews its Lease more often than that lasts, so it may have seen pods that came for so
/// long after its last renewal. A later pod runs nowhere: it does not decide that the machine is powered off, for a tenant creates it.
fn needs_fencing(pod: &Pod, node: &Node, policy: &FencePolicySpec, view: &View<'_>) -> bool {
    pod.placed_at <= view.last_report(node) + lease_duration(None) && is_blocked_by_node(pod, policy, view)
}

/// Whether a pod is deleted, and may be replaced only when it has ended.
fn is_blocked_by_node(pod: &Pod, policy: &FencePolicySpec, view: &View<'_>) -> bool {
    let named = |kind: &String| pod.controller.as_ref().is_some_and(|controller| *controller.kind == **kind);
    pod.deletion.is_some()
        && !pod.waits_for_finalizers()
        && (pod.keeps_identity() || policy.needed_by_kinds.iter().any(named) || holds_a_volume(pod, view))
}

/// Whether one of its volumes is its node's alone, so that its replacement on another node waits for it. Claims are known
/// where volumes are guarded.
fn holds_a_volume(pod: &Pod, view: &View<'_>) -> bool {
    pod.claims.iter().any(|claim| match view.claim(&pod.key.namespace, claim) {
        Lookup::Known(claim) => view.volume_of(claim).is_some_and(|volume| {
            let held = view.volume_lease(volume).map(|lease| &lease.holder);
            matches!(held, Some(LeaseHolder::By(holder)) if pod.node.as_ref() == Some(&holder.node))
        }),
        Lookup::Absent | Lookup::Unknown(_) => false,
    })
}

/// Decides about a node of whose life there is no live incident; `over`: the one that is over.
pub(super) fn detect(
    node: &Node,
    finished: Option<&NodeFenceObject>,
    view: &View<'_>,
    now: Mono,
    config: &Config,
) -> Decision {
    let Some(life) = &node.details else { return Decision::default() };
    let hold = |hold: Hold| Decision::hold(incident_subject(node), hold);
    let name = || Arc::clone(&node.name);
    let Some(policy) = view.policy_of(&life.labels) else { return Decision::default() };
    let (why, kind, condition) = match node_health(node, view, now, &policy.spec.unhealthy) {
        NodeHealth::Healthy => return Decision::default(),
        NodeHealth::Suspected(until) => return Decision::default().and_requeue_at(until),
        NodeHealth::Lost(why) => (why, Trigger::Detected, None),
        NodeHealth::Unhealthy(why, shown) => (why, Trigger::Unhealthy, shown),
    };
    match policy.spec.when {
        When::Manual => return Decision::default(),
        When::Needed if !view.pods_on(&node.name).any(|pod| needs_fencing(pod, node, &policy.spec, view)) => {
            return hold(Hold::FenceNotNeeded { node: name(), why });
        }
        When::Needed | When::Always => {}
    }
    // One that cannot be read might be the policy of this node, or its incident.
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

/// Whether an incident that began for `before` would be checked for another reason than this one.
fn is_different_trigger(before: &FenceTrigger, now: &FenceTrigger) -> bool {
    (before.kind == Trigger::Unhealthy || now.kind == Trigger::Unhealthy)
        && (before.kind, &before.condition) != (now.kind, &now.condition)
}

/// The trigger of an incident cannot be changed, and two of one life would have one name: the one that was called off
/// goes first. Nothing of it is under way.
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

/// An incident of this life of a node.
pub(super) fn open_incident(
    incarnation: Incarnation,
    policy: &FencePolicyObject,
    trigger: FenceTrigger,
) -> Decision {
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

/// The incident of this life was called off because the node was heard again, and it is lost again: the name is the
/// same, so there cannot be another one.
pub(super) fn reopen_incident(fence: &NodeFenceObject, why: &str) -> Decision {
    let mut status = fence.status.clone();
    (status.phase, status.level, status.rounds) = (Phase::Pending, 0, 0);
    status.drain = None;
    status.gates.clear();
    status.message = format!("lost again: {why}");
    let node: Arc<str> = fence.spec.node.name.as_str().into();
    fence_step(&node, Step::Write(step_target(fence, status)))
}
