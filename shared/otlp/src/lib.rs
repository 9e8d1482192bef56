//! Spans, and their export to an OpenTelemetry collector: OTLP over HTTP, as protobuf.
//!
//! Encodes completed spans, and posts them to one address. It starts no task, has no queue and repeats nothing: the
//! caller knows which spans were accepted.
//!
//! Invariants: ids are derived from names, so that two processes that export the same incident use the same ids;
//! every text is truncated and has no control characters; a request is bounded in size and time.
//!
//! The crate `opentelemetry-otlp` is not used: with its smallest features it adds 16 crates to the 179 of the binary
//! (h2, indexmap, rand …), for a tracer, samplers and processors that do not fit spans with given ids and times. The
//! messages of `message` add none.
#![forbid(unsafe_code)]

mod endpoint;
mod export;
pub mod message;
mod span;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use endpoint::{BadEndpoint, Endpoint};
pub use export::{ExportError, ExportResponse, Exporter, Service};
pub use span::{Attribute, MAX_TEXT_LENGTH, Span, SpanEvent, SpanId, TraceId, Value, sanitize_text};
