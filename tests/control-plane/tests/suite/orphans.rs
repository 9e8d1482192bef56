//! Pods of nodes that do not exist any more.
#![expect(clippy::disallowed_methods, reason = "tests drive a real cluster in real time")]

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::Client;
use kube::api::{Patch, PatchParams};
use pod_safety_control_plane::objects::{self, PodExt as _};
use pod_safety_control_plane::{ControlPlane, PodSafety, check_that, observe, scenarios, wait_until};

use serde_json::{Value, json};

use crate::versions;

/// Long enough for a busy machine to complete an action within half of it.
const QUARANTINE: Duration = Duration::from_secs(6);
#[tokio::test]
async fn pods_of_vanished_nodes() {
    let (plane, kubeconfig) = ControlPlane::with_pod_safety().await.unwrap();
    let mut pod_safety = plane.pod_safety("pod-safety", &kubeconfig, ["--pod-gc-quarantine=6s"]).await.unwrap();
    pod_safety.ready().await.unwrap();
    pod_safety.is_leader().await.unwrap();
    let (api, pod_safety) = (&plane.admin(), &pod_safety);
    plane.namespace("shop").await.unwrap();
    scenarios![
        each_kind_of_pod_is_removed_after_the_quarantine_and_not_before(api, pod_safety),
        a_pod_kept_by_a_finalizer_has_the_condition_of_kcm_and_gets_no_more_writes(api, pod_safety),
        removals_are_recorded_with_evidence(api, pod_safety),
        a_node_registered_again_within_the_quarantine_keeps_its_pods(api, pod_safety),
        bug_a_kubelet_that_had_just_registered_lost_its_pods(api, pod_safety),
        a_kubelet_that_renews_its_lease_keeps_its_pods_until_it_stops(api, pod_safety),
        a_pod_of_a_reporting_kubelet_is_left_to_its_kubelet(api, pod_safety),
        bug_a_kubelet_that_starts_a_container_lost_its_pod(api, pod_safety),
        pods_bound_to_a_node_that_never_existed_are_removed(api),
    ];
    // Force deletes are counted like in kube-controller-manager.
    let all = pod_safety.metric("pod_gc_collector_force_delete_pods_total", &[("reason", "orphaned")]).await.unwrap();
    let proved = pod_safety.metric("pod_safety_force_deletes_total", &[("evidence", "NodeGone")]).await.unwrap();
    assert!(all >= 9.0 && all == proved, "{all} {proved}");
    let errors = pod_safety.metric("pod_gc_collector_force_delete_pod_errors_total", &[]).await.unwrap();
    assert_eq!(errors, 0.0);
}

fn running(name: &str, node: &str) -> Pod {
    objects::pod("shop", name).on_node(node).with_phase("Running")
}

async fn node_with(api: &Client, node: &str, pods: &[Pod]) {
    objects::create_node(api, &objects::node(node)).await.unwrap();
    objects::renew_lease(api, node).await.unwrap();
    for pod in pods {
        objects::create_pod(api, pod).await.unwrap();
    }
}

async fn pod_exists(api: &Client, name: &str) -> bool {
    observe::find_pod(api, "shop", name).await.unwrap().is_some()
}

async fn until_gone(api: &Client, names: &[&str]) {
    for name in names {
        let gone = async || check_that(!pod_exists(api, name).await, "it is still there");
        wait_until(&format!("pod {name} is gone"), gone).await;
    }
}

