//! The cost of the volume guard in a healthy cluster: the time from the binding of a pod to the attachment of its volume, with
//! kube-controller-manager's attach/detach controller and an attacher that answers immediately; without the guard and with it, in turns,
//! on one control plane. Prints the medians, their difference, and the guard's writes for each attachment.
//!
//! `cargo run --release -p pod-safety-control-plane --example attach`

#![expect(clippy::disallowed_methods, reason = "it measures a real cluster in real time")]

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use pod_safety_control_plane::objects::{self, NodeExt as _, PodExt as _};
use pod_safety_control_plane::{ControlPlane, chart, check_that, helm, until};
use serde_json::json;

const NAMESPACE: &str = "shop";
const NODE: &str = "w1";
const DRIVER: &str = "hollow.csi.example.com";
const ACCOUNT: &str = "system:serviceaccount:pod-safety:pod-safety";
/// Attachments per turn, and turns.
const EACH: usize = 40;
const TURNS: usize = 4;
fn print_line(line: &str) -> Result<()> {
    Ok(writeln!(std::io::stdout(), "{line}")?)
}

#[tokio::main]
async fn main() -> Result<()> {
    let (audit, plane) = ControlPlane::audited(ACCOUNT).await?;
    let kubeconfig = plane.install_pod_safety().await?;
    let api = plane.admin();
    plane.namespace(NAMESPACE).await?;
    let mut node = objects::node(NODE).with_boot_id("b0000000-0000-4000-8000-000000000001");
    let managed = "volumes.kubernetes.io/controller-managed-attach-detach";
    node.metadata.annotations.get_or_insert_default().insert(managed.to_owned(), "true".to_owned());
    objects::create_node(&api, &node).await?;
    let controllers = "persistentvolume-attach-detach-controller,persistentvolume-binder-controller";
    let _components =
        plane.kube_controller_manager(controllers, &["--kube-api-qps=1000", "--kube-api-burst=1000"]).await?;
    tokio::spawn(attach(api.clone()));
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for turn in 0..TURNS {
        without.extend(measured(&api, &format!("without-{turn}")).await?);
        policies(&plane, "apply").await?;
        let args = ["--controllers=volume-guard", "--leader-elect=false"];
        let mut pod_safety = plane.pod_safety(&format!("pod-safety-{turn}"), &kubeconfig, args).await?;
        pod_safety.ready().await?;
        with.extend(measured(&api, &format!("with-{turn}")).await?);
        pod_safety.terminate().await?;
        policies(&plane, "delete").await?;
    }
    let writes = audit.entries()?.into_iter().filter(|entry| {
        entry.namespace == "pod-safety-volumes" && !["get", "list", "watch"].contains(&&*entry.verb) && entry.code < 400
    });
    let (without, with) = (median(&mut without), median(&mut with));
    print_line(&format!("without the guard  p50 {without:?} of {} attachments", EACH * TURNS))?;
    print_line(&format!("with the guard     p50 {with:?}"))?;
    print_line(&format!("difference         {:+.1} ms", (with.as_secs_f64() - without.as_secs_f64()) * 1e3))?;
    print_line(&format!(
        "writes of the guard for each attachment and detachment: {:.2}",
        writes.count() as f64 / (EACH * TURNS) as f64
    ))
}

fn median(all: &mut [Duration]) -> Duration {
    all.sort();
    all[all.len() / 2]
}

async fn policies(plane: &ControlPlane, verb: &str) -> Result<()> {
    let chart = chart();
    let args = [
        "template",
        "pod-safety",
        chart.to_str().context("the chart's path")?,
        "--namespace=pod-safety",
        "--set=controllers.volumeGuard.enabled=true",
        "--show-only=templates/admission/volume-held.yaml",
    ];
    let rendered = helm(&args).await?.text()?;
    // The namespace remains, because the next turn also needs it for its Leases.
    let policy: Vec<&str> = rendered.split("---\n").filter(|one| !one.contains("kind: Namespace")).collect();
    plane.kubectl_with(&[verb, "-f", "-"], &policy.join("---\n")).await?.text()?;
    Ok(())
}

