//! The encoding around objects: lists, and the events of a watch.

use prost::Message;

use super::template::{Template, field, length};
use super::world::{Kind, Rendered};

/// The prefix of every protobuf object of the API.
const MAGIC: &[u8] = b"k8s\0";

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Time {
    #[prost(int64, optional, tag = "1")]
    pub(crate) seconds: Option<i64>,
    #[prost(int32, optional, tag = "2")]
    pub(crate) nanos: Option<i32>,
}

/// Magic bytes, and `runtime.Unknown` up to the wrapped object.
fn envelope(api_version: &str, kind: &str, wrapped: usize, out: &mut Vec<u8>) {
    let mut of_type = Vec::new();
    field(1, api_version.as_bytes(), &mut of_type);
    field(2, kind.as_bytes(), &mut of_type);
    out.extend_from_slice(MAGIC);
    field(1, &of_type, out);
    key(2, out);
    length(wrapped, out);
}

/// The end of `runtime.Unknown`: no encoding and no content type.
pub(crate) const END: &[u8] = &[0x1a, 0x00, 0x22, 0x00];

fn key(number: usize, out: &mut Vec<u8>) {
    length(number << 3 | 2, out);
}

/// An object in its envelope.
fn enveloped(kind: Kind, object: &[u8], out: &mut Vec<u8>) {
    envelope(kind.api_version(), kind.name(), object.len(), out);
    out.extend_from_slice(object);
    out.extend_from_slice(END);
}

/// An object that is read by name.
pub(crate) fn object(kind: Kind, template: &Template, made: &Rendered) -> Vec<u8> {
    let (mut object, mut out) = (Vec::new(), Vec::new());
    template.write(made, &mut object);
    enveloped(kind, &object, &mut out);
    out
}

/// The list up to its items, which have this total size, each as [`item`] writes it.
pub(crate) fn list(kind: Kind, version: usize, next: &str, items: usize) -> Vec<u8> {
    let (mut meta, mut about, mut out) = (Vec::new(), Vec::new(), Vec::new());
    // Go encodes empty strings, too.
    field(1, b"", &mut meta);
    field(2, version.to_string().as_bytes(), &mut meta);
    field(3, next.as_bytes(), &mut meta);
    field(1, &meta, &mut about);
    envelope(kind.api_version(), &format!("{}List", kind.name()), about.len() + items, &mut out);
    out.extend_from_slice(&about);
    out
}

/// How many bytes of a list an item of this size takes.
pub(crate) fn item_size(object: usize) -> usize {
    1 + prost::length_delimiter_len(object) + object
}

/// One item of a list.
pub(crate) fn item(template: &Template, made: &Rendered, out: &mut Vec<u8>) {
    key(2, out);
    length(template.size(made), out);
    template.write(made, out);
}

/// An event of a watch.
pub(crate) fn event(of_type: &str, kind: Kind, object: &[u8], out: &mut Vec<u8>) {
    let (mut raw, mut extension, mut event) = (Vec::new(), Vec::new(), Vec::new());
    enveloped(kind, object, &mut raw);
    field(1, &raw, &mut extension);
    field(1, of_type.as_bytes(), &mut event);
    field(2, &extension, &mut event);
    out.extend_from_slice(&u32::try_from(event.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(&event);
}

/// An object with only a resourceVersion, for a bookmark.
pub(crate) fn bookmark(version: usize) -> Vec<u8> {
    let (mut meta, mut object) = (Vec::new(), Vec::new());
    field(6, version.to_string().as_bytes(), &mut meta);
    field(1, &meta, &mut object);
    object
}
