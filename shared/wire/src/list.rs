//! Lists, object by object while they arrive.
//!
//! The body is not collected first: a page of 5,000 pods has 20 MB, and the largest pages are the cheapest for the
//! API server. Read as a stream, a page of any size needs the memory of its largest object.

use bytes::{Buf, Bytes, BytesMut};
use prost::Message;

use super::codec::{Encoding, MAGIC, Raw};
use super::error::{MAX_OBJECT_SIZE, WireError};
use super::json::Items;
use super::meta::ListMeta;

/// The position of the next byte in a protobuf list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before the magic bytes.
    Start,
    /// Between the fields of the envelope, before the list.
    Envelope,
    /// Between the fields of the list, of which this many bytes remain.
    List(usize),
    /// Between the fields of the envelope, after the list.
    After,
}

/// The body of a list, split into objects while it arrives.
#[derive(Debug)]
pub struct List {
    encoding: Encoding,
    buffer: BytesMut,
    place: Place,
    metadata: ListMeta,
    json: Items,
    ended: bool,
}

impl List {
    /// A list without any received bytes.
    #[must_use]
    pub fn new(encoding: Encoding) -> Self {
        let (buffer, metadata) = (BytesMut::new(), ListMeta::default());
        Self { encoding, buffer, place: Place::Start, metadata, json: Items::default(), ended: false }
    }

    /// Appends the next bytes of the body.
    pub fn push(&mut self, bytes: &[u8]) {
        match self.encoding {
            Encoding::Json => self.json.push(bytes),
            Encoding::Protobuf => self.buffer.extend_from_slice(bytes),
        }
    }

    /// Marks the body as complete.
    pub const fn end(&mut self) {
        self.ended = true;
    }

    /// The next whole object. `None`: more bytes are needed, or, after
    /// [`List::end`], that was the last one.
    ///
    /// # Errors
    /// The body is not a list, or is truncated.
    pub fn next_item(&mut self) -> Result<Option<Raw>, WireError> {
        let item = match self.encoding {
            Encoding::Json => self.next_json()?,
            Encoding::Protobuf => self.next_protobuf()?,
        };
        let whole = matches!(self.place, Place::After | Place::List(0)) && self.buffer.is_empty();
        if item.is_none() && self.ended && self.encoding == Encoding::Protobuf && !whole {
            return Err(WireError::Truncated);
        }
        Ok(item)
    }

    /// The version of the list, for the watch that follows. Known after the last item.
    #[must_use]
    pub fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }

    /// The continue token of the next page; empty on the last. Known after the last item.
    #[must_use]
    pub fn continue_token(&self) -> &str {
        &self.metadata.r#continue
    }

    fn next_json(&mut self) -> Result<Option<Raw>, WireError> {
        let item = self.json.next()?;
        if item.is_none() && self.ended {
            self.metadata = self.json.end()?;
        }
        Ok(item.map(|item| Raw::new(self.encoding, item)))
    }

    fn next_protobuf(&mut self) -> Result<Option<Raw>, WireError> {
        loop {
            match self.place {
                Place::Start if self.buffer.len() < MAGIC.len() => return Ok(None),
                Place::Start if !self.buffer.starts_with(MAGIC) => return Err(WireError::NoMagic),
                Place::Start => {
                    self.buffer.advance(MAGIC.len());
                    self.place = Place::Envelope;
                }
                Place::List(0) => self.place = Place::After,
                Place::Envelope | Place::After => {
                    // Field 2 is the list itself; only its head is consumed here.
                    let Some(head) = Head::read(&self.buffer)? else { return Ok(None) };
                    if head.field == 2 {
                        // Other decoders would use a second list in place of the first.
                        if self.place == Place::After || head.is_number {
                            return Err(WireError::Truncated);
                        }
                        self.buffer.advance(head.size);
                        self.place = Place::List(head.length);
                    } else if self.take_field(&head)?.is_none() {
                        return Ok(None);
                    }
                }
                Place::List(remaining) => {
                    let Some(head) = Head::read(&self.buffer)? else { return Ok(None) };
                    let Some(value) = self.take_field(&head)? else { return Ok(None) };
                    let taken = head.size + head.length;
                    self.place = Place::List(remaining.checked_sub(taken).ok_or(WireError::Truncated)?);
                    match head.field {
                        1 | 2 if head.is_number => return Err(WireError::Truncated),
                        // The fields of a repeated message are merged, as everywhere in protobuf.
                        1 => self.metadata.merge(value).map_err(WireError::Protobuf)?,
                        2 => return Ok(Some(Raw::new(self.encoding, value))),
                        _ => {}
                    }
                }
            }
        }
    }

    /// Consumes a whole field, if it has arrived, and returns its value.
    fn take_field(&mut self, head: &Head) -> Result<Option<Bytes>, WireError> {
        if head.length > MAX_OBJECT_SIZE {
            return Err(WireError::TooLarge(head.length));
        }
        if self.buffer.len() < head.size + head.length {
            return Ok(None);
        }
        self.buffer.advance(head.size);
        Ok(Some(self.buffer.split_to(head.length).freeze()))
    }
}

