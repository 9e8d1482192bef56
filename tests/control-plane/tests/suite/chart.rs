//! The chart in a real cluster: installed with Helm, run like its Deployment, upgraded, rolled back, uninstalled.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use kube::Client;
use kube::client::Body;
use pod_safety_control_plane::objects::{self, PodExt as _};
use pod_safety_control_plane::{
    AuditLog, ControlPlane, Options, PodSafety, budgets, chart, check_that, observe, wait_until,
};
use serde_json::{Value, json};

const ACCOUNT: &str = "system:serviceaccount:pod-safety:pod-safety";
/// No test here waits for a quarantine of 40 s.
const QUICK: &str = "controllers.podGc.quarantine=3s,leaderElection.retryPeriod=500ms";

/// Runs helm for the release, and returns its output.
async fn release(plane: &ControlPlane, args: &[&str]) -> String {
    plane.helm(&[args, &["--namespace=pod-safety"]].concat()).await.unwrap().text().unwrap()
}

/// With `set`, all values are given again; no pod becomes Ready here, so helm does not wait.
async fn upgrade(plane: &ControlPlane, set: &str) -> String {
    let (chart, set) = (chart(), format!("--set={QUICK},{set}"));
    let args = ["upgrade", "--install", "--create-namespace", "pod-safety", chart.to_str().unwrap(), &set];
    release(plane, &args).await
}

async fn get(plane: &ControlPlane, what: &[&str]) -> Value {
    let args = [&["get", "-o", "json", "-n", "pod-safety"][..], what].concat();
    serde_json::from_str(&plane.kubectl(&args).await.unwrap().text().unwrap()).unwrap()
}

