//! The CRDs, generated from the types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::Value;

use super::{
    FenceDevice, FenceEvidence, FencePolicy, GROUP, NodeFence, PodSafetyRemediation, PodSafetyRemediationTemplate,
    VERSION,
};

/// Every CRD of pod-safety.
#[must_use]
pub fn crds() -> Vec<Value> {
    let all: [CustomResourceDefinition; 6] = [
        FenceDevice::crd(),
        FencePolicy::crd(),
        NodeFence::crd(),
        FenceEvidence::crd(),
        PodSafetyRemediation::crd(),
        PodSafetyRemediationTemplate::crd(),
    ];
    all.iter().filter_map(|crd| serde_json::to_value(crd).ok()).map(normalize).collect()
}

/// The path of a collection.
#[must_use]
pub fn group_path(plural: &str) -> String {
    format!("/apis/{GROUP}/{VERSION}/{plural}")
}

/// The body that creates an object of a custom resource of pod-safety.
#[must_use]
pub fn new_object(kind: &str, metadata: Value, spec: &impl serde::Serialize) -> Value {
    serde_json::json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    })
}

/// Removes what the derive states about Rust's types and an API server does not accept.
fn normalize(mut crd: Value) -> Value {
    use_signed_integers(&mut crd);
    let versions = crd.pointer_mut("/spec/versions").and_then(Value::as_array_mut);
    for version in versions.into_iter().flatten() {
        if let Some(status) = version.pointer_mut("/schema/openAPIV3Schema/properties/status") {
            remove_defaults(status);
        }
        // A field that a fact does not contain must not be defaulted.
        if let Some(samples) = version.pointer_mut("/schema/openAPIV3Schema/properties/spec/properties/samples") {
            remove_defaults(samples);
        }
    }
    crd
}

/// OpenAPI has no unsigned numbers; ranges state what is allowed.
fn use_signed_integers(schema: &mut Value) {
    if let Some(format) = schema.get_mut("format").filter(|format| *format == "uint32") {
        *format = Value::from("int64");
    }
    for_each_child(schema, use_signed_integers);
}

/// A writer of a status writes all of it. Rust's empty strings are no valid names.
fn remove_defaults(schema: &mut Value) {
    if let Some(fields) =
        schema.as_object_mut().filter(|fields| fields.contains_key("type") || fields.contains_key("allOf"))
    {
        fields.remove("default");
    }
    for_each_child(schema, remove_defaults);
}

fn for_each_child(schema: &mut Value, does: fn(&mut Value)) {
    match schema {
        Value::Object(fields) => fields.values_mut().for_each(does),
        Value::Array(items) => items.iter_mut().for_each(does),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
