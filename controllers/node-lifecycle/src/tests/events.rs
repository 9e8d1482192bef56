//! Which holds have an Event.

use pod_safety_shared::controller_loop::{FORCE_DELETE_HELD, NodeUnreadable};
use pod_safety_shared::events::EventType::Warning;
use pod_safety_shared::testing::assert_events;

use super::*;

#[test]
fn only_a_node_that_cannot_be_read_has_an_event() {
    let zone = || Arc::from("zone");
    let unreadable = NodeUnreadable { node: "n".into(), why: "no version".to_owned() };
    let rows = vec![
        (Hold::NodeUnreadable(unreadable), Some((Warning, FORCE_DELETE_HELD))),
        (Hold::LargeOutage { lost: 3, of: 4 }, None),
        (Hold::ZoneDisrupted { zone: zone(), not_ready: 3, of: 4 }, None),
        (Hold::EvictionOff, None),
        (Hold::EvictionQueued { zone: zone(), ahead: 1, next: Duration::from_secs(10) }, None),
    ];
    assert_events(rows, &[]);
}
