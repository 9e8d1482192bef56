//! The rules for the metadata of every kind.

use serde_json::Value;

use super::{Kind, Rules};
use crate::api::failure::Cause;
use crate::api::fields::{at, list, number, text, texts};

/// The changes of metadata that an update may not make (`ValidateObjectMetaAccessorUpdate`).
pub(crate) fn validate_update(new: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if at(old, &["metadata", "deletionTimestamp"]).is_some() {
        let before = texts(old, &["metadata", "finalizers"]);
        if texts(new, &["metadata", "finalizers"]).iter().any(|finalizer| !before.contains(finalizer)) {
            causes.push(Cause::forbidden(
                "metadata.finalizers",
                "no new finalizers can be added if the object is being deleted",
            ));
        }
    }
    for key in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if at(new, &["metadata", key]) != at(old, &["metadata", key]) {
            causes.push(Cause::invalid(format!("metadata.{key}"), "field is immutable"));
        }
    }
    causes.extend(validate(new));
    causes
}

/// The rules for labels, annotations and owners.
pub(crate) fn validate(object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let labels = at(object, &["metadata", "labels"]).and_then(Value::as_object);
    for (key, value) in labels.into_iter().flatten() {
        if !is_qualified(key) || !value.as_str().is_some_and(is_label_value) {
            causes.push(Cause::invalid("metadata.labels", "a label must be a qualified name with a short value"));
        }
    }
    let annotations = at(object, &["metadata", "annotations"]).and_then(Value::as_object);
    for key in annotations.into_iter().flatten().map(|(key, _)| key) {
        if !is_qualified(&key.to_lowercase()) {
            causes.push(Cause::invalid("metadata.annotations", "an annotation must be a qualified name"));
        }
    }
    for (index, owner) in list(object, &["metadata", "ownerReferences"]).iter().enumerate() {
        for key in ["apiVersion", "kind", "name", "uid"] {
            if text(owner, &[key]).is_empty() {
                let field = format!("metadata.ownerReferences[{index}].{key}");
                causes.push(Cause::required(field));
            }
        }
    }
    let controllers = list(object, &["metadata", "ownerReferences"])
        .iter()
        .filter(|owner| at(owner, &["controller"]).and_then(Value::as_bool) == Some(true));
    if controllers.count() > 1 {
        causes.push(Cause::invalid("metadata.ownerReferences", "Only one reference can have Controller set to true"));
    }
    causes
}

/// The rules for the metadata of a new object.
pub(crate) fn validate_create(kind: &Kind, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let name = text(object, &["metadata", "name"]);
    if name.is_empty() {
        causes.push(Cause::required("metadata.name"));
    } else if !is_name(kind, name) {
        causes.push(Cause::invalid("metadata.name", "not a lowercase RFC 1123 name"));
    }
    if number(object, &["metadata", "generation"]).is_some_and(|generation| generation < 0) {
        causes.push(Cause::invalid("metadata.generation", "must be greater than or equal to 0"));
    }
    for (index, finalizer) in texts(object, &["metadata", "finalizers"]).into_iter().enumerate() {
        if !is_qualified(finalizer) {
            causes.push(Cause::invalid(format!("metadata.finalizers[{index}]"), "must be a qualified name"));
        }
    }
    causes.extend(validate(object));
    causes
}

fn is_name(kind: &Kind, name: &str) -> bool {
    let label = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    match kind.rules {
        Rules::Namespace => label(name) && name.len() <= 63,
        Rules::Event | Rules::Budget => !name.contains(['/', '%']) && name != "." && name != "..",
        _ => name.len() <= 253 && name.split('.').all(label),
    }
}

/// `name`, or `prefix.example/name`.
pub(crate) fn is_qualified(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let prefix_good = prefix.is_none_or(|prefix| {
        !prefix.is_empty()
            && prefix.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.')
    });
    prefix_good && !name.is_empty() && is_label_value(name)
}

fn is_label_value(value: &str) -> bool {
    let ends = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    value.len() <= 63
        && value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_' || b == b'.')
        && ends(value.as_bytes().first())
        && ends(value.as_bytes().last())
}
