//! Components that delete Nodes of terminated machines: `pod-safety doctor` finds them, and prints the value that allows them.
#![expect(clippy::disallowed_methods, reason = "it says how long requests to a real cluster took")]

use pod_safety_control_plane::workloads::{Kind, define};
use pod_safety_control_plane::{binary, chart, check_that, wait_until};
use serde_json::{Value, json};

use super::admission::{ADMIN, CLOUD, DEV, EXEMPT, Fixture, KARPENTER, TAINTER};

/// The account of a component that was installed with an unusual name.
const DELETING_ACCOUNT: &str = "system:serviceaccount:infra:remover";

/// The doctor's findings for this check.
async fn findings(fixture: &Fixture, check: &str) -> Vec<Value> {
    let kubeconfig = fixture.plane.admin_kubeconfig();
    let output = std::process::Command::new(binary().await.unwrap())
        .args(["doctor", "-o", "json", "--kubeconfig"])
        .arg(&kubeconfig)
        .output()
        .unwrap();
    let diagnosis: Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = diagnosis["checks"].as_array().unwrap();
    checks.iter().filter(|one| one["check"] == check).cloned().collect()
}

async fn checked(fixture: &Fixture) -> Value {
    findings(fixture, "NodeDeleters").await.remove(0)
}

/// A workload of this name, with the ServiceAccount `remover`.
async fn runs(fixture: &Fixture, name: &str, image: &str) {
    let labels = json!({ "app": name });
    let container = json!({ "name": "controller", "image": image });
    fixture
        .make(
            &json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "namespace": "infra", "name": name },
        "spec": { "selector": { "matchLabels": labels }, "template": { "metadata": { "labels": labels },
            "spec": { "serviceAccountName": "remover", "containers": [container] } } } }),
        )
        .await;
}

/// Sets the value that a remedy of the doctor names, as printed.
async fn set(fixture: &Fixture, remedy: &str) {
    let chart = chart();
    let (_, values) = remedy.split_once(" --set ").unwrap();
    let values = values.replace('\'', "");
    let mut upgrade =
        vec!["upgrade", "pod-safety", chart.to_str().unwrap(), "--namespace=pod-safety", "--reset-then-reuse-values"];
    upgrade.extend(values.split(" --set ").flat_map(|value| ["--set", value]));
    fixture.plane.helm(&upgrade).await.unwrap().text().unwrap();
}

/// With `action=Deny` the Nodes of terminated machines remained, without an explanation.
pub(crate) async fn bug_the_doctor_prints_the_value_that_allows_a_component(fixture: &Fixture) {
    assert_eq!(checked(fixture).await["health"], "Fine", "nothing here deletes Nodes");
    fixture.expect(&["create", "namespace", "infra"]).await;
    runs(fixture, "karpenter", "registry.example/karpenter/controller:v1").await;
    let bind = ["create", "clusterrolebinding", "remover", "--clusterrole=careless", "--user", DELETING_ACCOUNT];
    fixture.expect(&bind).await;

    let result = checked(fixture).await;
    assert_eq!(result["health"], "Problem", "{result:#}");
    assert!(result["what"].as_str().unwrap().ends_with(&format!("karpenter ({DELETING_ACCOUNT})")), "{result:#}");
    fixture.node("gone", Some("Unknown"), None).await;
    let delete = ["delete", "node", "gone", "--wait=false"];
    Fixture::check_answer("before", &fixture.run(DELETING_ACCOUNT, &delete, &Value::Null).await, Some("node"));

    let remedy = result["remedy"].as_str().unwrap();
    let value = remedy.split('\'').nth(1).unwrap();
    assert!(value.contains("cloud-controller-manager,karpenter,") && value.contains("user:cloud"), "{value}");
    set(fixture, remedy).await;
    assert_eq!(checked(fixture).await["health"], "Fine");
    wait_until("the policy holds", async || {
        let output = fixture.run(DELETING_ACCOUNT, &[&delete[..], &["--dry-run=server"]].concat(), &Value::Null).await;
        check_that(output.status.success(), output.stderr)
    })
    .await;
}

/// A cloud controller was denied a taint every ten seconds, and no output named it or the value to set.
pub(crate) async fn bug_the_doctor_names_the_denied_account_and_the_value_to_set(fixture: &Fixture) {
    const CHECK: &str = "RefusedControllers";
    assert_eq!(findings(fixture, CHECK).await[0]["health"], "Fine", "nothing that is refused runs");
    runs(fixture, "azure-cloud-controller-manager", "registry.example/ccm:v1").await;
    runs(fixture, "longhorn-manager", "registry.example/longhorn-manager:v1").await;
    let setting = Kind::custom("longhorn.io/v1beta2", "Setting", "settings");
    define(&fixture.plane.admin(), setting, "Namespaced", &json!({})).await.unwrap();
    fixture
        .make(&json!({ "apiVersion": "longhorn.io/v1beta2", "kind": "Setting", "value": "delete-both",
        "metadata": { "namespace": "infra", "name": "node-down-pod-deletion-policy" } }))
        .await;

    let [cloud, storage]: [Value; 2] = findings(fixture, CHECK).await.try_into().unwrap();
    for (symptom, user) in [(&cloud, "azure-cloud-controller-manager"), (&storage, "longhorn")] {
        assert_eq!(symptom["health"], "Attention", "{symptom:#}");
        assert!(symptom["what"].as_str().unwrap().starts_with(&format!("{user} ({DELETING_ACCOUNT})")), "{symptom:#}");
    }
    assert!(storage["remedy"].as_str().unwrap().contains("do-nothing"), "{storage:#}");
    fixture.node("stopped", Some("Unknown"), None).await;
    let taint = ["taint", "node", "stopped", "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"];
    Fixture::check_answer("before", &fixture.run(DELETING_ACCOUNT, &taint, &Value::Null).await, Some("node"));

    set(fixture, cloud["remedy"].as_str().unwrap()).await;
    let [storage]: [Value; 1] = findings(fixture, CHECK).await.try_into().unwrap();
    assert!(storage["what"].as_str().unwrap().starts_with("longhorn"), "{storage:#}");
    wait_until("the policy holds", async || {
        let output = fixture.run(DELETING_ACCOUNT, &taint, &Value::Null).await;
        check_that(output.status.success(), output.stderr)
    })
    .await;
}

