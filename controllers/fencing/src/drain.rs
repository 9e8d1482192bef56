//! The soft remedy: a node that is unhealthy, but reports, is emptied before it is powered off. Pure.
//!
//! Its kubelet may still terminate pods in good order, so they are evicted within their PodDisruptionBudgets, for a time
//! that the policy says. That only ever delays the fence: what is left then is fenced with the machine.

use std::sync::Arc;
use std::time::Duration;

use crate::holds::{Decision, Hold};
use jiff::Timestamp;
use pod_safety_shared::api::{Gate, Trigger};
use pod_safety_shared::authority::Step;
use pod_safety_shared::model::{FencePolicyObject, Pod, PodKey, Readiness};

use super::incident::{Incident, fence_step, is_dry_run, step_target};

/// The gate by which it is shown.
pub(super) const GATE: &str = "Drain";

/// Between two rounds: a budget that allows nothing now is not asked without end.
const ROUND: Duration = Duration::from_secs(10);

/// What an eviction can move: a DaemonSet, and a kubelet with its static pods, put theirs back.
fn is_evictable(pod: &Pod) -> bool {
    let of_daemon_set = pod.controller.as_ref().is_some_and(|owner| owner.is_daemon_set());
    !pod.mirror && !of_daemon_set && !pod.phase.is_terminal() && !pod.waits_for_finalizers()
}

/// When its drain began. What cannot be read began long ago.
fn started_at(incident: &Incident<'_>) -> Option<Timestamp> {
    incident.status().drain.as_ref().map(|drain| drain.began.parse().unwrap_or(Timestamp::UNIX_EPOCH))
}

/// The pods of its node that are to go. One that came after the cordon tolerates it: its eviction brings the next one.
fn remaining_pods<'a>(incident: &Incident<'a>) -> impl Iterator<Item = &'a Pod> + use<'a> {
    let began = started_at(incident);
    let was_there = move |pod: &&Pod| began.is_none_or(|began| pod.created <= began.as_second());
    incident.view.pods_on(&incident.name).filter(|pod| is_evictable(pod)).filter(was_there)
}

/// Whether a drain of this incident has begun.
pub(super) const fn has_begun(incident: &Incident<'_>) -> bool {
    incident.status().drain.is_some()
}

/// The gate: it still drains.
pub(super) fn check_drain(incident: &Incident<'_>, policy: &FencePolicyObject) -> Option<Hold> {
    let whole = Duration::from_secs(policy.spec.unhealthy.drain_seconds.into());
    let is_soft =
        incident.fence.spec.trigger.kind == Trigger::Unhealthy && !is_dry_run(incident.fence, policy);
    // A kubelet that says that it is not ready, or nothing, terminates nothing.
    let node = incident.node().filter(|node| is_soft && node.readiness == Readiness::Ready)?;
    let drain = incident.status().drain.as_ref();
    let age = |began: Timestamp| incident.view.age(began.as_second(), incident.now);
    let left = whole.saturating_sub(started_at(incident).map_or(Duration::ZERO, age));
    let pods = remaining_pods(incident).count();
    if left.is_zero() || (drain.is_some() && pods == 0) {
        return None;
    }
    let blocked = drain.map(|drain| &drain.message).filter(|message| !message.is_empty());
    let blocked = blocked.map_or_else(String::new, |message| format!(" ({message})"));
    Some(Hold::Drain { node: Arc::clone(&node.name), pods, blocked, left })
}

/// Whether these gates let it begin: all are open, or it drains first, and what it would cost others is what it drains.
pub(super) fn may_begin(closed: &[Hold]) -> bool {
    let soft = |hold: &Hold| {
        matches!(hold, Hold::Drain { .. } | Hold::Collateral { .. } | Hold::BudgetsUnread { .. })
    };
    closed.is_empty() || (closed.iter().any(is_drain) && closed.iter().all(soft))
}

const fn is_drain(hold: &Hold) -> bool {
    matches!(hold, Hold::Drain { .. })
}

/// The next round, if nothing else is in the way and it is time; `record`: the gates as its status shows them.
pub(super) fn plan_round(
    incident: &Incident<'_>,
    closed: &[Hold],
    record: impl FnOnce() -> Vec<Gate>,
) -> Option<Decision> {
    let hold = closed.iter().find(|hold| matches!(hold, Hold::Drain { .. }))?;
    let due = if has_begun(incident) { incident.fence.status_seen + ROUND } else { incident.now };
    if !may_begin(closed) || incident.now < due {
        return None;
    }
    let pods: Vec<PodKey> =
        remaining_pods(incident).filter(|pod| pod.deletion.is_none()).map(|pod| pod.key.clone()).collect();
    let mut status = incident.status_with(incident.status().phase, hold.to_string());
    status.gates = record();
    let step = Step::Drain(step_target(incident.fence, status), pods);
    Some(fence_step(&incident.name, step))
}
