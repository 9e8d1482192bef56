//! Phases without changes: from the start of a process to its synced caches, and minutes without changes, except for the heartbeats of
//! nodes if they are enabled.

use anyhow::Result;

use crate::cluster::Cluster;
use crate::contender::{Contender, Duty, Starter};
use crate::kubelets::Kubelets;
use crate::plan::{Phase, Plan};
use crate::results::{Meter, OF_A_CORE, OWN_CPU, Results, SYNCED, Sample, number};

/// Starts each contender in turn. Every second round reverses the order, so that neither always starts after the same other one.
pub(crate) async fn starts(
    cluster: &mut Cluster,
    starter: &mut Starter,
    plan: &Plan,
    results: &mut Results,
) -> Result<()> {
    for round in 0..plan.rounds {
        let mut order: Vec<_> = plan.those_of(Phase::Start).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for contender in order {
            results.add(start(cluster, starter, plan, contender).await?);
        }
    }
    Ok(())
}

async fn start(cluster: &mut Cluster, starter: &mut Starter, plan: &Plan, contender: Contender) -> Result<Sample> {
    cluster.calm().await?;
    let idle = cluster.apiserver_share(plan.idle()).await?;
    let before = cluster.requests().await?;
    let mut running = starter.start(contender, Duty::PodGc, cluster).await?;
    cluster.calm().await?;
    let sample = Sample::new(Phase::Start, contender.name(), "a cold start");
    let sample = sample.with(SYNCED, running.synced_after.as_secs_f64());
    let meter = Meter::since_start(before, &running);
    let sample = meter.read(sample, idle, cluster, &mut running).await?;
    // CPU time after the caches were synced does not count as start.
    let sample = sample.with(OWN_CPU, running.synced_cpu);
    starter.stop(running).await?;
    Ok(sample)
}

/// Measures an idle `contender`. With heartbeats, the API server's own work on them counts as idle use.
pub(crate) async fn quiet(
    cluster: &mut Cluster,
    starter: &mut Starter,
    plan: &Plan,
    contender: Contender,
    phase: Phase,
) -> Result<Sample> {
    cluster.calm().await?;
    let kubelets = begin(cluster, phase).await?;
    let idle = cluster.apiserver_share(plan.idle()).await?;
    kubelets.map_or(Ok(()), Kubelets::stop)?;
    let mut running = starter.start(contender, Duty::PodGc, cluster).await?;
    cluster.calm().await?;

    let before = cluster.requests().await?;
    let kubelets = begin(cluster, phase).await?;
    let meter = Meter::start(before, cluster, &mut running)?;
    tokio::time::sleep(plan.quiet()).await;
    let seconds = meter.seconds();
    let what = if phase == Phase::Quiet { "without changes" } else { "with heartbeats" };
    let scene = format!("{:.0} s {what}", plan.quiet().as_secs_f64());
    let sample = Sample::new(phase, contender.name(), scene);
    let sample = meter.read(sample, idle, cluster, &mut running).await?;
    let own = sample.value(OWN_CPU).unwrap_or_default();
    let mut sample = sample.with(OF_A_CORE, 100.0 * own / seconds);
    if let Some(kubelets) = kubelets {
        sample = sample.with("heartbeats/s", number(kubelets.renewed()) / seconds);
        kubelets.stop()?;
    }
    starter.stop(running).await?;
    Ok(sample)
}

async fn begin(cluster: &Cluster, phase: Phase) -> Result<Option<Kubelets>> {
    if phase == Phase::Heartbeats { Kubelets::start(&cluster.etcd).await.map(Some) } else { Ok(None) }
}
