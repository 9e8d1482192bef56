//! Routing: which request gets which answer.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use super::marks::{self, Lags};
use super::messages;
use super::objects::{self, Objects};
use super::stream::{Page, Watch};
use super::world::{Kind, Rendered, World};
use super::writes::{Change, Refused, Writes};
use crate::print_line;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The path of all pods.
pub(crate) const PODS: &str = "/api/v1/namespaces/load/pods";

/// Stops renewals of nodes, and returns how long after its last renewal each was marked. A real API server has no such path.
pub(crate) const STOPPED_PATH: &str = "/synthetic/silent";
pub(crate) const MARKED: &str = "/synthetic/marked";

/// The path of the leader's Lease.
const LEADERS: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

/// The duration of a watch without `timeoutSeconds`.
const DEFAULT_WATCH_TIMEOUT: Duration = Duration::from_secs(3_600);

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Serves until the process ends.
pub(crate) async fn run(listener: TcpListener, acceptor: TlsAcceptor, world: Arc<World>) -> Result<()> {
    let api = Api { world, began: Instant::now(), shared: Arc::default() };
    loop {
        let (stream, _) = listener.accept().await?;
        let (acceptor, api) = (acceptor.clone(), api.clone());
        tokio::spawn(async move {
            if let Err(error) = api.serve_connection(stream, acceptor).await {
                print_line(&format!("a connection ended: {error:#}"));
            }
        });
    }
}

#[derive(Clone)]
struct Api {
    world: Arc<World>,
    began: Instant,
    shared: Arc<SharedState>,
}

#[derive(Default)]
struct SharedState {
    lags: Lags,
    objects: Objects,
}

/// The query parameters.
type Query = BTreeMap<String, String>;

