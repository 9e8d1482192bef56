//! `pod-safety explain pdb` and `pod-safety drain` where something blocks: each cause of blocking as the real API server answers it, also
//! for pods of a custom resource, and drains that end before they are done. kube-controller-manager calculates the PDBs; there are no
//! kubelets, so deleted pods do not terminate.

use std::process::Stdio;

use k8s_openapi::api::core::v1::{Node, PodStatus};
use kube::Api;
use pod_safety_control_plane::budgets::{self, BudgetStatus};
use pod_safety_control_plane::objects::{self, PodExt as _};
use pod_safety_control_plane::workloads::{self, FLEET, PHANTOM, STATEFUL_SET};
use pod_safety_control_plane::{ControlPlane, Implementation, Options, PATIENCE, binary, check_that, wait_until};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

use crate::commands::{ends_with, json_of, run};

const NS: &str = "shop";
/// A user with list rights only.
const READER: &str = "reader";

/// A pod `APP-NUMBER` on the node `APP`.
async fn pod(plane: &ControlPlane, app: &str, number: i32, kind: workloads::Kind, status: Value) {
    let owner = if kind == PHANTOM {
        workloads::reference(kind, app, "5b0a4f0e-0000-4000-8000-000000000001")
    } else {
        workloads::put(&plane.admin(), kind, NS, app, replicas(app), None).await.unwrap()
    };
    let name = format!("{app}-{number}");
    let pod = objects::pod(NS, &name).on_node(app).with_label("app", app).with_grace(5).controlled_by(owner);
    objects::create_pod(&plane.admin(), &pod.with_phase("Running")).await.unwrap();
    let status: PodStatus = serde_json::from_value(status).unwrap();
    objects::set_pod_status(&plane.admin(), NS, &name, &status).await.unwrap();
}

/// The replicas of the workload of this application.
fn replicas(app: &str) -> i32 {
    if matches!(app, "soon" | "primary") { 3 } else { 2 }
}

async fn budget(plane: &ControlPlane, name: &str, app: &str, mut spec: Value) {
    spec["selector"] = json!({ "matchLabels": { "app": app } });
    budgets::put(&plane.admin(), NS, name, &spec).await.unwrap();
}

/// An application for each cause of blocking, on its own node.
async fn set_up(plane: &ControlPlane) {
    plane.namespace(NS).await.unwrap();
    workloads::define_custom_kinds(&plane.admin()).await.unwrap();
    for name in ["never", "soon", "over", "sync", "new", "lies", "primary"] {
        objects::create_node(&plane.admin(), &objects::node(name)).await.unwrap();
    }
    let well = json!({});
    for number in [0, 1] {
        pod(plane, "never", number, FLEET, well.clone()).await;
        pod(plane, "over", number, STATEFUL_SET, well.clone()).await;
        pod(plane, "soon", number, FLEET, well.clone()).await;
    }
    let unwell = json!({ "conditions": [{ "type": "Ready", "status": "False" }] });
    pod(plane, "soon", 2, FLEET, unwell).await;
    pod(plane, "sync", 0, STATEFUL_SET, well.clone()).await;
    pod(plane, "new", 0, PHANTOM, well).await;
    let lie = json!({ "phase": "Failed", "containerStatuses": [{ "name": "main", "image": "i", "imageID": "i",
        "ready": true, "restartCount": 0, "state": { "running": {} } }] });
    pod(plane, "lies", 0, STATEFUL_SET, lie).await;
    for number in 0..3 {
        pod(plane, "primary", number, STATEFUL_SET, json!({})).await;
    }
    // Like the operator of a database: one pod is labelled as the primary.
    let label = ["label", "pod", "-n", NS, "primary-1", "primary-2", "app-"];
    plane.kubectl(&label).await.unwrap().text().unwrap();
    budget(plane, "primary", "primary", json!({ "minAvailable": 1 })).await;
    budget(plane, "never", "never", json!({ "minAvailable": 2 })).await;
    budget(plane, "soon", "soon", json!({ "maxUnavailable": 1 })).await;
    budget(plane, "over-a", "over", json!({ "maxUnavailable": 1 })).await;
    budget(plane, "over-b", "over", json!({ "maxUnavailable": "50%" })).await;
    budget(plane, "sync", "sync", json!({ "maxUnavailable": 1 })).await;
    budget(plane, "new", "new", json!({ "maxUnavailable": 1 })).await;
}

