//! `explain`, `ui`, `doctor`, the dashboard and the alerts are asked about one cluster, and none contradicts another. `status`
//! is read too: it is what `ui` shows.
//!
//! Each answer is put into the same words, with how often each was said: the reason for which pods or nodes wait, the state
//! of fence devices, whether a process leads. A view that does not know says so, and shows nothing green.
#![expect(clippy::unwrap_used, reason = "scenarios may fail as loudly as the test that runs them")]

mod budgets;
mod seen;

use std::collections::BTreeMap;

use pod_safety_control_plane::objects::{self, NodeExt as _};
use pod_safety_control_plane::rigs::Rigs;
use pod_safety_control_plane::{ControlPlane, Options, PodSafety, check_that as so, observe, until};
use serde_json::json;

use crate::commands::{apply, run};
use crate::fencing::device_of;
use crate::prometheus::HASTY;
use crate::prometheus::causes::policy;
use crate::prometheus::kubelets::Kubelets;
use crate::prometheus::server::Prometheus;
use crate::questions::{browser::Browser, pod, ui};

use seen::{Fact, Views, ViewsRead, WordCounts, word_counts};

const NS: &str = "shop";
/// `blocked` has no FencePolicy; the device of `lost` cannot be reached; `liar` is switched off.
const LOST: [&str; 3] = ["blocked", "lost", "liar"];
/// A pod of each.
const PODS: [&str; 3] = ["orders-0", "orders-1", "orders-2"];

/// These views say this; the others something else.
fn expect_views(said: &WordCounts, views: &[&'static str], others: &[(&'static str, WordCounts)]) -> Views {
    views.iter().map(|view| (*view, said.clone())).chain(others.iter().cloned()).collect()
}

struct Fixture {
    plane: ControlPlane,
    prometheus: Prometheus,
    browser: Browser,
}

impl Fixture {
    /// Until every view that has words for a fact says this of it.
    async fn until_views_agree<const N: usize>(&mut self, what: &str, wanted: [(Fact, Views); N]) {
        let wanted = BTreeMap::from(wanted);
        let (_ui, link) = ui(&self.plane.admin_kubeconfig()).await;
        let tab = self.browser.open(&link).await;
        let Self { plane, prometheus, browser } = self;
        let browser = tokio::sync::Mutex::new(browser);
        until(&format!("the five views agree {what}"), async || {
            let sight = ViewsRead::read(plane, prometheus, &mut **browser.lock().await, &tab).await?;
            let found: BTreeMap<_, _> = wanted.keys().map(|fact| (*fact, sight.views_of(*fact))).collect();
            so(found == wanted, format!("they say {found:#?}\n{}", sight.to_text()))
        })
        .await
        .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_ui_doctor_dashboard_and_alerts_agree_on_one_cluster() {
    let rigs = Rigs::new().await.unwrap();
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let kubeconfig = plane.install_pod_safety().await.unwrap();
    let prometheus = Prometheus::start(&plane).await;
    plane.namespace(NS).await.unwrap();
    let kubelets = Kubelets::start(&plane.admin()).await;
    let mut stage = Fixture { plane, prometheus, browser: Browser::start() };
    three_nodes_are_lost_with_a_pod_each(&stage.plane, &kubelets).await;
    without_a_leader_nothing_is_green(&mut stage).await;
    let ours = with_a_leader_all_views_agree(&mut stage, &kubeconfig, &rigs).await;
    a_reader_without_rights_sees_nothing_green(&mut stage).await;
    drop(ours);
}

async fn three_nodes_are_lost_with_a_pod_each(plane: &ControlPlane, kubelets: &Kubelets) {
    for (name, node) in PODS.into_iter().zip(LOST) {
        pod(plane, NS, name, node).await;
    }
    kubelets.stop_reporting(&LOST);
    for node in LOST {
        // As node-lifecycle writes it. A kubelet that was about to write does so before.
        until("the node is marked", async || {
            let status = objects::node(node).with_ready("Unknown").status.unwrap_or_default();
            objects::set_node_status(&plane.admin(), node, &status).await.map_err(|error| error.to_string())
        })
        .await
        .unwrap();
    }
    for pod in PODS {
        plane.kubectl(&["delete", "pod", "-n", NS, pod, "--wait=false"]).await.unwrap().text().unwrap();
    }
    // Nobody listens there.
    let nobody = json!({ "address": "https://127.0.0.1:1", "insecure": "true" });
    let short = json!({ "powerOff": "1s", "powerOn": "1s", "status": "1s" });
    let bmc = json!({ "driver": "Redfish", "nodeParameters": { "lost": nobody }, "timeouts": short });
    apply(plane, &device_of("bmc", "lost", bmc)).await;
}

/// It may read everything but the admission policies, which would tell it that they deny its account, and may not write its Lease.
async fn idle(plane: &ControlPlane) -> PodSafety {
    let kubeconfig = plane.user_kubeconfig("idle", &[]).unwrap();
    let groups = [
        "",
        "apps",
        "autoscaling",
        "batch",
        "coordination.k8s.io",
        "pod-safety.dev",
        "policy",
        "storage.k8s.io",
    ];
    let rule = json!({ "apiGroups": groups, "resources": ["*"], "verbs": ["get", "list", "watch"] });
    let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "reads" }, "rules": [rule] });
    apply(plane, &role).await;
    let bind = ["create", "clusterrolebinding", "reads", "--clusterrole=reads", "--user=idle"];
    plane.kubectl(&bind).await.unwrap().text().unwrap();
    let mut ours = plane.pod_safety("idle", &kubeconfig, HASTY).await.unwrap();
    ours.ready().await.unwrap();
    ours
}

