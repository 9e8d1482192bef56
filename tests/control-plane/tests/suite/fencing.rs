//! Real fence agents, a power switch that stops a node, and its StatefulSet pod, which is then recreated on another node.
#![expect(clippy::disallowed_methods, reason = "tests drive a real cluster in real time")]

mod batch;
mod cloud;
mod drill;
mod drivers;
mod elsewhere;
mod foreign;
mod isolation;
mod killed;
mod libvirt;
mod machine;
mod maintain;
mod remediators;
mod requested;
mod storm;
mod traced;
mod unhealthy;
mod vcenter;
mod watchdog;
mod whole;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client};
use pod_safety_control_plane::rigs::{Ipmi, PASSWORD, Rigs, USER};
use pod_safety_control_plane::workloads::{self, Kind, STATEFUL_SET, define};
use pod_safety_control_plane::{
    AuditLog, Component, ControlPlane, Options, Output, PodSafety, Program, SHORT_LEADER_LEASE, check_that, objects,
    observe, wait_until,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::commands::apply;
use cloud::{policy_of_all, target};
use machine::Machine;

const NAMESPACE: &str = "shop";
/// The user name of pod-safety at the API server.
const ACCOUNT: &str = "system:serviceaccount:pod-safety:pod-safety";
const CONTROLLERS: &str = "--controllers=pod-gc,node-lifecycle,taint-eviction,fencing";

/// The leader, in place of kube-controller-manager's node controllers.
async fn leader(plane: &ControlPlane, kubeconfig: &Path, more: &[&str]) -> PodSafety {
    let args = [&["--mode=replace", CONTROLLERS, "--node-monitor-grace-period=8s"], more].concat();
    plane.leading_pod_safety(kubeconfig, args).await.unwrap()
}

/// A leader with real fence agents, beside controllers of Kubernetes and its scheduler.
async fn leader_beside(
    plane: &ControlPlane,
    kubeconfig: &Path,
    controllers: &str,
    rigs: &Rigs,
) -> ([Component; 2], PodSafety) {
    leader_beside_with(plane, kubeconfig, controllers, rigs, &[]).await
}

/// The same, with additional flags.
async fn leader_beside_with(
    plane: &ControlPlane,
    kubeconfig: &Path,
    controllers: &str,
    rigs: &Rigs,
    flags: &[&str],
) -> ([Component; 2], PodSafety) {
    let components =
        [plane.kube_controller_manager(controllers, &[]).await.unwrap(), plane.kube_scheduler(&[]).await.unwrap()];
    let agents = format!("--fence-agents-path={}", rigs.agents().display());
    let flags = [&[agents.as_str(), "--allow-fence-dummy"], flags].concat();
    (components, leader(plane, kubeconfig, &flags).await)
}

/// Runs the kubelets of these machines.
fn kubelets<'a>(plane: &ControlPlane, machines: impl IntoIterator<Item = &'a Arc<Machine>>) -> JoinSet<()> {
    kubelets_as(&plane.admin(), machines)
}

/// The same with another client.
fn kubelets_as<'a>(api: &Client, machines: impl IntoIterator<Item = &'a Arc<Machine>>) -> JoinSet<()> {
    machines.into_iter().map(|machine| Arc::clone(machine).run_kubelet(api.clone())).collect()
}

/// Machines to which pods of other nodes can move.
fn spare_machines() -> [Arc<Machine>; 3] {
    ["spare-1", "spare-2", "spare-3"].map(|name| Machine::new(name, || true))
}

/// A machine whose power switch is a file, and its fence device.
async fn switch_log(plane: &ControlPlane, rigs: &Rigs, name: &str) -> Arc<Machine> {
    let file = rigs.file(&format!("{name}.power"));
    std::fs::write(&file, "on").unwrap();
    let parameters = json!({ name: { "status_file": file } });
    let spec = json!({ "driver": "Agent", "agent": "fence_dummy", "nodeParameters": parameters });
    apply(plane, &device_of(name, name, spec)).await;
    Machine::of_file(name, file, "on")
}

