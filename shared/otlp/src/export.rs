//! Requests to the collector.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use http::{Request, Response};
use http_body_util::Full;
use pod_safety_clock::Env;
use pod_safety_http1::{Connection, ExchangeError};
use prost::Message as _;
use tokio::net::TcpStream;

use super::endpoint::Endpoint;
use super::message::{
    ExportTraceServiceRequest, ExportTraceServiceResponse, InstrumentationScope, KeyValue, Resource, ResourceSpans,
    ScopeSpans, WireSpan,
};
use super::span::Span;

/// The default of `OTEL_EXPORTER_OTLP_TIMEOUT`.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A response has a few bytes; a longer one, such as an error page of a proxy, is truncated.
const MAX_RESPONSE_SIZE: usize = 64 << 10;

/// The process that exports, by OpenTelemetry's resource attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// `service.name`.
    pub name: &'static str,
    /// `service.version`.
    pub version: &'static str,
    /// `service.instance.id`.
    pub instance: String,
}

/// What the collector accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportResponse {
    /// How many spans it rejected while it accepted the others.
    pub rejected: u64,
    /// The collector's message.
    pub message: String,
}

/// Why spans were not exported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// The connection failed or broke.
    #[error("{0}")]
    Unreachable(String),
    /// There was no response in time.
    #[error("no answer within {}s", TIMEOUT.as_secs())]
    TimedOut,
    /// The collector rejected the request.
    #[error("the collector answered {code}: {said}")]
    Refused {
        /// The HTTP code.
        code: u16,
        /// The beginning of the response.
        said: String,
        /// The header `Retry-After` in seconds, or zero.
        retry_after: u64,
    },
}

impl ExportError {
    /// Whether the same request may be accepted later (OTLP: 429, 502, 503, 504).
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::TimedOut => true,
            Self::Refused { code, .. } => matches!(code, 429 | 502..=504),
        }
    }

    /// The pause that the collector requested, or zero.
    #[must_use]
    pub const fn retry_after(&self) -> Duration {
        match self {
            Self::Refused { retry_after, .. } => Duration::from_secs(*retry_after),
            Self::Unreachable(_) | Self::TimedOut => Duration::ZERO,
        }
    }
}

/// Posts spans. Each request uses a new connection: incidents are rare, and the collector may have been replaced in
/// between.
#[derive(Clone, Debug)]
pub struct Exporter {
    env: Env,
    endpoint: Endpoint,
    service: Service,
}

impl Exporter {
    /// An exporter for this endpoint.
    #[must_use]
    pub const fn new(env: Env, endpoint: Endpoint, service: Service) -> Self {
        Self { env, endpoint, service }
    }

    /// The address of the collector.
    #[must_use]
    pub const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Posts these spans once.
    ///
    /// # Errors
    /// Why they were not accepted; [`ExportError::is_retryable`] tells whether to retry.
    pub async fn export(&self, spans: &[Span]) -> Result<ExportResponse, ExportError> {
        let deadline = self.env.now() + TIMEOUT;
        let posted = self.env.timeout_at(deadline, self.post(self.request(spans))).await;
        let response = posted.unwrap_or(Err(ExportError::TimedOut))?;
        if !response.status().is_success() {
            let said = super::sanitize_text(&String::from_utf8_lossy(response.body()));
            let retry_after = response.headers().get(RETRY_AFTER).and_then(|after| after.to_str().ok());
            let retry_after = retry_after.and_then(|seconds| seconds.trim().parse::<u64>().ok()).unwrap_or(0);
            return Err(ExportError::Refused { code: response.status().as_u16(), said, retry_after });
        }
        // Some collectors respond with JSON, or with nothing: the spans were accepted.
        let answer = ExportTraceServiceResponse::decode(response.into_body()).unwrap_or_default();
        let partial = answer.partial_success.unwrap_or_default();
        Ok(ExportResponse {
            rejected: u64::try_from(partial.rejected_spans).unwrap_or(0),
            message: super::sanitize_text(&partial.error_message),
        })
    }

    fn request(&self, spans: &[Span]) -> Vec<u8> {
        let Service { name, version, instance } = &self.service;
        let attribute =
            |key: &str, value: &str| KeyValue { key: key.to_owned(), value: Some(super::sanitize_text(value).into()) };
        let attributes = vec![
            attribute("service.name", name),
            attribute("service.version", version),
            attribute("service.instance.id", instance),
        ];
        let scope = InstrumentationScope { name: (*name).to_owned(), version: (*version).to_owned() };
        let spans = spans.iter().map(WireSpan::from).collect();
        let resource_spans = vec![ResourceSpans {
            resource: Some(Resource { attributes }),
            scope_spans: vec![ScopeSpans { scope: Some(scope), spans }],
        }];
        ExportTraceServiceRequest { resource_spans }.encode_to_vec()
    }

    async fn post(&self, body: Vec<u8>) -> Result<Response<Bytes>, ExportError> {
        let unreachable = |error: &dyn std::fmt::Display| ExportError::Unreachable(error.to_string());
        let stream = TcpStream::connect(self.endpoint.address()).await.map_err(|error| unreachable(&error))?;
        let mut connection = Connection::new(stream).await.map_err(|error| unreachable(&error))?;
        let request = Request::post(self.endpoint.path())
            .header(HOST, self.endpoint.host())
            .header(CONTENT_TYPE, "application/x-protobuf")
            .header(USER_AGENT, concat!("pod-safety/", env!("CARGO_PKG_VERSION")))
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| unreachable(&error))?;
        match connection.exchange(request, MAX_RESPONSE_SIZE).await {
            Ok(response) => Ok(response),
            // A response that is too long or truncated does not change its status code.
            Err(ExchangeError::TooLong { status, .. } | ExchangeError::Truncated { status, .. }) => {
                let mut response = Response::new(Bytes::new());
                *response.status_mut() = status;
                Ok(response)
            }
            Err(error @ ExchangeError::Lost(_)) => Err(unreachable(&error)),
        }
    }
}

#[cfg(test)]
mod tests;
