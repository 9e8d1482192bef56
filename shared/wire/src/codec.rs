//! Single objects and watch streams, in either encoding.
//!
//! The encoding is that of the response's `Content-Type`: requests prefer protobuf, which a real API server sends for
//! its own kinds, and JSON for CRDs; a simulator may always send JSON.

use std::collections::BTreeMap;

use bytes::{Buf, Bytes};
use prost::Message;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::error::{MAX_OBJECT_SIZE, WireError};
use super::json::ScanBuffer;
use super::message::null_is_empty;
use super::{ObjectMeta, Status};

/// The `Accept` header of every read.
pub const PROTOBUF_FIRST: &str = "application/vnd.kubernetes.protobuf,application/json;q=0.5";

/// The first bytes of every protobuf object of the API (`runtime/serializer/protobuf`).
pub(super) const MAGIC: &[u8] = b"k8s\0";

/// The encoding of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// JSON.
    Json,
    /// Kubernetes' protobuf.
    Protobuf,
}

impl Encoding {
    /// Parses a `Content-Type`.
    #[must_use]
    pub fn from_content_type(content_type: &str) -> Option<Self> {
        let kind = content_type.split(';').next().unwrap_or_default().trim();
        match kind {
            "application/json" => Some(Self::Json),
            "application/vnd.kubernetes.protobuf" => Some(Self::Protobuf),
            _ => None,
        }
    }
}

/// Types into which an object can be decoded.
pub trait Decode: Sized {
    /// From JSON.
    ///
    /// # Errors
    /// The bytes have another structure.
    fn from_json(bytes: &[u8]) -> Result<Self, WireError>;
    /// From protobuf, without its envelope.
    ///
    /// # Errors
    /// The bytes have another structure.
    fn from_protobuf(bytes: Bytes) -> Result<Self, WireError>;
}

impl<T: Message + Default + DeserializeOwned> Decode for T {
    fn from_json(bytes: &[u8]) -> Result<Self, WireError> {
        serde_json::from_slice(bytes).map_err(WireError::Json)
    }

    fn from_protobuf(bytes: Bytes) -> Result<Self, WireError> {
        Self::decode(bytes).map_err(WireError::Protobuf)
    }
}

/// `metadata` of pod-safety's own kinds, including the values of annotations.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct CustomMeta {
    /// The annotations.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// The other fields.
    #[serde(flatten)]
    pub common: ObjectMeta,
}

impl std::ops::Deref for CustomMeta {
    type Target = ObjectMeta;
    fn deref(&self) -> &ObjectMeta {
        &self.common
    }
}

/// An object of one of pod-safety's own kinds, which have no protobuf form.
#[derive(Clone, Debug, Deserialize)]
pub struct Custom<S, T> {
    /// Its metadata.
    #[serde(default)]
    pub metadata: CustomMeta,
    /// The desired state.
    pub spec: S,
    /// The observed state.
    pub status: Option<T>,
}

impl<S: DeserializeOwned, T: DeserializeOwned> Decode for Custom<S, T> {
    fn from_json(bytes: &[u8]) -> Result<Self, WireError> {
        serde_json::from_slice(bytes).map_err(WireError::Json)
    }

    fn from_protobuf(_bytes: Bytes) -> Result<Self, WireError> {
        Err(WireError::NotJson)
    }
}

/// One object, not decoded yet.
#[derive(Clone, Debug)]
pub struct Raw {
    encoding: Encoding,
    bytes: Bytes,
}

impl Raw {
    pub(super) const fn new(encoding: Encoding, bytes: Bytes) -> Self {
        Self { encoding, bytes }
    }

    /// The object that is the whole body of a response.
    ///
    /// # Errors
    /// A protobuf body without its envelope.
    pub fn from_body(encoding: Encoding, body: Bytes) -> Result<Self, WireError> {
        match encoding {
            Encoding::Json => Ok(Self { encoding, bytes: body }),
            Encoding::Protobuf => Ok(Self { encoding, bytes: unwrap_envelope(body)? }),
        }
    }

    pub(super) const fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// The encoded object, without its envelope.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Decodes the fields that `T` declares.
    ///
    /// # Errors
    /// The bytes have another structure.
    pub fn decode<T: Decode>(&self) -> Result<T, WireError> {
        match self.encoding {
            Encoding::Json => T::from_json(&self.bytes),
            Encoding::Protobuf => T::from_protobuf(self.bytes.clone()),
        }
    }

