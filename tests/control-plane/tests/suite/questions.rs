//! `pod-safety status`, `explain` and `doctor` against the real API server: their output while a node is lost, with all rights and with few,
//! and when the API server becomes unavailable meanwhile. There are no kubelets.

pub(crate) mod browser;
mod pauses;
mod volumes;

use std::path::Path;
use std::process::Stdio;

use k8s_openapi::api::core::v1::{NodeStatus, PodStatus};
use pod_safety_control_plane::objects::{self, PodExt as _};
use pod_safety_control_plane::workloads::{self, STATEFUL_SET};
use pod_safety_control_plane::{ControlPlane, PATIENCE, binary, check_that, wait_until};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::commands::{apply, ends_with, json_of, run};

use browser::Browser;

const NS: &str = "shop";
/// An unreachable node, and a healthy one.
async fn node(plane: &ControlPlane, name: &str, ready: &str) {
    objects::create_node(&plane.admin(), &objects::node(name)).await.unwrap();
    let status = json!({ "nodeInfo": { "architecture": "amd64", "bootID": "b0000000-0000-4000-8000-000000000001", "containerRuntimeVersion": "", "kernelVersion": "",
        "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "operatingSystem": "linux", "osImage": "", "systemUUID": "" },
        "conditions": [{ "type": "Ready", "status": ready, "reason": "test", "message": "", "lastHeartbeatTime": "2026-01-01T00:00:00Z",
            "lastTransitionTime": "2026-01-01T00:01:00Z" }] });
    let status: NodeStatus = serde_json::from_value(status).unwrap();
    objects::set_node_status(&plane.admin(), name, &status).await.unwrap();
}

/// A pod of the StatefulSet `orders` in this namespace.
pub(crate) async fn pod(plane: &ControlPlane, namespace: &str, name: &str, on: &str) {
    let owner = workloads::put(&plane.admin(), STATEFUL_SET, namespace, "orders", 2, None).await.unwrap();
    let pod = objects::pod(namespace, name).on_node(on).with_grace(1).controlled_by(owner).with_phase("Running");
    objects::create_pod(&plane.admin(), &pod).await.unwrap();
    let running = json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }], "containerStatuses": [{ "name": "main",
        "image": "i", "imageID": "i", "ready": true, "restartCount": 0, "state": { "running": {} } }] });
    let status: PodStatus = serde_json::from_value(running).unwrap();
    objects::set_pod_status(&plane.admin(), namespace, name, &status).await.unwrap();
}

#[tokio::test]
async fn explain_names_what_is_stuck_and_why() {
    let (mut plane, _) = ControlPlane::with_pod_safety().await.unwrap();
    plane.namespace(NS).await.unwrap();
    plane.namespace("stage").await.unwrap();
    node(&plane, "well", "True").await;
    node(&plane, "lost", "Unknown").await;
    pod(&plane, NS, "orders-0", "well").await;
    pod(&plane, NS, "orders-1", "lost").await;
    pod(&plane, "stage", "orders-1", "lost").await;
    plane.kubectl(&["delete", "pod", "-n", NS, "orders-1", "--wait=false"]).await.unwrap().text().unwrap();
    // New kinds are answered with 429 until the API server has initialized their storage.
    wait_until("the kinds are there", async || {
        let output = run(&plane, &plane.admin_kubeconfig(), &["status", "--exit-zero"]).await;
        if output.status.success() { Ok(()) } else { Err(output.stderr) }
    })
    .await;
    explain_describes_the_blocked_pod(&plane).await;
    status_names_what_needs_an_operator(&plane).await;
    volumes::explain_names_the_holder_by_claim_and_by_volume(&plane).await;
    the_web_ui_shows_the_same(&plane).await;
    pauses::a_pause_records_user_and_reason_and_ends_by_command(&plane).await;
    pauses::a_support_report_has_readable_objects_and_no_credentials(&plane).await;
    bug_commands_use_the_context_of_kubectl_and_print_it(&plane).await;
    bug_a_reporting_node_is_fenced_only_after_a_prompt(&plane).await;
    bug_no_role_let_operators_on_call_read(&plane).await;
    the_doctor_reports_missing_parts(&plane).await;
    missing_or_ambiguous_objects_are_one_sentence(&plane).await;
    limited_rights_give_partial_answers(&plane).await;
    bug_unknown_facts_are_not_green_without_rights(&plane).await;
    pauses::limited_rights_give_a_partial_support_report(&plane).await;
    a_watching_command_reports_an_unavailable_api_server(&mut plane).await;
}

