//! Answers of the API server that are so slow that evidence expires before it can be used: it releases no pod and no volume, this is
//! reported, and work continues when answers are fast again.

use std::time::Duration;

use pod_safety_control_plane::objects::{self, PodExt as _};
use pod_safety_control_plane::{ControlPlane, Relay, check_that, observe, wait_until};
use serde_json::json;

use super::hosts::DRIVER;
use super::objects::{NAMESPACE, apply, volume};
use super::{lease, until_held, user};

/// Evidence is valid for two seconds from its request (`VALID_FOR` of the kernel).
const REQUEST_DELAY: Duration = Duration::from_secs(3);
const NODE: &str = "w1";

/// Delays each read of the node too long.
async fn slow(relay: &Relay) {
    loop {
        relay.hold(&format!("GET /api/v1/nodes/{NODE}"));
        wait_until("the node is read", async || check_that(relay.waiting() > 0, "it is not")).await;
        tokio::time::sleep(REQUEST_DELAY).await;
        relay.open();
        wait_until("the answer arrives", async || check_that(relay.waiting() == 0, "it waits")).await;
    }
}

/// A pod of a StatefulSet on a node, with a volume that is attached there.
async fn database(plane: &ControlPlane) {
    let api = &plane.admin();
    plane.namespace(NAMESPACE).await.unwrap();
    objects::create_node(api, &objects::node(NODE)).await.unwrap();
    objects::renew_lease(api, NODE).await.unwrap();
    volume(plane, "data").await;
    let object = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": { "name": "data" },
        "spec": { "attacher": DRIVER, "nodeName": NODE, "source": { "persistentVolumeName": "data" } } });
    apply(plane, &object).await;
    plane.patch_status("volumeattachment", "", "data", &json!({ "attached": true })).await.unwrap();
    let pod = user("db-0", NODE).owned_by_stateful_set("db", "5b0a4f0e-0000-4000-8000-000000000001");
    objects::create_pod(api, &pod).await.unwrap();
}

async fn until_event(plane: &ControlPlane, namespace: &str, object: &str, reason: &str) {
    wait_until(&format!("{reason} of {object} says ReadsTooSlow"), async || {
        let events = observe::events(&plane.admin(), namespace, object, reason).await.unwrap();
        let messages: Vec<_> = events.into_iter().filter_map(|event| event.message).collect();
        check_that(messages.iter().any(|one| one.starts_with("ReadsTooSlow: ")), format!("{messages:?}"))
    })
    .await;
}

/// Waits for this while each read of the node takes too long.
async fn slowly(relay: &Relay, reported: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        () = reported => {}
        () = slow(relay) => {}
    }
}

#[tokio::test]
async fn evidence_that_expires_before_use_releases_nothing_and_is_reported() {
    let (plane, kubeconfig) = ControlPlane::with_pod_safety().await.unwrap();
    database(&plane).await;
    let relay = plane.relay("road", &kubeconfig).await.unwrap();
    let args = ["--controllers=*,volume-guard", "--pod-gc-quarantine=6s"];
    let _pod_safety = plane.leading_pod_safety(relay.kubeconfig(), args).await.unwrap();
    until_held(&plane, "data", NODE, false).await;
    let pod = async || observe::find_pod(&plane.admin(), NAMESPACE, "db-0").await.unwrap();

    observe::delete_node(&plane.admin(), NODE).await.unwrap();
    slowly(&relay, until_event(&plane, NAMESPACE, "db-0", "DeletionFailed")).await;
    assert!(pod().await.unwrap().metadata.deletion_timestamp.is_none(), "by an answer that was over");
    relay.open();
    wait_until("it is deleted gracefully", async || {
        let pod = pod().await.ok_or("it is gone, though its kubelet had no time")?;
        check_that(pod.metadata.deletion_timestamp.is_some(), "it is not")
    })
    .await;

    let refused = async {
        until_event(&plane, NAMESPACE, "db-0", "ForceDeleteRefused").await;
        assert!(pod().await.is_some(), "the pod went without evidence");
        // The volume waits for its pods. An operator removes them.
        observe::delete_pod(&plane.admin(), NAMESPACE, "db-0", true).await.unwrap();
        until_event(&plane, "default", "data", "VolumeLeaseNotRevoked").await;
    };
    slowly(&relay, refused).await;
    assert_eq!(super::holder(&lease(&plane, "data").await.unwrap()), NODE);

    relay.open();
    let revoked = until_held(&plane, "data", "", false).await;
    assert_eq!(revoked["spec"]["leaseTransitions"], 1, "{revoked:#}");
}
