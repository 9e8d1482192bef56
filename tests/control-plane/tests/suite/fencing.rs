//! Real fence agents, a power switch that ends a node, and the StatefulSet pod that runs elsewhere.
#![expect(clippy::disallowed_methods, reason = "tests drive a real cluster in real time")]
#![expect(clippy::unwrap_used, reason = "scenarios may fail as loudly as the test that runs them")]

mod apart;
mod batch;
mod cloud;
mod drill;
mod drivers;
mod elsewhere;
mod foreign;
mod killed;
mod libvirt;
mod machine;
mod maintain;
mod sick;
mod storm;
mod traced;
mod vcenter;
mod watchdog;
mod whole;

use std::collections::BTreeSet;

use pod_safety_control_plane::workloads::{self, STATEFUL_SET};
use pod_safety_control_plane::{AuditLog, ControlPlane, objects, observe, seen, until};
use serde_json::{Value, json};

use crate::commands::apply;

const NAMESPACE: &str = "shop";
/// Who ours is at the API server.
const ACCOUNT: &str = "system:serviceaccount:pod-safety:pod-safety";
const CONTROLLERS: &str = "--controllers=pod-gc,node-lifecycle,taint-eviction,fencing";

async fn fence_of(plane: &ControlPlane, node: &str) -> Option<Value> {
    plane.list("nodefences").await.unwrap().into_iter().find(|fence| fence["spec"]["node"]["name"] == node)
}

async fn until_phase(plane: &ControlPlane, node: &str, phase: &str) -> Value {
    until(&format!("the fence of {node} is {phase}"), async || {
        let fence = fence_of(plane, node).await.ok_or("there is none")?;
        if fence["status"]["phase"] == phase { Ok(fence) } else { Err(format!("{:#}", fence["status"])) }
    })
    .await
    .unwrap()
}

/// A StatefulSet pod that runs on this node, and bears no taint for long.
async fn stateful_pod(plane: &ControlPlane, name: &str, node: &str) {
    let api = plane.admin();
    let owner = workloads::put(&api, STATEFUL_SET, NAMESPACE, name, 1, None).await.unwrap();
    let mut pod = objects::PodExt::on_node(objects::pod(NAMESPACE, &format!("{name}-0")), node);
    pod.metadata.owner_references = Some(vec![owner]);
    let bears = |key: &str| {
        serde_json::from_value(
            json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1 }),
        )
        .unwrap()
    };
    let keys = ["node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"];
    pod.spec.get_or_insert_default().tolerations = Some(keys.map(bears).to_vec());
    objects::create_pod(&api, &pod).await.unwrap();
    until("the pod runs", async || {
        let pod = observe::find_pod(&api, NAMESPACE, &format!("{name}-0")).await;
        let phase = pod.ok().flatten().and_then(|pod| pod.status).and_then(|status| status.phase);
        seen(phase.as_deref() == Some("Running"), format!("{phase:?}"))
    })
    .await
    .unwrap();
}

async fn until_released(plane: &ControlPlane, pod: &str) {
    until(&format!("{pod} is released"), async || {
        let found = observe::find_pod(&plane.admin(), NAMESPACE, pod).await;
        let found = found.map_err(|error| format!("{error:?}"))?;
        let fences: Vec<_> =
            plane.list("nodefences").await.unwrap().iter().map(|one| one["status"].clone()).collect();
        seen(found.is_none(), format!("{:?}: {fences:?}", found.map(|pod| pod.metadata.deletion_timestamp)))
    })
    .await
    .unwrap();
}

type Right = (String, String);

/// What these roles grant, and what of that was used. The API server refuses what is not granted; so a right that was
/// used cannot be left out.
async fn granted_and_used(
    plane: &ControlPlane,
    audit: &AuditLog,
    roles: &[&[&str]],
) -> (BTreeSet<Right>, BTreeSet<Right>) {
    let mut granted = BTreeSet::new();
    for role in roles {
        let args = [&["get", "-o", "json"], *role].concat();
        let role: Value = serde_json::from_str(&plane.kubectl(&args).await.unwrap().text().unwrap()).unwrap();
        for rule in role["rules"].as_array().unwrap() {
            for resource in rule["resources"].as_array().unwrap() {
                for verb in rule["verbs"].as_array().unwrap() {
                    granted
                        .insert((resource.as_str().unwrap().to_owned(), verb.as_str().unwrap().to_owned()));
                }
            }
        }
    }
    let entries = audit.entries().unwrap();
    let refused: Vec<_> = entries.iter().filter(|entry| entry.code == 403).collect();
    assert!(refused.is_empty(), "a right is missing: {refused:?}");
    let resources: BTreeSet<_> = granted.iter().map(|(resource, _)| resource.clone()).collect();
    let used = entries.into_iter().map(|entry| (entry.resource, entry.verb));
    let used = used.filter(|(resource, _)| resources.contains(resource)).collect();
    (granted, used)
}

fn secret(name: &str, password: &str) -> Value {
    let lent = json!({ "pod-safety.dev/fence-devices": "*" });
    json!({ "apiVersion": "v1", "kind": "Secret",
        "metadata": { "namespace": "pod-safety", "name": name, "annotations": lent },
        "stringData": { "password": password } })
}

fn policy(name: &str, node: &str, device: &str) -> Value {
    json!({
        "apiVersion": "pod-safety.dev/v1alpha1", "kind": "FencePolicy", "metadata": { "name": name },
        "spec": {
            "nodeSelector": { "matchLabels": { "kubernetes.io/hostname": node } },
            "unhealthy": { "silentSeconds": 10 },
            "levels": [{ "name": "power", "devices": [{ "namespace": "pod-safety", "name": device }], "attempts": 1 }],
            "rounds": 1,
            "brakes": { "cooldownSeconds": 0 },
            "recovery": "PowerOn",
        },
    })
}
