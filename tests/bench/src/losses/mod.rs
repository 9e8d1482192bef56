//! Phase: nodes are lost while their neighbours renew their Leases. How long after the grace that is seen, how long
//! until the pods of lost nodes are marked, and how long from a taint to the deletion of those that do not bear it.
//!
//! `stage` knows which nodes and pods there are, and puts back what a run changed; `watcher` hears what is written.

mod stage;
mod watcher;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::cluster::Cluster;
use crate::contender::{Contender, Duty, Running, Starter};
use crate::error::Error;
use crate::kubelets::Kubelets;
use crate::plan::Plan;
use crate::requests;
use crate::results::{Evicted, Loss, Quiet, Results, Spread, number};
use crate::say;

use stage::{Lost, Stage};
use watcher::{Heard, Watcher, watch};

/// `--node-monitor-grace-period`, of both.
pub(crate) const GRACE: Duration = Duration::from_secs(50);

/// A contender has seen every Lease renewed after this long: they are renewed each ten seconds.
const ALL_RENEWED: Duration = Duration::from_secs(12);

/// Beyond the grace, a loss is waited for so long.
const PATIENCE: Duration = Duration::from_secs(120);

/// For so long, pods are waited for.
const PATIENCE_WITH_PODS: Duration = Duration::from_secs(400);

/// So many nodes get a taint that their pods do not bear.
const TAINTED: usize = 10;

pub(crate) async fn run(starter: &mut Starter, plan: &Plan, results: &mut Results) -> Result<(), Error> {
    let mut cluster = Cluster::start(plan).await?;
    let stage = Stage::of(&cluster, plan).await?;
    for &contender in &plan.contenders {
        let mut scene = Scene { cluster: &mut cluster, starter, plan, stage: &stage, contender };
        scene.measure(results).await?;
    }
    Ok(())
}

struct Scene<'a> {
    cluster: &'a mut Cluster,
    starter: &'a mut Starter,
    plan: &'a Plan,
    stage: &'a Stage,
    contender: Contender,
}

impl Scene<'_> {
    async fn measure(&mut self, results: &mut Results) -> Result<(), Error> {
        let kubelets = Kubelets::start(&self.cluster.etcd).await?;
        tokio::time::sleep(ALL_RENEWED).await;
        let mut watcher = watch(self.cluster.plane.admin()).await?;
        let mut running = self.starter.start(self.contender, Duty::Nodes, self.cluster).await?;
        tokio::time::sleep(ALL_RENEWED).await;

        let quiet = self.quiet(&mut running, &kubelets).await?;
        say(&format!("nodes, quiet: {quiet:.2?}"));
        results.node_quiets.push(quiet);
        let evicted = self.evict(&mut watcher).await?;
        say(&format!("nodes, taints: {evicted:.2?}"));
        results.evictions.push(evicted);
        for lost in self.stage.losses() {
            let loss = self.lose(&lost, &mut running, &kubelets, &mut watcher).await?;
            say(&format!("nodes, loss: {loss:.2?}"));
            results.losses.push(loss);
        }
        self.starter.stop(running).await?;
        kubelets.stop()?;
        self.stage.restore(self.cluster).await
    }

    /// Nothing happens but heartbeats.
    async fn quiet(&mut self, running: &mut Running, kubelets: &Kubelets) -> Result<Quiet, Error> {
        let (began, renewed) = (Instant::now(), kubelets.renewed());
        let (apiserver, own) = (self.cluster.apiserver_cpu()?, running.cpu()?);
        tokio::time::sleep(self.plan.quiet).await;
        let seconds = began.elapsed().as_secs_f64();
        Ok(Quiet {
            contender: self.contender,
            seconds,
            renewals: number(kubelets.renewed() - renewed) / seconds,
            cpu: running.cpu()? - own,
            apiserver_cpu: self.cluster.apiserver_cpu()? - apiserver,
            peak_mib: running.peak_mib()?,
            resident_mib: running.resident_mib()?,
        })
    }

    /// From a taint that nobody tolerates to the deletion of each pod of its node.
    async fn evict(&mut self, watcher: &mut Watcher) -> Result<Evicted, Error> {
        let lost = self.stage.tainted(TAINTED);
        let pods = self.stage.pods_of(&lost);
        let mut tainted = BTreeMap::new();
        for node in &lost.nodes {
            tainted.insert(node.clone(), Instant::now());
            stage::taint(self.cluster, node).await?;
        }
        let mut after = Vec::new();
        let over = Instant::now() + PATIENCE_WITH_PODS;
        while after.len() < pods.len() && Instant::now() < over {
            let heard = watcher.next(Duration::from_secs(1)).await?;
            if let Some(Heard::Deleted { pod, node, at }) = heard
                && pods.contains(&pod)
                && let Some(since) = tainted.get(&node)
            {
                after.push(at.saturating_duration_since(*since));
            }
        }
        let undeleted = pods.len().saturating_sub(after.len());
        let spread = Spread::of(after, undeleted);
        Ok(Evicted {
            contender: self.contender,
            nodes: lost.nodes.len(),
            pods: pods.len(),
            spread,
            undeleted,
        })
    }

    async fn lose(
        &mut self,
        lost: &Lost,
        running: &mut Running,
        kubelets: &Kubelets,
        watcher: &mut Watcher,
    ) -> Result<Loss, Error> {
        let before = self.cluster.requests().await?;
        let (apiserver, own) = (self.cluster.apiserver_cpu()?, running.cpu()?);
        let pods = if lost.with_pods { self.stage.pods_of(lost) } else { std::collections::BTreeSet::new() };
        let began = Instant::now();
        kubelets.silence(&lost.nodes);
        let (mut seen, mut marked) = (BTreeMap::new(), BTreeMap::new());
        let patience = GRACE + if lost.with_pods { PATIENCE_WITH_PODS } else { PATIENCE };
        while (seen.len() < lost.nodes.len() || marked.len() < pods.len()) && began.elapsed() < patience {
            match watcher.next(Duration::from_secs(1)).await? {
                Some(Heard::Lost { node, at }) if lost.nodes.contains(&node) => {
                    seen.entry(node).or_insert(at);
                }
                Some(Heard::Marked { pod, at }) if pods.contains(&pod) => {
                    marked.entry(pod).or_insert(at);
                }
                _ => {}
            }
        }
        let lag = |(node, at): (&String, &Instant)| {
            Some(at.saturating_duration_since(kubelets.last(node)? + GRACE))
        };
        let lags: Vec<Duration> = seen.iter().filter_map(lag).collect();
        let (last_seen, last_marked) = (seen.values().max(), marked.values().max());
        let until_marked = last_seen.zip(last_marked);
        let undetected = lost.nodes.len() - seen.len();
        Ok(Loss {
            contender: self.contender,
            what: lost.what,
            nodes: lost.nodes.len(),
            undetected,
            lag: Spread::of(lags, undetected),
            pods: pods.len(),
            marked: marked.len(),
            marked_seconds: until_marked
                .map(|(seen, marked)| marked.saturating_duration_since(*seen).as_secs_f64()),
            cpu: running.cpu()? - own,
            apiserver_cpu: self.cluster.apiserver_cpu()? - apiserver,
            peak_mib: running.peak_mib()?,
            requests: requests::between(&before, &self.cluster.requests().await?),
        })
    }
}
