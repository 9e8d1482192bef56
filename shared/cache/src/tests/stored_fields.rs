//! Which fields of an object are kept, and what is carried over from one version to the next.

use super::kinds::dispatch_kind;
use crate::model::{Deletion, Scale, Toleration};
use crate::testing::objects::{named, workload};

use super::*;

/// After an interruption a watch continues from the version of the last object.
#[test]
fn applying_an_object_of_any_kind_returns_its_version() {
    // Fields that some own kinds require and others ignore.
    let incarnation = json!({ "name": "n", "uid": "uid-n", "bootID": BOOT });
    let trigger = json!({ "kind": "Person", "reason": "r" });
    let spec = json!({ "driver": "Agent", "levels": [], "node": incarnation, "policy": "p", "trigger": trigger, "kind": "PowerOff", "by": "b" });
    for &kind in Kind::ALL {
        let object = named("x").in_namespace("ns").rv(8).set("/spec", spec.clone());
        let raw = Raw::from_body(Encoding::Json, object.0.to_string().into()).unwrap();
        let version = listed().apply_wire(kind, &raw, at(1));
        assert_eq!(version.as_deref(), Some("8"), "{kind:?}");
    }
}

/// An object that a list does not contain is removed, and one that cannot be decoded is unknown.
#[test]
fn every_kind_counts_the_objects_of_its_last_list() {
    for &kind in Kind::ALL {
        let cache = listed();
        for (exists, counted) in [(false, (0, 0)), (true, (1, 1)), (true, (1, 1)), (false, (0, 0))] {
            dispatch_kind!(kind, T => {
                cache.begin_list::<T>();
                if exists {
                    cache.apply_undecodable::<T>(unreadable(Some("uid-x"), Some("x")), at(1));
                }
                cache.end_list::<T>(at(1));
            });
            assert_eq!(cache.read().view().count(kind), counted, "{kind:?}");
        }
    }
}

fn stored_pod(cache: &Cache) -> Pod {
    cache.read().view().pod(&uid("uid-a")).unwrap().clone()
}

fn store_pod(object: &Obj) -> Pod {
    let cache = listed();
    cache.enable_fencing();
    apply::<Pod>(&cache, object, at(0));
    stored_pod(&cache)
}

#[test]
fn only_fields_of_a_pod_that_are_read_are_kept() {
    let evicted = |reason: &str| pod("a").set("/status/reason", json!(reason));
    let condition = |kind: &str, status: &str, reason: &str| {
        let one = json!({ "type": kind, "status": status, "reason": reason });
        pod("a").set("/status/conditions", json!([one]))
    };
    assert_eq!([store_pod(&evicted("Evicted")).evicted, store_pod(&evicted("NodeLost")).evicted], [true, false]);
    for (object, target, unschedulable) in [
        (condition("DisruptionTarget", "True", "EvictionByEvictionAPI"), true, false),
        (condition("DisruptionTarget", "False", "EvictionByEvictionAPI"), false, false),
        (condition("DisruptionTarget", "True", "TerminationByKubelet"), false, false),
        (condition("PodScheduled", "False", "Unschedulable"), false, true),
        (condition("PodScheduled", "False", "SchedulingGated"), false, false),
        (condition("PodScheduled", "True", "Unschedulable"), false, false),
    ] {
        let pod = store_pod(&object);
        let projected = (pod.disruption_target.is_some(), pod.unschedulable);
        assert_eq!(projected, (target, unschedulable), "{:?}", object.0["status"]);
    }
    let finalizers = |count: usize| {
        let all: Value = (0..count).map(|number| format!("example.com/{number}")).collect();
        store_pod(&pod("a").set("/metadata/finalizers", all)).finalizers.clone()
    };
    assert_eq!(finalizers(0).len(), 0);
    assert_eq!((finalizers(16).len(), &*finalizers(16)[15]), (16, "example.com/15"));
    assert_eq!((finalizers(18).len(), &*finalizers(18)[16]), (17, "2 more"));
    let tolerations = |count: usize| {
        let all: Value = (0..count).map(|_| json!({ "key": "k", "operator": "Exists" })).collect();
        store_pod(&pod("a").set("/spec/tolerations", all)).tolerations
    };
    let exists = || Toleration::new("k", "Exists", "", None);
    assert_eq!(tolerations(128), (0..128).map(|_| exists()).collect());
    let unreadable = Toleration::new("", "(more than 128 tolerations)", "", None);
    assert_eq!(tolerations(129), [unreadable].into_iter().collect());
}

