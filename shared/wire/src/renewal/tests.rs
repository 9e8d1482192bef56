use bytes::Bytes;
use prost::Message as _;

use super::*;
use crate::{Lease, LeaseSpec, ObjectMeta, OwnerReference};

fn raw(message: Vec<u8>) -> Raw {
    Raw::new(Encoding::Protobuf, Bytes::from(message))
}

/// The Lease as prost decodes it. `None`: it cannot be decoded, or lacks a part.
fn by_prost(raw: &Raw) -> Option<(ObjectMeta, LeaseSpec)> {
    let lease = raw.decode::<Lease>().ok()?;
    Some((lease.metadata?, lease.spec?))
}

/// Asserts that a parsed renewal equals what prost decodes; returns whether it was parsed.
pub(super) fn matches_prost(message: Vec<u8>) -> bool {
    let raw = raw(message);
    let Some(fast) = raw.renewal() else { return false };
    let (meta, spec) = by_prost(&raw).unwrap_or_else(|| panic!("prost does not read {raw:?}"));
    let texts = [meta.name, meta.uid, meta.resource_version].map(Option::unwrap);
    assert_eq!([fast.name, fast.uid, fast.resource_version], texts.each_ref().map(String::as_str));
    assert_eq!((fast.renew_time, fast.lease_duration_seconds), (spec.renew_time, spec.lease_duration_seconds));
    true
}

fn kubelet_lease() -> Lease {
    let text = |text: &str| Some(text.to_owned());
    let owner = OwnerReference { name: b"node-0".to_vec(), uid: b"u".to_vec(), ..OwnerReference::default() };
    let metadata = ObjectMeta {
        name: text("node-0"),
        namespace: text("kube-node-lease"),
        uid: text("34a327ac-42c8-4ded-8cb1-e58c5b2e4106"),
        resource_version: text("198"),
        creation_timestamp: Some(Time { seconds: Some(1_700_000_000), nanos: None }),
        labels: [("a".to_owned(), "b".to_owned())].into(),
        owner_references: vec![owner],
        ..ObjectMeta::default()
    };
    let spec = LeaseSpec {
        holder_identity: text("node-0"),
        lease_duration_seconds: Some(40),
        renew_time: Some(Time { seconds: Some(1_700_000_010), nanos: Some(123_000) }),
        ..LeaseSpec::default()
    };
    Lease { metadata: Some(metadata), spec: Some(spec) }
}

/// A recorded Lease of a real API server, with managed fields, and Leases that prost writes.
pub(super) fn seeds() -> [Vec<u8>; 3] {
    let recorded = Bytes::from_static(include_bytes!("../../../testdata/wire/lease.pb"));
    let recorded = Raw::from_body(Encoding::Protobuf, recorded).unwrap();
    let negative = LeaseSpec {
        lease_duration_seconds: Some(-1),
        renew_time: Some(Time { seconds: Some(-62_135_596_800), nanos: Some(0) }),
        ..LeaseSpec::default()
    };
    let negative = Lease { spec: Some(negative), ..kubelet_lease() };
    [recorded.bytes().to_vec(), kubelet_lease().encode_to_vec(), negative.encode_to_vec()]
}

#[test]
fn a_renewal_of_a_kubelet_is_parsed_without_prost() {
    for seed in seeds() {
        assert!(matches_prost(seed));
    }
}

#[test]
fn a_truncated_renewal_is_parsed_as_prost_decodes_it() {
    for seed in seeds() {
        for end in 0..seed.len() {
            matches_prost(seed[..end].to_vec());
        }
    }
}

#[test]
fn a_renewal_with_a_flipped_bit_is_parsed_as_prost_decodes_it() {
    for seed in seeds() {
        for at in 0..seed.len() {
            for bit in 0..8 {
                let mut changed = seed.clone();
                changed[at] ^= 1 << bit;
                matches_prost(changed);
            }
        }
    }
}

#[test]
fn unusual_encodings_of_a_lease_are_left_to_prost() {
    let whole = kubelet_lease().encode_to_vec();
    let parts = |more: &[u8]| [&whole[..], more].concat();
    let meta = |meta: ObjectMeta| Lease { metadata: Some(meta), ..Lease::default() }.encode_to_vec();
    let renamed = meta(ObjectMeta { name: Some("other".to_owned()), ..ObjectMeta::default() });
    for (what, message) in [
        ("metadata come twice, and the second name counts", parts(&renamed)),
        ("no spec", Lease { spec: None, ..kubelet_lease() }.encode_to_vec()),
        ("no metadata", Lease { metadata: None, ..kubelet_lease() }.encode_to_vec()),
        ("a group", parts(&[0x1b, 0x1c])),
        ("eight bytes", parts(&[0x19, 0, 0, 0, 0, 0, 0, 0, 0])),
        ("field 0", parts(&[0x02, 0])),
    ] {
        assert!(raw(message).renewal().is_none(), "{what}");
    }
    let unknown = parts(&[0x1a, 0x01, 0xff, 0x20, 0x07]);
    assert!(matches_prost(unknown), "fields that are not declared may have any value");
    let json = Raw::new(Encoding::Json, Bytes::from_static(b"{}"));
    assert!(json.renewal().is_none());
}
