//! `explain`, `ui`, `doctor`, the dashboard and the alerts describe one cluster without contradictions. `status` is also read: it is what
//! `ui` shows.
//!
//! Each view is converted to the same terms with their counts: the reasons why pods or nodes wait, the states of fence devices, whether a
//! process leads. A view without the data states that, and shows nothing green.

mod budgets;
mod views;

use std::collections::BTreeMap;

use pod_safety_control_plane::objects::{self, NodeExt as _};
use pod_safety_control_plane::rigs::Rigs;
use pod_safety_control_plane::{ControlPlane, PodSafety, check_that as so, observe, wait_until};
use serde_json::json;

use crate::commands::{apply, run};
use crate::fencing::device_of;
use crate::prometheus::HASTY;
use crate::prometheus::causes::policy;
use crate::prometheus::kubelets::Kubelets;
use crate::prometheus::server::Prometheus;
use crate::questions::{browser::Browser, pod, ui};

use views::{Fact, Views, ViewsRead, WordCounts, word_counts};

const NS: &str = "shop";
/// `blocked` has no FencePolicy; the device of `lost` cannot be reached; `liar` is switched off.
const LOST: [&str; 3] = ["blocked", "lost", "liar"];
/// A pod of each.
const PODS: [&str; 3] = ["orders-0", "orders-1", "orders-2"];

/// These views have this result; the others a different one.
fn expect_views(counts: &WordCounts, views: &[&'static str], others: &[(&'static str, WordCounts)]) -> Views {
    views.iter().map(|view| (*view, counts.clone())).chain(others.iter().cloned()).collect()
}

struct Fixture {
    plane: ControlPlane,
    prometheus: Prometheus,
    browser: Browser,
}

