//! kube-controller-manager deletes by name: shown with the real one (tests whose names end in `_live`), and the same script with
//! pod-safety.
//!
//! A StatefulSet replaces its pod under the same name. A delayed force delete of the old pod then deletes the new one, unless it has a UID
//! precondition: its processes continue without an API object, a third pod of that name is started, and two of them write to the same
//! disk.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use pod_safety_control_plane::objects::{self, NodeExt as _, PodExt as _};
use pod_safety_control_plane::{ControlPlane, Options, Relay, check_that, observe, wait_until};
use serde_json::json;

/// Long enough for an accepted request to take effect.
const AFTERMATH: Duration = Duration::from_secs(2);
const KCM_ONLY_POD_GC: &str = "pod-garbage-collector-controller";

/// The state of the new pod.
#[derive(Debug, PartialEq, Eq)]
enum NewPod {
    Survives,
    Killed,
}

async fn create_node(api: &Client, name: &str) {
    objects::create_node(api, &objects::node(name)).await.unwrap();
    objects::renew_lease(api, name).await.unwrap();
}

async fn until_waiting(relay: &Relay, what: &str) {
    let waits = async || check_that(relay.waiting() > 0, "nothing waits");
    wait_until(&format!("{what} is on its way"), waits).await;
}

/// Like the StatefulSet controller: removes the old pod and creates a new one, which a kubelet starts.
async fn replace(api: &Client, namespace: &str, name: &str) -> Pod {
    observe::delete_pod(api, namespace, name, true).await.unwrap();
    let running = objects::pod(namespace, name).on_node("worker").with_phase("Running");
    objects::create_pod(api, &running).await.unwrap()
}

/// Checks a moment later; an existing pod must be the new one, and unchanged.
async fn check_replacement(api: &Client, new: &Pod) -> NewPod {
    tokio::time::sleep(AFTERMATH).await;
    let (namespace, name) = (new.metadata.namespace.as_deref().unwrap(), new.metadata.name.as_deref().unwrap());
    match observe::find_pod(api, namespace, name).await.unwrap() {
        None => NewPod::Killed,
        Some(existing) => {
            assert_eq!(existing, *new, "it was written to");
            NewPod::Survives
        }
    }
}

/// Two terminated pods where one may stay: the collector selects `db-0`, the older one.
async fn two_terminated(api: &Client, namespace: &str) {
    let failed = |name| objects::pod(namespace, name).on_node("worker").with_phase("Failed");
    objects::create_pod(api, &failed("db-0")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    objects::create_pod(api, &failed("newer")).await.unwrap();
}

/// The script: the deletion of the old `db-0` is sent by the controller, delayed on its route, and arrives when the new `db-0` runs.
async fn a_late_deletion(api: &Client, namespace: &str, relay: &Relay) -> NewPod {
    until_waiting(relay, "the deletion").await;
    let new = replace(api, namespace, "db-0").await;
    relay.open();
    check_replacement(api, &new).await
}

/// A namespace with two terminated pods where one may stay, and the collector's route, on which the deletion waits.
async fn two_terminated_and_a_slow_route(namespace: &str, kubeconfig: &Path, plane: &ControlPlane) -> Relay {
    let api = &plane.admin();
    create_node(api, "worker").await;
    plane.namespace(namespace).await.unwrap();
    let relay = plane.relay("road", kubeconfig).await.unwrap();
    relay.hold(&format!("DELETE /api/v1/namespaces/{namespace}/pods/db-0"));
    two_terminated(api, namespace).await;
    relay
}

const ONE_MAY_STAY: &str = "--terminated-pod-gc-threshold=1";

#[tokio::test]
async fn kcm_kills_the_replacement_of_a_terminated_pod_live() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let relay = two_terminated_and_a_slow_route("kcm", &plane.admin_kubeconfig(), &plane).await;
    let road = format!("--kubeconfig={}", relay.kubeconfig().display());
    let _kcm = plane.kube_controller_manager(KCM_ONLY_POD_GC, &[&*road, ONE_MAY_STAY]).await.unwrap();
    // Observed each time: the DELETE has {"gracePeriodSeconds":0} and no preconditions.
    assert_eq!(a_late_deletion(&plane.admin(), "kcm", &relay).await, NewPod::Killed);
}

#[tokio::test]
async fn pod_safety_does_not_kill_the_replacement_of_a_terminated_pod() {
    let (plane, kubeconfig) = ControlPlane::with_pod_safety().await.unwrap();
    let relay = two_terminated_and_a_slow_route("ours", &kubeconfig, &plane).await;
    let pod_safety = plane.pod_safety("pod-safety", relay.kubeconfig(), [ONE_MAY_STAY]).await.unwrap();
    assert_eq!(a_late_deletion(&plane.admin(), "ours", &relay).await, NewPod::Survives);
    let records = pod_safety.records("db-0").await.unwrap();
    assert!(records.iter().any(|record| record["reason"] == "Changed"), "{records:?}");
    assert!(records.iter().all(|record| record["action"] == "Dropped"), "{records:?}");
}

