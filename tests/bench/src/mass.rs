//! A zone is lost with all its Nodes: how fast its pods are removed, and the cost. On the synthetic API server, beside the bare loop on
//! another instance of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use pod_safety_control_plane::{client, usage};

use crate::bare::{self, Answers};
use crate::cluster::Orphan;
use crate::print_line;
use crate::results::number;
use crate::scale::{PodSafetyProcess, Server, cached};
use crate::synthetic::{self, Size};

const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Measures how the pods of a lost zone are removed, on a cluster that is made up.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Mass {
    /// How many nodes there were, how many pods on them, and how many Nodes of one zone are gone
    #[arg(
        long,
        value_name = "NODES:PODS:LOST",
        value_delimiter = ',',
        default_value = "30000:900000:7500,65000:975000:16500,130000:1300000:33000"
    )]
    sizes: Vec<Zone>,

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

/// A cluster with one lost zone.
#[derive(Clone, Copy, Debug)]
struct Zone {
    nodes: usize,
    pods: usize,
    lost: usize,
}

impl std::str::FromStr for Zone {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let numbers = text.split(':').map(str::parse).collect::<Result<Vec<usize>, _>>()?;
        let [nodes, pods, lost] = *numbers else { bail!("{text} is not NODES:PODS:LOST") };
        Ok(Self { nodes, pods, lost })
    }
}

impl Zone {
    async fn server(&self) -> Result<Server> {
        let heartbeats = self.nodes / 10;
        let args = [("nodes", self.nodes), ("pods", self.pods), ("heartbeats", heartbeats), ("lost", self.lost)];
        Server::start(&args).await
    }

    fn orphans(&self) -> Vec<Orphan> {
        let size = Size { nodes: self.nodes, pods: self.pods, seed: 1, lost: self.lost };
        let lost = (0..self.pods).filter(|pod| size.is_lost(size.node_of(*pod)));
        lost.map(|pod| synthetic::pod(size, pod)).map(|(name, uid, version)| Orphan { name, uid, version }).collect()
    }
}

pub(crate) async fn run(plan: Mass) -> Result<String> {
    let mut table = format!(
        "| nodes lost | orphans | first removed, s after it was ready | last, s | pods/s from first to last | bare loop, {} connections, \
         pods/s | own CPU of a pod, ms | most intents that waited | memory when ready, MiB | peak, MiB |\n\
         |--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
        plan.connections
    );
    for zone in &plan.sizes {
        table += &measure(&plan, zone).await?;
    }
    Ok(table)
}

async fn measure(plan: &Mass, zone: &Zone) -> Result<String> {
    let orphans = Arc::new(zone.orphans());
    let bare = {
        let server = zone.server().await?;
        let (client, began) = (client(&server.kubeconfig()).await?, Instant::now());
        print_line("the bare loop");
        bare::remove_all(&client, Answers::Json, synthetic::PODS.to_owned(), &orphans, plan.connections).await?;
        number(orphans.len()) / began.elapsed().as_secs_f64()
    };
    print_line("pod-safety");
    let server = zone.server().await?;
    let mut pod_safety = PodSafetyProcess::start(&plan.pod_safety, &server.kubeconfig(), &plan.flags).await?;
    let (ready, synced) = (Instant::now(), pod_safety.mib("VmRSS")?);
    let (before, all) = (usage::cpu_seconds(pod_safety.pid)?, number(zone.pods));
    let (mut first, mut queued) = (None, 0.0_f64);
    let took = loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let pods = pod_safety.metric(&cached("pods")).await?;
        queued = queued.max(pod_safety.metric("pod_safety_authority_queued_intents").await?);
        if pods < all {
            first.get_or_insert(ready.elapsed());
        }
        if pods <= all - number(orphans.len()) {
            break ready.elapsed();
        }
    };
    let first = first.unwrap_or(took);
    let rate = number(orphans.len()) / (took.saturating_sub(first)).as_secs_f64();
    let cpu = usage::cpu_seconds(pod_safety.pid)? - before;
    Ok(format!(
        "| {} of {} | {} | {:.1} | {:.1} | {rate:.0} | {bare:.0} | {:.2} | {queued:.0} | {synced:.0} | {:.0} |\n",
        zone.lost,
        zone.nodes,
        orphans.len(),
        first.as_secs_f64(),
        took.as_secs_f64(),
        1e3 * cpu / number(orphans.len()),
        pod_safety.mib("VmHWM")?,
    ))
}
