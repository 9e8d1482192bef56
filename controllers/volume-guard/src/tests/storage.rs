//! Storage that accepts no writes from a node any more, by evidence.

use super::*;

/// `a` holds `v` and is unreachable; the evidence is about its storage of the driver `d`.
fn fenced(change: impl FnOnce(&mut Value)) -> Fixture {
    let mut fixture = Fixture::new();
    fixture.lease("v", Some(A), true);
    fixture.pod("p", Some("a"), "c", |_| ());
    fixture.attachment("v", "a", true);
    fixture.node("a", |node| {
        not_ready(node);
        in_use(node);
    });
    proof(&mut fixture, change);
    fixture
}

fn proof(fixture: &mut Fixture, change: impl FnOnce(&mut Value)) {
    let mut proof = json!({
        "metadata": { "name": "proof", "uid": "uid-proof" },
        "spec": { "node": { "name": "a", "uid": "uid-a", "bootID": "b0000000-0000-4000-8000-000000000001" }, "kind": "StorageFenced", "fence": "f", "by": "x",
            "storage": [{ "driver": "d", "className": "rbd" }] },
    });
    change(&mut proof);
    fixture.put(Kind::FenceEvidences, proof, pod_safety_shared::testing::at(1));
}

#[test]
fn volumes_of_fenced_storage_are_free_and_their_pods_use_them_no_more() {
    let mut fixture = fenced(|_| ());
    assert_eq!(fixture.describe_volume(), ["break by proof, of storage", "VolumeUnproved"]);
    fixture.lease("v", None, false);
    assert!(fixture.describe_volume().is_empty(), "by its last report it has it mounted and attached: that is no use");
    fixture.pod("q", Some("b"), "c", |pod| pod["status"] = json!({ "phase": "Pending" }));
    assert_eq!(fixture.describe_volume(), [format!("take {B}")]);
    fixture.lease("v", Some(B), false);
    fixture.attachment("v", "b", true);
    assert!(fixture.describe_volume().is_empty());
}

/// The denial is written first: the verifier may find the fence not in force.
#[test]
fn a_volume_is_held_before_its_lease_is_revoked() {
    let mut fixture = fenced(|_| ());
    fixture.lease("v", Some(A), false);
    assert_eq!(fixture.describe_volume(), ["refuse", "VolumeUnproved"]);
}

/// Planted bugs: another class's driver, another incarnation, a lifted fence, a Ready node.
#[test]
fn a_volume_that_the_evidence_does_not_cover_stays_held() {
    type Change = fn(&mut Value);
    let changes: [(&str, Change); 4] = [
        ("another driver's storage", |proof| proof["spec"]["storage"][0]["driver"] = json!("other")),
        ("another incarnation", |proof| {
            proof["spec"]["node"]["bootID"] = json!("b0000000-0000-4000-8000-000000000000")
        }),
        ("another Node", |proof| proof["spec"]["node"]["uid"] = json!("uid-other")),
        ("lifted", |proof| proof["status"] = json!({ "invalidated": { "at": "now", "reason": "lifted" } })),
    ];
    for (what, change) in changes {
        assert_eq!(fenced(change).describe_volume(), ["VolumeUnproved"], "{what}");
    }
    let mut fixture = fenced(|_| ());
    fixture.node("a", in_use);
    assert_eq!(fixture.describe_volume(), ["allow"], "it reports");
}

#[test]
fn a_pod_behind_the_gate_does_not_wait_for_one_whose_storage_is_fenced() {
    let mut fixture = fenced(|_| ());
    fixture.lease("v", None, false);
    fixture.gated("q", "c");
    assert_eq!(describe(&fixture.decide_pod("q", 2)), ["ungate q"]);
}
