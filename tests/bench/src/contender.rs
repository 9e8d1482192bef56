//! The measured programs, and how each is started and found ready.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use kube::Client;
use pod_safety_control_plane::{Component, Program};
use serde::Serialize;

use crate::cluster::Cluster;
use crate::http;
use crate::plan::{Phase, Plan};
use crate::reflect;

/// The log messages of kube-controller-manager in order: the controller starts, waits for its caches, and continues. Other controllers
/// log the same waits, so all of them must have ended.
const KCM_WAITS: &str = "Waiting for caches to sync";
const KCM_SYNCED: &str = "Caches are synced";

/// The name of its log file: one for all its runs on a cluster.
const KCM: &str = "kube-controller-manager";

const SYNCED_WITHIN: Duration = Duration::from_secs(600);

/// Fine enough for measured seconds, coarse enough to cost little.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Contender {
    /// pod-safety
    #[serde(rename = "ours")]
    #[value(name = "ours")]
    PodSafety,
    /// kube-controller-manager with nothing but the controller of that duty
    Kcm,
    /// A collector of pods on kube-runtime, for the phases without removals
    KubeRuntime,
    /// A client that reads what pod-safety reads and drops it, for the same phases
    Floor,
}

impl Contender {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::PodSafety => "pod-safety",
            Self::Kcm => "KCM",
            Self::KubeRuntime => "kube-runtime",
            Self::Floor => "floor",
        }
    }

    /// Whether it watches the Leases of nodes and does more than that.
    pub(crate) const fn takes_part(self, phase: Phase) -> bool {
        match self {
            Self::PodSafety => true,
            // Its pod garbage collector does not read Leases.
            Self::Kcm => !matches!(phase, Phase::Heartbeats),
            Self::KubeRuntime | Self::Floor => {
                matches!(phase, Phase::Start | Phase::Quiet | Phase::Heartbeats)
            }
        }
    }
}

/// The controllers for which a contender is started, without any others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    /// The collection of pods.
    PodGc,
    /// The statuses of disruption budgets.
    Budgets,
    /// The same, by the leader of two processes.
    Failover,
    /// Node loss, and the eviction of pods from lost nodes.
    Nodes,
}

impl Duty {
    /// The name of the controller in kube-controller-manager.
    const fn kcm_controllers(self) -> &'static str {
        match self {
            Self::PodGc => "pod-garbage-collector-controller",
            Self::Budgets | Self::Failover => "disruption-controller",
            Self::Nodes => "node-lifecycle-controller,taint-eviction-controller",
        }
    }

    /// The log message of kube-controller-manager when the controller starts.
    const fn kcm_starts(self) -> &'static str {
        match self {
            Self::PodGc => "Starting GC controller",
            Self::Budgets | Self::Failover => "Starting disruption controller",
            Self::Nodes => "Starting node controller",
        }
    }

    /// A single process needs no leader election.
    const fn kcm_flags(self) -> &'static [&'static str] {
        match self {
            Self::Failover => &["--leader-elect=true"],
            Self::PodGc | Self::Budgets | Self::Nodes => &[],
        }
    }

    const fn pod_safety_flags(self) -> &'static [&'static str] {
        match self {
            Self::PodGc => &["--controllers=pod-gc"],
            Self::Budgets | Self::Failover => &["--controllers=disruption", "--mode=replace"],
            Self::Nodes => &["--controllers=node-lifecycle,taint-eviction", "--mode=replace"],
        }
    }
}

pub(crate) struct Starter {
    binary: PathBuf,
    args: Vec<String>,
    starts: u32,
}

/// A contender that has synced.
pub(crate) struct Running {
    process: Process,
    /// From its start until its caches were synced.
    pub(crate) synced_after: Duration,
    /// The CPU time that it had used by then.
    pub(crate) synced_cpu: f64,
    /// The API server's CPU time right before the start.
    pub(crate) apiserver_before: f64,
    pub(crate) started: Instant,
    /// The admin port of pod-safety.
    pub(crate) admin: Option<Client>,
}

/// A standby.
pub(crate) struct StandBy(Process);

