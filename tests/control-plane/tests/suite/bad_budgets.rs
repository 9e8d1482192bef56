//! PDBs that cannot be calculated: each has a condition, allows no disruption, and delays no other.

use kube::Client;
use pod_safety_control_plane::budgets::{self, BudgetStatus};
use pod_safety_control_plane::objects::{self, PodExt as _};
use pod_safety_control_plane::workloads::{self, FLEET, HERD, Kind, PHANTOM, REPLICA_SET};
use pod_safety_control_plane::{ControlPlane, Options, PodSafety, Relay, check_that, observe, wait_until};
use serde_json::{Value, json};

/// How often a valid PDB must follow its pods, whatever fails with the others.
const ROUNDS: i32 = 6;
const FAILED: &str = "CalculateExpectedPodCountFailed";
/// A kind of an aggregated API server that is registered and does not run.
const NO_MATCH: Kind = Kind { api_version: "nowhere.example.com/v1", kind: "Nowhere", plural: "nowheres" };

/// PDBs that cannot be calculated: the namespace, and a part of the message.
const INVALID_PDBS: [(&str, &str); 7] = [
    ("selector", "spec.selector: "),
    ("amount", "spec.minAvailable: \"050x\" is neither a number nor a percentage"),
    ("negative", "spec.minAvailable: it comes to -1 of 2 pods"),
    ("phantoms", "there is no kind Phantom in phantom.example.com/v1"),
    ("nowhere", "nowhere.example.com/v1"),
    ("erring", "the spec replicas field \".spec.replicas\" does not exist"),
    ("hanging", "Fleet crowd"),
];

fn selecting(app: &str, mut spec: Value) -> Value {
    spec["selector"] = json!({ "matchLabels": { "app": app } });
    spec
}

/// Two running pods that a workload of this kind manages; `None`: the workload does not exist.
async fn pods(api: &Client, kind: Kind, namespace: &str, exists: bool) {
    let controller = if exists {
        workloads::put(api, kind, namespace, "crowd", 2, None).await.unwrap()
    } else {
        let number = namespace.len();
        workloads::reference(kind, "crowd", &format!("5b0a4f0e-0000-4000-8000-0000000000{number:02}"))
    };
    for name in ["pod-0", "pod-1"] {
        let pod = objects::pod(namespace, name).on_node("worker").with_phase("Running").with_label("app", "crowd");
        objects::create_pod(api, &pod.controlled_by(controller.clone())).await.unwrap();
    }
}

async fn budget(api: &Client, namespace: &str, spec: Value) {
    budgets::put(api, namespace, "crowd", &selecting("crowd", spec)).await.unwrap();
}

async fn until_status(api: &Client, namespace: &str, is_so: impl Fn(&BudgetStatus) -> bool) -> BudgetStatus {
    wait_until(&format!("the budget in {namespace} is as it should be"), async || {
        let status = budgets::budget_status(api, namespace, "crowd").await.map_err(|error| format!("{error:?}"))?;
        if is_so(&status) { Ok(status) } else { Err(status.to_string()) }
    })
    .await
}

