//! Phase: the Nodes of dead machines are deleted while a contender runs, and it removes their pods after the quarantine.
//! The machines fell silent for longer than the duration of their Leases before, as those of a cloud that takes them away:
//! pods of a Node that is deleted while its kubelet is active are deleted gracefully first, and take two quarantines.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::background_reads::BackgroundReads;
use crate::cluster::Cluster;
use crate::contender::{Contender, Duty, Starter};
use crate::kubelets::Kubelets;
use crate::plan::{Phase, Plan};
use crate::print_line;
use crate::results::{Meter, RATE, Sample, number};

/// Processor times are read this long before the quarantine ends: nothing is removed yet.
const BEFORE_THE_END: Duration = Duration::from_millis(300);

/// The duration of a Lease, the 15 s for which a break of a watch goes unnoticed, and a little more: for so long a
/// contender sees that the machines are silent.
const STALE_FOR: Duration = Duration::from_secs(60);

/// A node that lives, so that the Leases are spoken of: the silence of a watch is no silence of a kubelet.
const ALIVE_NODES: &str = "node-that-lives";

/// Slower than this many pods a second, no contender is waited for.
const SLOWEST: f64 = 3.0;

/// And this is added for whoever looks at the clock only now and then.
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

/// What share of a core the API server uses while the quarantine lasts, once the new pods are digested. Comes
/// back right before the quarantine ends.
async fn idle(cluster: &mut Cluster, plan: &Plan, ends: Instant) -> Result<f64> {
    let end = ends - BEFORE_THE_END;
    cluster.calm_by(end - plan.quarantine() / 4).await?;
    match end.checked_duration_since(Instant::now()) {
        Some(length) if !length.is_zero() => cluster.apiserver_share(length).await,
        _ => Ok(0.0),
    }
}

/// Counts until none is left: when the first was gone, and when the last.
async fn watch(cluster: &Cluster, count: usize, ends: Instant) -> Result<(Instant, Instant)> {
    let limit = PATIENCE + Duration::from_secs_f64(number(count) / SLOWEST);
    let mut first = None;
    let mut told = Instant::now();
    loop {
        let left = cluster.orphans_left().await?;
        let now = Instant::now();
        if left < count {
            first = first.or(Some(now));
        }
        if left == 0 {
            return Ok((first.unwrap_or(now), now));
        }
        ensure!(now <= ends + limit, "{left} of {} orphans are left after {limit:?}", count);
        if told.elapsed() > PROGRESS_INTERVAL {
            told = now;
            print_line(&format!("{left} orphans left"));
        }
        // Counting many costs etcd a little, and only the first and the last matter.
        let precise = left == count || left < 200;
        tokio::time::sleep(Duration::from_millis(if precise { 10 } else { 100 })).await;
    }
}