/// "Held for a person: none" was green, and so were nodes that nobody counted: to Prometheus the holds of a process that does
/// not lead are none. `ui` and `status` had no word for a device that was never checked.
async fn without_a_leader_nothing_is_green(stage: &mut Fixture) {
    let ours = [idle(&stage.plane).await];
    stage.prometheus.scrapes_and(&ours, Vec::new()).await;
    let (three, unseen, none) =
        (word_counts(&[("NoEvidence", 3)]), word_counts(&[("Unseen", 1)]), word_counts(&[("none", 1)]));
    let pods = expect_views(&three, &["explain", "status", "ui"], &[("dashboard", None), ("alerts", None)]);
    // There is no alert for a device that is not checked yet.
    let devices = expect_views(&unseen, &["status", "ui", "doctor", "dashboard"], &[]);
    let leader = expect_views(&none, &["status", "ui", "doctor", "dashboard", "alerts"], &[]);
    let wanted = [(Fact::Pods, pods), (Fact::Devices, devices), (Fact::Leader, leader)];
    stage.until_views_agree("while no process leads", wanted).await;
}

async fn with_a_leader_all_views_agree(
    stage: &mut Fixture,
    kubeconfig: &std::path::Path,
    rigs: &Rigs,
) -> PodSafety {
    let switch = rigs.file("liar.power");
    std::fs::write(&switch, "on").unwrap();
    let dummy = json!({ "driver": "Agent", "agent": "fence_dummy", "nodeParameters": { "liar": { "status_file": switch } },
        "timeouts": { "powerOff": "10s", "powerOn": "10s", "status": "10s" } });
    apply(&stage.plane, &device_of("dummy", "liar", dummy)).await;
    for (node, device) in [("lost", "bmc"), ("liar", "dummy")] {
        apply(&stage.plane, &policy(node, device)).await;
    }
    let agents = format!("--fence-agents-path={}", rigs.agents().display());
    // One process is to lead, however busy the machine is.
    let patient = ["--leader-elect-lease-duration=60s", "--leader-elect-renew-deadline=50s", agents.as_str()];
    let args = HASTY.into_iter().filter(|arg| !arg.starts_with("--leader-elect")).chain(patient);
    let mut ours = stage.plane.pod_safety("leads", kubeconfig, args).await.unwrap();
    ours.ready().await.unwrap();
    ours.is_leader().await.unwrap();
    let ours = [ours];
    stage.prometheus.scrapes_and(&ours, Vec::new()).await;
    until("the pod of the node that was switched off is released", async || {
        let pod = observe::find_pod(&stage.plane.admin(), NS, PODS[2]).await;
        so(matches!(pod, Ok(None)), format!("{pod:?}"))
    })
    .await
    .unwrap();
    let all = ["explain", "status", "ui", "dashboard"];
    let waits = word_counts(&[("AwaitingOperator", 1)]);
    let nodes = word_counts(&[("AwaitingOperator", 1), ("MachinePoweredOff", 1)]);
    let (pods, person) = (word_counts(&[("NoEvidence", 2)]), word_counts(&[("objects", 4)]));
    let (device, leads) = (word_counts(&[("NotReady", 1)]), word_counts(&[("leads", 1)]));
    let not_explained = ["status", "ui", "doctor", "dashboard", "alerts"];
    let wanted = [
        (Fact::Pods, expect_views(&pods, &all, &[("alerts", pods.clone())])),
        (Fact::Nodes, expect_views(&nodes, &all, &[("alerts", waits)])),
        (Fact::NeedsOperator, expect_views(&person, &["status", "ui", "dashboard"], &[])),
        (
            Fact::Released,
            expect_views(
                &word_counts(&[("gone", 1)]),
                &["explain"],
                &[("dashboard", word_counts(&[("PowerOff", 1)]))],
            ),
        ),
        (Fact::Devices, expect_views(&device, &not_explained, &[])),
        (Fact::Leader, expect_views(&leads, &not_explained, &[])),
    ];
    stage.until_views_agree("on pods that wait or were released, incidents and devices", wanted).await;
    let [ours] = ours;
    ours
}

/// The commands and the page of somebody who may read nothing; what Prometheus has does not depend on who asks.
async fn a_reader_without_rights_sees_nothing_green(stage: &mut Fixture) {
    let anna = stage.plane.user_kubeconfig("anna", &[]).unwrap();
    for (command, verdict) in [("status", "Unknown"), ("doctor", "Unknown")] {
        let output = run(&stage.plane, &anna, &[command, "-o", "json"]).await;
        let said: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
        assert_eq!((output.status.code(), &said["verdict"]), (Some(6), &json!(verdict)), "{said:#}");
    }
    let (_ui, link) = ui(&anna).await;
    let tab = stage.browser.open(&link).await;
    let browser = tokio::sync::Mutex::new(&mut stage.browser);
    until("the page of who may read nothing says that nothing is known", async || {
        let mut browser = browser.lock().await;
        let text = browser.text(&tab).await;
        so(text.contains("It is not known whether something needs a person"), text)
    })
    .await
    .unwrap();
    assert_eq!(browser.into_inner().evaluate(&tab, seen::GREEN).await, json!(0), "nothing is green");
}
