//! A NetworkFence alone, with a CSI-Addons that does only what its contract requires: the volumes of its driver are released when it is
//! active, those of another driver are not, no pod is released, and it is removed when the node has terminated its pods.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pod_safety_control_plane::workloads::{Kind, define};
use pod_safety_control_plane::{ControlPlane, check_that, observe, wait_until};
use serde_json::{Value, json};

use super::detached::{attachments_of, nodes, pod, two_volumes_of_an_isolated_node, until_running};
use super::hosts::DRIVER;
use super::objects::{NAMESPACE, apply};
use super::{Fixture, NO_TIMEOUT, fixture, lease, policy, until_held};
use crate::fencing::device_of;

const VERSION: &str = "csiaddons.openshift.io/v1alpha1";
/// Kinds of CSI-Addons, with their scopes.
const KINDS: [(Kind, &str); 3] = [
    (Kind::custom(VERSION, "CSIAddonsNode", "csiaddonsnodes"), "Namespaced"),
    (Kind::custom(VERSION, "NetworkFenceClass", "networkfenceclasses"), "Cluster"),
    (Kind::custom(VERSION, "NetworkFence", "networkfences"), "Cluster"),
];
const CLASS: &str = "hollow";
/// The address of w1 on the storage network.
const ADDRESS: &str = "192.0.2.1/32";

async fn set_status(plane: &ControlPlane, kind: &str, name: &str, status: &Value) {
    plane.patch_status(kind, NAMESPACE, name, status).await.unwrap();
}

/// The objects of CSI-Addons before any failure; the device, and a policy with only that device.
async fn storage(plane: &ControlPlane) {
    for (kind, scope) in KINDS {
        define(&plane.admin(), kind, scope, &json!({ "status": {} })).await.unwrap();
    }
    plane.bind_pod_safety("pod-safety-fencing-networkfences").await.unwrap();
    apply(plane, &json!({ "apiVersion": VERSION, "kind": "NetworkFenceClass", "metadata": { "name": CLASS }, "spec": { "provisioner": DRIVER } })).await;
    let object = json!({ "apiVersion": VERSION, "kind": "CSIAddonsNode", "metadata": { "namespace": NAMESPACE, "name": "w1" },
        "spec": { "driver": { "name": DRIVER, "nodeID": "w1" } } });
    apply(plane, &object).await;
    let clients = json!({ "networkFenceClientStatus": [{ "networkFenceClassName": CLASS, "ClientDetails": [{ "id": "w1", "cidrs": [ADDRESS] }] }] });
    set_status(plane, "csiaddonsnode", "w1", &clients).await;
    let fence = json!({ "className": CLASS, "namespace": NAMESPACE });
    let spec = json!({ "driver": "NetworkFence", "networkFence": fence, "monitorSeconds": 1 });
    apply(plane, &device_of("storage", "w1", spec)).await;
    apply(plane, &policy("storage", "storage")).await;
    wait_until("the addresses of w1 are recorded", async || {
        let device = plane.find("fencedevice", "pod-safety", "storage").await.unwrap().unwrap();
        check_that(device["status"].to_string().contains(ADDRESS), device["status"].to_string())
    })
    .await;
}

