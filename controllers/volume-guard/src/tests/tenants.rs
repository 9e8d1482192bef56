//! What a tenant can write: pods and claims of a namespace. A PersistentVolume names its claim, and only the
//! cluster's own components write that.

use pod_safety_shared::model::Kind;
use pod_safety_shared::testing::at;
use pod_safety_shared::testing::objects::{self, Obj};
use serde_json::json;

use super::fixture::{Fixture, QUARANTINE, describe, not_ready};

/// Volume `v` is bound to the claim `c`, as Kubernetes writes it.
fn bound() -> Fixture {
    let stage = Fixture::new();
    let claim = json!({ "namespace": "ns", "name": "c", "uid": "uid-c" });
    let volume = objects::volume("v", &["ReadWriteOnce"]).rv(20);
    stage.put(
        Kind::Volumes,
        volume.set("/spec/storageClassName", json!("fast")).set("/spec/claimRef", claim),
        at(1),
    );
    stage
}

/// The same volume, named by other claims: of another name, and of another namespace.
fn named_by_others(stage: &Fixture) {
    let namespaced = |object: Obj| object.in_namespace("tenant");
    stage.put(Kind::Claims, objects::claim("evil", Some("v")), at(1));
    stage.put(Kind::Claims, namespaced(objects::claim("c", Some("v")).uid("uid-of-tenant")), at(1));
    for (name, claim, namespace) in [("q", "evil", "ns"), ("r", "c", "tenant")] {
        let pod = objects::pod(name).using_claim(claim).on("b").phase("Pending").in_namespace(namespace);
        stage.put(Kind::Pods, pod, at(1));
    }
}

#[test]
fn attack_a_claim_that_names_the_volume_of_another_claim_does_not_acquire_it() {
    let mut stage = bound();
    stage.node("b", not_ready);
    named_by_others(&stage);
    assert!(stage.describe_volume().is_empty(), "it has no users");
    stage.pod("p", Some("a"), "c", |_| ());
    assert_eq!(
        stage.describe_volume(),
        ["take a/uid-a/b0000000-0000-4000-8000-000000000001/uid-p"],
        "as without them"
    );
}

/// A volume that an administrator reserves for a claim names it without a UID until it is bound.
#[test]
fn attack_a_claim_of_another_namespace_does_not_acquire_a_volume_reserved_for_its_name() {
    let stage = bound();
    let claim = json!({ "namespace": "ns", "name": "c" });
    let volume = objects::volume("v", &["ReadWriteOnce"]).rv(21).set("/spec/claimRef", claim);
    stage.put(Kind::Volumes, volume.set("/spec/storageClassName", json!("fast")), at(1));
    named_by_others(&stage);
    assert!(stage.describe_volume().is_empty(), "it has no users");
}

#[test]
fn attack_a_recreated_claim_does_not_acquire_the_volume_of_the_first() {
    let mut stage = bound();
    stage.world.remove(Kind::Claims, "uid-c", at(1));
    stage.put(Kind::Claims, objects::claim("c", Some("v")).uid("uid-again"), at(1));
    stage.pod("p", Some("a"), "c", |_| ());
    assert!(stage.describe_volume().is_empty(), "it has no users");
}

#[test]
fn attack_claims_of_others_do_not_change_the_placement_of_the_claims_pod() {
    let mut stage = bound();
    stage.gated("p", "c");
    let alone = describe(&stage.decide_pod("p", 2));
    named_by_others(&stage);
    assert_eq!(describe(&stage.decide_pod("p", 2)), alone);
    stage.gated("evil-1", "evil");
    let decision = stage.decide_pod("evil-1", 2);
    assert!(decision.holds[0].1.to_string().contains("bound to another claim"), "{:?}", decision.holds);
}

#[test]
fn attack_a_pod_of_another_claim_on_a_missing_node_does_not_hold_the_volume() {
    let mut stage = bound();
    stage.lease("v", Some("b/uid-b/b0000000-0000-4000-8000-000000000001/uid-p"), true);
    named_by_others(&stage);
    let dying = objects::pod("q")
        .using_claim("evil")
        .on("b")
        .set("/spec/terminationGracePeriodSeconds", json!(1_000_000));
    stage.put(Kind::Pods, dying.rv(20), at(1));
    stage.world.remove(Kind::Nodes, "uid-b", at(2));
    stage.world.remove(Kind::Pods, "uid-q", at(2));
    stage.world.record_absence_read("b", at(3));
    assert_eq!(describe(&stage.decide_volume("v", 3 + QUARANTINE)), ["break: node gone"]);
}

/// Any tenant can store a claim that cannot be decoded: it may be about the volumes that name no claim, or name it.
#[test]
fn attack_an_unreadable_claim_does_not_hold_volumes_of_other_claims() {
    for (unreadable, expected) in [
        (objects::claim("evil", Some("v")), vec!["take a/uid-a/b0000000-0000-4000-8000-000000000001/uid-p"]),
        (objects::claim("c", Some("v")), vec!["VolumeUnreadable"]),
    ] {
        let mut stage = bound();
        stage.pod("p", Some("a"), "c", |_| ());
        stage.world.apply(Kind::Claims, &unreadable.set("/metadata/resourceVersion", json!("?")).0, at(1));
        assert_eq!(stage.describe_volume(), expected);
    }
}

/// A tenant whose volume the missing node holds creates and removes a pod there repeatedly: that delays only its own
/// volume.
#[test]
fn attack_recreated_pods_on_a_missing_node_do_not_restart_the_quarantine() {
    let mut stage = bound();
    stage.lease("v", Some("b/uid-b/b0000000-0000-4000-8000-000000000001/uid-p"), true);
    stage.lease("w", Some("b/uid-b/b0000000-0000-4000-8000-000000000001/uid-o"), true);
    stage.world.remove(Kind::Nodes, "uid-b", at(2));
    stage.world.record_absence_read("b", at(3));
    for second in [10, 20, 30, 40] {
        let pod = objects::pod("p").using_claim("c").on("b").running().rv(second);
        stage.put(Kind::Pods, pod, at(second));
        stage.world.remove(Kind::Pods, "uid-p", at(second + 1));
        assert_eq!(
            describe(&stage.decide_volume("v", second + 2)),
            ["VolumeUnproved"],
            "and no new first read"
        );
    }
    assert_eq!(describe(&stage.decide_volume("w", 3 + QUARANTINE)), ["break: node gone"]);
}