/// The arguments of a container, without the subcommand.
fn arguments(container: &Value) -> Vec<String> {
    let all = container["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap().to_owned());
    all.collect()
}

/// Starts the binary with the arguments of the Deployment and the service account's token.
pub(crate) async fn start(plane: &ControlPlane, name: &str, kubeconfig: &Path) -> PodSafety {
    let deployment = get(plane, &["deployment", "pod-safety"]).await;
    let spec = &deployment["spec"]["template"]["spec"];
    assert_eq!(spec["serviceAccountName"], "pod-safety");
    let container = &spec["containers"][0];
    let mut args = arguments(container);
    assert_eq!(args.remove(0), "run");
    // Tests share one network: each process has its own port.
    args.retain(|arg| !arg.starts_with("--admin-address="));
    // No kubelet sets the variable; its flag has the same meaning.
    assert_eq!(container["env"][0]["valueFrom"]["fieldRef"]["fieldPath"], "spec.nodeName");
    assert_eq!(container["env"][0]["name"], "POD_SAFETY_NODE_NAME");
    args.push("--node-name=control-plane".to_owned());
    let mut pod_safety = plane.pod_safety(name, kubeconfig, args).await.unwrap();
    pod_safety.ready().await.unwrap();
    pod_safety
}

fn refused(audit: &AuditLog) -> Vec<pod_safety_control_plane::AuditEntry> {
    audit.entries().unwrap().into_iter().filter(|entry| entry.code == 403).collect()
}

/// The objects of the release, as `kind/name`, by its label.
async fn of_the_release(plane: &ControlPlane) -> BTreeSet<String> {
    let kinds = plane.kubectl(&["api-resources", "--verbs=list", "-o", "name"]).await.unwrap().text().unwrap();
    // The only resource that is no object, and has no labels.
    let kinds: Vec<_> = kinds.split_whitespace().filter(|kind| *kind != "componentstatuses").collect();
    let kinds = kinds.join(",");
    let label = "-l=app.kubernetes.io/instance=pod-safety";
    let names = plane.kubectl(&["get", &kinds, "-A", label, "-o", "name"]).await.unwrap().text().unwrap();
    // The controllers of Kubernetes that would create more objects do not run here.
    names.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn chart_installs_upgrades_rolls_back_and_uninstalls() {
    let (audit, plane) = ControlPlane::audited(ACCOUNT).await.unwrap();

    let notes = upgrade(&plane, "mode=guard").await;
    assert!(notes.contains("in mode guard") && notes.contains("only warn for now"), "{notes}");
    let kubeconfig = plane.service_account("pod-safety", "pod-safety").await.unwrap();
    its_checks_pass(&plane, &kubeconfig).await;
    in_guard_mode_it_acts_where_others_are_denied(&plane, &audit, &kubeconfig).await;
    in_replace_mode_it_calculates_pdbs(&plane, &audit, &kubeconfig).await;
    in_observe_mode_it_writes_nothing(&plane, &audit, &kubeconfig).await;

    release(&plane, &["rollback", "pod-safety", "1"]).await;
    let deployment = get(&plane, &["deployment", "pod-safety"]).await;
    let args = arguments(&deployment["spec"]["template"]["spec"]["containers"][0]);
    assert!(args.contains(&"--mode=guard".to_owned()), "{args:?}");
    uninstall_leaves_fence_evidence(&plane).await;
}

/// Runs the checks of `helm test` as processes instead of pods.
async fn its_checks_pass(plane: &ControlPlane, kubeconfig: &Path) {
    let hooks = release(plane, &["get", "hooks", "pod-safety"]).await;
    let pod: Value = serde_saphyr::from_str(&hooks).unwrap();
    let spec = &pod["spec"];
    let containers: Vec<_> =
        ["initContainers", "containers"].iter().flat_map(|field| spec[field].as_array().unwrap().clone()).collect();
    assert_eq!(containers.len(), 2, "{hooks}");
    for container in containers {
        let args = arguments(&container);
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        plane.start_pod_safety_once(kubeconfig, &args).await.unwrap().text().unwrap();
    }
    let admitted = plane.kubectl_with(&["create", "--dry-run=server", "-f", "-"], &hooks).await.unwrap();
    assert!(admitted.status.success(), "{admitted:?}");
}

async fn in_guard_mode_it_acts_where_others_are_denied(plane: &ControlPlane, audit: &AuditLog, kubeconfig: &Path) {
    upgrade(plane, "mode=guard,admissionPolicies.action=Deny").await;
    let orphan = objects::pod("default", "orphan").on_node("vanished").with_phase("Running");
    objects::create_pod(&plane.admin(), &orphan).await.unwrap();
    // The aggregated role `edit` is filled by a controller that does not run here.
    let role = ["create", "clusterrole", "dev", "--verb=get,list,delete", "--resource=pods"];
    plane.kubectl(&role).await.unwrap().text().unwrap();
    let editor = ["create", "clusterrolebinding", "dev", "--clusterrole=dev", "--user=dev"];
    plane.kubectl(&editor).await.unwrap().text().unwrap();
    wait_until("nobody else may remove it", async || {
        // A dry run, because policies take effect a moment after they were written.
        let force = ["delete", "pod", "orphan", "--force", "--grace-period=0", "--dry-run=server", "--as=dev"];
        let answer = plane.kubectl(&force).await.map_err(|error| error.to_string())?;
        check_that(
            answer.stderr.contains("'pod-safety-force-delete'") && !answer.status.success(),
            format!("{answer:?}"),
        )
    })
    .await;
    let mut pod_safety = start(plane, "guard", kubeconfig).await;
    pod_safety.is_leader().await.unwrap();
    observe::remaining_pod(&plane.admin(), "default", &[]).await.unwrap();
    pod_safety.terminate().await.unwrap();
    assert!(refused(audit).is_empty(), "{:?}", refused(audit));
}

async fn in_replace_mode_it_calculates_pdbs(plane: &ControlPlane, audit: &AuditLog, kubeconfig: &Path) {
    let notes = upgrade(plane, "mode=replace").await;
    assert!(
        notes.contains("-pod-garbage-collector-controller,-disruption-controller,-node-lifecycle-controller"),
        "{notes}"
    );
    let mut pod_safety = start(plane, "replace", kubeconfig).await;
    pod_safety.is_leader().await.unwrap();
    let spec = json!({ "maxUnavailable": 1, "selector": { "matchLabels": { "app": "none" } } });
    budgets::put(&plane.admin(), "default", "none", &spec).await.unwrap();
    wait_until("the budget is calculated", async || {
        let status =
            budgets::budget_status(&plane.admin(), "default", "none").await.map_err(|error| error.to_string())?;
        check_that(status.observed == status.generation && status.generation > 0, status.to_string())
    })
    .await;
    pod_safety.terminate().await.unwrap();
    assert!(refused(audit).is_empty(), "{:?}", refused(audit));
}

async fn in_observe_mode_it_writes_nothing(plane: &ControlPlane, audit: &AuditLog, kubeconfig: &Path) {
    upgrade(plane, "mode=observe").await;
    let before = audit.entries().unwrap().len();
    let mut pod_safety = start(plane, "observe", kubeconfig).await;
    let orphan = objects::pod("default", "orphan").on_node("vanished").with_phase("Running");
    objects::create_pod(&plane.admin(), &orphan).await.unwrap();
    wait_until("it says what it would do", async || {
        let records = pod_safety.records("orphan").await.map_err(|error| error.to_string())?;
        check_that(records.iter().any(|record| record["action"] == "WouldDelete"), format!("{records:?}"))
    })
    .await;
    pod_safety.terminate().await.unwrap();
    let entries = audit.entries().unwrap().split_off(before);
    let more: Vec<_> =
        entries.iter().filter(|entry| entry.code == 403 || !["get", "list", "watch"].contains(&&*entry.verb)).collect();
    assert!(more.is_empty(), "{more:?}");
}

async fn uninstall_leaves_fence_evidence(plane: &ControlPlane) {
    let evidence = json!({
        "apiVersion": "pod-safety.dev/v1alpha1", "kind": "FenceEvidence", "metadata": { "name": "proved-xxxxx" },
        "spec": { "node": { "name": "w1", "uid": "u", "bootID": "b" }, "kind": "Asserted", "by": "admin", "reason": "I saw it" },
    });
    plane.kubectl_with(&["create", "-f", "-"], &evidence.to_string()).await.unwrap().text().unwrap();
    let there = of_the_release(plane).await;
    assert!(there.len() > 30, "{there:?}");
    release(plane, &["uninstall", "pod-safety", "--cascade=background"]).await;
    let remaining = of_the_release(plane).await;
    assert!(remaining.iter().all(|name| name.starts_with("customresourcedefinition")), "{remaining:?}");
    assert_eq!(remaining.len(), there.iter().filter(|name| name.starts_with("customresourcedefinition")).count());
    plane.kubectl(&["get", "fenceevidence", "proved-xxxxx"]).await.unwrap().text().unwrap();
    let secrets =
        plane.kubectl(&["get", "secrets", "-A", "-l", "owner=helm", "-o", "name"]).await.unwrap().text().unwrap();
    assert!(secrets.trim().is_empty(), "{secrets}");
    node_leftovers_are_removed_as_documented(plane).await;
    // The remaining objects are adopted.
    upgrade(plane, "mode=guard").await;
    plane.kubectl(&["get", "fenceevidence", "proved-xxxxx"]).await.unwrap().text().unwrap();
}

async fn node_leftovers_are_removed_as_documented(plane: &ControlPlane) {
    const STAYS: &str = "pod-safety.dev/NodeUnreachable";
    let page = std::fs::read_to_string(chart().join("../../docs/install.md")).unwrap();
    let row = page.lines().find(|line| line.contains(STAYS)).unwrap();
    let command = row.rsplit('`').nth(1).unwrap().replace("NODE", "w1");
    let (command, patch) = command.split_once(" -p ").unwrap();
    let command: Vec<_> = command.split(' ').skip(1).collect();
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "w1" } });
    plane.kubectl_with(&["create", "-f", "-"], &node.to_string()).await.unwrap().text().unwrap();
    let lost = json!({ "status": { "conditions": [{ "type": STAYS, "status": "True" }] } }).to_string();
    for (patch, has) in [(&*lost, true), (patch.trim_matches('\''), false)] {
        plane.kubectl(&[&command[..], &["-p", patch]].concat()).await.unwrap().text().unwrap();
        let node = get(plane, &["node", "w1"]).await;
        assert_eq!(node["status"]["conditions"].to_string().contains(STAYS), has, "{node}");
    }
}

