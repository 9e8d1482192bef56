//! The status of a PodDisruptionBudget.

use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::super::status_write::{StatusWrite, UpdateTurn, WriteTarget, Written, patch, send};
use crate::model::{BudgetKey, BudgetStatus, Rv};

/// The status of a budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetUpdate {
    /// The budget.
    pub budget: BudgetKey,
    /// The version on which the calculation rests.
    pub rv: Rv,
    /// The new status.
    pub status: BudgetStatus,
    /// The entries to remove from `disruptedPods`.
    pub over: Vec<Box<str>>,
    /// Whether the condition changes its status, and so its transition time.
    pub transition: bool,
}

impl StatusWrite for BudgetUpdate {
    fn target(&self) -> WriteTarget<'_> {
        WriteTarget { uid: &self.budget.uid, rv: self.rv, flow: &self.budget.namespace }
    }

    fn write<'a>(&'a self, turn: UpdateTurn<'a, '_>) -> BoxFuture<'a, Written> {
        let BudgetKey { namespace, name, .. } = &self.budget;
        let path = format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/{name}/status");
        let transition = self.transition.then(|| turn.writer.env.clock.wall());
        let status = budget_status(&self.status, &self.over, transition);
        send(turn, self.rv, patch(path, self.target(), status))
    }

    fn log_written(&self, controller: &'static str) {
        let Self { budget, status, .. } = self;
        let BudgetStatus { disruptions_allowed, current_healthy, desired_healthy, expected_pods, .. } = status;
        tracing::debug!(controller, uid = %budget.uid, %budget, disruptions_allowed, current_healthy, desired_healthy, expected_pods, "status written");
    }
}

/// A strategic merge patch: other conditions stay, and so do the entries of `disruptedPods` that it does not name.
fn budget_status(status: &BudgetStatus, expired: &[Box<str>], transition: Option<Timestamp>) -> Value {
    let removed: Map<String, Value> = expired.iter().map(|name| (name.to_string(), Value::Null)).collect();
    let mut body = json!({
        "observedGeneration": status.observed_generation,
        "disruptionsAllowed": status.disruptions_allowed,
        "currentHealthy": status.current_healthy,
        "desiredHealthy": status.desired_healthy,
        "expectedPods": status.expected_pods,
    });
    if !removed.is_empty() {
        body["disruptedPods"] = Value::Object(removed);
    }
    if let Some(allowed) = &status.allowed_condition {
        let mut condition = json!({
            "type": "DisruptionAllowed",
            "status": allowed.status,
            "reason": allowed.reason,
            "message": allowed.message,
            "observedGeneration": allowed.observed_generation,
        });
        if let Some(wall) = transition {
            condition["lastTransitionTime"] = json!(format!("{wall:.0}"));
        }
        body["conditions"] = json!([condition]);
    }
    body
}
