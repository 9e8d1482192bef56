//! What a tenant can write: pods and claims of a namespace. A PersistentVolume names its claim, and only the
//! cluster's own components write that.

use super::*;

/// Volume `v` is bound to the claim `c`, as Kubernetes writes it.
fn bound() -> Fixture {
    let fixture = Fixture::new();
    let claim = json!({ "namespace": "ns", "name": "c", "uid": "uid-c" });
    let volume = objects::volume("v", &["ReadWriteOnce"]).rv(20);
    fixture.put(Kind::Volumes, volume.set("/spec/storageClassName", json!("fast")).set("/spec/claimRef", claim), at(1));
    fixture
}

/// The same volume, named by other claims: of another name, and of another namespace.
fn named_by_others(fixture: &Fixture) {
    let namespaced = |object: Obj| object.in_namespace("tenant");
    fixture.put(Kind::Claims, objects::claim("evil", Some("v")), at(1));
    fixture.put(Kind::Claims, namespaced(objects::claim("c", Some("v")).uid("uid-of-tenant")), at(1));
    for (name, claim, namespace) in [("q", "evil", "ns"), ("r", "c", "tenant")] {
        let pod = objects::pod(name).using_claim(claim).on("b").phase("Pending").in_namespace(namespace);
        fixture.put(Kind::Pods, pod, at(1));
    }
}

#[test]
fn attack_a_claim_that_names_the_volume_of_another_claim_does_not_acquire_it() {
    let mut fixture = bound();
    fixture.node("b", not_ready);
    named_by_others(&fixture);
    assert!(fixture.describe_volume().is_empty(), "it has no users");
    fixture.pod("p", Some("a"), "c", |_| ());
    assert_eq!(fixture.describe_volume(), [format!("take {A}")], "as without them");
}

/// A volume that an administrator reserves for a claim names it without a UID until it is bound.
#[test]
fn attack_a_claim_of_another_namespace_does_not_acquire_a_volume_reserved_for_its_name() {
    let fixture = bound();
    let claim = json!({ "namespace": "ns", "name": "c" });
    let volume = objects::volume("v", &["ReadWriteOnce"]).rv(21).set("/spec/claimRef", claim);
    fixture.put(Kind::Volumes, volume.set("/spec/storageClassName", json!("fast")), at(1));
    named_by_others(&fixture);
    assert!(fixture.describe_volume().is_empty(), "it has no users");
}

#[test]
fn attack_a_recreated_claim_does_not_acquire_the_volume_of_the_first() {
    let mut fixture = bound();
    fixture.world.remove(Kind::Claims, "uid-c", at(1));
    fixture.put(Kind::Claims, objects::claim("c", Some("v")).uid("uid-again"), at(1));
    fixture.pod("p", Some("a"), "c", |_| ());
    assert!(fixture.describe_volume().is_empty(), "it has no users");
}

#[test]
fn attack_claims_of_others_do_not_change_the_placement_of_the_claims_pod() {
    let mut fixture = bound();
    fixture.gated("p", "c");
    let alone = describe(&fixture.decide_pod("p", 2));
    named_by_others(&fixture);
    assert_eq!(describe(&fixture.decide_pod("p", 2)), alone);
    fixture.gated("evil-1", "evil");
    let decision = fixture.decide_pod("evil-1", 2);
    assert!(decision.holds[0].1.to_string().contains("bound to another claim"), "{:?}", decision.holds);
}

#[test]
fn attack_a_pod_of_another_claim_on_a_missing_node_does_not_hold_the_volume() {
    let mut fixture = bound();
    fixture.lease("v", Some("b/uid-b/b0000000-0000-4000-8000-000000000001/uid-p"), true);
    named_by_others(&fixture);
    let dying =
        objects::pod("q").using_claim("evil").on("b").set("/spec/terminationGracePeriodSeconds", json!(1_000_000));
    fixture.put(Kind::Pods, dying.rv(20), at(1));
    fixture.world.remove(Kind::Nodes, "uid-b", at(2));
    fixture.world.remove(Kind::Pods, "uid-q", at(2));
    fixture.world.record_absence_read("b", at(3));
    assert_eq!(describe(&fixture.decide_volume("v", 3 + QUARANTINE)), ["break: node gone"]);
}

/// Any tenant can store a claim that cannot be decoded: it may be about the volumes that name no claim, or name it.
#[test]
fn attack_an_unreadable_claim_does_not_hold_volumes_of_other_claims() {
    for (unreadable, recreated, expected) in [
        (objects::claim("evil", Some("v")), false, vec![format!("take {A}")]),
        (objects::claim("c", Some("v")), false, vec!["VolumeUnreadable".to_owned()]),
        (objects::claim("evil", Some("v")), true, vec!["VolumeUnreadable".to_owned()]),
    ] {
        let mut fixture = bound();
        fixture.pod("p", Some("a"), "c", |_| ());
        if recreated {
            fixture.world.remove(Kind::Claims, "uid-c", at(1));
            fixture.put(Kind::Claims, objects::claim("c", Some("v")).uid("uid-new"), at(1));
        }
        fixture.world.apply(Kind::Claims, &unreadable.set("/metadata/resourceVersion", json!("?")).0, at(1));
        assert_eq!(fixture.describe_volume(), expected);
    }
}

/// A tenant whose volume the missing node holds creates and removes a pod there repeatedly: that delays only its own
/// volume.
#[test]
fn attack_recreated_pods_on_a_missing_node_do_not_restart_the_quarantine() {
    let mut fixture = bound();
    fixture.lease("v", Some("b/uid-b/b0000000-0000-4000-8000-000000000001/uid-p"), true);
    fixture.lease("w", Some("b/uid-b/b0000000-0000-4000-8000-000000000001/uid-o"), true);
    fixture.world.remove(Kind::Nodes, "uid-b", at(2));
    fixture.world.record_absence_read("b", at(3));
    for second in [10, 20, 30, 40] {
        let pod = objects::pod("p").using_claim("c").on("b").running().rv(second);
        fixture.put(Kind::Pods, pod, at(second));
        fixture.world.remove(Kind::Pods, "uid-p", at(second + 1));
        assert_eq!(describe(&fixture.decide_volume("v", second + 2)), ["VolumeUnproved"], "and no new first read");
    }
    assert_eq!(describe(&fixture.decide_volume("w", 3 + QUARANTINE)), ["break: node gone"]);
}