/// It was deleted together with a role that adds to it, and kube-controller-manager wrote it again.
#[tokio::test]
async fn bug_a_role_came_back_after_the_uninstall_and_the_next_install_was_refused() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let _kcm = plane.kube_controller_manager("clusterrole-aggregation-controller", &[]).await.unwrap();
    let aggregates = async |added: bool| {
        wait_until("kube-controller-manager aggregates", async || {
            let view = get(&plane, &["clusterrole", "view"]).await["rules"].to_string();
            check_that(view.contains("pod-safety.dev") == added, view)
        })
        .await;
    };
    for _ in 0..3 {
        upgrade(&plane, "crds.enabled=false").await;
        aggregates(true).await;
        release(&plane, &["uninstall", "pod-safety"]).await;
        aggregates(false).await;
        let remaining = of_the_release(&plane).await;
        assert!(remaining.is_empty(), "{remaining:?}");
        let roles = plane.kubectl(&["get", "clusterroles", "-o", "name"]).await.unwrap().text().unwrap();
        assert!(!roles.contains("pod-safety"), "{roles}");
    }
}

/// The API server accepts every object of each mode with strict field validation.
#[tokio::test]
async fn the_api_server_accepts_the_manifests_of_each_mode() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    for namespace in ["pod-safety", "elections", "rack-a", "rack-b"] {
        plane.namespace(namespace).await.unwrap();
    }
    // A namespace of the chart. A dry run does not create it, and an apply warns about objects that were not applied before.
    let volumes = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "pod-safety-volumes" } });
    plane.kubectl_with(&["apply", "-f", "-"], &volumes.to_string()).await.unwrap().text().unwrap();
    for way in ["default", "observe", "replace", "everything"] {
        let values: PathBuf = chart().join(format!("ci/{way}-values.yaml"));
        // The Prometheus operator does not run here.
        let args = [
            "template",
            "pod-safety",
            chart().to_str().unwrap(),
            "--namespace=pod-safety",
            "--values",
            values.to_str().unwrap(),
            "--set=crds.enabled=true,metrics.serviceMonitor.enabled=false",
        ]
        .map(str::to_owned);
        let rendered = plane.helm(&args.each_ref().map(String::as_str)).await.unwrap().text().unwrap();
        let apply = ["apply", "--dry-run=server", "--validate=strict", "-f", "-"];
        let output = plane.kubectl_with(&apply, &rendered).await.unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{way}: {output:?}");
    }
}

