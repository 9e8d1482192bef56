//! Drains a node that is unhealthy, but reports, before it is powered off. Pure.
//!
//! Its kubelet can still terminate pods gracefully, so they are evicted within their PodDisruptionBudgets, for the
//! time that the policy sets (`unhealthy.drainSeconds`). The drain only delays the fencing: pods that remain then end
//! with the machine.

use std::sync::Arc;
use std::time::Duration;

use crate::holds::{Decision, Hold};
use jiff::Timestamp;
use pod_safety_shared::api::{Gate, Trigger};
use pod_safety_shared::authority::Step;
use pod_safety_shared::model::{FencePolicyObject, Pod, PodKey, Readiness};

use super::incident::{Incident, fence_step, is_dry_run, step_target};

/// The gate that shows the drain.
pub(super) const GATE: &str = "Drain";

/// The time between two rounds: a budget that allows no disruption is not queried without pause.
const ROUND: Duration = Duration::from_secs(10);

/// Whether an eviction can move the pod: the controller of a DaemonSet and a kubelet with static pods recreate
/// theirs.
fn is_evictable(pod: &Pod) -> bool {
    let of_daemon_set = pod.controller.as_ref().is_some_and(|owner| owner.is_daemon_set());
    !pod.mirror && !of_daemon_set && !pod.phase.is_terminal()
}

/// When its drain began. A timestamp that cannot be parsed counts as long ago.
fn started_at(incident: &Incident<'_>) -> Option<Timestamp> {
    incident.status().drain.as_ref().map(|drain| drain.began.parse().unwrap_or(Timestamp::UNIX_EPOCH))
}

/// The pods of its node that are still to be evicted. A pod that arrived after the cordon tolerates it: evicting it
/// would bring the next one.
fn remaining_pods<'a>(incident: &Incident<'a>) -> impl Iterator<Item = &'a Pod> + use<'a> {
    let began = started_at(incident);
    let was_there = move |pod: &&Pod| began.is_none_or(|began| pod.created <= began.as_second());
    incident.view.pods_on(&incident.name).filter(|pod| is_evictable(pod)).filter(was_there)
}

/// Whether a drain of this incident has begun.
pub(super) const fn has_begun(incident: &Incident<'_>) -> bool {
    incident.status().drain.is_some()
}

/// The gate: holds while the node drains.
pub(super) fn check_drain(incident: &Incident<'_>, policy: &FencePolicyObject) -> Option<Hold> {
    let whole = Duration::from_secs(policy.spec.unhealthy.drain_seconds.into());
    let is_soft = incident.fence.spec.trigger.kind == Trigger::Unhealthy && !is_dry_run(incident.fence, policy);
    // A kubelet that reports that it is not ready, or does not report, terminates no pods.
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

/// Whether these closed gates allow fencing to begin: none is closed, or only the drain and the gates about the pods
/// that it evicts.
pub(super) fn may_begin(closed: &[Hold]) -> bool {
    let soft = |hold: &Hold| matches!(hold, Hold::Drain { .. } | Hold::Collateral { .. } | Hold::BudgetsUnread { .. });
    closed.is_empty() || (closed.iter().any(is_drain) && closed.iter().all(soft))
}

const fn is_drain(hold: &Hold) -> bool {
    matches!(hold, Hold::Drain { .. })
}

/// The next round of evictions, if no other gate holds and it is due; `record`: makes the gates for the status.
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