    /// All of its fields, declared or not.
    ///
    /// # Errors
    /// It is not encoded as JSON, or is invalid JSON.
    pub fn to_json(&self) -> Result<serde_json::Value, WireError> {
        match self.encoding {
            Encoding::Json => serde_json::from_slice(&self.bytes).map_err(WireError::Json),
            Encoding::Protobuf => Err(WireError::NotJson),
        }
    }
}

/// `runtime.Unknown`: the envelope of a protobuf object.
#[derive(Clone, PartialEq, Message)]
struct Envelope {
    /// Always written, so a response without it is truncated.
    #[prost(bytes = "bytes", optional, tag = "2")]
    raw: Option<Bytes>,
}

fn unwrap_envelope(mut body: Bytes) -> Result<Bytes, WireError> {
    if !body.starts_with(MAGIC) {
        return Err(WireError::NoMagic);
    }
    body.advance(MAGIC.len());
    Envelope::decode(body).map_err(WireError::Protobuf)?.raw.ok_or(WireError::Truncated)
}

/// One event of a watch.
#[derive(Debug)]
pub enum Event {
    /// The object was added or changed.
    Applied(Raw),
    /// The object was removed; this is its last state.
    Deleted(Raw),
    /// There were no other events up to the version of this otherwise empty object.
    Bookmark(Raw),
    /// The watch cannot continue.
    Error(Status),
}

#[derive(Clone, PartialEq, Message)]
struct ProtobufEvent {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(message, optional, tag = "2")]
    object: Option<RawExtension>,
}

#[derive(Clone, PartialEq, Message)]
struct RawExtension {
    #[prost(bytes = "bytes", tag = "1")]
    raw: Bytes,
}

#[derive(Deserialize)]
struct JsonEvent<'a> {
    #[serde(rename = "type")]
    kind: String,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// Splits the body of a watch into events.
#[derive(Debug)]
pub struct Frames {
    encoding: Encoding,
    buffer: ScanBuffer,
}

impl Frames {
    /// An empty stream.
    #[must_use]
    pub fn new(encoding: Encoding) -> Self {
        Self { encoding, buffer: ScanBuffer::default() }
    }

    /// Appends the next bytes of the body.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.push(bytes);
    }

    /// The next whole event, if it has arrived.
    ///
    /// # Errors
    /// The stream is broken: it must be opened again.
    pub fn next_event(&mut self) -> Result<Option<Event>, WireError> {
        let Some(frame) = self.next_frame()? else { return Ok(None) };
        let (kind, raw) = match self.encoding {
            Encoding::Protobuf => {
                let event = ProtobufEvent::decode(frame).map_err(WireError::Protobuf)?;
                let object = event.object.unwrap_or_default();
                (event.kind, Raw::from_body(self.encoding, object.raw)?)
            }
            Encoding::Json => {
                let event: JsonEvent<'_> = serde_json::from_slice(&frame).map_err(WireError::Json)?;
                let bytes = frame.slice_ref(event.object.get().as_bytes());
                (event.kind, Raw { encoding: self.encoding, bytes })
            }
        };
        match kind.as_str() {
            "ADDED" | "MODIFIED" => Ok(Some(Event::Applied(raw))),
            "DELETED" => Ok(Some(Event::Deleted(raw))),
            "BOOKMARK" => Ok(Some(Event::Bookmark(raw))),
            "ERROR" => Ok(Some(Event::Error(raw.decode()?))),
            _ => Err(WireError::UnknownEvent(kind)),
        }
    }

    /// JSON events end with a line feed; protobuf events begin with their length in four bytes, big-endian.
    fn next_frame(&mut self) -> Result<Option<Bytes>, WireError> {
        if self.encoding == Encoding::Json {
            return self.buffer.line();
        }
        let buffer = &mut self.buffer.bytes;
        let Some(&head) = buffer.first_chunk::<4>() else { return Ok(None) };
        let size = usize::try_from(u32::from_be_bytes(head)).unwrap_or(usize::MAX);
        if size > MAX_OBJECT_SIZE {
            return Err(WireError::TooLarge(size));
        }
        if buffer.len() < 4 + size {
            return Ok(None);
        }
        buffer.advance(4);
        Ok(Some(buffer.split_to(size).freeze()))
    }
}

#[cfg(test)]
mod tests;