async fn explain_describes_the_blocked_pod(plane: &ControlPlane) {
    let text = ends_with(plane, 3, &["explain", "pod", "-n", NS, "orders-1"]).await;
    for expected in
        ["Blocked (NoEvidence)", "Node lost is unreachable", "a person confirmed", "pod-safety confirm-down lost"]
    {
        assert!(text.contains(expected), "{expected}: not in\n{text}");
    }
    let same = ends_with(plane, 0, &["explain", "po/orders-1", "-n", NS, "--exit-zero"]).await;
    let facts = |text: &str| text.split("Terminating").next().map(str::to_owned);
    assert_eq!(facts(&same), facts(&text), "{same}");
    let well = json_of(plane, 0, &["explain", "pod", "-n", NS, "orders-0"]).await;
    assert_eq!((&well["kind"], &well["verdict"]), (&json!("PodExplanation"), &json!("Free")), "{well:#}");
    let node = json_of(plane, 3, &["explain", "no/lost"]).await;
    let pods: Vec<&Value> = node["items"].as_array().unwrap().iter().map(|item| &item["object"]).collect();
    assert!(pods.contains(&&json!("pod/shop/orders-1")), "{node:#}");
    let set = json_of(plane, 3, &["explain", "sts", "-n", NS, "orders"]).await;
    assert_eq!(
        (&set["items"][0]["verdict"], &set["items"][1]["reason"]),
        (&json!("Free"), &json!("NoEvidence")),
        "{set:#}"
    );
}

async fn status_names_what_needs_an_operator(plane: &ControlPlane) {
    let text = ends_with(plane, 3, &["status"]).await;
    for expected in [
        "1 waits for proof that the old pod stopped",
        "node/lost",
        "pod-safety explain node lost",
        "proof that lost stopped",
    ] {
        assert!(text.contains(expected), "{expected}: not in\n{text}");
    }
    let status = json_of(plane, 3, &["status"]).await;
    assert_eq!(status["blocked"][0]["pod"], "orders-1", "{status:#}");
    let yaml: Value = serde_saphyr::from_str(&ends_with(plane, 3, &["status", "-o", "yaml"]).await).unwrap();
    assert_eq!((&yaml["kind"], &yaml["zones"]), (&json!("Status"), &status["zones"]));
}

/// Starts `pod-safety ui` with this kubeconfig; returns the address that it printed.
pub(crate) async fn ui(kubeconfig: &Path) -> (Child, String) {
    let mut ui = Command::new(binary().await.unwrap());
    ui.args(["ui", "--address=127.0.0.1:0", "--kubeconfig"]).arg(kubeconfig);
    let mut ui = ui.stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut stderr_lines = BufReader::new(ui.stderr.take().unwrap()).lines();
    let line = tokio::time::timeout(PATIENCE, stderr_lines.next_line()).await.unwrap().unwrap().unwrap();
    let link = line.split(' ').find(|word| word.starts_with("http://")).unwrap().to_owned();
    (ui, link)
}

