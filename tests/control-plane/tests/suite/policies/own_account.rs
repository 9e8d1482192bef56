//! The token of pod-safety is stolen: its RBAC rights, and the requests that the policy on its account still allows. Every other suite shows
//! that each write of pod-safety passes, because `pod-safety manifests` includes the policy.

use serde_json::{Value, json};

use super::admission::{ADMIN, Fixture, KUBELET, POD_SAFETY};

/// A write with the stolen token: kubectl's arguments, and whether it is allowed.
type Theft<'a> = (&'static str, Vec<&'a str>, bool);

pub(super) async fn attack_the_token_of_pod_safety_is_stolen(fixture: &Fixture) {
    // The policy alone must be sufficient, whatever roles the account is bound to.
    let all = ["create", "clusterrolebinding", "stolen", "--clusterrole=cluster-admin", "--user", POD_SAFETY];
    fixture.expect(&all).await;
    pods(fixture).await;
    deletions(fixture).await;
    nodes(fixture).await;
    everything_else(fixture).await;
}

async fn attempt_all(fixture: &Fixture, thefts: &[Theft<'_>]) {
    for (row, args, passes) in thefts {
        attempt(fixture, row, args, &Value::Null, *passes).await;
    }
}

/// The same with an object.
async fn attempt(fixture: &Fixture, row: &str, args: &[&str], input: &Value, passes: bool) {
    let refusal = (!passes).then_some("own-account");
    Fixture::check_answer(&format!("stolen: {row}"), &fixture.run(POD_SAFETY, args, input).await, refusal);
}

/// `kubectl patch` of one object.
fn patch<'a>(what: &[&'a str], subresource: &'a str, patch: &'a str) -> Vec<&'a str> {
    let mut args = [&["patch"][..], what, &["-p", patch]].concat();
    args.extend(Some(subresource).filter(|it| !it.is_empty()));
    args
}

const STATUS: &str = "--subresource=status";

