//! The agents of nodes, as processes of the machines, and a keeper of each machine in place of a watchdog: it is
//! outside of the machine, and cuts its power when it is not fed.

use std::fs::{self, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use pod_safety_control_plane::{ControlPlane, agent, check_that, eventually, observe};
use rustix::fs::{CWD, FileType, OFlags, mknodat};
use tokio::task::JoinSet;

use crate::cluster::Cluster;
use crate::machine::{Machine, Service, run};
use crate::objects::{self, NAMESPACE};
use crate::promise_check::Ledger;

/// The timeout of the watchdog.
const TIMEOUT: Duration = Duration::from_secs(8);
/// The seconds from a grant to the next, and from the last grant to the end of the pods.
const INTERVAL: u32 = 1;
const LATE: u32 = 4;
/// How often a keeper checks.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The Service address of the API server, seen from the machines.
const API_SERVER: &str = "10.96.0.1";

fn folder(machine: Machine) -> PathBuf {
    Path::new("/run/machines").join(machine.name())
}

/// While it lives, each machine has an agent, also after a boot. Dropping it ends the keepers.
pub(crate) struct Agents {
    pub(crate) outlived: Ledger,
    _keepers: JoinSet<()>,
}

/// The identity of a machine's boot: its first process.
fn first_of(machine: Machine) -> Option<String> {
    fs::read_to_string(folder(machine).join("pid")).ok()
}

/// Writes the files that an agent needs, and the command that starts it.
async fn prepare(plane: &ControlPlane, machine: Machine) -> Result<()> {
    let (folder, name) = (folder(machine), machine.name());
    let account = folder.join("account");
    fs::create_dir_all(&account)?;
    fs::copy(plane.authority(), account.join("ca.crt"))?;
    fs::write(account.join("token"), plane.agent_token(&name).await?)?;
    let at = |path: &str| folder.join(path).display().to_string();
    let keeper = folder.join("keeper");
    if !keeper.exists() {
        mknodat(CWD, &keeper, FileType::Fifo, 0o600.into(), 0)?;
    }
    let program = agent().await?;
    let args = [
        program.display().to_string(),
        format!("run --node {name} --namespace pod-safety --server {API_SERVER} --port 443 --gated"),
        format!("--timeout {} --interval {INTERVAL} --late {LATE}", TIMEOUT.as_secs()),
        format!("--account {} --keeper {} --marks {}", at("account"), at("keeper"), at("run/agent")),
        format!("--record {} --kubelet {}", at("own"), at("kubelet")),
    ];
    Ok(fs::write(folder.join("agent"), args.join(" ") + "\n")?)
}

/// Cuts the power of a machine whose watchdog was fed and is not fed any more. A machine that is off stays off.
async fn run_watchdog(machine: Machine) -> Result<()> {
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits())?;
    let mut pipe = OpenOptions::new().read(true).custom_flags(nonblocking).open(folder(machine).join("keeper"))?;
    let (mut words, mut petted) = ([0; 64], None);
    loop {
        let length = pipe.read(&mut words).unwrap_or(0);
        match words[..length].last() {
            Some(b'V') => petted = None,
            Some(_) => petted = Some((Instant::now(), first_of(machine))),
            None => {}
        }
        if let Some((_, boot)) = petted.take_if(|(at, _)| at.elapsed() > TIMEOUT)
            && boot.is_some()
            && boot == first_of(machine)
        {
            machine.off().await?;
            machine.on().await?;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Sends a signal to each process of a pod, by its cgroups as the host has them. A process that has ended meanwhile
/// needs none.
async fn signal_all_of(uid: &str, signal: &str) -> Result<()> {
    let script =
        r#"cat $(find /sys/fs/cgroup -path "*pod$1*" -name cgroup.procs) | sort -u | xargs -r kill -"$2" || true"#;
    run("sh", &["-c", script, "sh", uid, signal]).await.map(drop)
}

impl Cluster {
    /// Each machine gets an agent, and the policy requires the agents' promises; with the switch, or alone.
    pub(crate) async fn start_agents(&mut self, with_switch: bool) -> Result<()> {
        if self.ours.is_empty() || self.agents.is_some() {
            return Ok(());
        }
        self.plane.install_agents().await?;
        let mut keepers = JoinSet::new();
        for machine in Machine::ALL {
            prepare(&self.plane, machine).await?;
            keepers.spawn(async move {
                if let Err(error) = run_watchdog(machine).await {
                    crate::beside::print_line(&format!("the keeper of {} failed: {error:#}", machine.name()));
                }
            });
        }
        // From here on a repair ends them, even if a later step fails.
        self.agents = Some(Agents { outlived: Ledger::begin(self.plane.admin()), _keepers: keepers });
        for machine in Machine::ALL {
            machine.start(Service::Agent).await?;
        }
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
        self.apply(&objects::device_by_agents(kernel.trim())).await?;
        let devices: &[&str] = if with_switch { &["bmc", "agents"] } else { &["agents"] };
        self.apply(&objects::policy(&[], devices)).await?;
        self.until_agents_promise().await
    }

    /// Waits until the device reports for each node that its promise counts.
    async fn until_agents_promise(&self) -> Result<()> {
        let within = Duration::from_secs(60);
        Ok(eventually("all agents promise", within, async || {
            let device = self.plane.find("fencedevices", "pod-safety", "agents").await;
            let device = device.map_err(|error| error.to_string())?.ok_or("there is no device")?;
            let targets = device["status"]["targets"].as_array().cloned().unwrap_or_default();
            let count = targets.iter().filter(|target| target["power"] == "On" && target["message"].is_null()).count();
            check_that(count == Machine::ALL.len(), device["status"].to_string())
        })
        .await?)
    }

    /// Makes a pod's processes impossible to kill: on cgroups v1 a frozen process cannot be killed, and is in state D.
    pub(crate) async fn hang(&self, identity: &str) -> Result<()> {
        let pod = self.pod(identity).await?.with_context(|| format!("there is no pod {identity}"))?;
        let script = r#"for state in $(find /sys/fs/cgroup/freezer -path "*/pod$1/freezer.state"); do echo FROZEN >"$state"; done"#;
        run("sh", &["-c", script, "sh", &pod.metadata.uid.context("a pod without a UID")?]).await.map(drop)
    }

    /// A node is drained: its pod is deleted, and its kubelet receives that. Then its container runtime hangs, and the
    /// processes end.
    pub(crate) async fn end_unseen(&self, victim: Machine, identity: &str) -> Result<()> {
        let pod = self.pod(identity).await?.with_context(|| format!("there is no pod {identity}"))?;
        let uid = pod.metadata.uid.context("a pod without a UID")?;
        // Its Node stays Ready for minutes, and the successor must not come here.
        self.plane.kubectl(&["cordon", &victim.name()]).await?.text()?;
        // While stopped, the process survives SIGTERM until its kubelet has reported that it saw the deletion.
        signal_all_of(&uid, "STOP").await?;
        observe::delete_pod(&self.plane.admin(), NAMESPACE, identity, false).await?;
        let within = Duration::from_secs(20);
        eventually("its kubelet has seen the deletion", within, async || {
            let pod = self.pod(identity).await.map_err(|error| error.to_string())?.ok_or("it is gone")?;
            let observed = pod.status.and_then(|status| status.observed_generation);
            check_that(observed.is_some() && observed == pod.metadata.generation, format!("{observed:?}"))
        })
        .await?;
        victim.stop(Service::Containerd).await?;
        signal_all_of(&uid, "KILL").await
    }

    /// The agents revoke their promises and end.
    pub(crate) async fn stop_agents(&mut self) -> Result<()> {
        if self.agents.is_none() {
            return Ok(());
        }
        for machine in Machine::ALL {
            fs::remove_file(folder(machine).join("agent"))?;
            if machine.is_on().await? {
                let script = crate::machine::scripts().join("machine.sh");
                let number = machine.0.to_string();
                // Its kubelet keeps running, whatever its gate is set to.
                run(&script.to_string_lossy(), &["disarm", &number]).await?;
            }
        }
        self.agents = None;
        Ok(())
    }
}
