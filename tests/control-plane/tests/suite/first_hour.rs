//! The clusters of README and docs/kind.md without kind: kube-controller-manager runs with the flags of the cluster that the page creates,
//! beside the real scheduler, and pod-safety with the values of the page's `helm install`. Both are read from the page. An ordinary pod
//! must be scheduled, a PodDisruptionBudget must get a status, and `doctor` must list the controllers correctly.
#![expect(clippy::disallowed_methods, reason = "tests drive a real cluster in real time")]

use std::time::Duration;

use pod_safety_control_plane::objects::{self, PodExt as _};
use pod_safety_control_plane::{Component, ControlPlane, Options, PodSafety, check_that, wait_until};
use pod_safety_locks::documents::{commands, split_words};
use pod_safety_locks::repository;
use serde_json::{Value, json};

use crate::chart;
use crate::commands::{apply, run};

/// The value of `--controllers` that kubeadm sets by default.
const OF_KUBEADM: &str = "*,bootstrapsigner,tokencleaner";
/// Doctor's message for two controller managers without conflicts, and for two that leave a duty undone.
const BESIDE: &str = "pod-safety runs beside it";
const IN_ITS_PLACE: &str = "in its place";
const ABOUT_BOTH: [&str; 3] = [BESIDE, IN_ITS_PLACE, "node-lifecycle-controller"];
const NODES: [&str; 3] = ["control-plane", "worker-a", "worker-b"];

/// The words of the first command of the page with this prefix.
fn typed(page: &str, begins: &str) -> Vec<String> {
    let commands = commands().unwrap();
    let command = commands.iter().find(|one| one.place.starts_with(page) && one.text.starts_with(begins));
    split_words(&command.unwrap_or_else(|| panic!("{page} has no command {begins:?}")).text)
}

/// The flags of kube-controller-manager in the cluster that this command creates.
fn flags_of_kcm(create: &[String]) -> Vec<(String, String)> {
    let config = create.iter().skip_while(|word| *word != "--config").nth(1);
    let Some(config) = config else { return vec![("controllers".to_owned(), OF_KUBEADM.to_owned())] };
    let cluster: Value = serde_saphyr::from_str(&std::fs::read_to_string(repository().join(config)).unwrap()).unwrap();
    let patches = cluster["kubeadmConfigPatches"].as_array().unwrap().iter();
    let patches = patches.map(|patch| serde_saphyr::from_str::<Value>(patch.as_str().unwrap()).unwrap());
    let of_cluster = patches.filter(|patch| patch["kind"] == "ClusterConfiguration");
    let flags: Vec<(String, String)> = of_cluster
        .flat_map(|patch| patch["controllerManager"]["extraArgs"].as_object().unwrap().clone())
        .map(|(flag, value)| (flag, value.as_str().unwrap().to_owned()))
        .collect();
    assert!(!flags.is_empty(), "{config} gives kube-controller-manager no flag");
    flags
}

/// A cluster of a page, without kubelets.
struct Cluster {
    plane: ControlPlane,
    pod_safety: PodSafety,
    _kubernetes: [Component; 2],
}

impl Cluster {
    /// Created by the block of one page, and installed by `helm install` of one.
    async fn create(created_by: &str, installed_by: &str) -> Self {
        let plane = ControlPlane::start(Options::default()).await.unwrap();
        let flags = flags_of_kcm(&typed(created_by, "kind create cluster"));
        let (controllers, others): (Vec<_>, Vec<_>) = flags.into_iter().partition(|(flag, _)| flag == "controllers");
        let controllers = &controllers[0].1;
        let others: Vec<String> = others.iter().map(|(flag, value)| format!("--{flag}={value}")).collect();
        let others: Vec<&str> = others.iter().map(String::as_str).collect();
        let kubernetes = [
            plane.kube_controller_manager(controllers, &others).await.unwrap(),
            plane.kube_scheduler(&[]).await.unwrap(),
        ];
        for node in NODES {
            objects::create_node(&plane.admin(), &objects::node(node)).await.unwrap();
        }
        tokio::spawn(heartbeats(plane.admin()));
        // As visible in kubeadm's static pod.
        let mut pod = objects::pod("kube-system", "kube-controller-manager-control-plane").mirror();
        pod = pod.with_label("component", "kube-controller-manager").on_node("control-plane");
        let command = ["kube-controller-manager".to_owned(), format!("--controllers={controllers}")];
        pod.spec.as_mut().unwrap().containers[0].command = Some(command.to_vec());
        objects::create_pod(&plane.admin(), &pod).await.unwrap();
        let install = typed(installed_by, "helm install");
        let absolute = |word: &String| match word.strip_prefix("charts/") {
            Some(rest) => repository().join("charts").join(rest).to_str().unwrap().to_owned(),
            None => word.clone(),
        };
        let install: Vec<String> = install[1..].iter().map(absolute).collect();
        let install: Vec<&str> = install.iter().map(String::as_str).collect();
        plane.helm(&install).await.unwrap().text().unwrap();
        let account = plane.service_account("pod-safety", "pod-safety").await.unwrap();
        let mut pod_safety = chart::start(&plane, "pod-safety", &account).await;
        pod_safety.is_leader().await.unwrap();
        Self { plane, pod_safety, _kubernetes: kubernetes }
    }

