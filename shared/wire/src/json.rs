//! JSON that arrives in pieces: the items of a list, and the lines of a watch.
//!
//! Finds where an item or a line ends, without decoding it. serde_json accepts only complete input, and would begin
//! again with each piece.
//!
//! Invariants: each byte is scanned once, in however many pieces it arrives; at most one item is kept, and the list
//! without its items.

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::error::{MAX_OBJECT_SIZE, WireError};
use super::meta::ListMeta;

/// Bytes that were received and not taken yet.
#[derive(Debug, Default)]
pub(super) struct ScanBuffer {
    pub(super) bytes: BytesMut,
    /// How many of them were scanned.
    scanned: usize,
    #[cfg(test)]
    pub(super) bytes_scanned: usize,
}

impl ScanBuffer {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next byte that was not scanned yet.
    fn next(&mut self) -> Option<u8> {
        let byte = self.bytes.get(self.scanned).copied()?;
        self.scanned += 1;
        #[cfg(test)]
        {
            self.bytes_scanned += 1;
        }
        Some(byte)
    }

    /// Takes the scanned bytes.
    fn take_scanned(&mut self) -> BytesMut {
        self.bytes.split_to(std::mem::take(&mut self.scanned))
    }

    /// The next whole line, with its line feed.
    pub(super) fn line(&mut self) -> Result<Option<Bytes>, WireError> {
        while let Some(byte) = self.next() {
            if byte == b'\n' {
                return Ok(Some(self.take_scanned().freeze()));
            }
        }
        self.check_size().map(|()| None)
    }

    /// Fails if the buffered bytes are more than an object can have.
    const fn check_size(&self) -> Result<(), WireError> {
        // A line contains an object and its event type.
        if self.scanned > MAX_OBJECT_SIZE + 64 { Err(WireError::TooLarge(self.scanned)) } else { Ok(()) }
    }
}

/// Where the next byte belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// Outside of the items.
    #[default]
    Outside,
    /// At an item, or before it.
    Item,
    /// Between an item and the next.
    AfterItem,
}

/// The items of a list, cut out while it arrives.
#[derive(Debug, Default)]
pub(super) struct Items {
    buffer: ScanBuffer,
    /// The list without its items.
    outside: Vec<u8>,
    place: Place,
    /// How many brackets are open.
    depth: usize,
    in_string: bool,
    escaped: bool,
    has_items: bool,
}

/// The depth between two items: that of the list, and of its array.
const ITEM_DEPTH: usize = 2;

#[derive(Deserialize)]
struct WithoutItems {
    #[serde(default)]
    metadata: ListMeta,
    /// May be null, and is never left out.
    #[serde(deserialize_with = "Option::deserialize")]
    items: Option<Vec<IgnoredAny>>,
}

impl Items {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.push(bytes);
    }

    /// The next whole item. `None`: more bytes are needed, or that was the last one.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, WireError> {
        while let Some(byte) = self.buffer.next() {
            if let Some(item) = self.scan_byte(byte)? {
                return Ok(Some(item));
            }
        }
        self.buffer.check_size()?;
        if self.place == Place::Outside {
            self.keep_outside()?;
        }
        Ok(None)
    }

    /// Ends the list; returns its metadata.
    pub(super) fn end(&mut self) -> Result<ListMeta, WireError> {
        let rest: WithoutItems = serde_json::from_slice(&self.outside).map_err(WireError::Json)?;
        // Items that were not found would be mistaken for removed objects.
        let has_unparsed_items = rest.items.is_some_and(|items| !items.is_empty());
        if has_unparsed_items || !self.outside.trim_ascii_start().starts_with(b"{") {
            return Err(WireError::Truncated);
        }
        Ok(rest.metadata)
    }

    fn scan_byte(&mut self, byte: u8) -> Result<Option<Bytes>, WireError> {
        if self.in_string {
            self.in_string = byte != b'"' || self.escaped;
            self.escaped = byte == b'\\' && !self.escaped;
            return Ok(None);
        }
        match (self.place, byte) {
            (Place::Item | Place::AfterItem, b',' | b']') if self.depth == ITEM_DEPTH => {
                return self.finish_item(byte);
            }
            (Place::AfterItem, byte) if !byte.is_ascii_whitespace() => return Err(WireError::Truncated),
            (_, b'"') => self.in_string = true,
            (_, b'{' | b'[') => self.depth += 1,
            (_, b'}' | b']') => self.depth = self.depth.checked_sub(1).ok_or(WireError::Truncated)?,
            _ => {}
        }
        match (self.place, byte) {
            (Place::Outside, b'[') if self.depth == ITEM_DEPTH => {
                self.keep_outside()?;
                if opens_items(&self.outside) {
                    self.place = Place::Item;
                }
            }
            (Place::Item, b'}' | b']') if self.depth == ITEM_DEPTH => self.place = Place::AfterItem,
            (Place::Item, b'}' | b']') if self.depth < ITEM_DEPTH => return Err(WireError::Truncated),
            _ => {}
        }
        Ok(None)
    }

    /// Ends an item at the comma after it, or the array at its bracket.
    fn finish_item(&mut self, byte: u8) -> Result<Option<Bytes>, WireError> {
        let taken = self.buffer.take_scanned().freeze();
        let item = taken.strip_suffix(&[byte]).unwrap_or_default().trim_ascii();
        if byte == b']' {
            self.depth -= 1;
            self.place = Place::Outside;
            self.outside.push(byte);
            if item.is_empty() && !self.has_items {
                return Ok(None);
            }
        } else {
            self.place = Place::Item;
        }
        if !item.starts_with(b"{") {
            return Err(WireError::Truncated);
        }
        self.has_items = true;
        Ok(Some(taken.slice_ref(item)))
    }

    /// Keeps the bytes outside of the items.
    fn keep_outside(&mut self) -> Result<(), WireError> {
        let more = self.buffer.take_scanned();
        self.outside.extend_from_slice(&more);
        let length = self.outside.len();
        if length > MAX_OBJECT_SIZE { Err(WireError::TooLarge(length)) } else { Ok(()) }
    }
}

