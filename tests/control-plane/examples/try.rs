//! `make try`: a real control plane with a small cluster in trouble, pod-safety
//! in it, and its actions with their reasons. Cleans up after itself.
//!
//! The nodes are API objects without machines, so this program acts as every
//! kubelet that is meant to run. kube-controller-manager is the garbage
//! collector: it deletes the Lease of a deleted Node.

#![expect(clippy::disallowed_methods, reason = "it plays the person that deletes nodes and pods")]

use std::io::Write;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams};
use pod_safety_control_plane::objects::{NodeExt, PodExt, create_pod, node, pod};
use pod_safety_control_plane::{ControlPlane, Options, PodSafety, binary, check_that, kubelet, observe, tool, until};
use serde_json::Value;

const NAMESPACE: &str = "shop";
const MANY_LINES: usize = 200;

fn print_line(line: &str) -> Result<()> {
    Ok(writeln!(std::io::stdout(), "{line}")?)
}

#[tokio::main]
async fn main() -> Result<()> {
    print_line(
        "Building pod-safety and, the first time, etcd and Kubernetes (about 10 minutes then, nothing later) …",
    )?;
    tool("kube-apiserver").await?;
    binary().await?;
    let plane = ControlPlane::start(Options::default()).await?;
    let _collector = plane.kube_controller_manager("garbage-collector-controller", &[]).await?;
    print_line(&format!(
        "A real kube-apiserver answers at {}, and the garbage collector of kube-controller-manager runs.\n",
        plane.url()
    ))?;
    create_objects(&plane).await?;
    let mut pod_safety = start(&plane).await?;
    print_line("$ kubectl delete node worker-b worker-c        (worker-b is off; the kubelet of worker-c lives on)\n")?;
    for name in ["worker-b", "worker-c"] {
        observe::delete_node(&plane.admin(), name).await?;
    }
    let held = watch(&plane, &pod_safety).await?;
    report(&plane, &pod_safety, &held).await?;
    let status = pod_safety.terminate().await?;
    print_line(&format!("\npod-safety stopped ({status}), gave its lease back, and the control plane goes with it."))
}

/// Four nodes, and pods for each case that the pod garbage collector distinguishes.
async fn create_objects(plane: &ControlPlane) -> Result<()> {
    let client = plane.admin();
    plane.namespace(NAMESPACE).await?;
    for name in ["worker-a", "worker-b", "worker-c", "worker-d"] {
        let ready = if name == "worker-d" { "Unknown" } else { "True" };
        kubelet::register(&client, &node(name).with_ready(ready)).await?;
    }
    let on = |name: &str, node: &str| pod(NAMESPACE, name).on_node(node).with_phase("Running");
    for (name, node) in [
        ("web-0", "worker-a"),
        ("db-0", "worker-b"),
        ("cart-0", "worker-b"),
        ("queue-0", "worker-c"),
        ("cache-0", "worker-d"),
    ] {
        create_pod(&client, &on(name, node)).await?;
    }
    for job in 1..=5 {
        create_pod(&client, &pod(NAMESPACE, &format!("job-{job}")).on_node("worker-a").with_phase("Succeeded")).await?;
    }
    create_pod(&client, &pod(NAMESPACE, "never-0").with_finalizer("example.com/backup")).await?;
    plane
        .kubectl(&["taint", "node", "worker-d", "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"])
        .await?
        .text()?;
    for name in ["cache-0", "never-0"] {
        Api::<Pod>::namespaced(client.clone(), NAMESPACE).delete(name, &DeleteParams::default()).await?;
    }
    print_line(&plane.kubectl(&["get", "nodes"]).await?.text()?)?;
    print_line(&plane.kubectl(&["get", "pods", "-n", NAMESPACE, "-o", "wide", "--no-headers"]).await?.text()?)
}

/// Runs the binary as its own service account, with the shipped rights.
async fn start(plane: &ControlPlane) -> Result<PodSafety> {
    let kubeconfig = plane.install_pod_safety().await?;
    let args = ["--pod-gc-quarantine=5s", "--terminated-pod-gc-threshold=3"];
    print_line(&format!("$ pod-safety run {}\n", args.join(" ")))?;
    Ok(plane.leading_pod_safety(&kubeconfig, args).await?)
}

/// Acts as the running kubelets, until the pods of both deleted Nodes are gone. Returns the hold on queue-0 while its kubelet terminated
/// it.
async fn watch(plane: &ControlPlane, pod_safety: &PodSafety) -> Result<Vec<Value>> {
    let client = plane.admin();
    let queue = until("queue-0 is deleted gracefully", async || {
        for name in ["worker-a", "worker-c"] {
            kubelet::renew(&client, name).await.map_err(|error| error.to_string())?;
        }
        let reported = kubelet::report_deletion(&client, NAMESPACE, "queue-0").await;
        reported.map_err(|error| error.to_string())?.ok_or("nobody deleted it".to_owned())
    })
    .await?;
    let held = until("queue-0 is held", async || {
        let holds = pod_safety.holds("queue-0").await.map_err(|error| error.to_string())?;
        let alive = holds.iter().any(|hold| hold["reason"] == "KubeletAlive");
        check_that(alive, format!("{holds:?}")).map(|()| holds)
    })
    .await?;
    kubelet::remove(&client, &queue).await?;
    until("the pods of worker-b are gone", async || {
        kubelet::renew(&client, "worker-a").await.map_err(|error| error.to_string())?;
        let pod = observe::find_pod(&client, NAMESPACE, "db-0").await.map_err(|error| error.to_string())?;
        check_that(pod.is_none(), "db-0 is still there".to_owned())
    })
    .await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(held)
}

async fn report(plane: &ControlPlane, pod_safety: &PodSafety, held: &[Value]) -> Result<()> {
    let decisions = pod_safety.debug("/debug/decisions").await?;
    print_line("WHAT IT DELETED GRACEFULLY")?;
    for record in records(&decisions, "Deleted") {
        line(&record["pod"]["name"], record)?;
    }
    print_line("\nWHAT IT FORCE DELETED")?;
    for record in records(&decisions, "ForceDeleted") {
        line(&record["pod"]["name"], record)?;
    }
    print_line("\nWHAT IT DID NOT FORCE DELETE, AND WHY")?;
    let holds = decisions["holds"].as_array().into_iter().flatten();
    for hold in held.iter().chain(holds).take(MANY_LINES) {
        let subject = &hold["subject"];
        line(if subject["pod"].is_null() { &subject["node"] } else { &subject["pod"]["name"] }, hold)?;
    }
    print_line("\nWHAT IS LEFT")?;
    print_line(&plane.kubectl(&["get", "pods", "-n", NAMESPACE, "-o", "wide", "--no-headers"]).await?.text()?)?;
    print_line("METRICS")?;
    let metrics = pod_safety.get("/metrics").await?.body;
    let is_reported = |line: &&str| {
        line.starts_with("pod_gc_collector")
            || line.starts_with("pod_safety_force_deletes_total")
            || line.starts_with("process_resident")
    };
    metrics.lines().filter(is_reported).try_for_each(|line| print_line(&format!("  {line}")))
}

fn line(name: &Value, value: &Value) -> Result<()> {
    print_line(&format!("  {:10} {:20} {}", text(name), text(&value["reason"]), text(&value["message"])))
}

fn records<'a>(decisions: &'a Value, action: &'a str) -> impl Iterator<Item = &'a Value> {
    let all = decisions["records"].as_array().into_iter().flatten();
    all.filter(move |record| record["action"] == action).take(MANY_LINES)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}
