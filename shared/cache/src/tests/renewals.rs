//! A renewed Lease is decoded partially, with the same effect as full decoding.

use crate::wire::{Lease, LeaseSpec, ObjectMeta, Time};
use proptest::prelude::*;
use prost::Message as _;

use super::*;

/// Wraps a protobuf message in the envelope of Kubernetes.
fn raw(message: &[u8]) -> Raw {
    let mut body = b"k8s\0\x12".to_vec();
    prost::encode_length_delimiter(message.len(), &mut body).unwrap();
    body.extend_from_slice(message);
    Raw::from_body(Encoding::Protobuf, body.into()).unwrap()
}

fn uuid(number: u8) -> String {
    format!("00000000-0000-4000-8000-0000000000{number:02x}")
}

#[derive(Clone, Debug)]
enum LeaseEvent {
    /// The Lease of this UID, named after this node, was written; `turned`: a bit of the message is flipped.
    Written {
        uid: u8,
        node: u8,
        version: u16,
        seconds: i64,
        duration: Option<i32>,
        turned: Option<(usize, u8)>,
    },
    Gone(u8),
    Unreadable(u8),
    /// All Leases are listed again, and the list contains only the one of this UID.
    Listed(u8),
}

fn any_lease_event() -> impl Strategy<Value = LeaseEvent> {
    // Sometimes a time that is out of range.
    let seconds = prop_oneof![8 => 0_i64..4, 1 => Just(i64::MAX)];
    let turned = prop_oneof![3 => Just(None), 1 => (0_usize..120, 0_u8..8).prop_map(Some)];
    let written = (0_u8..3, 0_u8..3, any::<u16>(), seconds, any::<Option<i32>>(), turned);
    prop_oneof![
        8 => written.prop_map(|(uid, node, version, seconds, duration, turned)| {
            // Mostly the same Lease of the same node.
            let node = if version % 4 == 0 { node } else { uid };
            LeaseEvent::Written { uid, node, version, seconds, duration, turned }
        }),
        1 => (0_u8..3).prop_map(LeaseEvent::Gone),
        1 => (0_u8..3).prop_map(LeaseEvent::Unreadable),
        1 => (0_u8..3).prop_map(LeaseEvent::Listed),
    ]
}

fn raw_of(happens: &LeaseEvent) -> Option<Raw> {
    let LeaseEvent::Written { uid, node, version, seconds, duration, turned } = happens else { return None };
    let metadata = ObjectMeta {
        name: Some(format!("n{node}")),
        namespace: Some("kube-node-lease".to_owned()),
        uid: Some(uuid(*uid)),
        resource_version: Some(version.to_string()),
        ..ObjectMeta::default()
    };
    let spec = LeaseSpec {
        holder_identity: Some(format!("n{node}")),
        lease_duration_seconds: *duration,
        renew_time: Some(Time { seconds: Some(*seconds), nanos: None }),
        ..LeaseSpec::default()
    };
    let mut message = Lease { metadata: Some(metadata), spec: Some(spec) }.encode_to_vec();
    if let Some((at, bit)) = *turned {
        let at = at % message.len();
        message[at] ^= 1 << bit;
    }
    Some(raw(&message))
}

/// Everything that is kept of Leases and of the last reports of nodes.
fn stored_state(cache: &Cache) -> String {
    let inner = cache.inner.read();
    format!("{:?}\n{:?}\n{:?}\n{:?}", inner.leases, inner.heartbeats, inner.zones, inner.absences)
}

fn started(synced: bool) -> (Cache, Arc<ChangeLog>) {
    let cache = Cache::default();
    list::<Node>(&cache, &[node("n0").ready("True"), node("n1").ready("False")], at(0));
    if synced {
        list::<NodeLease>(&cache, &[lease("n0", 1).uid(&uuid(0)), lease("n1", 1).uid(&uuid(1))], at(1));
    }
    let changes = log_changes(&cache);
    (cache, changes)
}

proptest! {
    #[test]
    fn partial_decoding_has_the_same_effect_as_decoding(synced in any::<bool>(), all in prop::collection::vec(any_lease_event(), 1..20)) {
        let [(quick, quick_changes), (slow, slow_changes)] = [started(synced), started(synced)];
        let mut partial = 0;
        for (second, one) in all.iter().enumerate() {
            let now = at(2 + u64::try_from(second).unwrap());
            if let Some(raw) = raw_of(one) {
                let version = slow.decode_and_apply::<NodeLease>(&raw, now);
                match quick.apply_partial::<NodeLease>(&raw, now) {
                    Some(partial_version) => {
                        partial += 1;
                        prop_assert_eq!(Some(partial_version), version.as_deref());
                    }
                    None => prop_assert_eq!(quick.decode_and_apply::<NodeLease>(&raw, now), version),
                }
            }
            for cache in [&quick, &slow] {
                match one {
                    LeaseEvent::Written { .. } => {}
                    LeaseEvent::Gone(number) => cache.remove::<NodeLease>(&uid(&uuid(*number)), now),
                    LeaseEvent::Unreadable(number) => {
                        let name = format!("n{number}");
                        cache.apply_undecodable::<NodeLease>(unreadable(Some(&uuid(*number)), Some(&name)), now);
                    }
                    LeaseEvent::Listed(number) => list::<NodeLease>(cache, &[lease(&format!("n{number}"), 1).uid(&uuid(*number))], now),
                }
            }
            prop_assert_eq!(stored_state(&quick), stored_state(&slow), "{:?}, {} partially decoded", one, partial);
            prop_assert_eq!(quick_changes.drain(), slow_changes.drain());
        }
    }
}

#[test]
fn a_renewal_of_a_cached_lease_is_decoded_partially() {
    let (cache, changes) = started(true);
    let renewal = |uid, node, seconds| {
        let one = LeaseEvent::Written { uid, node, version: 7, seconds, duration: Some(40), turned: None };
        raw_of(&one).unwrap()
    };
    assert_eq!(cache.apply_partial::<NodeLease>(&renewal(0, 0, 2), at(5)), Some("7"));
    assert_eq!(changes.drain(), ["heartbeat n0"]);
    assert_eq!(cache.apply_partial::<NodeLease>(&renewal(0, 0, 2), at(6)), Some("7"), "written, and not renewed");
    assert!(changes.drain().is_empty());
    assert_eq!(cache.apply_partial::<NodeLease>(&renewal(2, 2, 2), at(7)), None, "it is not in the cache");
    assert_eq!(cache.apply_partial::<NodeLease>(&renewal(0, 1, 2), at(7)), None, "it has another name");
    assert_eq!(cache.apply_partial::<NodeLease>(&renewal(0, 0, i64::MAX), at(7)), None, "the time is out of range");
    assert_eq!(cache.apply_partial::<Pod>(&renewal(0, 0, 3), at(7)), None, "pods are decoded");
}