/// Missing reports prove something only if the kubelet knew of the deletion and had the time to terminate the pod.
#[test]
fn a_deletion_keeps_when_it_was_first_seen_and_whether_the_kubelet_observed_it() {
    let dying = |grace: i64, observed: i64, version: u64| {
        let object = pod("a").terminating().observed(observed).rv(version).set("/metadata/generation", json!(4));
        object.set("/metadata/deletionGracePeriodSeconds", json!(grace))
    };
    let cache = listed();
    apply::<Pod>(&cache, &pod("a").observed(3), at(0));
    for (what, second, object, first_seen, known_to_kubelet) in [
        ("it was deleted", 10, dying(30, 3, 11), 10, false),
        ("something else changed", 20, dying(30, 3, 12), 10, false),
        ("its kubelet reported about it", 30, dying(30, 4, 13), 10, true),
        ("what was reported is taken back", 40, dying(30, 3, 14), 10, true),
        ("its grace was made shorter", 50, dying(5, 4, 15), 50, true),
    ] {
        apply::<Pod>(&cache, &object, at(second));
        let Deletion { first_seen: seen, kubelet_may_know, .. } = self::stored_pod(&cache).deletion.unwrap();
        assert_eq!((seen, kubelet_may_know), (at(first_seen), known_to_kubelet), "{what}");
    }
    let cache = listed();
    apply::<Pod>(&cache, &pod("a").observed(3), at(0));
    apply::<Pod>(&cache, &dying(30, 4, 11), at(10));
    assert!(self::stored_pod(&cache).deletion.unwrap().kubelet_may_know, "it was reported with the deletion");
    let unseen = store_pod(&dying(30, 3, 11));
    assert!(unseen.deletion.unwrap().kubelet_may_know, "earlier reports were not observed");
}

#[test]
fn a_disruption_target_is_indexed_with_when_it_was_first_seen() {
    let target = |second: u64, version: u64| {
        let since = format!("2026-01-01T00:00:{second:02}Z");
        let condition = json!({ "type": "DisruptionTarget", "status": "True", "lastTransitionTime": since });
        pod("a").rv(version).set("/status/conditions", json!([condition]))
    };
    let cache = listed();
    apply::<Pod>(&cache, &pod("b"), at(1));
    for (second, object, first_seen) in [(1, target(1, 11), 1), (2, target(1, 12), 1), (3, target(2, 13), 3)] {
        apply::<Pod>(&cache, &object, at(second));
        assert_eq!(stored_pod(&cache).disruption_target.unwrap().first_seen, at(first_seen));
        assert_eq!(uids(cache.read().view().disruption_targets()), [uid("uid-a")]);
    }
}

fn store_node(prepare: impl FnOnce(&Cache), object: &Obj) -> (Option<Arc<crate::model::NodeDetails>>, usize) {
    let cache = listed();
    prepare(&cache);
    apply::<Node>(&cache, object, at(1));
    let guard = cache.read();
    let Lookup::Known(node) = guard.view().node("n") else { panic!("the Node exists") };
    (node.details.clone(), node.volumes_in_use.len())
}

#[test]
fn node_fields_of_fencing_and_the_volume_guard_are_kept_only_if_enabled() {
    let object = node("n").boot(BOOT).set("/status/volumesInUse", json!(["v"]));
    assert_eq!(store_node(|_| (), &object), (None, 0));
    let (fencing, in_use) = store_node(Cache::enable_fencing, &object);
    assert_eq!((fencing.map(|details| details.boot_id.to_string()), in_use), (Some(BOOT.to_owned()), 0));
    let (guarded, in_use) = store_node(Cache::enable_volume_guard, &object);
    assert_eq!((guarded.map(|details| details.boot_id.to_string()), in_use), (Some(BOOT.to_owned()), 1));
    let object = object.set("/status/nodeInfo/systemUUID", json!("4c4c")).set("/spec/providerID", json!("aws:///i-1"));
    let details = store_node(Cache::enable_fencing, &object).0.unwrap();
    assert_eq!((&*details.system_uuid, &*details.provider_id), ("4c4c", "aws:///i-1"));
    assert_eq!(details.boot_first_seen, at(1));
}

