//! `explain volume`: a claim whose pod is on a lost node, and ambiguous cases. kube-controller-manager does not run, so the test binds and
//! attaches.

use pod_safety_control_plane::ControlPlane;
use serde_json::{Value, json};

use super::{NS, apply};
use crate::commands::{ends_with, json_of, run};

/// A claim and its volume, which `lost` holds; the pod `stock-0` uses it there.
async fn held(plane: &ControlPlane) {
    let size = json!({ "storage": "1Gi" });
    let modes = json!(["ReadWriteOnce"]);
    let csi = json!({ "driver": "csi.example.com", "volumeHandle": "vol-1" });
    for object in [
        json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "pv-1" },
            "spec": { "accessModes": modes, "capacity": size, "csi": csi, "claimRef": { "namespace": NS, "name": "stock" } } }),
        json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "namespace": NS, "name": "stock" },
            "spec": { "accessModes": modes, "resources": { "requests": size }, "volumeName": "pv-1", "storageClassName": "" } }),
        json!({ "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": { "name": "csi-1" },
            "spec": { "attacher": "csi.example.com", "nodeName": "lost", "source": { "persistentVolumeName": "pv-1" } } }),
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "namespace": NS, "name": "stock-0" }, "spec": { "nodeName": "lost",
            "terminationGracePeriodSeconds": 1, "containers": [{ "name": "main", "image": "i" }],
            "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "stock" } }] } }),
    ] {
        apply(plane, &object).await;
    }
    for (kind, name, status) in [
        ("pvc", "stock", json!({ "phase": "Bound" })),
        ("volumeattachment", "csi-1", json!({ "attached": true })),
        ("node", "lost", json!({ "volumesInUse": ["kubernetes.io/csi/csi.example.com^vol-1"] })),
        (
            "pod",
            "stock-0",
            json!({ "phase": "Running", "containerStatuses": [{ "name": "main", "image": "i", "imageID": "i",
            "ready": true, "restartCount": 0, "state": { "running": {} } }] }),
        ),
    ] {
        let patch = json!({ "status": status }).to_string();
        let args = ["patch", kind, name, "-n", NS, "--subresource=status", "--type=merge", "-p", &patch];
        plane.kubectl(&args).await.unwrap().text().unwrap();
    }
    plane.kubectl(&["delete", "pod", "-n", NS, "stock-0", "--wait=false"]).await.unwrap().text().unwrap();
}

pub(super) async fn explain_names_the_holder_by_claim_and_by_volume(plane: &ControlPlane) {
    held(plane).await;
    let text = ends_with(plane, 3, &["explain", "volume", "-n", NS, "stock"]).await;
    for expected in [
        "persistentvolumeclaim/shop/stock   bound to persistentvolume/pv-1   ReadWriteOnce",
        "Blocked (NoEvidence): lost holds it for pod/shop/stock-0",
        "volumeattachment/csi-1",
        "By its last report lost has it mounted (volumesInUse).",
        "pod-safety explain pod -n shop stock-0",
    ] {
        assert!(text.contains(expected), "{expected}: not in\n{text}");
    }
    let by_claim = json_of(plane, 3, &["explain", "pvc/stock", "-n", NS]).await;
    assert_eq!((&by_claim["kind"], &by_claim["reason"]), (&json!("VolumeExplanation"), &json!("NoEvidence")));
    // The volume is not bound to the claim's UID, so it might belong to an earlier claim of that name.
    let by_volume = json_of(plane, 0, &["explain", "pv", "pv-1"]).await;
    assert_eq!(by_volume["reason"], "Unclaimed", "{by_volume:#}");
    let uid = plane.kubectl(&["get", "pvc", "-n", NS, "stock", "-o", "jsonpath={.metadata.uid}"]).await.unwrap().text();
    let patch = json!({ "spec": { "claimRef": { "uid": uid.unwrap() } } }).to_string();
    plane.kubectl(&["patch", "pv", "pv-1", "--type=merge", "-p", &patch]).await.unwrap().text().unwrap();
    let by_volume = json_of(plane, 3, &["explain", "pv", "pv-1"]).await;
    let without_missing = |mut answer: Value| {
        answer.as_object_mut().unwrap().remove("history");
        answer
    };
    assert_eq!(without_missing(by_volume)["items"], without_missing(by_claim)["items"]);
    for (args, expected) in [
        (&["explain", "volume", "-n", NS, "nosuch"][..], "there is no PersistentVolumeClaim nosuch in namespace shop"),
        (&["explain", "pv", "nosuch"], "there is no PersistentVolume nosuch"),
    ] {
        let output = run(plane, &plane.admin_kubeconfig(), args).await;
        assert_eq!(output.status.code(), Some(1), "{args:?} {output:?}");
        assert!(output.stderr.contains(expected), "{args:?} {output:?}");
    }
}