/// Waits until the disruption controller has observed every pod. The PDB of `new` could never be calculated, that of `sync` could once: the
/// API server answers differently.
async fn calculated(plane: &ControlPlane) {
    for (name, healthy) in [("never", 2), ("soon", 2), ("over-a", 2), ("over-b", 2), ("sync", 1), ("primary", 1)] {
        until_explains(plane, name, |status| {
            status.condition.contains("Pods") && status.healthy == healthy && status.observed == status.generation
        })
        .await;
    }
    pod(plane, "sync", 1, PHANTOM, json!({})).await;
    until_explains(plane, "sync", |status| status.condition.contains("SyncFailed")).await;
    until_explains(plane, "new", |status| status.condition.contains("SyncFailed")).await;
}

async fn until_explains(plane: &ControlPlane, name: &str, is_so: impl Fn(&BudgetStatus) -> bool) {
    wait_until(&format!("{name} is calculated"), async || {
        let status = budgets::budget_status(&plane.admin(), NS, name).await.map_err(|error| error.to_string())?;
        check_that(is_so(&status), status.to_string())
    })
    .await;
}

#[tokio::test]
async fn explain_names_what_blocks_and_the_drain_ends_as_predicted() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    set_up(&plane).await;
    let _kcm = plane.disruption_controller(Implementation::Kcm).await.unwrap();
    calculated(&plane).await;
    each_cause_of_blocking_has_a_verdict(&plane).await;
    evictions_are_answered_as_explained(&plane).await;
    output_formats_agree(&plane).await;
    missing_rights_are_reported_as_unknown(&plane).await;
    drain_retries_while_blocked(&plane).await;
    pods_that_may_run_are_refused(&plane).await;
    drain_ends_at_its_timeout(&plane).await;
    ctrl_c_prints_what_continues(&plane).await;
    ctrl_c_on_a_terminal_ends_the_line(&plane).await;
}

/// The verdicts, and the text output.
async fn each_cause_of_blocking_has_a_verdict(plane: &ControlPlane) {
    for (name, verdict, expected) in [
        ("never", "DisruptionsNeverAllowed", &["while replicas is 2", "scale Fleet/never to 3"][..]),
        (
            "primary",
            "DisruptionsNeverAllowed",
            &[
                "while it selects 1 of 3 pods",
                "choose a pod of another node",
                "minAvailable: 0 in place of minAvailable: 1",
            ],
        ),
        ("soon", "NoneNow", &["With all 3 healthy: 1 at a time", "wait until soon-2 is Ready again"]),
        (
            "over-a",
            "Overlapping",
            &["selected by over-b too", "fail (500): PodDisruptionBudgets over-a and over-b", "narrow or delete"],
        ),
        ("over-b", "Overlapping", &["selected by over-a too", "fail (500): PodDisruptionBudgets over-a and over-b"]),
        (
            "new",
            "SyncFailed",
            &["Its numbers cannot be calculated", "be denied (429): the PodDisruptionBudget is still being processed"],
        ),
        (
            "sync",
            "SyncFailed",
            &["Its numbers cannot be calculated", "be denied (429): the PodDisruptionBudget failed to sync"],
        ),
    ] {
        let explained = json_of(plane, 3, &["explain", "pdb", "-n", NS, name]).await;
        assert_eq!(explained["verdict"], verdict, "{explained:#}");
        let text = ends_with(plane, 3, &["explain", "pdb", "-n", NS, name]).await;
        for expected in expected {
            assert!(text.contains(expected), "{expected}: not in\n{text}");
        }
    }
    let soon = json_of(plane, 0, &["explain", "pdb/soon", "-n", NS, "--exit-zero"]).await;
    assert_eq!((&soon["replicas"], &soon["ceiling"]), (&json!(3), &json!(1)), "its scale was asked");
    // No view contradicts another: each reads the scale of custom resources.
    for command in ["doctor", "status"] {
        let message = run(plane, &plane.admin_kubeconfig(), &[command, "-o", "json"]).await.stdout;
        for name in ["shop/never", "shop/primary"] {
            assert!(message.contains(name), "{command} does not name {name}: {message}");
        }
        assert!(!message.contains("shop/soon"), "{message}");
    }
}

