//! Hole H-3 of kube-controller-manager, shown on the real one (the test whose name ends in `_live`), and the same pod in the
//! hands of ours.
//!
//! Somebody deletes the Node of a machine that runs. Its kubelet renews its Lease and reports its container as
//! running. Whoever removes the pod now gives its name away: the StatefulSet controller starts the next one, and
//! two processes of one identity run until the first kubelet hears of it, which one that is cut off never does.
//!
//! The Lease here has no owner, so that no garbage collection takes it with the Node: docs/proof.md says what is
//! left of this when it does.
#![expect(clippy::disallowed_methods, reason = "tests drive a real cluster in real time")]
#![expect(clippy::unwrap_used, reason = "scenarios may fail as loudly as the test that runs them")]

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::Client;
use pod_safety_control_plane::{ControlPlane, Error, Options, objects, observe, seen, until};
use serde_json::json;

/// Three quarantines of ours.
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
    spec: {containers: [{name: main, image: registry.example/main:1}]}
";

async fn member(api: &Client) -> Option<Pod> {
    observe::find_pod(api, "default", "db-0").await.unwrap()
}

/// The Node is there, and its kubelet runs `db-0` and says so.
async fn running_member(plane: &ControlPlane, api: &Client) -> Result<Pod, Error> {
    objects::create_node(api, &objects::node(NODE)).await?;
    objects::renew_lease(api, NODE).await?;
    plane.kubectl_with(&["apply", "-f", "-"], STATEFUL_SET).await?.text()?;
    until("db-0 is made", async || seen(member(api).await.is_some(), "it is not there")).await?;
    objects::bind_pod(api, "default", "db-0", NODE).await?;
    let status = json!({ "phase": "Running", "containerStatuses": [{ "name": "main", "image": "main:1", "imageID": "1",
        "ready": true, "restartCount": 0, "state": { "running": { "startedAt": "2026-01-01T00:00:00Z" } } }] });
    let status: PodStatus = serde_json::from_value(status).unwrap();
    objects::set_pod_status(api, "default", "db-0", &status).await
}

/// A kubelet that lives: its machine runs its processes, whatever the API has.
async fn renew_for_ever(api: &Client) {
    loop {
        objects::renew_lease(api, NODE).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// The Node goes, its machine runs on, and `then` happens.
async fn its_node_is_deleted(api: &Client, then: impl Future<Output = ()>) {
    observe::delete_node(api, NODE).await.unwrap();
    tokio::select! {
        biased;
        () = renew_for_ever(api) => unreachable!("a kubelet does not stop by itself"),
        () = then => {}
    }
}

/// For as long as the kubelet renews its Lease.
#[tokio::test]
async fn ours_holds_a_running_pod_when_its_node_is_deleted() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let api = &plane.admin();
    let _workloads = plane.kube_controller_manager("statefulset-controller", &[]).await.unwrap();
    let runs = running_member(&plane, api).await.unwrap();
    let kubeconfig = plane.install_pod_safety().await.unwrap();
    let mut ours = plane.pod_safety("pod-safety", &kubeconfig, ["--pod-gc-quarantine=5s"]).await.unwrap();
    ours.leads().await.unwrap();
    its_node_is_deleted(api, async {
        let began = Instant::now();
        while began.elapsed() < HELD {
            assert_eq!(member(api).await.unwrap().metadata.resource_version, runs.metadata.resource_version);
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        let holds = ours.holds("db-0").await.unwrap();
        assert!(holds.iter().any(|hold| hold["reason"] == "KubeletAlive"), "{holds:?}");
    })
    .await;
}

/// The next `db-0` is there, and the machine still runs the first.
#[tokio::test]
async fn kcm_gives_the_name_of_a_running_pod_away_when_its_node_is_deleted_live() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let api = &plane.admin();
    let _workloads = plane.kube_controller_manager("statefulset-controller", &[]).await.unwrap();
    let runs = running_member(&plane, api).await.unwrap();
    its_node_is_deleted(api, async {
        let _kcm = plane.kube_controller_manager("pod-garbage-collector-controller", &[]).await.unwrap();
        let began = Instant::now();
        // Up to 20 s to its first look, 40 s of quarantine, up to 20 s to the look after it; without a word to the
        // kubelet, whose Lease is a second old.
        let next = until("db-0 is another pod", async || {
            let next = member(api).await.filter(|next| next.metadata.uid != runs.metadata.uid);
            next.ok_or("it is the first one")
        });
        assert_eq!(next.await.unwrap().metadata.deletion_timestamp, None);
        let took = began.elapsed();
        assert!(took >= Duration::from_secs(35), "its quarantine is 40 s: {took:?}");
    })
    .await;
}
