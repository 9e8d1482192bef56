//! The pod of a node without a Node object is removed by another client. Its kubelet may just have begun to terminate it, so its volume waits
//! for the pod's grace period and a quarantine: without a holder, and held by that node.

use std::time::{Duration, Instant};

use pod_safety_control_plane::objects::{self, PodExt as _};
use pod_safety_control_plane::{ControlPlane, PodSafety, check_that, observe, wait_until};
use serde_json::{Value, json};

use super::objects::{NAMESPACE, apply, claim, volume};
use super::{lease, until_held, user};
use crate::commands::ends_with;

const GRACE: u32 = 6;
const QUARANTINE: u32 = 4;

async fn node(plane: &ControlPlane, name: &str) {
    objects::create_node(&plane.admin(), &objects::node(name)).await.unwrap();
    objects::renew_lease(&plane.admin(), name).await.unwrap();
}

async fn run(plane: &ControlPlane, name: &str, node: &str) {
    let pod = user(name, node).with_grace(GRACE.into());
    objects::create_pod(&plane.admin(), &pod).await.unwrap();
}

/// The claim and its volume as bound by kube-controller-manager.
async fn bound(plane: &ControlPlane) {
    let claim = plane.find("pvc", NAMESPACE, "data").await.unwrap().unwrap();
    let by_uid = json!({ "spec": { "claimRef": { "uid": claim["metadata"]["uid"] } } }).to_string();
    plane.kubectl(&["patch", "pv", "data", "--type=merge", "-p", &by_uid]).await.unwrap().text().unwrap();
    for (kind, namespace) in [("pv", ""), ("pvc", NAMESPACE)] {
        plane.patch_status(kind, namespace, "data", &json!({ "phase": "Bound" })).await.unwrap();
    }
}

/// A tenant names the volume in its own claim, and has pods with that claim on an existing node, and on a missing one.
async fn attack(plane: &ControlPlane, node: &str) {
    plane.namespace("tenant").await.unwrap();
    apply(plane, &claim("tenant", "data")).await;
    for (name, node) in [("thief", node), ("ghost", "gone")] {
        let mut pod = user(name, node);
        pod.metadata.namespace = Some("tenant".to_owned());
        objects::create_pod(&plane.admin(), &pod).await.unwrap();
    }
}

/// A mistake of an operator.
async fn force_delete(plane: &ControlPlane, pod: &str) -> Instant {
    let before = Instant::now();
    let force = ["delete", "pod", pod, "-n", NAMESPACE, "--force", "--grace-period=0"];
    plane.kubectl(&force).await.unwrap().text().unwrap();
    before
}

/// The next node gets the volume, and not before the processes of the removed pod have had their grace period.
async fn moves_in_time(plane: &ControlPlane, removed: Instant, to: &str) -> Value {
    let lease = until_held(plane, "data", to, false).await;
    let took = removed.elapsed();
    assert!(took >= Duration::from_secs(u64::from(GRACE + QUARANTINE)), "after {took:?}: {lease:#}");
    println!("from the removal to the next holder: {took:?}");
    lease
}

/// Why the pod waits. On a slow machine the wait may be over before it is observed: [`moves_in_time`] checks its length.
async fn until_waits(plane: &ControlPlane, pod_safety: &PodSafety, pod: &str, why: &str) {
    wait_until(&format!("{pod} waits: {why}"), async || {
        let is_over = lease(plane, "data").await.is_some();
        let holds = pod_safety.holds(pod).await.map_err(|error| format!("{error:?}"))?;
        let waits = holds.iter().any(|hold| hold.to_string().contains(why));
        check_that(is_over || waits, format!("{holds:#?}"))
    })
    .await;
}

#[tokio::test]
async fn a_volume_waits_for_a_pod_that_was_removed_on_a_missing_node() {
    let (plane, kubeconfig) = ControlPlane::with_pod_safety().await.unwrap();
    plane.namespace(NAMESPACE).await.unwrap();
    volume(&plane, "data").await;
    bound(&plane).await;
    for name in ["w2", "w3", "w4"] {
        node(&plane, name).await;
    }
    attack(&plane, "w4").await;
    // The Node w1 was deleted before pod-safety started, so no Lease names it.
    run(&plane, "first", "w1").await;
    run(&plane, "second", "w2").await;
    let quarantine = format!("--pod-gc-quarantine={QUARANTINE}s");
    let pod_safety = plane.leading_pod_safety(&kubeconfig, ["--controllers=volume-guard", &quarantine]).await.unwrap();

    until_waits(&plane, &pod_safety, "second", "pod shop/first uses it on node w1, which has no Node object").await;
    let removed = force_delete(&plane, "first").await;
    until_waits(
        &plane,
        &pod_safety,
        "second",
        "a pod that was removed on node w1, which has no Node object, may still run",
    )
    .await;
    moves_in_time(&plane, removed, "w2").await;

    run(&plane, "third", "w3").await;
    objects::renew_lease(&plane.admin(), "w2").await.unwrap();
    observe::delete_node(&plane.admin(), "w2").await.unwrap();
    until_held(&plane, "data", "w2", true).await;
    let output = ends_with(&plane, 3, &["explain", "pv/data"]).await;
    assert!(
        output.contains("It is free when no pod that uses it is left there and the quarantine is over"),
        "{output}"
    );
    let removed = force_delete(&plane, "second").await;
    let lease = moves_in_time(&plane, removed, "w3").await;
    assert_eq!(lease["spec"]["leaseTransitions"], 1, "{lease:#}");
    wait_until("nothing is held", async || {
        let holds = pod_safety.metric("pod_safety_holds", &[("controller", "volume-guard")]).await;
        let holds = holds.map_err(|error| format!("{error:?}"))?;
        check_that(holds == 0.0, holds.to_string())
    })
    .await;
}
