//! How long a kubelet must not have reported, according to this process's watch.

use std::time::Duration;

use pod_safety_proof::LeaseRead;
use pod_safety_proof::lease_age::{renewal_window, time_to_observe};
use serde_json::json;

use crate::clock::Mono;
use crate::model::Kind;
use crate::testing::World;
use crate::testing::objects::lease;
use crate::wire::{Encoding, Raw};

fn read(renewed: &str, seconds: Option<i32>) -> LeaseRead {
    let spec = json!({ "renewTime": renewed, "leaseDurationSeconds": seconds });
    let body = json!({ "metadata": { "uid": "uid-lease-n" }, "spec": spec }).to_string();
    LeaseRead::decode(Some(&Raw::from_body(Encoding::Json, body.into()).unwrap())).unwrap()
}

fn absent() -> LeaseRead {
    LeaseRead::decode(None).unwrap()
}

fn lease_with_duration(seconds: Option<i32>) -> LeaseRead {
    read("2026-01-01T00:00:07Z", seconds)
}

#[test]
fn the_renewal_window_is_three_eighths_of_the_lease_duration() {
    for (lease, seconds) in [
        (lease_with_duration(Some(40)), 15),
        (lease_with_duration(Some(8)), 3),
        (lease_with_duration(Some(300)), 112),
        (lease_with_duration(Some(i32::MAX)), 225),
        // An invalid duration is replaced by the default.
        (lease_with_duration(None), 15),
        (lease_with_duration(Some(0)), 15),
        (lease_with_duration(Some(-1)), 15),
        (absent(), 15),
    ] {
        assert_eq!(renewal_window(&lease).as_secs(), seconds, "{lease:?}");
    }
}

/// A planted bug: the Lease is watched for five seconds, whenever it was last renewed.
#[test]
fn time_to_observe_is_shorter_the_longer_a_lease_was_not_renewed() {
    let world = World::listed();
    let begin = Mono::from_start(Duration::from_secs(100));
    world.apply(Kind::NodeLeases, &lease("n", 7).0, begin);
    let listen = |at: u64, lease: &LeaseRead| {
        time_to_observe("n", lease, &world.read().view(), begin + Duration::from_secs(at)).as_secs()
    };
    for (unrenewed, seconds) in [(0, 15), (10, 15), (25, 15), (26, 14), (39, 1), (40, 0), (400, 0)] {
        assert_eq!(listen(unrenewed, &lease_with_duration(Some(40))), seconds, "silent for {unrenewed}s");
    }
    let moved = read("2026-01-01T00:00:08Z", Some(40));
    assert_eq!(listen(400, &moved), 15, "the watch is behind");
    assert_eq!(listen(400, &absent()), 15, "it went, and the watch is behind");
    let other =
        time_to_observe("m", &lease_with_duration(Some(40)), &world.read().view(), begin + Duration::from_secs(400));
    assert_eq!(other.as_secs(), 15, "a Lease that has not moved since this process began");
}
