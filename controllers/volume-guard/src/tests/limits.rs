//! The limits that safety depends on, as numbers, each with its reason; and which node evidence is about.

use super::*;

/// Node `a` holds `v`, and its pod was removed in second 2 without a report of the kubelet.
fn removed_without_report() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.lease("v", Some(A), false);
    fixture.pod("p", Some("a"), "c", |_| ());
    fixture.world.remove(Kind::Pods, "uid-p", at(2));
    fixture
}

#[test]
fn a_volume_without_a_report_is_free_after_ten_minutes() {
    let from = |fixture: Fixture, says: &str, from: u64, seconds: u64| {
        assert_eq!(describe(&fixture.decide_volume("v", from + seconds - 1)), ["VolumeUnconfirmed"], "{says}");
        assert_eq!(describe(&fixture.decide_volume("v", from + seconds)), ["release"], "{says}");
    };
    from(removed_without_report(), "since its pod was removed", 2, 600);
    // Other watches may be behind by at most 150 s, or no decision is made: a Node received after that shows the mount,
    // if there was one.
    let mut beside = removed_without_report();
    beside.node("a", |node| node["status"]["volumesInUse"] = json!(["kubernetes.io/csi/d^other"]));
    from(beside, "not in use beside others of its driver", 2, 150);
    let mut restarted = Fixture::new();
    restarted.lease("v", Some(A), false);
    from(restarted, "after a restart since the Lease was first seen", 1, 600);
}

/// A kubelet gives each of the two calls that unmount a CSI volume two minutes (`csiTimeout`). `holders` shows that a
/// second earlier is too early.
#[test]
fn a_volume_of_a_terminated_pod_is_free_after_both_unmount_timeouts() {
    assert_eq!(UNMOUNT_GRACE, Duration::from_secs(2 * 120));
}

#[test]
fn no_decision_is_made_from_a_cache_older_than_150_seconds() {
    let mut fixture = removed_without_report();
    fixture.gated("q", "c");
    let (volume, pod) = (
        super::super::Key::Volume("v".into()),
        super::super::Key::Gate(pod_safety_shared::model::Uid::new("uid-q").unwrap()),
    );
    fixture.world.confirm_all(at(100));
    for key in [volume, pod] {
        let decided = |now: u64| super::super::decide(&key, &fixture.world.read().view(), at(now), &fixture.config);
        assert!(!describe(&decided(250)).contains(&"Stale".to_owned()), "{key:?}");
        assert_eq!(describe(&decided(251)), ["Stale"], "{key:?}");
        assert_eq!(decided(251).requeue_at, Some(at(251 + 60)), "{key:?}");
    }
}

/// Evidence about another node does not apply to this one, even with the same boot ID.
#[test]
fn evidence_about_another_node_revokes_no_lease() {
    for (name, uid, boot, breaks) in [
        ("a", "uid-a", BOOT, true),
        ("b", "uid-a", BOOT, false),
        ("a", "uid-b", BOOT, false),
        ("b", "uid-b", BOOT, false),
        ("a", "uid-a", "b0000000-0000-4000-8000-000000000000", false),
    ] {
        for (kind, storage, word) in [
            ("PowerOff", json!([]), "break by proof"),
            ("StorageFenced", json!([{ "driver": "d", "className": "c" }]), "break by proof, of storage"),
        ] {
            let mut fixture = Fixture::new();
            fixture.lease("v", Some(A), true);
            fixture.pod("p", Some("a"), "c", |_| ());
            fixture.node("a", |node| {
                not_ready(node);
                in_use(node);
            });
            let proof = json!({
                "metadata": { "name": "proof", "uid": "uid-proof" },
                "spec": { "node": { "name": name, "uid": uid, "bootID": boot }, "kind": kind, "fence": "f", "by": "x", "storage": storage },
            });
            fixture.put(Kind::FenceEvidences, proof, at(1));
            let first = fixture.describe_volume().into_iter().next().unwrap();
            assert_eq!(first == word, breaks, "{kind} of {name} {uid} {boot}: {first}");
        }
    }
}

/// What another node does is reported at a pod there. A hold that no watch event ends is checked again.
#[test]
fn a_held_volume_is_checked_again_after_a_minute() {
    let mut fixture = Fixture::new();
    fixture.lease("v", Some(A), true);
    fixture.attachment("v", "a", true);
    fixture.attachment("v", "b", true);
    fixture.node("b", not_ready);
    fixture.pod("p", Some("a"), "c", |_| ());
    let decision = fixture.decide_volume("v", 2);
    assert_eq!(describe(&decision), ["VolumeOnSeveralNodes"]);
    assert_eq!(decision.requeue_at, Some(at(62)));
}
