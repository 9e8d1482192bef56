//! Evidence PowerOff and Confirmed: the content of a FenceEvidence is verified.

use crate::testing::objects::{BOOT, NEXT_BOOT};
use serde_json::json;

use super::*;

fn claim() -> ForceDeleteRequest {
    pod("a").on("n").terminating().force(Claim::Fenced {
        node: "n".into(),
        proof: "e".into(),
        newest: "1".parse().unwrap(),
    })
}

/// A person's confirmation, valid for an hour from a quarter to twelve. The wall clock of these tests is at noon.
fn confirmation(change: impl FnOnce(&mut Value)) -> Responder {
    let mut proof = json!({
        "metadata": {
            "name": "e", "uid": "uid-e", "resourceVersion": "7", "creationTimestamp": "2026-11-21T11:45:00Z",
        },
        "spec": {
            "node": { "name": "n", "uid": "uid-n", "bootID": BOOT }, "kind": "Asserted", "by": "ada",
            "reason": "I pulled the plug", "validSeconds": 3600, "leaseRenewed": "2026-11-21T11:00:01Z",
        },
    });
    change(&mut proof);
    answering(move || Answer::json(&proof))
}

fn lost(boot: &str) -> Obj {
    node("n").ready("Unknown").set("/status/nodeInfo", json!({ "bootID": boot }))
}

fn last_renewed() -> Responder {
    object(lease("n", 1).set("/spec/renewTime", json!("2026-11-21T11:00:01.000000Z")))
}

fn fixture(proof: Responder) -> Fixture {
    let fixture = Fixture::new();
    fixture.apply(Kind::Pods, &pod("a").on("n").terminating().0);
    fixture.reads_of_node(object(lost(BOOT)));
    fixture.reads_of_lease(last_renewed());
    *fixture.proof.lock() = proof;
    fixture
}

