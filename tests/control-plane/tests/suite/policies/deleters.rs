//! Components that delete Nodes of machines that are gone: `pod-safety doctor` finds them, and prints the value that allows it.

use pod_safety_control_plane::{binary, chart, seen, until};
use serde_json::{Value, json};

use super::admission::Scene;

/// As whom a component runs that was installed under another name than usual.
const REMOVER: &str = "system:serviceaccount:infra:remover";

/// The check of the doctor.
async fn checked(scene: &Scene) -> Value {
    let kubeconfig = scene.plane.admin_kubeconfig();
    let output = std::process::Command::new(binary().await.unwrap())
        .args(["doctor", "-o", "json", "--kubeconfig"])
        .arg(&kubeconfig)
        .output()
        .unwrap();
    let diagnosis: Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = diagnosis["checks"].as_array().unwrap();
    checks.iter().find(|one| one["check"] == "NodeDeleters").unwrap().clone()
}

/// `action=Deny` left the Nodes of machines that were gone, and nothing said why.
pub(crate) async fn bug_the_doctor_prints_the_value_that_allows_a_component(scene: &Scene) {
    assert_eq!(checked(scene).await["health"], "Fine", "nothing here deletes Nodes");
    scene.must(&["create", "namespace", "infra"]).await;
    let labels = json!({ "app": "karpenter" });
    let container = json!({ "name": "controller", "image": "registry.example/karpenter/controller:v1" });
    scene.make(&json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "namespace": "infra", "name": "karpenter" },
        "spec": { "selector": { "matchLabels": labels }, "template": { "metadata": { "labels": labels },
            "spec": { "serviceAccountName": "remover", "containers": [container] } } } })).await;
    let bind = ["create", "clusterrolebinding", "remover", "--clusterrole=careless", "--user", REMOVER];
    scene.must(&bind).await;

    let found = checked(scene).await;
    assert_eq!(found["health"], "Problem", "{found:#}");
    assert!(found["what"].as_str().unwrap().ends_with(&format!("karpenter ({REMOVER})")), "{found:#}");
    scene.node("gone", Some("Unknown"), None).await;
    let delete = ["delete", "node", "gone", "--wait=false"];
    Scene::judge("before", &scene.run(REMOVER, &delete, &Value::Null).await, Some("node"));

    let remedy = found["remedy"].as_str().unwrap();
    let value = remedy.split('\'').nth(1).unwrap();
    assert!(value.contains("cloud-controller-manager,karpenter,") && value.contains("user:cloud"), "{value}");
    let chart = chart();
    let upgrade = [
        "upgrade",
        "pod-safety",
        chart.to_str().unwrap(),
        "--namespace=pod-safety",
        "--reset-then-reuse-values",
        "--set",
        value,
    ];
    scene.plane.helm(&upgrade).await.unwrap().text().unwrap();
    assert_eq!(checked(scene).await["health"], "Fine");
    until("the policy holds", async || {
        let output = scene.run(REMOVER, &[&delete[..], &["--dry-run=server"]].concat(), &Value::Null).await;
        seen(output.status.success(), output.stderr)
    })
    .await
    .unwrap();
}
