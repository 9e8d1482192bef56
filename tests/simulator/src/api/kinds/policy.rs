//! `PodDisruptionBudgets`: their rules, and the effect of the eviction API on them.

use serde_json::Value;

use crate::api::failure::Cause;
use crate::api::fields::{at, number, remove, set, set_default, text};

pub(super) fn prepare_create(budget: &mut Value) {
    remove(budget, &[], "status");
    set(budget, &["metadata"], "generation", 1);
    for key in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        set_default(budget, &["status"], key, 0);
    }
}

pub(super) fn validate(budget: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let both = ["minAvailable", "maxUnavailable"].map(|key| at(budget, &["spec", key]).is_some());
    if both == [true, true] {
        causes.push(Cause::invalid("spec", "minAvailable and maxUnavailable cannot be both set"));
    }
    for key in ["minAvailable", "maxUnavailable"] {
        if number(budget, &["spec", key]).is_some_and(|count| count < 0) {
            causes.push(Cause::invalid(format!("spec.{key}"), "must be greater than or equal to 0"));
        }
    }
    let policy = text(budget, &["spec", "unhealthyPodEvictionPolicy"]);
    if !["", "IfHealthyBudget", "AlwaysAllow"].contains(&policy) {
        causes.push(Cause::unsupported("spec.unhealthyPodEvictionPolicy"));
    }
    causes
}

pub(super) fn validate_status(budget: &Value) -> Vec<Cause> {
    ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"]
        .into_iter()
        .filter(|key| number(budget, &["status", key]).is_some_and(|count| count < 0))
        .map(|key| Cause::invalid(format!("status.{key}"), "must be greater than or equal to 0"))
        .collect()
}
