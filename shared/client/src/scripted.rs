//! An API server that a test scripts as a closure: it receives every request as it is sent, and determines the answer and
//! its delay.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::channel::mpsc;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use jiff::Timestamp;
use kube::client::Body;
use parking_lot::Mutex;
use prometheus::Registry;
use serde_json::{Value, json};
use tower::BoxError;

use crate::{ClientMetrics, Connection, NoAudit};
use pod_safety_clock::{Clock, Env, Mono, Spawner, Task};
use pod_safety_proof::Permit;

/// One request as it was sent.
#[derive(Clone, Debug)]
pub struct Received {
    pub at: Mono,
    pub method: String,
    pub path: String,
    pub query: String,
    pub body: String,
    pub content_type: String,
    pub permitted: bool,
}

impl Received {
    /// Method and path.
    pub fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    pub fn is_watch(&self) -> bool {
        self.query.contains("watch=true")
    }

    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value)
    }
}

pub struct Answer {
    code: u16,
    content_type: &'static str,
    retry_after: Option<u64>,
    date: Option<&'static str>,
    body: BoxBody<Bytes, BoxError>,
    delay: Duration,
    fails: bool,
}

impl Answer {
    fn new(code: u16, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        let body = Full::new(body.into()).map_err(Into::into).boxed();
        Self { code, content_type, retry_after: None, date: None, body, delay: Duration::ZERO, fails: false }
    }

    pub fn json(value: &Value) -> Self {
        Self::new(200, "application/json", value.to_string())
    }

    pub fn with_code(code: u16, value: &Value) -> Self {
        Self::new(code, "application/json", value.to_string())
    }

    pub fn status(code: u16, reason: &str, message: &str) -> Self {
        let body = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message });
        Self::new(code, "application/json", body.to_string())
    }

    pub fn not_found() -> Self {
        Self::status(404, "NotFound", "not found")
    }

    pub fn plain(code: u16, text: &'static str) -> Self {
        Self::new(code, "text/plain", text)
    }

    /// 200, with the content type of JSON and a body that is not JSON.
    pub fn garbage() -> Self {
        Self::new(200, "application/json", "]")
    }

    /// A watch that ends normally without an event.
    pub fn empty_watch() -> Self {
        Self::new(200, "application/json", "")
    }

    pub fn with_retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// With this header `Date`, as in RFC 2822.
    pub fn with_date(mut self, date: &'static str) -> Self {
        self.date = Some(date);
        self
    }

    pub fn broken() -> Self {
        Self { fails: true, ..Self::new(500, "", "") }
    }

    pub fn never() -> Self {
        Self::new(500, "", "").delayed(Duration::from_secs(1_000_000_000))
    }

    pub fn delayed(mut self, late: Duration) -> Self {
        self.delay = late;
        self
    }

    /// A watch whose events the test sends.
    pub fn stream() -> (Events, Self) {
        let (sender, receiver) = mpsc::unbounded::<Result<Bytes, BoxError>>();
        let body = BodyExt::boxed(StreamBody::new(SyncStream(Mutex::new(receiver)).map(|part| part.map(Frame::data))));
        let answer = Self { body, ..Self::new(200, "application/json", "") };
        (Events(sender), answer)
    }
}

/// Makes a receiver `Sync`. It is not shared.
struct SyncStream(Mutex<mpsc::UnboundedReceiver<Result<Bytes, BoxError>>>);

impl futures::Stream for SyncStream {
    type Item = Result<Bytes, BoxError>;
    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.0.lock().poll_next_unpin(context)
    }
}

/// The server's end of a watch. Dropping it ends the watch normally.
#[derive(Clone, Debug)]
pub struct Events(mpsc::UnboundedSender<Result<Bytes, BoxError>>);

impl Events {
    pub fn send(&self, kind: &str, object: &Value) {
        self.send_text(&format!("{}\n", json!({ "type": kind, "object": object })));
    }

    pub fn send_text(&self, text: &str) {
        // The reader may be gone: then the event is dropped.
        drop(self.0.unbounded_send(Ok(Bytes::copy_from_slice(text.as_bytes()))));
    }

    pub fn bookmark(&self, version: &str) {
        self.send("BOOKMARK", &json!({ "metadata": { "resourceVersion": version } }));
    }

    pub fn break_off(self) {
        drop(self.0.unbounded_send(Err("connection reset".into())));
    }
}

type Script = Arc<dyn Fn(Received) -> BoxFuture<'static, Answer> + Send + Sync>;

#[derive(Clone)]
pub struct Api {
    script: Script,
    env: Env,
    requests: Arc<Mutex<Vec<Received>>>,
}

impl Api {
    /// A server that calls `script` when a request arrives.
    pub fn new<F>(env: &Env, script: impl Fn(Received) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        let script: Script = Arc::new(move |request| Box::pin(script(request)));
        Self { script, env: env.clone(), requests: Arc::default() }
    }

    /// A server that answers without delay.
    pub fn answering(env: &Env, script: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> Self {
        Self::new(env, move |request| std::future::ready(script(&request)))
    }

    pub fn connection(&self) -> Connection {
        self.connection_with(&metrics())
    }

    pub fn connection_with(&self, metrics: &ClientMetrics) -> Connection {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| api.clone().answer(request));
        Connection::from_service(service, self.env.clone(), metrics.clone(), Arc::new(NoAudit))
    }

    pub fn requests(&self) -> Vec<Received> {
        self.requests.lock().clone()
    }

