//! kube-controller-manager deletes by name: shown on the real one (tests whose names end in `_live`), and the same script
//! against ours.
//!
//! A StatefulSet replaces its pod under the same name. A force deletion of the old pod that is still on its way
//! then hits the new one, unless it names the UID: its processes run on without an API object, a third pod of
//! that name is started, and two of them write to the same disk.
#![expect(clippy::unwrap_used, reason = "scenarios may fail as loudly as the test that runs them")]

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use pod_safety_control_plane::objects::{self, NodeExt as _, PodExt as _};
use pod_safety_control_plane::{ControlPlane, Options, Relay, check_that, observe, until};
use serde_json::json;

/// Long enough for a request that was let through to do its work.
const AFTERMATH: Duration = Duration::from_secs(2);
const KCM_ONLY_POD_GC: &str = "pod-garbage-collector-controller";

/// What became of the new pod.
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
    until(&format!("{what} is on its way"), waits).await.unwrap();
}

/// As the StatefulSet controller does: removes the old pod and makes a new one, which a kubelet starts.
async fn replace(api: &Client, namespace: &str, name: &str) -> Pod {
    observe::delete_pod(api, namespace, name, true).await.unwrap();
    let running = objects::pod(namespace, name).on_node("worker").with_phase("Running");
    objects::create_pod(api, &running).await.unwrap()
}

/// Looks a moment later; a pod that is there must be the new one, and untouched.
async fn check_replacement(api: &Client, new: &Pod) -> NewPod {
    tokio::time::sleep(AFTERMATH).await;
    let (namespace, name) =
        (new.metadata.namespace.as_deref().unwrap(), new.metadata.name.as_deref().unwrap());
    match observe::find_pod(api, namespace, name).await.unwrap() {
        None => NewPod::Killed,
        Some(found) => {
            assert_eq!(found, *new, "it was written to");
            NewPod::Survives
        }
    }
}

/// Two terminated pods where one may stay: whoever collects wants `db-0`, the older one.
async fn two_terminated(api: &Client, namespace: &str) {
    let failed = |name| objects::pod(namespace, name).on_node("worker").with_phase("Failed");
    objects::create_pod(api, &failed("db-0")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    objects::create_pod(api, &failed("newer")).await.unwrap();
}

/// The script: the deletion of the old `db-0` leaves the controller, waits on the road, and arrives when the
/// new `db-0` runs.
async fn a_late_deletion(api: &Client, namespace: &str, relay: &Relay) -> NewPod {
    until_waiting(relay, "the deletion").await;
    let new = replace(api, namespace, "db-0").await;
    relay.open();
    check_replacement(api, &new).await
}

/// What has two terminated pods where one may stay, and the road of whoever collects, on which the deletion waits.
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
    // Observed each time: its DELETE carries {"gracePeriodSeconds":0} and no preconditions.
    assert_eq!(a_late_deletion(&plane.admin(), "kcm", &relay).await, NewPod::Killed);
}

#[tokio::test]
async fn pod_safety_does_not_kill_the_replacement_of_a_terminated_pod() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let kubeconfig = plane.install_pod_safety().await.unwrap();
    let relay = two_terminated_and_a_slow_route("ours", &kubeconfig, &plane).await;
    let ours = plane.pod_safety("pod-safety", relay.kubeconfig(), [ONE_MAY_STAY]).await.unwrap();
    assert_eq!(a_late_deletion(&plane.admin(), "ours", &relay).await, NewPod::Survives);
    let records = ours.records("db-0").await.unwrap();
    assert!(records.iter().any(|record| record["reason"] == "Changed"), "{records:?}");
    assert!(records.iter().all(|record| record["action"] == "Dropped"), "{records:?}");
}

/// No trick on the road: only more terminated pods than the client may delete in a moment. With the default of
/// 20 requests a second, 1,200 pods over the threshold keep the last of them waiting for a minute, by the
/// snapshot taken at its start; here it is 1 request a second and a dozen pods.
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
    let began = until("it has begun", async || {
        let left = observe::pod_names(api, "default").await.map_err(|error| format!("{error:?}"))?;
        if left.len() < names.len() { Ok(left) } else { Err("all are there".to_owned()) }
    });
    let left = began.await.unwrap();
    for name in &left {
        // It may have gone in the meantime.
        if observe::delete_pod(api, "default", name, true).await.is_ok() {
            let running = objects::pod("default", name).on_node("worker").with_phase("Running");
            objects::create_pod(api, &running).await.unwrap();
        }
    }
    let replaced = observe::pod_names(api, "default").await.unwrap().len();
    // Observed each time: about one a second, the rate of its client.
    until("one of those that run is killed", async || {
        let lives = observe::pod_names(api, "default").await.map_err(|error| format!("{error:?}"))?.len();
        check_that(lives < replaced, format!("{lives} of {replaced} live"))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_replacement_survives_both_writes_to_the_orphan_it_replaces() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let api = &plane.admin();
    create_node(api, "worker").await;
    let kubeconfig = plane.install_pod_safety().await.unwrap();
    let relay = plane.relay("road", &kubeconfig).await.unwrap();
    let mut ours = plane.pod_safety("pod-safety", relay.kubeconfig(), [] as [&str; 0]).await.unwrap();
    ours.ready().await.unwrap();
    for (name, write) in [("cut-0", "PATCH"), ("cut-1", "DELETE")] {
        let orphan = objects::pod("default", name).on_node("vanished").with_phase("Running");
        objects::create_pod(api, &orphan).await.unwrap();
        relay.hold(&format!("{write} /api/v1/namespaces/default/pods/{name}"));
        until_waiting(&relay, write).await;
        let new = replace(api, "default", name).await;
        relay.open();
        assert_eq!(check_replacement(api, &new).await, NewPod::Survives, "{write}");
        let records = ours.records(name).await.unwrap();
        let dropped = |reason: &str| records.iter().any(|record| record["reason"] == reason);
        assert!(dropped("Changed") || dropped("Gone"), "{records:?}");
    }
}

/// kubernetes#141887 and #142331: by its cache the node bears the taint out-of-service and is not Ready; it came back and
/// the taint went. kube-controller-manager's pod garbage collector and its attach/detach controller act on what they cached.
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
    let ours = plane.pod_safety("pod-safety", relay.kubeconfig(), trust).await.unwrap();
    until_waiting(&relay, "the read of the node").await;
    let lift = ["taint", "node", "back", "node.kubernetes.io/out-of-service-"];
    plane.kubectl(&lift).await.unwrap().text().unwrap();
    let ready = objects::node("back").with_ready("True").status.unwrap();
    objects::set_node_status(api, "back", &ready).await.unwrap();
    relay.open();
    until("what the cache said is dropped", async || {
        let records = ours.records("db-0").await.map_err(|error| format!("{error:?}"))?;
        check_that(records.iter().any(|record| record["reason"] == "NodeInService"), format!("{records:?}"))
    })
    .await
    .unwrap();
    let pod = observe::find_pod(api, "default", "db-0").await.unwrap().unwrap();
    assert_eq!(pod.status.unwrap().phase.as_deref(), Some("Running"));
}
