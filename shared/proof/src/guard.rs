//! The guard of outgoing requests: it reads the bytes of every request.
//!
//! Danger note: the guard does not decide whether a force delete is right. It refuses every request that could release a
//! pod's name, a node's volumes or a volume's Lease while processes may still run, unless exactly this request carries a
//! [`Permit`] of an act. No defect in the code above can avoid it: a permit is valid only for its own path, UID and
//! version.

use std::collections::BTreeMap;
use std::fmt;

use pod_safety_model::{Kind, OUT_OF_SERVICE_TAINT};
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::shape::{Resource, Shape};

/// Permission for one request: to this path, for the object with this UID, at this version. Only an act creates it.
#[derive(Clone, Debug)]
pub struct Permit {
    pub(crate) path: String,
    pub(crate) uid: String,
    pub(crate) version: String,
}

impl Permit {
    /// Whether this permit is for a request to this path whose body names this UID and this version. Empty values never match.
    fn covers(&self, path: &str, uid: &str, version: &str) -> bool {
        let named = !uid.is_empty() && !version.is_empty();
        named && self.path == path && self.uid == uid && self.version == version
    }

    /// A permit that no act created, for tests of the guard.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn for_guard_tests(path: &str, uid: &str, version: &str) -> Self {
        Self { path: path.to_owned(), uid: uid.to_owned(), version: version.to_owned() }
    }
}

/// A request that the guard refused to send.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("refused to send {method} {path}: {why}")]
pub struct GuardRefusal {
    /// The HTTP method.
    pub method: String,
    /// The path.
    pub path: String,
    /// Why the guard refused it.
    pub why: Forbidden,
}

/// Why the guard refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Forbidden {
    /// It would release, or could release, what a process may still use.
    #[error("it can remove a pod at once and carries no permit of the deletion authority")]
    RemovesPod,
    /// Its permit is for another path, another object or another version.
    #[error("its permit is for another object, or for another version of it")]
    NotPermitted,
    /// It is a deletion of a whole collection, or a deletion by name without a UID.
    #[error("a deletion must name one object and carry its UID as a precondition")]
    NoIdentity,
    /// It is a read that a watch cache may answer with old data.
    #[error("resourceVersion=0 may be answered from an arbitrarily old cache")]
    StaleRead,
    /// Its path is not in the canonical form.
    #[error("an escaped or incomplete path may name another object than it seems to")]
    OpaquePath,
    /// Its body is not in memory, or cannot be parsed as a JSON object.
    #[error("its body is not plain JSON in memory")]
    OpaqueBody,
}

/// The fields of any body that can make a request dangerous. Only a JSON object is accepted: a JSON patch, which is an
/// array, is refused.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct GuardedFields {
    grace_period_seconds: Option<i64>,
    preconditions: Option<Preconditions>,
    delete_options: Option<Box<GuardedFields>>,
    status: Field,
    metadata: Field,
    spec: Effect,
    #[serde(flatten)]
    others: BTreeMap<String, IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Preconditions {
    uid: Option<String>,
    resource_version: Option<String>,
    /// Forces a JSON object: from an array serde would take these fields by their order, where the API server takes none.
    #[serde(flatten)]
    _others: BTreeMap<String, IgnoredAny>,
}

impl GuardedFields {
    /// The UID and the version that the API server compares: those of the preconditions of a deletion, those of the
    /// metadata of any other write. Empty: none.
    fn identity(&self, method: &str) -> (&str, &str) {
        if method != "DELETE" {
            return (self.metadata.text("uid"), self.metadata.text("resourceVersion"));
        }
        let given = self.preconditions.as_ref();
        let uid = given.and_then(|given| given.uid.as_deref()).unwrap_or_default();
        let version = given.and_then(|given| given.resource_version.as_deref()).unwrap_or_default();
        (uid, version)
    }
}

/// The keys of a field. A `null` in a patch removes the field.
#[derive(Debug, Default)]
enum Field {
    #[default]
    Absent,
    Nulled,
    Keys(BTreeMap<String, Value>),
}

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::deserialize(deserializer)?.map_or(Self::Nulled, Self::Keys))
    }
}

impl Field {
    /// The string at `key`; empty if there is none.
    fn text(&self, key: &str) -> &str {
        let Self::Keys(keys) = self else { return "" };
        keys.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    /// Whether the body writes or removes `key`, or may do so by a directive of strategic merge patch.
    fn writes(&self, key: &str) -> bool {
        match self {
            Self::Absent => false,
            Self::Nulled => true,
            Self::Keys(keys) => keys.keys().any(|written| written.contains(key) || replaces_all(written)),
        }
    }
}

/// What a value can change, wherever it is nested.
#[derive(Clone, Copy, Debug, Default)]
struct Effect {
    /// The value contains the key of the out-of-service taint, at any depth.
    out_of_service: bool,
    /// The value is an object with the key `leaseTransitions`. Revoking the holder of a volume's Lease sets this key; a
    /// release after the kubelet's report does not.
    sets_transitions: bool,
}

impl<'de> Deserialize<'de> for Effect {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Searcher)
    }
}

/// Visits every key and value, duplicate keys included.
struct Searcher;

