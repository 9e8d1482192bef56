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

fn says(seconds: Option<i32>) -> LeaseRead {
    read("2026-01-01T00:00:07Z", seconds)
}

#[test]
fn the_renewal_window_is_three_eighths_of_the_lease_duration() {
    for (lease, seconds) in [
        (says(Some(40)), 15),
        (says(Some(8)), 3),
        (says(Some(300)), 112),
        (says(Some(i32::MAX)), 225),
        // An invalid duration is replaced by the default.
        (says(None), 15),
        (says(Some(0)), 15),
        (says(Some(-1)), 15),
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
    for (silent, seconds) in [(0, 15), (10, 15), (25, 15), (26, 14), (39, 1), (40, 0), (400, 0)] {
        assert_eq!(listen(silent, &says(Some(40))), seconds, "silent for {silent}s");
    }
    let moved = read("2026-01-01T00:00:08Z", Some(40));
    assert_eq!(listen(400, &moved), 15, "the watch is behind");
    assert_eq!(listen(400, &absent()), 15, "it went, and the watch is behind");
    let other = time_to_observe("m", &says(Some(40)), &world.read().view(), begin + Duration::from_secs(400));
    assert_eq!(other.as_secs(), 15, "a Lease that has not moved since this process began");
}
