//! `pod-safety maintain`, the whole way, killed again and again: how far it is stands in the cluster.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use pod_safety_control_plane::rigs::Rigs;
use pod_safety_control_plane::{
    Component, ControlPlane, Options, Output, PodSafety, check_that, observe, until, workloads,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::machine::Machine;
use super::{
    NAMESPACE, apply, kubelets, leader_beside, node_fence_of, policy, spare_machines, switch_log, until_phase,
};

const NODE: &str = "sick";
const PAUSE: &str = "pod-safety.dev/pause-fencing";

struct Fixture {
    plane: ControlPlane,
    _pod_safety: PodSafety,
    machine: Arc<Machine>,
    _kcm: [Component; 2],
    _kubelets: JoinSet<()>,
    /// It has the files that are switched.
    _rigs: Rigs,
}

async fn fixture() -> Fixture {
    let rigs = Rigs::new().await.unwrap();
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let kubeconfig = plane.install_pod_safety().await.unwrap();
    plane.namespace(NAMESPACE).await.unwrap();
    let machine = switch_log(&plane, &rigs, NODE).await;
    let mut all = policy(NODE, NODE, NODE);
    (all["spec"]["when"], all["spec"]["brakes"]["collateralSeconds"]) = (json!("Always"), json!(0));
    apply(&plane, &all).await;
    let kubelets = kubelets(&plane, spare_machines().iter().chain([&machine]));
    let (theirs, ours) =
        leader_beside(&plane, &kubeconfig, "statefulset-controller,disruption-controller", &rigs).await;
    Fixture { plane, _pod_safety: ours, machine, _kcm: theirs, _kubelets: kubelets, _rigs: rigs }
}

const POWER_OFF: [&str; 3] = ["--power-off", "--confirm=switch off sick", "--reason=new disks"];
const FINISH: [&str; 2] = ["--finish", "--reason=new disks are in"];

impl Fixture {
    async fn maintain(&self, flags: &[&str]) -> Output {
        let args = [&["maintain", NODE, "--timeout=3m"], flags].concat();
        self.plane.start_pod_safety_once(&self.plane.admin_kubeconfig(), &args).await.unwrap()
    }

    /// It is killed (SIGKILL) as soon as this is so.
    async fn killed_when(&self, flags: &[&str], what: &str, so: impl AsyncFn(&Node) -> bool) {
        let so = until(what, async || {
            let node = self.node().await;
            check_that(so(&node).await, format!("{node:?}"))
        });
        tokio::select! {
            biased;
            seen = so => seen.unwrap(),
            output = self.maintain(flags) => panic!("it ended before {what}: {output:?}"),
        }
    }

    async fn finalizers(&self, finalizers: &Value) {
        let patch = json!({ "metadata": { "finalizers": finalizers } }).to_string();
        let args = ["patch", "pod", "-n", NAMESPACE, "db-0", "--type=merge", "-p", &patch];
        self.plane.kubectl(&args).await.unwrap().text().unwrap();
    }

    async fn node(&self) -> Node {
        Api::<Node>::all(self.plane.admin()).get(NODE).await.unwrap()
    }
}

fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true))
}

fn is_paused(node: &Node) -> bool {
    node.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(PAUSE))
}

/// The status of a condition; empty: it is not there.
fn condition_status(node: &Node, kind: &str) -> String {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let found = conditions.into_iter().flatten().find(|one| one.type_ == kind);
    found.map(|one| one.status.clone()).unwrap_or_default()
}

/// DrainInProgress, Drained, MaintenanceInProgress.
fn lifecycle(node: &Node) -> [String; 3] {
    ["DrainInProgress", "Drained", "MaintenanceInProgress"].map(|kind| condition_status(node, kind))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn maintain_completes_though_the_command_is_killed_at_each_step() {
    let scene = fixture().await;
    apply(&scene.plane, &workloads::stateful_set_near(NAMESPACE, "db", NODE)).await;
    until("the database runs there", async || {
        let pod = observe::find_pod(&scene.plane.admin(), NAMESPACE, "db-0").await.unwrap();
        let running = pod.as_ref().and_then(|pod| pod.status.as_ref()?.phase.clone());
        check_that(running.as_deref() == Some("Running"), format!("{pod:?}"))
    })
    .await
    .unwrap();
    a_dry_run_changes_nothing(&scene).await;
    // Its end takes as long as somebody else wants.
    scene.finalizers(&json!(["example.com/backup"])).await;

    scene.killed_when(&POWER_OFF, "it is cordoned", async |node| is_cordoned(node)).await;
    assert_eq!(lifecycle(&scene.node().await), ["True", "False", ""], "what it was doing");
    assert!(scene.machine.has_power() && node_fence_of(&scene.plane, NODE).await.is_none());

    scene.finalizers(&Value::Null).await;
    let asked = async |_: &Node| node_fence_of(&scene.plane, NODE).await.is_some();
    scene.killed_when(&POWER_OFF, "it is to be switched off", asked).await;
    assert_eq!(lifecycle(&scene.node().await)[..2], ["False", "True"]);
    the_node_is_switched_off_and_stays_off(&scene).await;

    let output = scene.maintain(&POWER_OFF).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let node = scene.node().await;
    assert_eq!(lifecycle(&node), ["False", "True", "True"]);
    assert!(is_paused(&node) && is_cordoned(&node) && !scene.machine.has_power());

    scene.killed_when(&FINISH, "the pause is over", async |node| !is_paused(node)).await;
    let output = scene.maintain(&FINISH).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let node = scene.node().await;
    assert_eq!(lifecycle(&node), ["False", "False", "False"]);
    assert!(!is_cordoned(&node) && !is_paused(&node));
    assert_eq!((scene.machine.boots(), scene.machine.has_power()), (2, true));
    until_phase(&scene.plane, NODE, "Done").await;
    assert_eq!(
        scene.plane.list("nodefences").await.unwrap().len(),
        1,
        "one incident, however often it was asked for"
    );
}

async fn a_dry_run_changes_nothing(scene: &Fixture) {
    let output = scene.maintain(&["--power-off", "--dry-run"]).await;
    assert!(
        output.stdout.contains("shop/db-0") && output.stdout.contains("Nothing was changed"),
        "{output:?}"
    );
    let node = scene.node().await;
    assert_eq!((lifecycle(&node), is_cordoned(&node)), (<[String; 3]>::default(), false));
    assert_eq!(scene.plane.list("nodefences").await.unwrap(), Vec::<Value>::new());
    let refused = scene.maintain(&["--power-off", "--confirm=switch off other", "--reason=x"]).await;
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
    assert!(!is_cordoned(&scene.node().await));
}

/// No command runs meanwhile, and the policy would switch it on.
async fn the_node_is_switched_off_and_stays_off(scene: &Fixture) {
    until_phase(&scene.plane, NODE, "Fenced").await;
    let said = observe::event(&scene.plane.admin(), "default", NODE, "MachinePoweredOff").await.unwrap();
    assert!(!scene.machine.has_power(), "{said}");
    let fence = node_fence_of(&scene.plane, NODE).await.unwrap();
    assert_eq!(fence["spec"]["keepOff"], true, "{fence:#}");
    assert_eq!(scene.plane.list("fenceevidences").await.unwrap().len(), 1);
}
