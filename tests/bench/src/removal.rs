//! Phase: orphans appear while a contender runs, and it removes them after their quarantine.

use std::time::{Duration, Instant};

use crate::cluster::{Cluster, Orphans};
use crate::contender::{Contender, Duty, Starter};
use crate::error::Error;
use crate::plan::Plan;
use crate::requests;
use crate::results::{Removal, number};
use crate::say;

/// Processor times are read this long before the quarantine ends: nothing is removed yet.
const BEFORE_THE_END: Duration = Duration::from_millis(300);

/// Slower than this many pods a second, no contender is waited for.
const SLOWEST: f64 = 3.0;

/// And this is added for whoever looks at the clock only now and then.
const PATIENCE: Duration = Duration::from_secs(180);

/// How often progress is told.
const TELL_EVERY: Duration = Duration::from_secs(60);

pub(crate) async fn run(
    cluster: &mut Cluster,
    starter: &mut Starter,
    plan: &Plan,
    contender: Contender,
    count: usize,
) -> Result<Removal, Error> {
    cluster.calm().await?;
    let mut running = starter.start(contender, Duty::PodGc, cluster).await?;
    cluster.calm().await?;
    let before = cluster.requests().await?;
    let orphans = cluster.add_orphans(count).await?;
    let ends = orphans.visible + plan.quarantine();

    let idle = idle(cluster, plan, ends).await?;
    let (began, apiserver, own) = (Instant::now(), cluster.apiserver_cpu()?, running.cpu()?);
    let gone = watch(cluster, &orphans, ends).await?;
    cluster.calm().await?;
    let used = cluster.apiserver_cpu()? - apiserver;
    let removal = Removal {
        contender,
        orphans: count,
        first_after: gone.first.saturating_duration_since(ends).as_secs_f64(),
        seconds: gone.last.saturating_duration_since(ends).as_secs_f64(),
        cpu: running.cpu()? - own,
        apiserver_cpu: used - idle * began.elapsed().as_secs_f64(),
        peak_mib: running.peak_mib()?,
        requests: requests::between(&before, &cluster.requests().await?),
    };
    starter.stop(running).await?;
    Ok(removal)
}

/// What share of a core the API server uses while the quarantine lasts, once the new pods are digested. Comes
/// back right before the quarantine ends.
async fn idle(cluster: &mut Cluster, plan: &Plan, ends: Instant) -> Result<f64, Error> {
    let end = ends - BEFORE_THE_END;
    cluster.calm_by(end - plan.quarantine() / 4).await?;
    match end.checked_duration_since(Instant::now()) {
        Some(length) if !length.is_zero() => cluster.apiserver_share(length).await,
        _ => Ok(0.0),
    }
}

struct Gone {
    first: Instant,
    last: Instant,
}

/// Counts until none is left.
async fn watch(cluster: &Cluster, orphans: &Orphans, ends: Instant) -> Result<Gone, Error> {
    let limit = PATIENCE + Duration::from_secs_f64(number(orphans.count) / SLOWEST);
    let mut first = None;
    let mut told = Instant::now();
    loop {
        let left = cluster.orphans_left().await?;
        let now = Instant::now();
        if left < orphans.count {
            first = first.or(Some(now));
        }
        if left == 0 {
            return Ok(Gone { first: first.unwrap_or(now), last: now });
        }
        if now > ends + limit {
            let (what, seen) = (format!("{} orphans are removed", orphans.count), format!("{left} left"));
            return Err(Error::NeverSeen { what, within: limit, seen });
        }
        if told.elapsed() > TELL_EVERY {
            told = now;
            say(&format!("{left} orphans left"));
        }
        // Counting many costs etcd a little, and only the first and the last matter.
        let precise = left == orphans.count || left < 200;
        tokio::time::sleep(Duration::from_millis(if precise { 10 } else { 100 })).await;
    }
}
