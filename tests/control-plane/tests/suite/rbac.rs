//! The shipped rights are sufficient, and none is unused: by the API server's audit log.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::{Api, Client};
use pod_safety_control_plane::budgets;
use pod_safety_control_plane::objects::{self, PodExt as _};
use pod_safety_control_plane::workloads::{self, FLEET};
use pod_safety_control_plane::{AuditLog, ControlPlane, check_that, observe, wait_until};
use serde_json::json;

const USER: &str = "system:serviceaccount:pod-safety:pod-safety";

/// A right or its use: namespace (empty: everywhere), resource, name (empty: all), verb.
type Right = (String, String, String, String);

fn rights(namespace: &str, rules: Option<Vec<PolicyRule>>) -> Vec<Right> {
    let mut all = Vec::new();
    for rule in rules.unwrap_or_default() {
        let names = rule.resource_names.unwrap_or_else(|| vec![String::new()]);
        for resource in rule.resources.unwrap_or_default() {
            for (name, verb) in names.iter().flat_map(|name| rule.verbs.iter().map(move |verb| (name, verb))) {
                all.push((namespace.to_owned(), resource.clone(), name.clone(), verb.clone()));
            }
        }
    }
    all
}

async fn granted(api: &Client) -> BTreeSet<Right> {
    let mut all = Vec::new();
    for name in ["pod-safety", "pod-safety-replace"] {
        let cluster = Api::<ClusterRole>::all(api.clone()).get(name).await.unwrap();
        all.extend(rights("", cluster.rules));
    }
    for (namespace, name) in [("kube-node-lease", "pod-safety-heartbeats"), ("kube-system", "pod-safety-leader")] {
        let role = Api::<Role>::namespaced(api.clone(), namespace).get(name).await.unwrap();
        all.extend(rights(namespace, role.rules));
    }
    all.into_iter().collect()
}

/// The requests in the form of rules. Each resource is granted in one scope.
fn used(audit: &AuditLog) -> BTreeSet<Right> {
    let as_right = |entry: pod_safety_control_plane::AuditEntry| {
        let scoped = entry.resource == "leases";
        let named = scoped && entry.namespace == "kube-system" && entry.verb != "create";
        let namespace = if scoped { entry.namespace } else { String::new() };
        // Of any kind.
        let resource = if entry.resource.ends_with("/scale") { "*/scale".to_owned() } else { entry.resource };
        (namespace, resource, if named { entry.name } else { String::new() }, entry.verb)
    };
    // Custom resources of pod-safety have separate roles and suites: tests/fencing.rs, tests/drivers.rs.
    let own_kind =
        |resource: &str| ["fence", "nodefences", "podsafety"].iter().any(|own_kind| resource.starts_with(own_kind));
    // Every authenticated user may run discovery and self subject reviews.
    let entries = audit.entries().unwrap().into_iter().filter(|entry| {
        !entry.resource.is_empty() && !entry.resource.starts_with("selfsubject") && !own_kind(&entry.resource)
    });
    entries.map(as_right).collect()
}

async fn orphan(api: &Client, name: &str) {
    let pod = objects::pod("default", name).on_node("vanished").with_phase("Running");
    objects::create_pod(api, &pod).await.unwrap();
}

/// A PDB over pods of a workload whose scale must be read.
async fn pod_with_pdb(plane: &ControlPlane, api: &Client) {
    workloads::define_custom_kinds(api).await.unwrap();
    plane.namespace("budgeted").await.unwrap();
    objects::create_node(api, &objects::node("worker")).await.unwrap();
    objects::renew_lease(api, "worker").await.unwrap();
    let fleet = workloads::put(api, FLEET, "budgeted", "fleet", 3, None).await.unwrap();
    let pod = objects::pod("budgeted", "fleet-0").on_node("worker").with_phase("Running");
    objects::create_pod(api, &pod.with_label("app", "fleet").controlled_by(fleet)).await.unwrap();
    let spec = json!({ "maxUnavailable": 1, "selector": { "matchLabels": { "app": "fleet" } } });
    budgets::put(api, "budgeted", "fleet", &spec).await.unwrap();
}

#[tokio::test]
async fn every_right_is_used_and_none_is_missing() {
    let (audit, plane) = ControlPlane::audited(USER).await.unwrap();
    let api = &plane.admin();
    let kubeconfig = plane.install_pod_safety().await.unwrap();
    observe_mode_writes_nothing(&plane, &audit, &kubeconfig).await;

    pod_with_pdb(&plane, api).await;
    // No kubelet renews the heartbeat of the worker.
    let replace = ["--mode=replace", "--node-monitor-grace-period=2s"];
    let mut pod_safety = plane.leading_pod_safety(&kubeconfig, replace).await.unwrap();
    let calculated = async || {
        let status = budgets::budget_status(api, "budgeted", "fleet").await.map_err(|error| format!("{error:?}"))?;
        check_that((status.desired, status.observed) == (2, status.generation), status.to_string())
    };
    wait_until("the budget of the fleet is calculated", calculated).await;
    // The Lease of the missing node is also read by name.
    observe::remaining_pod(api, "default", &[]).await.unwrap();
    observe::event(api, "default", "orphan", "ForceDeleted").await.unwrap();
    let lost = async || {
        let worker = Api::<Node>::all(api.clone()).get("worker").await.map_err(|error| error.to_string())?;
        let taints = worker.spec.and_then(|spec| spec.taints).unwrap_or_default();
        let is_tainted = taints.iter().any(|taint| taint.key == "node.kubernetes.io/unreachable");
        check_that(is_tainted, format!("{taints:?}"))
    };
    wait_until("the worker is lost", lost).await;
    let renewed = async || {
        let renewals = audit.entries().map_err(|error| format!("{error:?}"))?;
        let patches = renewals.iter().filter(|entry| entry.verb == "patch" && entry.resource == "leases");
        check_that(patches.count() > 0, "no renewal".to_owned())
    };
    wait_until("the lease is renewed", renewed).await;
    pod_safety.terminate().await.unwrap();

    let refused: Vec<_> = audit.entries().unwrap().into_iter().filter(|entry| entry.code == 403).collect();
    assert!(refused.is_empty(), "a right is missing: {refused:?}");
    // The API server denies requests without a right, so a used right cannot be missing.
    assert_eq!(used(&audit), granted(api).await);
}

