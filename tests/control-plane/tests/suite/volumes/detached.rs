//! A storage backend that rejects writes of detached nodes: a volume that an operator or kube-controller-manager detaches from an isolated
//! node moves to the next node; the pod there stays, because the detach is no evidence about its processes.

use std::time::{Duration, Instant};

use pod_safety_control_plane::{check_that, observe, wait_until};
use serde_json::{Value, json};

use super::hosts::DRIVER;
use super::objects::{NAMESPACE, apply, volume, volume_of};
use super::{Fixture, NO_TIMEOUT, fixture, lease, until_held};

/// A driver that is not configured as exclusive.
const OTHER: &str = "other.csi.example.com";

pub(super) async fn pod(fixture: &Fixture, name: &str, node: &str, volume: &str) {
    let object = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "namespace": NAMESPACE, "name": name },
        "spec": { "nodeName": node, "containers": [{ "name": "main", "image": "registry.example/main:1" }],
            "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": volume } }],
            "tolerations": [{ "operator": "Exists" }] },
    });
    apply(&fixture.plane, &object).await;
}

pub(super) async fn until_running(fixture: &Fixture, name: &str) {
    wait_until(&format!("{name} runs"), async || {
        let pod = fixture.plane.find("pod", NAMESPACE, name).await.unwrap().ok_or("there is none")?;
        let all = fixture.plane.list("volumeattachments").await.unwrap();
        let at: Vec<_> = all.iter().map(|one| (&one["spec"], &one["status"]["attached"])).collect();
        check_that(pod["status"]["phase"] == "Running", format!("{at:?} {:?}", lease(&fixture.plane, "data").await))
    })
    .await;
}

/// The names of the attachments of a volume, with their nodes.
pub(super) async fn attachments_of(fixture: &Fixture, volume: &str) -> Vec<(String, String)> {
    let text = |one: &Value, pointer: &str| one.pointer(pointer).unwrap().as_str().unwrap().to_owned();
    let all = fixture.plane.list("volumeattachments").await.unwrap();
    let of_it = all.iter().filter(|one| one["spec"]["source"]["persistentVolumeName"] == volume);
    of_it.map(|one| (text(one, "/metadata/name"), text(one, "/spec/nodeName"))).collect()
}

pub(super) fn nodes(attachments: &[(String, String)]) -> Vec<&str> {
    attachments.iter().map(|(_, node)| node.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_detached_by_an_exclusive_backend_moves_and_no_other() {
    let exclusive = format!("--exclusive-backends={DRIVER}");
    let fixture = fixture(&[&exclusive]).await;
    let object = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": { "name": DRIVER },
        "spec": { "attachRequired": true } });
    apply(&fixture.plane, &object).await;
    both_are_held_and_not_attached_elsewhere(&fixture).await;
    an_operator_may_force_detach_the_exclusive_one_only(&fixture).await;
    let took = it_moves_and_the_old_pod_stays(&fixture).await;
    println!("from the detachment to Running with the volume elsewhere: {took:?}");
    the_returning_node_does_not_hold_it(&fixture).await;
    kube_controller_manager_may_detach_by_force(&fixture).await;
}

/// The volumes `data` and `other`, of different drivers, and a pod of w1 with each.
pub(super) async fn two_volumes_of_an_isolated_node(fixture: &Fixture) {
    let plane = &fixture.plane;
    volume(plane, "data").await;
    volume_of(plane, "other", OTHER).await;
    pod(fixture, "old", "w1", "data").await;
    pod(fixture, "old-other", "w1", "other").await;
    until_running(fixture, "old").await;
    until_running(fixture, "old-other").await;
    fixture.hosts[0].cut_off().await;
}

