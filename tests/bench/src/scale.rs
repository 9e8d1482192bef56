//! Cluster sizes that need more than one machine for a real API server: pod-safety on the synthetic one, one size after the other.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use pod_safety_control_plane::usage;
use tokio::process::{Child, Command};

use crate::synthetic::kubeconfig;
use crate::{http, print_line};

/// A million pods are listed in seconds. A longer start is a failure.
const SYNCED_WITHIN: Duration = Duration::from_secs(300);

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// After this time the allocator has returned the memory of the start, or keeps it.
const SETTLE_TIME: Duration = Duration::from_secs(15);

/// The time from one renewal of a kubelet's Lease to the next.
pub(crate) const RENEW_INTERVAL: usize = 10;

/// Measures pod-safety alone on clusters that are made up.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Scale {
    /// How many nodes, and how many pods on each
    #[arg(
        long,
        value_name = "NODESxPODS",
        value_delimiter = ',',
        default_value = "1000x30,5000x0,5000x30,10000x30,30000x30,65000x15,130000x0,130000x8"
    )]
    sizes: Vec<Size>,

    /// For how long heartbeats are measured
    #[arg(long, value_name = "SECONDS", default_value = "30")]
    seconds: u64,

    /// Heartbeats in each second, instead of a tenth of the nodes
    #[arg(long, value_name = "COUNT")]
    heartbeats: Option<usize>,

    /// A kubeconfig of a real cluster to measure instead. What it has must be said with --sizes
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// More flags of pod-safety
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true, default_value = "--controllers=pod-gc")]
    flags: Vec<String>,

    /// The pod-safety to measure
    #[arg(long, value_name = "FILE")]
    pod_safety: PathBuf,
}

#[derive(Clone, Copy, Debug)]
struct Size {
    nodes: usize,
    pods_each: usize,
}

impl std::str::FromStr for Size {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (nodes, pods) = text.split_once('x').context("nodes and pods have an x between them")?;
        Ok(Self { nodes: nodes.parse()?, pods_each: pods.parse()? })
    }
}

/// The measurements at one size.
struct Row {
    size: Size,
    heartbeats: usize,
    start: f64,
    start_cpu: f64,
    peak_mib: f64,
    share: f64,
}

pub(crate) async fn run(plan: Scale) -> Result<String> {
    let mut table = String::from(
        "| nodes | pods | heartbeats/s | start, s | … own CPU, s | peak, MiB | own CPU with heartbeats, % of a core | µs per heartbeat |\n|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for &size in &plan.sizes {
        let row = measure(&plan, size).await?;
        let line = row.line();
        print_line(&line);
        writeln!(table, "{line}")?;
    }
    Ok(table)
}

impl Row {
    fn line(&self) -> String {
        let Self { size, heartbeats, start, start_cpu, peak_mib, share } = self;
        let pods = size.nodes * size.pods_each;
        let each = share * 1e6 / crate::results::number(*heartbeats).max(1.0);
        format!(
            "| {} | {pods} | {heartbeats} | {start:.2} | {start_cpu:.2} | {peak_mib:.0} | {:.2} | \
             {each:.1} |",
            size.nodes,
            share * 100.0
        )
    }
}

/// A program in the background, which is killed with this process.
fn spawn(program: &Path, args: &[&str], log: &Path) -> Result<Child> {
    let file = std::fs::File::create(log).with_context(|| format!("writing {}", log.display()))?;
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).kill_on_drop(true);
    command.spawn().with_context(|| format!("starting {}", program.display()))
}

/// The synthetic API server, as a process, which is killed when this is dropped.
pub(crate) struct Server {
    _process: Child,
    folder: tempfile::TempDir,
}

impl Server {
    /// With these arguments of `serve`.
    pub(crate) async fn start(args: &[(&str, usize)]) -> Result<Self> {
        Self::start_with(args, &[]).await
    }

    /// With flags in addition.
    pub(crate) async fn start_with(args: &[(&str, usize)], flags: &[&str]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let into = format!("--folder={}", folder.path().display());
        let args: Vec<_> = args.iter().map(|(name, value)| format!("--{name}={value}")).collect();
        let args: Vec<_> =
            ["serve", &into].into_iter().chain(flags.iter().copied()).chain(args.iter().map(String::as_str)).collect();
        let process = spawn(&std::env::current_exe()?, &args, &folder.path().join("serve.log"))?;
        let server = Self { _process: process, folder };
        wait(async || server.kubeconfig().exists().then_some(())).await?;
        Ok(server)
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        kubeconfig(self.folder.path())
    }
}

