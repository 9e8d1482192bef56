//! Spans, and their export to an OpenTelemetry collector: OTLP over HTTP, as protobuf.
//!
//! Duty: encode spans that are over, and post them to one address. It starts no task, keeps no queue and repeats nothing:
//! the caller knows what was accepted.
//!
//! Invariants: ids are derived from names, so that two processes that tell the same story give it the same ids; every text
//! is cut and freed of control characters; a request is bounded in size and in time.
//!
//! Why not the crate `opentelemetry-otlp`: with its leanest features it adds 16 crates to the 179 of the binary (h2, indexmap,
//! rand …), for a tracer, samplers and processors that do not fit spans whose ids and times are given. The messages of
//! `message` add none.
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
