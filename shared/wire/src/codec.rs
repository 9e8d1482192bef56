//! Single objects and watch streams, in either encoding.
//!
//! The encoding is what the answer's `Content-Type` says: a real API server is
//! asked for protobuf first and gives it for its own kinds, JSON for CRDs; a
//! simulator may always give JSON.

use std::collections::BTreeMap;

use bytes::{Buf, Bytes};
use prost::Message;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::error::{MAX_OBJECT_SIZE, WireError};
use super::json::ScanBuffer;
use super::message::null_is_empty_map;
use super::{ObjectMeta, Status};

/// The `Accept` header of every read.
pub const PROTOBUF_FIRST: &str = "application/vnd.kubernetes.protobuf,application/json;q=0.5";

/// What every protobuf object of the API begins with (`runtime/serializer/protobuf`).
pub(super) const MAGIC: &[u8] = b"k8s\0";

/// How the bytes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// JSON.
    Json,
    /// Kubernetes' protobuf.
    Protobuf,
}

impl Encoding {
    /// Reads a `Content-Type`.
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

/// What an object can be decoded into.
pub trait Decode: Sized {
    /// From JSON.
    ///
    /// # Errors
    /// The bytes are of another shape.
    fn from_json(bytes: &[u8]) -> Result<Self, WireError>;
    /// From protobuf, without its envelope.
    ///
    /// # Errors
    /// The bytes are of another shape.
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

/// `metadata` of a kind of ours: of those the values of annotations are read, too.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct CustomMeta {
    /// The annotations.
    #[serde(default, deserialize_with = "null_is_empty_map")]
    pub annotations: BTreeMap<String, String>,
    /// All else.
    #[serde(flatten)]
    pub common: ObjectMeta,
}

impl std::ops::Deref for CustomMeta {
    type Target = ObjectMeta;
    fn deref(&self) -> &ObjectMeta {
        &self.common
    }
}

/// An object of a kind of ours: those have no protobuf form.
#[derive(Clone, Debug, Deserialize)]
pub struct Custom<S, T> {
    /// Its metadata.
    #[serde(default)]
    pub metadata: CustomMeta,
    /// What is wanted.
    pub spec: S,
    /// What became of it.
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

    /// The object that is the whole body of an answer.
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

    /// The object as it is written, without its envelope.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Decodes the fields that `T` declares.
    ///
    /// # Errors
    /// The bytes are of another shape.
    pub fn decode<T: Decode>(&self) -> Result<T, WireError> {
        match self.encoding {
            Encoding::Json => T::from_json(&self.bytes),
            Encoding::Protobuf => T::from_protobuf(self.bytes.clone()),
        }
    }

    /// All of its fields, known to us or not.
    ///
    /// # Errors
    /// It was not asked for as JSON, or is none.
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
    /// Always written, so an answer without it has broken off.
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
    /// The object is there, new or changed.
    Applied(Raw),
    /// The object went; this is its last state.
    Deleted(Raw),
    /// Nothing happened up to the version of this otherwise empty object.
    Bookmark(Raw),
    /// The watch cannot go on.
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

/// Cuts the body of a watch into events.
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

    /// Takes the next bytes of the body.
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

    /// JSON events end with a line feed; protobuf events begin with their
    /// length in four bytes, the highest first.
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
