//! Answers in a form in which those of two servers can be compared.
//!
//! UIDs become numbers in the order in which they first appear. Versions become ranks among all versions of objects
//! that the sequence saw, so that order and equality stay (a write that changed nothing is visible). Times become
//! seconds since the sequence began. Field ownership and the texts of messages are left out.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::api::Kind;

/// One answer, as it came.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The HTTP code; zero if there was no answer.
    pub code: u16,
    /// The `Retry-After` header.
    pub retry_after: Option<String>,
    /// The body; a string if it is no JSON.
    pub body: Value,
    /// The body, byte for byte.
    pub raw: Bytes,
    /// Whether the request concerned the whole cluster, which may be shared.
    pub whole_cluster: bool,
}

impl Reply {
    pub(super) fn without_answer(why: &str) -> Self {
        Self { code: 0, retry_after: None, body: json!(why), raw: Bytes::new(), whole_cluster: false }
    }
}

/// Collects the versions of all objects in `value` that belong to the sequence.
pub(super) fn versions_of(sequence: &str, value: &Value, versions: &mut BTreeSet<u64>) {
    if let Some(items) = value["items"].as_array() {
        items.iter().for_each(|item| versions_of(sequence, item, versions));
    }
    if !belongs(&format!("{sequence}-"), value) {
        return;
    }
    let metadata = &value["metadata"];
    let version = metadata["resourceVersion"].as_str().and_then(|text| text.parse::<u64>().ok());
    if metadata["uid"].is_string() {
        versions.extend(version);
    }
}

/// Whether the names of the object begin as those of a sequence.
fn belongs(prefix: &str, object: &Value) -> bool {
    ["name", "namespace"]
        .iter()
        .any(|key| object["metadata"][*key].as_str().is_some_and(|text| text.starts_with(prefix)))
}

/// The discovery data of the simulated resources, in the order of their names.
fn resources(list: &Value) -> Value {
    let kinds = Kind::built_in();
    let known = |name: &str| {
        let (plural, sub) = name.split_once('/').unwrap_or((name, "status"));
        let simulated = ["status", "scale", "eviction", "binding", "finalize"].contains(&sub);
        simulated && kinds.iter().any(|kind| kind.plural == plural)
    };
    let all = list["resources"].as_array().into_iter().flatten();
    let own = all.filter(|resource| resource["name"].as_str().is_some_and(known));
    let mut own: Vec<Value> = own
        .map(|one| json!([one["name"], one["kind"], one["namespaced"], one["verbs"], one["group"], one["version"]]))
        .collect();
    own.sort_by_key(ToString::to_string);
    json!({ "kind": list["kind"], "groupVersion": list["groupVersion"], "resources": own })
}

/// Brings the answers of one side into normal form.
#[derive(Debug)]
pub struct Normaliser {
    sequence: String,
    began: Timestamp,
    versions: Vec<u64>,
    uids: BTreeMap<String, usize>,
}

impl Normaliser {
    /// For a sequence that began at `began` and whose answers had these versions.
    #[must_use]
    pub fn new(sequence: &str, began: Timestamp, versions: Vec<u64>) -> Self {
        Self { sequence: format!("{sequence}-"), began, versions, uids: BTreeMap::new() }
    }

    /// A whole answer.
    pub fn reply(&mut self, reply: &Reply) -> Value {
        let body = if reply.body["kind"] == "Status" { self.status(&reply.body) } else { self.body(&reply.body) };
        let mut body = body;
        if reply.whole_cluster && body["continues"].is_boolean() {
            // Whether a page is the last one depends on objects of other sequences.
            body["continues"] = Value::Null;
            body["remaining"] = Value::Null;
        }
        json!({ "code": reply.code, "retryAfter": reply.retry_after, "body": body })
    }

    fn status(&mut self, status: &Value) -> Value {
        let details = &status["details"];
        let causes = details["causes"].as_array().into_iter().flatten();
        let mut causes: Vec<Value> = causes.map(|cause| json!([cause["reason"], cause["field"]])).collect();
        // How often a cause is named, and in which order, is not compared.
        causes.sort_by_key(ToString::to_string);
        causes.dedup();
        json!({
            "status": status["status"], "reason": status["reason"], "code": status["code"], "causes": causes,
            "on": [self.value("name", &details["name"]), details["group"], details["kind"], details["retryAfterSeconds"]],
            "uid": details["uid"].as_str().map(|uid| self.uid(uid)),
        })
    }

    /// An object or a list.
    pub fn body(&mut self, body: &Value) -> Value {
        if body["kind"] == "APIResourceList" {
            return resources(body);
        }
        let Some(items) = body["items"].as_array() else { return self.value("", body) };
        // Objects of other sequences may be in lists of the whole cluster.
        let own = items.iter().filter(|item| self.is_own(item));
        let items: Vec<Value> = own.cloned().collect();
        let items: Vec<Value> = items.iter().map(|item| self.value("", item)).collect();
        let metadata = &body["metadata"];
        json!({
            "kind": body["kind"], "apiVersion": body["apiVersion"], "items": items,
            "remaining": metadata["remainingItemCount"], "continues": metadata["continue"].as_str().is_some_and(|token| !token.is_empty()),
        })
    }

    /// Whether an object belongs to the sequence.
    #[must_use]
    pub fn is_own(&self, object: &Value) -> bool {
        belongs(&self.sequence, object)
    }

    fn uid(&mut self, uid: &str) -> String {
        let next = self.uids.len();
        format!("U{}", self.uids.entry(uid.to_owned()).or_insert(next))
    }

    fn value(&mut self, key: &str, value: &Value) -> Value {
        match value {
            Value::Object(map) => {
                let mut new = Map::new();
                for (key, field) in map {
                    if key != "managedFields" {
                        new.insert(key.clone(), self.value(key, field));
                    }
                }
                Value::Object(new)
            }
            Value::Array(items) => items.iter().map(|item| self.value(key, item)).collect(),
            Value::String(text) => Value::String(self.text(key, text)),
            other => other.clone(),
        }
    }

    fn text(&mut self, key: &str, text: &str) -> String {
        match key {
            "uid" => return self.uid(text),
            "resourceVersion" => return self.version(text),
            "name" => {
                // The part that the server generated after the prefix.
                let prefix = format!("{}g", self.sequence);
                if text.starts_with(&prefix) {
                    return text.rsplit_once('-').map_or_else(|| text.to_owned(), |(prefix, _)| format!("{prefix}-*"));
                }
            }
            "message" => return "…".to_owned(),
            _ => {}
        }
        match text.parse::<Timestamp>() {
            // A time from the request itself is not relative to the start.
            Ok(time) if !text.starts_with("2026-01-01") => format!("t:{}", time.as_second() - self.began.as_second()),
            _ => text.to_owned(),
        }
    }

    /// The rank of a version.
    #[must_use]
    pub fn version(&self, text: &str) -> String {
        let Ok(version) = text.parse::<u64>() else { return text.to_owned() };
        format!("V{}", self.versions.partition_point(|known| *known <= version))
    }
}
