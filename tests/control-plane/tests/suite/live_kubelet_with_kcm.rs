//! kube-controller-manager removes pods of a deleted Node while its kubelet runs: shown with the real one (the test whose name ends in
//! `_live`), and the same pod with pod-safety.
//!
//! The Node of a running machine is deleted. Its kubelet renews its Lease and reports its container as running. If the pod is removed now,
//! its name is free: the StatefulSet controller starts the next one, and two processes of one identity run until the first kubelet learns
//! of it, which never happens if it is isolated.
//!
//! The Lease of the first two tests has no owner, so that the garbage collector does not delete it with the Node. In the third, as in a real
//! cluster, it is collected: nothing shows that the kubelet runs, so the pod is deleted gracefully first.
#![expect(clippy::disallowed_methods, reason = "tests drive a real cluster in real time")]

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::Client;
use pod_safety_control_plane::{
    ControlPlane, Error, Options, check_that, kubelet, objects, observe, until, wait_until,
};
use serde_json::json;

use crate::versions;

/// Three quarantines of pod-safety.
const HELD: Duration = Duration::from_secs(15);
const NODE: &str = "worker";
const STATEFUL_SET: &str = "
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 1
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {terminationGracePeriodSeconds: 600, containers: [{name: main, image: registry.example/main:1}]}
";

async fn member(api: &Client) -> Option<Pod> {
    observe::find_pod(api, "default", "db-0").await.unwrap()
}

/// The kubelet of the Node runs `db-0` and reports it.
async fn running_member(plane: &ControlPlane, api: &Client) -> Result<Pod, Error> {
    plane.kubectl_with(&["apply", "-f", "-"], STATEFUL_SET).await?.text()?;
    until("db-0 is made", async || check_that(member(api).await.is_some(), "it is not there")).await?;
    objects::bind_pod(api, "default", "db-0", NODE).await?;
    let status = json!({ "phase": "Running", "containerStatuses": [{ "name": "main", "image": "main:1", "imageID": "1",
        "ready": true, "restartCount": 0, "state": { "running": { "startedAt": "2026-01-01T00:00:00Z" } } }] });
    let status: PodStatus = serde_json::from_value(status).unwrap();
    objects::set_pod_status(api, "default", "db-0", &status).await
}

/// Its Lease outlives its Node.
async fn node_with_a_lease_of_its_own(api: &Client) -> Result<(), Error> {
    objects::create_node(api, &objects::node(NODE)).await?;
    objects::renew_lease(api, NODE).await.map(drop)
}

