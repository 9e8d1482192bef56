//! Which fields of nodes are kept, and which changes notify.

use crate::model::{ConditionState, Pressures, Readiness};
use crate::wire;

use super::*;

fn ready(status: &str, heartbeat: u8) -> Value {
    json!({ "type": "Ready", "status": status, "lastHeartbeatTime": format!("2026-01-01T00:00:{heartbeat:02}Z"),
        "lastTransitionTime": "2026-01-01T00:00:07Z", "reason": "KubeletReady", "message": "it is posting ready status" })
}

fn reports(rv: u64, status: &str, heartbeat: u8) -> Obj {
    node("n").rv(rv).set("/status/conditions", json!([ready(status, heartbeat)]))
}

fn stored_node(cache: &Cache) -> Node {
    match cache.read().view().node("n") {
        Lookup::Known(node) => node.clone(),
        other => panic!("{other:?}"),
    }
}

fn last_report(cache: &Cache) -> Mono {
    cache.read().view().last_report(&stored_node(cache))
}

#[test]
fn conditions_taints_and_labels_of_a_node_are_projected() {
    let cache = listed();
    cache.record_wall_time(at(0), jiff::Timestamp::from_second(NEW_YEAR + 100).unwrap());
    let condition = |kind: &str, status: &str| json!({ "type": kind, "status": status });
    let conditions = json!([
        condition("MemoryPressure", "True"),
        condition("DiskPressure", "False"),
        condition("PIDPressure", "Perhaps"),
        condition("pod-safety.dev/NodeUnreachable", "False"),
        ready("True", 9),
        condition("Ready", "False")
    ]);
    let labels = json!({ "topology.kubernetes.io/zone": "b", "topology.kubernetes.io/region": "r",
        "failure-domain.beta.kubernetes.io/zone": "a", "node.kubernetes.io/exclude-disruption": "",
        "kubernetes.io/os": "linux", "beta.kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64" });
    let taints = json!([{ "key": "k", "effect": "NoSchedule" }, { "key": "l", "effect": "PreferNoSchedule" },
        { "key": "m", "effect": "NoExecute" }]);
    let object = node("n")
        .set("/status/conditions", conditions)
        .set("/metadata/labels", labels)
        .set("/metadata/creationTimestamp", json!("2026-01-01T00:00:40Z"))
        .set("/spec", json!({ "unschedulable": true, "taints": taints }));
    apply::<Node>(&cache, &object, at(0));
    let node = stored_node(&cache);
    assert_eq!((node.readiness, node.ready_since), (Readiness::Ready, Some(NEW_YEAR + 7)));
    assert_eq!(node.heartbeat.unwrap().as_second(), NEW_YEAR + 9);
    let pressures = Pressures {
        memory: ConditionState::True,
        disk: ConditionState::False,
        pid: ConditionState::Unknown,
        network: ConditionState::Missing,
    };
    assert_eq!((node.pressures, node.unreachable), (pressures, ConditionState::False));
    assert_eq!((&*node.zone, node.excluded, node.unschedulable), ("r:\0:a", true, true));
    assert_eq!(*node.stale_labels, [("beta.kubernetes.io/arch", Arc::from("arm64"))]);
    assert!(node.has_no_schedule_taint("k") && !node.has_no_schedule_taint("l") && !node.has_no_schedule_taint("m"));
    assert_eq!((node.first_seen, node.age.as_secs(), node.last_report), (at(0), 60, at(0)));
}

#[test]
fn a_node_decodes_the_same_from_json_and_protobuf() {
    use prost::Message as _;
    let object = reports(6, "True", 9).set("/spec", json!({ "unschedulable": true }));
    let from_json: wire::Node = decode::<Node>(&object);
    let from_protobuf = wire::Node::decode(&*from_json.encode_to_vec()).unwrap();
    assert_eq!(from_json, from_protobuf);
    let condition = &from_protobuf.status.unwrap().conditions[0];
    assert_eq!(condition.last_heartbeat_time.unwrap().whole_seconds(), NEW_YEAR + 9);
    assert_eq!(condition.last_transition_time.unwrap().whole_seconds(), NEW_YEAR + 7);
}

