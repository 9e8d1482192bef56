//! `make try`: a real control plane with a small cluster in trouble, pod-safety
//! in it, and what it did and why. Cleans up after itself.
//!
//! The nodes are API objects without machines, so every "kubelet" here is this
//! program: it renews the Leases of those that are meant to live.

#![expect(clippy::disallowed_methods, reason = "it plays the person who deletes nodes and pods")]

use std::io::Write;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams};
use pod_safety_control_plane::objects::{NodeExt, PodExt, create_node, create_pod, node, pod, renew_lease};
use pod_safety_control_plane::{ControlPlane, Options, PodSafety, binary, seen, tool, until};
use serde_json::Value;

const NAMESPACE: &str = "shop";
const MANY_LINES: usize = 200;

fn say(line: &str) -> Result<()> {
    Ok(writeln!(std::io::stdout(), "{line}")?)
}

#[tokio::main]
async fn main() -> Result<()> {
    say(
        "Building pod-safety and, the first time, etcd and Kubernetes (about 10 minutes then, nothing later) …",
    )?;
    tool("kube-apiserver").await?;
    binary().await?;
    let plane = ControlPlane::start(Options::default()).await?;
    say(&format!("A real kube-apiserver answers at {}.\n", plane.url()))?;
    fill(&plane).await?;
    let mut pod_safety = start(&plane).await?;
    say(
        "$ kubectl delete node worker-b worker-c        (worker-b is off; the kubelet of worker-c lives on)\n",
    )?;
    for name in ["worker-b", "worker-c"] {
        Api::<Node>::all(plane.admin()).delete(name, &DeleteParams::default()).await?;
    }
    watch(&plane).await?;
    report(&plane, &pod_safety).await?;
    let status = pod_safety.terminate().await?;
    say(&format!("\npod-safety stopped ({status}), gave its lease back, and the control plane goes with it."))
}

/// Three nodes, and pods in every kind of trouble that the collector knows.
async fn fill(plane: &ControlPlane) -> Result<()> {
    let client = plane.admin();
    plane.namespace(NAMESPACE).await?;
    for name in ["worker-a", "worker-b", "worker-c", "worker-d"] {
        create_node(&client, &node(name).with_ready(if name == "worker-d" { "Unknown" } else { "True" }))
            .await?;
        renew_lease(&client, name).await?;
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
        create_pod(
            &client,
            &pod(NAMESPACE, &format!("job-{job}")).on_node("worker-a").with_phase("Succeeded"),
        )
        .await?;
    }
    create_pod(&client, &pod(NAMESPACE, "never-0").with_finalizer("example.com/backup")).await?;
    plane
        .kubectl(&["taint", "node", "worker-d", "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"])
        .await?
        .text()?;
    for name in ["cache-0", "never-0"] {
        Api::<Pod>::namespaced(client.clone(), NAMESPACE).delete(name, &DeleteParams::default()).await?;
    }
    say(&plane.kubectl(&["get", "nodes"]).await?.text()?)?;
    say(&plane.kubectl(&["get", "pods", "-n", NAMESPACE, "-o", "wide", "--no-headers"]).await?.text()?)
}

/// Runs the binary as its own service account, with the rights that it ships.
async fn start(plane: &ControlPlane) -> Result<PodSafety> {
    let kubeconfig = plane.install_pod_safety().await?;
    let args = ["--pod-gc-quarantine=5s", "--terminated-pod-gc-threshold=3"];
    say(&format!("$ pod-safety run {}\n", args.join(" ")))?;
    let mut started = plane.pod_safety("pod-safety", &kubeconfig, args).await?;
    started.leads().await?;
    Ok(started)
}

/// Plays the living kubelets until the pods of worker-b are gone.
async fn watch(plane: &ControlPlane) -> Result<()> {
    let client = plane.admin();
    let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
    until("the pods of worker-b are gone", async || {
        for name in ["worker-a", "worker-c"] {
            renew_lease(&client, name).await.map_err(|error| error.to_string())?;
        }
        let left = pods.get_opt("db-0").await.map_err(|error| error.to_string())?;
        tokio::time::sleep(Duration::from_millis(500)).await;
        seen(left.is_none(), "db-0 is still there".to_owned())
    })
    .await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(())
}

async fn report(plane: &ControlPlane, pod_safety: &PodSafety) -> Result<()> {
    let decisions = pod_safety.debug("/debug/decisions").await?;
    say("WHAT IT DID")?;
    for record in records(&decisions, "ForceDeleted") {
        say(&format!(
            "  {:10} {:18} {}",
            text(&record["pod"]["name"]),
            text(&record["reason"]),
            text(&record["message"])
        ))?;
    }
    say("\nWHAT IT DID NOT DO, AND WHY")?;
    for hold in decisions["holds"].as_array().into_iter().flatten().take(MANY_LINES) {
        let subject = hold["subject"]["pod"]["name"].as_str().or(hold["subject"]["node"].as_str());
        say(&format!(
            "  {:10} {:18} {}",
            subject.unwrap_or("-"),
            text(&hold["reason"]),
            text(&hold["message"])
        ))?;
    }
    say("\nWHAT IS LEFT")?;
    say(&plane.kubectl(&["get", "pods", "-n", NAMESPACE, "-o", "wide", "--no-headers"]).await?.text()?)?;
    say("METRICS")?;
    let metrics = pod_safety.get("/metrics").await?.body;
    let wanted = |line: &&str| {
        line.starts_with("pod_gc_collector")
            || line.starts_with("pod_safety_releases")
            || line.starts_with("process_resident")
    };
    metrics.lines().filter(wanted).try_for_each(|line| say(&format!("  {line}")))
}

fn records<'a>(decisions: &'a Value, action: &'a str) -> impl Iterator<Item = &'a Value> {
    let all = decisions["records"].as_array().into_iter().flatten();
    all.filter(move |record| record["action"] == action).take(MANY_LINES)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}