async fn each_kind_of_pod_is_removed_after_the_quarantine_and_not_before(api: &Client, pod_safety: &PodSafety) {
    let node = "node-kinds";
    let pods = [
        running("kinds-running", node),
        objects::pod("shop", "kinds-pending").on_node(node),
        objects::pod("shop", "kinds-done").on_node(node).with_phase("Succeeded"),
        running("kinds-mirror", node).mirror(),
        running("db-0", node).owned_by_stateful_set("db", "5b0a4f0e-0000-4000-8000-000000000001"),
        running("kinds-ending", node),
    ];
    node_with(api, node, &pods).await;
    observe::delete_pod(api, "shop", "kinds-ending", false).await.unwrap();
    let names: Vec<String> = pods.iter().filter_map(|pod| pod.metadata.name.clone()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();

    let began = Instant::now();
    observe::delete_node(api, node).await.unwrap();
    let mut looked = began.elapsed();
    while looked < QUARANTINE {
        for name in &names {
            let there = pod_exists(api, name).await;
            // The time of the request counts, not that of the answer.
            assert!(there || began.elapsed() >= QUARANTINE, "{name} went {looked:?} after its node");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        looked = began.elapsed();
    }
    until_gone(api, &names).await;
    assert_eq!(pod_safety.metric("pod_safety_authority_queued_intents", &[]).await.unwrap(), 0.0);
}

async fn a_pod_kept_by_a_finalizer_has_the_condition_of_kcm_and_gets_no_more_writes(
    api: &Client,
    pod_safety: &PodSafety,
) {
    let (node, finalizer) = ("node-finalizer", "example.com/hold");
    let done = objects::pod("shop", "kept-done").on_node(node).with_phase("Succeeded").with_finalizer(finalizer);
    node_with(api, node, &[running("kept", node).with_finalizer(finalizer), done]).await;
    observe::delete_node(api, node).await.unwrap();
    let message = pod_safety.until_held("kept", "Finalizers").await.unwrap();
    assert!(message.contains(finalizer), "{message}");
    pod_safety.until_held("kept-done", "Finalizers").await.unwrap();

    let kept = observe::find_pod(api, "shop", "kept").await.unwrap().unwrap();
    let version = kept.metadata.resource_version.clone();
    let (meta, status) = (kept.metadata, kept.status.unwrap());
    assert_eq!(meta.deletion_grace_period_seconds, Some(0));
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    // The graceful deletion increases the generation; the force delete after it does not.
    let written_at = meta.generation.filter(|_| versions::generations_are_reported());
    assert_eq!(status.observed_generation, written_at);
    let conditions = status.conditions.unwrap();
    let target = conditions.iter().find(|condition| condition.type_ == "DisruptionTarget").unwrap();
    assert_eq!(target.status, "True");
    assert_eq!(target.reason.as_deref(), Some("DeletionByPodGC"));
    assert_eq!(target.message.as_deref(), Some("PodGC: node no longer exists"));
    assert_eq!(target.observed_generation, written_at);
    assert!(target.last_transition_time.is_some());

    let done = observe::find_pod(api, "shop", "kept-done").await.unwrap().unwrap().status.unwrap();
    assert_eq!(done.phase.as_deref(), Some("Succeeded"), "a pod that ended well stays so");

    tokio::time::sleep(Duration::from_secs(2)).await;
    let kept = observe::find_pod(api, "shop", "kept").await.unwrap().unwrap();
    assert_eq!(kept.metadata.resource_version, version, "it was written again");
    let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    let pods = kube::Api::<Pod>::namespaced(api.clone(), "shop");
    pods.patch("kept", &PatchParams::default(), &patch).await.unwrap();
    until_gone(api, &["kept"]).await;
}

async fn removals_are_recorded_with_evidence(api: &Client, pod_safety: &PodSafety) {
    node_with(api, "node-told", &[running("told", "node-told")]).await;
    observe::delete_node(api, "node-told").await.unwrap();
    until_gone(api, &["told"]).await;
    let evidence = &*observe::event(api, "shop", "told", "ForceDeleted").await.unwrap();
    let rest = evidence.strip_prefix("Node node-told does not exist: two quorum reads ").unwrap_or_default();
    let (apart, rest) = rest.split_once("s apart").unwrap_or_default();
    assert_eq!(rest, " did not find it, and its Lease was not renewed since", "{evidence}");
    assert!(apart.parse::<f64>().is_ok_and(|apart| apart >= QUARANTINE.as_secs_f64()), "{evidence}");
    let record = wait_until("a record", async || {
        let records = pod_safety.records("told").await.map_err(|error| format!("{error:?}"))?;
        records.into_iter().find(|record| record["action"] == "ForceDeleted").ok_or("none".to_owned())
    })
    .await;
    assert_eq!(record["reason"], "NodeGone");
    assert_eq!(record["node"], "node-told");
    // The Event starts a new sentence.
    let message = evidence.replacen("Node", "node", 1);
    assert_eq!(record["message"], *message);
    assert_eq!(record["controller"], "pod-gc");
    let line = pod_safety
        .log_text()
        .lines()
        .find(|line| line.contains("ForceDeleted") && line.contains("/told"))
        .map(str::to_owned);
    assert!(line.as_ref().is_some_and(|line| line.contains(&message)), "{line:?}");
}

async fn a_node_registered_again_within_the_quarantine_keeps_its_pods(api: &Client, pod_safety: &PodSafety) {
    node_with(api, "node-anew", &[running("anew", "node-anew")]).await;
    observe::delete_node(api, "node-anew").await.unwrap();
    tokio::time::sleep(QUARANTINE / 2).await;
    objects::create_node(api, &objects::node("node-anew").clone()).await.unwrap();
    tokio::time::sleep(QUARANTINE * 2).await;
    assert!(pod_exists(api, "anew").await);
    let missing = pod_safety.debug("/debug/cache").await.unwrap()["missingNodes"].to_string();
    assert!(!missing.contains("node-anew"), "{missing}");
}

/// A kubelet that registers its Node again watches no pods before it has found that Node: it receives no deletion.
async fn bug_a_kubelet_that_had_just_registered_lost_its_pods(api: &Client, pod_safety: &PodSafety) {
    node_with(api, "node-flaps", &[running("flaps", "node-flaps")]).await;
    observe::delete_node(api, "node-flaps").await.unwrap();
    tokio::time::sleep(QUARANTINE / 2).await;
    objects::create_node(api, &objects::node("node-flaps")).await.unwrap();
    observe::delete_node(api, "node-flaps").await.unwrap();
    let message = pod_safety.until_held("flaps", "KubeletMayNotReport").await.unwrap();
    assert!(message.contains("It may have started just before"), "{message}");
    tokio::time::sleep(QUARANTINE * 2).await;
    let pod = observe::find_pod(api, "shop", "flaps").await.unwrap().unwrap();
    let answered = Instant::now();
    let answer = PodStatus { observed_generation: pod.metadata.generation, ..PodStatus::default() };
    objects::set_pod_status(api, "shop", "flaps", &answer).await.unwrap();
    if versions::generations_are_reported() {
        until_gone(api, &["flaps"]).await;
        assert!(answered.elapsed() >= QUARANTINE, "it went {:?} after its kubelet's report", answered.elapsed());
    } else {
        observe::delete_pod(api, "shop", "flaps", true).await.unwrap();
    }
}

async fn a_kubelet_that_renews_its_lease_keeps_its_pods_until_it_stops(api: &Client, pod_safety: &PodSafety) {
    let node = "node-alive";
    node_with(api, node, &[running("alive", node)]).await;
    observe::delete_node(api, node).await.unwrap();
    let kubelet = async {
        for _ in 0..24 {
            objects::renew_lease(api, node).await.unwrap();
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        Instant::now()
    };
    let check = async {
        let message = pod_safety.until_held("alive", "KubeletAlive").await.unwrap();
        let expected = "node node-alive does not exist, but its kubelet still runs: its Lease was renewed";
        assert!(message.starts_with(expected), "{message}");
        let event = observe::event(api, "shop", "alive", "ForceDeleteHeld").await.unwrap();
        assert!(event.contains("KubeletAlive") && event.contains(expected), "{event}");
        let held = pod_safety.metric("pod_safety_holds", &[("reason", "KubeletAlive")]).await.unwrap();
        assert!(held >= 1.0, "{held}");
    };
    let (stopped, ()) = futures::join!(kubelet, check);
    assert!(pod_exists(api, "alive").await);
    until_gone(api, &["alive"]).await;
    assert!(stopped.elapsed() >= QUARANTINE - Duration::from_millis(500), "{:?}", stopped.elapsed());
    assert!(pod_safety.holds("alive").await.unwrap().is_empty());
}

/// The Node was deleted while its kubelet was connected: the pod is deleted gracefully with its grace period, and no second copy runs meanwhile.
async fn a_pod_of_a_reporting_kubelet_is_left_to_its_kubelet(api: &Client, pod_safety: &PodSafety) {
    let node = "node-connected";
    node_with(api, node, &[running("connected", node).with_grace(60)]).await;
    observe::delete_node(api, node).await.unwrap();
    let deletion = async || {
        let pod = observe::find_pod(api, "shop", "connected").await.map_err(|error| error.to_string())?;
        let pod = pod.ok_or("it is gone")?;
        check_that(pod.metadata.deletion_timestamp.is_some(), "it is not deleted".to_owned()).map(|()| pod)
    };
    let pod = wait_until("the pod is deleted gracefully", deletion).await;
    assert_eq!(pod.metadata.deletion_grace_period_seconds, Some(60), "its own grace");
    let conditions = pod.status.unwrap().conditions.unwrap();
    let target = conditions.iter().find(|condition| condition.type_ == "DisruptionTarget").unwrap();
    assert_eq!(target.reason.as_deref(), Some("DeletionByPodGC"));
    let event = observe::event(api, "shop", "connected", "NodeGone").await.unwrap();
    assert!(event.contains("the pod is deleted gracefully"), "{event}");
    let answer = PodStatus { observed_generation: pod.metadata.generation, ..PodStatus::default() };
    objects::set_pod_status(api, "shop", "connected", &answer).await.unwrap();
    if versions::generations_are_reported() {
        let message = pod_safety.until_held("connected", "KubeletAlive").await.unwrap();
        assert!(message.contains("it reported on a pod"), "{message}");
    }
    // The kubelet does not report for two quarantines, and need not: the pod has its grace period.
    pod_safety.until_held("connected", "AwaitsKubelet").await.unwrap();
    tokio::time::sleep(QUARANTINE).await;
    assert!(pod_exists(api, "connected").await);
    observe::delete_pod(api, "shop", "connected", true).await.unwrap();
    until_gone(api, &["connected"]).await;
}

/// Its worker pulls the image of a second container, and reports nothing about the pod until the pull has ended.
async fn bug_a_kubelet_that_starts_a_container_lost_its_pod(api: &Client, pod_safety: &PodSafety) {
    let node = "node-busy";
    node_with(api, node, &[running("busy", node)]).await;
    let report = |name: &str, state: Value| json!({ "name": name, "ready": false, "restartCount": 0, "image": "i", "imageID": "", "state": state });
    let reports = json!([report("main", json!({ "running": {} })), report("pulled", json!({ "waiting": {} }))]);
    let container_statuses = serde_json::from_value(reports).unwrap();
    let status = PodStatus { container_statuses, ..PodStatus::default() };
    objects::set_pod_status(api, "shop", "busy", &status).await.unwrap();
    observe::delete_node(api, node).await.unwrap();
    let message = pod_safety.until_held("busy", "KubeletMayNotReport").await.unwrap();
    assert!(message.contains("Restart that kubelet"), "{message}");
    let event = observe::event(api, "shop", "busy", "ForceDeleteHeld").await.unwrap();
    assert!(event.contains("may be starting or changing a container"), "{event}");
    tokio::time::sleep(3 * QUARANTINE).await;
    let pod = observe::find_pod(api, "shop", "busy").await.unwrap().unwrap();
    assert!(pod.metadata.deletion_timestamp.is_some(), "it is deleted gracefully");
    // The pull has ended: the kubelet registers its Node again, and terminates the pod.
    objects::create_node(api, &objects::node(node)).await.unwrap();
    observe::delete_pod(api, "shop", "busy", true).await.unwrap();
    until_gone(api, &["busy"]).await;
}

async fn pods_bound_to_a_node_that_never_existed_are_removed(api: &Client) {
    let began = Instant::now();
    objects::create_pod(api, &running("lost", "node-never")).await.unwrap();
    until_gone(api, &["lost"]).await;
    assert!(began.elapsed() >= QUARANTINE);
}