/// `EVICTION WOULD` is the API server's answer to a dry run.
async fn evictions_are_answered_as_explained(plane: &ControlPlane) {
    let list = json_of(plane, 3, &["explain", "pdb", "-n", NS]).await;
    let mut compared = 0;
    for (budget, pod) in list["items"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|budget| budget["pods"].as_array().unwrap().iter().map(move |pod| (&budget["name"], pod)))
    {
        let name = pod["name"].as_str().unwrap();
        let answer = budgets::evict(&plane.admin(), NS, name, &json!({ "dryRun": ["All"] })).await.unwrap();
        let message = pod["message"].as_str().unwrap();
        let agrees =
            if pod["goes"] == true { answer.code == 201 } else { message.contains(&format!("({})", answer.code)) };
        assert!(agrees, "{budget} {name}: {message}, but it was answered {answer}");
        compared += 1;
    }
    assert_eq!(compared, 13, "{list:#}");
}

/// JSON and YAML are the same document, and the table has a row for each PDB.
async fn output_formats_agree(plane: &ControlPlane) {
    for (code, args) in
        [(3, &["explain", "pdb", "-n", NS, "never"][..]), (3, &["explain", "pdb"][..]), (3, &["drain", "over"][..])]
    {
        let yaml = ends_with(plane, code, &[args, &["-o", "yaml"]].concat()).await;
        let yaml: Value = serde_saphyr::from_str(&yaml).unwrap();
        assert_eq!(yaml, json_of(plane, code, args).await);
        assert_eq!(yaml["apiVersion"], "cli.pod-safety.dev/v1alpha1");
    }
    let table = ends_with(plane, 3, &["explain", "pdb", "-o", "table"]).await;
    let words: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(table.starts_with("Cluster: context "), "{table}");
    let words = &words[1..];
    assert_eq!(words[0], ["NAMESPACE", "NAME", "WANTS", "PODS", "ARITHMETIC", "VERDICT"]);
    let verdicts: Vec<(&str, &str)> = words[1..].iter().map(|row| (row[2], *row.last().unwrap())).collect();
    assert_eq!(
        verdicts,
        [
            ("never", "DisruptionsNeverAllowed"),
            ("new", "SyncFailed"),
            ("over-a", "Overlapping"),
            ("over-b", "Overlapping"),
            ("primary", "DisruptionsNeverAllowed"),
            ("soon", "NoneNow"),
            ("sync", "SyncFailed")
        ],
        "{table}"
    );
}

