//! What goes wrong, and what people and scripts then do; and how all of it is repaired.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use pod_safety_control_plane::{check_that, eventually, observe};

use crate::busy::WorkerBlock;
use crate::cluster::Cluster;
use crate::machine::{Machine, PacketDirection as Direction, Service};
use crate::objects::{self, NAMESPACE};
use crate::plane::ProcessFault;
use crate::pod_safety;

/// While it is there, scripts/switch.sh lies.
const LIES: &str = "/run/lies";

/// Pods are asked to end 8 s + 3 s after a node was last heard; a busy machine takes its time. Only who is never asked waits so long.
const TERMINATION_TIMEOUT: Duration = Duration::from_secs(120);

/// For how long a machine that is being switched off may still look as if it was on.
const GOES_OFF: Duration = Duration::from_secs(60);

/// One thing that happens. Where a machine is meant, it is the victim's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    CablePulled,
    CablePlugged,
    /// The cable of another machine.
    AnotherCablePulled,
    PowerLost,
    PowerBack,
    /// Off and on at once, as by a watchdog: another boot id.
    Rebooted,
    Frozen,
    Thawed,
    /// It has a hundredth of a processor.
    Starved,
    Fed,
    Killed(Service),
    Stopped(Service),
    GoesOn(Service),
    Started(Service),
    /// Packets from it to the control plane are lost.
    NotHeard,
    /// Packets of the control plane to it are lost.
    Deaf,
    /// So many of a hundred packets are lost, both ways.
    Lossy(u8),
    NothingLost,
    /// Each of its packets takes so many milliseconds, each way.
    Slow(u32),
    /// It and the other machines do not hear each other.
    PeersLost,
    /// Its connections are closed.
    Reset,
    /// All of them.
    ApiServerKilled,
    ApiServerStarted,
    /// All members.
    EtcdPaused,
    EtcdResumed,
    /// What it stores is kept,
    EtcdSaved,
    /// and put back, as from a backup.
    EtcdRestored,
    /// The API server of this number.
    Server(usize, ProcessFault),
    /// The member of etcd of this number, which only the API server of this number asks.
    Member(usize, ProcessFault),
    /// It and the other members do not hear each other.
    MemberCut(usize),
    /// Its kubelet speaks to this API server, whatever becomes of that.
    Pinned(usize),
    /// So does the replica of ours that leads.
    OursPinned(usize),
    KcmKilled,
    KcmStarted,
    /// The replica of ours that leads.
    OursKilled,
    OursStarted,
    OursPaused,
    OursResumed,
    /// Ours begin anew, and the clock of the one that leads shows this, in libfaketime's words.
    OursClock(&'static str),
    /// From now on it shows this.
    OursClockSet(&'static str),
    /// The file system of ours' logs has no room.
    OursLogFull,
    SwitchSilent,
    SwitchAnswers,
    /// It says that it has switched, and has not.
    SwitchLies,
    /// Our policy asks for a second fact: that nothing answers at the kubelet's port.
    SecondFact,
    /// Each machine has an agent. Our policy asks for their promises alone.
    Agents,
    /// It asks for the switch and for the promises.
    AgentsAndSwitch,
    /// Our device names the system of another machine.
    SwitchOfAnother,
    /// Our device speaks IPMI, by a fence agent.
    SwitchByIpmi,
    /// When the pod is asked to end and does not: `kubectl delete pod --force`.
    ForcedByScript,
    /// At that time: the taint out-of-service, though nobody looked whether it is off.
    TaintedByHand,
    /// At that time: `kubectl delete node`.
    NodeDeleted,
    /// `kubectl cordon` and `kubectl delete node`, of a machine that is well: its kubelet runs on.
    NodeCordonedAndDeleted,
    /// The processes of its pod cannot be killed, as those that wait for a disk that hangs. On cgroups of version 2 they can.
    PodHangs,
    /// `kubectl delete pod`, as a rollout does.
    PodDeleted,
    /// The same, of a node that is cordoned. Its kubelet sees that, its container runtime hangs from then on, and the processes end.
    PodEndsUnseen,
    /// Its pod is made anew on its machine, and is started for as long as nobody ends that: its container runs, and its kubelet's worker
    /// for the pod waits.
    WorkerBusy(WorkerBlock),
    /// `pod-safety confirm-down`, of somebody who looked.
    Confirmed,
    /// The machine was emptied and cut off, and somebody confirmed that it was down. Then it came back, without a boot, and
    /// has its pod again; from now on no switch answers.
    ConfirmedBefore,
}

impl Fault {
    /// Whether it only says how our nodes are fenced, or what becomes of that later.
    pub(crate) fn prepares(self) -> bool {
        matches!(
            self,
            Self::SecondFact
                | Self::Agents
                | Self::AgentsAndSwitch
                | Self::SwitchLies
                | Self::EtcdSaved
                | Self::WorkerBusy(_)
        )
    }
}

async fn lose_peers(victim: Machine) -> Result<()> {
    for other in Machine::ALL.into_iter().filter(|other| *other != victim) {
        victim.lose_peer(other).await?;
    }
    Ok(())
}

async fn lose_both_ways(victim: Machine, percent: u8) -> Result<()> {
    victim.lose(Direction::Out, percent).await?;
    victim.lose(Direction::In, percent).await
}

/// What keeps its processes from running, and its end.
async fn starve(fault: Fault, machine: Machine) -> Result<()> {
    match fault {
        Fault::Frozen => machine.freeze().await,
        Fault::Thawed => machine.thaw().await,
        Fault::Starved => machine.starve().await,
        _ => machine.feed().await,
    }
}

async fn switch_power(fault: Fault, machine: Machine) -> Result<()> {
    match fault {
        Fault::PowerLost => machine.off().await,
        Fault::PowerBack => machine.on().await,
        _ => reboot(machine).await,
    }
}

async fn reboot(machine: Machine) -> Result<()> {
    machine.off().await?;
    machine.on().await
}

impl Cluster {
    /// What our policy and our device say; nothing, where ours are not there.
    async fn configure(&mut self, fault: Fault, victim: Machine) -> Result<()> {
        match fault {
            _ if self.ours.is_empty() => Ok(()),
            Fault::SecondFact => self.apply(&objects::policy(&["KubeletPort"], &["bmc"])).await,
            Fault::Agents => self.start_agents(false).await,
            Fault::AgentsAndSwitch => self.start_agents(true).await,
            Fault::SwitchByIpmi => self.device_by_ipmi().await,
            _ => self.device(&another(victim)?.name()).await,
        }
    }

    /// Does it. What somebody was answered is worth a word.
    pub(crate) async fn strike(&mut self, fault: Fault, victim: Machine, identity: &str) -> Result<Option<String>> {
        match fault {
            Fault::CablePulled => victim.cable(false).await?,
            Fault::CablePlugged => victim.cable(true).await?,
            Fault::AnotherCablePulled => another(victim)?.cable(false).await?,
            Fault::PowerLost | Fault::PowerBack | Fault::Rebooted => switch_power(fault, victim).await?,
            Fault::Frozen | Fault::Thawed | Fault::Starved | Fault::Fed => starve(fault, victim).await?,
            Fault::Killed(service) | Fault::Stopped(service) | Fault::GoesOn(service) | Fault::Started(service) => {
                self.strike_service(fault, service, victim).await?
            }
            Fault::NotHeard => victim.lose(Direction::Out, 100).await?,
            Fault::Deaf => victim.lose(Direction::In, 100).await?,
            Fault::Lossy(percent) => lose_both_ways(victim, percent).await?,
            Fault::NothingLost => victim.lose_nothing().await?,
            Fault::Slow(milliseconds) => self.slow(victim, milliseconds).await?,
            Fault::PeersLost => lose_peers(victim).await?,
            Fault::Reset => victim.reset().await?,
            Fault::ApiServerKilled
            | Fault::ApiServerStarted
            | Fault::EtcdPaused
            | Fault::EtcdResumed
            | Fault::EtcdSaved
            | Fault::EtcdRestored
            | Fault::Server(..)
            | Fault::Member(..)
            | Fault::MemberCut(_)
            | Fault::Pinned(_)
            | Fault::KcmKilled
            | Fault::KcmStarted => self.strike_plane(fault, victim).await?,
            Fault::OursPinned(_)
            | Fault::OursKilled
            | Fault::OursStarted
            | Fault::OursPaused
            | Fault::OursResumed
            | Fault::OursClock(_)
            | Fault::OursClockSet(_)
            | Fault::OursLogFull => self.strike_ours(fault).await?,
            Fault::SwitchSilent => self.switches.pause()?,
            Fault::SwitchAnswers => self.switches.resume()?,
            Fault::SwitchLies => std::fs::create_dir_all(LIES)?,
            Fault::SecondFact
            | Fault::Agents
            | Fault::AgentsAndSwitch
            | Fault::SwitchOfAnother
            | Fault::SwitchByIpmi => self.configure(fault, victim).await?,
            Fault::PodDeleted => observe::delete_pod(&self.plane.admin(), NAMESPACE, identity, false).await?,
            Fault::WorkerBusy(waits) => self.busy_worker(victim, identity, waits).await?,
            Fault::PodHangs => self.hang(identity).await?,
            Fault::PodEndsUnseen => self.end_unseen(victim, identity).await?,
            Fault::ForcedByScript
            | Fault::TaintedByHand
            | Fault::NodeDeleted
            | Fault::NodeCordonedAndDeleted
            | Fault::ConfirmedBefore
            | Fault::Confirmed => return self.strike_object(fault, victim, identity).await,
        }
        Ok(None)
    }

    async fn strike_service(&self, fault: Fault, service: Service, victim: Machine) -> Result<()> {
        // Where there are no agents.
        if service == Service::Agent && self.agents.is_none() {
            return Ok(());
        }
        let struck = match fault {
            Fault::Killed(_) => victim.kill(service).await,
            Fault::Stopped(_) => victim.stop(service).await,
            Fault::GoesOn(_) => victim.go_on(service).await,
            _ => victim.start(service).await,
        };
        // A machine that its watchdog resets has no agent for a while, and gets one by itself.
        if service == Service::Agent { Ok(()) } else { struck }
    }

    async fn strike_plane(&mut self, fault: Fault, victim: Machine) -> Result<()> {
        match fault {
            Fault::ApiServerKilled => self.plane.stop_apiserver()?,
            Fault::ApiServerStarted => self.plane.start_apiserver().await?,
            Fault::EtcdPaused => self.pause_etcd()?,
            Fault::EtcdResumed => self.resume_etcd()?,
            Fault::EtcdSaved => self.plane.save_etcd().await?,
            Fault::EtcdRestored => self.plane.restore_etcd().await?,
            Fault::Server(at, what) => self.break_server(at, what)?,
            Fault::Member(at, what) => self.break_member(at, what)?,
            Fault::MemberCut(at) => self.cut_member(at).await?,
            Fault::Pinned(server) => self.pin(victim, server)?,
            Fault::KcmKilled => drop(self.kcm.take()),
            Fault::KcmStarted => self.start_kcm().await?,
            _ => bail!("{fault:?} is none of the control plane"),
        }
        Ok(())
    }

    async fn strike_ours(&mut self, fault: Fault) -> Result<()> {
        match fault {
            Fault::OursPinned(server) => {
                if let Some(at) = self.leader().await? {
                    self.ours[at].way.pin(server);
                }
            }
            Fault::OursKilled => drop(self.leader().await?.map(|at| self.ours.remove(at))),
            Fault::OursStarted => self.start_pod_safety().await?,
            Fault::OursPaused => {
                if let Some(at) = self.leader().await? {
                    self.ours[at].pause()?;
                }
            }
            Fault::OursResumed => self.ours.iter_mut().try_for_each(|ours| ours.resume())?,
            Fault::OursClock(shows) => self.pod_safety_by_clock(shows).await?,
            Fault::OursClockSet(shows) => pod_safety::set_clock(shows)?,
            Fault::OursLogFull => self.fill_log().await?,
            _ => bail!("{fault:?} is none of ours"),
        }
        Ok(())
    }

    async fn strike_object(&mut self, fault: Fault, victim: Machine, identity: &str) -> Result<Option<String>> {
        let node = victim.name();
        let taint = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute";
        let waits = matches!(fault, Fault::ForcedByScript | Fault::TaintedByHand | Fault::NodeDeleted);
        if waits && !self.is_deleted(identity).await {
            return Ok(Some(format!("nobody asked {identity} to end, so nothing was done by hand")));
        }
        let args: &[&str] = match fault {
            Fault::ConfirmedBefore => {
                self.confirmed_before(victim, identity).await?;
                return Ok(None);
            }
            Fault::ForcedByScript => &["delete", "pod", identity, "-n", NAMESPACE, "--force", "--wait=false"],
            Fault::TaintedByHand => &["taint", "node", &node, taint],
            Fault::NodeDeleted => &["delete", "node", &node, "--wait=false"],
            Fault::NodeCordonedAndDeleted => {
                self.plane.kubectl(&["cordon", &node]).await?;
                &["delete", "node", &node, "--wait=false"]
            }
            _ if self.ours.is_empty() => return Ok(None),
            _ => {
                if !self.is_deleted(identity).await {
                    return Ok(Some(format!("nobody asked {identity} to end, so nothing was confirmed")));
                }
                return self.confirm(&node, "I pulled its plug").await;
            }
        };
        let output = self.plane.kubectl(args).await?;
        let refused = !output.status.success();
        Ok(refused.then(|| format!("`kubectl {} {}` was refused", args[0], args[1])))
    }

    /// Waits for it; `false`: it was not so in time.
    async fn is_deleted(&self, identity: &str) -> bool {
        let what = format!("{identity} is asked to end");
        let asked = eventually(&what, TERMINATION_TIMEOUT, async || {
            let pod = self.pod(identity).await.map_err(|error| error.to_string())?;
            check_that(pod.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some()), "not yet".to_owned())
        });
        asked.await.is_ok()
    }

    /// What a person does in the end: everything runs, every cable is plugged in, every machine is on. Nothing of it tells
    /// anybody that a pod has ended.
    pub(crate) async fn repair(&mut self) -> Result<()> {
        self.repair_plane().await?;
        self.switches.resume()?;
        if std::fs::exists(LIES)? {
            std::fs::remove_dir_all(LIES)?;
        }
        self.registry = None;
        self.start_kcm().await?;
        self.repair_pod_safety().await?;
        self.repair_slow().await?;
        for machine in Machine::ALL {
            // Where there is no Node, there is nothing to do.
            self.plane.kubectl(&["uncordon", &machine.name()]).await?;
            if !machine.is_on().await? {
                machine.on().await?;
            } else if let Err(error) = self.repair_machine(machine).await {
                // A switch that answers again may be switching it off.
                if !powers_off(machine).await {
                    return Err(error);
                }
                machine.on().await?;
            }
        }
        Ok(())
    }

    /// One that is on.
    async fn repair_machine(&self, machine: Machine) -> Result<()> {
        machine.lose_nothing().await?;
        machine.feed().await?;
        machine.thaw().await?;
        machine.cable(true).await?;
        let agent = self.agents.as_ref().map(|_| Service::Agent);
        for service in [Service::Containerd, Service::Kubelet].into_iter().chain(agent) {
            machine.repair(service).await?;
        }
        self.register(machine).await
    }

    /// A kubelet whose Node was deleted registers again when it is restarted.
    async fn register(&self, machine: Machine) -> Result<()> {
        let node = self.plane.kubectl(&["get", "node", &machine.name(), "--ignore-not-found", "-o", "name"]).await?;
        if node.status.success() && node.stdout.trim().is_empty() {
            machine.kill(Service::Kubelet).await?;
            machine.start(Service::Kubelet).await?;
        }
        Ok(())
    }

    /// Takes away what people and switches left behind, so that the next scenario finds what the first one found.
    pub(crate) async fn clean_up(&mut self) -> Result<()> {
        for machine in Machine::ALL {
            let taint = "node.kubernetes.io/out-of-service-";
            // Most have none, and kubectl calls that a failure.
            self.plane.kubectl(&["taint", "node", &machine.name(), taint]).await?;
        }
        if !self.ours.is_empty() {
            self.stop_agents().await?;
            self.device("{{.Node.Name}}").await?;
            self.apply(&objects::policy(&[], &["bmc"])).await?;
        }
        Ok(())
    }

    /// From the beginning: every machine has booted, nothing is left of pods and incidents.
    pub(crate) async fn start_over(&mut self) -> Result<()> {
        for machine in Machine::ALL {
            reboot(machine).await?;
        }
        if !self.ours.is_empty() {
            for kind in ["nodefences", "fenceevidences"] {
                self.plane.kubectl(&["delete", kind, "--all"]).await?;
            }
        }
        let force = ["delete", "pods", "--all", "-n", NAMESPACE, "--force", "--wait=false"];
        let why = [
            "annotate",
            "pods",
            "--all",
            "-n",
            NAMESPACE,
            "--overwrite",
            "pod-safety.dev/break-glass=every machine was off",
        ];
        self.plane.kubectl(&why).await?;
        // A pod that was made in between has no reason yet and is refused; its machine was off, so it ends by itself.
        self.plane.kubectl(&force).await?;
        self.clean_up().await
    }
}

/// Whether a machine on which something failed is on its way off. On a busy machine that takes seconds.
async fn powers_off(machine: Machine) -> bool {
    let off = eventually("it is off", GOES_OFF, async || {
        let is_on = machine.is_on().await.map_err(|error| error.to_string())?;
        check_that(!is_on, "it is on".to_owned())
    });
    off.await.is_ok()
}

fn another(victim: Machine) -> Result<Machine> {
    Machine::ALL.into_iter().find(|one| *one != victim).context("there is one machine only")
}
