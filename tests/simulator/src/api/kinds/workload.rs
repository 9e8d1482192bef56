//! The kinds that create pods from a template (`StatefulSets`, `ReplicaSets`, `Deployments`, `ReplicationControllers`),
//! and their scale.

use serde_json::{Value, json};

use super::Rules;
use super::pod::validate_spec;
use crate::api::failure::Cause;
use crate::api::fields::{at, copy, number, set, text};
use crate::api::select::label_selector_matches;

pub(super) fn prepare_create(rules: Rules, set_: &mut Value) {
    let status = match rules {
        Rules::StatefulSet => json!({ "replicas": 0, "availableReplicas": 0 }),
        Rules::Deployment => json!({}),
        _ => json!({ "replicas": 0 }),
    };
    set(set_, &[], "status", status);
    set(set_, &["metadata"], "generation", 1);
}

pub(super) fn validate_create(rules: Rules, set_: &Value) -> Vec<Cause> {
    if rules == Rules::StatefulSet { validate_stateful(set_) } else { validate_stateless(rules, set_) }
}

fn validate_stateless(rules: Rules, set_: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let selector = at(set_, &["spec", "selector"]);
    let labels = at(set_, &["spec", "template", "metadata", "labels"]);
    let matches = if rules == Rules::Replication {
        let required = selector.and_then(Value::as_object).into_iter().flatten();
        required.into_iter().all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
    } else {
        label_selector_matches(selector, labels)
    };
    if selector.is_none() {
        causes.push(Cause::required("spec.selector"));
    }
    if number(set_, &["spec", "replicas"]).is_some_and(|count| count < 0) {
        causes.push(Cause::invalid("spec.replicas", "must be greater than or equal to 0"));
    }
    if selector.is_some() && !matches {
        causes.push(Cause::invalid("spec.template.metadata.labels", "`selector` does not match template `labels`"));
    }
    causes.extend(validate_spec(set_, &["spec", "template", "spec"], "spec.template.spec"));
    causes
}

fn validate_stateful(set_: &Value) -> Vec<Cause> {
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

pub(super) fn validate_update(rules: Rules, new: &Value, old: &Value) -> Vec<Cause> {
    if rules == Rules::StatefulSet {
        validate_stateful_update(new, old)
    } else {
        validate_stateless_update(rules, new, old)
    }
}

fn validate_stateless_update(rules: Rules, new: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = validate_stateless(rules, new);
    let selector = |set_: &Value| at(set_, &["spec", "selector"]).cloned();
    if rules != Rules::Replication && selector(new) != selector(old) {
        causes.push(Cause::invalid("spec.selector", "field is immutable"));
    }
    causes
}

fn validate_stateful_update(new: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = validate_stateful(new);
    for key in ["selector", "volumeClaimTemplates", "serviceName", "podManagementPolicy"] {
        if at(new, &["spec", key]) != at(old, &["spec", key]) {
            causes.push(Cause::invalid(format!("spec.{key}"), "field is immutable"));
        }
    }
    causes
}

/// The counts of a status that cannot be more than `replicas`.
const fn counts(rules: Rules) -> &'static [&'static str] {
    match rules {
        Rules::StatefulSet => &["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"],
        Rules::Deployment => &["updatedReplicas", "readyReplicas", "availableReplicas"],
        _ => &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
    }
}

pub(super) fn validate_status(rules: Rules, set_: &Value) -> Vec<Cause> {
    let count = |key: &str| number(set_, &["status", key]).unwrap_or(0);
    let keys: Vec<&str> = std::iter::once("replicas").chain(counts(rules).iter().copied()).collect();
    let mut causes: Vec<_> = keys
        .iter()
        .filter(|key| count(key) < 0)
        .map(|key| Cause::invalid(format!("status.{key}"), "must be greater than or equal to 0"))
        .collect();
    for key in counts(rules) {
        if count(key) > count("replicas") {
            causes.push(Cause::invalid(format!("status.{key}"), "cannot be greater than status.replicas"));
        }
    }
    if count("availableReplicas") > count("readyReplicas") {
        causes.push(Cause::invalid("status.availableReplicas", "cannot be greater than status.readyReplicas"));
    }
    causes
}

/// The `Scale` of a set.
pub(crate) fn scale(set_: &Value) -> Value {
    let mut metadata = json!({});
    for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        copy(&mut metadata, &set_["metadata"], &[], key);
    }
    let labels = at(set_, &["spec", "selector", "matchLabels"]);
    // The selector of a ReplicationController is a map itself.
    let plain = at(set_, &["spec", "selector"]).filter(|_| text(set_, &["kind"]) == "ReplicationController");
    let labels = labels.or(plain).and_then(Value::as_object);
    let selector: Vec<_> = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    let replicas = number(set_, &["spec", "replicas"]).filter(|count| *count != 0);
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
        // A missing number is left out.
        "spec": replicas.map_or_else(|| json!({}), |count| json!({ "replicas": count })),
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
