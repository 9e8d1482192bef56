//! Whether a node is lost, and whether that is a reason to fence it. Pure.

use std::sync::Arc;
use std::time::Duration;

use crate::holds::{Decision, Hold};
use pod_safety_shared::api::{
    FencePolicySpec, FenceTrigger, Incarnation, NodeFenceSpec, Phase, PolicyMode, Shown, Trigger, Unhealthy,
    When,
};
use pod_safety_shared::authority::{Intent, Past, Step, Update};
use pod_safety_shared::cache::{Lookup, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::drive::Mode;
use pod_safety_shared::model::{Fence, Held, Kind, Node, Pod, Policy, Readiness, lease_duration};

use super::config::Config;
use super::incident::{about, take, target, unreadable};
use super::unwell::{Unwell, unwell};

/// How well a node is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// Its kubelet says that it is well, or said so last.
    Well,
    /// It counts as lost at this moment, if nothing is heard.
    Doubtful(Mono),
    /// It counts as lost, for this reason with its numbers.
    Lost(String),
    /// It reports, and counts as unhealthy: the same, and the condition that it shows.
    Sick(String, Option<Shown>),
}

/// How well a node is by the measures of a policy.
pub(super) fn health(node: &Node, view: &View<'_>, now: Mono, measures: &Unhealthy) -> Health {
    let reports = reports(node, view, now, measures);
    match (reports, unwell(node, now, measures)) {
        (Health::Lost(why), _) => Health::Lost(why),
        (_, Unwell::Sick(why, shown)) => Health::Sick(why, shown),
        (Health::Doubtful(one), Unwell::Doubtful(other)) => Health::Doubtful(one.min(other)),
        (Health::Well, Unwell::Doubtful(due)) => Health::Doubtful(due),
        (reports, _) => reports,
    }
}

/// Whether its kubelet reports. That it is silent is not enough: whoever watches over readiness must have found the
/// same, by live reads.
fn reports(node: &Node, view: &View<'_>, now: Mono, measures: &Unhealthy) -> Health {
    if node.readiness == Readiness::Ready {
        return Health::Well;
    }
    let lost_at = |since: Mono, seconds: u32| since + Duration::from_secs(seconds.into());
    let heard = view.last_heard(node);
    let silent_at = lost_at(heard, measures.silent_seconds);
    if silent_at <= now {
        let (silent, measure) = (now.since(heard).as_secs(), measures.silent_seconds);
        return Health::Lost(format!(
            "its kubelet has not reported for {silent} s (unhealthy.silentSeconds: {measure})"
        ));
    }
    let says_so = measures.not_ready_seconds.filter(|_| node.readiness == Readiness::NotReady);
    let Some(measure) = says_so else { return Health::Doubtful(silent_at) };
    let not_ready_at = lost_at(node.readiness_seen, measure);
    if now < not_ready_at {
        return Health::Doubtful(silent_at.min(not_ready_at));
    }
    let seconds = now.since(node.readiness_seen).as_secs();
    Health::Lost(format!(
        "its kubelet has reported for {seconds} s that the node is not ready (unhealthy.notReadySeconds: {measure})"
    ))
}

/// Whether a pod waits for its node. A kubelet renews its Lease more often than that lasts, so it may have seen pods that came for so
/// long after its last renewal. A later pod runs nowhere: it does not decide that the machine is powered off, for a tenant creates it.
fn needs(pod: &Pod, node: &Node, policy: &FencePolicySpec, view: &View<'_>) -> bool {
    pod.arrived <= view.last_heard(node) + lease_duration(None) && waits(pod, policy, view)
}

/// Whether a pod is deleted, and may be replaced only when it has ended.
fn waits(pod: &Pod, policy: &FencePolicySpec, view: &View<'_>) -> bool {
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
            let held = view.volume_lease(volume).map(|lease| &lease.held);
            matches!(held, Some(Held::By(holder)) if pod.node.as_ref() == Some(&holder.node))
        }),
        Lookup::Absent | Lookup::Unknown(_) => false,
    })
}

