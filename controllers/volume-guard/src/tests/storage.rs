//! Storage that accepts no writes from a node any more, by evidence.

use pod_safety_shared::model::Kind;
use serde_json::{Value, json};

use super::fixture::{Fixture, describe, in_use, not_ready};

const A: &str = "a/uid-a/b0000000-0000-4000-8000-000000000001/uid-p";

/// `a` holds `v` and is unreachable; the evidence is about its storage of the driver `d`.
fn fenced(change: impl FnOnce(&mut Value)) -> Fixture {
    let mut stage = Fixture::new();
    stage.lease("v", Some(A), true);
    stage.pod("p", Some("a"), "c", |_| ());
    stage.attachment("v", "a", true);
    stage.node("a", |node| {
        not_ready(node);
        in_use(node);
    });
    proof(&mut stage, change);
    stage
}

fn proof(stage: &mut Fixture, change: impl FnOnce(&mut Value)) {
    let mut proof = json!({
        "metadata": { "name": "proof", "uid": "uid-proof" },
        "spec": { "node": { "name": "a", "uid": "uid-a", "bootID": "b0000000-0000-4000-8000-000000000001" }, "kind": "StorageFenced", "fence": "f", "by": "x",
            "storage": [{ "driver": "d", "className": "rbd" }] },
    });
    change(&mut proof);
    stage.put(Kind::FenceEvidences, proof, pod_safety_shared::testing::at(1));
}

#[test]
fn volumes_of_fenced_storage_are_free_and_their_pods_use_them_no_more() {
    let mut stage = fenced(|_| ());
    assert_eq!(stage.describe_volume(), ["break by proof, of storage", "VolumeUnproved"]);
    stage.lease("v", None, false);
    assert!(
        stage.describe_volume().is_empty(),
        "by its last report it has it mounted and attached: that is no use"
    );
    stage.pod("q", Some("b"), "c", |pod| pod["status"] = json!({ "phase": "Pending" }));
    assert_eq!(stage.describe_volume(), ["take b/uid-b/b0000000-0000-4000-8000-000000000001/uid-q"]);
    stage.lease("v", Some("b/uid-b/b0000000-0000-4000-8000-000000000001/uid-q"), false);
    stage.attachment("v", "b", true);
    assert!(stage.describe_volume().is_empty());
}

/// The denial is written first: the verifier may find the fence not in force.
#[test]
fn a_volume_is_held_before_its_lease_is_revoked() {
    let mut stage = fenced(|_| ());
    stage.lease("v", Some(A), false);
    assert_eq!(stage.describe_volume(), ["refuse", "VolumeUnproved"]);
}

/// Planted bugs: another class's driver, another incarnation, a lifted fence, a Ready node.
#[test]
fn a_volume_that_the_evidence_does_not_cover_stays_held() {
    type Change = fn(&mut Value);
    let changes: [(&str, Change); 4] = [
        ("another driver's storage", |proof| proof["spec"]["storage"][0]["driver"] = json!("other")),
        ("another life", |proof| {
            proof["spec"]["node"]["bootID"] = json!("b0000000-0000-4000-8000-000000000000")
        }),
        ("another Node", |proof| proof["spec"]["node"]["uid"] = json!("uid-other")),
        ("lifted", |proof| proof["status"] = json!({ "invalidated": { "at": "now", "reason": "lifted" } })),
    ];
    for (what, change) in changes {
        assert_eq!(fenced(change).describe_volume(), ["VolumeUnproved"], "{what}");
    }
    let mut stage = fenced(|_| ());
    stage.node("a", in_use);
    assert_eq!(stage.describe_volume(), ["allow"], "it is heard");
}

#[test]
fn a_pod_behind_the_gate_does_not_wait_for_one_whose_storage_is_fenced() {
    let mut stage = fenced(|_| ());
    stage.lease("v", None, false);
    stage.gated("q", "c");
    assert_eq!(describe(&stage.decide_pod("q", 2)), ["ungate q"]);
}