    pub fn lines(&self) -> Vec<String> {
        self.requests.lock().iter().map(Received::line).collect()
    }

    pub fn writes(&self) -> Vec<String> {
        self.requests.lock().iter().filter(|request| request.method != "GET").map(Received::line).collect()
    }

    async fn answer(self, request: Request<Body>) -> Result<Response<BoxBody<Bytes, BoxError>>, BoxError> {
        let (head, body) = request.into_parts();
        let header = head.headers.get(http::header::CONTENT_TYPE).map(|value| value.to_str().unwrap().to_owned());
        let received = Received {
            at: self.env.now(),
            method: head.method.to_string(),
            path: head.uri.path().to_owned(),
            query: head.uri.query().unwrap_or_default().to_owned(),
            body: String::from_utf8(body.collect_bytes().await?.to_vec())?,
            content_type: header.unwrap_or_default(),
            permitted: head.extensions.get::<Permit>().is_some(),
        };
        self.requests.lock().push(received.clone());
        let answer = (self.script)(received).await;
        self.env.sleep(answer.delay).await;
        if answer.fails {
            return Err("connection refused".into());
        }
        let mut response = Response::builder().status(answer.code).header("content-type", answer.content_type);
        if let Some(seconds) = answer.retry_after {
            response = response.header("retry-after", seconds);
        }
        if let Some(date) = answer.date {
            response = response.header("date", date);
        }
        Ok(response.body(answer.body)?)
    }
}

/// A name, the answer, and the name of the outcome.
type Failure = (&'static str, fn() -> Answer, &'static str);

/// Each way in which a write can fail, and the outcome. Code that sends requests is tested with all of them.
pub const FAILURES: [Failure; 12] = [
    ("404", Answer::not_found, "gone"),
    ("404 of a proxy", || Answer::plain(404, "404 page not found"), "failed"),
    ("409", || Answer::status(409, "Conflict", "the object has been modified"), "changed"),
    ("409 of a precondition", || Answer::status(409, "Conflict", "Precondition failed: UID"), "changed"),
    (
        "422 of the uid",
        || Answer::status(422, "Invalid", "Pod \"a\" is invalid: metadata.uid: Invalid value: field is immutable"),
        "changed",
    ),
    ("422 of something else", || Answer::status(422, "Invalid", "status.phase: no"), "failed"),
    ("403", || Answer::status(403, "Forbidden", "no"), "failed"),
    ("429", || Answer::plain(429, "slow down").with_retry_after(7), "failed"),
    ("500", || Answer::status(500, "InternalError", "etcd"), "failed"),
    ("no answer", Answer::never, "failed"),
    ("a broken connection", Answer::broken, "failed"),
    ("an unreadable answer", Answer::garbage, "failed"),
];

/// A wall clock that a test sets; monotonic time is tokio's.
pub struct SetWall {
    real: Arc<dyn Clock>,
    wall: Mutex<Timestamp>,
}

impl SetWall {
    pub fn set(&self, wall: &str) {
        *self.wall.lock() = wall.parse().unwrap();
    }
}

impl Clock for SetWall {
    fn mono(&self) -> Mono {
        self.real.mono()
    }
    fn wall(&self) -> Timestamp {
        *self.wall.lock()
    }
    fn sleep_until(&self, deadline: Mono) -> Task {
        self.real.sleep_until(deadline)
    }
}

/// An environment whose wall clock stands at noon until a test sets it.
pub fn env() -> (Env, Arc<SetWall>) {
    let real = Env::real(1);
    let wall = Mutex::new("2026-11-21T12:00:00Z".parse().unwrap());
    let clock = Arc::new(SetWall { real: Arc::clone(&real.clock), wall });
    let spawner = Arc::new(OneThread(real.spawner));
    (Env { clock: Arc::<SetWall>::clone(&clock), spawner, rng: real.rng }, clock)
}

/// Spawns all tasks on the thread of the test, so that they share its clock.
struct OneThread(Arc<dyn Spawner>);

impl Spawner for OneThread {
    fn spawn(&self, name: &'static str, task: Task) {
        self.0.spawn(name, task);
    }
}

/// Runs all tasks that need no time, and lets `seconds` pass.
pub async fn advance(seconds: f64) {
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
}

/// A server that must not receive a request.
pub fn unused(env: &Env) -> Api {
    Api::new(env, |request| async move { panic!("unexpected request: {request:?}") })
}

/// The answer for a method, a path with its query, and a body.
pub type AnswerFn = dyn Fn(&str, &str, &[u8]) -> (u16, Value) + Send + Sync;

/// A connection to an API server that answers in this way without delay.
#[must_use]
pub fn connection(env: &Env, respond: Arc<AnswerFn>) -> Connection {
    let service = tower::service_fn(move |request: Request<Body>| {
        let respond = Arc::clone(&respond);
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            let (code, value) = respond(head.method.as_str(), &head.uri.to_string(), &body);
            let body = Full::new(Bytes::from(value.to_string()));
            let mut answer = Response::builder().status(code).header("content-type", "application/json");
            // As the API server does.
            if let Some(seconds) = value["details"]["retryAfterSeconds"].as_u64() {
                answer = answer.header("retry-after", seconds);
            }
            Ok::<_, BoxError>(answer.body(body)?)
        }
    });
    Connection::from_service(service, env.clone(), metrics(), Arc::new(NoAudit))
}

fn metrics() -> ClientMetrics {
    ClientMetrics::register(&Registry::new()).unwrap()
}
