//! Phase: the Nodes of dead machines are deleted while a contender runs, and it removes their pods after the quarantine. The machines
//! stopped reporting for longer than the duration of their Leases before, as when a cloud deletes instances: pods of a Node that is deleted
//! while its kubelet is active are deleted gracefully first, and take two quarantines.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::background_reads::BackgroundReads;
use crate::cluster::Cluster;
use crate::contender::{Contender, Duty, Starter};
use crate::kubelets::Kubelets;
use crate::plan::{Phase, Plan};
use crate::print_line;
use crate::results::{Meter, RATE, Sample, number};

/// CPU times are read this long before the quarantine ends: nothing has been removed yet.
const BEFORE_THE_END: Duration = Duration::from_millis(300);

/// The duration of a Lease, the 15 s for which a break of a watch may remain undetected, and a margin: for this time a contender observes
/// that the machines do not report.
const STALE_FOR: Duration = Duration::from_secs(60);

/// A node that reports, so that the watch of Leases is active: without events the watch itself could be broken.
const ALIVE_NODES: &str = "node-that-lives";

/// A contender that removes fewer pods per second is stopped.
const SLOWEST: f64 = 3.0;

/// Added for contenders that poll only now and then.
const PATIENCE: Duration = Duration::from_secs(180);

const PROGRESS_INTERVAL: Duration = Duration::from_secs(60);

pub(crate) async fn run(
    cluster: &mut Cluster,
    starter: &mut Starter,
    plan: &Plan,
    contender: Contender,
    count: usize,
) -> Result<Sample> {
    cluster.calm().await?;
    cluster.renew_lease(ALIVE_NODES).await?;
    let alive = Kubelets::start_some(&cluster.etcd, 1).await?;
    cluster.add_dead_nodes().await?;
    let mut running = starter.start(contender, Duty::PodGc, cluster).await?;
    tokio::time::sleep(STALE_FOR).await;
    cluster.add_orphans(count).await?;
    cluster.calm().await?;
    let before = cluster.requests().await?;
    let ends = cluster.delete_dead_nodes().await? + plan.quarantine();

    let mut others = BackgroundReads::start(cluster).await?;
    let idle = idle(cluster, plan, ends).await?;
    others.begin();
    let meter = Meter::start(before, cluster, &mut running)?;
    let (first, last) = watch(cluster, count, ends).await?;
    let sample = Sample::new(Phase::Removal, contender.name(), format!("{count} orphans"));
    let sample = others.add_to(sample);
    drop(others);
    cluster.calm().await?;
    let after = |at: Instant| at.saturating_duration_since(ends).as_secs_f64();
    let rate = |seconds: f64| number(count) / seconds.max(0.001);
    let sample = sample
        .with("quarantine over to last one gone, s", after(last))
        .with("to first one gone, s", after(first))
        .with(RATE, rate(after(last)))
        .with("pods/s from first to last", rate(after(last) - after(first)));
    let sample = meter.read(sample, idle, cluster, &mut running).await?;
    let requests = usize::try_from(sample.requests.values().sum::<u64>())?;
    starter.stop(running).await?;
    alive.stop()?;
    Ok(sample.with("requests per pod", number(requests) / number(count)))
}

/// The share of a core that the API server uses during the quarantine, after the new pods are processed. Returns right before the
/// quarantine ends.
async fn idle(cluster: &mut Cluster, plan: &Plan, ends: Instant) -> Result<f64> {
    let end = ends - BEFORE_THE_END;
    cluster.calm_by(end - plan.quarantine() / 4).await?;
    match end.checked_duration_since(Instant::now()) {
        Some(length) if !length.is_zero() => cluster.apiserver_share(length).await,
        _ => Ok(0.0),
    }
}

/// Counts until no orphan is left: returns when the first was gone, and when the last.
async fn watch(cluster: &Cluster, count: usize, ends: Instant) -> Result<(Instant, Instant)> {
    let limit = PATIENCE + Duration::from_secs_f64(number(count) / SLOWEST);
    let mut first = None;
    let mut reported_at = Instant::now();
    loop {
        let remaining = cluster.orphans_left().await?;
        let now = Instant::now();
        if remaining < count {
            first = first.or(Some(now));
        }
        if remaining == 0 {
            return Ok((first.unwrap_or(now), now));
        }
        ensure!(now <= ends + limit, "{remaining} of {} orphans are left after {limit:?}", count);
        if reported_at.elapsed() > PROGRESS_INTERVAL {
            reported_at = now;
            print_line(&format!("{remaining} orphans left"));
        }
        // Counting many orphans loads etcd, and only the first and the last matter.
        let precise = remaining == count || remaining < 200;
        tokio::time::sleep(Duration::from_millis(if precise { 10 } else { 100 })).await;
    }
}
