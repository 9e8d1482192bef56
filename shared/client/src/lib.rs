//! The connection to the API server: the only crate that has kube's client.
//!
//! Every request of this process goes through [`Connection`], which sets a deadline, counts the request ([`Audit`]),
//! refuses what the deletion authority did not permit ([`Guard`]), and limits the rate of writes.
//!
//! Inputs: a kubeconfig or the ServiceAccount of a pod ([`ConnectOptions`]), and a [`Call`] for each request.
//!
//! Invariants:
//! - A request is sent once, and the next decision is the retry. Only a request that was answered with 401 because its
//!   credentials expired is sent a second time, and a read of a command after `Retry-After`
//!   ([`Connection::with_read_retries`]).
//! - Any crate can read. Only a crate that depends on this one can write, by [`WriteCall`], or read a Secret, by [`read_secret`]:
//!   `pod-safety-shared` re-exports the rest of this crate without these two (`tests/locks/tests/manifests.rs`).
#![forbid(unsafe_code)]

mod audit;
mod cause;
mod config;
mod guard;
mod kubeconfig;
mod login;
mod metrics;
mod pace;
mod proxy;
mod request;
mod route;
#[cfg(any(test, feature = "testing"))]
#[expect(missing_docs, clippy::unwrap_used, clippy::panic, reason = "test support, in which each name is its sentence")]
pub mod scripted;
mod stream;
mod tls;

use std::error::Error;
use std::ffi::OsString;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::Value;
use tower::{BoxError, Service};
use zeroize::Zeroizing;

pub use audit::{Audit, NoAudit, RequestLine};
pub use config::{ConfigError, ConnectOptions, Prefer, Target};
pub use guard::Guard;
pub use metrics::{ClientMetrics, registered};
pub use pace::{MAX_WRITE_SLOTS, OnReadPause, WriteSlot};
use pace::{WritePacer, retry_after};
pub use pod_safety_proof::{GuardRefusal, Resource, Shape};
pub use request::{ApiError, Call, Method, WriteCall, page_path};
pub use stream::{ListStream, WatchStream};

use pod_safety_clock::{Env, Mono};
use pod_safety_wire::{Encoding, Raw, WireError};

/// The page size of [`Connection::for_each_item`]. All Machines of a large cluster would exceed the maximum size of one
/// answer, and so would the NodeFences and FenceEvidences of several years.
const PAGE: usize = 500;

/// The longest time that one read may take. A page of 1,000 pods takes the API server well under a second; if a read takes
/// longer than this, the API server has a problem, and waiting does not help.
pub const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// The longest pause after a refusal with `Retry-After`. API Priority and Fairness requests one second; without this limit,
/// a proxy that requests a day would delay the removal of pods for a day.
const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// The largest body that is read into memory: one object, which etcd limits to 1.5 MiB. A larger body is a defect of the
/// server. Lists and watches are read as streams.
const MAX_BODY: usize = 16 << 20;

/// The version and the clock of an API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// The version; empty if the answer has none.
    pub version: String,
    /// The server's time, from the header `Date`.
    pub date: Option<jiff::Timestamp>,
}

type ClientFactory = Arc<dyn Fn() -> kube::Client + Send + Sync>;

