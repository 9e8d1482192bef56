//! Phase: from the start of a process to its synced caches.

use crate::cluster::Cluster;
use crate::contender::{Contender, Duty, Starter};
use crate::error::Error;
use crate::plan::Plan;
use crate::results::Start;
use crate::say;

/// Starts each contender in turn. Every other round the order is turned round, so that neither always finds
/// the API server as the other left it.
pub(crate) async fn run(
    cluster: &mut Cluster,
    starter: &mut Starter,
    plan: &Plan,
    starts: &mut Vec<Start>,
) -> Result<(), Error> {
    for round in 0..plan.rounds {
        let mut order = plan.contenders.clone();
        if round % 2 == 1 {
            order.reverse();
        }
        for contender in order {
            let start = once(cluster, starter, plan, contender).await?;
            say(&format!("start: {start:.2?}"));
            starts.push(start);
        }
    }
    Ok(())
}

async fn once(
    cluster: &mut Cluster,
    starter: &mut Starter,
    plan: &Plan,
    contender: Contender,
) -> Result<Start, Error> {
    cluster.calm().await?;
    let idle = cluster.apiserver_share(plan.idle).await?;
    let mut running = starter.start(contender, Duty::PodGc, cluster).await?;
    cluster.calm().await?;
    let used = cluster.apiserver_cpu()? - running.apiserver_before;
    let start = Start {
        contender,
        seconds: running.synced_after.as_secs_f64(),
        cpu: running.synced_cpu,
        apiserver_cpu: used - idle * running.started.elapsed().as_secs_f64(),
        peak_mib: running.peak_mib()?,
        resident_mib: running.resident_mib()?,
    };
    starter.stop(running).await?;
    Ok(start)
}