impl<'de> Visitor<'de> for Searcher {
    type Value = Effect;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }
    fn visit_str<E>(self, text: &str) -> Result<Effect, E> {
        Ok(Effect { out_of_service: text.contains(OUT_OF_SERVICE_TAINT), ..Effect::default() })
    }
    fn visit_bool<E>(self, _: bool) -> Result<Effect, E> {
        Ok(Effect::default())
    }
    fn visit_i64<E>(self, _: i64) -> Result<Effect, E> {
        Ok(Effect::default())
    }
    fn visit_u64<E>(self, _: u64) -> Result<Effect, E> {
        Ok(Effect::default())
    }
    fn visit_f64<E>(self, _: f64) -> Result<Effect, E> {
        Ok(Effect::default())
    }
    fn visit_unit<E>(self) -> Result<Effect, E> {
        Ok(Effect::default())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Effect, A::Error> {
        let mut effect = Effect::default();
        while let Some(here) = all.next_element::<Effect>()? {
            effect.out_of_service |= here.out_of_service;
        }
        Ok(effect)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Effect, A::Error> {
        let mut effect = Effect::default();
        while let Some((key, value)) = all.next_entry::<String, Effect>()? {
            effect.out_of_service |= key.contains(OUT_OF_SERVICE_TAINT) || value.out_of_service;
            effect.sets_transitions |= key == "leaseTransitions";
        }
        Ok(effect)
    }
}

/// Whether the key is a directive that removes what the patch does not name.
fn replaces_all(key: &str) -> bool {
    key == "$patch" || key == "$retainKeys"
}

/// Checks a request as it would be sent. `query` is what follows the `?`; `body` is `None` if it is not in memory.
///
/// # Errors
/// Why the request is not sent.
pub fn check(
    method: &str,
    path: &str,
    query: Option<&str>,
    body: Option<&[u8]>,
    permit: Option<&Permit>,
) -> Result<(), GuardRefusal> {
    let refused = |why| GuardRefusal { method: method.to_owned(), path: path.to_owned(), why };
    check_request(method, path, query, body, permit).map_err(refused)
}

fn check_request(
    method: &str,
    path: &str,
    query: Option<&str>,
    body: Option<&[u8]>,
    permit: Option<&Permit>,
) -> Result<(), Forbidden> {
    let shape = Shape::from_path(path);
    if path.contains('%') || path.split('/').skip(1).any(|part| matches!(part, "" | "." | "..")) {
        return Err(Forbidden::OpaquePath);
    }
    if method == "GET" {
        let stale = query.is_some_and(|query| query.split('&').any(|pair| pair == "resourceVersion=0"));
        return if stale { Err(Forbidden::StaleRead) } else { Ok(()) };
    }
    // The path of volume Leases, in any version of the API.
    let of_volumes = Kind::VolumeLeases.path().split_once("/v1").is_some_and(|(_, rest)| path.contains(rest));
    let harmless = matches!(shape.resource, Resource::Leases | Resource::Events) && !of_volumes;
    if harmless && method != "DELETE" {
        return Ok(());
    }
    let fields = body.and_then(read_body).ok_or(Forbidden::OpaqueBody)?;
    let (uid, version) = fields.identity(method);
    if method == "DELETE" && (shape.name.is_none() || uid.is_empty()) {
        return Err(Forbidden::NoIdentity);
    }
    if !needs_permit(method, shape.resource, &fields) {
        return Ok(());
    }
    let permit = permit.ok_or(Forbidden::RemovesPod)?;
    permit.covers(path, uid, version).then_some(()).ok_or(Forbidden::NotPermitted)
}

/// Whether the request can end in the removal of a pod that still runs. A deletion without a grace period counts as grace
/// period 0, because a terminal phase makes it 0. A deletion with any grace period but no resourceVersion counts, too: the
/// phase of the pod may have become terminal since it was read.
fn needs_permit(method: &str, resource: Resource, fields: &GuardedFields) -> bool {
    let graceful = |options: &GuardedFields| options.grace_period_seconds.is_some_and(|grace| grace >= 1);
    let replaced = fields.others.keys().any(|key| replaces_all(key));
    // Removing the last finalizer of a terminating object removes the object. The API server also accepts changes of
    // finalizers in writes to the status of pods and nodes.
    let ends = method == "PUT" || replaced || fields.metadata.writes("finalizers");
    match resource {
        Resource::Pods if method == "DELETE" => {
            let (_uid, version) = fields.identity(method);
            !graceful(fields) || version.is_empty()
        }
        Resource::PodEviction => !fields.delete_options.as_deref().is_some_and(graceful),
        Resource::Pods | Resource::NodeStatus => ends,
        // Only an act of the deletion authority may write a pod's phase.
        Resource::PodStatus => ends || fields.status.writes("phase"),
        // Deleting a Node releases its pods, deleting a VolumeAttachment its volume, and so does the out-of-service taint.
        Resource::Nodes => method == "DELETE" || ends || fields.spec.out_of_service,
        Resource::VolumeAttachments => method == "DELETE" || ends,
        // The holder of a volume's Lease may write to the volume.
        Resource::Leases => matches!(method, "PATCH" | "PUT") && (ends || fields.spec.sets_transitions),
        Resource::Events
        | Resource::Budgets
        | Resource::BudgetStatus
        | Resource::Workloads
        | Resource::Scale
        | Resource::Other => false,
    }
}

/// Parses a body. `None`: it is not JSON. This process writes only JSON, and a body that cannot be parsed must not be sent.
fn read_body(bytes: &[u8]) -> Option<GuardedFields> {
    if bytes.is_empty() { Some(GuardedFields::default()) } else { serde_json::from_slice(bytes).ok() }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
