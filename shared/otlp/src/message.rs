//! The messages of OTLP that are sent and read. Tags are the field numbers of `opentelemetry/proto` v1.10.0.

use jiff::Timestamp;

use super::span::{Attribute, Span, SpanEvent, Value};

/// The request (`collector/trace/v1`).
#[derive(Clone, PartialEq, prost::Message)]
pub struct ExportTraceServiceRequest {
    /// The spans by process: one.
    #[prost(message, repeated, tag = "1")]
    pub resource_spans: Vec<ResourceSpans>,
}

/// The response.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ExportTraceServiceResponse {
    /// The part that was rejected.
    #[prost(message, optional, tag = "1")]
    pub partial_success: Option<ExportTracePartialSuccess>,
}

/// The rejected part, and why.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ExportTracePartialSuccess {
    /// The number of rejected spans.
    #[prost(int64, tag = "1")]
    pub rejected_spans: i64,
    /// Why.
    #[prost(string, tag = "2")]
    pub error_message: String,
}

/// The spans of one process.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ResourceSpans {
    /// The process.
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    /// Its spans.
    #[prost(message, repeated, tag = "2")]
    pub scope_spans: Vec<ScopeSpans>,
}

/// A process.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Resource {
    /// Its attributes.
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

/// The spans of one instrumentation scope.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ScopeSpans {
    /// The scope.
    #[prost(message, optional, tag = "1")]
    pub scope: Option<InstrumentationScope>,
    /// Its spans.
    #[prost(message, repeated, tag = "2")]
    pub spans: Vec<WireSpan>,
}

/// An instrumentation scope.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct InstrumentationScope {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its version.
    #[prost(string, tag = "2")]
    pub version: String,
}

/// A span.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WireSpan {
    /// Sixteen bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    /// Eight bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    /// Eight bytes; empty: a root span.
    #[prost(bytes = "vec", tag = "4")]
    pub parent_span_id: Vec<u8>,
    /// The name.
    #[prost(string, tag = "5")]
    pub name: String,
    /// `SPAN_KIND_INTERNAL`.
    #[prost(int32, tag = "6")]
    pub kind: i32,
    /// Its start.
    #[prost(fixed64, tag = "7")]
    pub start_time_unix_nano: u64,
    /// Its end.
    #[prost(fixed64, tag = "8")]
    pub end_time_unix_nano: u64,
    /// Its attributes.
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    /// Its events.
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<Event>,
    /// Its status, if it failed.
    #[prost(message, optional, tag = "15")]
    pub status: Option<Status>,
}

/// An event of a span.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Event {
    /// When it happened.
    #[prost(fixed64, tag = "1")]
    pub time_unix_nano: u64,
    /// Its name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Its attributes.
    #[prost(message, repeated, tag = "3")]
    pub attributes: Vec<KeyValue>,
}

/// The status of a span.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Status {
    /// Why it failed.
    #[prost(string, tag = "2")]
    pub message: String,
    /// [`FAILED`], or 0: not set.
    #[prost(int32, tag = "3")]
    pub code: i32,
}

/// An attribute.
#[derive(Clone, PartialEq, prost::Message)]
pub struct KeyValue {
    /// Its key.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Its value.
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

/// A value.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AnyValue {
    /// Its value.
    #[prost(oneof = "any_value::Value", tags = "1, 3, 5")]
    pub value: Option<any_value::Value>,
}

/// The types of a value.
pub mod any_value {
    /// The types that are sent.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Value {
        /// A text.
        #[prost(string, tag = "1")]
        Text(String),
        /// A number.
        #[prost(int64, tag = "3")]
        Number(i64),
        /// A list.
        #[prost(message, tag = "5")]
        List(super::ArrayValue),
    }
}

/// A list of values.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ArrayValue {
    /// The values.
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<AnyValue>,
}

/// `SPAN_KIND_INTERNAL`.
const INTERNAL: i32 = 1;
/// `STATUS_CODE_ERROR`.
pub const FAILED: i32 = 2;

impl From<String> for AnyValue {
    fn from(text: String) -> Self {
        Self { value: Some(any_value::Value::Text(text)) }
    }
}

impl From<&Attribute> for KeyValue {
    fn from(attribute: &Attribute) -> Self {
        let value = match &attribute.value {
            Value::Text(text) => text.clone().into(),
            Value::Number(number) => AnyValue { value: Some(any_value::Value::Number(*number)) },
            Value::Texts(texts) => {
                let values = texts.iter().map(|text| text.clone().into()).collect();
                AnyValue { value: Some(any_value::Value::List(ArrayValue { values })) }
            }
        };
        Self { key: attribute.key.to_owned(), value: Some(value) }
    }
}

impl From<&SpanEvent> for Event {
    fn from(event: &SpanEvent) -> Self {
        Self {
            time_unix_nano: nanos(event.at),
            name: event.name.to_owned(),
            attributes: event.attributes.iter().map(KeyValue::from).collect(),
        }
    }
}

impl From<&Span> for WireSpan {
    fn from(span: &Span) -> Self {
        Self {
            trace_id: span.trace.to_bytes().to_vec(),
            span_id: span.id.to_bytes().to_vec(),
            parent_span_id: span.parent.map_or(Vec::new(), |parent| parent.to_bytes().to_vec()),
            name: span.name.to_owned(),
            kind: INTERNAL,
            start_time_unix_nano: nanos(span.start),
            end_time_unix_nano: nanos(span.end),
            attributes: span.attributes.iter().map(KeyValue::from).collect(),
            events: span.events.iter().map(Event::from).collect(),
            status: span.error.clone().map(|message| Status { message, code: FAILED }),
        }
    }
}

/// OTLP cannot represent a time before 1970.
fn nanos(at: Timestamp) -> u64 {
    u64::try_from(at.as_nanosecond()).unwrap_or(0)
}
