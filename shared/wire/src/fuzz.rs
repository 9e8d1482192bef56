//! Fuzz targets: arbitrary bytes in place of responses of an API server.

use std::fmt::Debug;

use bytes::Bytes;
use pod_safety_fuzz::{Draw, fuzz, json, protobuf};
use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::codec::MAGIC;
use super::recorded::DecodedFields;
use super::*;

/// Keys and values that have a meaning in these objects.
const WORDS: &[&str] = &[
    "metadata",
    "name",
    "uid",
    "resourceVersion",
    "labels",
    "annotations",
    "finalizers",
    "spec",
    "status",
    "phase",
    "conditions",
    "type",
    "True",
    "items",
    "continue",
    "null",
    "running",
    "source",
    "csi",
    "renewTime",
    "500m",
];

/// One kind: recorded responses of a real API server in both encodings, and the properties of variations of them.
struct Recorded {
    protobuf: &'static [u8],
    json: &'static [u8],
    check: fn(&mut Draw<'_>, &Recorded),
    truncated: fn(&Recorded),
}

macro_rules! recorded {
    ($kind:ty, $name:literal) => {
        Recorded {
            protobuf: include_bytes!(concat!("../../testdata/wire/", $name, ".pb")),
            json: include_bytes!(concat!("../../testdata/wire/", $name, ".json")),
            check: both_encodings::<$kind>,
            truncated: truncated::<$kind>,
        }
    };
}

const ALL: [Recorded; 21] = [
    recorded!(Pod, "pod"),
    recorded!(Pod, "gated"),
    recorded!(PodNeeds, "pod"),
    recorded!(Node, "node"),
    recorded!(NodeAllocatable, "node"),
    recorded!(Lease, "lease"),
    recorded!(Budget, "budget"),
    recorded!(Budget, "most"),
    recorded!(Workload, "statefulset"),
    recorded!(Workload, "deployment"),
    recorded!(Workload, "replicaset"),
    recorded!(Workload, "replicationcontroller"),
    recorded!(PersistentVolume, "volume"),
    recorded!(PersistentVolumeClaim, "claim"),
    recorded!(VolumeAttachment, "attachment"),
    recorded!(CsiDriver, "csidriver"),
    recorded!(Pod, "evictee"),
    recorded!(EvictionRequest, "evictionrequest"),
    recorded!(Eviction, "eviction"),
    recorded!(Status, "status"),
    recorded!(ApiResourceList, "resources"),
];

impl Recorded {
    /// The message in its envelope.
    fn message(&self) -> Bytes {
        let envelope = Bytes::from_static(self.protobuf).slice(MAGIC.len()..);
        AnyEnvelope::decode(envelope).unwrap().raw
    }
}

/// `runtime.Unknown`, read by prost as a whole.
#[derive(Clone, PartialEq, Message)]
struct AnyEnvelope {
    #[prost(bytes = "bytes", tag = "2")]
    raw: Bytes,
}

/// A list of anything, read by prost as a whole.
#[derive(Clone, PartialEq, Message)]
struct AnyList {
    #[prost(message, optional, tag = "1")]
    metadata: Option<AnyListMeta>,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    items: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyListMeta {
    #[prost(string, tag = "2")]
    resource_version: String,
    #[prost(string, tag = "3")]
    next: String,
}

/// A watch event of anything, read by prost as a whole.
#[derive(Clone, PartialEq, Message)]
struct AnyEvent {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(message, optional, tag = "2")]
    object: Option<AnyExtension>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyExtension {
    #[prost(bytes = "bytes", tag = "1")]
    raw: Bytes,
}

fn envelope(message: &[u8]) -> Vec<u8> {
    let kind = protobuf::field(1, &[protobuf::field(1, b"v1"), protobuf::field(2, b"Any")].concat());
    [MAGIC.to_vec(), kind, protobuf::field(2, message), protobuf::field(3, b""), protobuf::field(4, b"")].concat()
}

fn decoded<T: Decode>(encoding: Encoding, body: Vec<u8>) -> Result<T, WireError> {
    Raw::from_body(encoding, body.into())?.decode()
}

fn decoded_fields<T: Serialize>(read: &T) -> Option<DecodedFields> {
    let mut fields = DecodedFields::default();
    fields.collect(&serde_json::to_value(read).ok()?, "");
    fields.blank.clear();
    Some(fields)
}

/// An object decoded from JSON is decoded equally from its protobuf form, and the other way round.
fn both_encodings<T>(draw: &mut Draw<'_>, seed: &Recorded)
where
    T: Message + Default + PartialEq + Debug + Serialize + DeserializeOwned,
{
    let mut object: Value = serde_json::from_slice(seed.json).unwrap();
    json::vary(draw, &mut object, WORDS);
    if let Ok(read) = decoded::<T>(Encoding::Json, object.to_string().into_bytes()) {
        let again = decoded::<T>(Encoding::Protobuf, envelope(&read.encode_to_vec())).unwrap();
        assert_eq!(again, read, "{object}");
    }
    let message = protobuf::vary(draw, &seed.message());
    let Ok(read) = decoded::<T>(Encoding::Protobuf, envelope(&message)) else { return };
    // JSON cannot represent a time that is out of range.
    let Ok(text) = serde_json::to_vec(&read) else { return };
    let again = decoded::<T>(Encoding::Json, text).unwrap();
    assert_eq!(decoded_fields(&again), decoded_fields(&read), "{read:?}");
}

#[test]
fn every_kind_decodes_the_same_from_json_and_protobuf() {
    fuzz!(3_000, |draw| {
        let seed = draw.one_of(&ALL).unwrap();
        (seed.check)(draw, seed);
    });
}

/// A truncated response is an error, and never a smaller object. The fields after the object in its envelope are
/// empty.
fn truncated<T: Message + Default + PartialEq + Debug + DeserializeOwned>(seed: &Recorded) {
    let whole = decoded::<T>(Encoding::Protobuf, seed.protobuf.to_vec()).unwrap();
    for end in 0..seed.protobuf.len() {
        if let Ok(read) = decoded::<T>(Encoding::Protobuf, seed.protobuf[..end].to_vec()) {
            assert_eq!(read, whole, "of {} bytes {end}", seed.protobuf.len());
        }
    }
    for end in 0..seed.json.trim_ascii_end().len() {
        assert!(decoded::<T>(Encoding::Json, seed.json[..end].to_vec()).is_err(), "{end}");
    }
}

#[test]
fn bug_a_truncated_response_decoded_as_an_empty_object() {
    for seed in &ALL {
        (seed.truncated)(seed);
    }
    assert!(decoded::<Pod>(Encoding::Protobuf, MAGIC.to_vec()).is_err());
}

/// The items of a list, and whether it ended without an error: then its version and continue token.
type Listed = (Vec<Raw>, Result<(String, String), String>);

fn listed(encoding: Encoding, pieces: &[&[u8]]) -> Listed {
    let mut list = List::new(encoding);
    let mut items = Vec::new();
    let mut all = || -> Result<(), WireError> {
        for piece in pieces {
            list.push(piece);
            while let Some(item) = list.next_item()? {
                items.push(item);
            }
        }
        list.end();
        while let Some(item) = list.next_item()? {
            items.push(item);
        }
        Ok(())
    };
    let end = all().map_err(|error| error.to_string());
    let end = end.map(|()| (list.resource_version().to_owned(), list.continue_token().to_owned()));
    (items, end)
}

fn assert_same_in_pieces(draw: &mut Draw<'_>, encoding: Encoding, body: &[u8], whole: &Listed) {
    assert_eq!(format!("{:?}", listed(encoding, &draw.split_random(body))), format!("{whole:?}"));
}

/// A list of protobuf objects with variations.
fn protobuf_list(draw: &mut Draw<'_>) -> Vec<u8> {
    let metadata = [protobuf::field(2, b"7"), protobuf::field(3, b"more")].concat();
    let mut list = protobuf::field(1, &metadata);
    for _ in 0..draw.below(5) {
        list.extend(protobuf::field(2, &draw.one_of(&ALL).unwrap().message()));
    }
    let list = if draw.once_in(2) { protobuf::vary(draw, &list) } else { list };
    let whole = envelope(&list);
    match draw.below(4) {
        0 => [MAGIC, &protobuf::vary(draw, &whole[MAGIC.len()..])].concat(),
        1 => draw.corrupt(&whole),
        _ => whole,
    }
}

/// The result does not depend on how a list is split, and agrees with decoding it as a whole.
#[test]
fn a_protobuf_list_decodes_the_same_in_pieces() {
    fuzz!(3_000, |draw| {
        let body = protobuf_list(draw);
        let listing = listed(Encoding::Protobuf, &[&body]);
        assert_same_in_pieces(draw, Encoding::Protobuf, &body, &listing);
        let (items, Ok((version, next))) = listing else { return };
        let message = AnyEnvelope::decode(&body[MAGIC.len()..]).unwrap().raw;
        let list = AnyList::decode(message).unwrap();
        let metadata = list.metadata.unwrap_or_default();
        assert_eq!((version, next), (metadata.resource_version, metadata.next));
        let expected: Vec<Raw> = list.items.into_iter().map(|item| Raw::new(Encoding::Protobuf, item)).collect();
        assert_eq!(format!("{items:?}"), format!("{expected:?}"));
    });
}

#[test]
fn a_json_list_decodes_the_same_in_pieces() {
    fuzz!(1_500, |draw| {
        let items: Vec<Value> =
            (0..draw.below(4)).map(|_| serde_json::from_slice(draw.one_of(&ALL).unwrap().json).unwrap()).collect();
        let mut list =
            serde_json::json!({ "metadata": { "resourceVersion": "7", "continue": "more" }, "items": items });
        json::vary(draw, &mut list, WORDS);
        let body = list.to_string().into_bytes();
        let body = if draw.once_in(3) { draw.corrupt(&body) } else { body };
        let listing = listed(Encoding::Json, &[&body]);
        assert_same_in_pieces(draw, Encoding::Json, &body, &listing);
        let (items, Ok(_)) = listing else { return };
        // An item that is not JSON is an error of that item only.
        let Ok(whole) = serde_json::from_slice::<Value>(&body) else { return };
        let items: Vec<Value> = items.iter().map(|item| item.to_json().unwrap()).collect();
        assert_eq!(Some(&items), whole.get("items").and_then(Value::as_array).or(Some(&Vec::new())));
    });
}

/// The events of a watch, and the error that ended it.
fn watched(encoding: Encoding, pieces: &[&[u8]]) -> (Vec<String>, Result<(), String>) {
    let mut frames = Frames::new(encoding);
    let mut events = Vec::new();
    let mut all = || -> Result<(), WireError> {
        for piece in pieces {
            frames.push(piece);
            while let Some(event) = frames.next_event()? {
                events.push(format!("{event:?}"));
            }
        }
        Ok(())
    };
    let end = all().map_err(|error| error.to_string());
    (events, end)
}

/// A watch stream with variations.
fn stream(draw: &mut Draw<'_>, encoding: Encoding) -> Vec<u8> {
    let mut stream = Vec::new();
    for _ in 0..draw.below(5) {
        let kind = draw.word(&["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "MOVED", ""]);
        let seed = draw.one_of(&ALL).unwrap();
        match encoding {
            Encoding::Protobuf => {
                let object = protobuf::field(1, seed.protobuf);
                let event = [protobuf::field(1, kind.as_bytes()), protobuf::field(2, &object)].concat();
                let event = if draw.once_in(3) { protobuf::vary(draw, &event) } else { event };
                stream.extend_from_slice(&u32::try_from(event.len()).unwrap().to_be_bytes());
                stream.extend_from_slice(&event);
            }
            Encoding::Json => {
                let object: Value = serde_json::from_slice(seed.json).unwrap();
                let mut event = serde_json::json!({ "type": kind, "object": object });
                if draw.once_in(3) {
                    json::vary(draw, &mut event, WORDS);
                }
                stream.extend_from_slice(format!("{event}\n").as_bytes());
            }
        }
    }
    if draw.once_in(3) { draw.corrupt(&stream) } else { stream }
}

#[test]
fn a_watch_decodes_the_same_in_pieces() {
    fuzz!(3_000, |draw| {
        for encoding in [Encoding::Json, Encoding::Protobuf] {
            let stream = stream(draw, encoding);
            let (events, end) = watched(encoding, &[&stream]);
            assert_eq!(watched(encoding, &draw.split_random(&stream)), (events.clone(), end.clone()));
            if end.is_ok() {
                assert_eq!(events.len(), whole_events(encoding, &stream));
            }
        }
    });
}

/// How many events are complete, counted by another decoder.
fn whole_events(encoding: Encoding, mut stream: &[u8]) -> usize {
    if encoding == Encoding::Json {
        return stream.iter().filter(|byte| **byte == b'\n').count();
    }
    let mut count = 0;
    while let Some((head, rest)) = stream.split_first_chunk::<4>() {
        let Some((event, rest)) = rest.split_at_checked(u32::from_be_bytes(*head) as usize) else { break };
        AnyEvent::decode(event).unwrap();
        (count, stream) = (count + 1, rest);
    }
    count
}
