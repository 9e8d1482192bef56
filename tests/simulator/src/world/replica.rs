//! One process of what is under test, and the place in which it runs.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use pod_safety_shared::client::{Connection, NoAudit};
use pod_safety_shared::clock::{Env, Task};
use pod_safety_shared::controller_loop::{CurrentHold, Holds, Mode};
use pod_safety_shared::metrics::Metrics;
use pod_safety_shared::transport::FenceTransport;
use tokio::sync::watch;

use super::host::{Host, TRUE_RATE};
use super::run::World;
use super::seam::Seam;
use crate::campaign::{Keeper, Plant};
use crate::checker::{Invariant, Tone};

/// How a process under test is set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Between the two reads of a missing node.
    pub quarantine: Duration,
    /// For how long others wait after a leader's last renewal; `None`: no election.
    pub lease_duration: Option<Duration>,
    /// For how long a leader writes after its last renewal.
    pub renew_deadline: Duration,
    /// How often it renews.
    pub retry_period: Duration,
    /// Terminated pods that are left alone.
    pub terminated_threshold: usize,
    /// Whether it keeps the numbers of disruption budgets.
    pub budgets: bool,
    /// Whether it ends pods for taints.
    pub taints: bool,
    /// Whether it looks after nodes, and how far.
    pub nodes: Keeper,
    /// Whether it fences nodes.
    pub fencing: bool,
    /// So far the copies of a provider may be behind.
    pub provider_behind: Duration,
    /// Whether it guards exclusive volumes.
    pub volumes: bool,
    /// Whether it serves requests to evict pods.
    pub evictions: bool,
    /// The namespace of the Leases of agents, if it accepts what they report of pods.
    pub agent_reports: Option<&'static str>,
}

impl Settings {
    /// The settings of a release, but for the threshold: there are few pods here.
    pub(crate) const SHIPPED: Self = Self {
        quarantine: Duration::from_secs(40),
        lease_duration: Some(Duration::from_secs(12)),
        renew_deadline: Duration::from_secs(8),
        retry_period: Duration::from_secs(2),
        terminated_threshold: 1,
        budgets: false,
        taints: false,
        nodes: Keeper::Theirs,
        fencing: false,
        provider_behind: Duration::from_secs(300),
        volumes: false,
        evictions: false,
        agent_reports: None,
    };

    /// Those of an older release, as far as a newer one beside it can see: for how long it asks others to wait, how often
    /// it renews, and its quarantine. Its code is today's: there is no other here. Its term is today's, too, by which the
    /// referee judges all.
    pub(crate) const OLDER: Self = Self {
        quarantine: Duration::from_secs(55),
        lease_duration: Some(Duration::from_secs(30)),
        retry_period: Duration::from_secs(3),
        ..Self::SHIPPED
    };

    /// `life`: which process of its place it is, from one.
    pub(super) fn for_process(plant: Option<Plant>, world: &World, life: u32) -> Self {
        let older = world.with.upgrade && life == 1;
        let mut settings = Self {
            budgets: world.has_budgets,
            taints: world.with.taints,
            nodes: world.with.nodes,
            fencing: world.with.fencing.is_some(),
            volumes: world.with.guarded_volumes.is_some(),
            evictions: world.with.evictions.is_some(),
            agent_reports: world.has_agents().then_some(super::fencing::NAMESPACE),
            ..if older { Self::OLDER } else { Self::SHIPPED }
        };
        match plant {
            Some(Plant::NoQuarantine) => settings.quarantine = Duration::from_secs(1),
            Some(Plant::NoElection) => settings.lease_duration = None,
            Some(Plant::LongTerm) => settings.renew_deadline = Duration::from_secs(60),
            Some(Plant::ShortLease) => settings.lease_duration = Some(Duration::from_secs(3)),
            Some(Plant::BelievesCopies) => settings.provider_behind = Duration::ZERO,
            Some(Plant::EndlessQuarantine) => settings.quarantine = Duration::from_secs(3600),
            _ => {}
        }
        settings
    }
}

impl Settings {
    /// As what it runs. A world without anybody else has it do the work of kube-controller-manager.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        match self.nodes {
            Keeper::Ours => Mode::Replace,
            Keeper::Guarded => Mode::Guard,
            // Nobody else keeps the budgets of the world, or ends pods for taints.
            Keeper::Theirs if self.budgets || self.taints => Mode::Replace,
            Keeper::Theirs => Mode::Guard,
        }
    }

    /// The controllers that run. A world without budgets is spared the watches for them, and one without taints those for
    /// nodes that bear some. Who taints nodes is the world's own hand, as kube-controller-manager does it, unless the world has
    /// us do that. Only some worlds have our own kinds.
    pub fn controllers(&self) -> impl Iterator<Item = &'static str> + use<> {
        let all = [
            ("pod-gc", true),
            ("disruption", self.budgets),
            ("node-lifecycle", self.nodes != Keeper::Theirs),
            ("taint-eviction", self.taints),
            ("fencing", self.fencing),
            ("volume-guard", self.volumes),
            ("eviction", self.evictions),
        ];
        all.into_iter().filter(|(_, runs)| *runs).map(|(name, _)| name)
    }

    /// The arguments of `pod-safety run` by which it would be set up so.
    pub(super) fn arguments(&self) -> Vec<String> {
        vec![
            "run".to_owned(),
            format!("--mode={}", self.mode().name()),
            format!("--controllers={}", self.controllers().collect::<Vec<_>>().join(",")),
            format!("--pod-gc-quarantine={}s", self.quarantine.as_secs()),
            format!("--fencing-namespaces={}", super::fencing::NAMESPACE),
        ]
    }
}

