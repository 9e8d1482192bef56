//! Real fence agents, a power switch that ends a node, and the StatefulSet pod that runs elsewhere.
#![expect(clippy::disallowed_methods, reason = "tests drive a real cluster in real time")]
#![expect(clippy::unwrap_used, reason = "scenarios may fail as loudly as the test that runs them")]

mod elsewhere;
mod killed;
mod machine;
mod whole;

use std::time::Duration;

use pod_safety_control_plane::{ControlPlane, eventually};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(120);
/// A pod runs elsewhere so soon after the proof (design §8).
const AFTER_PROOF: Duration = Duration::from_secs(5);
const NAMESPACE: &str = "shop";
const CONTROLLERS: &str = "--controllers=pod-gc,node-lifecycle,taint-eviction,fencing";

async fn apply(plane: &ControlPlane, object: &Value) {
    plane.kubectl_with(&["apply", "-f", "-"], &object.to_string()).await.unwrap().text().unwrap();
}

async fn list(plane: &ControlPlane, kind: &str) -> Vec<Value> {
    let text = plane.kubectl(&["get", kind, "-A", "-o", "json"]).await.unwrap().text().unwrap();
    serde_json::from_str::<Value>(&text).unwrap()["items"].as_array().unwrap().clone()
}

async fn fence_of(plane: &ControlPlane, node: &str) -> Option<Value> {
    list(plane, "nodefences").await.into_iter().find(|fence| fence["spec"]["node"]["name"] == node)
}

async fn until_phase(plane: &ControlPlane, node: &str, phase: &str) -> Value {
    eventually(&format!("the fence of {node} is {phase}"), SOON, async || {
        let fence = fence_of(plane, node).await.ok_or("there is none")?;
        if fence["status"]["phase"] == phase { Ok(fence) } else { Err(format!("{:#}", fence["status"])) }
    })
    .await
    .unwrap()
}

fn secret(name: &str, password: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": "pod-safety", "name": name },
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
