//! `pod-safety drain` and `pod-safety explain pdb` against the real API server: kube-controller-manager runs the StatefulSet and disruption
//! controllers, this program acts as the kubelets.
#![expect(clippy::disallowed_methods, reason = "it plays the kubelets, and whoever sets up the cluster")]

mod beside_kubectl;
mod clusters;
mod requested;
mod webhook;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod, PodStatus};
use kube::api::{Api, DeleteParams, ListParams, Preconditions};
use pod_safety_control_plane::objects::{self, NodeExt as _, PodExt as _};
use pod_safety_control_plane::{ControlPlane, Options, Output, check_that, wait_until};
use serde_json::{Value, json};

use crate::commands::{apply, ends_with};

const NS: &str = "shop";
/// The controllers that act on the pods and their PDBs while a node is drained.
const KCM: &str = "statefulset-controller,disruption-controller";

async fn pod_safety(plane: &ControlPlane, args: &[&str]) -> Output {
    plane.start_pod_safety_once(&plane.admin_kubeconfig(), args).await.unwrap()
}

/// A StatefulSet whose pods this program makes ready, on a node of the pool `pool`.
async fn stateful_set(plane: &ControlPlane, app: &str, replicas: i32) {
    let labels = json!({ "app": app });
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "namespace": NS, "name": app },
        "spec": { "replicas": replicas, "serviceName": app, "podManagementPolicy": "Parallel",
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": { "terminationGracePeriodSeconds": 5,
                "containers": [{ "name": "main", "image": "registry.example/main:1",
                    "resources": { "requests": { "cpu": "500m", "memory": "1Gi" } } }] } } },
    });
    apply(plane, &set).await;
}

async fn budget(plane: &ControlPlane, name: &str, app: &str, spec: Value) {
    let mut object = json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": { "namespace": NS, "name": name }, "spec": spec });
    object["spec"]["selector"] = json!({ "matchLabels": { "app": app } });
    apply(plane, &object).await;
}

/// The kubelets and the scheduler: unbound pods get the first schedulable node, bound ones become Ready, terminating ones are removed after
/// a moment. Records the highest number of pods of `db` that were unavailable at the same time.
#[derive(Default)]
struct Kubelets {
    stop: AtomicBool,
    most_down: AtomicUsize,
    watches: AtomicBool,
}