async fn the_web_ui_shows_the_same(plane: &ControlPlane) {
    let (_ui, link) = ui(&plane.admin_kubeconfig()).await;
    let mut browser = Browser::start();
    for (fragment, expected) in [
        ("", ["NEEDS A PERSON", "shop/orders-1", "proof that lost stopped"]),
        (
            "#pod/shop/orders-1",
            ["PROOF THAT IT STOPPED", "Node lost is unreachable", "confirm-down lost --reason TEXT"],
        ),
        (
            "#persistentvolumeclaim/shop/stock",
            ["bound to persistentvolume/pv-1", "has it mounted (volumesInUse)", "explain node lost"],
        ),
        ("#node/nosuch", ["No answer", "there is no node nosuch", "NEEDS A PERSON"]),
    ] {
        let tab = browser.open(&format!("{link}{fragment}")).await;
        wait_until(&format!("the page at {fragment:?} says {expected:?}"), async || {
            let page = browser.text(&tab).await;
            check_that(expected.iter().all(|word| page.contains(word)), page)
        })
        .await;
    }
    let stranger =
        plane.start_pod_safety_once(&plane.admin_kubeconfig(), &["ui", "--address=0.0.0.0:0"]).await.unwrap();
    assert!(stranger.stderr.contains("--address=0.0.0.0:0 can be reached from other machines"), "{stranger:?}");
}

/// In a pod the service account had precedence over `$KUBECONFIG`, kubectl's flags were rejected before the subcommand, and no page named
/// its cluster.
async fn bug_commands_use_the_context_of_kubectl_and_print_it(plane: &ControlPlane) {
    let in_a_pod = async |args: &[&str]| {
        let mut command = Command::new(binary().await.unwrap());
        command.env("KUBERNETES_SERVICE_HOST", "127.0.0.1").env("KUBERNETES_SERVICE_PORT", "1");
        let output = command.env("KUBECONFIG", plane.admin_kubeconfig()).args(args).output().await.unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, printed, _) = in_a_pod(&["status"]).await;
    assert_eq!(code, Some(3), "{printed}");
    let context = printed.strip_prefix("Cluster: context ").and_then(|rest| rest.split(',').next()).unwrap();
    let (code, printed, _) = in_a_pod(&["--context", context, "--request-timeout=20s", "status", "-o", "json"]).await;
    let status: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((code, &status["cluster"]["context"]), (Some(3), &json!(context)));
    let (code, printed, _) = in_a_pod(&["--as", "anna", "status"]).await;
    assert!(code == Some(6) && printed.lines().next().unwrap().ends_with(", as anna"), "{code:?} {printed}");
    let (code, _, printed) = in_a_pod(&["--as-group=g", "status"]).await;
    assert!(code == Some(1) && printed.contains("--as-group needs --as"), "{code:?} {printed}");
    let (code, printed, _) = in_a_pod(&["explain", "pdb", "-A", "-l", "app=none"]).await;
    assert!(code == Some(0) && !printed.contains("DisruptionsNeverAllowed"), "{code:?} {printed}");
}

/// A typo switched a healthy machine off within a second.
async fn bug_a_reporting_node_is_fenced_only_after_a_prompt(plane: &ControlPlane) {
    let devices = json!([{ "name": "only", "devices": [{ "namespace": "pod-safety", "name": "bmc" }] }]);
    let policy = json!({ "apiVersion": "pod-safety.dev/v1alpha1", "kind": "FencePolicy", "metadata": { "name": "all" },
        "spec": { "levels": devices } });
    apply(plane, &policy).await;
    let fences = async || plane.kubectl(&["get", "nodefences", "-o", "name"]).await.unwrap().text().unwrap();
    for (code, confirm) in [(1, None), (4, Some("--confirm=switch off lost")), (0, Some("--confirm=switch off well"))] {
        assert_eq!(fences().await, "", "nothing was written");
        let args: Vec<&str> = ["fence", "well", "--reason=typo"].into_iter().chain(confirm).collect();
        let output = run(plane, &plane.admin_kubeconfig(), &args).await;
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(output.stderr.starts_with("Cluster: context "), "{output:?}");
    }
    assert!(fences().await.starts_with("nodefence.pod-safety.dev/well"));
    for kind in ["nodefences", "fencepolicies"] {
        plane.kubectl(&["delete", kind, "--all"]).await.unwrap().text().unwrap();
    }
}

