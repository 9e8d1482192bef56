//! Evictions that are requested for pods of lost nodes: the turn of the responder `pod-safety.dev/lost-node`, and who follows it.

use crate::eviction_requests::{entry, gates};
use pod_safety_control_plane::until;

use super::*;

const EVICTIONS: &str = "evictions.lifecycle.k8s.io";
const LOST_NODE: &str = "pod-safety.dev/lost-node";
const APP: &str = "example.com/move-data";
/// Longer than it takes to request an eviction when the node is lost.
const TOLERATED: u64 = 20;

/// A pod of a StatefulSet that runs on this node, with both responders. Gives back its UID.
async fn pod(plane: &ControlPlane, set: &str, node: &str) -> String {
    let api = plane.admin();
    let owner = workloads::put(&api, STATEFUL_SET, NAMESPACE, set, 1, None).await.unwrap();
    let toleration =
        |key: &str| json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATED });
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": NAMESPACE, "name": format!("{set}-0"), "ownerReferences": [owner] },
        "spec": {
            "nodeName": node, "terminationGracePeriodSeconds": 5,
            "tolerations": [toleration("node.kubernetes.io/unreachable"), toleration("node.kubernetes.io/not-ready")],
            "evictionResponders": [{ "name": LOST_NODE, "priority": 20_000 }, { "name": APP, "priority": 10_000 }],
            "containers": [{ "name": "main", "image": "registry.example/main:1" }],
        },
    });
    apply(plane, &object).await;
    until("the pod runs", async || {
        let found = observe::find_pod(&api, NAMESPACE, &format!("{set}-0")).await;
        let found = found.map_err(|error| error.to_string())?.ok_or("there is none")?;
        let phase = found.status.and_then(|status| status.phase);
        check_that(phase.as_deref() == Some("Running"), format!("{phase:?}"))?;
        found.metadata.uid.ok_or("no UID".to_owned())
    })
    .await
    .unwrap()
}

/// Requests the eviction of this pod.
async fn request(plane: &ControlPlane, set: &str, uid: &str) {
    let spec = json!({
        "requester": "example.com/rebalance", "intent": "Eviction",
        "target": { "pod": { "name": format!("{set}-0"), "uid": uid } },
    });
    let metadata = json!({ "namespace": NAMESPACE, "name": set });
    let object = json!({ "apiVersion": "lifecycle.k8s.io/v1alpha1", "kind": "EvictionRequest", "metadata": metadata, "spec": spec });
    apply(plane, &object).await;
}

/// Waits until this responder has this state and a message with these words.
async fn until_responder(plane: &ControlPlane, set: &str, responder: &str, state: &str, words: &str) -> Value {
    until(&format!("{responder} of {set} is {state} with {words:?}"), async || {
        let name = format!("pod-1-{set}-0");
        let eviction = plane.find(EVICTIONS, NAMESPACE, &name).await.map_err(|error| error.to_string())?;
        let eviction = eviction.ok_or("there is no Eviction")?;
        let report = entry(&eviction, "responders", responder);
        let has_words = report["message"].as_str().unwrap_or_default().contains(words);
        let is_so = entry(&eviction, "targetResponders", responder)["state"] == state && has_words;
        check_that(is_so, eviction["status"].to_string()).map(|()| eviction)
    })
    .await
    .unwrap()
}

