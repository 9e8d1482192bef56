//! Which node becomes the holder of a free volume, and which volumes are ignored.

use pod_safety_shared::model::VolumeKey;

use super::*;

#[test]
fn the_node_of_a_bound_pod_becomes_the_holder() {
    let mut fixture = Fixture::new();
    assert!(fixture.describe_volume().is_empty(), "no node uses it");
    fixture.pod("p", Some("a"), "c", terminate);
    fixture.pod("q", None, "c", |_| ());
    assert!(fixture.describe_volume().is_empty(), "a terminated or unscheduled pod does not use it");
    let taken = |what: &str, expected: &str, change: fn(&mut Fixture)| {
        let mut fixture = Fixture::new();
        fixture.pod("p", Some("a"), "c", |_| ());
        change(&mut fixture);
        assert_eq!(fixture.describe_volume(), [expected], "{what}");
        assert!(describe(&fixture.decide_volume("w", 2)).is_empty(), "{what}");
    };
    let take = format!("take {A}");
    taken("its pod runs", &take, |_| ());
    // The attach/detach controller of kube-controller-manager takes a pod in the state Waiting for dead.
    taken("its pod is terminating, with a waiting container", &take, |fixture| {
        fixture.pod("p", Some("a"), "c", |pod| {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            pod["status"]["containerStatuses"] = json!([{ "state": { "waiting": {} } }]);
        });
    });
    taken("the claim of an ephemeral volume has the name of its pod", &take, |fixture| {
        fixture.claim("p-data", Some("v"));
        fixture.pod("p", Some("a"), "x", |pod| {
            pod["spec"]["volumes"] = json!([{ "name": "data", "ephemeral": { "volumeClaimTemplate": {} } }]);
        });
    });
    // The guard starts in a running cluster: a volume in use on a lost node is held at once.
    taken("its node is lost: denied in the same write", &format!("{take} refused"), |f| f.node("a", not_ready));
    taken("its node has no boot ID", "take a/uid-a//uid-p", |fixture| {
        fixture.node("a", |node| node["status"]["nodeInfo"] = json!(null));
    });
    taken("two nodes may write: none becomes the holder", "VolumeOnSeveralNodes", |fixture| {
        ["a", "b"].into_iter().for_each(|node| fixture.attachment("v", node, true));
    });
}

/// The evidence is about the wrong machine, because the node reports.
#[test]
fn evidence_about_a_ready_node_bars_it_from_no_volume() {
    let mut fixture = Fixture::new();
    fixture.pod("p", Some("a"), "c", |_| ());
    fixture.proof(BOOT);
    assert_eq!(fixture.describe_volume(), [format!("take {A}")]);
}

#[test]
fn shared_volumes_are_ignored_unless_a_flag_names_them() {
    for modes in [&["ReadWriteMany"][..], &["ReadOnlyMany"], &["ReadWriteOnce", "ReadWriteMany"], &[]] {
        let mut fixture = Fixture::new();
        fixture.volume("v", modes);
        fixture.pod("p", Some("a"), "c", |_| ());
        assert!(fixture.describe_volume().is_empty(), "{modes:?}");
        fixture.config.classes = classes(&["fast"]);
        assert_eq!(fixture.describe_volume().len(), 1, "{modes:?} of an exclusive class");
        fixture.config.classes = classes(&["other"]);
        fixture.config.drivers = classes(&["d"]);
        assert_eq!(fixture.describe_volume().len(), 1, "{modes:?} of an exclusive driver");
    }
}

#[test]
fn the_lease_of_a_deleted_volume_is_deleted_once_released() {
    let mut fixture = Fixture::new();
    fixture.volume("v", &["ReadWriteMany"]);
    fixture.lease("v", None, false);
    assert_eq!(fixture.describe_volume(), ["forget"], "also if it is no longer exclusive");
    fixture.lease("v", Some(A), false);
    fixture.world.remove(Kind::Volumes, "uid-v", at(2));
    assert_eq!(describe(&fixture.decide_volume("v", 2)), ["VolumeUnconfirmed"], "held, and its end is not reported");
    fixture.lease("v", None, false);
    assert_eq!(fixture.describe_volume(), ["forget"]);
}

