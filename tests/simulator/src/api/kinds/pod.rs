//! Pods: what their status may say, what of them may change, and how they are
//! deleted gracefully (`pkg/registry/core/pod/strategy.go`).

use serde_json::{Value, json};

use super::metadata::is_qualified;
use crate::api::failure::Cause;
use crate::api::fields::{at, copy, list, number, remove, set, text};

pub(super) fn prepare_create(pod: &mut Value) {
    set(pod, &["metadata"], "generation", 1);
    set(pod, &[], "status", json!({ "phase": "Pending", "qosClass": quality(pod) }));
    if !list(pod, &["spec", "schedulingGates"]).is_empty() {
        let gated = json!({ "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates" });
        set(pod, &["status"], "conditions", vec![gated]);
    }
}

/// The quality of service, for pods whose containers ask for resources in the
/// simplest way: all, some or none.
fn quality(pod: &Value) -> &'static str {
    let containers = list(pod, &["spec", "containers"]);
    let asks =
        |container: &Value| ["requests", "limits"].iter().any(|key| at(container, &["resources", key]).is_some());
    let guaranteed = |container: &Value| {
        let limits = at(container, &["resources", "limits"]);
        let requests = at(container, &["resources", "requests"]);
        let both = |limits: &Value| limits.get("cpu").is_some() && limits.get("memory").is_some();
        limits.is_some_and(both) && (requests.is_none() || requests == limits)
    };
    if !containers.iter().any(asks) {
        "BestEffort"
    } else if containers.iter().all(guaranteed) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

pub(super) fn prepare_update(new: &mut Value, old: &Value) {
    copy(new, old, &[], "status");
    if new.get("spec") != old.get("spec") {
        let generation = number(old, &["metadata", "generation"]).unwrap_or(0);
        set(new, &["metadata"], "generation", generation + 1);
    }
}

pub(super) fn prepare_status(new: &mut Value, old: &Value) {
    copy(new, old, &[], "spec");
    remove(new, &["metadata"], "deletionTimestamp");
    copy(new, old, &["metadata"], "ownerReferences");
    if text(new, &["status", "qosClass"]).is_empty() {
        copy(new, old, &["status"], "qosClass");
    }
    if number(new, &["status", "observedGeneration"]).is_none() {
        copy(new, old, &["status"], "observedGeneration");
    }
    keep_observed_generations(new, old);
}

/// A condition written without `observedGeneration` keeps the one it had.
fn keep_observed_generations(new: &mut Value, old: &Value) {
    let mut before: Vec<(String, Option<i64>)> = list(old, &["status", "conditions"])
        .iter()
        .map(|one| (text(one, &["type"]).to_owned(), number(one, &["observedGeneration"])))
        .collect();
    let Some(conditions) = new.pointer_mut("/status/conditions").and_then(Value::as_array_mut) else {
        return;
    };
    for condition in conditions {
        let own = text(condition, &["type"]).to_owned();
        let Some(place) = before.iter().position(|(kind, _)| *kind == own) else { continue };
        let (_, generation) = before.remove(place);
        if let (Some(generation), None) = (generation, number(condition, &["observedGeneration"])) {
            set(condition, &[], "observedGeneration", generation);
        }
    }
}

