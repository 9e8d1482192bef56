//! `StatefulSets`, and their scale.

use serde_json::{Value, json};

use super::pod::validate_spec;
use crate::api::failure::Cause;
use crate::api::fields::{at, copy, number, set, text};

pub(super) fn prepare_create(set_: &mut Value) {
    set(set_, &[], "status", json!({ "replicas": 0, "availableReplicas": 0 }));
    set(set_, &["metadata"], "generation", 1);
}

pub(super) fn validate_create(set_: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if number(set_, &["spec", "replicas"]).is_some_and(|count| count < 0) {
        causes.push(Cause::invalid("spec.replicas", "must be greater than or equal to 0"));
    }
    if at(set_, &["spec", "selector"]).is_none() {
        causes.push(Cause::required("spec.selector"));
    }
    causes.extend(validate_spec(set_, &["spec", "template", "spec"], "spec.template.spec"));
    causes
}

pub(super) fn validate_update(new: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = validate_create(new);
    let mut fixed = new.clone();
    for key in [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ] {
        copy(&mut fixed, old, &["spec"], key);
    }
    if fixed.get("spec") != old.get("spec") {
        causes.push(Cause::forbidden(
            "spec",
            "updates to statefulset spec for fields other than the mutable ones",
        ));
    }
    causes
}

pub(super) fn validate_status(set_: &Value) -> Vec<Cause> {
    let count = |key: &str| number(set_, &["status", key]).unwrap_or(0);
    let keys = ["replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
    let mut causes: Vec<_> = keys
        .into_iter()
        .filter(|key| count(key) < 0)
        .map(|key| Cause::invalid(format!("status.{key}"), "must be greater than or equal to 0"))
        .collect();
    for key in &keys[1..] {
        if count(key) > count("replicas") {
            causes.push(Cause::invalid(format!("status.{key}"), "cannot be greater than status.replicas"));
        }
    }
    if count("availableReplicas") > count("readyReplicas") {
        causes
            .push(Cause::invalid("status.availableReplicas", "cannot be greater than status.readyReplicas"));
    }
    causes
}

/// The `Scale` of a set.
pub(crate) fn scale(set_: &Value) -> Value {
    let mut metadata = json!({});
    for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        copy(&mut metadata, &set_["metadata"], &[], key);
    }
    let labels = at(set_, &["spec", "selector", "matchLabels"]).and_then(Value::as_object);
    let selector: Vec<_> = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
        "spec": { "replicas": number(set_, &["spec", "replicas"]).unwrap_or(0) },
        "status": { "replicas": number(set_, &["status", "replicas"]).unwrap_or(0), "selector": selector.join(",") },
    })
}

/// The set with the number of replicas that a `Scale` asks for.
pub(crate) fn scaled(set_: &Value, scale: &Value) -> Value {
    let mut new = set_.clone();
    let replicas = number(scale, &["spec", "replicas"]).unwrap_or(0);
    set(&mut new, &["spec"], "replicas", replicas);
    match text(scale, &["metadata", "resourceVersion"]) {
        "" => {}
        version => set(&mut new, &["metadata"], "resourceVersion", version),
    }
    new
}