/// Found by the simulator: a pod was force deleted just before this process started. Another pod with the claim never
/// started, and its kubelet removed it normally. That counted as a report about the first pod when the
/// PersistentVolume was deleted, because nothing then showed what the kubelet has mounted.
#[test]
fn bug_a_deleted_volume_was_released_while_it_was_mounted() {
    let mut fixture = Fixture::new();
    fixture.lease("v", Some(A), false);
    fixture.node("a", in_use);
    fixture.pod("next", Some("a"), "c", |pod| {
        terminate(pod);
        *pod = Obj(pod.take()).terminating().set("/metadata/deletionGracePeriodSeconds", json!(30)).0;
    });
    fixture.world.remove(Kind::Pods, "uid-next", at(2));
    assert_eq!(fixture.describe_volume(), [""; 0], "it is mounted");
    fixture.world.remove(Kind::Volumes, "uid-v", at(2));
    assert!(fixture.describe_volume().is_empty(), "it is mounted still");
    fixture.node("a", |_| ());
    assert_eq!(fixture.describe_volume(), ["release"]);
}

/// The same if this process never saw the PersistentVolume.
#[test]
fn a_volume_that_was_never_seen_is_released_by_time_alone() {
    let mut fixture = Fixture::new();
    fixture.world.remove(Kind::Volumes, "uid-v", at(1));
    fixture.lease("v", Some(A), false);
    fixture.node("a", in_use);
    fixture.pod("next", Some("a"), "c", terminate);
    fixture.world.remove(Kind::Pods, "uid-next", at(2));
    assert_eq!(fixture.describe_volume(), ["VolumeUnconfirmed"]);
    assert_eq!(describe(&fixture.decide_volume("v", 2 + NO_REPORT_GRACE.as_secs())), ["release"]);
}

/// Found by the simulator: the hold about a deleted volume had a deleted object as its subject.
#[test]
fn bug_a_hold_about_a_deleted_volume_was_not_about_its_lease() {
    let mut fixture = Fixture::new();
    fixture.lease("v", Some(A), false);
    fixture.world.remove(Kind::Volumes, "uid-v", at(2));
    let decision = fixture.decide_volume("v", 2);
    let lease = fixture.world.read().view().volume_lease("v").unwrap().uid.clone();
    let about: Vec<_> = decision.holds.iter().map(|(subject, _)| subject.clone()).collect();
    let key = VolumeKey { name: "v".into(), uid: lease };
    assert_eq!(about, [Subject::Volume(key)]);
}

/// A write at another version than that of its decision changes nothing.
#[test]
fn a_lease_is_written_at_its_own_version_and_created_for_that_of_its_volume() {
    use pod_safety_shared::authority::{Intent, Update};
    use pod_safety_shared::cache::Lookup;
    let mut fixture = Fixture::new();
    fixture.pod("p", Some("a"), "c", |_| ());
    for has_lease in [false, true] {
        if has_lease {
            fixture.lease("v", None, false);
        }
        let decision = fixture.decide_volume("v", 2);
        let [Intent::Update(Update::Volume(update))] = &decision.intents[..] else { panic!("{decision:?}") };
        let guard = fixture.world.read();
        let Lookup::Known(volume) = guard.view().volume("v") else { panic!("it is listed") };
        assert_eq!(update.rv, guard.view().volume_lease("v").map_or(volume.rv, |lease| lease.rv));
    }
}

#[test]
fn a_node_proved_off_does_not_become_the_holder_again_by_leftovers() {
    let mut fixture = Fixture::new();
    fixture.attachment("v", "a", true);
    fixture.pod("p", Some("a"), "c", |_| ());
    fixture.node("a", not_ready);
    fixture.proof(BOOT);
    fixture.pod("q", Some("b"), "c", |_| ());
    fixture.lease("v", None, false);
    assert_eq!(fixture.describe_volume(), [format!("take {B}")]);
}

