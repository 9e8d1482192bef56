//! Phase: writes of one tenant into one namespace. Pods and PDBs where each PDB selects each pod, and pods with very many labels. Every
//! second one pod changes its labels, so that every PDB must be recalculated.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::cluster::Cluster;
use crate::contender::{Contender, Duty, Running, Starter};
use crate::http;
use crate::plan::{Phase, Plan};
use crate::results::{Meter, Results, Sample, number};

const NAMESPACE: &str = "tenant";
/// Concurrent requests of a tenant.
const AT_ONCE: usize = 16;
/// Close to etcd's size limit for one object; more is refused.
const FAT_PODS: usize = 10;
const LABELS: usize = 90_000;
/// The kubelet's probe every ten seconds would miss short outages.
const PROBE_INTERVAL: Duration = Duration::from_millis(50);
const CHANGE_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) async fn run(starter: &mut Starter, plan: &Plan, results: &mut Results) -> Result<()> {
    let mut cluster = Cluster::empty(plan).await?;
    let (count, length) = plan.tenants();
    let admin = cluster.plane.admin();
    cluster.plane.kubectl(&["create", "namespace", NAMESPACE]).await?.text()?;
    let of_number = |number: usize| pod(&format!("p{number}"), json!({ "number": number.to_string() }));
    create::<Pod>(&admin, (0..count).map(of_number)).await?;
    create::<PodDisruptionBudget>(&admin, [budget(0)]).await?;
    measure(&mut cluster, starter, plan, &format!("{count} pods, one budget"), length, results).await?;
    create::<PodDisruptionBudget>(&admin, (1..count).map(budget)).await?;
    let all = format!("{count} pods, {count} budgets that choose all of them");
    measure(&mut cluster, starter, plan, &all, length, results).await?;
    let budgets = Api::<PodDisruptionBudget>::namespaced(admin.clone(), NAMESPACE);
    budgets.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    create::<PodDisruptionBudget>(&admin, [budget(0)]).await?;
    let labels = |_| (0..LABELS).map(|label| (format!("l{label}"), json!(""))).collect::<Map<_, _>>();
    create::<Pod>(&admin, (0..FAT_PODS).map(|fat| pod(&format!("fat{fat}"), Value::Object(labels(fat))))).await?;
    let fat = format!("{FAT_PODS} more pods with {LABELS} labels each");
    measure(&mut cluster, starter, plan, &fat, length, results).await
}

fn pod(name: &str, labels: Value) -> Value {
    let spec = json!({ "containers": [{ "name": "c", "image": "none" }] });
    json!({ "metadata": { "name": name, "namespace": NAMESPACE, "labels": labels }, "spec": spec })
}

fn budget(number: usize) -> Value {
    let spec = json!({ "minAvailable": 1, "selector": {} });
    json!({ "metadata": { "name": format!("b{number}"), "namespace": NAMESPACE }, "spec": spec })
}

async fn create<T>(client: &Client, all: impl IntoIterator<Item = Value>) -> Result<()>
where
    T: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned,
{
    let api = Api::<T>::namespaced(client.clone(), NAMESPACE);
    let made = futures::stream::iter(all).map(|object| {
        let api = api.clone();
        async move {
            let object = serde_json::from_value(object).context("it is no such object")?;
            api.create(&PostParams::default(), &object).await.context("the API server refuses it")
        }
    });
    made.buffer_unordered(AT_ONCE).try_for_each(|_| std::future::ready(Ok(()))).await
}

async fn measure(
    cluster: &mut Cluster,
    starter: &mut Starter,
    plan: &Plan,
    scene: &str,
    length: Duration,
    results: &mut Results,
) -> Result<()> {
    for contender in plan.those_of(Phase::Tenants) {
        let mut running = starter.start(contender, Duty::Budgets, cluster).await?;
        let meter = Meter::start(cluster.requests().await?, cluster, &mut running)?;
        let (probed, changed) = tokio::join!(probe(&running, length), change(cluster, length));
        let (sample, changes) = (Sample::new(Phase::Tenants, contender.name(), scene), changed?);
        let sample = if contender == Contender::PodSafety {
            let (times, never) = probed;
            sample.spread(times, never).with("/readyz without an answer", number(never))
        } else {
            sample
        };
        let sample = meter.read(sample, 0.0, cluster, &mut running).await?;
        results.add(sample.with("changes of labels", number(changes)));
        starter.stop(running).await?;
    }
    Ok(())
}

/// The durations of `/readyz`, and how often it was not answered.
async fn probe(running: &Running, length: Duration) -> (Vec<Duration>, usize) {
    let (began, mut times, mut never) = (Instant::now(), Vec::new(), 0);
    let Some(admin) = &running.admin else {
        tokio::time::sleep(length).await;
        return (times, never);
    };
    while began.elapsed() < length {
        let sent = Instant::now();
        match http::page(admin, "readyz").await {
            Ok(_) => times.push(sent.elapsed()),
            Err(_) => never += 1,
        }
        tokio::time::sleep(PROBE_INTERVAL).await;
    }
    (times, never)
}

async fn change(cluster: &Cluster, length: Duration) -> Result<usize> {
    let (pods, began) = (Api::<Pod>::namespaced(cluster.plane.admin(), NAMESPACE), Instant::now());
    let mut changes = 0;
    while began.elapsed() < length {
        let patch = json!({ "metadata": { "labels": { "change": changes.to_string() } } });
        pods.patch("p0", &PatchParams::default(), &Patch::Merge(patch)).await.context("cannot change a pod")?;
        changes += 1;
        tokio::time::sleep(CHANGE_INTERVAL).await;
    }
    Ok(changes)
}
