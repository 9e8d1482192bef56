//! Which holds have an Event.

use std::sync::Arc;

use crate::holds::{Doubt, Remedy};
use pod_safety_shared::events::EventType::{Normal, Warning};
use pod_safety_shared::model::Holder;
use pod_safety_shared::testing::assert_events;

use super::*;

#[test]
fn a_volume_denied_to_all_nodes_and_a_waiting_pod_have_an_event() {
    let (volume, node) = (|| Arc::from("v"), || Arc::from("n"));
    let word = || "w".to_owned();
    let held = Some((Warning, "VolumeHeld"));
    let unproved = |detachable| Hold::NoEvidence {
        volume: volume(),
        node: node(),
        doubt: Doubt::NotReady,
        detachable,
        remedy: Remedy::for_holder(&Holder::parse("n/u//-").unwrap(), &Doubt::NotReady),
    };
    let rows = vec![
        (unproved(true), held),
        (unproved(false), held),
        (Hold::SeveralNodes { volume: volume(), nodes: vec![word()] }, held),
        (Hold::LeaseUnreadable { volume: volume(), identity: "x".into() }, held),
        (Hold::Waits { volume: volume(), why: word() }, Some((Normal, "WaitsForVolume"))),
        (Hold::Detached { volume: volume(), node: node() }, None),
        (Hold::Unconfirmed { volume: volume(), node: node(), left: Duration::from_secs(9) }, None),
        (Hold::Unreadable { volume: volume(), what: word(), why: word() }, None),
        (Hold::KindUnreadable { volume: volume(), kind: Kind::Pods, count: 1 }, None),
    ];
    assert_events(rows, &[]);
}