async fn incidents(plane: &ControlPlane) -> Vec<Value> {
    plane.list("nodefences").await.unwrap().into_iter().map(|fence| fence["status"].clone()).collect()
}

async fn node_fence_of(plane: &ControlPlane, node: &str) -> Option<Value> {
    plane.list("nodefences").await.unwrap().into_iter().find(|fence| fence["spec"]["node"]["name"] == node)
}

async fn until_phase(plane: &ControlPlane, node: &str, phase: &str) -> Value {
    wait_until(&format!("the fence of {node} is {phase}"), async || {
        let fence = node_fence_of(plane, node).await.ok_or("there is none")?;
        if fence["status"]["phase"] == phase { Ok(fence) } else { Err(format!("{:#}", fence["status"])) }
    })
    .await
}

/// A StatefulSet pod that runs on this node, with short tolerations.
async fn stateful_pod(plane: &ControlPlane, name: &str, node: &str) {
    let api = plane.admin();
    let owner = workloads::put(&api, STATEFUL_SET, NAMESPACE, name, 1, None).await.unwrap();
    let mut pod = objects::PodExt::on_node(objects::pod(NAMESPACE, &format!("{name}-0")), node);
    pod.metadata.owner_references = Some(vec![owner]);
    let tolerations = serde_json::from_value(workloads::brief_tolerations()).unwrap();
    pod.spec.get_or_insert_default().tolerations = Some(tolerations);
    objects::create_pod(&api, &pod).await.unwrap();
    wait_until("the pod runs", async || {
        let pod = observe::find_pod(&api, NAMESPACE, &format!("{name}-0")).await;
        let phase = pod.ok().flatten().and_then(|pod| pod.status).and_then(|status| status.phase);
        check_that(phase.as_deref() == Some("Running"), format!("{phase:?}"))
    })
    .await;
}

async fn until_released(plane: &ControlPlane, pod: &str) {
    wait_until(&format!("{pod} is released"), async || {
        let current = observe::find_pod(&plane.admin(), NAMESPACE, pod).await;
        let current = current.map_err(|error| format!("{error:?}"))?;
        let fences = incidents(plane).await;
        check_that(current.is_none(), format!("{:?}: {fences:?}", current.map(|pod| pod.metadata.deletion_timestamp)))
    })
    .await;
}

type Right = (String, String);

/// The rights that these roles grant, and the rights that were used. The API server denies requests without a right, so a used right cannot
/// be missing.
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
                    granted.insert((resource.as_str().unwrap().to_owned(), verb.as_str().unwrap().to_owned()));
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

/// Machines are listed only where nodes do not name theirs.
async fn all_rights_but_one_were_used(plane: &ControlPlane, audit: &AuditLog, roles: &[&[&str]]) {
    let (granted, used) = granted_and_used(plane, audit, roles).await;
    let unused: Vec<_> = granted.difference(&used).collect();
    assert_eq!(unused, [&("machines".to_owned(), "list".to_owned())]);
}

fn secret(name: &str, password: &str) -> Value {
    let lent = json!({ "pod-safety.dev/fence-devices": "*" });
    json!({ "apiVersion": "v1", "kind": "Secret",
        "metadata": { "namespace": "pod-safety", "name": name, "annotations": lent },
        "stringData": { "password": password } })
}

/// A device for all nodes.
pub(crate) fn device(name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "pod-safety.dev/v1alpha1", "kind": "FenceDevice",
        "metadata": { "namespace": "pod-safety", "name": name }, "spec": spec })
}

pub(crate) fn device_of(name: &str, node: &str, spec: Value) -> Value {
    let mut device = device(name, spec);
    device["spec"]["nodeSelector"] = json!({ "matchLabels": { "kubernetes.io/hostname": node } });
    device
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