/// A connection to one API server (or the load balancer before several).
#[derive(Clone)]
pub struct Connection {
    kube: kube::Client,
    /// Creates another client with its own TCP connections.
    new_client: ClientFactory,
    env: Env,
    target: Arc<Target>,
    request_timeout: Duration,
    pace: WritePacer,
    /// Reads are sent again when the API server asks for that, and this is called before each pause.
    on_read_pause: Option<OnReadPause>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl Connection {
    /// Opens a connection by `options`. It sends nothing yet.
    ///
    /// # Errors
    /// The configuration cannot be found, read or used.
    pub async fn open(options: &ConnectOptions, env: Env, metrics: ClientMetrics) -> Result<Self, ConfigError> {
        Self::open_with(options, env, metrics, &|name| std::env::var_os(name)).await
    }

    async fn open_with(
        options: &ConnectOptions,
        env: Env,
        metrics: ClientMetrics,
        variable: &(dyn Fn(&str) -> Option<OsString> + Sync),
    ) -> Result<Self, ConfigError> {
        // The provider is set here, because rustls panics without an explicit choice if a dependency adds a second provider.
        drop(rustls::crypto::ring::default_provider().install_default());
        let config::ResolvedConfig { route, target, namespace } =
            config::load(options, &config::ProcessEnv { env: &env, variable }).await?;
        let audit = audit::AuditLayer::new(env.clone(), metrics, Arc::new(NoAudit));
        let new_client: ClientFactory = Arc::new(move || {
            let builder = kube::client::ClientBuilder::new(route.isolated(), namespace.clone());
            builder.with_layer(&audit).with_layer(&guard::GuardLayer).build()
        });
        let kube = new_client();
        let request_timeout = options.request_timeout.unwrap_or(READ_TIMEOUT);
        let pace = WritePacer::new(env.now());
        Ok(Self { kube, new_client, env, target: Arc::new(target), request_timeout, pace, on_read_pause: None })
    }

    /// The same target with its own TCP connections. A TCP connection belongs to the runtime in which it was opened: a task
    /// with its own runtime must not share one with tasks of another runtime.
    #[must_use]
    pub fn isolated(&self) -> Self {
        Self { kube: (self.new_client)(), ..self.clone() }
    }

    /// A connection over `service`, with the same layers, for simulators and tests.
    pub fn from_service<S, B>(service: S, env: Env, metrics: ClientMetrics, audit: Arc<dyn Audit>) -> Self
    where
        S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let builder = kube::client::ClientBuilder::new(service, "default")
            .with_layer(&audit::AuditLayer::new(env.clone(), metrics, audit))
            .with_layer(&guard::GuardLayer);
        let (kube, pace) = (builder.build(), WritePacer::new(env.now()));
        let (same, target) = (kube.clone(), Arc::default());
        let new_client: ClientFactory = Arc::new(move || same.clone());
        Self { kube, new_client, env, target, request_timeout: READ_TIMEOUT, pace, on_read_pause: None }
    }

    /// The same connection for a command: a read that the API server answers with `Retry-After` is sent again, as by
    /// client-go. No controller uses this: its next decision is the retry.
    #[must_use]
    pub fn with_read_retries(self, on_read_pause: OnReadPause) -> Self {
        Self { on_read_pause: Some(on_read_pause), ..self }
    }

    /// The default namespace: that of the kubeconfig's context, or of the pod.
    #[must_use]
    pub fn default_namespace(&self) -> &str {
        self.kube.default_namespace()
    }

    /// The cluster.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The deadline of `call`.
    fn deadline(&self, call: &Call) -> Mono {
        call.deadline_from(self.env.now(), self.request_timeout)
    }

    /// Sends `call` and reads the whole answer, within [`READ_TIMEOUT`] or the call's own deadline.
    ///
    /// # Errors
    /// The API server's refusal, or why there was no answer. After any error except [`ApiError::Refused`] and
    /// [`ApiError::Guard`] the outcome of a write is unknown.
    pub async fn send(&self, call: Call) -> Result<Raw, ApiError> {
        let (deadline, is_eviction) = (self.deadline(&call), call.is_eviction());
        let write = call.is_write().then(|| self.pace.begin_write(self.env.now()));
        let work = async {
            let (encoding, body) = self.open_answer(call).await?;
            Raw::from_body(encoding, collect(body).await?).map_err(ApiError::Undecodable)
        };
        let answer = self.timeout_at(deadline, work).await?;
        if let Err(error @ ApiError::Refused { code: 429, .. }) = &answer
            && !is_eviction
        {
            self.pace.back_off_until(self.env.now() + error.retry_after().min(MAX_BACKOFF));
        }
        if let Some(write) = write.filter(|_| answer.is_ok()) {
            write.finish(self.env.now());
        }
        answer
    }

    /// Waits while the API server is overloaded and requested a pause. Urgent requests do not call this.
    pub async fn wait_backoff(&self) {
        self.pace.wait_backoff(&self.env).await;
    }

    /// Waits for the pause, and for a write slot. There are fewer slots when the API server answers slowly.
    pub async fn acquire_slot(&self) -> WriteSlot {
        self.pace.acquire_slot(&self.env).await
    }