#[test]
fn exclusion_marks_and_the_out_of_service_taint_of_a_node_are_projected() {
    let noted = |key: &str| node("n").set("/metadata/annotations", json!({ key: "x" }));
    let labelled = |value: &str| {
        node("n").set("/metadata/labels", json!({ "remediation.medik8s.io/exclude-from-remediation": value }))
    };
    let remediation_excluded_by =
        |object: &Obj| store_node(Cache::enable_fencing, object).0.unwrap().remediation_excluded_by;
    let skip = "cluster.x-k8s.io/skip-remediation";
    assert_eq!(remediation_excluded_by(&noted(skip)), Some(skip));
    assert_eq!(remediation_excluded_by(&noted("cluster.x-k8s.io/other")), None);
    assert!(
        remediation_excluded_by(&labelled("true")).is_some() && remediation_excluded_by(&labelled("false")).is_none()
    );
    let taint = |object: &Obj| {
        store_node(Cache::enable_fencing, object).0.unwrap().out_of_service.as_deref().map(str::to_owned)
    };
    assert_eq!(taint(&node("n").tainted()), Some(String::new()));
    assert_eq!(taint(&node("n").tainted_with("example.com/other")), None);
}

/// Its readers repeat the request long before.
#[test]
fn the_answer_of_a_scale_is_pruned_after_ten_minutes() {
    let cache = listed();
    cache.enable_budgets();
    let object = pod("a").owned_by("a.example/v1", "Fleet", "f");
    apply::<Pod>(&cache, &object, at(0));
    let controller = stored_pod(&cache).controller.unwrap();
    let answer = ScaleAnswer { requested_at: at(1), answered_at: at(1), scale: Ok(Scale::None) };
    cache.record_scale(&"ns".into(), &controller, answer);
    for (second, exists) in [(2, true), (600, true), (601, false)] {
        cache.prune(at(second));
        assert_eq!(cache.read().view().scale(&stored_pod(&cache)).is_some(), exists, "at {second}");
    }
}

#[test]
fn an_own_object_keeps_when_its_status_was_first_seen() {
    let cache = listed();
    let fence = |version: u64, message: &str| {
        let incarnation = json!({ "name": "n", "uid": "uid-n", "bootID": BOOT });
        let spec = json!({ "node": incarnation, "policy": "p", "trigger": { "kind": "Person", "reason": "r" } });
        named("f").rv(version).set("/spec", spec).set("/status", json!({ "message": message }))
    };
    for (second, object, since) in [(1, fence(1, "a"), 1), (2, fence(2, "a"), 1), (3, fence(3, "b"), 3)] {
        apply::<crate::model::NodeFenceObject>(&cache, &object, at(second));
        let guard = cache.read();
        let node_fence = guard.view().node_fences_of("n").next().unwrap();
        assert_eq!((node_fence.first_seen, node_fence.status_seen), (at(1), at(since)));
    }
    assert_eq!(cache.read().view().node_fences_of("m").count(), 0);
}

/// A creation time before 1970 counts as missing.
#[test]
fn a_node_without_a_creation_time_has_age_zero() {
    for (created, age) in [(Value::Null, 0), (json!("1970-01-01T00:00:00Z"), 0), (json!("2026-01-01T00:01:00Z"), 40)] {
        let object = node("n").set("/metadata/creationTimestamp", created);
        let cache = listed();
        cache.record_wall_time(at(0), jiff::Timestamp::from_second(1_767_225_700).unwrap());
        apply::<Node>(&cache, &object, at(0));
        let guard = cache.read();
        let Lookup::Known(node) = guard.view().node("n") else { panic!("the Node exists") };
        assert_eq!(node.age.as_secs(), age);
    }
}

