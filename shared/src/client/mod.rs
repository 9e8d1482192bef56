//! The connection to the API server.
//!
//! Duty: every request of this process goes through [`Connection`], which gives
//! it a deadline, counts it ([`audit`]) and refuses what the deletion authority
//! did not permit ([`guard`], lock 5 of the design). kube's own retries are off:
//! a request is sent once, and the next decision is the retry.

mod audit;
mod config;
mod guard;
mod request;
mod shape;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use tower::{BoxError, Service};

pub use audit::{Audit, NoAudit, RequestLine};
pub use config::{ConfigError, ConnectOptions};
pub use guard::{Guard, GuardRefusal};
pub use request::{ApiError, Call, Method};
pub use shape::{Resource, Shape};

use crate::clock::{Env, Mono};
use crate::metrics::ClientMetrics;
use crate::wire::{Encoding, Frames, Page, Raw};

/// The longest that one read may take. A page of 1,000 pods takes the API
/// server well under a second; beyond this it is in trouble and will not be
/// better for our waiting.
pub const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// The largest body that is read into memory: a page of the largest pods that
/// etcd accepts (1.5 MiB each) is never asked for in full, so this only bounds a
/// broken server.
const LARGEST_BODY: usize = 512 << 20;

/// A connection to one API server (or the load balancer before several).
#[derive(Clone)]
pub struct Connection {
    kube: kube::Client,
    env: Env,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl Connection {
    /// Connects by `options`. Sends nothing yet.
    ///
    /// # Errors
    /// The configuration cannot be found, read or used.
    pub async fn open(
        options: &ConnectOptions,
        env: Env,
        metrics: ClientMetrics,
    ) -> Result<Self, ConfigError> {
        // Chosen here, for rustls refuses to choose when a dependency brings a second one.
        drop(rustls::crypto::ring::default_provider().install_default());
        let config = config::load(options).await?;
        let builder = kube::client::ClientBuilder::try_from(config)
            .map_err(|source| ConfigError::Unusable { source })?;
        let watched = builder
            .with_layer(&audit::AuditLayer::new(env.clone(), metrics, Arc::new(NoAudit)))
            .with_layer(&guard::GuardLayer);
        Ok(Self { kube: watched.build(), env })
    }

    /// A connection over `service`, with the same layers: for simulators and tests.
    pub fn over<S, B>(service: S, env: Env, metrics: ClientMetrics, audit: Arc<dyn Audit>) -> Self
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
        Self { kube: builder.build(), env }
    }

    /// Sends `call` and reads the whole answer, within [`READ_TIMEOUT`] or the
    /// call's own deadline.
    ///
    /// # Errors
    /// The API server's refusal, or why there was no answer. After anything but
    /// [`ApiError::Refused`] and [`ApiError::Guard`] the outcome of a write is unknown.
    pub async fn send(&self, call: Call) -> Result<Raw, ApiError> {
        let (encoding, body) = self.exchange(call).await?;
        Raw::from_body(encoding, body).map_err(ApiError::Undecodable)
    }

    /// Sends the `call` of a list and reads one page.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub async fn page(&self, call: Call) -> Result<Page, ApiError> {
        let (encoding, body) = self.exchange(call).await?;
        Page::from_body(encoding, body).map_err(ApiError::Undecodable)
    }

    /// Opens a watch. The deadline covers the opening only.
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub async fn watch(&self, call: Call) -> Result<WatchStream, ApiError> {
        let deadline = call.deadline_from(self.env.now());
        let response = self.until(deadline, self.response(call.into_request()?)).await??;
        let (encoding, body) = opened(response)?;
        if let Some(refused) = body.refused {
            return Err(self.until(deadline, read_refusal(refused, encoding, body.body)).await?);
        }
        Ok(WatchStream { frames: Frames::new(encoding), body: body.body })
    }

    async fn exchange(&self, call: Call) -> Result<(Encoding, Bytes), ApiError> {
        let deadline = call.deadline_from(self.env.now());
        let request = call.into_request()?;
        let work = async {
            let (encoding, answer) = opened(self.response(request).await?)?;
            match answer.refused {
                Some(status) => Err(read_refusal(status, encoding, answer.body).await),
                None => Ok((encoding, collect(answer.body).await?)),
            }
        };
        self.until(deadline, work).await?
    }

    async fn until<T>(&self, deadline: Mono, work: impl Future<Output = T> + Send) -> Result<T, ApiError> {
        let start = self.env.now();
        let done = self.env.until(deadline, work).await;
        done.ok_or_else(|| ApiError::TimedOut { after: self.env.now().since(start) })
    }

    #[expect(clippy::disallowed_methods, reason = "the one place that sends a request")]
    async fn response(&self, request: Request<Body>) -> Result<Response<Body>, ApiError> {
        self.kube.send(request).await.map_err(ApiError::from_kube)
    }
}

struct Answer {
    refused: Option<http::StatusCode>,
    body: Body,
}

fn opened(response: Response<Body>) -> Result<(Encoding, Answer), ApiError> {
    let status = response.status();
    let content_type = response.headers().get(http::header::CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
    let encoding = Encoding::of(content_type);
    let refused = (!status.is_success()).then_some(status);
    match encoding {
        Some(encoding) => Ok((encoding, Answer { refused, body: response.into_body() })),
        // Proxies and overloaded API servers refuse in plain text.
        None if refused.is_some() => Ok((Encoding::Json, Answer { refused, body: response.into_body() })),
        None => Err(ApiError::ContentType(content_type.to_owned())),
    }
}

async fn collect(body: Body) -> Result<Bytes, ApiError> {
    let limited = http_body_util::Limited::new(body, LARGEST_BODY);
    limited.collect().await.map(http_body_util::Collected::to_bytes).map_err(ApiError::Body)
}

async fn read_refusal(code: http::StatusCode, encoding: Encoding, body: Body) -> ApiError {
    match collect(body).await {
        Ok(bytes) => ApiError::refused(code, encoding, bytes),
        Err(_unread) => ApiError::refused(code, encoding, Bytes::new()),
    }
}

/// An open watch.
#[derive(Debug)]
pub struct WatchStream {
    frames: Frames,
    body: Body,
}

impl WatchStream {
    /// The next event; `None` when the server has ended the watch in good order.
    ///
    /// # Errors
    /// The stream broke.
    pub async fn next(&mut self) -> Result<Option<crate::wire::Event>, ApiError> {
        loop {
            if let Some(event) = self.frames.next_event().map_err(ApiError::Undecodable)? {
                return Ok(Some(event));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(source)) => return Err(ApiError::from_kube(source)),
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.frames.push(data);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
