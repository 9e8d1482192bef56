use pod_safety_fuzz::protobuf::field;
use proptest::prelude::*;

use super::*;
use crate::{ContainerState, ContainerStatus, MapKey, ObjectMeta, Pod, PodSpec, PodStatus, Presence, Time};

fn envelope(raw: Vec<u8>) -> Bytes {
    let mut out = MAGIC.to_vec();
    Envelope { raw: Some(raw.into()) }.encode(&mut out).unwrap();
    out.into()
}

fn any_meta() -> impl Strategy<Value = ObjectMeta> {
    let texts = (any::<Option<String>>(), any::<Option<String>>(), any::<Option<String>>(), any::<Option<String>>());
    let numbers = (any::<Option<i64>>(), any::<Option<i64>>());
    // The years that JSON can represent; protobuf has a larger range.
    let time = prop::option::of((-60_000_000_000_i64..250_000_000_000, 0..1_000_000_000_i32));
    let keys = prop::collection::btree_set(any::<String>(), 0..3);
    (texts, numbers, time, keys, any::<Vec<String>>()).prop_map(
        |((name, namespace, uid, resource_version), (generation, grace), time, keys, finalizers)| {
            let time = time.map(|(seconds, nanos)| Time { seconds: Some(seconds), nanos: Some(nanos) });
            ObjectMeta {
                name,
                namespace,
                uid,
                resource_version,
                generation,
                creation_timestamp: time,
                deletion_timestamp: time,
                deletion_grace_period_seconds: grace,
                labels: finalizers.iter().map(|text| (text.clone(), text.clone())).collect(),
                owner_references: vec![crate::OwnerReference {
                    name: finalizers.first().cloned().unwrap_or_default().into_bytes(),
                    ..Default::default()
                }],
                annotations: keys.into_iter().map(|key| MapKey { key }).collect(),
                finalizers,
            }
        },
    )
}

fn any_pod() -> impl Strategy<Value = Pod> {
    let running = prop::collection::vec(any::<Option<bool>>(), 0..3);
    (any_meta(), any::<Option<String>>(), any::<Option<String>>(), running).prop_map(
        |(metadata, node_name, phase, runs)| {
            let report = |runs: Option<bool>| ContainerStatus {
                restart_count: runs.map(i32::from),
                state: runs.map(|runs| ContainerState {
                    running: runs.then_some(Presence {}),
                    terminated: (!runs).then_some(Presence {}),
                }),
            };
            let statuses: Vec<_> = runs.into_iter().map(report).collect();
            Pod {
                metadata: Some(metadata),
                spec: Some(PodSpec { node_name, ..PodSpec::default() }),
                status: Some(PodStatus {
                    phase,
                    container_statuses: statuses.clone(),
                    init_container_statuses: statuses,
                    ..PodStatus::default()
                }),
            }
        },
    )
}