async fn pods(fixture: &Fixture) {
    fixture.pod("loot", true, 30, None).await;
    let runs = json!({ "conditions": [{ "type": "Ready", "status": "True" }], "containerStatuses": [{ "name": "main", "image": "i",
        "imageID": "i", "ready": true, "restartCount": 0, "state": { "running": {} } }] });
    fixture.status(KUBELET, &["pod", "loot"], &runs).await.text().unwrap();
    let pod = ["pod", "loot"];
    let of = |part: &'static str, patched: &'static str| patch(&pod, part, patched);
    let image = r#"{"spec":{"containers":[{"name":"main","image":"evil"}]}}"#;
    let [is_ready, not_ready] = [
        r#"{"status":{"conditions":[{"type":"Ready","status":"True"}]}}"#,
        r#"{"status":{"conditions":[{"type":"Ready","status":"False"}]}}"#,
    ];
    attempt_all(
        fixture,
        &[
            ("another image", of("", image), false),
            ("a label", of("", r#"{"metadata":{"labels":{"app":"shop"}}}"#), false),
            ("a label, by the status", of(STATUS, r#"{"metadata":{"labels":{"app":"shop"}}}"#), false),
            ("another address", of(STATUS, r#"{"status":{"podIP":"10.0.0.1"}}"#), false),
            ("Failed", of(STATUS, r#"{"status":{"phase":"Failed"}}"#), false),
            ("a container ends on paper", of(STATUS, r#"{"status":{"containerStatuses":null}}"#), false),
            ("not Ready", of(STATUS, not_ready), true),
            ("Ready", of(STATUS, is_ready), false),
        ],
    )
    .await;
    let gated = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "gated", "namespace": "default" },
        "spec": { "schedulingGates": [{ "name": "pod-safety.dev/volume-guard" }, { "name": "example.com/queue" }],
            "containers": [{ "name": "main", "image": "main" }] } });
    fixture.make(&gated).await;
    let [theirs, own] = [
        r#"{"spec":{"schedulingGates":[{"$patch":"delete","name":"example.com/queue"}]}}"#,
        r#"{"spec":{"schedulingGates":[{"$patch":"delete","name":"pod-safety.dev/volume-guard"}]}}"#,
    ];
    let gate = |patched: &'static str| patch(&["pod", "gated"], "", patched);
    attempt_all(fixture, &[("the gate of others", gate(theirs), false), ("its own gate", gate(own), true)]).await;
}

/// DELETE with a body, as sent by the code. Each remaining step leaves a visible change of the pod.
async fn deletions(fixture: &Fixture) {
    let path = "/api/v1/namespaces/default/pods/loot";
    let version = async || {
        let text = fixture.run(ADMIN, &["get", "pod", "loot", "-o", "json"], &Value::Null).await.text().unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["metadata"].clone()
    };
    let by = async |grace: i64| {
        let meta = version().await;
        json!({ "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": grace,
            "preconditions": { "uid": meta["uid"], "resourceVersion": meta["resourceVersion"] } })
    };
    let raw = ["delete", "--raw", path, "-f", "-"];
    let force = vec!["delete", "pod", "loot", "--force", "--grace-period=0", "--wait=false"];
    attempt_all(fixture, &[("--force", force, false)]).await;
    attempt(fixture, "by UID, and it runs", &raw, &by(0).await, false).await;
    attempt(fixture, "by its grace period, without a reason", &raw, &by(30).await, false).await;
    let why =
        r#"{"status":{"conditions":[{"type":"DisruptionTarget","status":"True","reason":"DeletionByTaintManager"}]}}"#;
    attempt_all(fixture, &[("a reason", patch(&["pod", "loot"], STATUS, why), true)]).await;
    attempt(fixture, "by its grace, with the reason", &raw, &by(30).await, true).await;
}

async fn nodes(fixture: &Fixture) {
    fixture.node("prey", Some("True"), None).await;
    let node = ["node", "prey"];
    let address = r#"{"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.1"}]}}"#;
    let not_ready = r#"{"status":{"conditions":[{"type":"Ready","status":"False"}]}}"#;
    let tainted = |taint| vec!["taint", "node", "prey", taint];
    let of = |part: &'static str, patched: &'static str| patch(&node, part, patched);
    attempt_all(
        fixture,
        &[
            ("a label", of("", r#"{"metadata":{"labels":{"a":"b"}}}"#), false),
            ("an annotation, by the status", of(STATUS, r#"{"metadata":{"annotations":{"a":"b"}}}"#), false),
            ("another address", of(STATUS, address), false),
            ("given up while it is Ready", tainted("node.kubernetes.io/unreachable:NoExecute"), false),
            ("called off while it is Ready", tainted("node.kubernetes.io/out-of-service=x:NoExecute"), false),
            ("a taint of its own", tainted("evil:NoSchedule"), false),
            ("not Ready", of(STATUS, not_ready), false),
            ("another machine", of("", r#"{"spec":{"providerID":"x"}}"#), false),
            ("a cordon while it is Ready", of("", r#"{"spec":{"unschedulable":true}}"#), true),
            ("its end", of("", r#"{"spec":{"unschedulable":null}}"#), true),
            ("a deletion", vec!["delete", "node", "prey", "--wait=false"], false),
        ],
    )
    .await;
}

async fn everything_else(fixture: &Fixture) {
    let lease = |namespace: &str, name: &str| {
        json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "namespace": namespace, "name": name }, "spec": {} })
    };
    let create = ["create", "-f", "-"];
    attempt(fixture, "a heartbeat", &create, &lease("kube-node-lease", "prey"), false).await;
    attempt(fixture, "whose a volume is", &create, &lease("pod-safety-volumes", "loot"), true).await;
    let binding = ["create", "clusterrolebinding", "mine", "--clusterrole=cluster-admin", "--user=me"];
    attempt_all(
        fixture,
        &[
            ("a Secret", vec!["create", "secret", "generic", "loot"], false),
            ("a Deployment", vec!["create", "deployment", "evil", "--image=evil"], false),
            ("a right", binding.to_vec(), false),
            ("a token", vec!["create", "token", "pod-safety", "--namespace=pod-safety"], false),
            ("who it is", vec!["auth", "whoami"], true),
        ],
    )
    .await;
}
