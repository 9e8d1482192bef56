//! Which holds have an Event.

use super::*;
use pod_safety_shared::controller_loop::{FORCE_DELETE_HELD, NodeUnreadable};
use pod_safety_shared::events::EventType::Warning;
use pod_safety_shared::testing::assert_events;

#[test]
fn holds_that_do_not_pass_by_themselves_have_an_event() {
    let (node, taint): (Arc<str>, _) = ("n".into(), "k:NoExecute".to_owned());
    let unreadable = NodeUnreadable { node: Arc::clone(&node), why: "no version".to_owned() };
    let operator = "Like".to_owned();
    let unknown = Hold::TolerationUnreadable { node: Arc::clone(&node), taint: taint.clone(), operator };
    let rows = vec![
        (Hold::NodeUnreadable(unreadable), Some((Warning, FORCE_DELETE_HELD))),
        (unknown, Some((Warning, "TaintEvictionHeld"))),
        (Hold::Tolerated { node, taint, left: Duration::from_secs(300) }, None),
    ];
    assert_events(rows, &["Tolerated"]);
}
