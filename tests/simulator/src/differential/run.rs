//! One side of a comparison: sends the requests, and records the answers.

use std::collections::{BTreeMap, BTreeSet};

use http::Request;
use http_body_util::BodyExt;
use kube::client::Body as KubeBody;
use serde_json::{Value, json};

use super::normal::Reply;
use super::operation::{Body, Operation};

/// An API server, real or simulated.
#[derive(Clone)]
pub struct Side {
    client: kube::Client,
    /// Whether its watch cache may be a moment behind its log.
    lags: bool,
}

impl std::fmt::Debug for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Side").field("lags", &self.lags).finish_non_exhaustive()
    }
}

/// The result of a watch from one version.
#[derive(Clone, Debug)]
pub struct WatchRun {
    /// The path and the parameters, without the version.
    pub target: String,
    /// The version, as the server names it; empty for watches that send the state.
    pub version: String,
    /// The events, in order.
    pub events: Vec<(String, Value)>,
    /// The code and body if it was refused.
    pub refused: Option<(u16, Value)>,
}

/// All answers of one side to a sequence.
#[derive(Clone, Debug, Default)]
pub struct Transcript {
    /// The name of the sequence.
    pub sequence: String,
    /// The answers, in order.
    pub replies: Vec<Reply>,
    /// The watches that were opened afterwards.
    pub watches: Vec<WatchRun>,
}

/// The results of earlier answers.
#[derive(Debug, Default)]
struct Memory {
    /// The versions of each object, by its path.
    objects: BTreeMap<String, Vec<Value>>,
    /// The continue token of the last list of each collection.
    tokens: BTreeMap<String, String>,
}

/// How long a real watch cache gets to receive a write.
const CATCH_UP: std::time::Duration = std::time::Duration::from_millis(60);

impl Side {
    /// A side that this client reaches. A real server `lags`.
    #[must_use]
    pub const fn new(client: kube::Client, lags: bool) -> Self {
        Self { client, lags }
    }

    /// Sends one request and reads the whole answer.
    #[expect(clippy::disallowed_methods, reason = "this is what sends requests to servers of the tests' own")]
    async fn send(&self, request: Option<Request<KubeBody>>) -> Reply {
        let Some(request) = request else { return Reply::without_answer("no such request") };
        let whole_cluster = !request.uri().path().contains("/namespaces/");
        let response = match self.client.send(request).await {
            Ok(response) => response,
            Err(error) => return Reply::without_answer(&format!("{error:?}")),
        };
        let (head, body) = response.into_parts();
        let bytes = match body.collect().await {
            Ok(collected) => collected.to_bytes(),
            Err(error) => return Reply::without_answer(&format!("{error:?}")),
        };
        let header = head.headers.get(http::header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after = header.map(str::to_owned);
        let body =
            serde_json::from_slice(&bytes).unwrap_or_else(|_error| json!(String::from_utf8_lossy(&bytes).into_owned()));
        Reply { code: head.status.as_u16(), retry_after, body, raw: bytes, whole_cluster }
    }

    /// Sends a request of a test; a merge patch if it is a PATCH.
    pub async fn request(&self, method: &str, target: &str, body: &Value) -> Reply {
        let media = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request::builder().method(method).uri(target).header("accept", "application/json");
        self.send(request.header("content-type", media).body(KubeBody::from(bytes)).ok()).await
    }

    /// Opens all watches at once and reads each to its end, so many seconds later.
    pub async fn watch(&self, targets: &[(String, String)], seconds: u32) -> Vec<WatchRun> {
        let runs = targets.iter().map(|(target, version)| self.watch_one(target, version, seconds));
        futures::future::join_all(runs).await
    }

    async fn watch_one(&self, target: &str, version: &str, seconds: u32) -> WatchRun {
        let mut uri = format!("{target}&watch=true&timeoutSeconds={seconds}");
        if !version.is_empty() {
            uri = format!("{uri}&resourceVersion={version}");
        }
        let request = Request::get(uri).header("accept", "application/json").body(KubeBody::empty()).ok();
        let reply = self.send(request).await;
        let (target, version) = (target.to_owned(), version.to_owned());
        if reply.code != 200 {
            return WatchRun { target, version, events: Vec::new(), refused: Some((reply.code, reply.body)) };
        }
        let lines = reply.raw.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        WatchRun { target, version, events: lines.filter_map(crate::api::parse_event).collect(), refused: None }
    }
}

/// A side in the middle of a sequence.
#[derive(Debug)]
pub struct Session<'a> {
    side: &'a Side,
    memory: Memory,
    transcript: Transcript,
}

impl<'a> Session<'a> {
    /// The beginning of a sequence.
    #[must_use]
    pub fn new(side: &'a Side, sequence: &str) -> Self {
        let transcript = Transcript { sequence: sequence.to_owned(), ..Transcript::default() };
        Self { side, memory: Memory::default(), transcript }
    }

