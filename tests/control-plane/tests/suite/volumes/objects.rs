//! A database on an exclusive volume, and the chart's policies for such volumes.

use pod_safety_control_plane::{ControlPlane, chart, helm, workloads};
use serde_json::{Value, json};

use super::hosts::DRIVER;

pub(super) const NAMESPACE: &str = "shop";

pub(super) async fn apply(plane: &ControlPlane, object: &Value) {
    plane.kubectl_with(&["apply", "-f", "-"], &object.to_string()).await.unwrap().text().unwrap();
}

/// Only the chart's policies for volumes: those on force deletes are not tested here.
pub(super) async fn policies(plane: &ControlPlane) {
    let chart = chart();
    let args = [
        "template",
        "pod-safety",
        chart.to_str().unwrap(),
        "--namespace=pod-safety",
        "--set=controllers.volumeGuard.enabled=true,controllers.volumeGuard.gate.enabled=true",
        "--set=controllers.volumeGuard.gate.namespaceSelector.matchLabels.gated=yes",
        "--api-versions=admissionregistration.k8s.io/v1/MutatingAdmissionPolicy",
        "--show-only=templates/admission/volume-held.yaml",
    ];
    let rendered = helm(&args).await.unwrap().text().unwrap();
    plane.kubectl_with(&["apply", "-f", "-"], &rendered).await.unwrap().text().unwrap();
}

/// A volume and its claim, bound to each other, both of this name.
pub(super) async fn volume(plane: &ControlPlane, name: &str) {
    volume_of(plane, name, DRIVER).await;
}

pub(super) async fn volume_of(plane: &ControlPlane, name: &str, driver: &str) {
    let object = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": name },
        "spec": { "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" }, "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain", "csi": { "driver": driver, "volumeHandle": name },
            "claimRef": { "namespace": NAMESPACE, "name": name } },
    });
    apply(plane, &object).await;
    apply(plane, &claim(NAMESPACE, name)).await;
}

/// A claim for the volume of the same name.
pub(super) fn claim(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "namespace": namespace, "name": name },
        "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": name,
            "resources": { "requests": { "storage": "1Gi" } } },
    })
}

/// A StatefulSet of one pod with the volume `data`, that prefers `w1`.
pub(super) fn database(replicas: u32) -> Value {
    let mut set = workloads::stateful_set_near(NAMESPACE, "db", "w1");
    set["spec"]["replicas"] = json!(replicas);
    let pod = &mut set["spec"]["template"]["spec"];
    pod["volumes"] = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }]);
    pod["tolerations"] = workloads::brief_tolerations();
    set
}

pub(super) async fn attachments(plane: &ControlPlane) -> Vec<(String, bool)> {
    let all = plane.list("volumeattachments").await.unwrap();
    let mut nodes: Vec<_> = all
        .iter()
        .map(|one| (one["spec"]["nodeName"].as_str().unwrap().to_owned(), one["status"]["attached"] == true))
        .collect();
    nodes.sort();
    nodes
}
