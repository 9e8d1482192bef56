//! Terminating pods without a node, and those of nodes with the out-of-service taint.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use kube::Client;
use pod_safety_control_plane::objects::{self, NodeExt as _, PodExt as _};
use pod_safety_control_plane::{ControlPlane, PodSafety, check_that, observe, scenarios, wait_until};

/// A time in which nothing should happen.
const A_WHILE: Duration = Duration::from_secs(3);
const FINALIZER: &str = "example.com/hold";

fn out_of_service(name: &str, ready: &str, effect: &str) -> Node {
    let mut node = objects::node(name).with_ready(ready);
    let taint = Taint {
        key: "node.kubernetes.io/out-of-service".to_owned(),
        value: Some("nodeshutdown".to_owned()),
        effect: effect.to_owned(),
        ..Taint::default()
    };
    node.spec.get_or_insert_default().taints = Some(vec![taint]);
    node
}

/// Running pods; those with a matching name are being deleted, and no kubelet removes them.
async fn pods_on(api: &Client, node: &str, names: &[&str]) {
    for name in names {
        let mut pod = objects::pod("default", name).on_node(node).with_phase("Running");
        if name.ends_with("-kept") {
            pod = pod.with_finalizer(FINALIZER);
        }
        objects::create_pod(api, &pod).await.unwrap();
        if !name.ends_with("-stays") {
            observe::delete_pod(api, "default", name, false).await.unwrap();
        }
    }
}

async fn pod(api: &Client, name: &str) -> Option<Pod> {
    observe::find_pod(api, "default", name).await.unwrap()
}

async fn until_gone(api: &Client, name: &str) {
    let gone = async || check_that(pod(api, name).await.is_none(), "it is still there");
    wait_until(&format!("pod {name} is gone"), gone).await;
}

/// Marked Failed and deleted, by a rule without a condition.
async fn assert_released_but_kept(api: &Client, pod_safety: &PodSafety, name: &str, reason: &str) {
    pod_safety.until_held(name, "Finalizers").await.unwrap();
    let kept = pod(api, name).await.unwrap();
    assert_eq!(kept.metadata.deletion_grace_period_seconds, Some(0));
    let status = kept.status.unwrap();
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    let conditions = status.conditions.unwrap_or_default();
    assert!(!conditions.iter().any(|condition| condition.type_ == "DisruptionTarget"), "{conditions:?}");
    let counted = pod_safety.metric("pod_gc_collector_force_delete_pods_total", &[("reason", reason)]).await.unwrap();
    assert!(counted >= 1.0, "{reason}: {counted}");
}

#[tokio::test]
async fn with_and_without_trusted_taint() {
    let (plane, kubeconfig) = ControlPlane::with_pod_safety().await.unwrap();
    let api = &plane.admin();
    objects::create_node(api, &out_of_service("off", "Unknown", "NoExecute")).await.unwrap();
    objects::create_node(api, &out_of_service("blank", "False", "PreferNoSchedule")).await.unwrap();
    objects::create_node(api, &out_of_service("ready", "True", "NoExecute")).await.unwrap();
    objects::create_node(api, &objects::node("well").with_ready("Unknown")).await.unwrap();
    pods_on(api, "off", &["off-ends", "off-kept", "off-stays"]).await;
    pods_on(api, "blank", &["blank-ends"]).await;
    pods_on(api, "ready", &["ready-ends"]).await;
    pods_on(api, "well", &["well-ends"]).await;

    let mut pod_safety = plane.leading_pod_safety(&kubeconfig, [] as [&str; 0]).await.unwrap();
    scenarios![
        an_unscheduled_pod_is_released(api, &pod_safety),
        a_taint_alone_is_no_evidence(api, &pod_safety),
        the_taint_on_a_ready_node_is_ignored(&pod_safety),
    ];
    pod_safety.terminate().await.unwrap();

    let trust = ["--trust-out-of-service-taint"];
    let pod_safety = plane.leading_pod_safety(&kubeconfig, trust).await.unwrap();
    scenarios![
        a_trusted_taint_on_a_not_ready_node_releases_terminating_pods(api, &pod_safety),
        the_taint_on_a_ready_node_is_ignored(&pod_safety),
    ];
    tokio::time::sleep(A_WHILE).await;
    for name in ["off-stays", "ready-ends", "well-ends"] {
        let status = pod(api, name).await.unwrap().status.unwrap();
        assert_eq!(status.phase.as_deref(), Some("Running"), "{name}");
    }
}

async fn an_unscheduled_pod_is_released(api: &Client, pod_safety: &PodSafety) {
    let waits = objects::pod("default", "untaken").with_finalizer(FINALIZER);
    objects::create_pod(api, &waits).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(pod_safety.records("untaken").await.unwrap().is_empty());
    observe::delete_pod(api, "default", "untaken", false).await.unwrap();
    assert_released_but_kept(api, pod_safety, "untaken", "unscheduled").await;
    let message = observe::event(api, "default", "untaken", "ForceDeleted").await.unwrap();
    assert_eq!(message, "No node ever took the pod");
}

async fn a_taint_alone_is_no_evidence(api: &Client, pod_safety: &PodSafety) {
    for name in ["off-ends", "blank-ends"] {
        let message = pod_safety.until_held(name, "OutOfServiceWithoutEvidence").await.unwrap();
        assert!(message.contains("--trust-out-of-service-taint"), "{message}");
    }
    let event = observe::event(api, "default", "off-ends", "ForceDeleteHeld").await.unwrap();
    assert!(event.starts_with("OutOfServiceWithoutEvidence: node off has the taint"), "{event}");
    tokio::time::sleep(A_WHILE).await;
    for name in ["off-ends", "off-kept", "blank-ends"] {
        let status = pod(api, name).await.unwrap().status.unwrap();
        assert_eq!(status.phase.as_deref(), Some("Running"), "{name}");
    }
}

async fn the_taint_on_a_ready_node_is_ignored(pod_safety: &PodSafety) {
    let message = pod_safety.until_held("ready-ends", "OutOfServiceButReady").await.unwrap();
    assert!(message.contains("is Ready: it is in service"), "{message}");
}

async fn a_trusted_taint_on_a_not_ready_node_releases_terminating_pods(api: &Client, pod_safety: &PodSafety) {
    for name in ["off-ends", "blank-ends"] {
        until_gone(api, name).await;
    }
    assert_released_but_kept(api, pod_safety, "off-kept", "out-of-service").await;
    let message = observe::event(api, "default", "off-ends", "ForceDeleted").await.unwrap();
    assert!(message.contains("--trust-out-of-service-taint accepts as proof"), "{message}");
    let proved = pod_safety.metric("pod_safety_force_deletes_total", &[("evidence", "Asserted")]).await.unwrap();
    assert_eq!(proved, 3.0);
}
