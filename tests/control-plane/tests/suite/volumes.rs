//! An exclusive volume with kube-controller-manager's attach/detach controller: while the node is isolated, the volume is neither detached nor
//! attached to another node, whatever is forced, until the node is proved off; then immediately.
//!
//! kube-controller-manager's six minutes have no flag. On a node with the out-of-service taint it sends the same request without that wait:
//! so that request is denied here.
#![expect(clippy::disallowed_methods, reason = "tests drive a real cluster in real time")]

mod detached;
mod fenced;
mod hosts;
mod late;
mod objects;
mod removed;
mod replaced;
mod storm;

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use pod_safety_control_plane::objects::{self as pods, PodExt as _};
use pod_safety_control_plane::rigs::Rigs;
use pod_safety_control_plane::{
    AuditEntry, AuditLog, Component, ControlPlane, PodSafety, check_that, observe, wait_until,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::fencing::device_of;
use hosts::{DRIVER, Host};
use objects::{NAMESPACE, apply, attachments, database, policies, volume};

/// How long something that must not happen is watched: with the taint kube-controller-manager detaches within a second.
const NO_TIMEOUT: Duration = Duration::from_secs(15);
const ACCOUNT: &str = "system:serviceaccount:pod-safety:pod-safety";
const ATTACH_DETACH: &str = "system:serviceaccount:kube-system:attachdetach-controller";

struct Fixture {
    plane: ControlPlane,
    audit: AuditLog,
    pod_safety: PodSafety,
    hosts: Vec<Arc<Host>>,
    rigs: Rigs,
    _components: [Component; 2],
    _running: JoinSet<()>,
}

async fn fixture(more: &[&str]) -> Fixture {
    let rigs = Rigs::new().await.unwrap();
    let power = rigs.file("w1.power");
    std::fs::write(&power, "on").unwrap();
    let (audit, plane) = ControlPlane::audited(ACCOUNT).await.unwrap();
    let kubeconfig = plane.install_pod_safety().await.unwrap();
    policies(&plane).await;
    plane.namespace(NAMESPACE).await.unwrap();
    let hosts = vec![Host::new("w1", Some(&power)), Host::new("w2", None)];
    let mut running = JoinSet::new();
    running.spawn(hosts::attach(plane.admin()));
    for host in &hosts {
        running.spawn(Arc::clone(host).run_kubelet(plane.admin()));
    }
    let controllers =
        "persistentvolume-attach-detach-controller,statefulset-controller,persistentvolume-binder-controller";
    let components = [
        plane.kube_controller_manager(controllers, &["--attach-detach-reconcile-sync-period=2s"]).await.unwrap(),
        plane.kube_scheduler(&[]).await.unwrap(),
    ];
    let agents = format!("--fence-agents-path={}", rigs.agents().display());
    let args = [
        "--mode=replace",
        "--controllers=*,volume-guard",
        "--node-monitor-grace-period=5s",
        &agents,
        "--allow-fence-dummy",
    ];
    let args = [&args[..], more].concat();
    let pod_safety = plane.leading_pod_safety(&kubeconfig, args).await.unwrap();
    Fixture { plane, audit, pod_safety, hosts, rigs, _components: components, _running: running }
}

/// A pod that runs on this node and uses the volume `data`.
fn user(name: &str, node: &str) -> Pod {
    let mut pod = pods::pod(NAMESPACE, name).on_node(node).with_phase("Running");
    let claimed = json!({ "name": "data", "persistentVolumeClaim": { "claimName": "data" } });
    pod.spec.as_mut().unwrap().volumes = Some(vec![serde_json::from_value(claimed).unwrap()]);
    pod
}

async fn lease(plane: &ControlPlane, volume: &str) -> Option<Value> {
    plane.find("lease", "pod-safety-volumes", volume).await.unwrap()
}

/// The node that holds it; empty if there is none.
fn holder(lease: &Value) -> String {
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default().split('/').next().unwrap_or_default().to_owned()
}

async fn until_held(plane: &ControlPlane, volume: &str, by: &str, refused: bool) -> Value {
    wait_until(&format!("{volume} is held by {by:?}"), async || {
        let lease = lease(plane, volume).await.ok_or("there is no Lease")?;
        let label = lease["metadata"]["labels"]["pod-safety.dev/held"] == "true";
        if holder(&lease) == by && label == refused { Ok(lease) } else { Err(format!("{lease:#}")) }
    })
    .await
}

async fn until_runs(fixture: &Fixture, node: &str) {
    wait_until(&format!("the database runs on {node}"), async || {
        let pod = observe::find_pod(&fixture.plane.admin(), NAMESPACE, "db-0").await;
        let pod = pod.map_err(|error| format!("{error:?}"))?.ok_or("there is no pod")?;
        let runs = observe::is_running(&pod);
        let at = attachments(&fixture.plane).await;
        check_that(
            runs.as_ref().is_some_and(|(there, _)| there == node),
            format!("{runs:?} {at:?} {:?}", lease(&fixture.plane, "data").await),
        )
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_node_that_is_cut_off_nothing_is_detached_until_it_is_proved_off() {
    let fixture = fixture(&[]).await;
    the_lease_is_acquired_before_the_pod_runs(&fixture).await;
    a_forced_detach_is_denied(&fixture).await;
    let took = with_evidence_the_volume_moves(&fixture).await;
    println!("from the evidence to Running with its volume elsewhere: {took:?}");
    a_graceful_end_releases_the_volume_lease_with_two_writes(&fixture).await;
    a_manually_edited_lease_is_reported_and_a_deleted_one_acquired_again(&fixture).await;
    a_gated_pod_waits_until_its_volume_is_free(&fixture).await;
}

async fn the_lease_is_acquired_before_the_pod_runs(fixture: &Fixture) {
    let plane = &fixture.plane;
    volume(plane, "data").await;
    apply(plane, &database(1)).await;
    until_runs(fixture, "w1").await;
    let lease = until_held(plane, "data", "w1", false).await;
    let identity = lease["spec"]["holderIdentity"].as_str().unwrap();
    assert!(identity.contains(&pods::boot_id("w1", 1)), "{identity}");
    assert_eq!(attachments(plane).await, [("w1".to_owned(), true)]);
}

async fn a_forced_detach_is_denied(fixture: &Fixture) {
    let plane = &fixture.plane;
    fixture.hosts[0].cut_off().await;
    until_held(plane, "data", "w1", true).await;
    // A mistake of an operator.
    let force = ["delete", "pod", "db-0", "-n", NAMESPACE, "--force", "--grace-period=0"];
    plane.kubectl(&force).await.unwrap().text().unwrap();
    let taint = ["taint", "node", "w1", "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"];
    plane.kubectl(&taint).await.unwrap().text().unwrap();
    let until = Instant::now() + NO_TIMEOUT;
    while Instant::now() < until {
        assert_eq!(attachments(plane).await, [("w1".to_owned(), true)], "w1 may still write");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let pod = observe::find_pod(&plane.admin(), NAMESPACE, "db-0").await.unwrap().unwrap();
    assert_eq!(pod.spec.as_ref().unwrap().node_name.as_deref(), Some("w2"), "its name was given away");
    assert_ne!(pod.status.unwrap().phase.as_deref(), Some("Running"), "but not its volume");
    let elsewhere = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": { "name": "by-hand" },
        "spec": { "attacher": DRIVER, "nodeName": "w2", "source": { "persistentVolumeName": "data" } } });
    let refused = plane
        .kubectl_with(
            &["create", "-f", "-", "--as", ATTACH_DETACH, "--as-group=system:masters"],
            &elsewhere.to_string(),
        )
        .await
        .unwrap();
    assert!(!refused.status.success(), "{refused:?}");
    for words in [
        "data is not attached to w2: volume data was taken by node w1, which is not Ready",
        "pod-safety confirm-down w1",
    ] {
        assert!(refused.stderr.contains(words), "{words}: {}", refused.stderr);
    }
    let message = observe::event(&plane.admin(), "default", "data", "VolumeHeld").await.unwrap();
    assert!(message.contains("There is no evidence that it no longer writes"), "{message}");
    let waits = observe::event(&plane.admin(), NAMESPACE, "db-0", "WaitsForVolume").await.unwrap();
    assert!(waits.starts_with("The pod waits for volume data: node w1 took it"), "{waits}");
    plane.kubectl(&["taint", "node", "w1", "node.kubernetes.io/out-of-service-"]).await.unwrap().text().unwrap();
}

/// w1 is fenced by one level with one device, and no gate holds.
fn policy(level: &str, device: &str) -> Value {
    json!({
        "apiVersion": "pod-safety.dev/v1alpha1", "kind": "FencePolicy", "metadata": { "name": "w1" },
        "spec": { "nodeSelector": { "matchLabels": { "kubernetes.io/hostname": "w1" } }, "unhealthy": { "silentSeconds": 10 },
            "when": "Always", "rounds": 1, "recovery": "Hold",
            "brakes": { "cooldownSeconds": 0, "maxConcurrent": 4, "maxUnhealthyPercent": 60, "maxUnhealthyZonePercent": 100 },
            "levels": [{ "name": level, "devices": [{ "namespace": "pod-safety", "name": device }], "attempts": 1 }] },
    })
}

async fn with_evidence_the_volume_moves(fixture: &Fixture) -> Duration {
    let plane = &fixture.plane;
    let power = fixture.rigs.file("w1.power");
    let switch = json!({ "w1": { "status_file": power } });
    let spec = json!({ "driver": "Agent", "agent": "fence_dummy", "nodeParameters": switch });
    apply(plane, &device_of("w1", "w1", spec)).await;
    apply(plane, &policy("power", "w1")).await;
    wait_until("there is evidence", async || {
        let (proofs, fences) = (plane.list("fenceevidences").await.unwrap(), plane.list("nodefences").await.unwrap());
        check_that(!proofs.is_empty(), format!("{fences:#?}"))
    })
    .await;
    let proved = Instant::now();
    assert_eq!(std::fs::read_to_string(&power).unwrap().trim(), "off");
    until_runs(fixture, "w2").await;
    let broken =
        |entry: &AuditEntry| entry.namespace == "pod-safety-volumes" && entry.matches("patch", "leases", "data");
    fixture.audit.was_soon_after_evidence("w1", broken).unwrap();
    let took = proved.elapsed();
    let lease = until_held(plane, "data", "w2", false).await;
    assert_eq!(lease["spec"]["leaseTransitions"], 1, "it was broken once: {lease:#}");
    let broken = observe::event(&plane.admin(), "default", "data", "VolumeLeaseRevoked").await.unwrap();
    assert!(broken.contains("node w1 was switched off: FenceEvidence"), "{broken}");
    took
}

async fn a_graceful_end_releases_the_volume_lease_with_two_writes(fixture: &Fixture) {
    let plane = &fixture.plane;
    apply(plane, &database(0)).await;
    until_held(plane, "data", "", false).await;
    let writes = || {
        let entries = fixture.audit.entries().unwrap().into_iter();
        let own_entries = entries.filter(|entry| entry.namespace == "pod-safety-volumes" && entry.name == "data");
        own_entries.filter(|entry| !["get", "list", "watch"].contains(&&*entry.verb) && entry.code < 400).count()
    };
    let before = writes();
    apply(plane, &database(1)).await;
    until_runs(fixture, "w2").await;
    apply(plane, &database(0)).await;
    until_held(plane, "data", "", false).await;
    assert_eq!(writes() - before, 2, "taken, and given back");
    wait_until("it is detached", async || {
        let at = attachments(plane).await;
        check_that(at.is_empty(), format!("{at:?}"))
    })
    .await;
}

async fn a_manually_edited_lease_is_reported_and_a_deleted_one_acquired_again(fixture: &Fixture) {
    let plane = &fixture.plane;
    let edit = [
        "patch",
        "lease",
        "-n",
        "pod-safety-volumes",
        "data",
        "--type=merge",
        "-p",
        r#"{"spec":{"holderIdentity":"somebody"}}"#,
    ];
    plane.kubectl(&edit).await.unwrap().text().unwrap();
    wait_until("it is said", async || {
        let holds = fixture.pod_safety.debug("/debug/decisions").await.map_err(|error| format!("{error:?}"))?["holds"]
            .to_string();
        check_that(holds.contains("VolumeLeaseUnreadable"), holds)
    })
    .await;
    plane.kubectl(&["delete", "lease", "-n", "pod-safety-volumes", "data"]).await.unwrap().text().unwrap();
    apply(plane, &database(1)).await;
    until_runs(fixture, "w2").await;
    until_held(plane, "data", "w2", false).await;
}

/// Without an attach/detach controller only this gate separates two nodes and one disk.
async fn a_gated_pod_waits_until_its_volume_is_free(fixture: &Fixture) {
    let plane = &fixture.plane;
    plane.kubectl(&["label", "namespace", NAMESPACE, "gated=yes"]).await.unwrap().text().unwrap();
    let second = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "namespace": NAMESPACE, "name": "second" },
        "spec": { "containers": [{ "name": "main", "image": "registry.example/main:1" }],
            "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }] } });
    fixture.hosts[1].cut_off().await;
    until_held(plane, "data", "w2", true).await;
    wait_until("the gate is there", async || {
        plane.kubectl_with(&["apply", "-f", "-"], &second.to_string()).await.unwrap().text().unwrap();
        let pod = plane.find("pod", NAMESPACE, "second").await.unwrap().ok_or("no pod")?;
        if pod["spec"]["schedulingGates"][0]["name"] == "pod-safety.dev/volume-guard" {
            return Ok(());
        }
        // The policy was not enforced yet.
        plane
            .kubectl(&["delete", "pod", "-n", NAMESPACE, "second", "--force", "--grace-period=0"])
            .await
            .unwrap()
            .text()
            .unwrap();
        Err(format!("{:#}", pod["spec"]))
    })
    .await;
    let waits = observe::event(&plane.admin(), NAMESPACE, "second", "WaitsForVolume").await.unwrap();
    assert!(waits.contains("node w2 took it"), "{waits}");
    fixture.hosts[1].connect();
    wait_until("it is sent to the node that has the volume", async || {
        let pod = plane.find("pod", NAMESPACE, "second").await.unwrap().ok_or("no pod")?;
        check_that(
            pod["spec"]["nodeName"] == "w2" && pod["spec"]["nodeSelector"]["kubernetes.io/hostname"] == "w2",
            format!("{:#}", pod["spec"]),
        )
    })
    .await;
}
