//! Which node holds a volume, in the states in which operators ask.

use pod_safety_explain::{Attachment, Volume, explain_volume};
use serde_json::Value;

use super::*;

/// The claim `data-orders-1` with its volume `pvc-1`, for one node at a time.
fn volume() -> Volume {
    let modes = json!(["ReadWriteOnce"]);
    Volume {
        claim: Some(json!({ "metadata": { "namespace": "shop", "name": "data-orders-1", "uid": "uid-claim" },
            "spec": { "volumeName": "pvc-1", "accessModes": modes }, "status": { "phase": "Bound" } })),
        volume: Some(
            json!({ "metadata": { "name": "pvc-1" }, "spec": { "accessModes": modes, "capacity": { "storage": "10Gi" },
            "csi": { "driver": "csi.example.com", "volumeHandle": "vol-7" } } }),
        ),
        pods: Some(Vec::new()),
        nodes: Vec::new(),
        lease: None,
    }
}

/// Makes this pod of the fixture use it.
fn used_by(volume: &mut Volume, pod: &str) {
    let uses = json!({ "metadata": { "name": pod, "uid": format!("uid-{pod}") },
        "spec": { "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data-orders-1" } }] } });
    volume.pods.as_mut().unwrap().push(uses);
}

fn pending(pod: &mut Value) {
    pod["status"] = json!({ "phase": "Pending" });
}

fn answer_for(fixture: &Fixture, volume: &Volume) -> Answer {
    fixture.with_context(|ctx| explain_volume(volume, ctx))
}

fn judge(fixture: &Fixture, volume: &Volume) -> (Verdict, &'static str) {
    let verdict = answer_for(fixture, volume).judgement;
    (verdict.verdict, verdict.reason)
}

#[test]
fn the_pod_of_a_lost_node_holds_its_volume_until_there_is_evidence() {
    let mut fixture = Fixture::with_lost_node();
    fixture.attached("pvc-1", "worker-b1", None);
    let mut volume = volume();
    used_by(&mut volume, "orders-1");
    volume.nodes.push(json!({ "metadata": { "name": "worker-b1" },
        "status": { "volumesInUse": ["kubernetes.io/csi/csi.example.com^vol-7"] } }));
    volume.nodes.push(json!({ "metadata": { "name": "worker-a1" },
        "status": { "volumesInUse": ["kubernetes.io/csi/csi.example.com^vol-8"] } }));
    reads("volume-lost-node", &answer_for(&fixture, &volume));
    // The name by which it is given has no effect.
    let by_pod = fixture.pod("orders-1").judgement;
    assert_eq!(judge(&fixture, &volume), (by_pod.verdict, by_pod.reason));
    fixture.add_evidence("Asserted", "b0000000-0000-4000-8000-000000000001");
    assert_eq!(judge(&fixture, &volume), (Verdict::Released, "Proved"));
}

#[test]
fn a_pending_pod_on_another_node_shows_who_holds_its_volume() {
    let mut fixture = Fixture::with_lost_node();
    fixture.attached("pvc-1", "worker-b1", None);
    fixture.pod_with("cache-0", "worker-a1", pending);
    let mut volume = volume();
    used_by(&mut volume, "cache-0");
    assert_eq!(judge(&fixture, &volume), (Verdict::Blocked, "NodeUnreachable"), "no pod is left there");
    used_by(&mut volume, "orders-1");
    reads("volume-multi-attach", &answer_for(&fixture, &volume));
    let mut fixture = Fixture::healthy();
    fixture.attached("pvc-1", "worker-a1", None);
    fixture.pod_with("cache-0", "worker-a2", pending);
    assert_eq!(judge(&fixture, &volume), (Verdict::Waiting, "Detaching"), "whose pod there is gone");
    fixture.pod_with("orders-1", "worker-a1", fixture::ready);
    assert_eq!(judge(&fixture, &volume), (Verdict::Blocked, "InUse"));
    assert!(answer_for(&fixture, &volume).judgement.message.contains("Pod shop/cache-0 waits for it"));
    fixture.pod_with("orders-1", "worker-a1", |pod| pod["status"] = json!({ "phase": "Succeeded" }));
    assert_eq!(judge(&fixture, &volume), (Verdict::Waiting, "Detaching"), "whose pod there has terminated");
    volume.nodes.push(json!({ "metadata": { "name": "worker-a1" },
        "status": { "volumesInUse": ["kubernetes.io/csi/csi.example.com^vol-7"] } }));
    assert_eq!(judge(&fixture, &volume), (Verdict::Waiting, "Unmounting"));
}

