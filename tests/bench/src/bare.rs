//! The bare loop: the two writes of a removal as fast as the API server accepts them, without any other work.
//! Its rate is the upper limit for any pod garbage collector on this machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::core::Request;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::task::JoinSet;

use crate::background_reads::BackgroundReads;
use crate::cluster::{Cluster, Orphan};
use crate::plan::{Phase, Plan};
use crate::results::{API_CPU, RATE, Sample, number};

/// How long the background reads are measured before the loop starts.
const BEFORE: Duration = Duration::from_secs(5);

/// What the writes ask the API server to return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answers {
    /// The whole pod as JSON, as pod-safety does
    Json,
    /// Only its metadata, as JSON
    Metadata,
}

impl Answers {
    const fn accept(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Metadata => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        }
    }
}

/// The only field of an answer that the second write needs.
#[derive(Deserialize)]
struct Answer {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: String,
}

/// Adds `count` orphans and removes them over `connections`.
pub(crate) async fn run(cluster: &mut Cluster, plan: &Plan, count: usize, connections: usize) -> Result<Sample> {
    cluster.add_orphans(count).await?;
    cluster.calm().await?;
    let orphans = Arc::new(cluster.orphans().await?);
    let client = cluster.client().await?;
    let mut others = BackgroundReads::start(cluster).await?;
    tokio::time::sleep(BEFORE).await;
    others.begin();
    let (began, before) = (Instant::now(), cluster.apiserver_cpu()?);
    remove_all(&client, plan.bare_answers, Cluster::orphans_path(), &orphans, connections).await?;
    let (seconds, apiserver_cpu) = (began.elapsed().as_secs_f64(), cluster.apiserver_cpu()? - before);
    let sample = Sample::new(Phase::Bare, format!("bare loop, {connections} connections"), format!("{count} orphans"));
    let sample = others.add_to(sample.with(RATE, number(count) / seconds.max(0.001)).with(API_CPU, apiserver_cpu));
    let remaining = cluster.orphans_left().await?;
    ensure!(remaining == 0 && orphans.len() == count, "of {count} orphans {} found, {remaining} left", orphans.len());
    Ok(sample)
}

/// Removes them as fast as these connections can.
pub(crate) async fn remove_all(
    client: &Client,
    answers: Answers,
    path: String,
    orphans: &Arc<Vec<Orphan>>,
    connections: usize,
) -> Result<()> {
    let next = Arc::new(AtomicUsize::new(0));
    let pods = Request::new(path);
    let mut loops = JoinSet::new();
    for _ in 0..connections {
        let (client, orphans, next) = (client.clone(), Arc::clone(orphans), Arc::clone(&next));
        let pods = pods.clone();
        loops.spawn(async move {
            while let Some(orphan) = orphans.get(next.fetch_add(1, Ordering::Relaxed)) {
                remove(&client, answers, &pods, orphan).await.with_context(|| format!("removing {}", orphan.name))?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = loops.join_next().await {
        ended??;
    }
    Ok(())
}

/// The same two requests that pod-safety sends.
async fn remove(client: &Client, answers: Answers, pods: &Request, orphan: &Orphan) -> Result<()> {
    let Orphan { name, uid, version } = orphan;
    let patch = Patch::Strategic(json!({
        "metadata": { "uid": uid, "resourceVersion": version },
        "status": {
            "phase": "Failed",
            "observedGeneration": 1,
            "conditions": [{
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "DeletionByPodGC",
                "message": "PodGC: node no longer exists",
                "observedGeneration": 1,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        },
    }));
    let mut request = pods.patch_subresource("status", name, &PatchParams::default(), &patch)?;
    request.headers_mut().insert("accept", answers.accept().parse()?);
    let answer: Answer = client.request(request).await?;

    let resource_version = Some(answer.metadata.resource_version);
    let preconditions = Some(Preconditions { uid: Some(uid.clone()), resource_version });
    let params = DeleteParams { preconditions, ..DeleteParams::default() }.grace_period(0);
    let mut request = pods.delete(name, &params)?;
    request.headers_mut().insert("accept", answers.accept().parse()?);
    client.request::<Answer>(request).await.map(drop).map_err(Into::into)
}
