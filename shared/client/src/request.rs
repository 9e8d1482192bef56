//! One request, and every way in which it can end.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::{ACCEPT, CONTENT_TYPE};
use kube::client::Body;

use pod_safety_proof::{self as proof, GuardRefusal, Permit, Verb};

use super::cause::{explain, in_words, is_login, of_answer, of_stranger};
use super::{RefusalHead, Target};
use pod_safety_clock::Mono;
use pod_safety_wire::{Encoding, PROTOBUF_FIRST, Raw, Status, WireError};

const JSON: &str = "application/json";

/// The message of an API server after Kubernetes 1.37 about a path that it does not serve. Its Status has the reason
/// `NotFound`, as that about an object that does not exist (kubernetes/kubernetes#138219).
pub(super) const NOT_SERVED: &str = "the server could not find the requested resource";

/// The methods that this process uses, with the media types of their bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// GET.
    Get,
    /// POST.
    Post,
    /// PUT.
    Put,
    /// PATCH with a strategic merge patch.
    Patch,
    /// PATCH with a merge patch (RFC 7386), the only one for custom resources.
    Merge,
    /// DELETE.
    Delete,
}

impl Method {
    const fn http(self) -> http::Method {
        match self {
            Self::Get => http::Method::GET,
            Self::Post => http::Method::POST,
            Self::Put => http::Method::PUT,
            Self::Patch | Self::Merge => http::Method::PATCH,
            Self::Delete => http::Method::DELETE,
        }
    }

    const fn content_type(self) -> &'static str {
        match self {
            Self::Patch => "application/strategic-merge-patch+json",
            Self::Merge => "application/merge-patch+json",
            Self::Get | Self::Post | Self::Put | Self::Delete => JSON,
        }
    }
}

/// One request.
#[derive(Debug)]
pub struct Call {
    method: Method,
    path: String,
    body: Vec<u8>,
    deadline: Option<Mono>,
    permit: Option<Permit>,
    all_fields: bool,
}

impl Call {
    /// A read of `path`, query included.
    #[must_use]
    pub fn get(path: impl Into<String>) -> Self {
        Self::new(Method::Get, path.into(), Vec::new())
    }

    const fn new(method: Method, path: String, body: Vec<u8>) -> Self {
        Self { method, path, body, deadline: None, permit: None, all_fields: false }
    }

    /// Sets a deadline, if it is earlier than the default timeout.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Mono) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Requests the answer with all of its fields, also those that this program does not know: for callers that write parts
    /// of it back, or show it to users.
    #[must_use]
    pub const fn all_fields(mut self) -> Self {
        self.all_fields = true;
        self
    }

    /// Whether it is an eviction. A 429 for an eviction is about a PodDisruptionBudget, not about overload.
    pub(crate) fn is_eviction(&self) -> bool {
        self.path.ends_with("/eviction")
    }

    pub(crate) fn is_write(&self) -> bool {
        self.method != Method::Get
    }

    pub(crate) fn deadline_from(&self, now: Mono, default_timeout: Duration) -> Mono {
        let usual = now + default_timeout;
        self.deadline.map_or(usual, |deadline| deadline.min(usual))
    }

    pub(crate) fn into_request(self) -> Result<Request<Body>, ApiError> {
        let mut request = Request::builder().method(self.method.http()).uri(&self.path);
        if self.method == Method::Get {
            request = request.header(ACCEPT, if self.all_fields { JSON } else { PROTOBUF_FIRST });
        } else {
            // Answers to writes are read for one field; JSON avoids the protobuf envelope.
            request = request.header(ACCEPT, JSON).header(CONTENT_TYPE, self.method.content_type());
        }
        if let Some(permit) = self.permit {
            request = request.extension(permit);
        }
        request.body(Body::from(self.body)).map_err(|source| ApiError::BadPath { path: self.path, source })
    }
}

/// The calls that write. Only crates that can name this trait can make them.
pub trait WriteCall {
    /// A write of `body` to `path`.
    #[must_use]
    fn write(method: Method, path: impl Into<String>, body: &serde_json::Value) -> Self;

    /// A request with a permit for the guard.
    #[must_use]
    fn permitted(request: proof::Request) -> Self;
}

