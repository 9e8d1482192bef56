//! Watches: the changes of a collection since a version, event by event.
//!
//! Invariant: applying a watch's events to the list from which it began gives every later list. With a selector, a
//! change by which an object begins or ceases to match becomes ADDED or DELETED.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::channel::mpsc;
use serde_json::{Value, json};
use tower::BoxError;

use super::conduct::Disturbance;
use super::failure::{Cause, Failure};
use super::kinds::Kind;
use super::log::{Change, Log, Object};
use super::read::{Cached, Version};
use super::route::{ApiRequest, Route};
use super::select::Selector;

/// What a watch sends: bytes, or the break of its connection.
pub(crate) type Part = Result<Bytes, BoxError>;

/// One open watch.
#[derive(Debug)]
pub(crate) struct Watch {
    kind: Arc<Kind>,
    index: usize,
    selector: Selector,
    sender: mpsc::UnboundedSender<Part>,
    /// Events up to and with this revision are not for this watch.
    from: u64,
    pub(crate) bookmarks: bool,
    pub(crate) caller: Arc<str>,
    /// Half open: the server sends, and nothing arrives.
    pub(crate) muted: bool,
}

impl Watch {
    /// Sends the event of `change` for this watch. False: the client is gone.
    pub(crate) fn send_change(&self, change: &Change) -> bool {
        if change.key.0 != self.index || change.revision <= self.from {
            return !self.sender.is_closed();
        }
        let matches =
            |object: &Option<Arc<Object>>| object.as_ref().is_some_and(|object| self.selector.matches(&object.value));
        let event = match (matches(&change.before), matches(&change.after)) {
            (false, true) => change.after.as_deref().map(|object| event("ADDED", object)),
            (true, true) => change.after.as_deref().map(|object| event("MODIFIED", object)),
            // The state before, at the version of what ended it.
            (true, false) => {
                let before = change.before.as_ref().map(|object| Value::clone(&object.value));
                before.map(|value| event("DELETED", &Object::at_revision(value, change.revision)))
            }
            (false, false) => None,
        };
        event.is_none_or(|event| self.send(event))
    }

    /// Sends a bookmark: there were no other changes up to `revision`.
    pub(crate) fn bookmark(&self, revision: u64) -> bool {
        revision <= self.from || self.send(bookmark(&self.kind, revision, false))
    }

    fn send(&self, bytes: Bytes) -> bool {
        if self.muted {
            return !self.sender.is_closed();
        }
        self.sender.unbounded_send(Ok(bytes)).is_ok()
    }

    /// Breaks the connection.
    pub(crate) fn reset(&self) {
        drop(self.sender.unbounded_send(Err("connection reset by peer".into())));
    }
}

fn event(kind: &str, object: &Object) -> Bytes {
    let mut line = format!("{{\"type\":\"{kind}\",\"object\":").into_bytes();
    line.extend_from_slice(&object.text);
    line.extend_from_slice(b"}\n");
    line.into()
}

fn bookmark(kind: &Kind, revision: u64, initial_end: bool) -> Bytes {
    let mut metadata = json!({ "resourceVersion": revision.to_string() });
    if initial_end {
        metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
    }
    let object = json!({ "kind": kind.kind, "apiVersion": kind.api_version(), "metadata": metadata });
    Bytes::from(format!("{}\n", json!({ "type": "BOOKMARK", "object": object })))
}

fn error(failure: &Failure) -> Bytes {
    Bytes::from(format!("{}\n", json!({ "type": "ERROR", "object": failure.status() })))
}

/// A watch that is about to open.
pub(crate) struct Opening {
    /// What is sent first.
    pub(crate) first: Vec<Bytes>,
    /// The watch; `None` if it ends with what is sent first.
    pub(crate) watch: Option<Watch>,
    pub(crate) receiver: mpsc::UnboundedReceiver<Part>,
    /// After how many seconds the server ends it.
    pub(crate) seconds: Option<u64>,
}

const PARAMETERS: [&str; 11] = [
    "watch",
    "allowWatchBookmarks",
    "sendInitialEvents",
    "resourceVersion",
    "resourceVersionMatch",
    "timeoutSeconds",
    "labelSelector",
    "fieldSelector",
    "limit",
    "continue",
    "pretty",
];

/// Opens a watch on a collection.
pub(crate) fn open(log: &Log, cached: &Cached, route: &Route, asked: &ApiRequest) -> Result<Opening, Failure> {
    asked.only(&PARAMETERS)?;
    if route.name.is_some() {
        return Err(Failure::unimplemented("watching a single object by its path"));
    }
    let kind = &route.kind;
    let selector = Selector::from_request(route, asked)?;
    let bookmarks = asked.parameter("allowWatchBookmarks") == "true";
    let start = Start::from_request(asked)?;
    let (sender, receiver) = mpsc::unbounded();
    let (kind, caller) = (Arc::clone(kind), Arc::clone(&asked.caller));
    let watch =
        Watch { kind, index: route.index, selector, sender, from: cached.applied, bookmarks, caller, muted: false };
    let seconds = asked.parameter("timeoutSeconds").parse().ok();
    let opening = |first, watch| Opening { first, watch, receiver, seconds };
    match start {
        Start::State { end_mark } => {
            let mut first = state(cached, &watch);
            if end_mark && bookmarks {
                first.push(bookmark(&watch.kind, cached.applied, true));
            }
            Ok(opening(first, Some(watch)))
        }
        Start::After(revision) if revision < cached.oldest.max(log.compacted) => {
            let failure = Failure::expired(&format!("too old resource version: {revision} ({})", cached.oldest));
            Ok(opening(vec![error(&failure)], None))
        }
        Start::After(revision) => {
            let watch = Watch { from: revision, ..watch };
            // These events are sent through the watch itself, so that there is only one path to the client.
            for change in log.changes(revision, cached.applied) {
                watch.send_change(change);
            }
            Ok(opening(Vec::new(), Some(watch)))
        }
    }
}

