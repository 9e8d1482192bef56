//! Lock 5 of the deletion authority: a layer below everything that sends.
//!
//! Danger note: this layer does not decide whether a force delete is right. It
//! refuses every request that could take a pod's name away from processes which
//! may still run, unless [`crate::authority`] attached a [`Permit`] to exactly
//! that request. It reads the bytes that would go out, so no mistake above it
//! can talk it round: a permit counts for its own path, UID and version alone.

use std::collections::BTreeMap;
use std::fmt;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::Either;
use http::{Method, Request};
use kube::client::Body;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tower::{BoxError, Layer, Service};

use super::shape::{Resource, Shape};
use crate::authority::Permit;
use crate::model::OUT_OF_SERVICE_TAINT;

/// Why a request was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GuardRefusal {
    /// It would remove a pod at once, or could.
    #[error(
        "refused to send {method} {path}: it can remove a pod at once and carries no permit of the deletion authority"
    )]
    RemovesPod {
        /// The verb.
        method: Method,
        /// The path.
        path: String,
    },
    /// Its permit is for another path, another object or another version.
    #[error(
        "refused to send {method} {path}: its permit is for another object, or for another version of it"
    )]
    NotPermitted {
        /// The verb.
        method: Method,
        /// The path.
        path: String,
    },
    /// It would delete by name, or a whole collection.
    #[error(
        "refused to send {method} {path}: a deletion must name one object and carry its UID as a precondition"
    )]
    NoIdentity {
        /// The verb.
        method: Method,
        /// The path.
        path: String,
    },
    /// It may be answered from the past.
    #[error(
        "refused to send {method} {path}: resourceVersion=0 may be answered from an arbitrarily old cache"
    )]
    StaleRead {
        /// The verb.
        method: Method,
        /// The path.
        path: String,
    },
    /// Its path is not written as the API server reads it.
    #[error(
        "refused to send {method} {path}: an escaped or incomplete path may name another object than it seems to"
    )]
    OpaquePath {
        /// The verb.
        method: Method,
        /// The path.
        path: String,
    },
    /// Its body cannot be looked into.
    #[error("refused to send {method} {path}: its body is not plain JSON in memory")]
    OpaqueBody {
        /// The verb.
        method: Method,
        /// The path.
        path: String,
    },
}

/// Puts a [`Guard`] round a service.
#[derive(Clone, Copy, Debug)]
pub(super) struct GuardLayer;

impl<S> Layer<S> for GuardLayer {
    type Service = Guard<S>;
    fn layer(&self, inner: S) -> Guard<S> {
        Guard { inner }
    }
}

/// A service that refuses unpermitted deletions.
#[derive(Clone, Debug)]
pub struct Guard<S> {
    inner: S,
}

impl<S> Service<Request<Body>> for Guard<S>
where
    S: Service<Request<Body>>,
    S::Error: Into<BoxError>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Either<
        futures::future::Ready<Result<S::Response, BoxError>>,
        futures::future::ErrInto<S::Future, BoxError>,
    >;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        use futures::TryFutureExt;
        match check(&request) {
            Ok(()) => Either::Right(self.inner.call(request).err_into()),
            Err(refusal) => Either::Left(futures::future::ready(Err(Box::new(refusal)))),
        }
    }
}

/// The fields of any body that can make a request dangerous. Only an object is
/// read: a JSON patch, which is an array, is refused.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Dangers {
    grace_period_seconds: Option<i64>,
    preconditions: Option<Preconditions>,
    delete_options: Option<Box<Dangers>>,
    status: Field,
    metadata: Field,
    spec: Declares,
    #[serde(flatten)]
    others: BTreeMap<String, IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Preconditions {
    uid: Option<String>,
    resource_version: Option<String>,
    /// Makes it an object: of a list serde would take these fields by their order, and the API server takes none.
    #[serde(flatten)]
    _others: BTreeMap<String, IgnoredAny>,
}

impl Dangers {
    /// The UID and the version that the API server compares: of a deletion those of its preconditions, of any other write those
    /// of its metadata. Empty: none.
    fn identity(&self, method: &Method) -> (&str, &str) {
        if *method != Method::DELETE {
            return (self.metadata.text("uid"), self.metadata.text("resourceVersion"));
        }
        let given = self.preconditions.as_ref();
        let uid = given.and_then(|given| given.uid.as_deref()).unwrap_or_default();
        let version = given.and_then(|given| given.resource_version.as_deref()).unwrap_or_default();
        (uid, version)
    }
}

/// The keys of a field, whatever their values: in a patch `null` removes.
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
    /// The text of `key`; empty if there is none.
    fn text(&self, key: &str) -> &str {
        let Self::Keys(keys) = self else { return "" };
        keys.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    /// Whether `key` is written, removed, or may be by a directive of strategic
    /// merge patch.
    fn touches(&self, key: &str) -> bool {
        match self {
            Self::Absent => false,
            Self::Nulled => true,
            Self::Keys(keys) => keys.keys().any(|written| written.contains(key) || replaces_all(written)),
        }
    }
}