impl WriteCall for Call {
    fn write(method: Method, path: impl Into<String>, body: &serde_json::Value) -> Self {
        Self::new(method, path.into(), body.to_string().into_bytes())
    }

    fn permitted(request: proof::Request) -> Self {
        let (verb, path, body, permit) = request.into_parts();
        let method = match verb {
            Verb::Patch => Method::Patch,
            Verb::Merge => Method::Merge,
            Verb::Delete => Method::Delete,
        };
        Self { permit: Some(permit), ..Self::write(method, path, &body) }
    }
}

/// The path of a page of a list: of the whole list if there is no limit, of the first page if there is no token.
#[must_use]
pub fn page_path(all: &str, limit: Option<usize>, token: &str) -> String {
    let limit = limit.map(|limit| format!("limit={limit}"));
    let token = Some(token).filter(|token| !token.is_empty()).map(|token| format!("continue={token}"));
    let query: Vec<String> = limit.into_iter().chain(token).collect();
    if query.is_empty() { all.to_owned() } else { format!("{all}?{}", query.join("&")) }
}

/// How a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The API server refused the request; nothing was changed.
    #[error("the API server answered {}", of_answer(*.code, .reason, .message))]
    Refused {
        /// The HTTP code.
        code: u16,
        /// The reason of the API's Status; empty if the answer is not from the API server.
        reason: String,
        /// The message of the API's Status with its causes, or the beginning of a plain answer.
        message: String,
        /// The messages of `details.causes`.
        causes: Vec<String>,
        /// The requested delay before the next attempt.
        retry_after: Option<Duration>,
    },
    /// The guard of this process refused to send the request.
    #[error(transparent)]
    Guard(GuardRefusal),
    /// The deadline passed without an answer. A write may have been applied.
    #[error("no answer from the API server within {:?}", in_words(*.after))]
    TimedOut {
        /// How long this process waited.
        after: Duration,
    },
    /// The connection failed, or what answered is no API server. A write may have been applied.
    #[error("{said}")]
    Transport {
        /// The target and the cause, as text for users.
        said: String,
    },
    /// The body of the answer broke off or is too large.
    #[error("the answer of the API server broke off: {}", of_body(.0))]
    Body(Box<dyn std::error::Error + Send + Sync>),
    /// The answer cannot be decoded as the expected type.
    #[error("decoding the API server's answer")]
    Undecodable(#[source] WireError),
    /// The answer is neither JSON nor protobuf.
    #[error("the API server answered with the content type {0:?}")]
    ContentType(String),
    /// The answer lacks a field that every answer to this request has, or has a value that cannot be used.
    #[error("the answer of the API server cannot be used: {0}")]
    Malformed(String),
    /// The path cannot be part of a URL.
    #[error("no request can be made for the path {path:?}")]
    BadPath {
        /// The path.
        path: String,
        /// The error.
        #[source]
        source: http::Error,
    },
}