fn query(text: &str) -> Query {
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// The kind that a path names, and the object's name if it is one object.
fn of_path(path: &str) -> Option<(Kind, Option<&str>)> {
    let all = [
        ("/api/v1/nodes", Kind::Nodes),
        ("/api/v1/pods", Kind::Pods),
        (PODS, Kind::Pods),
        ("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", Kind::Leases),
    ];
    all.into_iter().find_map(|(prefix, kind)| match path.strip_prefix(prefix)? {
        "" => Some((kind, None)),
        name => Some((kind, Some(name.strip_prefix('/')?))),
    })
}

impl Api {
    async fn serve_connection(self, stream: TcpStream, acceptor: TlsAcceptor) -> Result<()> {
        stream.set_nodelay(true)?;
        let stream = TokioIo::new(acceptor.accept(stream).await?);
        let service = hyper::service::service_fn(|request| self.answer(request));
        Ok(hyper::server::conn::http1::Builder::new().serve_connection(stream, service).await?)
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let accepts = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let protobuf = accepts.contains(PROTOBUF);
        let query = query(request.uri().query().unwrap_or_default());
        let (path, method) = (request.uri().path().to_owned(), request.method().clone());
        Ok(match (&method, of_path(&path)) {
            (&Method::GET, Some((Kind::Nodes, Some(name)))) if !protobuf => self.node(name),
            (&Method::GET, Some(_)) if !protobuf => status(StatusCode::NOT_ACCEPTABLE, "NotAcceptable"),
            (&Method::GET, Some((kind, Some(name)))) => self.object(kind, name),
            (&Method::GET, Some((kind, None))) => self.collection(kind, &query),
            (&Method::GET, None) if path == MARKED => in_json(StatusCode::OK, &self.shared.lags.all()),
            (&Method::GET, None) if path.starts_with(LEADERS) => answered(self.shared.objects.read(&path)),
            (&Method::GET, None) => self.answer_other(&path, &query),
            (method, None) if path.starts_with(LEADERS) => {
                answered(self.shared.objects.write(method, &path, json_of(request.into_body()).await))
            }
            (_, None) if path == STOPPED_PATH => self.stop_renewing(&json_of(request.into_body()).await),
            (_, Some((Kind::Nodes, Some(name)))) => self.mark(name, &json_of(request.into_body()).await),
            (method, Some((Kind::Pods, Some(name)))) => {
                self.write(method == Method::DELETE, name, request.into_body(), protobuf).await
            }
            // Other writes succeed without effect. Access reviews are answered with allowed.
            _ => {
                let mut written = json_of(request.into_body()).await;
                if path.ends_with("accessreviews") {
                    written["status"] = json!({ "allowed": true });
                }
                in_json(StatusCode::CREATED, &written)
            }
        })
    }

    fn renewals(&self) -> usize {
        self.world.beats.count(self.began.elapsed())
    }

    fn object(&self, kind: Kind, name: &str) -> Response<Body> {
        let Some(number) = self.numbered(kind, name) else {
            return status(StatusCode::NOT_FOUND, "NotFound");
        };
        let mut made = Rendered::default();
        match kind {
            Kind::Pods => self.world.make_pod(number, self.world.pods_written.changed(number), &mut made),
            Kind::Nodes | Kind::Leases => self.world.make(kind, number, self.renewals(), &mut made),
        }
        self.whole(kind, number, &made)
    }

    /// The number of an existing object.
    fn numbered(&self, kind: Kind, name: &str) -> Option<usize> {
        let number = name.rsplit('-').next().and_then(|number| number.parse().ok());
        number.filter(|number| self.world.has(kind, *number))
    }

    /// A node, as read before a write.
    fn node(&self, name: &str) -> Response<Body> {
        let Some(number) = self.numbered(Kind::Nodes, name) else {
            return status(StatusCode::NOT_FOUND, "NotFound");
        };
        let (mut made, mut node) = (Rendered::default(), Vec::new());
        self.world.make(Kind::Nodes, number, 0, &mut made);
        self.world.template(Kind::Nodes, number).write(&made, &mut node);
        in_json(StatusCode::OK, &marks::in_json(&node).unwrap_or_default())
    }

    /// Marks a node as unreachable, with its version as a precondition. It has its taints from then on. Other writes change nothing.
    fn mark(&self, name: &str, patch: &Value) -> Response<Body> {
        let name = name.trim_end_matches("/status");
        let Some(node) = self.numbered(Kind::Nodes, name) else {
            return status(StatusCode::NOT_FOUND, "NotFound");
        };
        let (world, version) = (&self.world, &patch["metadata"]["resourceVersion"]);
        let after = world.nodes_written.changed(node);
        if version.as_str().is_some_and(|version| version != world.node_version(node).to_string()) {
            return status(StatusCode::CONFLICT, "Conflict");
        }
        if marks::marks(patch) && world.nodes_written.write(Change { number: node, removed: false }, after).is_ok() {
            let renewed = world.last_renewal(node, self.renewals()).and_then(|last| world.beats.due(last));
            self.shared.lags.marked(node, self.began.elapsed().saturating_sub(renewed.unwrap_or_default()));
        }
        self.node(name)
    }

    fn stop_renewing(&self, body: &Value) -> Response<Body> {
        match marks::stopped_nodes(body) {
            Ok(nodes) => {
                let renewals = self.renewals();
                nodes.into_iter().for_each(|node| self.world.stop_renewing(node, renewals));
                in_json(StatusCode::OK, &json!({}))
            }
            Err(error) => status(StatusCode::BAD_REQUEST, &error.to_string()),
        }
    }

    fn whole(&self, kind: Kind, number: usize, made: &Rendered) -> Response<Body> {
        let whole = messages::object(kind, self.world.template(kind, number), made);
        response(StatusCode::OK, PROTOBUF, Full::new(whole.into()).boxed_unsync())
    }

    /// Marks a pod Failed, or removes it, with the version as a precondition.
    async fn write(&self, removed: bool, name: &str, body: Incoming, protobuf: bool) -> Response<Body> {
        let (body, world) = (json_of(body).await, &self.world);
        let name = name.trim_end_matches("/status");
        let Some(pod) = name.strip_prefix("p-").and_then(|number| number.parse().ok()) else {
            return status(StatusCode::NOT_FOUND, "NotFound");
        };
        let named = &body[if removed { "preconditions" } else { "metadata" }]["resourceVersion"];
        let after = world.pods_written.changed(pod);
        if named.as_str() != Some(&world.version_of(pod, after).to_string()) {
            return status(StatusCode::CONFLICT, "Conflict");
        }
        match world.pods_written.write(Change { number: pod, removed }, after) {
            Err(Refused::NotFound) => status(StatusCode::NOT_FOUND, "NotFound"),
            Err(Refused::Conflict) => status(StatusCode::CONFLICT, "Conflict"),
            Ok(change) if protobuf => {
                let mut made = Rendered::default();
                world.make_pod(pod, Some(change), &mut made);
                self.whole(Kind::Pods, pod, &made)
            }
            Ok(change) => {
                let version = world.version(change).to_string();
                in_json(StatusCode::OK, &json!({ "metadata": { "name": name, "resourceVersion": version } }))
            }
        }
    }

    fn collection(&self, kind: Kind, query: &Query) -> Response<Body> {
        let number = |key: &str| query.get(key).and_then(|text| text.parse::<usize>().ok());
        let version = number("resourceVersion").filter(|version| *version > 0);
        let now = || self.world.written(kind).map_or_else(|| self.renewals(), Writes::count);
        let changes = version.map_or_else(now, |version| self.world.changes_at(version));
        let world = Arc::clone(&self.world);
        if query.contains_key("watch") {
            let lasts = number("timeoutSeconds").and_then(|seconds| u64::try_from(seconds).ok());
            let lasts = lasts.map_or(DEFAULT_WATCH_TIMEOUT, Duration::from_secs);
            let watch = Watch::new(world, self.began, kind, changes, lasts).stream();
            let streams = format!("{PROTOBUF};stream=watch");
            return response(StatusCode::OK, &streams, StreamBody::new(watch).boxed_unsync());
        }
        let from = number("continue").unwrap_or(0);
        let to = number("limit").map_or(usize::MAX, |limit| from + limit).min(world.count(kind));
        let page = Page { kind, changes, from: from.min(to), to };
        response(StatusCode::OK, PROTOBUF, StreamBody::new(page.stream(world)).boxed_unsync())
    }

    /// Other kinds have no objects.
    fn answer_other(&self, path: &str, query: &Query) -> Response<Body> {
        let version = self.world.version(self.renewals()).to_string();
        if path == "/version" {
            return in_json(StatusCode::OK, &json!({ "major": "1", "minor": "37", "gitVersion": "v1.37.2" }));
        }
        if query.contains_key("watch") {
            let nothing = futures::stream::pending::<Result<hyper::body::Frame<Bytes>, Infallible>>();
            return response(StatusCode::OK, "application/json", StreamBody::new(nothing).boxed_unsync());
        }
        // Names of resources are plural, names of objects mostly are not.
        if path.ends_with('s') {
            let list =
                json!({ "apiVersion": "v1", "kind": "List", "metadata": { "resourceVersion": version }, "items": [] });
            return in_json(StatusCode::OK, &list);
        }
        status(StatusCode::NOT_FOUND, "NotFound")
    }
}

async fn json_of(body: Incoming) -> Value {
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    serde_json::from_slice(&body).unwrap_or_default()
}

fn status(code: StatusCode, reason: &str) -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": reason,
        "message": reason, "code": code.as_u16(),
    });
    in_json(code, &status)
}

/// The response for an object that is stored as written.
fn answered(done: Result<Value, objects::ErrorStatus>) -> Response<Body> {
    match done {
        Ok(object) => in_json(StatusCode::OK, &object),
        Err((code, reason)) => status(code, reason),
    }
}

fn in_json(code: StatusCode, value: &Value) -> Response<Body> {
    response(code, "application/json", Full::new(value.to_string().into()).boxed_unsync())
}

fn response(code: StatusCode, content_type: &str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    if let Ok(value) = content_type.parse() {
        response.headers_mut().insert(CONTENT_TYPE, value);
    }
    response
}
