//! What the API server does with custom resources by the schema of their definition, in the order of
//! `apiextensions-apiserver`: defaults, nulls that are not allowed, unknown fields ([`complete`]); then validation
//! ([`validate`]), and, where no error would mislead them, the rules ([`super::rules`]).
//!
//! Only structural schemas, with the keywords that pod-safety's definitions use; a test fails for any other keyword.

use serde_json::{Map, Value};

use super::rules::holds;
use crate::api::failure::Cause;

/// The supported keywords.
#[cfg(test)]
pub(super) const KEYWORDS: [&str; 22] = [
    "additionalProperties",
    "default",
    "description",
    "enum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
    "nullable",
    "pattern",
    "properties",
    "required",
    "title",
    "type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-validations",
];

/// The fields that every object has.
const OF_EVERY_OBJECT: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Fills in defaults, and drops unknown fields.
pub(super) fn complete(schema: &Value, object: &mut Value) {
    fill(schema, object);
    prune(schema, object, true);
}

fn properties(schema: &Value) -> Option<&Map<String, Value>> {
    schema.get("properties").and_then(Value::as_object)
}

/// The schema of a field: its own, or the one for additional properties.
fn of_field<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    let own = properties(schema).and_then(|fields| fields.get(key));
    own.or_else(|| schema.get("additionalProperties").filter(|all| all.is_object()))
}

fn is_nullable(schema: &Value) -> bool {
    schema["nullable"] == true
}