/// The phase of a pod whose node is proved off becomes Failed before the pod is deleted: either ends the request, for good.
async fn until_evicted(plane: &ControlPlane, set: &str) {
    until(&format!("the request for {set} reports that its pod ended"), async || {
        let request = plane.find("evictionrequests", NAMESPACE, set).await.map_err(|error| error.to_string())?;
        let request = request.ok_or("there is no request")?;
        let all = request["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is_end = |one: &Value| one["reason"] == "PodDeleted" || one["reason"] == "PodTerminal";
        let is_evicted = |one: &Value| one["type"] == "TargetEvicted" && one["status"] == "True" && is_end(one);
        check_that(all.iter().any(is_evicted), request["status"].to_string())
    })
    .await
    .unwrap();
}

async fn until_lost(plane: &ControlPlane, node: &str) {
    until(&format!("{node} is lost"), async || {
        let nodes = plane.list("nodes").await.map_err(|error| error.to_string())?;
        let node = nodes.iter().find(|one| one["metadata"]["name"] == *node).ok_or("there is no Node")?;
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.into_iter().find(|one| one["type"] == "Ready").unwrap_or_default();
        check_that(ready["status"] == "Unknown", ready.to_string())
    })
    .await
    .unwrap();
}

/// The switch proves that the pod ended: the turn of lost-node ends with that, and the application is not waited for.
async fn the_turn_of_lost_node_ends_with_the_evidence(plane: &ControlPlane, machine: &Arc<Machine>) {
    let uid = pod(plane, "db", &machine.name).await;
    machine.cut_off().await;
    until_lost(plane, &machine.name).await;
    request(plane, "db", &uid).await;
    let expected = format!("node {} does not report", machine.name);
    let reports = until_responder(plane, "db", LOST_NODE, "Active", &expected).await;
    assert!(entry(&reports, "responders", LOST_NODE)["heartbeatTime"].is_string(), "{reports}");
    until_released(plane, "db-0").await;
    // With the evidence its phase becomes Failed, and then it is deleted: the responder sees either.
    let ended = until_responder(plane, "db", LOST_NODE, "Completed", "the pod ").await;
    assert_eq!(entry(&ended, "targetResponders", APP)["state"], "Inactive", "{ended}");
    until_evicted(plane, "db").await;
    let evidences = plane.list("fenceevidences").await.unwrap();
    assert!(evidences.iter().any(|one| one["spec"]["node"]["name"] == *machine.name), "{evidences:?}");
}

/// Only a person can prove it: lost-node names what is missing and is done, and the application has its turn.
async fn without_a_device_the_turn_goes_to_the_application(plane: &ControlPlane, machine: &Arc<Machine>) {
    let uid = pod(plane, "log", &machine.name).await;
    machine.cut_off().await;
    until_lost(plane, &machine.name).await;
    request(plane, "log", &uid).await;
    until_phase(plane, &machine.name, "AwaitingOperator").await;
    let completed = until_responder(plane, "log", LOST_NODE, "Completed", "is AwaitingOperator: ").await;
    let report = entry(&completed, "responders", LOST_NODE);
    let message = report["message"].as_str().unwrap();
    assert!(message.contains(&format!("pod-safety confirm-down {}", machine.name)), "{message}");
    until_responder(plane, "log", APP, "Active", "").await;
    let confirmed = format!("--confirm={} is off", machine.name);
    let confirm = ["confirm-down", &machine.name, "--reason=unplugged", &confirmed, "--listen=1s"];
    plane.start_pod_safety_once(&plane.admin_kubeconfig(), &confirm).await.unwrap().text().unwrap();
    until_released(plane, "log-0").await;
    // It did not report.
    until_responder(plane, "log", APP, "Interrupted", "").await;
    until_evicted(plane, "log").await;
}

/// A node that is well is no concern of lost-node.
async fn on_a_node_that_reports_it_is_done_at_once(plane: &ControlPlane, machine: &Arc<Machine>) {
    let uid = pod(plane, "web", &machine.name).await;
    request(plane, "web", &uid).await;
    until_responder(plane, "web", LOST_NODE, "Completed", &format!("node {} reports", machine.name)).await;
    until_responder(plane, "web", APP, "Active", "").await;
    let now = format!("{:.0}", Timestamp::now());
    let report = json!([{ "name": APP, "completionTime": now }]).to_string();
    let patch = format!("{{\"status\":{{\"responders\":{report}}}}}");
    let args = ["patch", EVICTIONS, "pod-1-web-0", "-n", NAMESPACE, "--subresource=status", "-p", &patch];
    plane.kubectl(&args).await.unwrap().text().unwrap();
    until_released(plane, "web-0").await;
    until_evicted(plane, "web").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evictions_from_lost_nodes_end_with_evidence_or_go_to_the_next_responder() {
    if !crate::versions::can_serve_evictions() {
        return;
    }
    let rigs = Rigs::new().await.unwrap();
    let plane = ControlPlane::start(gates()).await.unwrap();
    let kubeconfig = plane.install_pod_safety().await.unwrap();
    plane.namespace(NAMESPACE).await.unwrap();
    let spares = spare_machines();
    let (switched, by_hand) = (switch_log(&plane, &rigs, "w1").await, Machine::new("w2", || true));
    apply(&plane, &device_of("w2", "w2", json!({ "driver": "Manual" }))).await;
    for node in ["w1", "w2"] {
        let mut policy = policy(node, node, node);
        policy["spec"]["brakes"] = json!({ "cooldownSeconds": 0, "maxConcurrent": 9, "maxUnhealthyPercent": 100 });
        apply(&plane, &policy).await;
    }
    let _kubelets = kubelets(&plane, spares.iter().chain([&switched, &by_hand]));
    let agents = format!("--fence-agents-path={}", rigs.agents().display());
    let args = [
        "--mode=replace",
        "--controllers=pod-gc,node-lifecycle,taint-eviction,fencing,eviction",
        "--node-monitor-grace-period=8s",
        "--allow-fence-dummy",
        &agents,
    ];
    let _pod_safety = plane.leading_pod_safety(&kubeconfig, args).await.unwrap();
    tokio::join!(
        the_turn_of_lost_node_ends_with_the_evidence(&plane, &switched),
        without_a_device_the_turn_goes_to_the_application(&plane, &by_hand),
        on_a_node_that_reports_it_is_done_at_once(&plane, &spares[0]),
    );
}