    /// Reads every object of a list with all of its fields, page by page, by quorum, and passes each to `visit`.
    ///
    /// # Errors
    /// As [`Connection::send`]. The objects that were read before the error were passed to `visit`.
    pub async fn for_each_item(&self, all: &str, visit: &mut (dyn FnMut(Value) + Send)) -> Result<(), ApiError> {
        let mut token = String::new();
        loop {
            let raw = self.send(Call::get(page_path(all, Some(PAGE), &token)).all_fields()).await?;
            let mut page = raw.to_json().map_err(ApiError::Undecodable)?;
            if let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) {
                items.into_iter().for_each(&mut *visit);
            }
            page["metadata"]["continue"].as_str().unwrap_or_default().clone_into(&mut token);
            if token.is_empty() {
                return Ok(());
            }
        }
    }

    /// Reads a list in one request, with all fields of its objects.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub async fn list_items(&self, path: &str) -> Result<Vec<Value>, ApiError> {
        let mut list = self.send(Call::get(path).all_fields()).await?.to_json().map_err(ApiError::Undecodable)?;
        Ok(match list.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        })
    }

    /// Reads plain text, such as the log of a container.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub async fn read_text(&self, path: &str) -> Result<String, ApiError> {
        let call = Call::get(path).all_fields();
        let deadline = self.deadline(&call);
        let request = call.into_request()?;
        let work = async {
            let response = self.response(request, deadline).await?;
            if let Some(refused) = RefusalHead::from_response(&response) {
                return Err(self.read_refusal(refused, Encoding::Json, response.into_body()).await);
            }
            let bytes = collect(response.into_body()).await?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        self.timeout_at(deadline, work).await?
    }

    /// Reads the API server's version, and its time to the second.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub async fn server_info(&self) -> Result<ServerInfo, ApiError> {
        let call = Call::get("/version").all_fields();
        let deadline = self.deadline(&call);
        let request = call.into_request()?;
        let work = async {
            let response = self.response(request, deadline).await?;
            let date = response.headers().get(http::header::DATE).and_then(|date| date.to_str().ok());
            let date = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok()).map(|at| at.timestamp());
            let (encoding, answer) = open_response(response)?;
            let body = collect(answer.body).await?;
            let read = Raw::from_body(encoding, body.clone()).and_then(|raw| raw.to_json());
            let whole = match (read, answer.refused) {
                // A client that may not read the version has reached the server, and gets its time.
                (Ok(whole), None) => whole,
                (Ok(whole), Some(refused)) if refused.code != http::StatusCode::UNAUTHORIZED => whole,
                (_, Some(refused)) => return Err(ApiError::from_status(refused, encoding, body, &self.target)),
                (Err(error), None) => return Err(ApiError::Undecodable(error)),
            };
            let version = whole["gitVersion"].as_str().unwrap_or_default().to_owned();
            Ok(ServerInfo { version, date })
        };
        self.timeout_at(deadline, work).await?
    }

    /// Opens a list. The deadline covers the opening only: the caller must limit the reading, too.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub async fn list(&self, call: Call) -> Result<ListStream, ApiError> {
        let (encoding, body) = self.open_answer(call).await?;
        Ok(ListStream::new(encoding, body))
    }

    /// Opens a watch. The deadline covers the opening only.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub async fn watch(&self, call: Call) -> Result<WatchStream, ApiError> {
        let (encoding, body) = self.open_answer(call).await?;
        Ok(WatchStream::new(encoding, body))
    }

    /// Waits for the head of an answer, and for the body if it is a refusal.
    async fn open_answer(&self, call: Call) -> Result<(Encoding, Body), ApiError> {
        let deadline = self.deadline(&call);
        let request = call.into_request()?;
        let work = async {
            let (encoding, answer) = open_response(self.response(request, deadline).await?)?;
            match answer.refused {
                Some(status) => Err(self.read_refusal(status, encoding, answer.body).await),
                None => Ok((encoding, answer.body)),
            }
        };
        self.timeout_at(deadline, work).await?
    }

    async fn read_refusal(&self, refused: RefusalHead, encoding: Encoding, body: Body) -> ApiError {
        let bytes = collect(body).await.unwrap_or_default();
        ApiError::from_status(refused, encoding, bytes, &self.target)
    }

    async fn timeout_at<T>(&self, deadline: Mono, work: impl Future<Output = T> + Send) -> Result<T, ApiError> {
        let start = self.env.now();
        let done = self.env.timeout_at(deadline, work).await;
        done.ok_or_else(|| ApiError::TimedOut { after: self.env.now().since(start) })
    }

    /// The answer to `request`. Boxed: it is a part of the futures of controllers, which are large on a thread's stack.
    fn response(&self, request: Request<Body>, deadline: Mono) -> BoxFuture<'_, Result<Response<Body>, ApiError>> {
        match &self.on_read_pause {
            Some(on_pause) if request.method() == http::Method::GET => {
                let head = request.into_parts().0;
                let send = move || self.send_once(Request::from_parts(head.clone(), Body::empty()));
                Box::pin(pace::read_again(&self.env, deadline, on_pause, send))
            }
            _ => Box::pin(self.send_once(request)),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "the one place that sends a request")]
    async fn send_once(&self, request: Request<Body>) -> Result<Response<Body>, ApiError> {
        self.kube.send(request).await.map_err(|error| ApiError::from_kube(error, &self.target))
    }
}

