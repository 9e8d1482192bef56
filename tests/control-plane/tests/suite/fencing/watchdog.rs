//! A node without a power switch: its agent guarantees that its pods have terminated, or that its watchdog has reset it.

mod guarded;

use guarded::{Guarded, TIMEOUT};

use super::*;

const NODE: &str = "guarded";
const DEVICE: &str = "watchdogs";

/// The device of docs/watchdog-lease.md, with a shorter reset time.
fn device() -> Value {
    let spec = json!({
        "driver": "WatchdogLease", "watchdogLease": { "classes": ["Hardware"], "resetSeconds": 1 },
        "monitorSeconds": 2,
    });
    device_of(DEVICE, NODE, spec)
}

struct Fixture {
    plane: ControlPlane,
    _pod_safety: PodSafety,
    node: Arc<Guarded>,
    _tasks: JoinSet<()>,
    _folder: tempfile::TempDir,
}

async fn fixture() -> Fixture {
    let (plane, kubeconfig) = ControlPlane::with_pod_safety().await.unwrap();
    plane.install_agents().await.unwrap();
    let (folder, mut tasks) = (tempfile::tempdir().unwrap(), JoinSet::new());
    for name in ["other", "third", "fourth"] {
        tasks.spawn(Machine::new(name, || true).run_kubelet(plane.admin()));
    }
    let node = Guarded::start(&plane, NODE, folder.path(), &mut tasks).await;
    plane.namespace(NAMESPACE).await.unwrap();
    apply(&plane, &device()).await;
    apply(&plane, &policy(NODE, NODE, DEVICE)).await;
    let reports = "--agent-reports-from=pod-safety";
    let pod_safety = leader(&plane, &kubeconfig, &[reports]).await;
    Fixture { plane, _pod_safety: pod_safety, node, _tasks: tasks, _folder: folder }
}

impl Fixture {
    async fn kubectl(&self, args: &[&str]) {
        self.plane.kubectl(args).await.unwrap().text().unwrap();
    }

