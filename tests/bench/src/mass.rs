//! A zone is lost with all its Nodes: how fast its pods are removed, and what that takes. On the synthetic API server, beside the
//! bare loop on another one.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use pod_safety_control_plane::{client, usage};

use crate::bare::{self, Answers};
use crate::cluster::Orphan;
use crate::results::number;
use crate::say;
use crate::scale::{Ours, Server, cached};
use crate::synthetic::{self, Size};

const LOOKS_EACH: Duration = Duration::from_millis(250);

/// Measures how the pods of a lost zone are removed, on a cluster that is made up.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Mass {
    /// How many nodes there were
    #[arg(long, value_name = "COUNT", default_value = "130000")]
    nodes: usize,

    /// How many pods on them
    #[arg(long, value_name = "COUNT", default_value = "1300000")]
    pods: usize,

    /// How many Nodes of one zone are no more
    #[arg(long, value_name = "COUNT", default_value = "33000")]
    lost: usize,

    /// How many connections the bare loop has
    #[arg(long, value_name = "COUNT", default_value = "16")]
    connections: usize,

    /// More flags of pod-safety
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true, default_value = "--controllers=pod-gc")]
    flags: Vec<String>,

    /// The pod-safety to measure
    #[arg(long, value_name = "FILE")]
    pod_safety: PathBuf,
}

impl Mass {
    async fn server(&self) -> Result<Server> {
        let heartbeats = self.nodes / 10;
        let args =
            [("nodes", self.nodes), ("pods", self.pods), ("heartbeats", heartbeats), ("lost", self.lost)];
        Server::start(&args).await
    }

    fn orphans(&self) -> Vec<Orphan> {
        let size = Size { nodes: self.nodes, pods: self.pods, seed: 1, lost: self.lost };
        let lost = (0..self.pods).filter(|pod| size.is_lost(size.node_of(*pod)));
        lost.map(|pod| synthetic::pod(size, pod))
            .map(|(name, uid, version)| Orphan { name, uid, version })
            .collect()
    }
}

pub(crate) async fn run(plan: Mass) -> Result<String> {
    let orphans = Arc::new(plan.orphans());
    let bare = {
        let server = plan.server().await?;
        let (client, began) = (client(&server.kubeconfig()).await?, Instant::now());
        say("the bare loop");
        bare::remove_all(&client, Answers::Json, synthetic::PODS.to_owned(), &orphans, plan.connections)
            .await?;
        number(orphans.len()) / began.elapsed().as_secs_f64()
    };
    say("pod-safety");
    let server = plan.server().await?;
    let mut ours = Ours::start(&plan.pod_safety, &server.kubeconfig(), &plan.flags).await?;
    let (ready, synced) = (Instant::now(), ours.mib("VmRSS")?);
    let (before, all) = (usage::cpu_seconds(ours.pid)?, number(plan.pods));
    let (mut first, mut queued) = (None, 0.0_f64);
    let took = loop {
        tokio::time::sleep(LOOKS_EACH).await;
        let pods = ours.metric(&cached("pods")).await?;
        queued = queued.max(ours.metric("pod_safety_authority_queued_intents").await?);
        if pods < all {
            first.get_or_insert(ready.elapsed());
        }
        if pods <= all - number(orphans.len()) {
            break ready.elapsed();
        }
    };
    let first = first.unwrap_or(took);
    let rate = number(orphans.len()) / (took.saturating_sub(first)).as_secs_f64();
    let cpu = usage::cpu_seconds(ours.pid)? - before;
    Ok(format!(
        "| nodes lost | orphans | first removed, s after it was ready | last, s | pods/s from first to last | bare loop, {} connections, \
         pods/s | ratio | own CPU of a pod, ms | most intents that waited | memory when ready, MiB | peak, MiB |\n\
         |--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n\
         | {} of {} | {} | {:.1} | {:.1} | {rate:.0} | {bare:.0} | {:.2} | {:.2} | {queued:.0} | {synced:.0} | {:.0} |\n",
        plan.connections,
        plan.lost,
        plan.nodes,
        orphans.len(),
        first.as_secs_f64(),
        took.as_secs_f64(),
        rate / bare,
        1e3 * cpu / number(orphans.len()),
        ours.mib("VmHWM")?,
    ))
}