/// Reads an object that contains secrets, as JSON. The returned buffer is zeroed when it is dropped.
///
/// Danger note: the buffers of HTTP and TLS are not zeroed.
///
/// # Errors
/// As [`Connection::send`].
pub async fn read_secret(connection: &Connection, path: &str) -> Result<Zeroizing<Vec<u8>>, ApiError> {
    let call = Call::get(path).all_fields();
    let deadline = connection.deadline(&call);
    let work = async {
        let (encoding, body) = connection.open_answer(call).await?;
        if encoding != Encoding::Json {
            return Err(ApiError::Undecodable(WireError::NotJson));
        }
        let mut body = http_body_util::Limited::new(body, MAX_BODY);
        let mut pieces = Vec::new();
        while let Some(frame) = body.frame().await {
            pieces.extend(frame.map_err(ApiError::Body)?.into_data());
        }
        // One allocation: a vector that grows would leave copies in freed memory.
        let mut whole = Zeroizing::new(Vec::with_capacity(pieces.iter().map(Bytes::len).sum()));
        pieces.iter().for_each(|piece| whole.extend_from_slice(piece));
        Ok(whole)
    };
    connection.timeout_at(deadline, work).await?
}

struct Answer {
    refused: Option<RefusalHead>,
    body: Body,
}

/// The head of a refusal.
#[derive(Default)]
pub(crate) struct RefusalHead {
    code: http::StatusCode,
    /// The header `Retry-After`, which an overloaded API server sends with a plain text.
    retry_after: Option<Duration>,
    /// The header `Location` without its query, which may hold secrets.
    location: Option<String>,
}

impl RefusalHead {
    fn from_response(response: &Response<Body>) -> Option<Self> {
        let retry_after = retry_after(response).filter(|pause| !pause.is_zero());
        let location = response.headers().get(http::header::LOCATION).and_then(|value| value.to_str().ok());
        let location = location.and_then(|url| url.split('?').next()).map(str::to_owned);
        let code = response.status();
        (!code.is_success()).then_some(Self { code, retry_after, location })
    }
}

fn open_response(response: Response<Body>) -> Result<(Encoding, Answer), ApiError> {
    let refused = RefusalHead::from_response(&response);
    let content_type = response.headers().get(http::header::CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
    let encoding = Encoding::from_content_type(content_type);
    match encoding {
        Some(encoding) => Ok((encoding, Answer { refused, body: response.into_body() })),
        // Proxies and overloaded API servers refuse in plain text.
        None if refused.is_some() => Ok((Encoding::Json, Answer { refused, body: response.into_body() })),
        None => Err(ApiError::ContentType(content_type.to_owned())),
    }
}

async fn collect(body: Body) -> Result<Bytes, ApiError> {
    let limited = http_body_util::Limited::new(body, MAX_BODY);
    limited.collect().await.map(http_body_util::Collected::to_bytes).map_err(ApiError::Body)
}

/// An error with its causes in one line, without repetitions.
#[must_use]
pub fn error_chain(error: &(dyn Error + 'static)) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        // Some libraries repeat their cause in their own text.
        if !line.contains(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
        source = cause.source();
    }
    // Parsers draw the position of an error below their message.
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod corpus;
#[cfg(test)]
mod tests;
