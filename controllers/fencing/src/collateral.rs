//! Whether fencing a node would end healthy pods that a disruption budget wants kept. Pure.
//!
//! A node that is lost has none: whoever watches over nodes says of its pods that they are not Ready. So it is about
//! nodes that are fenced though some of their pods are well: because a person or another remediator asks for it, or by
//! `unhealthy.notReadySeconds`. A budget that allows nothing must not keep a broken node for ever, so it is waited for
//! a time that is said, and then gone on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::holds::Hold;
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{Budget, FencePolicyObject, Kind, Node, Uid};

use super::incident::Incident;

/// The budgets of healthy pods on the node, each with how many of them it chooses.
pub(super) fn affected_budgets<'a>(node: &Node, incident: &Incident<'a>) -> Vec<(&'a Budget, usize)> {
    let view = incident.view;
    let mut chosen: BTreeMap<&'a Uid, (&'a Budget, usize)> = BTreeMap::new();
    for pod in view.pods_on(&node.name) {
        for budget in view.budgets_of_pod(pod).filter(|budget| budget.counts_as_healthy(pod)) {
            chosen.entry(&budget.key.uid).or_insert((budget, 0)).1 += 1;
        }
    }
    let mut chosen: Vec<_> = chosen.into_values().collect();
    chosen.sort_by(|(one, _), (other, _)| one.key.cmp(&other.key));
    chosen
}

fn deadline(incident: &Incident<'_>, policy: &FencePolicyObject) -> Mono {
    incident.fence.first_seen + Duration::from_secs(policy.spec.brakes.collateral_seconds.into())
}

/// Whether it waits: after a restart it does so anew.
pub(super) fn check_collateral(
    node: &Node,
    policy: &FencePolicyObject,
    incident: &Incident<'_>,
) -> Option<Hold> {
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
