//! `pod-safety doctor` and `run` on the real API server: without the default controllers of kube-controller-manager, and with an account that
//! the admission policies deny.

use pod_safety_control_plane::{ControlPlane, budgets, check_that, objects, wait_until};
use serde_json::{Value, json};

use crate::commands::{apply, run};

const ACCOUNT: &str = "system:serviceaccount:pod-safety:pod-safety";

/// A control plane with the manifests, whose kinds are served.
async fn installed() -> ControlPlane {
    let (plane, _) = ControlPlane::with_pod_safety().await.unwrap();
    wait_until("the kinds are there", async || {
        let output = run(&plane, &plane.admin_kubeconfig(), &["status", "--exit-zero"]).await;
        check_that(output.status.success(), output.stderr)
    })
    .await;
    plane
}

/// The findings of a doctor check: health, and text.
async fn findings(plane: &ControlPlane, check: &str) -> Vec<(String, String)> {
    let output = run(plane, &plane.admin_kubeconfig(), &["doctor", "-o", "json"]).await;
    let diagnosis: Value = serde_json::from_str(&output.stdout).unwrap();
    let of_it = diagnosis["checks"].as_array().unwrap().iter().filter(|one| one["check"] == check);
    let text = |one: &Value, field: &str| one[field].as_str().unwrap_or_default().to_owned();
    of_it.map(|one| (text(one, "health"), format!("{} {}", text(one, "what"), text(one, "remedy")))).collect()
}

async fn until_finding(plane: &ControlPlane, check: &str, health: &str, expected: &str) {
    wait_until(&format!("{check} is {health} and says {expected}"), async || {
        let all = findings(plane, check).await;
        check_that(all.iter().any(|(is, what)| is == health && what.contains(expected)), format!("{all:?}"))
    })
    .await;
}

async fn kubectl(plane: &ControlPlane, args: &[&str]) -> String {
    plane.kubectl(args).await.unwrap().text().unwrap()
}

/// No controller manager runs: the node keeps the taint with which the API server creates it, and the PodDisruptionBudget never has a status.
/// In the first minute of both that is no problem.
#[tokio::test]
async fn bug_a_cluster_without_a_scheduler_was_healthy() {
    let plane = installed().await;
    let admin = plane.admin();
    plane.namespace("shop").await.unwrap();
    objects::create_node(&admin, &objects::node("worker")).await.unwrap();
    objects::renew_lease(&admin, "worker").await.unwrap();
    let spec = json!({ "minAvailable": 1, "selector": { "matchLabels": { "app": "api" } } });
    budgets::put(&admin, "shop", "api", &spec).await.unwrap();
    for check in ["NodeLifecycle", "PodDisruptionBudgets"] {
        let young = findings(&plane, check).await;
        assert!(young.iter().all(|(health, _)| health == "Fine") && !young.is_empty(), "{young:?}");
    }
    until_finding(&plane, "NodeLifecycle", "Problem", "stays for more than a minute on 1 of 1 Ready node").await;
    until_finding(&plane, "PodDisruptionBudgets", "Problem", "no controller wrote the status of 1 of 1").await;
    until_finding(&plane, "NodeLifecycle", "Problem", " --set mode=replace").await;
    // Like a controller.
    kubectl(&plane, &["taint", "node", "worker", "node.kubernetes.io/not-ready-"]).await;
    let status = json!({ "status": { "observedGeneration": 1, "currentHealthy": 0, "desiredHealthy": 1, "disruptionsAllowed": 0,
        "expectedPods": 0 } });
    let patch = ["patch", "pdb", "api", "-n", "shop", "--subresource=status", "--type=merge", "-p"];
    kubectl(&plane, &[&patch[..], &[&status.to_string()]].concat()).await;
    until_finding(&plane, "NodeLifecycle", "Fine", "none keeps the taint").await;
    until_finding(&plane, "PodDisruptionBudgets", "Fine", "each has its status, by kubectl").await;
}

/// The process led, each of its status writes was denied, and two commands waited for two minutes without a message.
#[tokio::test]
async fn bug_an_account_denied_by_the_policies_led_and_wrote_nothing() {
    let plane = installed().await;
    let admin = plane.admin_kubeconfig();
    let none = run(&plane, &admin, &["devices", "test"]).await;
    assert!(none.status.code() == Some(1) && none.stderr.contains("there is no FenceDevice"), "{none:?}");
    let object = |kind: &str, metadata: Value, spec: Value| json!({ "apiVersion": "pod-safety.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec });
    let levels = json!([{ "name": "l", "devices": [{ "namespace": "pod-safety", "name": "bmc" }] }]);
    let in_namespace = json!({ "name": "bmc", "namespace": "pod-safety" });
    apply(&plane, &object("FenceDevice", in_namespace, json!({ "driver": "Manual" }))).await;
    apply(&plane, &object("FencePolicy", json!({ "name": "all" }), json!({ "levels": levels }))).await;

    let refused = run(&plane, &admin, &["run", "--admin-address=127.0.0.1:0"]).await;
    let expected = format!("pod-safety run --as {ACCOUNT}");
    assert!(refused.status.code() == Some(1) && refused.stderr.contains(&expected), "{refused:?}");

    let impersonates = format!("--as={ACCOUNT}");
    let mut pod_safety = plane.leading_pod_safety(&admin, [impersonates.as_str()]).await.unwrap();
    wait_until("the FencePolicy has a status", async || {
        let observed = ["get", "fencepolicy", "all", "-o", "jsonpath={.status.observedGeneration}"];
        let observed = kubectl(&plane, &observed).await;
        check_that(observed == "1", observed)
    })
    .await;
    until_finding(&plane, "ServiceAccount", "Fine", ACCOUNT).await;
    until_finding(&plane, "RBAC", "Fine", ACCOUNT).await;
    pod_safety.terminate().await.unwrap();

    // It leads before the policies exist.
    let binding = ["delete", "validatingadmissionpolicybinding", "pod-safety-fence", "pod-safety-evidence"];
    kubectl(&plane, &binding).await;
    let mut other = plane.pod_safety("other", &admin, [""; 0]).await.unwrap();
    other.is_leader().await.unwrap();
    let manifests = run(&plane, &admin, &["manifests"]).await.stdout;
    plane.kubectl_with(&["apply", "-f", "-"], &manifests).await.unwrap().text().unwrap();
    until_finding(&plane, "ServiceAccount", "Problem", &expected).await;
    wait_until("the policy is in force", async || {
        let status = json!({ "status": { "observedGeneration": 7, "nodes": 0, "conditions": [] } }).to_string();
        let patch = ["patch", "fencepolicy", "all", "--subresource=status", "--type=merge", "-p", &status];
        let output = plane.kubectl(&patch).await.unwrap();
        check_that(output.stderr.contains("pod-safety-fence"), format!("{output:?}"))
    })
    .await;
    let without_rights =
        run(&plane, &admin, &["devices", "test", "pod-safety/bmc", "--timeout=5s", "-o", "json"]).await;
    assert_eq!(without_rights.status.code(), Some(5), "{without_rights:?}");
    let stdout: Value = serde_json::from_str(&without_rights.stdout).unwrap();
    assert_eq!(stdout["kind"], "DeviceTest");
    for expected in
        ["waiting for the leader of pod-safety to check 1 FenceDevice", "each of its answers is denied", &expected]
    {
        assert!(without_rights.stderr.contains(expected), "{expected}: {without_rights:?}");
    }
    other.terminate().await.unwrap();
    let log = other.log_text();
    assert!(log.contains("runs under this account"), "{log}");
}