    async fn until_target(&self, what: &str, is: impl Fn(&Value) -> bool) {
        wait_until(what, async || {
            let target = target(&self.plane, NODE).await;
            check_that(is(&target), format!("{target}\n{}", self.node.log()))
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_a_power_switch_is_released_by_its_watchdog_lease() {
    let fixture = fixture().await;
    a_watchdog_that_never_reset_a_machine_is_not_accepted(&fixture).await;
    a_drill_makes_the_watchdog_accepted(&fixture).await;
    pods_terminate_before_they_are_released(&fixture).await;
    the_machine_returns_with_another_boot_id(&fixture).await;
}

async fn a_watchdog_that_never_reset_a_machine_is_not_accepted(fixture: &Fixture) {
    let words = "keeper (firmware 0, kernel";
    fixture
        .until_target("what is missing is said", |target| {
            let message = target["message"].as_str().unwrap_or_default();
            message.contains(words) && message.contains("pod-safety drill --watchdog")
        })
        .await;
}

async fn a_drill_makes_the_watchdog_accepted(fixture: &Fixture) {
    fixture.kubectl(&["label", "node", NODE, "pod-safety.dev/canary=true"]).await;
    fixture.kubectl(&["cordon", NODE]).await;
    let drill = async |words: &str| {
        let confirm = format!("--confirm={words}");
        let args = ["drill", "--watchdog", NODE, &confirm, "--timeout=2m"];
        fixture.plane.start_pod_safety_once(&fixture.plane.admin_kubeconfig(), &args).await.unwrap()
    };
    let refused = drill("switch off guarded").await;
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
    assert_eq!(fixture.node.lock_state().await.resets, 0, "nothing was begun");
    let output = drill("reset guarded").await;
    assert_eq!(output.status.code(), Some(0), "{output:?}\n{}", fixture.node.log());
    assert!(output.stdout.contains("s after its last pet; up to 5 s are allowed"), "{output:?}");
    assert_eq!(fixture.node.lock_state().await.resets, 1);
    let spec = fixture.plane.find("fencedevices", "pod-safety", DEVICE).await.unwrap().unwrap()["spec"].clone();
    assert_eq!(spec["watchdogLease"]["drilled"][0]["identity"], "keeper", "{spec}");
    fixture.until_target("its promise counts", |target| target["power"] == "On" && target["message"].is_null()).await;
    fixture.kubectl(&["uncordon", NODE]).await;
}

async fn pods_terminate_before_they_are_released(fixture: &Fixture) {
    let Fixture { plane, node, .. } = fixture;
    stateful_pod(plane, "db", NODE).await;
    node.start_pod(&uid_of(plane, "db-0").await).await;
    node.cut_off().await;
    let lost = Instant::now();
    until_released(plane, "db-0").await;
    let released = lost.elapsed();
    let state = node.lock_state().await;
    // Without it the pod was released while its process ran.
    let ended = state.ended.unwrap().duration_since(lost);
    println!(
        "watchdog Lease, W = {} s: the process ended {:.1} s after the loss, and was released after {:.1} s",
        TIMEOUT.as_secs(),
        ended.as_secs_f64(),
        released.as_secs_f64()
    );
    assert_eq!(state.resets, 1, "no machine is reset whose pods have ended:\n{}", node.log());
    drop(state);
    let proofs = plane.list("fenceevidences").await.unwrap();
    assert_eq!(proofs[0]["spec"]["kind"], "WatchdogLease", "{proofs:#?}");
    let words = until_phase(plane, NODE, "Fenced").await["status"]["attempts"][0]["outcome"].to_string();
    assert!(words.contains("its grant was revoked"), "{words}");
}

/// The agent finds its grant revoked, and the machine is reset: nothing of the fenced boot continues.
async fn the_machine_returns_with_another_boot_id(fixture: &Fixture) {
    fixture.node.connect();
    until_phase(&fixture.plane, NODE, "Done").await;
    assert_eq!(fixture.node.lock_state().await.resets, 2, "{}", fixture.node.log());
    fixture.until_target("its agent has a grant in the new boot", |target| target["power"] == "On").await;
}

async fn uid_of(plane: &ControlPlane, pod: &str) -> String {
    observe::find_pod(&plane.admin(), NAMESPACE, pod).await.unwrap().unwrap().metadata.uid.unwrap()
}

/// The node reports, and is not fenced. Its kubelet received the deletion, and does not report the termination of the pod.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_its_kubelet_does_not_end_is_released_when_its_agent_reports_its_end() {
    let fixture = fixture().await;
    let Fixture { plane, node, .. } = &fixture;
    stateful_pod(plane, "db", NODE).await;
    node.start_pod(&uid_of(plane, "db-0").await).await;
    node.machine.hang();
    fixture.kubectl(&["delete", "pod", "-n", NAMESPACE, "db-0", "--wait=false", "--grace-period=1"]).await;
    let refused = observe::event(&plane.admin(), NAMESPACE, "db-0", "ForceDeleteRefused").await.unwrap();
    assert!(refused.starts_with("PodsNotEnded: the agent of its node does not report"), "{refused}");
    let (config, asks) = (plane.admin_kubeconfig(), ["explain", "pod", "-n", NAMESPACE, "db-0"]);
    let explained = plane.start_pod_safety_once(&config, &asks).await.unwrap().stdout;
    assert!(explained.contains("the agent of its node does not report"), "{explained}");
    assert!(node.lock_state().await.ended.is_none(), "its process runs, and so it was held");
    node.end_pod().await;
    until_released(plane, "db-0").await;
    let message = observe::event(&plane.admin(), NAMESPACE, "db-0", "ForceDeleted").await.unwrap();
    assert_eq!(message, "The agent of node guarded reports that no process and no mount of the pod is left");
    assert_eq!(node.lock_state().await.resets, 0, "{}", node.log());
}

/// A Lease that another user wrote would release running pods.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attack_a_watchdog_lease_not_written_by_the_agent_of_the_node_is_denied() {
    let (plane, _) = ControlPlane::with_pod_safety().await.unwrap();
    plane.install_agents().await.unwrap();
    let lease = |node: &str, state: &str, boot: &str| {
        json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "namespace": "pod-safety", "name": format!("watchdog.{node}"), "annotations": {
                "watchdog.pod-safety.dev/state": state, "watchdog.pod-safety.dev/boot-id": boot } },
            "spec": {} })
    };
    let agent = "--as=system:serviceaccount:pod-safety:pod-safety-agent";
    let at = |node: &str| format!("--as-user-extra=authentication.kubernetes.io/node-name={node}");
    let (a, b) = (at("a"), at("b"));
    let put = async |verb: &str, user: &[&str], object: &Value| {
        plane.kubectl_with(&[&[verb, "-f", "-"], user].concat(), &object.to_string()).await.unwrap()
    };
    let expect_output = async |verb: &str, user: &[&str], object: &Value, words: &str| {
        wait_until(words, async || {
            // Until the policy is enforced the write would succeed.
            let output = put(verb, &[&["--dry-run=server"], user].concat(), object).await;
            check_that(!output.status.success() && output.stderr.contains(words), format!("{output:?}"))
        })
        .await;
    };
    let only = "is a promise of the agent of a, which alone writes it";
    let promise = lease("a", "Armed", "1");
    expect_output("create", &[], &promise, only).await;
    expect_output("create", &[agent], &promise, "its token names none").await;
    expect_output("create", &[agent, &b], &promise, "an agent writes the Lease of its own node: watchdog.b").await;
    put("create", &[agent, &a], &promise).await.text().unwrap();
    // A person may revoke it, and change nothing else.
    expect_output("replace", &[], &lease("a", "Revoked", "2"), only).await;
    let mut reported = promise.clone();
    reported["metadata"]["annotations"]["watchdog.pod-safety.dev/pods-ended"] = json!("uid-of-a-pod-that-runs");
    expect_output("replace", &[], &reported, only).await;
    expect_output("replace", &[agent, &b], &reported, "an agent writes the Lease of its own node: watchdog.b").await;
    let state = "watchdog.pod-safety.dev/state=Revoked";
    let revoke = ["annotate", "lease", "-n", "pod-safety", "watchdog.a", "--overwrite", state];
    plane.kubectl(&revoke).await.unwrap().text().unwrap();
    expect_output("replace", &[agent, &a], &promise, "nothing in that boot gets another one").await;
    put("replace", &[agent, &a], &lease("a", "Unarmed", "2")).await.text().unwrap();
    // A deletion of the Lease terminates the pods of the node.
    let delete = ["delete", "lease", "-n", "pod-safety", "watchdog.a", "--as=dev"];
    let may = ["create", "clusterrole", "leases", "--verb=get,delete", "--resource=leases"];
    plane.kubectl(&may).await.unwrap().text().unwrap();
    let bind = ["create", "clusterrolebinding", "leases", "--clusterrole=leases", "--user=dev"];
    plane.kubectl(&bind).await.unwrap().text().unwrap();
    let refused = plane.kubectl(&delete).await.unwrap();
    assert!(refused.stderr.contains("which ends its pods when the Lease is gone"), "{refused:?}");
    // Other Leases in the namespace are not affected.
    let mut other = lease("a", "Armed", "1");
    other["metadata"]["name"] = json!("pod-safety");
    expect_output("create", &[agent, &a], &other, "an agent writes the Lease of its own node").await;
}