/// Whether this ends with the key `items` and the bracket that opens its array.
fn opens_items(outside: &[u8]) -> bool {
    let before_bracket = outside.strip_suffix(b"[").unwrap_or_default().trim_ascii_end();
    let key = before_bracket.strip_suffix(b":").unwrap_or_default().trim_ascii_end();
    key.strip_suffix(b"\"items\"").is_some_and(|before| !before.ends_with(b"\\"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(body: &[u8], cut: usize) -> Result<(Vec<String>, ListMeta, usize), WireError> {
        let (mut items, mut read_items) = (Items::default(), Vec::new());
        for chunk in body.chunks(cut) {
            items.push(chunk);
            while let Some(item) = items.next()? {
                read_items.push(String::from_utf8(item.to_vec()).unwrap());
            }
        }
        Ok((read_items, items.end()?, items.buffer.bytes_scanned))
    }

    /// The strings that brackets, quotes and commas may hide in.
    fn text() -> impl Strategy<Value = String> {
        r#"[\[\]{},:"\\a-c \n]{0,12}|items"#
    }

    fn item() -> impl Strategy<Value = serde_json::Value> {
        let leaf =
            prop_oneof![text().prop_map(serde_json::Value::from), any::<i32>().prop_map(serde_json::Value::from)];
        let value = leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
                proptest::collection::btree_map(text(), inner, 0..4)
                    .prop_map(|all| serde_json::Value::Object(all.into_iter().collect())),
            ]
        });
        proptest::collection::btree_map(text(), value, 0..4)
            .prop_map(|all| serde_json::Value::Object(all.into_iter().collect()))
    }

    proptest! {
        /// A list of 16 MiB in pieces of 16 KiB took 8 GiB of comparisons.
        #[test]
        fn attack_each_byte_of_a_list_or_watch_is_scanned_once(
            items in proptest::collection::vec(item(), 0..6),
            pretty in any::<bool>(),
            cut in 1_usize..50,
        ) {
            let list = serde_json::json!({
                "apiVersion": "v1", "items": items, "kind": "List", "z": { "items": [1, { "items": [] }] },
                "metadata": { "resourceVersion": "7", "continue": "c" },
            });
            let body = if pretty { format!("{list:#}\n") } else { list.to_string() };
            let (read_items, metadata, scanned) = read(body.as_bytes(), cut).unwrap();
            let read_items: Vec<serde_json::Value> = read_items.iter().map(|item| serde_json::from_str(item).unwrap()).collect();
            prop_assert_eq!(read_items, items);
            prop_assert_eq!((metadata.resource_version.as_str(), metadata.r#continue.as_str()), ("7", "c"));
            prop_assert_eq!(scanned, body.len());

            let mut lines = ScanBuffer::default();
            let mut count = 0;
            for chunk in body.as_bytes().chunks(cut) {
                lines.push(chunk);
                while lines.line().unwrap().is_some() {
                    count += 1;
                }
            }
            prop_assert_eq!((count, lines.bytes_scanned), (body.matches('\n').count(), body.len()));
        }
    }

    #[test]
    fn a_body_that_is_no_list_of_objects_is_an_error() {
        for wrong in [
            r#"{"items":[{"a":1} {"b":2}]}"#,
            r#"{"items":[{"a":1},]}"#,
            r#"{"items":[,{"a":1}]}"#,
            r#"{"items":[{"a":1}"x"]}"#,
            r#"{"items":[{"a":1}}]}"#,
            r#"{"items":[{"a":1}]"#,
            r#"{"items":[{"a":1}]}]"#,
            r#"{"items":[null]}"#,
            r#"{"items":["{"]}"#,
            r#"{"items":{"a":1}}"#,
            r#"{"items":[],"items":[{"a":1}]}"#,
            // The same key, with an escape that no API server writes.
            r#"{"\u0069tems":[{"a":1}]}"#,
            r#"[{"items":[]}]"#,
            r#"[["items":[{}]]]"#,
            // Null means no items. A missing key does not.
            r#"{"a\"items":[{"a":1}]}"#,
            "",
        ] {
            assert!(read(wrong.as_bytes(), 4).is_err(), "{wrong}");
        }
        for empty in [r#"{"items":[ ]}"#, r#"{"items":null}"#, r#"{"a\"items":[{"a":1}],"items":[]}"#] {
            assert_eq!(read(empty.as_bytes(), 4).unwrap().0.len(), 0, "{empty}");
        }
    }

    #[test]
    fn attack_an_endless_item_is_rejected_at_the_size_limit() {
        for begins in [r#"{"items":[{"a":""#, r#"{"items":["#, r#"{"a":""#] {
            let mut items = Items::default();
            items.push(begins.as_bytes());
            let piece = " ".repeat(1 << 20);
            let refused = (0..20).find_map(|_| {
                items.push(piece.as_bytes());
                items.next().err()
            });
            assert!(matches!(refused, Some(WireError::TooLarge(_))), "{begins}");
            assert!(items.buffer.bytes.len() <= MAX_OBJECT_SIZE + (2 << 20));
        }
    }
}