impl ApiError {
    /// The pause that the API server requested, or zero.
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        match self {
            Self::Refused { retry_after: Some(pause), .. } => *pause,
            _ => Duration::ZERO,
        }
    }

    /// `to` is the cluster that was called.
    pub(crate) fn from_kube(source: kube::Error, to: &Target) -> Self {
        let source = match source {
            kube::Error::Service(inner) => match inner.downcast::<GuardRefusal>() {
                Ok(refusal) => return Self::Guard(*refusal),
                Err(inner) => kube::Error::Service(inner),
            },
            other => other,
        };
        let (place, why) = (to.describe(), explain(&source));
        let message = match source {
            _ if is_login(&source) => format!("logging in to {place}: {why}"),
            _ if is_connect(&source) => format!("cannot reach {place}: {why}"),
            _ => format!("the connection to {place} broke: {why}"),
        };
        Self::Transport { said: message }
    }

    pub(crate) fn from_status(head: RefusalHead, encoding: Encoding, body: Bytes, to: &Target) -> Self {
        let status: Option<Status> = Raw::from_body(encoding, body.clone()).ok().and_then(|raw| raw.decode().ok());
        let plain = || String::from_utf8_lossy(body.get(..200.min(body.len())).unwrap_or_default()).trim().to_owned();
        // An API server refuses other requests in plain text too, but never for a missing right.
        if head.code == http::StatusCode::FORBIDDEN && !(status.is_some() && is_status(encoding, &body)) {
            return Self::Transport { said: of_stranger(&to.describe(), &plain()) };
        }
        let status = status.unwrap_or_default();
        let details = status.details.unwrap_or_default();
        let redirect = head.location.map(|to| format!("it redirects to {to}; check server of the kubeconfig"));
        let mut message = status.message.or(redirect).unwrap_or_else(plain);
        let causes: Vec<String> = details.causes.into_iter().filter_map(|cause| cause.message).collect();
        for cause in causes.iter().map(|cause| cause.trim()) {
            // Many messages contain their causes already.
            message = match message.trim() {
                "" => cause.to_owned(),
                message if message.contains(cause) => message.to_owned(),
                message => format!("{message} ({cause})"),
            };
        }
        let seconds = details.retry_after_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        // A kind that is not served shows nothing about its objects: a Machine is not gone when its CRD is.
        let reason = status.reason.filter(|_| message != NOT_SERVED).unwrap_or_default();
        Self::Refused {
            code: head.code.as_u16(),
            reason,
            message,
            causes,
            retry_after: seconds.filter(|&seconds| seconds > 0).map(Duration::from_secs).max(head.retry_after),
        }
    }

    /// The HTTP code, if the API server refused the request.
    #[must_use]
    pub const fn code(&self) -> Option<u16> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Whether the object does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        // A 404 without a reason comes from a wrong path or a proxy, and shows nothing about the object: unknown, not absent.
        matches!(self, Self::Refused { code: 404, reason, .. } if reason == "NotFound")
    }

    /// Whether the API server does not serve the kind: its 404 for a path has no reason.
    #[must_use]
    pub fn is_unknown_kind(&self) -> bool {
        matches!(self, Self::Refused { code: 404, reason, .. } if reason.is_empty())
    }

    /// Whether a precondition failed. Some versions answer a patch with another UID with 422 "field is immutable".
    #[must_use]
    pub fn is_changed(&self) -> bool {
        match self {
            Self::Refused { code: 409, .. } => true,
            Self::Refused { code: 422, message, .. } => message.contains("metadata.uid"),
            _ => false,
        }
    }

    /// Whether a write may have been applied in spite of this error.
    #[must_use]
    pub const fn is_outcome_unknown(&self) -> bool {
        match self {
            Self::Refused { code, .. } => *code >= 500,
            Self::Guard(_) | Self::BadPath { .. } => false,
            Self::TimedOut { .. }
            | Self::Transport { .. }
            | Self::Body(_)
            | Self::Undecodable(_)
            | Self::ContentType(_)
            | Self::Malformed(_) => true,
        }
    }

    /// The category for metrics.
    #[must_use]
    pub const fn category(&self) -> &'static str {
        match self {
            Self::Refused { code: 401, .. } => "unauthenticated",
            Self::Refused { code: 403, .. } => "forbidden",
            Self::Refused { code: 404, .. } => "not_found",
            Self::Refused { code: 409, .. } => "conflict",
            Self::Refused { code: 410, .. } => "expired",
            Self::Refused { code: 422, .. } => "invalid",
            Self::Refused { code: 429, .. } => "too_many_requests",
            Self::Refused { code: 500..=599, .. } => "server",
            Self::Refused { .. } => "refused",
            Self::Guard(_) => "guard",
            Self::TimedOut { .. } => "timeout",
            Self::Transport { .. } => "transport",
            Self::Body(_) | Self::Undecodable(_) | Self::ContentType(_) | Self::Malformed(_) => "undecodable",
            Self::BadPath { .. } => "bad_path",
        }
    }
}

#[expect(clippy::borrowed_box, reason = "thiserror gives the field as it is")]
fn of_body(error: &Box<dyn std::error::Error + Send + Sync>) -> String {
    explain(&**error)
}

/// Whether a body that was decoded is a Status. Only API servers send protobuf.
fn is_status(encoding: Encoding, body: &[u8]) -> bool {
    let is_status = |json: serde_json::Value| json["kind"] == "Status";
    encoding == Encoding::Protobuf || serde_json::from_slice(body).is_ok_and(is_status)
}

/// Whether no connection was made: hyper's error shows it only in its text.
fn is_connect(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| error.source()).any(|error| error.to_string().contains("(Connect)"))
}
