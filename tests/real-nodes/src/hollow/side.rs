//! The steps of a script, applied to a real machine, and to one of the simulator.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::{Client, Config};
use pod_safety_simulator::campaign::{Extras, Fault, Keeper, Plan};
use pod_safety_simulator::serve::{Listener, gate};
use pod_safety_simulator::world::{Intervention as Act, LiveRun, Pace, Snapshot, Subject};

use super::{NAMESPACE, ScriptStep};
use crate::cluster::Cluster;
use crate::machine::{Machine, Service};
use crate::watch;

/// Simulated seconds in a real one: the simulator's kubelets renew every ten seconds, those of the real machines here
/// every two.
const SPEED: f64 = 8.0;
/// Longer than a script takes.
const NO_LIMIT: u64 = 100_000;
/// The time in which machines boot.
const FROM: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Where a script is applied.
pub(super) enum Side<'a> {
    Real(&'a Cluster),
    Hollow(Hollow),
}

/// A simulated cluster that real clients reach.
pub(super) struct Hollow {
    run: Arc<Mutex<LiveRun>>,
    picture: Arc<Mutex<Option<Snapshot>>>,
    client: Client,
    _listener: Listener,
    _drawing: tokio::task::JoinSet<()>,
}

pub(super) fn real(cluster: &Cluster) -> Side<'_> {
    Side::Real(cluster)
}

/// A simulated cluster of so many nodes, whose kubelets report their status, and without any process under test.
pub(super) async fn hollow(nodes: usize) -> Result<Side<'static>> {
    let plan = Plan {
        seed: 1,
        servers: 1,
        nodes,
        replicas: 0,
        pods: 1,
        lease_collected_after: 15,
        heal_at: NO_LIMIT,
        with: Extras { nodes: Keeper::Ours, ..Extras::default() },
        faults: Vec::new(),
    };
    let pace = Pace { each: Duration::from_millis(250), speed: Some(SPEED), from: FROM, ends: false };
    let nobody = Subject::Shipped(|_| Box::pin(async {}), None);
    let stage = LiveRun::open(&plan, nobody, pace)?;
    let (gate, visitors) = gate();
    let listener = Listener::start("127.0.0.1:0".parse()?, gate)?;
    stage.serve(visitors);
    let client = Client::try_from(Config::new(listener.url().parse()?))?;
    let (stage, picture) = (Arc::new(Mutex::new(stage)), Arc::new(Mutex::new(None)));
    let mut drawing = tokio::task::JoinSet::new();
    let (drawn, from) = (Arc::clone(&picture), Arc::clone(&stage));
    // The world waits for a viewer that does not read.
    drawing.spawn(async move {
        loop {
            let next = from.lock().unwrap_or_else(PoisonError::into_inner).next_snapshot(Duration::ZERO);
            match next {
                Some(next) => *drawn.lock().unwrap_or_else(PoisonError::into_inner) = Some(next),
                None => tokio::time::sleep(POLL_INTERVAL).await,
            }
        }
    });
    tokio::time::sleep(Duration::from_secs(3)).await;
    Ok(Side::Hollow(Hollow { run: stage, picture, client, _listener: listener, _drawing: drawing }))
}

impl Side<'_> {
    pub(super) fn client(&self) -> Client {
        match self {
            Self::Real(cluster) => cluster.plane.admin(),
            Self::Hollow(hollow) => hollow.client.clone(),
        }
    }

    pub(super) fn node(&self, at: usize) -> String {
        match self {
            Self::Real(_) => Machine::ALL[at].name(),
            Self::Hollow(_) => format!("node-{at}"),
        }
    }

    /// The time until no more changes are expected: grace, a Lease that is renewed, a boot; a client with a dead
    /// connection.
    pub(super) fn settle_time(&self, deed: ScriptStep) -> Duration {
        Duration::from_secs(match (self, deed) {
            (_, ScriptStep::PluggedIn | ScriptStep::Thawed | ScriptStep::Rebooted | ScriptStep::KubeletRestarted) => 15,
            (Self::Real(_), _) => 10,
            (Self::Hollow(_), _) => 8,
        })
    }

    /// Whether a process of this pod really runs.
    pub(super) fn runs(&self, pod: &str) -> String {
        let count = match self {
            Self::Real(_) => watch::copies().into_iter().filter(|(_, copy)| copy.identity == pod).count(),
            Self::Hollow(hollow) => {
                let (identity, picture) = (format!("{NAMESPACE}/{pod}"), hollow.picture.lock());
                let picture = picture.unwrap_or_else(PoisonError::into_inner);
                let all = picture.iter().flat_map(|picture| &picture.processes);
                all.filter(|process| process.identity == identity).count()
            }
        };
        if count > 0 { format!("{count} runs") } else { String::new() }
    }

    /// Applies a step that a client of the API cannot do.
    pub(super) async fn apply_step(&self, at: usize, deed: ScriptStep) -> Result<()> {
        match self {
            Self::Real(_) => on_machine(Machine::ALL[at], deed).await,
            Self::Hollow(hollow) => {
                let act = match deed {
                    ScriptStep::CutOff => Act::Fault(Fault::CutNode { node: at, seconds: NO_LIMIT }),
                    ScriptStep::PluggedIn => Act::Reconnect(at),
                    ScriptStep::KubeletRestarted => Act::Fault(Fault::KillKubelet { node: at, seconds: 1 }),
                    ScriptStep::Frozen => Act::Fault(Fault::Freeze { node: at, seconds: NO_LIMIT }),
                    ScriptStep::Thawed => Act::Thaw(at),
                    ScriptStep::Rebooted => Act::Fault(Fault::Reboot { node: at }),
                    other => anyhow::bail!("{other:?} is done by a client"),
                };
                hollow.run.lock().unwrap_or_else(PoisonError::into_inner).intervene(act);
                Ok(())
            }
        }
    }

    /// Whatever the script did: the node is connected, runs, and is registered.
    pub(super) async fn repair(&self, at: usize) -> Result<()> {
        self.apply_step(at, ScriptStep::Thawed).await?;
        self.apply_step(at, ScriptStep::PluggedIn).await
    }
}

async fn on_machine(machine: Machine, deed: ScriptStep) -> Result<()> {
    match deed {
        ScriptStep::CutOff => machine.cable(false).await,
        ScriptStep::PluggedIn => machine.cable(true).await,
        ScriptStep::KubeletRestarted => {
            machine.kill(Service::Kubelet).await?;
            machine.start(Service::Kubelet).await.context("starting the kubelet")
        }
        ScriptStep::Frozen => machine.freeze().await,
        ScriptStep::Thawed => machine.thaw().await,
        ScriptStep::Rebooted => {
            machine.off().await?;
            machine.on().await
        }
        other => anyhow::bail!("{other:?} is done by a client"),
    }
}