async fn set_ready(api: &Client, namespace: &str, name: &str, ready: bool) {
    let status = json!({ "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "False" } }] });
    objects::set_pod_status(api, namespace, name, &serde_json::from_value(status).unwrap()).await.unwrap();
}

/// Creates all invalid PDBs before the controller starts: it does not observe them in the order of their creation.
async fn set_up(plane: &ControlPlane, api: &Client) {
    workloads::define_custom_kinds(api).await.unwrap();
    let registration = json!({
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": { "name": "v1.nowhere.example.com" },
        "spec": {
            "group": "nowhere.example.com", "version": "v1", "insecureSkipTLSVerify": true,
            "groupPriorityMinimum": 100, "versionPriority": 100,
            "service": { "namespace": "default", "name": "nobody" },
        },
    });
    plane.kubectl_with(&["create", "-f", "-"], &registration.to_string()).await.unwrap().text().unwrap();
    for (namespace, kind, exists) in [
        ("good", REPLICA_SET, true),
        ("selector", REPLICA_SET, true),
        ("amount", REPLICA_SET, true),
        ("over", REPLICA_SET, true),
        ("negative", REPLICA_SET, true),
        ("phantoms", PHANTOM, false),
        ("nowhere", NO_MATCH, false),
        ("herd", HERD, true),
        ("erring", FLEET, true),
        ("hanging", FLEET, true),
    ] {
        plane.namespace(namespace).await.unwrap();
        pods(api, kind, namespace, exists).await;
        let spec = match namespace {
            "amount" => json!({ "minAvailable": "050%" }),
            "over" | "negative" => json!({ "minAvailable": "099%" }),
            _ => json!({ "maxUnavailable": 1 }),
        };
        budget(api, namespace, spec).await;
    }
    budgets::put(api, "selector", "crowd", &selecting("spoil-me", json!({ "minAvailable": 1 }))).await.unwrap();
    // Today's validation rejects all of these; an older version may have accepted them.
    for (namespace, from, to) in [
        ("selector", "spoil-me", "spoil me"),
        ("amount", "050%", "050x"),
        ("over", "099%", "199%"),
        ("negative", "099%", "-99%"),
    ] {
        let key = format!("/registry/poddisruptionbudgets/{namespace}/crowd");
        plane.corrupt_object(&key, from.as_bytes(), to.as_bytes()).await.unwrap();
    }
    let without = r#"[{"op": "remove", "path": "/spec/replicas"}]"#;
    let args = ["patch", "fleet", "crowd", "--namespace=erring", "--type=json", "--patch", without];
    plane.kubectl(&args).await.unwrap().text().unwrap();
}

#[tokio::test]
async fn a_pdb_that_cannot_be_calculated_has_a_condition_and_delays_no_other() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let api = &plane.admin();
    set_up(&plane, api).await;
    let kubeconfig = plane.install_pod_safety().await.unwrap();
    let relay = plane.relay("road", &kubeconfig).await.unwrap();
    relay.hold("GET /apis/example.com/v1/namespaces/hanging/fleets/");
    let args = ["--controllers=disruption", "--mode=replace"];
    let mut pod_safety = plane.pod_safety("pod-safety", relay.kubeconfig(), args).await.unwrap();
    pod_safety.ready().await.unwrap();
    pod_safety.is_leader().await.unwrap();

    until_status(api, "good", |status| status.allowed == 1).await;
    for (namespace, expected) in INVALID_PDBS {
        condition_and_event_name_the_cause(api, namespace, expected).await;
    }
    a_pdb_that_demands_too_much_allows_no_disruption(api, &pod_safety).await;
    pods_without_a_scale_are_left_out(api).await;
    the_valid_pdb_is_still_updated(api, &relay).await;
    all_pdbs_are_calculated_after_repair(&plane, api, &relay).await;
}

async fn condition_and_event_name_the_cause(api: &Client, namespace: &str, expected: &str) {
    let status =
        until_status(api, namespace, |status| status.condition.starts_with("False SyncFailed ") && status.allowed == 0)
            .await;
    assert!(status.condition.contains(expected), "{namespace}: {status}");
    let reason = if namespace == "selector" { "NoPods" } else { FAILED };
    let event = observe::event(api, namespace, "crowd", reason).await.unwrap();
    assert!(event.contains(expected), "{namespace}: {event}");
    if namespace != "selector" {
        let answer = budgets::evict(api, namespace, "pod-0", &Value::Null).await.unwrap();
        assert_eq!(answer.code, 429, "{namespace}: {answer}");
    }
}

async fn a_pdb_that_demands_too_much_allows_no_disruption(api: &Client, pod_safety: &PodSafety) {
    // 199 % of two pods, rounded up.
    until_status(api, "over", |status| (status.allowed, status.desired, status.expected) == (0, 4, 2)).await;
    let held = async || {
        let holds =
            pod_safety.debug("/debug/decisions").await.map_err(|error| format!("{error:?}"))?["holds"].to_string();
        check_that(
            holds.contains("DisruptionsNeverAllowed")
                && holds.contains("4 pods must be healthy, and no more than 2 can be"),
            holds,
        )
    };
    wait_until("it is said that it never allows", held).await;
}

async fn pods_without_a_scale_are_left_out(api: &Client) {
    until_status(api, "herd", |status| (status.allowed, status.healthy, status.expected) == (0, 0, 0)).await;
    let event = observe::event(api, "herd", "crowd", "PodsNotCounted").await.unwrap();
    assert!(event.contains("pod-0 of Herd/crowd"), "{event}");
}

/// The valid PDB follows its pods while one request about another PDB hangs, and not only after its timeout: in most rounds the same request
/// hangs before and after, because a timeout may happen in between.
async fn the_valid_pdb_is_still_updated(api: &Client, relay: &Relay) {
    let mut beside = 0;
    for round in 0..ROUNDS {
        wait_until("the scale of a fleet is asked for in vain", async || {
            check_that(relay.waiting() > 0, "nothing hangs")
        })
        .await;
        let hung = relay.held();
        let ready = round % 2 == 1;
        set_ready(api, "good", "pod-0", ready).await;
        until_status(api, "good", |status| status.healthy == 1 + i32::from(ready)).await;
        beside += i32::from(relay.waiting() > 0 && relay.held() == hung);
    }
    assert!(beside > ROUNDS / 2, "{beside} of {ROUNDS} rounds did not wait for the request that hung");
}

async fn all_pdbs_are_calculated_after_repair(plane: &ControlPlane, api: &Client, relay: &Relay) {
    relay.open();
    workloads::scale(api, FLEET, "erring", "crowd", 2).await.unwrap();
    for namespace in ["selector", "amount", "over", "negative"] {
        budget(api, namespace, json!({ "minAvailable": "50%" })).await;
    }
    for namespace in ["phantoms", "nowhere", "herd"] {
        budget(api, namespace, json!({ "minAvailable": 1 })).await;
    }
    for (namespace, _) in INVALID_PDBS {
        until_status(api, namespace, |status| status.allowed == 1 && status.observed == status.generation).await;
    }
    for namespace in ["over", "herd"] {
        until_status(api, namespace, |status| status.allowed == 1).await;
    }
    plane.kubectl(&["delete", "apiservice", "v1.nowhere.example.com"]).await.unwrap().text().unwrap();
}