/// A pod-safety process with synced caches.
pub(crate) struct PodSafetyProcess {
    process: Child,
    pub(crate) pid: u32,
    admin: kube::Client,
    /// Seconds until it was ready, and its CPU seconds until then.
    start: (f64, f64),
    _folder: tempfile::TempDir,
}

impl PodSafetyProcess {
    pub(crate) async fn start(program: &Path, config: &Path, flags: &[String]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let log = folder.path().join("pod-safety.log");
        let config = format!("--kubeconfig={}", config.display());
        let mut args = vec!["run", &config, "--admin-address=127.0.0.1:0", "--log-format=json"];
        args.extend(flags.iter().map(String::as_str));
        if !flags.iter().any(|flag| flag.starts_with("--leader-elect")) {
            args.push("--leader-elect=false");
        }
        let began = Instant::now();
        let process = spawn(program, &args, &log)?;
        let pid = process.id().context("pod-safety has ended")?;
        let address = wait(async || {
            let text = std::fs::read_to_string(&log).ok()?;
            Some(text.split_once("\"address\":\"")?.1.split_once('"')?.0.to_owned())
        });
        let admin = http::client(&format!("http://{}", address.await?))?;
        wait(async || http::page(&admin, "readyz").await.ok()).await?;
        let start = (began.elapsed().as_secs_f64(), usage::cpu_seconds(pid)?);
        Ok(Self { process, pid, admin, start, _folder: folder })
    }

    /// Kills it like a power loss: its Lease is not released.
    pub(crate) async fn kill(mut self) -> Result<()> {
        Ok(self.process.kill().await?)
    }

    /// The sum of the metrics whose lines begin with `name`.
    pub(crate) async fn metric(&mut self, name: &str) -> Result<f64> {
        ensure!(self.process.try_wait()?.is_none(), "pod-safety has ended");
        let metrics = http::page(&self.admin, "metrics").await?;
        let lines = metrics.lines().filter(|line| line.starts_with(name));
        Ok(lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum())
    }

    pub(crate) fn mib(&self, field: &str) -> Result<f64> {
        Ok(crate::contender::mib(usage::memory_kib(self.pid, field)?))
    }
}

/// The metric of the number of cached objects of a resource.
pub(crate) fn cached(resource: &str) -> String {
    format!("pod_safety_cache_objects{{resource=\"{resource}\"}}")
}

async fn measure(plan: &Scale, size: Size) -> Result<Row> {
    let heartbeats = plan.heartbeats.unwrap_or(size.nodes / RENEW_INTERVAL);
    let (nodes, pods) = (size.nodes, size.nodes * size.pods_each);
    let (_server, config) = match &plan.kubeconfig {
        Some(config) => (None, config.clone()),
        None => {
            let args = [("nodes", nodes), ("pods", pods), ("heartbeats", heartbeats)];
            let server = Server::start(&args).await?;
            let config = server.kubeconfig();
            (Some(server), config)
        }
    };
    let mut pod_safety = PodSafetyProcess::start(&plan.pod_safety, &config, &plan.flags).await?;
    tokio::time::sleep(SETTLE_TIME).await;
    let (before, since) = (usage::cpu_seconds(pod_safety.pid)?, Instant::now());
    tokio::time::sleep(Duration::from_secs(plan.seconds)).await;
    let share = (usage::cpu_seconds(pod_safety.pid)? - before) / since.elapsed().as_secs_f64();
    let peak_mib = pod_safety.mib("VmHWM")?;
    for (resource, count) in [("pods", pods), ("nodes", nodes), ("leases", nodes)] {
        let has = pod_safety.metric(&cached(resource)).await?;
        let expected = crate::results::number(count);
        ensure!((has - expected).abs() < 0.5, "pod-safety has {has} {resource} of {count}");
    }
    let (start, start_cpu) = pod_safety.start;
    Ok(Row { size, heartbeats, start, start_cpu, peak_mib, share })
}

pub(crate) async fn wait<T>(probe: impl AsyncFn() -> Option<T>) -> Result<T> {
    let deadline = Instant::now() + SYNCED_WITHIN;
    while Instant::now() < deadline {
        if let Some(value) = probe().await {
            return Ok(value);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    bail!("nothing came within {SYNCED_WITHIN:?}")
}