    /// Sends the next request.
    pub async fn step(&mut self, operation: &Operation) {
        let cached = operation.method == "GET" && operation.query.contains("resourceVersion=");
        if self.side.lags && cached {
            tokio::time::sleep(CATCH_UP).await;
        }
        let request = self.memory.request(operation);
        let reply = self.side.send(request).await;
        self.memory.record(operation, &reply);
        self.transcript.replies.push(reply);
    }

    /// The answers so far.
    #[must_use]
    pub fn end(self) -> Transcript {
        self.transcript
    }
}

impl Memory {
    /// The version `back` before the newest of the object at `path`.
    fn object(&self, path: &str, back: usize) -> Option<&Value> {
        let versions = self.objects.get(path)?;
        versions.get(versions.len().saturating_sub(1 + back))
    }

    fn resolve(&self, text: &str, about: &str) -> Option<String> {
        let reference = text.strip_prefix('$')?;
        let (reference_kind, back) = reference.split_once(':').unwrap_or((reference, "0"));
        let object = self.object(about, back.parse().unwrap_or(0));
        let field = |name: &str| object.and_then(|object| object["metadata"][name].as_str()).map(str::to_owned);
        match reference_kind {
            "uid" => Some(field("uid").unwrap_or_else(|| "nobody".to_owned())),
            "rv" => Some(field("resourceVersion").unwrap_or_else(|| "1".to_owned())),
            _ => None,
        }
    }

    fn fill(&self, value: &mut Value, about: &str) {
        match value {
            Value::String(text) => {
                if let Some(resolved) = self.resolve(text, about) {
                    *text = resolved;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.fill(item, about)),
            Value::Object(map) => map.values_mut().for_each(|field| self.fill(field, about)),
            _ => {}
        }
    }

    fn request(&self, operation: &Operation) -> Option<Request<KubeBody>> {
        let pairs = operation.query.split('&').filter(|pair| !pair.is_empty());
        let query: Vec<String> = pairs
            .filter_map(|pair| {
                let (key, value) = pair.split_once('=')?;
                let value = match value {
                    "$continue" => self.tokens.get(&operation.path)?.clone(),
                    value => self.resolve(value, &operation.about).unwrap_or_else(|| value.to_owned()),
                };
                Some(format!("{key}={value}"))
            })
            .collect();
        let body = match &operation.body {
            Body::None => Vec::new(),
            Body::Garbage => b"{\"metadata\":".to_vec(),
            Body::Json(value) => {
                let mut value = value.clone();
                self.fill(&mut value, &operation.about);
                value.to_string().into_bytes()
            }
            Body::Stale { path, back, edit, otherwise } => {
                let mut object = self.object(path, *back).unwrap_or(otherwise).clone();
                crate::api::merge_patch(&mut object, edit);
                object.to_string().into_bytes()
            }
        };
        let uri =
            if query.is_empty() { operation.path.clone() } else { format!("{}?{}", operation.path, query.join("&")) };
        let mut request = Request::builder().method(operation.method).uri(uri).header("accept", "application/json");
        if operation.body != Body::None {
            request = request.header("content-type", operation.content_type);
        }
        request.body(KubeBody::from(body)).ok()
    }

    fn record(&mut self, operation: &Operation, reply: &Reply) {
        let metadata = &reply.body["metadata"];
        if operation.method == "GET"
            && let Some(token) = metadata["continue"].as_str()
        {
            self.tokens.insert(operation.path.clone(), token.to_owned());
        }
        let stored = reply.code < 300
            && metadata["uid"].is_string()
            && !operation.query.contains("dryRun")
            && reply.body["kind"] != "Scale";
        if stored && !operation.about.is_empty() {
            let mut object = reply.body.clone();
            if let Some(metadata) = object["metadata"].as_object_mut() {
                // Sent again, old field ownership would be a change of its own.
                metadata.remove("managedFields");
            }
            let versions = self.objects.entry(operation.about.clone()).or_default();
            if versions.last() != Some(&object) {
                versions.push(object);
            }
        }
    }
}

impl Transcript {
    /// The versions from which watches are opened: all that were seen since the
    /// sequence's namespaces were made. (Answers to dry runs carry any version.)
    #[must_use]
    pub fn watch_versions(&self) -> Vec<u64> {
        let first = self.replies.first().and_then(|reply| reply.body["metadata"]["resourceVersion"].as_str());
        let first: u64 = first.and_then(|text| text.parse().ok()).unwrap_or(0);
        self.versions().into_iter().filter(|version| *version >= first).collect()
    }

    /// The versions of objects that were seen, as the server names them.
    #[must_use]
    pub fn versions(&self) -> Vec<u64> {
        let mut versions = BTreeSet::new();
        for reply in &self.replies {
            super::normal::versions_of(&self.sequence, &reply.body, &mut versions);
        }
        for (_, object) in self.watches.iter().flat_map(|watch| &watch.events) {
            super::normal::versions_of(&self.sequence, object, &mut versions);
        }
        versions.into_iter().collect()
    }
}