enum Process {
    PodSafety(Program),
    Kcm(Component),
}

impl Process {
    fn program(&mut self) -> &mut Program {
        match self {
            Self::PodSafety(program) => program,
            Self::Kcm(component) => component,
        }
    }
}

impl Starter {
    pub(crate) fn new(binary: PathBuf, plan: &Plan) -> Self {
        let mut args: Vec<String> =
            ["run", "--admin-address=127.0.0.1:0", "--log-format=json"].map(str::to_owned).into();
        if plan.quick {
            args.push(format!("--pod-gc-quarantine={}s", plan.quarantine().as_secs()));
        }
        Self { binary, args, starts: 0 }
    }

    /// Starts a contender and waits until its caches are synced.
    pub(crate) async fn start(&mut self, contender: Contender, duty: Duty, cluster: &mut Cluster) -> Result<Running> {
        let apiserver_before = cluster.apiserver_cpu()?;
        let skip = length(&cluster.plane.log(KCM))?;
        let started = Instant::now();
        let mut process = self.process(contender, duty, cluster).await?;
        let program = process.program();
        let admin = match contender {
            Contender::PodSafety => Some(pod_safety_synced(program).await?),
            Contender::Kcm => {
                wait(program, |log| kcm_synced(duty, log.get(skip..)?)).await?;
                None
            }
            Contender::KubeRuntime | Contender::Floor => {
                wait(program, |log| log.contains(reflect::SYNCED).then_some(())).await?;
                None
            }
        };
        let (synced_after, synced_cpu) = (started.elapsed(), program.cpu_seconds()?);
        Ok(Running { process, synced_after, synced_cpu, apiserver_before, started, admin })
    }

    async fn process(&mut self, contender: Contender, duty: Duty, cluster: &Cluster) -> Result<Process> {
        Ok(match contender {
            Contender::PodSafety => Process::PodSafety(self.start_pod_safety(duty, cluster)?),
            Contender::Kcm => {
                let flags = duty.kcm_flags();
                Process::Kcm(cluster.plane.kube_controller_manager(duty.kcm_controllers(), flags).await?)
            }
            Contender::KubeRuntime => Process::PodSafety(self.reflect(cluster, &[])?),
            Contender::Floor => Process::PodSafety(self.reflect(cluster, &["--floor"])?),
        })
    }

    /// Starts a standby beside the leader, and waits until it is ready: kube-controller-manager lists only when it leads.
    pub(crate) async fn stand_by(&mut self, contender: Contender, duty: Duty, cluster: &Cluster) -> Result<StandBy> {
        let mut process = self.process(contender, duty, cluster).await?;
        if contender == Contender::PodSafety {
            pod_safety_synced(process.program()).await?;
        }
        Ok(StandBy(process))
    }

    fn start_pod_safety(&mut self, duty: Duty, cluster: &Cluster) -> Result<Program> {
        self.starts += 1;
        let kubeconfig = format!("--kubeconfig={}", cluster.kubeconfig.display());
        let args = self.args.iter().map(String::as_str).chain([&*kubeconfig]);
        let args = args.chain(duty.pod_safety_flags().iter().copied());
        let name = format!("pod-safety-{}", self.starts);
        Ok(cluster.plane.program(&name, &self.binary, args, &[])?)
    }

    /// This program, as a reference contender.
    fn reflect(&mut self, cluster: &Cluster, flags: &[&str]) -> Result<Program> {
        self.starts += 1;
        let kubeconfig = format!("--kubeconfig={}", cluster.kubeconfig.display());
        let args = ["reflect", &kubeconfig].into_iter().chain(flags.iter().copied());
        let this = std::env::current_exe().context("looking for this program")?;
        Ok(cluster.plane.program(&format!("reflect-{}", self.starts), &this, args, &[])?)
    }

    /// Stops a contender like a rollout: its Lease is released.
    pub(crate) async fn stop(&mut self, running: Running) -> Result<()> {
        self.end(running.process).await
    }

    /// The same for a standby.
    pub(crate) async fn stop_standby(&mut self, StandBy(process): StandBy) -> Result<()> {
        self.end(process).await
    }