/// The priority level of this request, from the headers of its answer.
#[expect(clippy::disallowed_methods, reason = "a test that reads a header of the answer")]
async fn level(api: &Client, path: &str) -> String {
    let request = http::Request::get(path).body(Body::empty()).unwrap();
    let answer = api.send(request).await.unwrap();
    answer.headers()["x-kubernetes-pf-prioritylevel-uid"].to_str().unwrap().to_owned()
}

#[tokio::test]
async fn attack_a_tenant_floods_another_priority_level_than_that_of_pod_safety() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    upgrade(&plane, "mode=guard,agent.enabled=true").await;
    let mut api = Vec::new();
    for (namespace, name) in [("pod-safety", "pod-safety"), ("pod-safety", "pod-safety-agent"), ("tenant", "default")] {
        let kubeconfig = plane.service_account(namespace, name).await.unwrap();
        api.push(plane.client(&kubeconfig).await.unwrap());
    }
    let [pod_safety, agent, tenant] = &api[..] else { panic!("three accounts") };
    let leases = |namespace: &str| format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/x");
    wait_until("each has a level of its own", async || {
        let levels = [
            level(pod_safety, "/api/v1/pods?limit=1").await,
            level(pod_safety, &leases("kube-system")).await,
            level(agent, &leases("pod-safety")).await,
            level(tenant, "/api/v1/pods?limit=1").await,
        ];
        check_that(levels.iter().collect::<BTreeSet<_>>().len() == levels.len(), format!("{levels:?}"))
    })
    .await;
    let foreign = leases("tenant");
    assert_eq!(level(agent, &foreign).await, level(tenant, &foreign).await, "only its own Leases have a level");
}