/// What a process is started with.
#[expect(missing_debug_implementations, reason = "a bundle of handles, taken apart at once")]
pub struct Launched {
    /// Its way to the API servers.
    pub connection: Connection,
    /// Its world.
    pub env: Env,
    /// Its way to fence devices.
    pub transport: Arc<dyn FenceTransport>,
    /// Its metrics, which the world reads at the end.
    pub metrics: Metrics,
    /// Set when it is told to stop.
    pub stop: watch::Receiver<bool>,
    /// Unique to it.
    pub identity: String,
    /// How it is set up.
    pub settings: Settings,
    /// Where it shows its holds, to whoever watches and to the referee.
    pub shown: Shown,
}

/// The holds of a process, once it has some.
pub type Shown = Arc<OnceLock<Arc<Holds>>>;

/// Starts the shipped process. A function, so that this crate does not depend on
/// the binary, which is to carry this crate's demonstration.
pub type Launch = fn(Launched) -> Task;

struct Running {
    host: Arc<Host>,
    stop: watch::Sender<bool>,
    metrics: Metrics,
    shown: Shown,
    caller: String,
}

/// A place in which processes run one after another, as in a Deployment.
pub(crate) struct Replica {
    index: usize,
    server: Mutex<usize>,
    started: Mutex<u32>,
    running: Mutex<Option<Running>>,
}

impl Replica {
    pub(crate) fn new(index: usize) -> Self {
        Self { index, server: Mutex::new(index), started: Mutex::default(), running: Mutex::default() }
    }

    /// The name of its link.
    pub(crate) fn name(&self) -> String {
        format!("{}{}", super::REPLICA, self.index)
    }

    /// The name under which its present process calls.
    pub(crate) fn caller(&self) -> Option<String> {
        self.running.lock().as_ref().map(|running| running.caller.clone())
    }

    pub(crate) fn host(&self) -> Option<Arc<Host>> {
        self.running.lock().as_ref().map(|running| Arc::clone(&running.host))
    }

    /// Starts a process, unless one runs.
    pub(crate) fn start(&self, world: &Arc<World>, launch: Launch, plant: Option<Plant>) {
        let mut running = self.running.lock();
        if running.is_some() {
            return;
        }
        let number = {
            let mut started = self.started.lock();
            *started += 1;
            *started
        };
        let caller = format!("{}.{number}", self.name());
        let rate = if plant == Some(Plant::FastClock) { 8 * TRUE_RATE } else { world.rate_of_replica(&self.name()) };
        let host = Host::start_with_rate(&caller, world.chance.part(&caller, 0), &world.checker, rate);
        let Ok(metrics) = Metrics::new() else {
            return world.checker.violated(Invariant::Simulator, "metrics cannot be registered");
        };
        let seam = Seam::new(world, self.index, &caller, plant);
        let connection = Connection::from_service(seam, host.env(), metrics.client.clone(), Arc::new(NoAudit));
        let (stop, stopped) = watch::channel(false);
        let shown = Shown::default();
        let task = launch(Launched {
            connection,
            env: host.env(),
            transport: world.wire(&caller, plant),
            metrics: metrics.clone(),
            stop: stopped,
            identity: if plant == Some(Plant::SharedIdentity) { "replica".to_owned() } else { caller.clone() },
            settings: Settings::for_process(plant, world, number),
            shown: Arc::clone(&shown),
        });
        let place = self.name();
        world.checker.announce_with_detail(
            Tone::Other,
            format!("{caller} starts"),
            format!("pod-safety starts: {place}"),
        );
        if world.with.upgrade && number == 2 {
            world.checker.probe("a newer process took the place of an older one");
        }
        world.checker.process_begins(&caller);
        host.env().spawner.spawn("process", task);
        *running = Some(Running { host, stop, metrics, shown, caller });
    }

    /// It dies.
    pub(crate) fn crash(&self) {
        if let Some(running) = self.running.lock().take() {
            running.host.crash();
        }
    }

    /// It is told to stop.
    pub(crate) fn stop(&self) {
        if let Some(running) = self.running.lock().as_ref() {
            running.stop.send_replace(true);
        }
    }

    pub(crate) fn server(&self) -> usize {
        *self.server.lock()
    }

    pub(crate) fn switch(&self) {
        *self.server.lock() += 1;
    }

    fn page(&self) -> String {
        let page = self.running.lock().as_ref().and_then(|running| running.metrics.encode().ok());
        String::from_utf8(page.unwrap_or_default()).unwrap_or_default()
    }

    /// Whether its process believes that it leads.
    pub(crate) fn leads(&self) -> bool {
        let page = self.page();
        let mut lines = page.lines().filter(|line| line.starts_with("leader_election_master_status"));
        lines.any(|line| line.ends_with(" 1"))
    }

    /// What its process holds, with the reasons in words.
    pub(crate) fn held(&self) -> Vec<CurrentHold> {
        let shown = self.running.lock().as_ref().map(|running| Arc::clone(&running.shown));
        shown.and_then(|shown| shown.get().map(|holds| holds.current())).unwrap_or_default()
    }
}