/// A null counts as missing where it is not allowed.
fn fill(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, field) in properties(schema).into_iter().flatten() {
                let Some(default) = field.get("default") else { continue };
                let there = fields.get(key);
                if there.is_none() || there.is_some_and(Value::is_null) && !is_nullable(field) {
                    fields.insert(key.clone(), default.clone());
                }
            }
            fields.retain(|key, field| !field.is_null() || of_field(schema, key).is_none_or(is_nullable));
            for (key, field) in fields {
                if let Some(schema) = of_field(schema, key) {
                    fill(schema, field);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| fill(&schema["items"], item)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn prune(schema: &Value, value: &mut Value, is_root: bool) {
    match value {
        Value::Object(fields) => {
            fields
                .retain(|key, _| is_root && OF_EVERY_OBJECT.contains(&key.as_str()) || of_field(schema, key).is_some());
            for (key, field) in fields {
                if let Some(schema) = of_field(schema, key) {
                    prune(schema, field, false);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| prune(&schema["items"], item, false)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// What is invalid in an object, or in its change.
pub(super) fn validate(schema: &Value, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    check(schema, object, "", &mut causes);
    find_duplicates(schema, object, "", &mut causes);
    let misleads = ["FieldValueRequired", "FieldValueNotSupported", "FieldValueTypeInvalid"];
    let too_much = ["FieldValueTooLong", "FieldValueTooMany"];
    if causes.iter().any(|cause| misleads.contains(&cause.reason) || too_much.contains(&cause.reason)) {
        if has_rules(schema) {
            causes.push(Cause::invalid("<nil>", "some validation rules were not checked"));
        }
        return causes;
    }
    follow(schema, object, old, "", &mut causes);
    causes
}

/// Finds items of a list of type `map` that have the same keys.
fn find_duplicates(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    for (key, field) in value.as_object().into_iter().flatten() {
        if let Some(schema) = of_field(schema, key) {
            find_duplicates(schema, field, &inside(path, key), causes);
        }
    }
    let items = value.as_array().into_iter().flatten();
    let (mut seen, keys) = (Vec::new(), schema["x-kubernetes-list-map-keys"].as_array());
    for (index, item) in items.enumerate() {
        let path = format!("{path}[{index}]");
        find_duplicates(&schema["items"], item, &path, causes);
        let Some(keys) = keys else { continue };
        let named: Vec<_> = keys.iter().filter_map(Value::as_str).map(|key| item.get(key)).collect();
        if seen.contains(&named) {
            causes.push(Cause::duplicate(path));
        } else {
            seen.push(named);
        }
    }
}

fn has_rules(schema: &Value) -> bool {
    let fields = properties(schema).into_iter().flatten().map(|(_, field)| field);
    let others = [schema.get("items"), schema.get("additionalProperties")];
    schema.get("x-kubernetes-validations").is_some() || fields.chain(others.into_iter().flatten()).any(has_rules)
}

fn inside(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn cause(reason: &'static str, path: &str, message: &str) -> Cause {
    Cause { reason, field: path.to_owned(), message: message.to_owned() }
}

fn is_of_type(value: &Value, kind: &str) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        _ => value.is_number(),
    }
}

fn check(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    // A null may be allowed without being a value of the enum, unless the enum lists it.
    if let Some(words) = schema["enum"].as_array()
        && !words.contains(value)
    {
        causes.push(Cause::unsupported(path));
    }
    if value.is_null() && is_nullable(schema) {
        return;
    }
    if let Some(kind) = schema["type"].as_str()
        && !is_of_type(value, kind)
    {
        causes.push(cause("FieldValueTypeInvalid", path, &format!("must be of type {kind}")));
        return;
    }
    match value {
        Value::Object(fields) => {
            for key in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                if !fields.contains_key(key) {
                    causes.push(Cause::required(inside(path, key)));
                }
            }
            if schema["maxProperties"].as_u64().is_some_and(|most| fields.len() as u64 > most) {
                causes.push(cause("FieldValueTooMany", path, "too many"));
            }
            for (key, field) in fields {
                if let Some(schema) = of_field(schema, key) {
                    check(schema, field, &inside(path, key), causes);
                }
            }
        }
        Value::Array(items) => {
            let (count, least) = (items.len() as u64, schema["minItems"].as_u64().unwrap_or(0));
            if count < least {
                causes.push(Cause::invalid(path, &format!("should have at least {least} items")));
            }
            if schema["maxItems"].as_u64().is_some_and(|most| count > most) {
                causes.push(cause("FieldValueTooMany", path, "too many"));
            }
            for (index, item) in items.iter().enumerate() {
                check(&schema["items"], item, &format!("{path}[{index}]"), causes);
            }
        }
        Value::String(text) => check_text(schema, text, path, causes),
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or_default();
            if schema["minimum"].as_f64().is_some_and(|least| number < least)
                || schema["maximum"].as_f64().is_some_and(|most| number > most)
            {
                causes.push(Cause::invalid(path, "out of range"));
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

fn check_text(schema: &Value, text: &str, path: &str, causes: &mut Vec<Cause>) {
    let length = text.chars().count() as u64;
    if schema["maxLength"].as_u64().is_some_and(|most| length > most) {
        causes.push(cause("FieldValueTooLong", path, "too long"));
    }
    if schema["minLength"].as_u64().is_some_and(|least| length < least) {
        causes.push(Cause::invalid(path, "too short"));
    }
    let pattern = schema["pattern"].as_str().and_then(|pattern| regex::Regex::new(pattern).ok());
    if pattern.is_some_and(|pattern| !pattern.is_match(text)) {
        causes.push(Cause::invalid(path, "does not match the pattern"));
    }
}

fn follow(schema: &Value, value: &Value, old: Option<&Value>, path: &str, causes: &mut Vec<Cause>) {
    if value.is_null() {
        return;
    }
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        let text = rule["rule"].as_str().unwrap_or_default();
        if !holds(text, value, old.filter(|old| !old.is_null())) {
            causes.push(Cause::invalid(path, rule["message"].as_str().unwrap_or(text)));
        }
    }
    // Items of lists are not compared with older ones: pod-safety's have no rules.
    for (key, field) in value.as_object().into_iter().flatten() {
        if let Some(schema) = of_field(schema, key) {
            follow(schema, field, old.and_then(|old| old.get(key)), &inside(path, key), causes);
        }
    }
}
