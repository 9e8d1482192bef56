//! Which pods are evicted by EvictionRequests, and how long their responders may take.

use super::*;

/// A replica whose pod names these responders.
fn with_responders(name: &str, responders: &Value) -> Value {
    replica("a", name).set("/spec/evictionResponders", responders.clone()).into()
}

#[test]
fn responders_are_listed_in_their_order_with_twenty_minutes_for_each() {
    let mut fixture = fixture();
    let responders = json!([
        { "name": "a.com/last", "priority": 1_000 },
        { "name": "pod-safety.dev/lost-node", "priority": 20_000 },
        { "name": "b.com/second", "priority": 10_000 },
    ]);
    fixture.pod(&with_responders("a-0", &responders));
    let method = &fixture.plan().rows[0].method;
    assert_eq!(method.responders(), ["pod-safety.dev/lost-node", "b.com/second", "a.com/last"]);
    assert_eq!(method.worst_wait().as_secs(), 3 * 1_200);
}

#[test]
fn pods_of_gangs_and_of_daemon_sets_and_mirror_pods_are_not_requested() {
    let mut fixture = fixture();
    let gang: Value = replica("a", "a-0").set("/spec/schedulingGroup", json!({ "podGroupName": "g" })).into();
    fixture.pod(&gang);
    fixture.pod(&pod("a", "daemon").owned_by("apps/v1", "DaemonSet", "agent"));
    fixture.pod(&pod("a", "static").mirror());
    fixture.replica("a", "plain-0");
    let plan = fixture.plan();
    let method = |name: &str| &plan.rows[index(&plan, name)].method;
    assert_eq!(*method("a-0"), EvictionMethod::Direct("a member of a gang"));
    assert_eq!(*method("daemon"), EvictionMethod::Direct("a pod of a DaemonSet"));
    assert_eq!(*method("static"), EvictionMethod::Direct("a mirror pod"));
    assert_eq!(*method("plain-0"), EvictionMethod::Request(Vec::new()));
}
