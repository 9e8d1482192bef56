//! Kubelets stop reporting in very large clusters: how long after the grace period their nodes are marked Unknown, and how long that takes
//! if the leader dies first. On the synthetic API server.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kube::Client;
use pod_safety_control_plane::{client, usage};
use serde_json::{Value, json};

use crate::losses::ALL_RENEWED;
use crate::results::percentile;
use crate::scale::{PodSafetyProcess, RENEW_INTERVAL, Server};
use crate::synthetic::{MARKED, STOPPED_PATH, ZONES};
use crate::{http, print_line};

/// `--node-monitor-grace-period`.
const GRACE: Duration = Duration::from_secs(40);

/// How long marks are awaited beyond the grace period.
const PATIENCE: Duration = Duration::from_secs(120);

const POLL_INTERVAL: Duration = Duration::from_millis(500);
const SHORT_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How many nodes are lost at once, besides a single node and a quarter of all.
const MANY: usize = 100;

/// How long after the nodes stopped reporting the leader dies: their last renewals are spread over ten seconds, so the grace period of
/// some is over by then, and that of others is not.
const DIES_AFTER: Duration = Duration::from_secs(34);

/// After this time the leader's last requests have arrived, and its Lease has not expired.
const ARRIVED: Duration = Duration::from_secs(1);

/// Measures how soon pod-safety finds nodes lost, on clusters that are made up.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Silent {
    /// How many nodes
    #[arg(long, value_name = "COUNT", value_delimiter = ',', default_value = "30000,65000,130000")]
    nodes: Vec<usize>,

    /// The pod-safety to measure
    #[arg(long, value_name = "FILE")]
    pod_safety: PathBuf,
}

/// A cluster, and how many of its nodes have stopped reporting.
struct Case {
    nodes: usize,
    server: Client,
    /// The next node of the first zone that still reports.
    next: usize,
}

pub(crate) async fn run(plan: Silent) -> Result<String> {
    let mut table = String::from(
        "| nodes | lost at once | p50, ms | p99, ms | longest, ms | own CPU, s | peak, MiB | leader killed: until the next one marks, s |\n\
         |---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for &nodes in &plan.nodes {
        measure(&plan, nodes, &mut table).await?;
    }
    Ok(table)
}

async fn measure(plan: &Silent, nodes: usize, table: &mut String) -> Result<()> {
    let size = [("nodes", nodes), ("pods", 0), ("heartbeats", nodes / RENEW_INTERVAL)];
    let server = Server::start_with(&size, &["--labelled"]).await?;
    let kubeconfig = server.kubeconfig();
    let mut case = Case { nodes, server: client(&kubeconfig).await?, next: 0 };
    let grace = format!("--node-monitor-grace-period={}s", GRACE.as_secs());
    let flags = ["--controllers=node-lifecycle", "--mode=replace", "--leader-elect=true", &grace].map(str::to_owned);
    let pod_safety = PodSafetyProcess::start(&plan.pod_safety, &kubeconfig, &flags).await?;
    tokio::time::sleep(ALL_RENEWED).await;
    for count in [1, MANY, nodes / 4] {
        let before = usage::cpu_seconds(pod_safety.pid)?;
        let lags = case.lose(count).await?;
        let (used, peak) = (usage::cpu_seconds(pod_safety.pid)? - before, pod_safety.mib("VmHWM")?);
        let of = |percent| percentile(&lags, 0, percent).unwrap_or_default();
        writeln!(
            table,
            "| {nodes} | {count} | {:.0} | {:.0} | {:.0} | {used:.2} | {peak:.0} | |",
            of(50),
            of(99),
            of(100)
        )?;
        print_line(table.lines().last().unwrap_or_default());
    }
    let _standby = PodSafetyProcess::start(&plan.pod_safety, &kubeconfig, &flags).await?;
    tokio::time::sleep(ALL_RENEWED).await;
    let took = case.takeover(pod_safety).await?;
    writeln!(table, "| {nodes} | {MANY} | | | | | | {:.1} |", took.as_secs_f64())?;
    print_line(table.lines().last().unwrap_or_default());
    Ok(())
}

impl Case {
    /// Stops the renewals of `count` more nodes of the first zone.
    async fn stop_renewing(&mut self, count: usize) -> Result<Vec<usize>> {
        let nodes: Vec<usize> = (self.next..self.next + count).map(|node| node * ZONES).collect();
        ensure!(nodes.iter().all(|node| *node < self.nodes), "the first zone has no {count} nodes more");
        self.next += count;
        http::post::<Value>(&self.server, STOPPED_PATH, &json!({ "nodes": nodes })).await?;
        Ok(nodes)
    }

    /// The seconds from the last renewal to the mark, for each marked node.
    async fn marked(&self) -> Result<BTreeMap<usize, f64>> {
        let marked = http::page(&self.server, MARKED.trim_start_matches('/')).await?;
        Ok(serde_json::from_str::<Vec<(usize, f64)>>(&marked)?.into_iter().collect())
    }

    /// How long after their grace period `count` nodes that stop reporting at once are marked, sorted.
    async fn lose(&mut self, count: usize) -> Result<Vec<Duration>> {
        let nodes = self.stop_renewing(count).await?;
        let deadline = Instant::now() + GRACE + PATIENCE;
        loop {
            let marked = self.marked().await?;
            let lags = nodes.iter().filter_map(|node| marked.get(node));
            let lags: Option<Vec<Duration>> =
                lags.map(|lag| Duration::from_secs_f64(*lag).checked_sub(GRACE)).collect();
            let mut lags = lags.context("a node was marked within its grace period")?;
            if lags.len() == nodes.len() {
                lags.sort();
                return Ok(lags);
            }
            ensure!(Instant::now() < deadline, "{} of {count} nodes were marked", lags.len());
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// How long after the death of its leader a standby marks the first node.
    async fn takeover(&mut self, leader: PodSafetyProcess) -> Result<Duration> {
        let before = self.marked().await?.len();
        self.stop_renewing(MANY).await?;
        tokio::time::sleep(DIES_AFTER).await;
        leader.kill().await?;
        let died = Instant::now();
        tokio::time::sleep(ARRIVED).await;
        let by_it = self.marked().await?.len();
        ensure!(by_it < before + MANY, "the leader had marked all of them");
        while self.marked().await?.len() == by_it {
            ensure!(died.elapsed() < PATIENCE, "no standby marked a node");
            tokio::time::sleep(SHORT_POLL_INTERVAL).await;
        }
        Ok(died.elapsed())
    }
}
