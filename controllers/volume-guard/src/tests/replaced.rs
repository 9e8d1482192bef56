//! Volumes of a node whose name another Node has now, in another boot.

use super::holders::held;

use super::*;

/// A machine whose name another Node has now, in another boot.
fn replaced(change: impl FnOnce(&mut Value)) -> Fixture {
    let mut fixture = held();
    fixture.world.remove(Kind::Nodes, "uid-a", at(2));
    fixture.node("a", |node| {
        node["metadata"]["uid"] = json!("uid-other");
        node["status"]["nodeInfo"]["bootID"] = json!(NEXT_BOOT);
        change(node);
    });
    fixture.lease("v", Some(A), true);
    fixture
}

/// No evidence could be given: the volume of a replaced node was held permanently, and the remedy that its hold named
/// was denied.
#[test]
fn bug_the_volume_of_a_replaced_node_was_never_free() {
    for change in [|_: &mut Value| (), not_ready] {
        let mut fixture = replaced(change);
        assert_eq!(fixture.describe_volume(), ["VolumeUnproved"]);
        fixture.proof(BOOT);
        assert_eq!(fixture.describe_volume(), ["break by proof, replaced"]);
        fixture.lease("v", Some(A), false);
        assert_eq!(fixture.describe_volume(), ["refuse", "VolumeUnproved"], "the judge may refuse");
    }
}

/// The hold names a remedy that works.
#[test]
fn a_hold_names_the_remedy_for_a_former_incarnation_and_for_one_without_a_boot() {
    let says = |fixture: &Fixture, words: &str| {
        let message = fixture.decide_volume("v", 2).holds[0].1.to_string();
        assert!(message.contains(words), "{words}: {message}");
    };
    let former = "pod-safety confirm-down a --uid uid-a --boot b0000000-0000-4000-8000-000000000001 --reason TEXT";
    says(&replaced(|_| ()), former);
    let silent = |node: &mut Value| node["status"]["nodeInfo"]["bootID"] = json!("7");
    says(&replaced(silent), "kubectl -n pod-safety-volumes delete lease v");
    let mut without = held();
    without.node("a", not_ready);
    says(&without, "pod-safety confirm-down a --reason TEXT");
    without.lease("v", Some("a/uid-a//uid-p"), true);
    says(&without, "kubectl delete node a");
}

/// It named a confirmation, which is refused for a Ready node, and not the taint.
#[test]
fn bug_the_hold_of_a_ready_node_with_the_taint_awaited_a_report_of_that_node() {
    let mut fixture = held();
    fixture.node("a", |node| {
        node["spec"]["taints"] = json!([{ "key": "node.kubernetes.io/out-of-service", "effect": "NoExecute" }]);
    });
    let message = fixture.decide_volume("v", 2).holds[0].1.to_string();
    let free = "It is free when its kubelet, which reports, has unmounted it (if the node is in service, remove the taint: kubectl taint node a node.kubernetes.io/out-of-service-)";
    assert!(message.contains(free), "{message}");
}

#[test]
fn attack_evidence_about_another_incarnation_than_the_holders_revokes_no_lease() {
    type Change = fn(&mut Value);
    let about: [(&str, Change, Change); 7] = [
        ("an incarnation that never acquired it", |_| (), |proof| proof["spec"]["node"]["uid"] = json!("uid-x")),
        (
            "the present incarnation",
            |_| (),
            |proof| proof["spec"]["node"] = json!({ "name": "a", "uid": "uid-other", "bootID": NEXT_BOOT }),
        ),
        (
            "another boot",
            |_| (),
            |proof| proof["spec"]["node"]["bootID"] = json!("b0000000-0000-4000-8000-000000000003"),
        ),
        ("storage", |_| (), |proof| proof["spec"]["kind"] = json!("StorageFenced")),
        (
            "it, and was withdrawn",
            |_| (),
            |proof| proof["status"] = json!({ "invalidated": { "at": "2026-01-01T00:00:00Z", "reason": "r" } }),
        ),
        ("it, and the boot of the new Node is unknown", |node| node["status"]["nodeInfo"] = json!({}), |_| ()),
        ("it, by a number of boots", |node| node["status"]["nodeInfo"]["bootID"] = json!("7"), |_| ()),
    ];
    for (what, node, proof) in about {
        let fixture = replaced(node);
        let mut object = objects::evidence("e", "a", BOOT, "PowerOff").0;
        proof(&mut object);
        fixture.put(Kind::FenceEvidences, object, at(1));
        assert_eq!(fixture.describe_volume(), ["VolumeUnproved"], "about {what}");
    }
}