#[test]
fn an_exclusive_volume_held_by_two_nodes_is_blocked() {
    let mut fixture = Fixture::healthy();
    fixture.attached("pvc-1", "worker-a1", None);
    fixture.attached("pvc-2", "worker-b2", None);
    fixture.pod_with("orders-1", "worker-a1", fixture::ready);
    fixture.pod_with("db-0", "worker-a1", fixture::terminating);
    let attaching = json!({ "metadata": { "name": "csi-x" }, "status": { "attached": false },
        "spec": { "nodeName": "worker-a2", "source": { "persistentVolumeName": "pvc-1" } } });
    fixture.attachment(Attachment::from_object(&attaching).unwrap());
    let mut volume = volume();
    ["db-0", "orders-1"].iter().for_each(|pod| used_by(&mut volume, pod));
    assert_eq!(judge(&fixture, &volume), (Verdict::Free, "Used"));
    fixture.attached("pvc-1", "worker-a2", None);
    assert_eq!(judge(&fixture, &volume), (Verdict::Blocked, "HeldTwice"));
    volume.volume.as_mut().unwrap()["spec"]["accessModes"] = json!(["ReadWriteOnce", "ReadWriteMany"]);
    assert_eq!(judge(&fixture, &volume), (Verdict::Free, "Shared"));
    fixture.attached("pvc-1", "worker-b2", Some("not proved off"));
    assert_eq!(judge(&fixture, &volume), (Verdict::Blocked, "Held"));
}

#[test]
fn errors_of_a_volume_driver_are_shown() {
    let of = |object: Value| Attachment::from_object(&object).unwrap();
    let failed = |deletion: Value| {
        of(json!({ "metadata": { "name": "csi-x", "deletionTimestamp": deletion },
            "spec": { "nodeName": "worker-a1", "source": { "persistentVolumeName": "pvc-1" } },
            "status": { "attached": !deletion.is_null(), "detachError": { "message": "array busy" }, "attachError": { "message": "no such LUN" } } }))
    };
    let volume = volume();
    for (deletion, reason, message) in
        [(json!("2026-11-21T10:00:00Z"), "DetachFailed", "array busy"), (json!(null), "AttachFailed", "No such LUN")]
    {
        let mut fixture = Fixture::healthy();
        fixture.attachment(failed(deletion));
        let answer = answer_for(&fixture, &volume);
        assert_eq!((answer.judgement.verdict, answer.judgement.reason), (Verdict::Blocked, reason), "{answer:?}");
        assert!(answer.judgement.message.contains(message), "{answer:?}");
        assert!(answer.next.iter().any(|next| next.command == "kubectl get volumeattachment csi-x -o yaml"));
    }
}

#[test]
fn a_claim_without_a_volume_and_a_volume_without_a_claim_are_explained() {
    let mut fixture = Fixture::healthy();
    fixture.add_event("persistentvolumeclaim/shop/data-orders-1", "ProvisioningFailed", "no capacity in zone-a");
    let mut volume = volume();
    volume.claim.as_mut().unwrap()["status"]["phase"] = json!("Pending");
    let answer = answer_for(&fixture, &volume);
    assert_eq!((answer.judgement.verdict, answer.judgement.reason), (Verdict::Waiting, "Unbound"));
    assert!(answer.judgement.message.contains("no capacity in zone-a"), "{answer:?}");
    volume.claim.as_mut().unwrap()["status"]["phase"] = json!("Lost");
    assert_eq!(judge(&fixture, &volume), (Verdict::Blocked, "ClaimLost"));
    volume.claim = None;
    let answer = answer_for(&fixture, &volume);
    assert_eq!((answer.object.as_str(), answer.judgement.reason), ("persistentvolume/pvc-1", "Unclaimed"));
}

#[test]
fn bug_of_two_pods_on_no_node_one_was_shown_as_user_of_the_volume() {
    let fixture = Fixture::healthy();
    let mut volume = volume();
    volume.volume.as_mut().unwrap()["spec"]["accessModes"] = json!(["ReadWriteOncePod"]);
    for pod in ["cache-0", "cache-1"] {
        fixture.pod_with(pod, "", |pod| {
            pending(pod);
            pod["spec"] = json!({});
        });
        used_by(&mut volume, pod);
    }
    assert_ne!(judge(&fixture, &volume).1, "OnePodOnly");
}