/// Without a delayed route: only more terminated pods than the client may delete in a moment. With the default of 20 requests a second, 1,200
/// pods above the threshold keep the last of them waiting for a minute, with the state read at the start; here it is 1 request a second
/// and a dozen pods.
#[tokio::test]
async fn kcm_also_kills_replacements_by_its_own_slowness_live() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let api = &plane.admin();
    create_node(api, "worker").await;
    let names: Vec<String> = (0..12).map(|i| format!("db-{i}")).collect();
    for name in &names {
        let failed = objects::pod("default", name).on_node("worker").with_phase("Failed");
        objects::create_pod(api, &failed).await.unwrap();
    }
    let args = ["--terminated-pod-gc-threshold=1", "--kube-api-qps=1", "--kube-api-burst=1"];
    let _kcm = plane.kube_controller_manager(KCM_ONLY_POD_GC, &args).await.unwrap();
    let began = wait_until("it has begun", async || {
        let remaining = observe::pod_names(api, "default").await.map_err(|error| format!("{error:?}"))?;
        if remaining.len() < names.len() { Ok(remaining) } else { Err("all are there".to_owned()) }
    });
    let remaining = began.await;
    for name in &remaining {
        // It may have been deleted in the meantime.
        if observe::delete_pod(api, "default", name, true).await.is_ok() {
            let running = objects::pod("default", name).on_node("worker").with_phase("Running");
            objects::create_pod(api, &running).await.unwrap();
        }
    }
    let replaced = observe::pod_names(api, "default").await.unwrap().len();
    // Observed each time: about one a second, the rate of its client.
    wait_until("one of those that run is killed", async || {
        let running_count = observe::pod_names(api, "default").await.map_err(|error| format!("{error:?}"))?.len();
        check_that(running_count < replaced, format!("{running_count} of {replaced} live"))
    })
    .await;
}

#[tokio::test]
async fn a_replacement_survives_both_writes_to_the_orphan_it_replaces() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let api = &plane.admin();
    create_node(api, "worker").await;
    let kubeconfig = plane.install_pod_safety().await.unwrap();
    let relay = plane.relay("road", &kubeconfig).await.unwrap();
    let mut pod_safety = plane.pod_safety("pod-safety", relay.kubeconfig(), [] as [&str; 0]).await.unwrap();
    pod_safety.ready().await.unwrap();
    for (name, write) in [("cut-0", "PATCH"), ("cut-1", "DELETE")] {
        let orphan = objects::pod("default", name).on_node("vanished").with_phase("Running");
        objects::create_pod(api, &orphan).await.unwrap();
        relay.hold(&format!("{write} /api/v1/namespaces/default/pods/{name}"));
        until_waiting(&relay, write).await;
        let new = replace(api, "default", name).await;
        relay.open();
        assert_eq!(check_replacement(api, &new).await, NewPod::Survives, "{write}");
        let records = pod_safety.records(name).await.unwrap();
        let dropped = |reason: &str| records.iter().any(|record| record["reason"] == reason);
        assert!(dropped("Changed") || dropped("Gone"), "{records:?}");
    }
}

/// kubernetes#141887 and #142331: in its cache the node has the out-of-service taint and is not Ready; the node recovered and the taint was
/// removed. kube-controller-manager's pod garbage collector and its attach/detach controller act on their cached state.
#[tokio::test]
async fn a_taint_removed_meanwhile_releases_no_pod() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let (api, kubeconfig) = (&plane.admin(), plane.install_pod_safety().await.unwrap());
    let mut node = objects::node("back").with_ready("Unknown");
    let taint = json!([{ "key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute" }]);
    node.spec.get_or_insert_default().taints = serde_json::from_value(taint).unwrap();
    objects::create_node(api, &node).await.unwrap();
    let pod = objects::pod("default", "db-0").on_node("back").with_phase("Running");
    objects::create_pod(api, &pod).await.unwrap();
    observe::delete_pod(api, "default", "db-0", false).await.unwrap();
    let relay = plane.relay("road", &kubeconfig).await.unwrap();
    relay.hold("GET /api/v1/nodes/back");
    let trust = ["--trust-out-of-service-taint"];
    let pod_safety = plane.pod_safety("pod-safety", relay.kubeconfig(), trust).await.unwrap();
    until_waiting(&relay, "the read of the node").await;
    let lift = ["taint", "node", "back", "node.kubernetes.io/out-of-service-"];
    plane.kubectl(&lift).await.unwrap().text().unwrap();
    let ready = objects::node("back").with_ready("True").status.unwrap();
    objects::set_node_status(api, "back", &ready).await.unwrap();
    relay.open();
    wait_until("what the cache said is dropped", async || {
        let records = pod_safety.records("db-0").await.map_err(|error| format!("{error:?}"))?;
        check_that(records.iter().any(|record| record["reason"] == "NodeInService"), format!("{records:?}"))
    })
    .await;
    let pod = observe::find_pod(api, "default", "db-0").await.unwrap().unwrap();
    assert_eq!(pod.status.unwrap().phase.as_deref(), Some("Running"));
}