impl Kubelets {
    async fn run(&self, plane: &ControlPlane) {
        while !self.stop.load(Ordering::SeqCst) {
            self.round(plane).await;
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
    }

    async fn round(&self, plane: &ControlPlane) {
        let client = plane.admin();
        let pods = Api::<Pod>::namespaced(client.clone(), NS);
        let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await.unwrap().items;
        let takes = |node: &&Node| node.spec.as_ref().is_none_or(|spec| spec.unschedulable != Some(true));
        let free = nodes.iter().find(takes).and_then(|node| node.metadata.name.clone());
        let all = pods.list(&ListParams::default()).await.unwrap().items;
        let of_db = |pod: &&Pod| {
            pod.metadata.labels.as_ref().is_some_and(|labels| labels.get("app").is_some_and(|app| app == "db"))
        };
        let up = |pod: &&Pod| is_ready(pod) && pod.metadata.deletion_timestamp.is_none();
        if self.watches.load(Ordering::SeqCst) {
            let up = all.iter().filter(of_db).filter(up).count();
            self.most_down.fetch_max(3_usize.saturating_sub(up), Ordering::SeqCst);
        }
        for pod in all {
            let name = pod.metadata.name.clone().unwrap();
            let bound = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
            let uid = pod.metadata.uid.clone();
            // Another client may have changed it; the next round reads it again.
            if pod.metadata.deletion_timestamp.is_some() {
                let over = DeleteParams {
                    grace_period_seconds: Some(0),
                    preconditions: Some(Preconditions { uid, resource_version: None }),
                    ..DeleteParams::default()
                };
                drop(pods.delete(&name, &over).await);
            } else if let (None, Some(node)) = (&bound, &free) {
                drop(objects::bind_pod(&client, NS, &name, node).await);
            } else if bound.is_some() && phase(&pod) == "Pending" {
                let status = objects::pod(NS, &name).with_phase("Running").status.unwrap();
                drop(objects::set_pod_status(&client, NS, &name, &running(status)).await);
            }
        }
    }
}

fn running(mut status: PodStatus) -> PodStatus {
    let report = json!([{ "name": "main", "image": "i", "imageID": "i", "ready": true, "restartCount": 0, "state": { "running": {} } }]);
    status.container_statuses = serde_json::from_value(report).unwrap();
    status
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn is_ready(pod: &Pod) -> bool {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Waits until the PDB allows this many disruptions.
async fn allows(plane: &ControlPlane, name: &str, expected: i64) {
    wait_until(&format!("{name} allows {expected}"), async || {
        let object = plane.find("pdb", NS, name).await.map_err(|error| error.to_string())?;
        let object = object.ok_or("there is none")?;
        let status = &object["status"];
        let current = status["observedGeneration"] == object["metadata"]["generation"];
        // Each of the PDBs has three expected pods.
        check_that(
            current && status["disruptionsAllowed"] == expected && status["currentHealthy"] != 0,
            status.to_string(),
        )
    })
    .await;
}

fn rows(plan: &Value) -> BTreeMap<String, (String, String)> {
    let row = |pod: &Value| {
        let text = |field: &str| pod[field].as_str().unwrap_or_default().to_owned();
        (text("name"), (text("action"), text("reason")))
    };
    plan["pods"].as_array().unwrap().iter().map(row).collect()
}

async fn on_node(plane: &ControlPlane, node: &str) -> Vec<String> {
    let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let pods = Api::<Pod>::all(plane.admin()).list(&params).await.unwrap();
    pods.items.into_iter().filter_map(|pod| pod.metadata.name).collect()
}

#[tokio::test]
async fn drain_respects_pdbs_and_names_what_blocks() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    plane.namespace(NS).await.unwrap();
    let client = plane.admin();
    // The scheduler below takes the first schedulable node: all pods go to "a".
    objects::create_node(&client, &objects::node("a").with_ready("True")).await.unwrap();
    let _kcm = plane.kube_controller_manager(KCM, &[]).await.unwrap();
    let kubelets = Kubelets::default();
    let scenario = async {
        scenario(&plane, &kubelets).await;
        kubelets.stop.store(true, Ordering::SeqCst);
    };
    tokio::join!(kubelets.run(&plane), scenario);
}

async fn scenario(plane: &ControlPlane, kubelets: &Kubelets) {
    stateful_set(plane, "db", 3).await;
    stateful_set(plane, "api", 1).await;
    stateful_set(plane, "web", 2).await;
    budget(plane, "db", "db", json!({ "maxUnavailable": 1 })).await;
    budget(plane, "api", "api", json!({ "minAvailable": 1 })).await;
    allows(plane, "db", 1).await;
    allows(plane, "api", 0).await;
    objects::create_node(&plane.admin(), &objects::node("b").with_ready("True")).await.unwrap();
    // The API server adds the taint to each new node; the node lifecycle controller would remove it.
    plane.kubectl(&["taint", "node", "b", "node.kubernetes.io/not-ready-"]).await.unwrap().text().unwrap();
    let naked = objects::pod(NS, "naked").on_node("a").with_grace(5).with_phase("Running");
    objects::create_pod(&plane.admin(), &naked).await.unwrap();
    wait_until("all pods are ready on a", async || check_that(on_node(plane, "a").await.len() == 7, "not yet")).await;

    explained(plane).await;
    planned(plane).await;
    kubelets.watches.store(true, Ordering::SeqCst);
    drained(plane).await;
    assert_eq!(kubelets.most_down.load(Ordering::SeqCst), 1, "pods of db that were down at the same time");
}

/// `explain pdb` names PDBs that never allow a disruption, and how to change that.
async fn explained(plane: &ControlPlane) {
    let text = ends_with(plane, 3, &["explain", "pdb", "-n", NS, "api"]).await;
    assert!(text.contains("It can never be more while replicas is 1"), "{text}");
    assert!(text.contains("maxUnavailable: 1 in place of minAvailable: 1"), "{text}");
    let text = ends_with(plane, 0, &["explain", "pdb", "-n", NS, "db", "-o", "json"]).await;
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&json["verdict"], &json["healthy"], &json["needed"]), (&json!("Allows"), &json!(3), &json!(2)));
    let list = ends_with(plane, 3, &["explain", "pdb", "-o", "yaml"]).await;
    assert!(
        list.contains("kind: BudgetExplanationList") && list.contains("verdict: DisruptionsNeverAllowed"),
        "{list}"
    );
    let table = ends_with(plane, 3, &["explain", "pdb"]).await;
    assert!(table.contains("3 healthy - 2 needed = 1") && table.contains("DisruptionsNeverAllowed"), "{table}");
    let none = pod_safety(plane, &["explain", "pdb", "-n", NS, "none"]).await;
    assert_eq!(none.status.code(), Some(1), "{none:?}");
    let expected = "pod-safety: there is no PodDisruptionBudget none in namespace shop. kubectl get pdb -A";
    assert!(none.stderr.starts_with(expected), "{none:?}");
}