#[tokio::test(start_paused = true)]
async fn a_confirmation_is_evidence_while_it_is_valid() {
    let set = |pointer: &'static str, to: Value| confirmation(move |proof| *proof.pointer_mut(pointer).unwrap() = to);
    let put = |key: &'static str, part: &'static str, to: Value| confirmation(move |proof| proof[part][key] = to);
    for (what, proof, expected) in [
        ("of this life of the node", confirmation(|_| ()), "Confirmed"),
        ("for ever", put("validSeconds", "spec", Value::Null), "Confirmed"),
        (
            "of an hour, 61 minutes ago",
            set("/metadata/creationTimestamp", json!("2026-11-21T10:59:00Z")),
            "EvidenceInvalid",
        ),
        (
            "of an hour, in its last moment",
            set("/metadata/creationTimestamp", json!("2026-11-21T11:00:00Z")),
            "Confirmed",
        ),
        (
            "of an hour, a second after it",
            set("/metadata/creationTimestamp", json!("2026-11-21T10:59:59Z")),
            "EvidenceInvalid",
        ),
        ("of an hour, nobody knows when", set("/metadata/creationTimestamp", Value::Null), "EvidenceInvalid"),
        (
            "that was withdrawn",
            put("invalidated", "status", json!({ "at": "now", "reason": "a mistake" })),
            "EvidenceInvalid",
        ),
        (
            "that is being deleted",
            put("deletionTimestamp", "metadata", json!("2026-11-21T11:59:00Z")),
            "EvidenceInvalid",
        ),
        ("of another node", set("/spec/node/name", json!("m")), "EvidenceInvalid"),
        ("of another Node of that name", set("/spec/node/uid", json!("uid-other")), "EvidenceInvalid"),
        ("of another boot", set("/spec/node/bootID", json!("b0000000-0000-4000-8000-000000000000")), "EvidenceInvalid"),
        ("of no boot", set("/spec/node/bootID", json!("")), "EvidenceInvalid"),
        ("before the last heartbeat", set("/spec/leaseRenewed", json!("2026-11-21T11:00:00Z")), "KubeletAlive"),
        ("when it had never been heard", put("leaseRenewed", "spec", Value::Null), "KubeletAlive"),
        ("that is not there", absent(), "ReadFailed"),
        ("that cannot be read", answering(|| Answer::plain(502, "bad gateway")), "ReadFailed"),
    ] {
        assert_eq!(reason(fixture(proof).verify(&claim()).await), expected, "a word {what}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_present_state_of_the_node_overrides_evidence() {
    let unreadable = || answering(|| Answer::plain(502, "bad gateway"));
    for (what, node, lease, expected) in [
        ("is not heard", object(lost(BOOT)), last_renewed(), "Confirmed"),
        ("is not heard, and its Lease is gone", object(lost(BOOT)), absent(), "Confirmed"),
        ("says itself that it is not ready", object(lost(BOOT).ready("False")), last_renewed(), "Confirmed"),
        ("is Ready", object(lost(BOOT).ready("True")), last_renewed(), "NodeInService"),
        ("booted again", object(lost(NEXT_BOOT)), last_renewed(), "EvidenceInvalid"),
        ("does not say its boot", object(lost("")), last_renewed(), "EvidenceInvalid"),
        ("was deleted", absent(), last_renewed(), "EvidenceInvalid"),
        ("cannot be read", unreadable(), last_renewed(), "ReadFailed"),
        ("has a Lease that cannot be read", object(lost(BOOT)), unreadable(), "ReadFailed"),
        ("renewed its Lease", object(lost(BOOT)), object(lease("n", 9)), "KubeletAlive"),
    ] {
        let fixture = fixture(confirmation(|_| ()));
        fixture.reads_of_node(node);
        fixture.reads_of_lease(lease);
        assert_eq!(reason(fixture.verify(&claim()).await), expected, "a node that {what}");
    }
}

/// No device is queried before the Node is read: if the read takes long, the kubelet may be Ready by then.
#[tokio::test(start_paused = true)]
async fn bug_the_validity_of_a_confirmation_counted_from_the_answer_of_the_node_read() {
    let fixture = fixture(confirmation(|_| ()));
    let asked_at = fixture.env.now();
    fixture.reads_of_node(answering(|| Answer::json(&lost(BOOT).0).delayed(Duration::from_secs(1))));
    assert_eq!(fixture.verify(&claim()).await.unwrap().expires(), asked_at + VALID_FOR);
}

/// Once, evidence was given although the Lease had just been renewed, before a running kubelet would have renewed it again.
#[tokio::test(start_paused = true)]
async fn fencing_evidence_waits_for_the_renewal_window_after_a_renewal() {
    for (unrenewed, expected) in [(0, "HeardLately"), (14, "HeardLately"), (15, "Confirmed"), (60, "Confirmed")] {
        let fixture = fixture(confirmation(|_| ()));
        let renewed = lease("n", 1).set("/spec/renewTime", json!("2026-11-21T11:00:01.000000Z"));
        fixture.apply(Kind::NodeLeases, &renewed.0);
        advance(Duration::from_secs(unrenewed).as_secs_f64()).await;
        assert_eq!(reason(fixture.verify(&claim()).await), expected, "silent for {unrenewed}s");
    }
}

#[tokio::test(start_paused = true)]
async fn device_evidence_without_devices_is_invalid() {
    let proof = confirmation(|proof| {
        proof["spec"] = json!({
            "node": { "name": "n", "uid": "uid-n", "bootID": BOOT }, "kind": "PowerOff", "fence": "n-1", "by": "p",
        });
    });
    let judged = fixture(proof).verify(&claim()).await;
    assert_eq!(judged.unwrap_err().to_string(), "the FenceEvidence does not hold: it names no device");
}

/// A planted bug: evidence about storage releases a pod.
#[tokio::test(start_paused = true)]
async fn storage_evidence_releases_no_pod() {
    let proof = confirmation(|proof| {
        proof["spec"] = json!({
            "node": { "name": "n", "uid": "uid-n", "bootID": BOOT }, "kind": "StorageFenced", "by": "x", "fence": "f",
            "storage": [{ "driver": "d", "className": "c" }], "leaseRenewed": "2026-11-21T11:00:01Z",
        });
    });
    assert_eq!(reason(fixture(proof).verify(&claim()).await), "EvidenceInvalid");
}
