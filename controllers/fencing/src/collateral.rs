//! Whether fencing a node would end healthy pods that a PodDisruptionBudget requires. Pure.
//!
//! A lost node has no such pods: the node-lifecycle controller has set their Ready condition to False. The check
//! matters for nodes that are fenced while some of their pods are healthy: because a person or another remediator
//! requests it, or by `unhealthy.notReadySeconds`. A budget that allows no disruption must not delay the fencing of a
//! broken node indefinitely: the gate holds for `brakes.collateralSeconds`, and then fencing goes on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::holds::Hold;
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{Budget, FencePolicyObject, Kind, Node, Uid};

use super::incident::Incident;

/// The budgets that count healthy pods on the node, each with the number of those pods.
pub(super) fn affected_budgets<'a>(node: &Node, incident: &Incident<'a>) -> Vec<(&'a Budget, usize)> {
    let view = incident.view;
    let mut chosen: BTreeMap<&'a Uid, (&'a Budget, usize)> = BTreeMap::new();
    for pod in view.pods_on(&node.name) {
        for budget in view.budgets_of_pod(pod).filter(|budget| budget.counts_as_healthy(pod)) {
            chosen.entry(&budget.key.uid).or_insert((budget, 0)).1 += 1;
        }
    }
    let mut chosen: Vec<_> = chosen.into_values().collect();
    chosen.sort_by(|(a, _), (b, _)| a.key.cmp(&b.key));
    chosen
}

fn deadline(incident: &Incident<'_>, policy: &FencePolicyObject) -> Mono {
    incident.fence.first_seen + Duration::from_secs(policy.spec.brakes.collateral_seconds.into())
}

/// Holds until the budgets can spare the pods, or until the deadline. After a restart the whole time is waited for
/// again.
pub(super) fn check_collateral(node: &Node, policy: &FencePolicyObject, incident: &Incident<'_>) -> Option<Hold> {
    let left = deadline(incident, policy).since(incident.now);
    if left.is_zero() {
        return None;
    }
    let name = || Arc::clone(&node.name);
    let budgets = Kind::Budgets;
    if incident.view.check_fresh(budgets, incident.now).is_err() || incident.view.count(budgets).1 > 0 {
        return Some(Hold::BudgetsUnread { node: name(), left });
    }
    let (budget, here) = affected_budgets(node, incident).into_iter().find(|(budget, here)| {
        let here = i32::try_from(*here).unwrap_or(i32::MAX);
        budget.status.current_healthy.saturating_sub(here) < budget.status.desired_healthy
    })?;
    let (healthy, needed) = (budget.status.current_healthy, budget.status.desired_healthy);
    Some(Hold::Collateral { node: name(), budget: budget.key.to_string(), here, healthy, needed, left })
}