async fn both_are_held_and_not_attached_elsewhere(fixture: &Fixture) {
    let plane = &fixture.plane;
    two_volumes_of_an_isolated_node(fixture).await;
    let held = until_held(plane, "data", "w1", true).await;
    assert_eq!(held["metadata"]["annotations"]["pod-safety.dev/detach-from"], "w1", "{held:#}");
    let held = until_held(plane, "other", "w1", true).await;
    assert!(held["metadata"]["annotations"]["pod-safety.dev/detach-from"].is_null(), "{held:#}");
    plane.kubectl(&["delete", "pod", "-n", NAMESPACE, "old", "--wait=false"]).await.unwrap().text().unwrap();
    pod(fixture, "new", "w2", "data").await;
    let elsewhere = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": { "name": "by-hand" },
        "spec": { "attacher": DRIVER, "nodeName": "w2", "source": { "persistentVolumeName": "data" } } });
    let refused = plane.kubectl_with(&["create", "-f", "-"], &elsewhere.to_string()).await.unwrap();
    assert!(refused.stderr.contains("data is not attached to w2"), "{}", refused.stderr);
    assert!(refused.stderr.contains("but it may be detached, and then it is free"), "{}", refused.stderr);
}

async fn an_operator_may_force_detach_the_exclusive_one_only(fixture: &Fixture) {
    let attachment = attachments_of(fixture, "other").await.pop().unwrap().0;
    let delete = ["delete", "volumeattachment", &attachment, "--wait=false"];
    let refused = fixture.plane.kubectl(&delete).await.unwrap();
    assert!(refused.stderr.contains("other is not detached from w1"), "{}", refused.stderr);
    let attachment = attachments_of(fixture, "data").await.pop().unwrap().0;
    let delete = ["delete", "volumeattachment", &attachment, "--wait=false"];
    fixture.plane.kubectl(&delete).await.unwrap().text().unwrap();
}

async fn it_moves_and_the_old_pod_stays(fixture: &Fixture) -> Duration {
    let plane = &fixture.plane;
    let since = Instant::now();
    until_running(fixture, "new").await;
    let took = since.elapsed();
    let lease = lease(plane, "data").await.unwrap();
    assert_eq!(super::holder(&lease), "w2");
    assert_eq!(lease["spec"]["leaseTransitions"], 1, "it was broken once: {lease:#}");
    let broken = observe::event(&plane.admin(), "default", "data", "VolumeLeaseRevoked").await.unwrap();
    assert!(broken.contains("it was detached, and"), "{broken}");
    let until = Instant::now() + NO_TIMEOUT;
    while Instant::now() < until {
        // kube-controller-manager would attach it for the existing pod.
        assert_eq!(nodes(&attachments_of(fixture, "data").await), ["w2"]);
        assert_eq!(nodes(&attachments_of(fixture, "other").await), ["w1"]);
        for name in ["old", "old-other"] {
            assert!(plane.find("pod", NAMESPACE, name).await.unwrap().is_some(), "{name} was released");
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert_eq!(super::holder(&super::lease(plane, "other").await.unwrap()), "w1");
    let released = fixture.pod_safety.metric("pod_safety_force_deletes_total", &[]).await.unwrap_or_default();
    assert!(released.abs() < 0.5, "of pods nothing was proved");
    took
}

async fn the_returning_node_does_not_hold_it(fixture: &Fixture) {
    fixture.hosts[0].connect();
    observe::remaining_pod(&fixture.plane.admin(), NAMESPACE, &["new", "old-other"]).await.unwrap();
    let lease = until_held(&fixture.plane, "data", "w2", false).await;
    assert!(lease["metadata"]["labels"]["pod-safety.dev/detach-from"].is_null(), "{lease:#}");
    until_held(&fixture.plane, "other", "w1", false).await;
}

async fn kube_controller_manager_may_detach_by_force(fixture: &Fixture) {
    let plane = &fixture.plane;
    fixture.hosts[1].cut_off().await;
    until_held(plane, "data", "w2", true).await;
    pod(fixture, "third", "w1", "data").await;
    let force = ["delete", "pod", "new", "-n", NAMESPACE, "--force", "--grace-period=0"];
    plane.kubectl(&force).await.unwrap().text().unwrap();
    let taint = ["taint", "node", "w2", "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"];
    plane.kubectl(&taint).await.unwrap().text().unwrap();
    until_running(fixture, "third").await;
    let lease = until_held(plane, "data", "w1", false).await;
    assert_eq!(lease["spec"]["leaseTransitions"], 2, "{lease:#}");
}
