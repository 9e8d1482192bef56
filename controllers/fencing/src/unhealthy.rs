//! Whether a node that reports is unhealthy by its policy: it has a condition, or flaps. Pure.
//!
//! This is no evidence: such a node runs, and so do its pods. It is a reason to fence it, because the policy states
//! so, and the fencing passes the same gates, devices and status checks as for a lost node.

use std::time::Duration;

use pod_safety_shared::api::{TriggerCondition, Unhealthy, UnhealthyCondition};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{Node, NodeDetails, ReportedCondition};

/// What a node shows that its policy calls unhealthy.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReportedHealth {
    /// Nothing.
    Healthy,
    /// A condition, not yet for long enough: it counts from this moment.
    Suspected(Mono),
    /// The reason, and the condition; `None`: it flaps.
    Unhealthy(String, Option<TriggerCondition>),
}

fn find_condition<'a>(details: &'a NodeDetails, condition: &UnhealthyCondition) -> Option<&'a ReportedCondition> {
    details.conditions.iter().find(|shown| *shown.kind == *condition.r#type && condition.status.matches(shown.state))
}

fn to_shown(condition: &UnhealthyCondition) -> TriggerCondition {
    TriggerCondition { r#type: condition.r#type.clone(), status: condition.status }
}

/// The number of changes of Ready, if there are so many that the node flaps.
fn count_flaps(details: &NodeDetails, now: Mono, measures: &Unhealthy) -> Option<usize> {
    let flapping = measures.flapping?;
    let within = Duration::from_secs(flapping.within_seconds.into());
    let changes = details.ready_changes.iter().filter(|at| now.since(**at) < within).count();
    (changes >= usize::try_from(flapping.changes).unwrap_or(usize::MAX)).then_some(changes)
}

/// The health that a node reports, by the measures of a policy.
pub(super) fn reported_health(node: &Node, now: Mono, measures: &Unhealthy) -> ReportedHealth {
    let Some(details) = &node.details else { return ReportedHealth::Healthy };
    let mut next = None;
    for condition in &measures.conditions {
        let Some(seen) = find_condition(details, condition).map(|shown| shown.first_seen) else { continue };
        let due = seen + Duration::from_secs(condition.seconds.into());
        if due <= now {
            let (kind, status, since) = (&condition.r#type, condition.status, now.since(seen).as_secs());
            let why = format!(
                "it has reported {kind}={status:?} for {since} s (unhealthy.conditions: {} s)",
                condition.seconds
            );
            return ReportedHealth::Unhealthy(why, Some(to_shown(condition)));
        }
        next = next.into_iter().chain([due]).min();
    }
    if let (Some(changes), Some(flapping)) = (count_flaps(details, now, measures), measures.flapping) {
        let why = format!(
            "its condition Ready changed {changes} times within {} s (unhealthy.flapping.changes: {})",
            flapping.within_seconds, flapping.changes
        );
        return ReportedHealth::Unhealthy(why, None);
    }
    next.map_or(ReportedHealth::Healthy, ReportedHealth::Suspected)
}

/// Whether it shows anything unhealthy now, for however short.
pub(super) fn is_unhealthy(node: &Node, now: Mono, measures: &Unhealthy) -> bool {
    reported_health(node, now, measures) != ReportedHealth::Healthy
}

/// Whether it still shows the condition for which it is fenced, and its policy still names that.
pub(super) fn is_still_unhealthy(
    node: &Node,
    trigger: Option<&TriggerCondition>,
    now: Mono,
    measures: &Unhealthy,
) -> bool {
    let Some(details) = &node.details else { return true };
    match trigger {
        Some(trigger) => {
            let is_trigger = |condition: &&UnhealthyCondition| to_shown(condition) == *trigger;
            measures.conditions.iter().filter(is_trigger).any(|condition| find_condition(details, condition).is_some())
        }
        None => count_flaps(details, now, measures).is_some(),
    }
}