/// Without the right to read the scale of a custom resource, the verdict is unknown instead of "never", with the reason.
async fn missing_rights_are_reported_as_unknown(plane: &ControlPlane) {
    let reader = plane.user_kubeconfig(READER, &[]).unwrap();
    let resources = "--resource=pods,poddisruptionbudgets.policy,deployments.apps,replicasets.apps,statefulsets.apps,replicationcontrollers";
    for args in [
        &["create", "clusterrole", READER, "--verb=get,list", resources][..],
        &["create", "clusterrolebinding", READER, "--clusterrole=reader", "--user=reader"],
    ] {
        plane.kubectl(args).await.unwrap().text().unwrap();
    }
    let why = "asking for the scale of Fleet never: the API server answered 403 Forbidden";
    let explained = wait_until("the reader may read", async || {
        let output = run(plane, &reader, &["explain", "pdb", "-n", NS, "never", "-o", "json"]).await;
        serde_json::from_str::<Value>(&output.stdout).map_err(|_| output.stderr)
    })
    .await;
    assert_eq!((&explained["verdict"], &explained["ceiling"]), (&json!("NoneNow"), &Value::Null));
    assert!(explained["notes"][0].as_str().unwrap().contains(why), "{explained:#}");
    let table = run(plane, &reader, &["explain", "pdb", "--exit-zero"]).await.text().unwrap();
    assert!(
        table.contains("shop/never: it is not known whether it ever allows more") && table.contains(why),
        "{table}"
    );
}

async fn is_cordoned(plane: &ControlPlane, node: &str) -> bool {
    let node = Api::<Node>::all(plane.admin()).get(node).await.unwrap();
    node.spec.and_then(|spec| spec.unschedulable).unwrap_or_default()
}

/// The plan has the API server's own refusal; `--apply` cordons, retries, and waits until an operator removes the cause.
async fn drain_retries_while_blocked(plane: &ControlPlane) {
    for (node, reason, dry_run, expected) in [
        ("over", "MultipleBudgets", "MultipleBudgets", "2 PodDisruptionBudgets select the pod (over-a, over-b)"),
        ("sync", "BudgetSyncFailed", "BudgetBlocks", "because it failed sync"),
        ("new", "BudgetSyncFailed", "BudgetBeingProcessed", "still being processed"),
        (
            "never",
            "DisruptionsNeverAllowed",
            "BudgetBlocks",
            "The disruption budget never needs 2 healthy pods and has 2 currently",
        ),
    ] {
        let plan = json_of(plane, 3, &["drain", node]).await;
        let pod = &plan["pods"][0];
        assert_eq!((&pod["action"], &pod["reason"]), (&json!("Blocked"), &json!(reason)), "{plan:#}");
        assert_eq!((&pod["dryRun"]["passed"], &pod["dryRun"]["reason"]), (&json!(false), &json!(dry_run)), "{plan:#}");
        let message = pod["dryRun"]["message"].as_str().unwrap();
        assert!(message.contains(expected), "{message}");
        // With several PDBs the API server's error is permanent; with one it may be temporary.
        let code = if node == "over" { 3 } else { 5 };
        let log = ends_with(plane, code, &["drain", node, "--apply", "--timeout", "4s"]).await;
        assert!(log.contains("0 gone") && log.contains(&format!("pod/shop/{node}-0 still exists")), "{log}");
        assert!(is_cordoned(plane, node).await);
    }
}

/// A pod with a terminal phase that may still run is not evicted: with a separate exit code.
async fn pods_that_may_run_are_refused(plane: &ControlPlane) {
    let plan = json_of(plane, 4, &["drain", "lies"]).await;
    assert_eq!(plan["pods"][0]["action"], "RefusedForSafety", "{plan:#}");
    let refused = ends_with(plane, 4, &["drain", "lies", "--apply"]).await;
    assert!(refused.contains("1 refused for safety") && refused.contains("Nothing was changed"), "{refused}");
    assert!(!is_cordoned(plane, "lies").await);
    plane.kubectl(&["get", "pod", "-n", NS, "lies-0"]).await.unwrap().text().unwrap();
}