async fn the_doctor_reports_missing_parts(plane: &ControlPlane) {
    let of = |diagnosis: &Value, check: &str| {
        let all = diagnosis["checks"].as_array().unwrap().clone();
        all.into_iter().find(|one| one["check"] == check).unwrap_or_default()
    };
    let diagnosis = json_of(plane, 3, &["doctor"]).await;
    for (check, health) in [
        ("ServerVersion", "Fine"),
        ("CustomResourceDefinitions", "Fine"),
        // No process runs with the account.
        ("RBAC", "Unknown"),
        ("AdmissionPolicies", "Problem"),
        ("Leader", "Problem"),
        ("GracePeriods", "Fine"),
    ] {
        assert_eq!(of(&diagnosis, check)["health"], health, "{check}: {diagnosis:#}");
    }
    plane.kubectl(&["delete", "clusterrolebinding", "pod-safety"]).await.unwrap().text().unwrap();
    plane.kubectl(&["delete", "crd", "fencepolicies.pod-safety.dev"]).await.unwrap().text().unwrap();
    let resources = wait_until("the rights are gone", async || {
        let diagnosis = json_of(plane, 3, &["doctor"]).await;
        let (rights, kinds) = (of(&diagnosis, "RBAC"), of(&diagnosis, "CustomResourceDefinitions"));
        if rights["health"] == "Problem" && kinds["health"] == "Problem" {
            Ok((rights, kinds))
        } else {
            Err(diagnosis.to_string())
        }
    });
    let (rights, kinds) = resources.await;
    assert!(rights["what"].as_str().unwrap().contains("delete pods"), "{rights:#}");
    assert!(kinds["what"].as_str().unwrap().contains("fencepolicies.pod-safety.dev"), "{kinds:#}");
    let text = ends_with(plane, 3, &["doctor"]).await;
    assert!(
        text.contains("    why   ") && text.contains("    do    ") && text.contains("Nothing was changed."),
        "{text}"
    );
}

async fn missing_or_ambiguous_objects_are_one_sentence(plane: &ControlPlane) {
    for (code, args, expected) in [
        (1, &["explain", "pod", "nosuch"][..], "there is no pod nosuch"),
        (1, &["explain", "node", "nosuch"], "there is no node nosuch"),
        (1, &["explain", "sts", "-n", NS, "nosuch"], "there is no StatefulSet nosuch in namespace shop"),
        (1, &["explain", "namespace", "nosuch"], "there is no namespace nosuch"),
        (1, &["explain", "pod", "orders-1"], "2 pods are named orders-1, in the namespaces shop and stage"),
        (2, &["explain", "pod"], "which pod?"),
        (2, &["explain", "pod/a", "b"], "one name is enough"),
        (2, &["explain", "cheese", "b"], "allowed is pod (po), node (no)"),
    ] {
        let output = run(plane, &plane.admin_kubeconfig(), args).await;
        assert_eq!(output.status.code(), Some(code), "{args:?} {output:?}");
        assert!(output.stderr.contains(expected) && output.stderr.trim().lines().count() == 1, "{args:?} {output:?}");
    }
}

/// A user who may only read the pods of one namespace gets the leader's Events from there, and a list of the missing rights.
async fn limited_rights_give_partial_answers(plane: &ControlPlane) {
    let reader = plane.user_kubeconfig("reader", &[]).unwrap();
    for args in [
        &["create", "role", "reader", "-n", NS, "--verb=get,list", "--resource=pods,events"][..],
        &["create", "rolebinding", "reader", "-n", NS, "--role=reader", "--user=reader"],
    ] {
        plane.kubectl(args).await.unwrap().text().unwrap();
    }
    let answer = wait_until("the reader may read", async || {
        let output = run(plane, &reader, &["explain", "pod", "-n", NS, "orders-1"]).await;
        if output.status.code() == Some(6) { Ok(output.stdout) } else { Err(output.stderr) }
    })
    .await;
    for expected in ["Unknown (NotRead)", "You may list pods only in namespace shop", "You may not list nodes"] {
        assert!(answer.contains(expected), "{expected}: not in\n{answer}");
    }
}

