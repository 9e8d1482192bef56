//! Drains the same nodes by an EvictionRequest for each pod, which pod-safety's controllers of the Eviction API carry out.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{
    ApiResource, DynamicObject, GroupVersionKind, ListParams, PartialObjectMeta, Patch, PatchParams, PostParams,
};
use kube::{Api, Client, ResourceExt as _};
use pod_safety_control_plane::ControlPlane;
use serde_json::json;

use super::others::Workloads;
use super::usage::Usage;
use super::{NAMESPACE, Took};
use crate::contender::{mib, pod_safety_synced};
use crate::http;
use crate::requests;

/// The flags that enable the API: both are off by default in 1.37.
pub(super) const SERVED: [&str; 2] =
    ["--feature-gates=EvictionRequestAPI=true", "--runtime-config=lifecycle.k8s.io/v1alpha1=true"];

/// Concurrent requests, as many as drains have nodes.
const AT_A_TIME: usize = 16;

const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Cordons these nodes, requests the eviction of all their pods, and waits until these have terminated.
pub(super) async fn drain(plane: &mut ControlPlane, ours: &Path, nodes: &[String], others: &Workloads) -> Result<Took> {
    let kubeconfig = format!("--kubeconfig={}", plane.admin_kubeconfig().display());
    let args =
        ["run", "--controllers=eviction", "--mode=replace", "--leader-elect=false", "--admin-address=127.0.0.1:0"];
    let args = args.into_iter().chain(["--log-format=json", &*kubeconfig]);
    let mut program = plane.program("pod-safety", ours, args, &[])?;
    pod_safety_synced(&mut program).await?;
    let client = plane.admin();
    let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE).list(&ListParams::default()).await?;
    let is_here = |pod: &&Pod| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        node.is_some_and(|node| nodes.iter().any(|one| one == node))
    };
    let pods: Vec<_> = pods.iter().filter(is_here).map(|pod| (pod.name_any(), pod.uid().unwrap_or_default())).collect();

    let before = requests::parse_counters(&http::page(&client, "metrics").await?);
    let (cpu, api_cpu) = (program.cpu_seconds()?, super::apiserver_cpu(plane)?);
    let began = Instant::now();
    futures::stream::iter(nodes)
        .map(|node| cordon(&client, node))
        .buffer_unordered(AT_A_TIME)
        .try_collect::<Vec<_>>()
        .await?;
    futures::stream::iter(&pods)
        .map(|(name, uid)| request_eviction(&client, name, uid))
        .buffer_unordered(AT_A_TIME)
        .try_collect::<Vec<_>>()
        .await?;
    while others.terminated() < pods.len() {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    let seconds = began.elapsed().as_secs_f64();
    let mut requests = requests::between(&before, &requests::parse_counters(&http::page(&client, "metrics").await?));
    // Kubelets and workload controllers send the same requests in each case.
    requests
        .retain(|name, _| !["POST pods", "DELETE pods", "PUT poddisruptionbudgets/status"].contains(&name.as_str()));
    let usage = Usage { cpu: program.cpu_seconds()? - cpu, memory: mib(program.rss_peak_kib()?) };
    let api_cpu = super::apiserver_cpu(plane)? - api_cpu;
    program.terminate().await?;
    Ok(Took { seconds, requests, usage, api_cpu })
}

async fn cordon(client: &Client, node: &str) -> Result<()> {
    let body = Patch::Merge(json!({ "spec": { "unschedulable": true } }));
    let nodes = Api::<k8s_openapi::api::core::v1::Node>::all(client.clone());
    let _only: PartialObjectMeta<_> = nodes.patch_metadata(node, &PatchParams::default(), &body).await?;
    Ok(())
}

async fn request_eviction(client: &Client, name: &str, uid: &str) -> Result<()> {
    let kind = GroupVersionKind::gvk("lifecycle.k8s.io", "v1alpha1", "EvictionRequest");
    let resource = ApiResource::from_gvk(&kind);
    let request: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "lifecycle.k8s.io/v1alpha1", "kind": "EvictionRequest", "metadata": { "name": format!("bench-{uid}") },
        "spec": { "target": { "pod": { "name": name, "uid": uid } }, "requester": "example.com/bench", "intent": "Eviction" } }))?;
    let requests = Api::<DynamicObject>::namespaced_with(client.clone(), NAMESPACE, &resource);
    requests.create(&PostParams::default(), &request).await.map(drop).with_context(|| format!("asking for {name}"))
}