/// The plan names what blocks, from dry-run evictions of the API server, and nothing has changed.
async fn planned(plane: &ControlPlane) {
    let text = ends_with(plane, 3, &["drain", "a", "-o", "json"]).await;
    let plan: Value = serde_json::from_str(&text).unwrap();
    let rows = rows(&plan);
    let row = |name: &str| rows.get(name).map(|(action, reason)| (action.as_str(), reason.as_str()));
    assert_eq!(row("api-0"), Some(("Blocked", "DisruptionsNeverAllowed")), "{text}");
    assert_eq!(row("naked"), Some(("Blocked", "Unmanaged")));
    for name in ["db-0", "db-1", "db-2"] {
        assert_eq!(row(name), Some(("Evict", "BudgetAllows")), "{text}");
    }
    assert_eq!(row("web-0"), Some(("Evict", "NoBudget")));
    let steps: Vec<_> = plan["pods"].as_array().unwrap().iter().filter_map(|pod| pod["step"].as_u64()).collect();
    assert_eq!(steps, [1, 1, 1, 2, 3], "web-0, web-1 and the first of db go together");
    let dry_runs: Vec<_> = plan["pods"].as_array().unwrap().iter().filter(|pod| !pod["dryRun"].is_null()).collect();
    assert_eq!(dry_runs.len(), 6, "everything but the unmanaged pod");
    assert_eq!(plan["pods"][0]["goesTo"]["node"], "b");
    let table = ends_with(plane, 3, &["drain", "a"]).await;
    assert!(table.contains("pdb api: 1 healthy - 1 needed = 0, never more while replicas is 1"), "{table}");
    assert!(table.contains("explain pdb -n shop api"), "{table}");
    // A dry run consumes nothing, and --apply refuses before any change.
    allows(plane, "db", 1).await;
    let refused = ends_with(plane, 3, &["drain", "a", "--apply"]).await;
    assert!(refused.contains("naked") && refused.contains("Nothing was changed"), "{refused}");
    let node = Api::<Node>::all(plane.admin()).get("a").await.unwrap();
    assert_eq!(node.spec.and_then(|spec| spec.unschedulable), None);
    assert_eq!(on_node(plane, "a").await.len(), 7);
    let unknown = pod_safety(plane, &["drain", "none"]).await;
    assert_eq!(unknown.status.code(), Some(1), "{unknown:?}");
    assert!(unknown.stderr.starts_with("pod-safety: there is no node none. kubectl get nodes"), "{unknown:?}");
}

/// With confirmation, and without the permanently blocking PDB, the node is emptied.
async fn drained(plane: &ControlPlane) {
    let args = ["drain", "a", "--apply", "--skip", "shop/api-0", "--evict-unmanaged", "--timeout", "5m"];
    let log = ends_with(plane, 0, &args).await;
    assert!(log.contains("node/a cordoned") && log.contains("node/a drained: 6 gone"), "{log}");
    for name in ["db-0", "db-1", "db-2", "web-0", "web-1", "naked"] {
        assert!(log.contains(&format!("pod/shop/{name} evicted, terminates within 5s")), "{log}");
        assert!(log.contains(&format!("pod/shop/{name} gone")), "{log}");
    }
    assert_eq!(on_node(plane, "a").await, ["api-0"]);
    // A timeout has its own exit code, and the message states that the node stays cordoned.
    plane.kubectl(&["delete", "pdb", "-n", NS, "api"]).await.unwrap().text().unwrap();
    budget(plane, "api", "api", json!({ "maxUnavailable": 1 })).await;
    allows(plane, "api", 1).await;
    let finalizer = json!({ "metadata": { "finalizers": ["example.com/stays"] } });
    let patch = ["patch", "pod", "-n", NS, "api-0", "--type=merge", "-p", &finalizer.to_string()];
    plane.kubectl(&patch).await.unwrap().text().unwrap();
    let log = ends_with(plane, 5, &["drain", "a", "--apply", "--timeout", "4s"]).await;
    assert!(log.contains("pod/shop/api-0 still exists") && log.contains("stays cordoned"), "{log}");
}