/// A cloud controller that the chart lists. It may do nothing else.
pub(super) async fn an_account_that_checks_the_machine_may_taint_an_unreachable_node(fixture: &Fixture) {
    for (name, ready, refusal) in
        [("silent", Some("Unknown"), None), ("reports", Some("True"), Some("node")), ("new", None, Some("node"))]
    {
        fixture.node(name, ready, None).await;
        let taint = ["taint", "node", name, "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"];
        Fixture::check_answer(name, &fixture.run(TAINTER, &taint, &Value::Null).await, refusal);
    }
    fixture.node("not-its-own", Some("Unknown"), None).await;
    let delete = ["delete", "node", "not-its-own", "--wait=false"];
    Fixture::check_answer("a deletion", &fixture.run(TAINTER, &delete, &Value::Null).await, Some("node"));
}

const REMOVE_FINALIZERS: &str = r#"{"metadata":{"finalizers":null}}"#;

/// As registered by Karpenter.
async fn kept_node(fixture: &Fixture, name: &str, ready: &str) {
    fixture.node(name, Some(ready), None).await;
    let finalizer = r#"{"metadata":{"finalizers":["karpenter.sh/termination"]}}"#;
    fixture.expect(&["patch", "node", name, "--type=merge", "-p", finalizer]).await;
}

/// karpenter#3032, and an operator who removes the last finalizer of a Node.
pub(super) async fn a_node_is_deleted_with_its_last_finalizer_and_not_before(fixture: &Fixture) {
    for (number, (user, ready, refusal)) in (0..).zip([
        (DEV, "Unknown", Some("node")),
        (DEV, "True", Some("node")),
        (KARPENTER, "Unknown", None),
        (KARPENTER, "True", None),
    ]) {
        let name = format!("kept-{number}");
        kept_node(fixture, &name, ready).await;
        let deleted = fixture.run(KARPENTER, &["delete", "node", &name, "--wait=false"], &Value::Null).await;
        deleted.text().unwrap();
        let loosed =
            fixture.run(user, &["patch", "node", &name, "--type=merge", "-p", REMOVE_FINALIZERS], &Value::Null).await;
        Fixture::check_answer(
            &format!("{user} removes the finalizer of {name}, which is Ready {ready}"),
            &loosed,
            refusal,
        );
        let remaining =
            fixture.run(ADMIN, &["get", "node", &name, "--ignore-not-found", "-o", "name"], &Value::Null).await;
        assert_eq!(remaining.text().unwrap().is_empty(), refusal.is_none(), "{name}");
    }
}

/// A node without pods, or with terminated pods, is drained, its instance is terminated, and its Node is deleted: each request is allowed the
/// first time, without any wait.
pub(super) async fn a_scale_down_of_healthy_nodes_is_not_delayed(fixture: &Fixture) {
    let begun = std::time::Instant::now();
    kept_node(fixture, "spare", "True").await;
    let allowed = async |user: &str, args: &[&str]| fixture.run(user, args, &Value::Null).await.text().unwrap();
    allowed(KARPENTER, &["taint", "node", "spare", "karpenter.sh/disrupted:NoSchedule"]).await;
    allowed(KARPENTER, &["delete", "node", "spare", "--wait=false"]).await;
    // Its instance is terminated: its kubelet stops reporting.
    fixture.calls(EXEMPT, "spare", "Unknown").await.text().unwrap();
    allowed(KARPENTER, &["patch", "node", "spare", "--type=merge", "-p", REMOVE_FINALIZERS]).await;
    // An autoscaler with a cloud controller: first the machine is deleted, then its Node.
    fixture.node("spot", Some("True"), None).await;
    allowed(KARPENTER, &["cordon", "spot"]).await;
    fixture.calls(EXEMPT, "spot", "Unknown").await.text().unwrap();
    allowed(CLOUD, &["delete", "node", "spot", "--wait=false"]).await;
    for name in ["spare", "spot"] {
        assert_eq!(allowed(ADMIN, &["get", "node", name, "--ignore-not-found", "-o", "name"]).await, "");
    }
    println!("two nodes were removed, with ten requests, in {:.1} s", begun.elapsed().as_secs_f64());
}
