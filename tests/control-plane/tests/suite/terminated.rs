//! Terminated pods above the threshold: kube-controller-manager's order and count, except for running pods.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerState, ContainerStateRunning, ContainerStatus, Pod};
use kube::{Client, ResourceExt as _};
use pod_safety_control_plane::objects::{self, PodExt as _};
use pod_safety_control_plane::{ControlPlane, Options, observe, wait_until};

/// `creationTimestamp` counts whole seconds.
const NEXT_SECOND: Duration = Duration::from_millis(1100);

fn terminated(namespace: &str, name: &str, phase: &str) -> Pod {
    // Some were never bound: only the phase counts.
    let pod = objects::pod(namespace, name).with_phase(phase);
    if name.starts_with('b') { pod } else { pod.on_node("worker") }
}

fn evicted(namespace: &str, name: &str) -> Pod {
    let mut pod = terminated(namespace, name, "Failed");
    pod.status.get_or_insert_default().reason = Some("Evicted".to_owned());
    pod
}

/// As reported by its kubelet, whatever phase another client wrote.
fn with_running_container(mut pod: Pod) -> Pod {
    let state = ContainerState { running: Some(ContainerStateRunning::default()), ..ContainerState::default() };
    let report = ContainerStatus {
        name: "main".to_owned(),
        image: "registry.example/main:1".to_owned(),
        image_id: "sha256:1".to_owned(),
        ready: true,
        state: Some(state),
        ..ContainerStatus::default()
    };
    pod.status.get_or_insert_default().container_statuses = Some(vec![report]);
    pod
}

/// A second may end between two of them, and on a busy machine often does.
async fn created_in_one_second(api: &Client, batch: &[Pod]) -> bool {
    let mut seconds = BTreeSet::new();
    for pod in batch {
        seconds.insert(objects::create_pod(api, pod).await.unwrap().metadata.creation_timestamp);
    }
    seconds.len() == 1
}

/// Six terminated pods; three were created in each of two seconds. Two were evicted, one of them is the youngest.
async fn six_terminated(api: &Client, namespace: &str) {
    let old = [
        terminated(namespace, "c-old", "Succeeded"),
        terminated(namespace, "b-old", "Failed"),
        evicted(namespace, "y-evicted"),
    ];
    let new = [
        terminated(namespace, "a-new", "Failed"),
        terminated(namespace, "b-new", "Succeeded"),
        evicted(namespace, "z-evicted"),
    ];
    for batch in [old, new] {
        while !created_in_one_second(api, &batch).await {
            for pod in &batch {
                observe::delete_pod(api, namespace, &pod.name_any(), true).await.unwrap();
            }
        }
        tokio::time::sleep(NEXT_SECOND).await;
    }
    objects::create_pod(api, &objects::pod(namespace, "runs").on_node("worker").with_phase("Running")).await.unwrap();
}

/// The order of their removal; pods of the same second are removed by name.
const REMAINING: [(usize, &[&str]); 4] = [
    (5, &["a-new", "b-new", "b-old", "c-old", "runs", "z-evicted"]),
    (4, &["a-new", "b-new", "b-old", "c-old", "runs"]),
    (3, &["a-new", "b-new", "c-old", "runs"]),
    (1, &["b-new", "runs"]),
];

#[tokio::test]
async fn kcm_collects_them_in_that_order_live() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let api = &plane.admin();
    plane.namespace("kcm").await.unwrap();
    objects::create_node(api, &objects::node("worker")).await.unwrap();
    six_terminated(api, "kcm").await;
    for (threshold, remaining) in REMAINING {
        let flag = format!("--terminated-pod-gc-threshold={threshold}");
        let _kcm = plane.kube_controller_manager("pod-garbage-collector-controller", &[&*flag]).await.unwrap();
        observe::remaining_pod(api, "kcm", remaining).await.unwrap();
    }
}

#[tokio::test]
async fn collects_the_same_pods_as_kcm() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let api = &plane.admin();
    plane.namespace("ours").await.unwrap();
    objects::create_node(api, &objects::node("worker")).await.unwrap();
    let kubeconfig = plane.install_pod_safety().await.unwrap();
    six_terminated(api, "ours").await;
    for (threshold, remaining) in REMAINING {
        let flag = format!("--terminated-pod-gc-threshold={threshold}");
        let mut pod_safety = plane.pod_safety("pod-safety", &kubeconfig, [flag]).await.unwrap();
        observe::remaining_pod(api, "ours", remaining).await.unwrap();
        let counted = pod_safety.metric("pod_gc_collector_force_delete_pods_total", &[("reason", "terminated")]);
        assert!(counted.await.unwrap() >= 1.0);
        pod_safety.terminate().await.unwrap();
    }
    for name in observe::pod_names(api, "ours").await.unwrap() {
        observe::delete_pod(api, "ours", &name, true).await.unwrap();
    }
    a_pod_that_others_marked_failed_stays_while_it_runs(&plane, api, &kubeconfig).await;
}

async fn a_pod_that_others_marked_failed_stays_while_it_runs(plane: &ControlPlane, api: &Client, kubeconfig: &Path) {
    plane.namespace("lies").await.unwrap();
    let lie = with_running_container(terminated("lies", "a-lie", "Failed"));
    objects::create_pod(api, &lie).await.unwrap();
    tokio::time::sleep(NEXT_SECOND).await;
    objects::create_pod(api, &terminated("lies", "b-truth", "Failed")).await.unwrap();
    let pod_safety = plane.pod_safety("pod-safety", kubeconfig, ["--terminated-pod-gc-threshold=1"]).await.unwrap();
    // The younger one is removed instead.
    observe::remaining_pod(api, "lies", &["a-lie"]).await.unwrap();
    objects::create_pod(api, &terminated("lies", "c-truth", "Failed")).await.unwrap();
    observe::remaining_pod(api, "lies", &["a-lie"]).await.unwrap();
    let message = wait_until("the hold is shown", async || {
        let holds = pod_safety.records("a-lie").await.map_err(|error| format!("{error:?}"))?;
        let hold = holds.iter().find(|hold| hold["reason"] == "TerminalButRunning");
        hold.map(|hold| hold["message"].to_string()).ok_or_else(|| format!("{holds:?}"))
    })
    .await;
    assert!(message.contains("its last report shows a running container"), "{message}");
    let event = observe::event(api, "lies", "a-lie", "ForceDeleteHeld").await.unwrap();
    assert!(event.starts_with("TerminalButRunning: "), "{event}");
}