/// One pod terminates, two wait for their PDB: the output states that, and that the node stays cordoned.
async fn drain_ends_at_its_timeout(plane: &ControlPlane) {
    let plan = json_of(plane, 3, &["drain", "soon"]).await;
    let actions: Vec<&Value> = plan["pods"].as_array().unwrap().iter().map(|pod| &pod["action"]).collect();
    assert_eq!(actions, ["Evict", "Wait", "Wait"], "{plan:#}");
    let log = ends_with(plane, 5, &["drain", "soon", "--apply", "--timeout", "4s"]).await;
    for expected in [
        "node/soon cordoned",
        "pod/shop/soon-2 evicted, terminates within 5s",
        "pod/shop/soon-0 waits: The disruption budget soon needs 2 healthy pods and has 2 currently",
        "pod/shop/soon-1 waits: The disruption budget soon needs 2 healthy pods and has 2 currently",
        "pod/shop/soon-2 still exists: evicted, terminates within 5s",
        "node/soon not drained, the time is up after 4s: 0 gone, 3 left",
        "node/soon stays cordoned. The same command continues; to undo: kubectl uncordon soon",
    ] {
        assert!(log.contains(expected), "{expected}: not in\n{log}");
    }
    assert!(is_cordoned(plane, "soon").await);
}

/// In a pipe: the last lines of the log, and exit code 1.
async fn ctrl_c_prints_what_continues(plane: &ControlPlane) {
    plane.kubectl(&["uncordon", "soon"]).await.unwrap().text().unwrap();
    let kubeconfig = plane.admin_kubeconfig();
    let args = ["drain", "soon", "--apply", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let mut drain = plane.program("drain", &binary().await.unwrap(), args, &[]).unwrap();
    wait_until("it waits for the budget", async || {
        check_that(drain.log_text().contains("soon-0 waits"), drain.log_text())
    })
    .await;
    let ended = drain.interrupt().await.unwrap();
    let log = drain.log_text();
    assert_eq!(ended.code(), Some(1), "{log}");
    let last: Vec<&str> =
        log.lines().rev().take(5).filter_map(|line| line.split_once(' ')).map(|(_, text)| text).collect();
    assert!(last[0].starts_with("node/soon stays cordoned."), "{log}");
    assert!(last[1].starts_with("node/soon not drained, stopped after "), "{log}");
    assert!(last[1].ends_with("0 gone, 3 left"), "{log}");
    for (line, expected) in
        last[2..].iter().zip(["soon-2 still exists: terminating already", "soon-1 still exists", "soon-0 still exists"])
    {
        assert!(line.contains(expected), "{expected}: not in\n{log}");
    }
    assert!(is_cordoned(plane, "soon").await);
}

/// On a terminal, which `script` (in every Debian) provides: a user types Ctrl-C.
async fn ctrl_c_on_a_terminal_ends_the_line(plane: &ControlPlane) {
    let (binary, kubeconfig) = (binary().await.unwrap(), plane.admin_kubeconfig());
    let shell = format!("exec {} drain soon --apply --kubeconfig {}", binary.display(), kubeconfig.display());
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &shell, "/dev/null"]);
    let mut terminal = script.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut screen = terminal.stdout.take().unwrap();
    let typed = async {
        let mut shown = Vec::new();
        while !String::from_utf8_lossy(&shown).contains("0 of 3 gone, 1 terminating, 2 waiting") {
            let read = screen.read_buf(&mut shown).await.unwrap();
            assert!(read > 0, "it ended: {}", String::from_utf8_lossy(&shown));
        }
        terminal.stdin.as_mut().unwrap().write_all(b"\x03").await.unwrap();
        screen.read_to_end(&mut shown).await.unwrap();
        (terminal.wait().await.unwrap().code(), String::from_utf8_lossy(&shown).into_owned())
    };
    let (code, shown) = tokio::time::timeout(PATIENCE, typed).await.unwrap();
    assert_eq!(code, Some(1), "{shown}");
    // What the terminal then shows: the text of each line after its last carriage return.
    let lines: Vec<&str> = shown.lines().filter_map(|line| line.rsplit("\r\u{1b}[K").next()).collect();
    let last = lines.last().unwrap();
    assert!(last.contains("node/soon stays cordoned") && shown.contains("not drained, stopped after"), "{shown:?}");
    let half = lines.iter().any(|line| line.contains("of 3 gone") || line.contains("^C"));
    assert!(!half, "{shown:?}");
}
