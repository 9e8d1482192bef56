//! `pod-safety maintain` from start to end, killed repeatedly: its progress is stored in the cluster.

use super::*;

const NODE: &str = "sick";
const PAUSE: &str = "pod-safety.dev/pause-fencing";

struct Fixture {
    plane: ControlPlane,
    _pod_safety: PodSafety,
    machine: Arc<Machine>,
    _components: [Component; 2],
    _kubelets: JoinSet<()>,
    /// Owns the files of the power switches.
    _rigs: Rigs,
}

async fn fixture() -> Fixture {
    let rigs = Rigs::new().await.unwrap();
    let (plane, kubeconfig) = ControlPlane::with_pod_safety().await.unwrap();
    plane.namespace(NAMESPACE).await.unwrap();
    let machine = switch_log(&plane, &rigs, NODE).await;
    let mut all = policy(NODE, NODE, NODE);
    (all["spec"]["when"], all["spec"]["brakes"]["collateralSeconds"]) = (json!("Always"), json!(0));
    apply(&plane, &all).await;
    let kubelets = kubelets(&plane, spare_machines().iter().chain([&machine]));
    let (components, pod_safety) =
        leader_beside(&plane, &kubeconfig, "statefulset-controller,disruption-controller", &rigs).await;
    Fixture { plane, _pod_safety: pod_safety, machine, _components: components, _kubelets: kubelets, _rigs: rigs }
}

const POWER_OFF: [&str; 3] = ["--power-off", "--confirm=switch off sick", "--reason=new disks"];
const FINISH: [&str; 2] = ["--finish", "--reason=new disks are in"];

impl Fixture {
    async fn maintain(&self, flags: &[&str]) -> Output {
        let args = [&["maintain", NODE, "--timeout=3m"], flags].concat();
        self.plane.start_pod_safety_once(&self.plane.admin_kubeconfig(), &args).await.unwrap()
    }

    /// Kills the command (SIGKILL) as soon as the condition is true.
    async fn killed_when(&self, flags: &[&str], what: &str, so: impl AsyncFn(&Node) -> bool) {
        let so = wait_until(what, async || {
            let node = self.node().await;
            check_that(so(&node).await, format!("{node:?}"))
        });
        tokio::select! {
            biased;
            () = so => {}
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

/// The status of a condition; empty if it does not exist.
fn condition_status(node: &Node, kind: &str) -> String {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let condition = conditions.into_iter().flatten().find(|one| one.type_ == kind);
    condition.map(|one| one.status.clone()).unwrap_or_default()
}

/// DrainInProgress, Drained, MaintenanceInProgress.
fn lifecycle(node: &Node) -> [String; 3] {
    ["DrainInProgress", "Drained", "MaintenanceInProgress"].map(|kind| condition_status(node, kind))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn maintain_completes_though_the_command_is_killed_at_each_step() {
    let fixture = fixture().await;
    apply(&fixture.plane, &workloads::stateful_set_near(NAMESPACE, "db", NODE)).await;
    wait_until("the database runs there", async || {
        let pod = observe::find_pod(&fixture.plane.admin(), NAMESPACE, "db-0").await.unwrap();
        let running = pod.as_ref().and_then(|pod| pod.status.as_ref()?.phase.clone());
        check_that(running.as_deref() == Some("Running"), format!("{pod:?}"))
    })
    .await;
    a_dry_run_changes_nothing(&fixture).await;
    // A finalizer of another client delays the end.
    fixture.finalizers(&json!(["example.com/backup"])).await;

    fixture.killed_when(&POWER_OFF, "it is cordoned", async |node| is_cordoned(node)).await;
    assert_eq!(lifecycle(&fixture.node().await), ["True", "False", ""], "what it was doing");
    assert!(fixture.machine.has_power() && node_fence_of(&fixture.plane, NODE).await.is_none());

    fixture.finalizers(&Value::Null).await;
    let is_requested = async |_: &Node| node_fence_of(&fixture.plane, NODE).await.is_some();
    fixture.killed_when(&POWER_OFF, "it is to be switched off", is_requested).await;
    assert_eq!(lifecycle(&fixture.node().await)[..2], ["False", "True"]);
    the_node_is_switched_off_and_stays_off(&fixture).await;

    let output = fixture.maintain(&POWER_OFF).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let node = fixture.node().await;
    assert_eq!(lifecycle(&node), ["False", "True", "True"]);
    assert!(is_paused(&node) && is_cordoned(&node) && !fixture.machine.has_power());

    fixture.killed_when(&FINISH, "the pause is over", async |node| !is_paused(node)).await;
    let output = fixture.maintain(&FINISH).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let node = fixture.node().await;
    assert_eq!(lifecycle(&node), ["False", "False", "False"]);
    assert!(!is_cordoned(&node) && !is_paused(&node));
    assert_eq!((fixture.machine.boots(), fixture.machine.has_power()), (2, true));
    until_phase(&fixture.plane, NODE, "Done").await;
    assert_eq!(fixture.plane.list("nodefences").await.unwrap().len(), 1, "one incident, however often asked for");
}

async fn a_dry_run_changes_nothing(fixture: &Fixture) {
    let output = fixture.maintain(&["--power-off", "--dry-run"]).await;
    assert!(output.stdout.contains("shop/db-0") && output.stdout.contains("Nothing was changed"), "{output:?}");
    let node = fixture.node().await;
    assert_eq!((lifecycle(&node), is_cordoned(&node)), (<[String; 3]>::default(), false));
    assert_eq!(fixture.plane.list("nodefences").await.unwrap(), Vec::<Value>::new());
    let refused = fixture.maintain(&["--power-off", "--confirm=switch off other", "--reason=x"]).await;
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
    assert!(!is_cordoned(&fixture.node().await));
}

/// No command runs meanwhile, and the policy would switch the machine on.
async fn the_node_is_switched_off_and_stays_off(fixture: &Fixture) {
    until_phase(&fixture.plane, NODE, "Fenced").await;
    let message = observe::event(&fixture.plane.admin(), "default", NODE, "MachinePoweredOff").await.unwrap();
    assert!(!fixture.machine.has_power(), "{message}");
    let fence = node_fence_of(&fixture.plane, NODE).await.unwrap();
    assert_eq!(fence["spec"]["keepOff"], true, "{fence:#}");
    assert_eq!(fixture.plane.list("fenceevidences").await.unwrap().len(), 1);
}