/// Acts as CSI-Addons: every NetworkFence takes effect, once it answers.
async fn csi_addons(plane: &ControlPlane, answers: &AtomicBool) {
    loop {
        for fence in plane.list("networkfences").await.unwrap() {
            let message = match fence["spec"]["fenceState"].as_str() {
                Some("Unfenced") => "unfencing operation successful",
                _ => "fencing operation successful",
            };
            if answers.load(Ordering::SeqCst) && fence["status"]["message"] != message {
                let name = fence["metadata"]["name"].as_str().unwrap();
                let patch = json!({ "status": { "result": "Succeeded", "message": message } }).to_string();
                // It may be gone by now.
                let _gone = plane
                    .kubectl(&["patch", "networkfence", name, "--subresource=status", "--type=merge", "-p", &patch])
                    .await;
            }
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storage_fencing_alone_releases_volumes_and_no_pod() {
    let fixture = fixture(&[]).await;
    storage(&fixture.plane).await;
    let answers = AtomicBool::new(false);
    let story = async {
        no_volume_is_detached_before_the_storage_fence_is_active(&fixture).await;
        answers.store(true, Ordering::SeqCst);
        let took = volumes_of_its_driver_are_free(&fixture).await;
        println!("from the storage's answer to Running with the volume elsewhere: {took:?}");
        nothing_else_is_released(&fixture).await;
        the_storage_fence_is_removed_after_the_pods_terminated(&fixture).await;
    };
    tokio::select! {
        biased;
        () = story => {}
        () = csi_addons(&fixture.plane, &answers) => {}
    }
}

async fn no_volume_is_detached_before_the_storage_fence_is_active(fixture: &Fixture) {
    let plane = &fixture.plane;
    two_volumes_of_an_isolated_node(fixture).await;
    until_held(plane, "data", "w1", true).await;
    until_held(plane, "other", "w1", true).await;
    let delete = |name: &'static str| ["delete", "pod", "-n", NAMESPACE, name, "--wait=false"];
    plane.kubectl(&delete("old-other")).await.unwrap().text().unwrap();
    // Force deleted, so that attach/detach waits only for its six minutes, which the taint skips.
    let force = ["delete", "pod", "old", "-n", NAMESPACE, "--force", "--grace-period=0"];
    plane.kubectl(&force).await.unwrap().text().unwrap();
    let taint = ["taint", "node", "w1", "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"];
    plane.kubectl(&taint).await.unwrap().text().unwrap();
    pod(fixture, "new", "w2", "data").await;
    wait_until("a NetworkFence is asked for", async || {
        let fences = plane.list("networkfences").await.unwrap();
        let is_requested = fences.iter().any(|fence| fence["spec"]["cidrs"] == json!([ADDRESS]));
        check_that(is_requested, format!("{:#?}", plane.list("nodefences").await.unwrap()))
    })
    .await;
    assert_eq!(nodes(&attachments_of(fixture, "data").await), ["w1"]);
    assert_eq!(plane.list("fenceevidences").await.unwrap(), [] as [Value; 0]);
}

async fn volumes_of_its_driver_are_free(fixture: &Fixture) -> Duration {
    let (plane, since) = (&fixture.plane, Instant::now());
    until_running(fixture, "new").await;
    let took = since.elapsed();
    let lease = until_held(plane, "data", "w2", false).await;
    assert_eq!(lease["spec"]["leaseTransitions"], 1, "it was broken once: {lease:#}");
    let proofs = plane.list("fenceevidences").await.unwrap();
    assert_eq!(proofs.len(), 1, "{proofs:#?}");
    let proof = &proofs[0];
    assert_eq!(proof["spec"]["kind"], "StorageFenced");
    assert_eq!(proof["spec"]["storage"], json!([{ "driver": DRIVER, "className": CLASS }]));
    let broken = observe::event(&plane.admin(), "default", "data", "VolumeLeaseRevoked").await.unwrap();
    assert!(broken.contains(proof["metadata"]["name"].as_str().unwrap()), "{broken}");
    took
}

async fn nothing_else_is_released(fixture: &Fixture) {
    let plane = &fixture.plane;
    let until = Instant::now() + NO_TIMEOUT;
    while Instant::now() < until {
        assert!(plane.find("pod", NAMESPACE, "old-other").await.unwrap().is_some(), "it was released");
        assert_eq!(nodes(&attachments_of(fixture, "other").await), ["w1"]);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert_eq!(super::holder(&lease(plane, "other").await.unwrap()), "w1");
    let fences = plane.list("nodefences").await.unwrap();
    assert_eq!(fences[0]["status"]["phase"], "AwaitingOperator", "{fences:#?}");
}

async fn the_storage_fence_is_removed_after_the_pods_terminated(fixture: &Fixture) {
    let plane = &fixture.plane;
    assert_eq!(plane.list("networkfences").await.unwrap().len(), 1);
    fixture.hosts[0].connect();
    wait_until("it is lifted", async || {
        let fences = plane.list("networkfences").await.unwrap();
        check_that(fences.is_empty(), format!("{fences:#?} {:#?}", plane.list("nodefences").await.unwrap()))
    })
    .await;
    assert!(plane.find("pod", NAMESPACE, "old-other").await.unwrap().is_none(), "it was lifted too soon");
    let proof = plane.list("fenceevidences").await.unwrap().remove(0);
    assert!(!proof["status"]["invalidated"]["reason"].is_null(), "{proof:#}");
}