/// The chart had roles for confirmations and overrides, and none for operators who only read.
async fn bug_no_role_let_operators_on_call_read(plane: &ControlPlane) {
    let otto = plane.user_kubeconfig("otto", &[]).unwrap();
    let bind = ["create", "clusterrolebinding", "otto", "--clusterrole=pod-safety-on-call", "--user=otto"];
    plane.kubectl(&bind).await.unwrap().text().unwrap();
    wait_until("all is read", async || {
        let mut unread = String::new();
        for args in [
            &["status"][..],
            &["doctor"],
            &["timeline"],
            &["explain", "node", "lost"],
            &["explain", "pod", "-n", NS, "orders-1"],
            &["explain", "pvc", "-n", NS, "stock"],
            &["explain", "pdb"],
        ] {
            let output = run(plane, &otto, &[args, &["--exit-zero"]].concat()).await;
            let all = [output.stdout, output.stderr].concat();
            if !output.status.success() || all.contains("You may not") || all.contains("403") {
                unread.push_str(&all);
            }
        }
        check_that(unread.is_empty(), unread)
    })
    .await;
}

/// A user without any rights got two green marks and exit code 0, and the message that an existing pod does not exist.
async fn bug_unknown_facts_are_not_green_without_rights(plane: &ControlPlane) {
    let anna = plane.user_kubeconfig("anna", &[]).unwrap();
    let json_of = async |args: &[&str]| -> Value {
        let output = run(plane, &anna, &[args, &["-o", "json"]].concat()).await;
        assert_eq!(output.status.code(), Some(6), "{args:?} {output:?}");
        serde_json::from_str(&output.stdout).unwrap()
    };
    for args in [&["status"][..], &["doctor"], &["explain", "node", "well"]] {
        assert_eq!(json_of(args).await["verdict"], "Unknown", "{args:?}");
    }
    assert_ne!(json_of(&["timeline"]).await["missing"], json!([]), "an empty day is no quiet day");
    let diagnosis = json_of(&["doctor"]).await;
    let fine = diagnosis["checks"].as_array().unwrap().iter().filter(|one| one["health"] == "Fine");
    let fine: Vec<&Value> = fine.map(|one| &one["check"]).collect();
    assert_eq!(fine, ["ServerVersion"], "{diagnosis:#}");
    let status = run(plane, &anna, &["status"]).await.stdout;
    assert!(status.contains("not checked") && !status.contains("Nothing needs a person"), "{status}");
    let pod = run(plane, &anna, &["explain", "pod", "-n", NS, "orders-0"]).await;
    assert_eq!(pod.status.code(), Some(1), "{pod:?}");
    assert!(pod.stderr.contains("it is not known whether there is a pod orders-0 in namespace shop"), "{pod:?}");
}

/// The earlier output remains, and the command continues by itself.
async fn a_watching_command_reports_an_unavailable_api_server(plane: &mut ControlPlane) {
    let kubeconfig = plane.admin_kubeconfig();
    let kubeconfig = kubeconfig.to_str().unwrap();
    let args = ["explain", "pod", "-n", NS, "orders-1", "-w", "--kubeconfig", kubeconfig];
    let mut watch = plane.program("watch", &binary().await.unwrap(), args, &[]).unwrap();
    for expected in ["pod/shop/orders-1 Blocked (NoEvidence)", "Trying again", "the API server answers again"] {
        if expected == "Trying again" {
            plane.stop_apiserver().unwrap();
            for command in ["status", "doctor"] {
                let output = run(plane, &plane.admin_kubeconfig(), &[command]).await;
                assert_eq!((output.status.code(), output.stdout.as_str()), (Some(1), ""), "{command}: {output:?}");
            }
        } else if expected.ends_with("answers again") {
            plane.start_apiserver().await.unwrap();
        }
        let printed = |log: &str| if log.contains(expected) { Ok(()) } else { Err(log.to_owned()) };
        wait_until(expected, async || printed(&watch.log_text())).await;
    }
    let log = watch.log_text();
    assert_eq!(log.matches("Trying again").count(), 1, "each trouble is said once:\n{log}");
    watch.interrupt().await.unwrap();
}