/// Acts as a running kubelet: its machine runs its processes, whatever the API server has.
async fn keep_renewing(api: &Client) {
    loop {
        objects::renew_lease(api, NODE).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// The Node is deleted while its machine runs, and then `then` runs.
async fn its_node_is_deleted(api: &Client, then: impl Future<Output = ()>) {
    observe::delete_node(api, NODE).await.unwrap();
    tokio::select! {
        biased;
        () = keep_renewing(api) => unreachable!("a kubelet does not stop by itself"),
        () = then => {}
    }
}

/// For as long as the kubelet renews its Lease.
#[tokio::test]
async fn pod_safety_holds_a_running_pod_when_its_node_is_deleted() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let api = &plane.admin();
    let _workloads = plane.kube_controller_manager("statefulset-controller", &[]).await.unwrap();
    node_with_a_lease_of_its_own(api).await.unwrap();
    let runs = running_member(&plane, api).await.unwrap();
    let kubeconfig = plane.install_pod_safety().await.unwrap();
    let pod_safety = plane.leading_pod_safety(&kubeconfig, ["--pod-gc-quarantine=5s"]).await.unwrap();
    its_node_is_deleted(api, async {
        let began = Instant::now();
        while began.elapsed() < HELD {
            assert_eq!(member(api).await.unwrap().metadata.resource_version, runs.metadata.resource_version);
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        let holds = pod_safety.holds("db-0").await.unwrap();
        assert!(holds.iter().any(|hold| hold["reason"] == "KubeletAlive"), "{holds:?}");
    })
    .await;
}

/// The next `db-0` exists, and the machine still runs the first.
#[tokio::test]
async fn kcm_frees_the_name_of_a_running_pod_when_its_node_is_deleted_live() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let api = &plane.admin();
    let _workloads = plane.kube_controller_manager("statefulset-controller", &[]).await.unwrap();
    node_with_a_lease_of_its_own(api).await.unwrap();
    let runs = running_member(&plane, api).await.unwrap();
    its_node_is_deleted(api, async {
        let _kcm = plane.kube_controller_manager("pod-garbage-collector-controller", &[]).await.unwrap();
        let began = Instant::now();
        // Up to 20 s to its first check, 40 s of quarantine, up to 20 s to the check after it; without a graceful deletion for the kubelet, whose
        // Lease is a second old.
        let next = wait_until("db-0 is another pod", async || {
            let next = member(api).await.filter(|next| next.metadata.uid != runs.metadata.uid);
            next.ok_or("it is the first one")
        });
        assert_eq!(next.await.metadata.deletion_timestamp, None);
        let took = began.elapsed();
        assert!(took >= Duration::from_secs(35), "its quarantine is 40 s: {took:?}");
    })
    .await;
}

/// The kubelet is connected: it renews its Lease until that is collected, and reports that it received the deletion. Nothing is force
/// deleted.
#[tokio::test]
async fn pod_safety_deletes_gracefully_first_if_the_lease_is_collected_with_the_node() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let api = &plane.admin();
    let controllers = "statefulset-controller,garbage-collector-controller";
    let _kcm = plane.kube_controller_manager(controllers, &[]).await.unwrap();
    kubelet::register(api, &objects::node(NODE)).await.unwrap();
    let runs = running_member(&plane, api).await.unwrap();
    let kubeconfig = plane.install_pod_safety().await.unwrap();
    let pod_safety = plane.leading_pod_safety(&kubeconfig, ["--pod-gc-quarantine=5s"]).await.unwrap();
    observe::delete_node(api, NODE).await.unwrap();
    let collected = async || {
        let renewed = kubelet::renew(api, NODE).await.map_err(|error| error.to_string())?;
        check_that(renewed.is_none(), "its Lease is there".to_owned())
    };
    wait_until("the Lease is collected with its Node", collected).await;
    let deletion = wait_until("the pod is deleted gracefully", async || {
        let reported = kubelet::report_deletion(api, "default", "db-0").await;
        reported.map_err(|error| error.to_string())?.ok_or("nobody deleted it".to_owned())
    })
    .await;
    assert_eq!(deletion.metadata.uid, runs.metadata.uid);
    assert_eq!(deletion.metadata.deletion_grace_period_seconds, Some(600), "its own grace period");
    // Without generations a kubelet reports nothing before the pod's grace period is over.
    let reason = if versions::generations_are_reported() { "KubeletAlive" } else { "AwaitsKubelet" };
    wait_until("it is held for its kubelet", async || {
        let holds = pod_safety.holds("db-0").await.map_err(|error| error.to_string())?;
        check_that(holds.iter().any(|hold| hold["reason"] == reason), format!("{holds:?}"))
    })
    .await;
    let began = Instant::now();
    while began.elapsed() < HELD {
        let pod = member(api).await.unwrap();
        assert_eq!(pod.metadata.resource_version, deletion.metadata.resource_version, "its kubelet has its grace");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert!(!kubelet::has_lease(api, NODE).await.unwrap());
    kubelet::remove(api, &deletion).await.unwrap();
    wait_until("the next db-0 is there", async || {
        let next = member(api).await.filter(|next| next.metadata.uid != runs.metadata.uid);
        check_that(next.is_some(), "it is not there")
    })
    .await;
    let forced =
        pod_safety.metric("pod_gc_collector_force_delete_pods_total", &[("reason", "orphaned")]).await.unwrap();
    assert_eq!(forced, 0.0, "no pod was force deleted");
}