/// Decides about a node of whose life there is no live incident; `over`: the one that is over.
pub(super) fn detect(
    node: &Node,
    over: Option<&Fence>,
    view: &View<'_>,
    now: Mono,
    config: &Config,
) -> Decision {
    let Some(life) = &node.life else { return Decision::default() };
    let hold = |hold: Hold| Decision::hold(about(node), hold);
    let name = || Arc::clone(&node.name);
    let Some(policy) = view.policy_of(&life.labels) else { return Decision::default() };
    let (why, kind, condition) = match health(node, view, now, &policy.spec.unhealthy) {
        Health::Well => return Decision::default(),
        Health::Doubtful(until) => return Decision::default().and_recheck_at(until),
        Health::Lost(why) => (why, Trigger::Detected, None),
        Health::Sick(why, shown) => (why, Trigger::Unhealthy, shown),
    };
    match policy.spec.when {
        When::Manual => return Decision::default(),
        When::Needed if !view.pods_on(&node.name).any(|pod| needs(pod, node, &policy.spec, view)) => {
            return hold(Hold::FenceNotNeeded { node: name(), why });
        }
        When::Needed | When::Always => {}
    }
    // One that cannot be read might be the policy of this node, or its incident.
    if let Some(unread) = unreadable(view, &[Kind::FencePolicies, Kind::NodeFences]) {
        return hold(unread);
    }
    let Some(incarnation) = node.incarnation() else {
        return hold(Hold::NoBootId { node: name() });
    };
    if config.mode == Mode::Observe {
        return hold(Hold::WouldFence { node: name(), why, policy: Arc::clone(&policy.name) });
    }
    let trigger = FenceTrigger { kind, reason: why.clone(), by: None, condition };
    match over {
        None => open(incarnation, policy, trigger),
        Some(fence) if fence.deleting => Decision::default(),
        Some(fence) if may_begin_anew(fence) && is_another(&fence.spec.trigger, &trigger) => replaced(fence),
        Some(fence) if may_begin_anew(fence) => reopen(fence, &why),
        Some(fence) => {
            let (fence, phase) = (Arc::clone(&fence.name), fence.status.phase.name());
            hold(Hold::FenceOver { node: name(), fence, phase })
        }
    }
}

fn may_begin_anew(fence: &Fence) -> bool {
    fence.status.phase == Phase::Cancelled && !fence.spec.cancelled
}

/// Whether an incident that began for `before` would be checked for another reason than this one.
fn is_another(before: &FenceTrigger, now: &FenceTrigger) -> bool {
    (before.kind == Trigger::Unhealthy || now.kind == Trigger::Unhealthy)
        && (before.kind, &before.condition) != (now.kind, &now.condition)
}

/// The trigger of an incident cannot be changed, and two of one life would have one name: the one that was called off
/// goes first. Nothing of it is under way.
fn replaced(fence: &Fence) -> Decision {
    let past = Past {
        kind: Kind::NodeFences,
        node: fence.spec.node.name.as_str().into(),
        name: Arc::clone(&fence.name),
        uid: fence.uid.clone(),
        rv: fence.rv,
    };
    Decision { intents: vec![Intent::Update(Update::Forget(past))], ..Decision::default() }
}

/// An incident of this life of a node.
pub(super) fn open(life: Incarnation, policy: &Policy, trigger: FenceTrigger) -> Decision {
    let node: Arc<str> = life.name.as_str().into();
    let spec = NodeFenceSpec {
        node: life,
        policy: policy.name.to_string(),
        trigger,
        dry_run: policy.spec.mode == PolicyMode::DryRun,
        cancelled: false,
        keep_off: false,
    };
    take(&node, Step::Open(Box::new(spec)))
}

/// The incident of this life was called off because the node was heard again, and it is lost again: the name is the
/// same, so there cannot be another one.
pub(super) fn reopen(fence: &Fence, why: &str) -> Decision {
    let mut status = fence.status.clone();
    (status.phase, status.level, status.rounds) = (Phase::Pending, 0, 0);
    status.drain = None;
    status.gates.clear();
    status.message = format!("lost again: {why}");
    let node: Arc<str> = fence.spec.node.name.as_str().into();
    take(&node, Step::Write(target(fence, status)))
}
