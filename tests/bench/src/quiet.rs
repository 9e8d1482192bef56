//! Phase: minutes in which nothing changes, but for the heartbeats of nodes if they are asked for.

use std::time::Instant;

use crate::cluster::Cluster;
use crate::contender::{Contender, Duty, Starter};
use crate::error::Error;
use crate::kubelets::Kubelets;
use crate::plan::Plan;
use crate::results::{Quiet, number};

/// Lets `contender` be. With heartbeats, the API server's own work on them is part of what counts as idle.
pub(crate) async fn run(
    cluster: &mut Cluster,
    starter: &mut Starter,
    plan: &Plan,
    contender: Contender,
    heartbeats: bool,
) -> Result<Quiet, Error> {
    cluster.calm().await?;
    let kubelets = begin(cluster, heartbeats).await?;
    let idle = cluster.apiserver_share(plan.idle).await?;
    end(kubelets)?;
    let mut running = starter.start(contender, Duty::PodGc, cluster).await?;
    cluster.calm().await?;

    let kubelets = begin(cluster, heartbeats).await?;
    let (began, apiserver, own) = (Instant::now(), cluster.apiserver_cpu()?, running.cpu()?);
    tokio::time::sleep(plan.quiet).await;
    let seconds = began.elapsed().as_secs_f64();
    let (apiserver, own) = (cluster.apiserver_cpu()? - apiserver, running.cpu()? - own);
    let renewed = end(kubelets)?;

    let quiet = Quiet {
        contender,
        seconds,
        renewals: renewed / seconds,
        cpu: own,
        apiserver_cpu: apiserver - idle * seconds,
        peak_mib: running.peak_mib()?,
        resident_mib: running.resident_mib()?,
    };
    starter.stop(running).await?;
    Ok(quiet)
}

async fn begin(cluster: &Cluster, heartbeats: bool) -> Result<Option<Kubelets>, Error> {
    if heartbeats { Kubelets::start(&cluster.etcd).await.map(Some) } else { Ok(None) }
}

/// Gives back how many Leases were renewed.
fn end(kubelets: Option<Kubelets>) -> Result<f64, Error> {
    let Some(kubelets) = kubelets else { return Ok(0.0) };
    let renewed = number(kubelets.renewed());
    kubelets.stop()?;
    Ok(renewed)
}