#[test]
fn a_snapshot_dates_a_node_fence_by_its_last_attempt() {
    let cache = listed();
    cache.record_wall_time(at(100), jiff::Timestamp::from_second(1_767_225_700).unwrap());
    let incarnation = json!({ "name": "n", "uid": "uid-n", "bootID": BOOT });
    let spec = json!({ "node": incarnation, "policy": "p", "trigger": { "kind": "Person", "reason": "r" } });
    let tried = |at: &str| json!({ "attempts": [{ "at": at }] });
    for (name, status, seen) in
        [("f", tried("2026-01-01T00:01:00Z"), 60), ("g", tried("?"), 100), ("h", json!({}), 100)]
    {
        let fence = named(name).set("/spec", spec.clone()).set("/status", status);
        apply::<crate::model::NodeFenceObject>(&cache, &fence, at(100));
        cache.apply_timestamps(at(100));
        let guard = cache.read();
        let node_fence = guard.view().node_fences_of("n").find(|fence| &*fence.name == name).unwrap();
        assert_eq!(node_fence.status_seen, at(seen), "{name}");
    }
}

/// A command reported a pod that is overdue for minutes as deleted just now.
#[test]
fn bug_a_snapshot_dated_a_pod_by_the_time_of_its_read() {
    let cache = listed();
    cache.record_wall_time(at(100), jiff::Timestamp::from_second(NEW_YEAR + 100).unwrap());
    let bound = json!([{ "type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:20Z" }]);
    let deleted = pod("a").on("n").set("/metadata/creationTimestamp", json!("2026-01-01T00:00:10Z"));
    let deleted = deleted.set("/metadata/deletionTimestamp", json!("2026-01-01T00:01:10Z"));
    apply::<Pod>(
        &cache,
        &deleted.set("/metadata/deletionGracePeriodSeconds", json!(30)).set("/status/conditions", bound),
        at(100),
    );
    cache.apply_timestamps(at(100));
    let guard = cache.read();
    let pod = guard.view().pod(&uid("uid-a")).unwrap();
    assert_eq!((pod.first_seen, pod.placed_at, pod.deletion.unwrap().first_seen), (at(10), at(20), at(40)));
    assert_eq!(pod.grace_ends_at(), Some(at(70)));
}

#[test]
fn a_change_of_replicas_notifies_the_budgets_of_its_pods() {
    use super::workloads::{Deployments, ReplicaSets, WorkloadObject};
    let cache = listed();
    cache.enable_budgets();
    let changes = log_changes(&cache);
    let set = |replicas: i32, version: u64| workload("r", replicas).rv(version).owned_by("apps/v1", "Deployment", "d");
    let deployment = |replicas: i32| apply::<WorkloadObject<Deployments>>(&cache, &workload("d", replicas), at(2));
    let object = pod("a").labels(json!({ "app": "db" })).owned_by("apps/v1", "ReplicaSet", "r");
    apply::<Pod>(&cache, &object, at(1));
    apply::<Budget>(&cache, &budget("b", "db", &json!({})), at(1));
    changes.drain();
    let change_lines = |what: &str, expected: usize| {
        assert_eq!(changes.drain(), vec!["budget uid-b".to_owned(); expected], "{what}");
    };
    for (replicas, version, expected) in [(1, 3, 1), (1, 4, 0), (2, 5, 1)] {
        apply::<WorkloadObject<ReplicaSets>>(&cache, &set(replicas, version), at(2));
        change_lines("the ReplicaSet came, stayed, and wants another number", expected);
    }
    deployment(1);
    change_lines("the Deployment that manages it came", 1);
    cache.apply_undecodable::<WorkloadObject<ReplicaSets>>(unreadable(Some("uid-r"), Some("r")), at(3));
    change_lines("the ReplicaSet cannot be read", 1);
    deployment(2);
    change_lines("nobody knows whose it is", 0);
    apply::<WorkloadObject<ReplicaSets>>(&cache, &set(2, 6), at(3));
    change_lines("it can be read again", 1);
    cache.remove::<WorkloadObject<ReplicaSets>>(&uid("uid-r"), at(4));
    change_lines("it went", 1);
    deployment(3);
    change_lines("it manages nothing", 0);
}