/// All existing objects, as if they had just been added.
fn state(cached: &Cached, watch: &Watch) -> Vec<Bytes> {
    let range = (watch.index, String::new())..(watch.index + 1, String::new());
    let chosen = cached.objects.range(range).map(|(_, object)| object);
    chosen.filter(|object| watch.selector.matches(&object.value)).map(|object| event("ADDED", object)).collect()
}

/// Where a watch begins.
enum Start {
    /// With all existing objects.
    State { end_mark: bool },
    /// With the changes after this revision.
    After(u64),
}

impl Start {
    fn from_request(asked: &ApiRequest) -> Result<Self, Failure> {
        let refused = |cause: Cause| Err(Failure::invalid_as("meta.k8s.io", "ListOptions", "", &[cause]));
        let how = asked.parameter("resourceVersionMatch");
        match asked.parameter("sendInitialEvents") {
            "" if !how.is_empty() => {
                return refused(Cause::forbidden(
                    "resourceVersionMatch",
                    "forbidden for watch unless sendInitialEvents is provided",
                ));
            }
            "" => {}
            _ if how.is_empty() => {
                return refused(Cause::forbidden(
                    "resourceVersionMatch",
                    "must be NotOlderThan with sendInitialEvents",
                ));
            }
            _ if how != "NotOlderThan" => return refused(Cause::unsupported("resourceVersionMatch")),
            "true" => return Ok(Self::State { end_mark: true }),
            _ => {}
        }
        let version = asked.parameter("resourceVersion");
        match version {
            "" | "0" if asked.parameter("sendInitialEvents") == "false" => {
                Err(Failure::unimplemented("sendInitialEvents=false without a version"))
            }
            "" | "0" => Ok(Self::State { end_mark: false }),
            _ => match version.parse() {
                Ok(revision) => Ok(Self::After(revision)),
                Err(_) => Err(Failure::plain(500, "", "resourceVersion: not a number")),
            },
        }
    }
}

/// The revision that a server must have read before it answers. A reader that asks for the newest version gets what a
/// quorum has.
pub(crate) fn needs(log: &Log, asked: &ApiRequest) -> u64 {
    if asked.method != http::Method::GET {
        return 0;
    }
    if asked.watches() {
        return match Start::from_request(asked) {
            Ok(Start::State { .. }) if asked.parameter("resourceVersion").is_empty() => log.revision,
            Ok(Start::State { .. }) => asked.parameter("resourceVersion").parse().unwrap_or(0),
            // A watch from a future version waits without an answer.
            _ => 0,
        };
    }
    match Version::from_request(asked) {
        Ok(Version::NotOlder(revision)) => revision,
        _ => 0,
    }
}

/// All open watches of a server, by the order of their opening.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    next: u64,
    open: BTreeMap<u64, Watch>,
}

impl Watches {
    pub(crate) fn add(&mut self, watch: Watch) -> u64 {
        self.next += 1;
        self.open.insert(self.next, watch);
        self.next
    }

    pub(crate) fn send_change(&mut self, change: &Change) {
        self.open.retain(|_, watch| watch.send_change(change));
    }

    /// Sends a bookmark, if the watch is still there.
    pub(crate) fn bookmark(&mut self, id: u64, revision: u64) -> bool {
        let there = self.open.get(&id).is_some_and(|watch| !watch.bookmarks || watch.bookmark(revision));
        if !there {
            self.open.remove(&id);
        }
        there
    }

    /// Ends the watch properly.
    pub(crate) fn close(&mut self, id: u64) {
        self.open.remove(&id);
    }

    /// Disturbs the watches of a caller, or those of one kind.
    pub(crate) fn disturb(&mut self, caller: &str, kind: Option<&str>, how: Disturbance) {
        for id in self.of_caller(caller) {
            let Some(watch) = self.open.get_mut(&id) else { continue };
            if kind.is_some_and(|kind| watch.kind.kind != kind) {
                continue;
            }
            match how {
                Disturbance::Mute => watch.muted = true,
                Disturbance::Reset => watch.reset(),
                Disturbance::Close => {}
            }
            if how != Disturbance::Mute {
                self.close(id);
            }
        }
    }

    fn of_caller(&mut self, caller: &str) -> Vec<u64> {
        let own = self.open.iter().filter(|(_, watch)| &*watch.caller == caller);
        own.map(|(id, _)| *id).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    pub(crate) fn reset_all(&mut self) {
        for watch in std::mem::take(&mut self.open).values() {
            watch.reset();
        }
    }
}

/// The value of an event line, for checkers.
#[must_use]
pub fn parse_event(line: &[u8]) -> Option<(String, Value)> {
    let mut event: Value = serde_json::from_slice(line).ok()?;
    let kind = event.get("type")?.as_str()?.to_owned();
    Some((kind, event.get_mut("object")?.take()))
}