proptest! {
    /// The encodings are equivalent: the same object gives the same fields in both.
    #[test]
    fn a_pod_decodes_the_same_from_json_and_protobuf(pod in any_pod()) {
        let json = Raw::from_body(Encoding::Json, serde_json::to_vec(&pod).unwrap().into()).unwrap();
        let protobuf = Raw::from_body(Encoding::Protobuf, envelope(pod.encode_to_vec())).unwrap();
        prop_assert_eq!(&json.decode::<Pod>().unwrap(), &pod);
        prop_assert_eq!(&protobuf.decode::<Pod>().unwrap(), &pod);
    }

    /// The same events result however the network splits a stream.
    #[test]
    fn a_watch_stream_may_be_split_anywhere(names in prop::collection::vec("[a-z]{0,12}", 1..6), cut in 1_usize..40, protobuf in any::<bool>()) {
        let encoding = if protobuf { Encoding::Protobuf } else { Encoding::Json };
        let mut stream = Vec::new();
        for name in &names {
            let pod = Pod { metadata: Some(ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() }), ..Pod::default() };
            if protobuf {
                let raw = envelope(pod.encode_to_vec());
                let event = ProtobufEvent { kind: "ADDED".into(), object: Some(RawExtension { raw }) }.encode_to_vec();
                stream.extend_from_slice(&u32::try_from(event.len()).unwrap().to_be_bytes());
                stream.extend_from_slice(&event);
            } else {
                stream.extend_from_slice(format!("{{\"type\":\"ADDED\",\"object\":{}}}\n", serde_json::to_string(&pod).unwrap()).as_bytes());
            }
        }
        let mut frames = Frames::new(encoding);
        let mut seen = Vec::new();
        for chunk in stream.chunks(cut) {
            frames.push(chunk);
            while let Some(event) = frames.next_event().unwrap() {
                let Event::Applied(raw) = event else { panic!("{event:?}") };
                seen.push(raw.decode::<Pod>().unwrap().metadata.unwrap().name.unwrap());
            }
        }
        prop_assert_eq!(seen, names);
    }

    /// No input causes a panic.
    #[test]
    fn garbage_in_a_watch_stream_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), protobuf in any::<bool>()) {
        let encoding = if protobuf { Encoding::Protobuf } else { Encoding::Json };
                let mut frames = Frames::new(encoding);
        frames.push(&bytes);
        drop(frames.next_event());
    }
}

#[test]
fn null_decodes_as_an_empty_list() {
    let json = Bytes::from_static(br#"{"metadata":{"finalizers":null,"annotations":null}}"#);
    let pod = Raw::from_body(Encoding::Json, json).unwrap();
    assert_eq!(pod.decode::<Pod>().unwrap().metadata, Some(ObjectMeta::default()));
}

/// With such a pod, a tenant could have all pods listed again and again: its removal did not name it.
#[test]
fn bug_text_that_is_no_utf8_made_its_object_unreadable() {
    let owner = [1, 3, 4, 5].map(|tag| field(tag, b"\xff")).concat();
    let meta = field(1, &[field(5, b"u"), field(13, &owner)].concat());
    let raw = |spec: &[u8]| Raw::new(Encoding::Protobuf, [&meta[..], &field(2, spec)].concat().into());
    let claim = field(1, &field(2, &field(10, &field(1, b"\xff"))));
    assert!(raw(&claim).decode::<Pod>().is_ok());
    assert!(raw(&field(3, b"\xff")).decode::<crate::PersistentVolumeClaim>().is_ok());
    let only: crate::OnlyMeta = raw(&[]).decode().unwrap();
    assert_eq!(only.metadata.and_then(|meta| meta.uid).as_deref(), Some("u"));
}

#[test]
fn protobuf_without_its_envelope_is_refused() {
    assert!(matches!(Raw::from_body(Encoding::Protobuf, Bytes::from_static(b"{}")), Err(WireError::NoMagic)));
}

#[test]
fn a_frame_that_is_too_large_is_rejected_at_its_head() {
    let mut frames = Frames::new(Encoding::Protobuf);
    frames.push(&[0xFF, 0, 0, 0]);
    assert!(matches!(frames.next_event(), Err(WireError::TooLarge(_))));
}

#[test]
fn an_event_of_an_unknown_type_is_an_error_that_names_it() {
    let mut frames = Frames::new(Encoding::Json);
    frames.push(b"{\"type\":\"MOVED\",\"object\":{}}\n");
    assert_eq!(frames.next_event().unwrap_err().to_string(), r#"a watch event of the unknown type "MOVED""#);
}

#[test]
fn bug_a_time_before_1970_had_negative_nanoseconds() {
    let time: Time = serde_json::from_str(r#""1969-12-31T23:59:59.000000001Z""#).unwrap();
    assert_eq!(time, Time { seconds: Some(-1), nanos: Some(1) });
    assert_eq!(time.whole_seconds(), -1);
}