impl Fixture {
    /// Waits until every view that shows a fact has this result for it.
    async fn until_views_agree<const N: usize>(&mut self, what: &str, expected: [(Fact, Views); N]) {
        let expected = BTreeMap::from(expected);
        let (_ui, link) = ui(&self.plane.admin_kubeconfig()).await;
        let tab = self.browser.open(&link).await;
        let Self { plane, prometheus, browser } = self;
        let browser = tokio::sync::Mutex::new(browser);
        wait_until(&format!("the five views agree {what}"), async || {
            let sight = ViewsRead::read(plane, prometheus, &mut **browser.lock().await, &tab).await?;
            let observed: BTreeMap<_, _> = expected.keys().map(|fact| (*fact, sight.views_of(*fact))).collect();
            so(observed == expected, format!("they say {observed:#?}\n{}", sight.to_text()))
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_ui_doctor_dashboard_and_alerts_agree_on_one_cluster() {
    let rigs = Rigs::new().await.unwrap();
    let (plane, kubeconfig) = ControlPlane::with_pod_safety().await.unwrap();
    let prometheus = Prometheus::start(&plane).await;
    plane.namespace(NS).await.unwrap();
    let kubelets = Kubelets::start(&plane.admin()).await;
    let mut fixture = Fixture { plane, prometheus, browser: Browser::start() };
    three_nodes_are_lost_with_a_pod_each(&fixture.plane, &kubelets).await;
    without_a_leader_nothing_is_green(&mut fixture).await;
    let pod_safety = with_a_leader_all_views_agree(&mut fixture, &kubeconfig, &rigs).await;
    a_reader_without_rights_sees_nothing_green(&mut fixture).await;
    drop(pod_safety);
}

async fn three_nodes_are_lost_with_a_pod_each(plane: &ControlPlane, kubelets: &Kubelets) {
    for (name, node) in PODS.into_iter().zip(LOST) {
        pod(plane, NS, name, node).await;
    }
    kubelets.stop_reporting(&LOST);
    for node in LOST {
        // As written by node-lifecycle. A kubelet's last write may come before it.
        wait_until("the node is marked", async || {
            let status = objects::node(node).with_ready("Unknown").status.unwrap_or_default();
            objects::set_node_status(&plane.admin(), node, &status).await.map_err(|error| error.to_string())
        })
        .await;
    }
    for pod in PODS {
        plane.kubectl(&["delete", "pod", "-n", NS, pod, "--wait=false"]).await.unwrap().text().unwrap();
    }
    // No server listens there.
    let nobody = json!({ "address": "https://127.0.0.1:1", "insecure": "true" });
    let short = json!({ "powerOff": "1s", "powerOn": "1s", "status": "1s" });
    let bmc = json!({ "driver": "Redfish", "nodeParameters": { "lost": nobody }, "timeouts": short });
    apply(plane, &device_of("bmc", "lost", bmc)).await;
}

/// It may read everything except the admission policies, which would show that they deny its account, and may not write its Lease.
async fn idle(plane: &ControlPlane) -> PodSafety {
    let kubeconfig = plane.user_kubeconfig("idle", &[]).unwrap();
    let groups =
        ["", "apps", "autoscaling", "batch", "coordination.k8s.io", "pod-safety.dev", "policy", "storage.k8s.io"];
    let rule = json!({ "apiGroups": groups, "resources": ["*"], "verbs": ["get", "list", "watch"] });
    let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "reads" }, "rules": [rule] });
    apply(plane, &role).await;
    let bind = ["create", "clusterrolebinding", "reads", "--clusterrole=reads", "--user=idle"];
    plane.kubectl(&bind).await.unwrap().text().unwrap();
    let mut pod_safety = plane.pod_safety("idle", &kubeconfig, HASTY).await.unwrap();
    pod_safety.ready().await.unwrap();
    pod_safety
}

/// "Held for a person: none" was green, and so were nodes that no process counted: for Prometheus a process that does not lead has no
/// holds. `ui` and `status` did not show a device that was never checked.
async fn without_a_leader_nothing_is_green(fixture: &mut Fixture) {
    let pod_safety = [idle(&fixture.plane).await];
    fixture.prometheus.scrapes_and(&pod_safety, Vec::new()).await;
    let (three, unseen, none) =
        (word_counts(&[("NoEvidence", 3)]), word_counts(&[("Unseen", 1)]), word_counts(&[("none", 1)]));
    let pods = expect_views(&three, &["explain", "status", "ui"], &[("dashboard", None), ("alerts", None)]);
    // There is no alert for a device that has not been checked yet.
    let devices = expect_views(&unseen, &["status", "ui", "doctor", "dashboard"], &[]);
    let leader = expect_views(&none, &["status", "ui", "doctor", "dashboard", "alerts"], &[]);
    let expected = [(Fact::Pods, pods), (Fact::Devices, devices), (Fact::Leader, leader)];
    fixture.until_views_agree("while no process leads", expected).await;
}

async fn with_a_leader_all_views_agree(fixture: &mut Fixture, kubeconfig: &std::path::Path, rigs: &Rigs) -> PodSafety {
    let switch = rigs.file("liar.power");
    std::fs::write(&switch, "on").unwrap();
    let dummy = json!({ "driver": "Agent", "agent": "fence_dummy", "nodeParameters": { "liar": { "status_file": switch } },
        "timeouts": { "powerOff": "10s", "powerOn": "10s", "status": "10s" } });
    apply(&fixture.plane, &device_of("dummy", "liar", dummy)).await;
    for (node, device) in [("lost", "bmc"), ("liar", "dummy")] {
        apply(&fixture.plane, &policy(node, device)).await;
    }
    let agents = format!("--fence-agents-path={}", rigs.agents().display());
    // One process must lead, however busy the machine is.
    let patient = ["--leader-elect-lease-duration=60s", "--leader-elect-renew-deadline=50s", agents.as_str()];
    let args = HASTY.into_iter().filter(|arg| !arg.starts_with("--leader-elect")).chain(patient);
    let mut pod_safety = fixture.plane.pod_safety("leads", kubeconfig, args).await.unwrap();
    pod_safety.ready().await.unwrap();
    pod_safety.is_leader().await.unwrap();
    let pod_safety = [pod_safety];
    fixture.prometheus.scrapes_and(&pod_safety, Vec::new()).await;
    wait_until("the pod of the node that was switched off is released", async || {
        let pod = observe::find_pod(&fixture.plane.admin(), NS, PODS[2]).await;
        so(matches!(pod, Ok(None)), format!("{pod:?}"))
    })
    .await;
    let all = ["explain", "status", "ui", "dashboard"];
    let waits = word_counts(&[("AwaitingOperator", 1)]);
    let nodes = word_counts(&[("AwaitingOperator", 1), ("MachinePoweredOff", 1)]);
    let (pods, person) = (word_counts(&[("NoEvidence", 2)]), word_counts(&[("objects", 4)]));
    let (device, leads) = (word_counts(&[("NotReady", 1)]), word_counts(&[("leads", 1)]));
    let not_explained = ["status", "ui", "doctor", "dashboard", "alerts"];
    let expected = [
        (Fact::Pods, expect_views(&pods, &all, &[("alerts", pods.clone())])),
        (Fact::Nodes, expect_views(&nodes, &all, &[("alerts", waits)])),
        (Fact::NeedsOperator, expect_views(&person, &["status", "ui", "dashboard"], &[])),
        (
            Fact::Released,
            expect_views(&word_counts(&[("gone", 1)]), &["explain"], &[("dashboard", word_counts(&[("PowerOff", 1)]))]),
        ),
        (Fact::Devices, expect_views(&device, &not_explained, &[])),
        (Fact::Leader, expect_views(&leads, &not_explained, &[])),
    ];
    fixture.until_views_agree("on pods that wait or were released, incidents and devices", expected).await;
    let [pod_safety] = pod_safety;
    pod_safety
}

/// The commands and the web UI of a user without read rights; Prometheus data does not depend on the user.
async fn a_reader_without_rights_sees_nothing_green(fixture: &mut Fixture) {
    let anna = fixture.plane.user_kubeconfig("anna", &[]).unwrap();
    for (command, verdict) in [("status", "Unknown"), ("doctor", "Unknown")] {
        let output = run(&fixture.plane, &anna, &[command, "-o", "json"]).await;
        let document: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
        assert_eq!((output.status.code(), &document["verdict"]), (Some(6), &json!(verdict)), "{document:#}");
    }
    let (_ui, link) = ui(&anna).await;
    let tab = fixture.browser.open(&link).await;
    let browser = tokio::sync::Mutex::new(&mut fixture.browser);
    wait_until("the page of who may read nothing says that nothing is known", async || {
        let mut browser = browser.lock().await;
        let text = browser.text(&tab).await;
        so(text.contains("It is not known whether something needs a person"), text)
    })
    .await;
    assert_eq!(browser.into_inner().evaluate(&tab, views::GREEN).await, json!(0), "nothing is green");
}
