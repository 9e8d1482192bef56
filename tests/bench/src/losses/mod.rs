//! Phase: nodes are lost while their neighbours renew their Leases. Measures how long after the grace period a loss is detected, how long
//! until the pods of lost nodes are marked, and how long from a taint to the deletion of pods without a toleration.
//!
//! `fixture` has the nodes and pods, and restores what a run changed; `watcher` watches the changes.

mod fixture;
mod watcher;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::cluster::Cluster;
use crate::contender::{Contender, Duty, Running, Starter};
use crate::kubelets::Kubelets;
use crate::plan::{Phase, Plan};
use crate::results::{Meter, OF_A_CORE, OWN_CPU, Results, Sample, number};

use fixture::{Fixture, Lost};
use watcher::{NodeChange, Watcher, watch};

/// `--node-monitor-grace-period` of both contenders.
pub(crate) const GRACE: Duration = Duration::from_secs(50);

/// A contender has observed the renewal of every Lease after this time: they are renewed every ten seconds.
pub(crate) const ALL_RENEWED: Duration = Duration::from_secs(12);

/// How long a loss is awaited beyond the grace period.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long pods are awaited.
const PATIENCE_WITH_PODS: Duration = Duration::from_secs(400);

/// The number of nodes that get a taint without matching tolerations.
const TAINTED: usize = 10;

pub(crate) async fn run(starter: &mut Starter, plan: &Plan, results: &mut Results) -> Result<()> {
    let mut cluster = Cluster::start(plan).await?;
    let fixture = Fixture::read(&cluster, plan).await?;
    for contender in plan.those_of(Phase::Nodes) {
        let mut case = Case { cluster: &mut cluster, starter, plan, fixture: &fixture, contender };
        case.measure(results).await?;
    }
    Ok(())
}

struct Case<'a> {
    cluster: &'a mut Cluster,
    starter: &'a mut Starter,
    plan: &'a Plan,
    fixture: &'a Fixture,
    contender: Contender,
}

impl Case<'_> {
    async fn measure(&mut self, results: &mut Results) -> Result<()> {
        let kubelets = Kubelets::start(&self.cluster.etcd).await?;
        tokio::time::sleep(ALL_RENEWED).await;
        let mut watcher = watch(self.cluster.plane.admin()).await?;
        let mut running = self.starter.start(self.contender, Duty::Nodes, self.cluster).await?;
        tokio::time::sleep(ALL_RENEWED).await;

        results.add(self.quiet(&mut running, &kubelets).await?);
        results.add(self.measure_evictions(&mut watcher).await?);
        for lost in self.fixture.losses() {
            results.add(self.lose_nodes(&lost, &mut running, &kubelets, &mut watcher).await?);
        }
        self.starter.stop(running).await?;
        kubelets.stop()?;
        self.fixture.restore(self.cluster).await
    }

    async fn quiet(&mut self, running: &mut Running, kubelets: &Kubelets) -> Result<Sample> {
        let before = self.cluster.requests().await?;
        let renewed = kubelets.renewed();
        let meter = Meter::start(before, self.cluster, running)?;
        tokio::time::sleep(self.plan.quiet()).await;
        let (seconds, renewals) = (meter.seconds(), number(kubelets.renewed() - renewed));
        let case = format!("nodes: {:.0} s with heartbeats", self.plan.quiet().as_secs_f64());
        let sample = Sample::new(Phase::Nodes, self.contender.name(), case);
        let sample = meter.read(sample, 0.0, self.cluster, running).await?;
        let own = sample.value(OWN_CPU).unwrap_or_default();
        Ok(sample.with(OF_A_CORE, 100.0 * own / seconds).with("heartbeats/s", renewals / seconds))
    }

    /// From a taint without matching tolerations to the deletion of each pod of its node.
    async fn measure_evictions(&mut self, watcher: &mut Watcher) -> Result<Sample> {
        let lost = self.fixture.tainted(TAINTED);
        let pods = self.fixture.pods_of(&lost);
        let mut tainted = BTreeMap::new();
        for node in &lost.nodes {
            tainted.insert(node.clone(), Instant::now());
            fixture::taint(self.cluster, node).await?;
        }
        let mut after = Vec::new();
        let over = Instant::now() + PATIENCE_WITH_PODS;
        while after.len() < pods.len() && Instant::now() < over {
            let change = watcher.next(Duration::from_secs(1)).await?;
            if let Some(NodeChange::Deleted { pod, node, at }) = change
                && pods.contains(&pod)
                && let Some(since) = tainted.get(&node)
            {
                after.push(at.saturating_duration_since(*since));
            }
        }
        let undeleted = pods.len().saturating_sub(after.len());
        let case = format!("{} nodes with {} pods get a taint: to DELETE", lost.nodes.len(), pods.len());
        let sample = Sample::new(Phase::Nodes, self.contender.name(), case);
        Ok(sample.spread(after, undeleted).with("not asked to end", number(undeleted)))
    }

    async fn lose_nodes(
        &mut self,
        lost: &Lost,
        running: &mut Running,
        kubelets: &Kubelets,
        watcher: &mut Watcher,
    ) -> Result<Sample> {
        let meter = Meter::start(self.cluster.requests().await?, self.cluster, running)?;
        let pods = if lost.with_pods { self.fixture.pods_of(lost) } else { std::collections::BTreeSet::new() };
        let began = Instant::now();
        kubelets.stop_renewing(&lost.nodes);
        let (mut seen, mut marked) = (BTreeMap::new(), BTreeMap::new());
        let patience = GRACE + if lost.with_pods { PATIENCE_WITH_PODS } else { PATIENCE };
        while (seen.len() < lost.nodes.len() || marked.len() < pods.len()) && began.elapsed() < patience {
            match watcher.next(Duration::from_secs(1)).await? {
                Some(NodeChange::Lost { node, at }) if lost.nodes.contains(&node) => {
                    seen.entry(node).or_insert(at);
                }
                Some(NodeChange::Marked { pod, at }) if pods.contains(&pod) => {
                    marked.entry(pod).or_insert(at);
                }
                _ => {}
            }
        }
        let lag =
            |(node, at): (&String, &Instant)| Some(at.saturating_duration_since(kubelets.last_renewal(node)? + GRACE));
        let lags: Vec<Duration> = seen.iter().filter_map(lag).collect();
        let (last_seen, last_marked) = (seen.values().max(), marked.values().max());
        let until_marked = last_seen.zip(last_marked);
        let undetected = lost.nodes.len() - seen.len();
        let case = format!("loss of {} ({}): grace to Unknown", lost.what, lost.nodes.len());
        let mut sample = Sample::new(Phase::Losses, self.contender.name(), case)
            .spread(lags, undetected)
            .with("not seen", number(undetected));
        if !pods.is_empty() {
            let until = |(seen, marked): (&Instant, &Instant)| marked.saturating_duration_since(*seen);
            sample = sample
                .with("then until its pods are marked, s", until_marked.map(until).map(|time| time.as_secs_f64()))
                .with("pods", number(pods.len()))
                .with("of them marked", number(marked.len()));
        }
        meter.read(sample, 0.0, self.cluster, running).await
    }
}