/// Whether the taint by which somebody declares a node to be off is named, at whatever depth and in whatever place.
#[derive(Debug, Default)]
struct Declares(bool);

impl<'de> Deserialize<'de> for Declares {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Searcher).map(Self)
    }
}

/// Reads every key and value, doubled ones too.
struct Searcher;

impl<'de> Visitor<'de> for Searcher {
    type Value = bool;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }
    fn visit_str<E>(self, text: &str) -> Result<bool, E> {
        Ok(text.contains(OUT_OF_SERVICE_TAINT))
    }
    fn visit_bool<E>(self, _: bool) -> Result<bool, E> {
        Ok(false)
    }
    fn visit_i64<E>(self, _: i64) -> Result<bool, E> {
        Ok(false)
    }
    fn visit_u64<E>(self, _: u64) -> Result<bool, E> {
        Ok(false)
    }
    fn visit_f64<E>(self, _: f64) -> Result<bool, E> {
        Ok(false)
    }
    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<bool, A::Error> {
        let mut found = false;
        while let Some(Declares(here)) = all.next_element()? {
            found |= here;
        }
        Ok(found)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<bool, A::Error> {
        let mut found = false;
        while let Some((Declares(key), Declares(value))) = all.next_entry()? {
            found |= key || value;
        }
        Ok(found)
    }
}

/// A directive by which what is not named goes.
fn replaces_all(key: &str) -> bool {
    key == "$patch" || key == "$retainKeys"
}

/// Decides from what would go over the wire.
fn check(request: &Request<Body>) -> Result<(), GuardRefusal> {
    let (method, path) = (request.method(), request.uri().path());
    let shape = Shape::of(path);
    let refused = |make: fn(Method, String) -> GuardRefusal| Err(make(method.clone(), path.to_owned()));
    if path.contains('%') || path.split('/').skip(1).any(|part| matches!(part, "" | "." | "..")) {
        return refused(|method, path| GuardRefusal::OpaquePath { method, path });
    }
    if *method == Method::GET {
        let stale = request
            .uri()
            .query()
            .is_some_and(|query| query.split('&').any(|pair| pair == "resourceVersion=0"));
        return if stale { refused(|method, path| GuardRefusal::StaleRead { method, path }) } else { Ok(()) };
    }
    let harmless = matches!(shape.resource, Resource::Leases | Resource::Events) && *method != Method::DELETE;
    if harmless {
        return Ok(());
    }
    let Some(dangers) = read_body(request.body()) else {
        return refused(|method, path| GuardRefusal::OpaqueBody { method, path });
    };
    let (uid, version) = dangers.identity(method);
    if *method == Method::DELETE && (shape.name.is_none() || uid.is_empty()) {
        return refused(|method, path| GuardRefusal::NoIdentity { method, path });
    }
    if !removes(method, shape.resource, &dangers) {
        return Ok(());
    }
    let Some(permit) = request.extensions().get::<Permit>() else {
        return refused(|method, path| GuardRefusal::RemovesPod { method, path });
    };
    if permit.covers(path, uid, version) {
        return Ok(());
    }
    refused(|method, path| GuardRefusal::NotPermitted { method, path })
}

/// Whether the request can end in the removal of a pod that still runs. A missing
/// grace counts as zero, for a terminal phase makes it so; and any grace does, of a
/// pod that was called finished since it was read.
fn removes(method: &Method, resource: Resource, dangers: &Dangers) -> bool {
    let graceful = |options: &Dangers| options.grace_period_seconds.is_some_and(|grace| grace >= 1);
    let replaced = dangers.others.keys().any(|key| replaces_all(key));
    // Removing the last finalizer of a terminating object removes it. The API server takes finalizers from writes of the
    // statuses of pods and nodes, too.
    let ends = *method == Method::PUT || replaced || dangers.metadata.touches("finalizers");
    match resource {
        Resource::Pods if *method == Method::DELETE => {
            let (_uid, version) = dangers.identity(method);
            !graceful(dangers) || version.is_empty()
        }
        Resource::PodEviction => !dangers.delete_options.as_deref().is_some_and(graceful),
        Resource::Pods | Resource::NodeStatus => ends,
        // Nobody but this process's authority may call a pod finished.
        Resource::PodStatus => ends || dangers.status.touches("phase"),
        // Deleting a Node or an attachment gives its pods or its volume away, and so does declaring it to be off.
        Resource::Nodes => *method == Method::DELETE || ends || dangers.spec.0,
        Resource::VolumeAttachments => *method == Method::DELETE || ends,
        Resource::Leases
        | Resource::Events
        | Resource::Budgets
        | Resource::BudgetStatus
        | Resource::Workloads
        | Resource::Scale
        | Resource::Other => false,
    }
}

/// `None` if the body cannot be looked into. JSON only: what this process writes
/// is JSON, and an unread body must not pass.
fn read_body(body: &Body) -> Option<Dangers> {
    let bytes = body.try_clone()?.collect_bytes().now_or_never()?.ok()?;
    if bytes.is_empty() {
        return Some(Dangers::default());
    }
    serde_json::from_slice(&bytes).ok()
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