async fn observe_mode_writes_nothing(plane: &ControlPlane, audit: &AuditLog, kubeconfig: &Path) {
    let api = &plane.admin();
    orphan(api, "orphan").await;
    let mut observer = plane.pod_safety("observer", kubeconfig, ["--mode=observe"]).await.unwrap();
    observer.ready().await.unwrap();
    let record = wait_until("it says what it would do", async || {
        let records = observer.records("orphan").await.map_err(|error| format!("{error:?}"))?;
        records.into_iter().find(|record| record["action"] == "WouldDelete").ok_or("nothing".to_owned())
    });
    assert_eq!(record.await["reason"], "ObserveMode");
    let listed = audit.entries().unwrap();
    assert!(listed.iter().any(|entry| entry.verb == "list" && entry.resource == "pods"), "{listed:?}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let entries = audit.entries().unwrap();
    let writes: Vec<_> = entries.iter().filter(|entry| !["get", "list", "watch"].contains(&&*entry.verb)).collect();
    assert!(writes.is_empty(), "{writes:?}");
    assert_eq!(observe::pod_names(api, "default").await.unwrap(), ["orphan"]);
    observer.terminate().await.unwrap();
}

#[tokio::test]
async fn a_forbidden_kind_is_named_and_the_others_go_on() {
    let (plane, kubeconfig) = ControlPlane::with_pod_safety().await.unwrap();
    let api = &plane.admin();
    let delete = ["delete", "role", "-n", "kube-node-lease", "pod-safety-heartbeats"];
    plane.kubectl(&delete).await.unwrap().text().unwrap();

    objects::create_node(api, &objects::node("worker")).await.unwrap();
    orphan(api, "orphan").await;
    for name in ["ended-1", "ended-2"] {
        let ended = objects::pod("default", name).on_node("worker").with_phase("Succeeded");
        objects::create_pod(api, &ended).await.unwrap();
    }
    let untaken = objects::pod("default", "untaken").with_finalizer("example.com/hold");
    objects::create_pod(api, &untaken).await.unwrap();
    observe::delete_pod(api, "default", "untaken", false).await.unwrap();

    // The unscheduled pod becomes the third one.
    let args = ["--terminated-pod-gc-threshold=2"];
    let pod_safety = plane.pod_safety("pod-safety", &kubeconfig, args).await.unwrap();
    observe::remaining_pod(api, "default", &["ended-2", "orphan", "untaken"]).await.unwrap();
    let failed = async || {
        let pod = observe::find_pod(api, "default", "untaken").await.unwrap().unwrap();
        check_that(pod.status.unwrap().phase.as_deref() == Some("Failed"), "not yet")
    };
    wait_until("the untaken pod is released", failed).await;

    tokio::time::sleep(Duration::from_secs(7)).await;
    let orphan = observe::find_pod(api, "default", "orphan").await.unwrap().unwrap();
    assert_eq!(orphan.status.unwrap().phase.as_deref(), Some("Running"), "its heartbeat cannot be seen");
    let page = pod_safety.get("/readyz").await.unwrap();
    assert_eq!(page.code, 503);
    for words in ["[-]leases: ", "cannot list resource \"leases\"", "[+]pods ok", "[+]nodes ok"] {
        assert!(page.body.contains(words), "no {words} in {}", page.body);
    }
    let log = pod_safety.log_text();
    // The CRDs were created a moment ago: the API server may log about them.
    let about = |line: &&str| {
        line.contains("cannot watch this resource")
            && !line.contains("resource=\"fence")
            && !line.contains("resource=\"nodefences")
            && !line.contains("resource=\"podsafety")
    };
    let is_tainted: Vec<&str> = log.lines().filter(about).collect();
    assert!(
        is_tainted.len() == 1 && is_tainted[0].contains("verb=\"list\"") && is_tainted[0].contains("leases"),
        "{is_tainted:?}"
    );
    let decisions = pod_safety.debug("/debug/decisions").await.unwrap()["holds"].to_string();
    assert!(decisions.contains("leases are not listed yet"), "{decisions}");
    let errors = pod_safety.metric("pod_safety_cache_watch_failures_total", &[("error", "forbidden")]).await.unwrap();
    assert!(errors >= 2.0);

    plane.install_pod_safety().await.unwrap();
    let gone = async || {
        let names = observe::pod_names(api, "default").await.map_err(|error| format!("{error:?}"))?;
        check_that(!names.contains(&"orphan".to_owned()), format!("{names:?}"))
    };
    wait_until("the orphan goes when its heartbeat can be seen", gone).await;
    let decisions = pod_safety.debug("/debug/decisions").await.unwrap()["holds"].to_string();
    assert!(!decisions.contains("NotSynced"), "{decisions}");
}
