//! The objects of a cluster here: a StatefulSet, and how its nodes are fenced.

use pod_safety_control_plane::rigs::{PASSWORD, USER};
use serde_json::{Value, json};

use crate::watch::VOLUMES;

pub(crate) const NAMESPACE: &str = "shop";
pub(crate) const IDENTITIES: [&str; 3] = ["db-0", "db-1", "db-2"];

/// The power of each node, at the Redfish service there, by the system of this name.
pub(crate) fn device(address: &str, authority: &str, system: &str) -> Value {
    json!({
            "apiVersion": "pod-safety.dev/v1alpha1", "kind": "FenceDevice",
            "metadata": { "namespace": "pod-safety", "name": "bmc" },
            "spec": {
                "driver": "Redfish", "identityCheck": "Required",
                "timeoutSeconds": { "off": 20, "on": 20, "look": 5 },
                "parameters": {
                    "address": format!("https://{address}"), "username": USER, "ca": authority,
                    "system": format!("/redfish/v1/Systems/{system}"),
                },
                "secretParameters": [{ "parameter": "password", "secret": "bmc", "key": "password" }],
            },
    })
}

/// What the device is opened with.
pub(crate) fn secret() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": "pod-safety", "name": "bmc" },
        "stringData": { "password": PASSWORD },
    })
}

/// All nodes are fenced when they are needed, and started again.
pub(crate) fn policy() -> Value {
    json!({
        "apiVersion": "pod-safety.dev/v1alpha1", "kind": "FencePolicy", "metadata": { "name": "all" },
        "spec": {
            "unhealthy": { "silentSeconds": 10 },
            "levels": [{ "name": "power", "devices": [{ "namespace": "pod-safety", "name": "bmc" }], "attempts": 1 }],
            "rounds": 2,
            "brakes": { "cooldownSeconds": 0 },
            "recovery": "PowerOn",
        },
    })
}

/// Three identities, rather on three machines, each with a volume that it keeps wherever it runs.
pub(crate) fn stateful_set() -> Value {
    let labels = json!({ "app": "db" });
    let bears = |key: &str| json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3 });
    let field =
        |name: &str, path: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } });
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "namespace": NAMESPACE, "name": "db" },
        "spec": {
            "serviceName": "db", "replicas": IDENTITIES.len(), "podManagementPolicy": "Parallel",
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "terminationGracePeriodSeconds": 5,
                    "dnsPolicy": "Default",
                    "tolerations": [
                        bears("node.kubernetes.io/unreachable"), bears("node.kubernetes.io/not-ready"),
                    ],
                    "affinity": { "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [{
                        "weight": 100,
                        "podAffinityTerm": { "labelSelector": { "matchLabels": labels }, "topologyKey": "kubernetes.io/hostname" },
                    }] } },
                    "containers": [{
                        "name": "main", "image": "real-nodes.local/workload:1", "imagePullPolicy": "Never",
                        "args": ["$(IDENTITY)", "$(UID)", "$(NODE)"],
                        "env": [
                            field("IDENTITY", "metadata.name"), field("UID", "metadata.uid"), field("NODE", "spec.nodeName"),
                        ],
                        "volumeMounts": [{ "name": "volume", "mountPath": "/data", "subPathExpr": "$(IDENTITY)" }],
                    }],
                    "volumes": [{ "name": "volume", "hostPath": { "path": VOLUMES } }],
                },
            },
        },
    })
}