/// Evidence in the cache counted as verified if the Lease had never been revoked.
#[test]
fn bug_a_volume_without_a_former_holder_passed_a_lost_node_without_verification() {
    let mut fixture = Fixture::new();
    fixture.node("a", |node| {
        in_use(node);
        not_ready(node);
    });
    fixture.pod("p", Some("a"), "c", |_| ());
    fixture.proof(BOOT);
    fixture.pod("q", Some("b"), "c", |_| ());
    assert_eq!(fixture.describe_volume(), [format!("take {A} refused")], "the judge breaks it, or refuses");
    fixture.attachment("v", "b", true);
    assert_eq!(fixture.describe_volume(), [format!("take {B}")], "it is written to elsewhere already");
}

/// Found by the simulator: the Node of a running machine was deleted, its kubelet started the pod all the same, and
/// the next pod's node got the volume beside it. A Lease names incarnations of Nodes, and there was none to name.
#[test]
fn bug_a_pod_on_a_missing_node_was_no_user_of_its_volume() {
    let mut fixture = Fixture::new();
    fixture.pod("p", Some("gone"), "c", |_| ());
    assert!(fixture.describe_volume().is_empty(), "no other node wants it");
    fixture.pod("q", Some("b"), "c", |_| ());
    let decision = fixture.decide_volume("v", 2);
    assert_eq!(describe(&decision), ["WaitsForVolume"]);
    assert_eq!(
        decision.holds[0].1.to_string(),
        "the pod waits for volume v: pod ns/p uses it on node gone, which has no Node object, and may run until that pod is gone"
    );
    fixture.world.set_unreachable_before_node_deleted("gone");
    assert_eq!(fixture.describe_volume(), ["WaitsForVolume"], "its quarantine is not over");
    fixture.world.remove(Kind::Pods, "uid-p", at(2));
    assert_eq!(fixture.describe_volume(), [format!("take {B}")], "and nothing waits for longer than its pod is there");
    let mut unreported = Fixture::new();
    unreported.pod("p", Some("gone"), "c", |pod| pod["status"] = json!({ "phase": "Pending" }));
    unreported.pod("q", Some("b"), "c", |_| ());
    assert_eq!(unreported.describe_volume(), ["WaitsForVolume"], "its kubelet may have started it since");
}

/// Another client removed a pod of a missing node at once. The volume had no holder, so no grace period was waited
/// for, and the next pod got it beside processes that had just begun to terminate.
#[test]
fn bug_a_free_volume_was_acquired_while_a_pod_removed_on_a_missing_node_terminated() {
    let mut fixture = Fixture::new();
    fixture.pod("p", Some("gone"), "c", |_| ());
    fixture.pod("q", Some("b"), "c", |_| ());
    fixture.world.remove(Kind::Pods, "uid-p", at(2));
    let until = 2 + DEFAULT_GRACE.unsigned_abs() + QUARANTINE;
    let decision = fixture.decide_volume("v", until - 1);
    assert_eq!(describe(&decision), ["WaitsForVolume"]);
    assert_eq!(
        decision.holds[0].1.to_string(),
        "the pod waits for volume v: a pod that was removed on node gone, which has no Node object, may still run until its grace period and the quarantine are over"
    );
    assert_eq!(decision.requeue_at, Some(at(until)));
    assert_eq!(describe(&fixture.decide_volume("v", until)), [format!("take {B}")]);

    fixture.world.remove(Kind::Pods, "uid-q", at(2));
    fixture.gated("r", "c");
    assert_eq!(describe(&fixture.decide_pod("r", until - 1)), ["WaitsForVolume"]);
    assert_eq!(describe(&fixture.decide_pod("r", until)), ["ungate r"]);
}

/// A kubelet writes to a volume that it has mounted; an attachment that is not made yet does not count.
#[test]
fn of_two_nodes_the_one_that_has_it_mounted_becomes_the_holder() {
    let mut fixture = Fixture::new();
    fixture.node("a", in_use);
    fixture.pod("p", Some("a"), "c", |_| ());
    fixture.pod("q", Some("b"), "c", |pod| pod["status"] = json!({ "phase": "Pending" }));
    fixture.attachment("v", "b", false);
    assert_eq!(fixture.describe_volume(), [format!("take {A}")]);
}