#[test]
fn read_write_once_pod_is_distinguished_from_read_write_once() {
    let fixture = Fixture::healthy();
    fixture.pod_with("orders-1", "worker-a1", fixture::ready);
    fixture.pod_with("cache-0", "", |pod| {
        pending(pod);
        pod["spec"] = json!({});
    });
    let mut volume = volume();
    volume.volume.as_mut().unwrap()["spec"]["accessModes"] = json!(["ReadWriteOncePod"]);
    ["orders-1", "cache-0"].iter().for_each(|pod| used_by(&mut volume, pod));
    assert_eq!(judge(&fixture, &volume), (Verdict::Blocked, "OnePodOnly"));
    volume.pods = None;
    assert_eq!(judge(&fixture, &volume), (Verdict::Unknown, "NotRead"));
}

#[test]
fn an_ephemeral_claim_is_used_by_its_own_pod_only() {
    let mut volume = volume();
    volume.claim.as_mut().unwrap()["metadata"]["name"] = json!("orders-1-scratch");
    let pod = |name: &str| json!({ "metadata": { "name": name }, "spec": { "volumes": [{ "name": "scratch", "ephemeral": {} }] } });
    assert!(volume.is_used_by(&pod("orders-1")) && !volume.is_used_by(&pod("orders-2")));
}

#[test]
fn the_volume_lease_takes_precedence_over_attachments() {
    let fixture = Fixture::healthy();
    let mut volume = volume();
    let lease = |holder: &str, labels: Value| {
        Some(json!({ "metadata": { "name": "pvc-1", "labels": labels,
            "annotations": { "pod-safety.dev/hold": "volume pvc-1 was taken by node worker-b1, which is not Ready" } },
            "spec": { "holderIdentity": holder } }))
    };
    let holder = "worker-b1/uid-b1/b0000000-0000-4000-8000-000000000001/uid-p";
    volume.lease = lease(holder, json!({ "pod-safety.dev/held": "true" }));
    let answer = answer_for(&fixture, &volume);
    assert_eq!((answer.judgement.verdict, answer.judgement.reason), (Verdict::Blocked, "VolumeHeld"));
    assert!(answer.judgement.message.starts_with("Volume pvc-1 was taken by node worker-b1"), "{answer:?}");
    assert!(
        answer.facts.contains(&"owned by node worker-b1 (boot b0000000-0000-4000-8000-000000000001)".to_owned()),
        "{:?}",
        answer.facts
    );
    volume.lease = lease("somebody", json!({}));
    assert!(answer_for(&fixture, &volume).judgement.message.contains("\"somebody\""));
    volume.lease = lease("", json!({}));
    assert_eq!(judge(&fixture, &volume), (Verdict::Free, "Unused"));
    assert!(answer_for(&fixture, &volume).facts.contains(&"no owner".to_owned()));
}

fn lease(volume: &mut Volume, holder: Option<&str>) {
    volume.lease = Some(json!({
        "metadata": { "labels": { "pod-safety.dev/held": "true" },
            "annotations": { "pod-safety.dev/hold": "it may be detached", "pod-safety.dev/detach-from": "worker-b1" } },
        "spec": { "holderIdentity": holder },
    }));
}

/// With storage that supports fencing, deleting the attachment frees the volume; afterwards no node holds it.
#[test]
fn a_detachable_volume_is_reported_and_a_detached_node_holds_it_no_longer() {
    let mut fixture = Fixture::with_lost_node();
    fixture.attached("pvc-1", "worker-b1", None);
    let mut volume = volume();
    lease(&mut volume, Some("worker-b1/uid-worker-b1/b0000000-0000-4000-8000-000000000001/uid-orders-1"));
    let answer = answer_for(&fixture, &volume);
    assert_eq!((answer.judgement.reason, &*answer.judgement.message), ("VolumeHeld", "It may be detached."));
    let next = format!("{:?}", answer.next);
    assert!(next.contains("kubectl delete volumeattachment"), "{next}");
    lease(&mut volume, None);
    let answer = answer_for(&fixture, &volume);
    assert_ne!(answer.judgement.reason, "VolumeHeld");
    assert!(answer.notes.iter().any(|note| note.starts_with("It was detached from worker-b1")), "{:?}", answer.notes);
}