pub(super) fn validate_create(pod: &Value) -> Vec<Cause> {
    let mut causes = validate_spec(pod, &["spec"], "spec");
    causes.extend(super::lifecycle::validate_responders(pod));
    for (index, toleration) in list(pod, &["spec", "tolerations"]).iter().enumerate() {
        causes.extend(validate_toleration(toleration, &format!("spec.tolerations[{index}]")));
    }
    if !text(pod, &["spec", "nodeName"]).is_empty() && !list(pod, &["spec", "schedulingGates"]).is_empty() {
        causes.push(Cause::forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared"));
    }
    causes
}

/// The rules for pods and pod templates alike.
pub(super) fn validate_spec(object: &Value, path: &[&str], name: &str) -> Vec<Cause> {
    let spec = at(object, path).unwrap_or(&Value::Null);
    let mut causes = Vec::new();
    let containers = list(spec, &["containers"]);
    if containers.is_empty() {
        causes.push(Cause::required(format!("{name}.containers")));
    }
    let mut names = Vec::new();
    for (index, container) in containers.iter().enumerate() {
        let field = |key: &str| format!("{name}.containers[{index}].{key}");
        let own = text(container, &["name"]);
        if own.is_empty() {
            causes.push(Cause::required(field("name")));
        } else if names.contains(&own) {
            causes.push(Cause::duplicate(field("name")));
        }
        names.push(own);
        if text(container, &["image"]).is_empty() {
            causes.push(Cause::required(field("image")));
        }
    }
    if number(spec, &["terminationGracePeriodSeconds"]).is_some_and(|seconds| seconds < 0) {
        causes.push(Cause::invalid(format!("{name}.terminationGracePeriodSeconds"), "must be non-negative"));
    }
    causes
}

fn validate_toleration(toleration: &Value, field: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let effect = text(toleration, &["effect"]);
    if at(toleration, &["tolerationSeconds"]).is_some() && effect != "NoExecute" {
        causes.push(Cause::invalid(
            format!("{field}.effect"),
            "effect must be 'NoExecute' when `tolerationSeconds` is set",
        ));
    }
    if !["", "NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
        causes.push(Cause::unsupported(format!("{field}.effect")));
    }
    causes
}

pub(super) fn validate_update(new: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = validate_spec(new, &["spec"], "spec");
    let (after, before) = (list(new, &["spec", "containers"]), list(old, &["spec", "containers"]));
    if after.len() != before.len() {
        causes.push(Cause::forbidden("spec.containers", "pod updates may not add or remove containers"));
        return causes;
    }
    for (index, container) in after.iter().enumerate() {
        // ValidateContainerUpdates looks at the images once more.
        if text(container, &["image"]).is_empty() {
            causes.push(Cause::required(format!("spec.containers[{index}].image")));
        }
    }
    match (number(new, &["spec", "activeDeadlineSeconds"]), number(old, &["spec", "activeDeadlineSeconds"])) {
        (Some(after), Some(before)) if after > before => {
            causes.push(Cause::invalid("spec.activeDeadlineSeconds", "must be less than or equal to previous value"));
            return causes;
        }
        (None, Some(_)) => {
            causes.push(Cause::invalid(
                "spec.activeDeadlineSeconds",
                "must not update from a positive integer to nil value",
            ));
        }
        _ => {}
    }
    causes.extend(only_added_tolerations(new, old));
    if new.get("spec") != old.get("spec") && with_changeable(new, old).get("spec") != old.get("spec") {
        causes.push(Cause::forbidden("spec", "pod updates may not change fields other than the updatable ones"));
    }
    causes
}

fn only_added_tolerations(new: &Value, old: &Value) -> Vec<Cause> {
    let without_seconds = |toleration: &Value| {
        let mut rest = toleration.clone();
        remove(&mut rest, &[], "tolerationSeconds");
        rest
    };
    let after: Vec<_> = list(new, &["spec", "tolerations"]).iter().map(without_seconds).collect();
    if list(old, &["spec", "tolerations"]).iter().map(without_seconds).any(|one| !after.contains(&one)) {
        let message = "existing toleration can not be modified except its tolerationSeconds";
        return vec![Cause::forbidden("spec.tolerations", message)];
    }
    let tolerations = list(new, &["spec", "tolerations"]).iter().enumerate();
    tolerations.flat_map(|(index, one)| validate_toleration(one, &format!("spec.tolerations[{index}]"))).collect()
}

/// The new pod with all that may change taken from the old one.
fn with_changeable(new: &Value, old: &Value) -> Value {
    let mut munged = new.clone();
    for key in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        copy(&mut munged, old, &["spec"], key);
    }
    // Where a pod that is not let to the scheduler yet may go can still be narrowed.
    let gated = !list(old, &["spec", "schedulingGates"]).is_empty();
    let before = at(old, &["spec", "nodeSelector"]).and_then(Value::as_object);
    let after = at(new, &["spec", "nodeSelector"]);
    let keeps = before.into_iter().flatten().all(|(key, value)| after.and_then(|after| after.get(key)) == Some(value));
    if gated && keeps {
        copy(&mut munged, old, &["spec"], "nodeSelector");
    }
    for key in ["containers", "initContainers"] {
        let before = list(old, &["spec", key]).to_vec();
        let Some(after) = munged.pointer_mut(&format!("/spec/{key}")).and_then(Value::as_array_mut) else {
            continue;
        };
        for (container, before) in after.iter_mut().zip(&before) {
            copy(container, before, &[], "image");
        }
    }
    munged
}

pub(super) fn validate_status(new: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (index, condition) in list(new, &["status", "conditions"]).iter().enumerate() {
        if number(condition, &["observedGeneration"]).is_some_and(|generation| generation < 0) {
            causes.push(Cause::invalid(
                format!("status.conditions[{index}].observedGeneration"),
                "must be a non-negative integer",
            ));
        }
        if !is_qualified(text(condition, &["type"])) {
            causes.push(Cause::invalid(format!("status.conditions[{index}].Type"), "must be a qualified name"));
        }
    }
    if number(new, &["status", "observedGeneration"]).is_some_and(|generation| generation < 0) {
        causes.push(Cause::invalid("status.observedGeneration", "must be a non-negative integer"));
    }
    if text(new, &["status", "qosClass"]) != text(old, &["status", "qosClass"]) {
        causes.push(Cause::invalid("status.qosClass", "field is immutable"));
    }
    causes
}

/// What `podStrategy.CheckGracefulDelete` makes of the grace that was asked for.
pub(crate) fn grace(pod: &Value, asked: Option<i64>) -> i64 {
    let unscheduled = text(pod, &["spec", "nodeName"]).is_empty();
    if unscheduled || is_terminal(pod) {
        return 0;
    }
    let own = || number(pod, &["spec", "terminationGracePeriodSeconds"]).unwrap_or(0);
    let seconds = asked.unwrap_or_else(own);
    if seconds < 0 { 1 } else { seconds }
}

/// Whether the pod's phase is one that it does not leave.
pub(crate) fn is_terminal(pod: &Value) -> bool {
    matches!(text(pod, &["status", "phase"]), "Failed" | "Succeeded")
}

/// Sets a condition as `podutil.UpdatePodCondition` does.
pub(crate) fn set_condition(pod: &mut Value, mut condition: Value, now: &str) {
    let kind = text(&condition, &["type"]).to_owned();
    set(&mut condition, &[], "lastTransitionTime", now);
    set(&mut condition, &[], "lastProbeTime", Value::Null);
    let mut conditions = list(pod, &["status", "conditions"]).to_vec();
    match conditions.iter_mut().find(|one| text(one, &["type"]) == kind) {
        Some(known) => {
            if text(known, &["status"]) == text(&condition, &["status"]) {
                copy(&mut condition, &known.clone(), &[], "lastTransitionTime");
            }
            *known = condition;
        }
        None => conditions.push(condition),
    }
    set(pod, &["status"], "conditions", conditions);
}
