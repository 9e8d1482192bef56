//! Why bytes could not be read.

/// The largest object that is accepted. etcd rejects objects over 1.5 MiB and the API server requests over 3 MiB; a
/// larger size is a sign of a broken stream.
pub(super) const MAX_OBJECT_SIZE: usize = 16 << 20;

/// Why bytes could not be read.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// Not JSON, or of another structure.
    #[error("decoding JSON")]
    Json(#[source] serde_json::Error),
    /// Not protobuf, or of another structure.
    #[error("decoding protobuf")]
    Protobuf(#[source] prost::DecodeError),
    /// A protobuf object without its envelope.
    #[error("a protobuf object does not begin with the Kubernetes magic bytes")]
    NoMagic,
    /// The response is protobuf, of which only declared fields can be read.
    #[error("the answer came as protobuf, not with all of its fields as JSON")]
    NotJson,
    /// An object of a size that no API server sends.
    #[error("an object claims {0} bytes; the largest plausible object has {MAX_OBJECT_SIZE}")]
    TooLarge(usize),
    /// An object or a list whose parts do not fit together, or that ends early.
    #[error("the answer is truncated, or is not what was requested")]
    Truncated,
    /// A watch event of a type that this version does not know.
    #[error("a watch event of the unknown type {0:?}")]
    UnknownEvent(String),
}