    /// Creates an ordinary pod.
    async fn ordinary_pod(&self) {
        let pod = objects::pod("default", "web").with_label("app", "web");
        objects::create_pod(&self.plane.admin(), &pod).await.unwrap();
    }

    async fn it_is_scheduled(&self) {
        wait_until("the pod has a node", async || {
            let pod = self.get(&["pod", "web"]).await;
            check_that(pod["spec"]["nodeName"].is_string(), pod["status"].to_string())
        })
        .await;
    }

    async fn get(&self, what: &[&str]) -> Value {
        let args = [&["get", "-o", "json"][..], what].concat();
        serde_json::from_str(&self.plane.kubectl(&args).await.unwrap().text().unwrap()).unwrap()
    }

    async fn budget_gets_a_status(&self) {
        let budget = json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": { "namespace": "default", "name": "web" },
            "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } } });
        apply(&self.plane, &budget).await;
        wait_until("the PodDisruptionBudget has a status", async || {
            let status = self.get(&["pdb", "web"]).await["status"].clone();
            check_that(status["observedGeneration"] == 1 && status["desiredHealthy"] == 1, status.to_string())
        })
        .await;
    }

    /// Doctor's message about the controllers of both processes, as `health: sentence`.
    async fn lists_controllers_by_process(&self) -> String {
        let output = run(&self.plane, &self.plane.admin_kubeconfig(), &["doctor", "-o", "json"]).await;
        let document: Value = serde_json::from_str(&output.stdout).unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let checks = document["checks"].as_array().unwrap().iter();
        let expected: Vec<_> = checks.map(|one| format!("{}: {}", text(&one["health"]), text(&one["what"]))).collect();
        println!("{}", expected.join("\n"));
        expected.into_iter().filter(|one| ABOUT_BOTH.iter().any(|part| one.contains(part))).collect()
    }
}

/// The kubelets' only task here. It ends with its control plane.
async fn heartbeats(admin: kube::Client) {
    loop {
        for node in NODES {
            if objects::renew_lease(&admin, node).await.is_err() {
                return;
            }
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

#[tokio::test]
async fn documented_clusters_schedule_a_pod_and_keep_a_pdb() {
    for (page, expected) in [("README.md", BESIDE), ("docs/kind.md", IN_ITS_PLACE)] {
        let mut cluster = Cluster::create(page, page).await;
        cluster.ordinary_pod().await;
        cluster.it_is_scheduled().await;
        cluster.budget_gets_a_status().await;
        let controllers = cluster.lists_controllers_by_process().await;
        assert!(controllers.starts_with("Fine: ") && controllers.contains(expected), "{page}: {controllers}");
        cluster.pod_safety.terminate().await.unwrap();
    }
}

/// README created the cluster of the mode `replace` and installed the mode `guard`: no process ran the node lifecycle controller.
#[tokio::test]
async fn bug_nothing_was_scheduled_in_the_cluster_of_one_mode_with_the_values_of_the_other() {
    let cluster = Cluster::create("docs/kind.md", "README.md").await;
    cluster.ordinary_pod().await;
    // The node lifecycle controller checks the nodes every five seconds.
    tokio::time::sleep(Duration::from_secs(15)).await;
    let pod = cluster.get(&["pod", "web"]).await;
    let refusal = pod["status"]["conditions"][0]["message"].as_str().unwrap_or_default();
    assert!(refusal.contains("untolerated taint"), "{pod}");
    let controllers = cluster.lists_controllers_by_process().await;
    assert!(controllers.starts_with("Problem: ") && controllers.contains("node-lifecycle-controller"), "{controllers}");
}