    async fn end(&mut self, mut process: Process) -> Result<()> {
        process.program().terminate().await?;
        Ok(())
    }
}

impl Running {
    /// Kills it like a power loss: its Lease is not released.
    pub(crate) fn kill(mut self) -> Result<()> {
        Ok(self.process.program().kill_9()?)
    }

    /// The CPU time that it has used so far.
    pub(crate) fn cpu(&mut self) -> Result<f64> {
        Ok(self.process.program().cpu_seconds()?)
    }

    /// Its peak resident memory so far, in MiB.
    pub(crate) fn peak_mib(&mut self) -> Result<f64> {
        Ok(mib(self.process.program().rss_peak_kib()?))
    }

    /// Its current resident memory, in MiB.
    pub(crate) fn resident_mib(&mut self) -> Result<f64> {
        Ok(mib(self.process.program().rss_kib()?))
    }
}

pub(crate) fn mib(kib: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "memory sizes are far below 2^52 KiB")]
    let kib = kib as f64;
    kib / 1024.0
}

/// Waits for /readyz at the address that the log names.
pub(crate) async fn pod_safety_synced(program: &mut Program) -> Result<Client> {
    let address = wait(program, |log| {
        let (_, behind) = log.split_once("\"address\":\"")?;
        behind.split_once('"').map(|(address, _)| address.to_owned())
    });
    let admin = http::client(&format!("http://{}", address.await?))?;
    let deadline = Instant::now() + SYNCED_WITHIN;
    loop {
        match http::page(&admin, "readyz").await {
            Ok(_) => return Ok(admin),
            Err(error) if Instant::now() > deadline || program.exited()?.is_some() => {
                return Err(error);
            }
            Err(_) => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}

/// Waits until `find` returns a value for the program's log.
async fn wait<T>(program: &mut Program, find: impl Fn(&str) -> Option<T>) -> Result<T> {
    let deadline = Instant::now() + SYNCED_WITHIN;
    loop {
        let log = program.log_text();
        if let Some(value) = find(&log) {
            return Ok(value);
        }
        if Instant::now() > deadline || program.exited()?.is_some() {
            let end: Vec<&str> = log.lines().rev().take(10).collect();
            let end = end.into_iter().rev().collect::<Vec<_>>().join("\n");
            bail!("{} has not synced within {SYNCED_WITHIN:?}; its log ends: {end}", program.name());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The length of the log before the next run.
fn length(log: &Path) -> Result<usize> {
    match std::fs::metadata(log) {
        Ok(metadata) => Ok(usize::try_from(metadata.len())?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error).with_context(|| format!("cannot look at {}", log.display())),
    }
}

fn kcm_synced(duty: Duty, log: &str) -> Option<()> {
    let (_, since) = log.split_once(duty.kcm_starts())?;
    let count = |words| log.matches(words).count();
    (since.contains(KCM_WAITS) && count(KCM_WAITS) == count(KCM_SYNCED)).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The length of an earlier cluster's log was used, so on the next cluster no sync was found.
    #[test]
    fn bug_each_cluster_has_a_log_of_its_own() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let log = folder.path().join(KCM);
        assert_eq!(length(&log)?, 0, "nothing has run yet");
        std::fs::write(&log, "Caches are synced")?;
        assert_eq!(length(&log)?, 17);
        Ok(())
    }

    #[test]
    fn cache_metrics_of_other_informers_are_ignored() {
        let mut log = String::new();
        for (line, synced) in [
            ("\"Waiting for caches to sync\" controller=\"client-ca\"", false),
            ("\"Caches are synced\" controller=\"client-ca\"", false),
            ("\"Starting GC controller\"", false),
            ("\"Waiting for caches to sync\"", false),
            ("\"Caches are synced\"", true),
        ] {
            log.push_str(line);
            assert_eq!(kcm_synced(Duty::PodGc, &log).is_some(), synced, "{log}");
            assert!(kcm_synced(Duty::Budgets, &log).is_none(), "that is not what started");
        }
    }
}