#[test]
fn which_changes_of_a_node_count_as_a_report() {
    type Act = fn(&Cache);
    let rows: [(&str, u64, Act); 11] = [
        ("nothing", 1, |_| {}),
        ("a report", 5, |cache| apply::<Node>(cache, &reports(6, "True", 9), at(5))),
        ("a report that it is not ready", 5, |cache| apply::<Node>(cache, &reports(6, "False", 9), at(5))),
        ("a write of another client", 1, |cache| apply::<Node>(cache, &reports(6, "True", 1).tainted(), at(5))),
        ("Ready became Unknown", 1, |cache| apply::<Node>(cache, &reports(6, "Unknown", 1), at(5))),
        ("Ready became Unknown, with a new heartbeat time", 1, |cache| {
            apply::<Node>(cache, &reports(6, "Unknown", 9), at(5))
        }),
        ("a report after Unknown, with the old heartbeat time", 5, |cache| {
            apply::<Node>(cache, &reports(6, "Unknown", 1), at(4));
            apply::<Node>(cache, &reports(7, "True", 1), at(5));
        }),
        ("its Ready condition was removed", 5, |cache| {
            apply::<Node>(cache, &node("n").rv(6).set("/status/conditions", json!([])), at(5))
        }),
        ("it could not be read for a while", 5, |cache| {
            cache.apply_undecodable::<Node>(unreadable(Some("uid-n"), Some("n")), at(4));
            apply::<Node>(cache, &reports(6, "True", 1), at(5));
        }),
        ("a renewal of its Lease", 5, |cache| apply::<NodeLease>(cache, &lease("n", 2), at(5))),
        ("a Lease that was written without a renewal", 5, |cache| {
            apply::<NodeLease>(cache, &lease("n", 2), at(5));
            apply::<NodeLease>(cache, &lease("n", 2).rv(9), at(8));
        }),
    ];
    for (sentence, expected, act) in rows {
        let cache = listed();
        apply::<Node>(&cache, &reports(5, "True", 1), at(1));
        act(&cache);
        assert_eq!(last_report(&cache), at(expected), "{sentence}");
        let of_ready: Vec<Mono> = cache.read().view().last_reports_of_ready_nodes().collect();
        let is_ready = stored_node(&cache).readiness == Readiness::Ready;
        assert_eq!(of_ready, if is_ready { vec![at(expected)] } else { vec![] }, "{sentence}");
    }
}

#[test]
fn an_unchanged_report_notifies_only_of_a_heartbeat() {
    let cache = listed();
    apply::<Node>(&cache, &reports(5, "True", 1), at(1));
    let changes = log_changes(&cache);
    let change_lines = |object: &Obj| {
        let version: u64 = object.0["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        apply::<Node>(&cache, object, at(version));
        changes.drain()
    };
    assert_eq!(change_lines(&reports(6, "True", 2)), ["heartbeat n"]);
    assert_eq!(stored_node(&cache).rv, "6".parse().unwrap(), "its version is kept all the same");
    assert_eq!(change_lines(&reports(7, "True", 2)), [] as [&str; 0]);
    assert_eq!(change_lines(&reports(8, "False", 3)), ["node n"]);
    assert_eq!(change_lines(&reports(9, "False", 4)), ["awaited heartbeat n"]);
    assert_eq!(change_lines(&reports(10, "Unknown", 4)), ["node n"]);
    assert_eq!(change_lines(&reports(11, "Unknown", 5)), [] as [&str; 0], "no report");
    apply::<NodeLease>(&cache, &lease("n", 1), at(11));
    assert_eq!(changes.drain(), ["awaited heartbeat n"]);
    let suspect = json!([{ "key": "pod-safety.dev/suspect", "effect": "NoSchedule" }]);
    assert_eq!(change_lines(&reports(12, "True", 6).set("/spec/taints", suspect)), ["node n"]);
    apply::<NodeLease>(&cache, &lease("n", 2), at(13));
    assert_eq!(changes.drain(), ["awaited heartbeat n"]);
}

#[test]
fn the_lease_of_a_node_is_found_with_its_renew_time() {
    let cache = listed();
    let renew_time = || cache.read().view().lease("n").map(|renewed| renewed.map(jiff::Timestamp::as_second));
    assert_eq!(renew_time(), None);
    apply::<NodeLease>(&cache, &lease("n", 2), at(1));
    assert_eq!(renew_time(), Some(Some(NEW_YEAR + 2)));
    apply::<NodeLease>(&cache, &lease("n", 2).set("/spec/renewTime", json!(null)), at(2));
    assert_eq!(renew_time(), Some(None));
    cache.apply_undecodable::<NodeLease>(unreadable(Some("lease-n"), Some("n")), at(3));
    assert_eq!(renew_time(), Some(None));
    cache.remove::<NodeLease>(&uid("lease-n"), at(4));
    assert_eq!(renew_time(), None);
}

#[test]
fn a_kind_is_watched_without_a_gap_since_the_end_of_the_last_gap() {
    let cache = listed();
    let since = || cache.read().view().state(Kind::NodeLeases).watched_since;
    assert_eq!(since(), Some(at(0)));
    cache.record_event(Kind::NodeLeases, at(15));
    assert_eq!(since(), Some(at(0)));
    let until = |second| cache.inner.read().kinds.watched_without_gap_since(Kind::NodeLeases, at(second));
    assert_eq!((until(30), until(31)), (Some(at(0)), None));
    cache.record_event(Kind::NodeLeases, at(31));
    assert_eq!(since(), Some(at(31)));
    assert_eq!(Cache::default().read().view().state(Kind::Nodes).watched_since, None);
}

#[test]
fn readiness_and_unreachable_condition_of_a_pod_are_projected() {
    let cache = listed();
    let conditions = json!([{ "type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:40Z" },
        { "type": "pod-safety.dev/NodeUnreachable", "status": "True" }]);
    apply::<Pod>(&cache, &pod("p").on("n").set("/status/conditions", conditions), at(1));
    apply::<Pod>(&cache, &pod("q").on("n"), at(1));
    let guard = cache.read();
    let of = |id: &str| {
        let pod = guard.view().pod(&uid(id)).unwrap();
        (pod.ready, pod.unreachable)
    };
    assert_eq!(of("uid-p"), (false, ConditionState::True));
    assert_eq!(of("uid-q"), (false, ConditionState::Missing));
}