/// The head of a protobuf field: its number, and the sizes of head and value.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    field: u64,
    size: usize,
    length: usize,
    /// The value is a varint and part of the head: no message and no bytes.
    is_number: bool,
}

impl Head {
    /// Parses a head if it has arrived completely.
    fn read(bytes: &[u8]) -> Result<Option<Self>, WireError> {
        let Some((tag, tag_size)) = varint(bytes)? else { return Ok(None) };
        let field = tag >> 3;
        if field == 0 || tag > u64::from(u32::MAX) {
            return Err(WireError::Truncated);
        }
        let rest = bytes.get(tag_size..).unwrap_or_default();
        let Some((number, number_size)) = varint(rest)? else { return Ok(None) };
        match tag & 7 {
            0 => Ok(Some(Self { field, size: tag_size + number_size, length: 0, is_number: true })),
            2 => {
                let length = usize::try_from(number).unwrap_or(usize::MAX).min(isize::MAX.unsigned_abs());
                Ok(Some(Self { field, size: tag_size + number_size, length, is_number: false }))
            }
            // `runtime.Unknown` and lists have no fields of other types.
            _ => Err(WireError::Truncated),
        }
    }
}

/// A varint: base 128, lowest digit first. `None`: it has not arrived completely.
fn varint(bytes: &[u8]) -> Result<Option<(u64, usize)>, WireError> {
    let mut value = 0_u64;
    for (at, byte) in bytes.iter().take(10).enumerate() {
        // Only one bit of the tenth digit fits.
        if at == 9 && *byte > 1 {
            return Err(WireError::Truncated);
        }
        value |= u64::from(byte & 0x7F) << (7 * at);
        if byte & 0x80 == 0 {
            return Ok(Some((value, at + 1)));
        }
    }
    if bytes.len() >= 10 { Err(WireError::Truncated) } else { Ok(None) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{ObjectMeta, Pod};

    #[derive(Clone, PartialEq, Message)]
    struct PodList {
        #[prost(message, optional, tag = "1")]
        metadata: Option<ListMeta>,
        #[prost(message, repeated, tag = "2")]
        items: Vec<Pod>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Unknown {
        #[prost(string, tag = "1")]
        type_meta: String,
        #[prost(bytes = "vec", tag = "2")]
        raw: Vec<u8>,
        #[prost(string, tag = "3")]
        content_encoding: String,
        #[prost(string, tag = "4")]
        content_type: String,
    }

    fn pod(name: &str) -> Pod {
        Pod { metadata: Some(ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }), ..Pod::default() }
    }

    fn protobuf(names: &[String]) -> Vec<u8> {
        let metadata = ListMeta { resource_version: "7".to_owned(), r#continue: "c".to_owned() };
        let list = PodList { metadata: Some(metadata), items: names.iter().map(|name| pod(name)).collect() };
        let whole = Unknown { type_meta: "PodList".to_owned(), raw: list.encode_to_vec(), ..Unknown::default() };
        [MAGIC.to_vec(), whole.encode_to_vec()].concat()
    }

    fn json(names: &[String]) -> Vec<u8> {
        let items: Vec<Pod> = names.iter().map(|name| pod(name)).collect();
        let metadata = serde_json::json!({ "resourceVersion": "7", "continue": "c" });
        serde_json::json!({ "kind": "PodList", "metadata": metadata, "items": items }).to_string().into_bytes()
    }

    fn read(encoding: Encoding, body: &[u8], cut: usize) -> Result<(Vec<Raw>, List), WireError> {
        let mut list = List::new(encoding);
        let mut items = Vec::new();
        for chunk in body.chunks(cut) {
            list.push(chunk);
            while let Some(item) = list.next_item()? {
                items.push(item);
            }
        }
        list.end();
        while let Some(item) = list.next_item()? {
            items.push(item);
        }
        Ok((items, list))
    }

    proptest! {
        #[test]
        fn a_list_body_may_be_split_anywhere(names in prop::collection::vec("[a-z]{0,200}", 0..8), cut in 1_usize..400, proto in any::<bool>()) {
            let (encoding, body) = if proto { (Encoding::Protobuf, protobuf(&names)) } else { (Encoding::Json, json(&names)) };
            let (items, list) = read(encoding, &body, cut).unwrap();
            let seen: Vec<_> = items.iter().map(|raw| raw.decode::<Pod>().unwrap().metadata.unwrap().name.unwrap()).collect();
            prop_assert_eq!(seen, names);
            prop_assert_eq!((list.resource_version(), list.continue_token()), ("7", "c"));
        }

        /// A truncated body must never be accepted as a shorter list.
        #[test]
        fn a_truncated_list_is_an_error(names in prop::collection::vec("[a-z]{1,50}", 1..5), part in 0.0_f64..1.0, proto in any::<bool>()) {
            let (encoding, body) = if proto { (Encoding::Protobuf, protobuf(&names)) } else { (Encoding::Json, json(&names)) };
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a place in a short body")]
            let end = (body.len() as f64 * part) as usize;
            prop_assert!(read(encoding, &body[..end], 7).is_err());
        }

        #[test]
        fn garbage_in_a_list_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), magic in any::<bool>(), proto in any::<bool>()) {
            let body = if magic { [MAGIC, &bytes].concat() } else { bytes };
            drop(read(if proto { Encoding::Protobuf } else { Encoding::Json }, &body, 16));
        }
    }

    #[test]
    fn one_undecodable_item_does_not_fail_its_list() {
        let body = br#"{"metadata":{},"items":[{"metadata":{"name":"a"}},{"metadata":{"name":7}}]}"#;
        let (items, _) = read(Encoding::Json, body, 9).unwrap();
        assert!(items[0].decode::<Pod>().is_ok());
        assert!(items[1].decode::<Pod>().is_err());
    }

    /// If a response is accepted as a list without items, all objects of the cache count as removed.
    #[test]
    fn bug_a_response_that_is_no_list_decoded_as_an_empty_list() {
        for body in ["[]", "{}", "[{}, []]", r#"{"kind":"Status","metadata":{},"status":"Success"}"#] {
            assert!(read(Encoding::Json, body.as_bytes(), 9).is_err(), "{body}");
        }
    }

    #[test]
    fn null_items_decode_as_an_empty_list() {
        let (items, _) = read(Encoding::Json, br#"{"metadata":{},"items":null}"#, 9).unwrap();
        assert!(items.is_empty());
    }

    #[test]
    fn an_item_that_is_too_large_is_rejected_at_its_head() {
        let mut list = List::new(Encoding::Protobuf);
        list.push(MAGIC);
        list.push(&[0x12, 0xFF, 0xFF, 0xFF, 0x7F, 0x12, 0xFF, 0xFF, 0xFF, 0x3F]);
        assert!(matches!(list.next_item(), Err(WireError::TooLarge(_))));
    }
}