/// Acts as the attacher of the CSI driver: every request is fulfilled immediately.
async fn attach(api: Client) -> Result<()> {
    let attachments = Api::<VolumeAttachment>::all(api);
    loop {
        let listed = attachments.list(&ListParams::default()).await?;
        let mut stream = attachments
            .watch(&WatchParams::default(), &listed.metadata.resource_version.unwrap_or_default())
            .await?
            .boxed();
        while let Some(event) = stream.try_next().await? {
            if let WatchEvent::Added(one) = event {
                let patch = Patch::Merge(json!({ "status": { "attached": true } }));
                attachments
                    .patch_status(&one.metadata.name.unwrap_or_default(), &PatchParams::default(), &patch)
                    .await?;
            }
        }
    }
}

/// The durations of all attachments.
async fn measured(api: &Client, run: &str) -> Result<Vec<Duration>> {
    let mut took = Vec::new();
    for number in 0..EACH {
        let name = format!("{run}-{number}");
        volume(api, &name).await?;
        took.push(attached(api, &name).await?);
    }
    Ok(took)
}

async fn volume(api: &Client, name: &str) -> Result<()> {
    let volume: PersistentVolume = serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": { "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" }, "storageClassName": "",
            "csi": { "driver": DRIVER, "volumeHandle": name }, "claimRef": { "namespace": NAMESPACE, "name": name } },
    }))?;
    Api::all(api.clone()).create(&PostParams::default(), &volume).await?;
    let claim: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": { "accessModes": ["ReadWriteOnce"], "volumeName": name, "storageClassName": "",
            "resources": { "requests": { "storage": "1Gi" } } },
    }))?;
    let claims = Api::<PersistentVolumeClaim>::namespaced(api.clone(), NAMESPACE);
    claims.create(&PostParams::default(), &claim).await?;
    until("the claim is bound", async || {
        let claim = claims.get(name).await.map_err(|error| error.to_string())?;
        check_that(claim.status.and_then(|status| status.phase).as_deref() == Some("Bound"), "not yet".to_owned())
    })
    .await?;
    Ok(())
}

/// From the pod on its node to the attached volume; then both are deleted.
async fn attached(api: &Client, name: &str) -> Result<Duration> {
    let attachments = Api::<VolumeAttachment>::all(api.clone());
    let version = attachments.list(&ListParams::default()).await?.metadata.resource_version.unwrap_or_default();
    let mut stream = attachments.watch(&WatchParams::default(), &version).await?.boxed();
    let mut pod = objects::pod(NAMESPACE, name).on_node(NODE);
    let volumes = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": name } }]);
    pod.spec.get_or_insert_default().volumes = Some(serde_json::from_value(volumes)?);
    let begun = Instant::now();
    objects::create_pod(api, &pod).await?;
    let took = loop {
        let event = stream.try_next().await?.context("the watch ended")?;
        if let WatchEvent::Modified(one) = event
            && one.spec.source.persistent_volume_name.as_deref() == Some(name)
            && one.status.is_some_and(|status| status.attached)
        {
            break begun.elapsed();
        }
    };
    let over = objects::pod(NAMESPACE, name).with_phase("Succeeded").status.unwrap_or_default();
    objects::set_pod_status(api, NAMESPACE, name, &over).await?;
    let pods = Api::<k8s_openapi::api::core::v1::Pod>::namespaced(api.clone(), NAMESPACE);
    pods.delete(name, &DeleteParams::default().grace_period(0)).await?;
    until("it is detached", async || {
        let all = attachments.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        check_that(all.items.is_empty(), format!("{}", all.items.len()))
    })
    .await?;
    Ok(took)
}
