//! A database on an exclusive volume, and what the chart has for such volumes.

use pod_safety_control_plane::{ControlPlane, chart, helm};
use serde_json::{Value, json};

use super::hosts::DRIVER;

pub(super) const NAMESPACE: &str = "shop";

pub(super) async fn apply(plane: &ControlPlane, object: &Value) {
    plane.kubectl_with(&["apply", "-f", "-"], &object.to_string()).await.unwrap().text().unwrap();
}

/// What the chart has for volumes, and only that: who forces is not what is looked at here.
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
    apply(plane, &json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": name },
        "spec": { "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" }, "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain", "csi": { "driver": driver, "volumeHandle": name },
            "claimRef": { "namespace": NAMESPACE, "name": name } },
    })).await;
    apply(plane, &json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "namespace": NAMESPACE, "name": name },
        "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": name,
            "resources": { "requests": { "storage": "1Gi" } } },
    })).await;
}

/// A database of one pod with the volume `data`, that would rather run on `w1`.
pub(super) fn database(replicas: u32) -> Value {
    let bears = |key: &str| json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1 });
    let here = json!({ "key": "kubernetes.io/hostname", "operator": "In", "values": ["w1"] });
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "namespace": NAMESPACE, "name": "db" },
        "spec": {
            "replicas": replicas, "serviceName": "db", "selector": { "matchLabels": { "app": "db" } },
            "template": {
                "metadata": { "labels": { "app": "db" } },
                "spec": {
                    "containers": [{ "name": "main", "image": "registry.example/main:1" }],
                    "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }],
                    "tolerations": [bears("node.kubernetes.io/unreachable"), bears("node.kubernetes.io/not-ready")],
                    "affinity": { "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
                        { "weight": 100, "preference": { "matchExpressions": [here] } },
                    ] } },
                },
            },
        },
    })
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
