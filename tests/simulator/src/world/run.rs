//! One run of one plan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::attach::AttachDetach;
use super::baseline::Baseline;
use super::devices::Device;
use super::host::{EPOCH, Host};
use super::kcm_nodes::Nodes;
use super::links::Links;
use super::live_run::Audience;
use super::machines::Machine;
use super::replica::{Launch, Replica};
use super::request::Servers;
use super::snapshot::Stuck;
use super::strike::{Moment, Strike, Tape};
use super::workloads::Workloads;
use crate::api::{Disturbance, Etcd, Following, Reach};
use crate::campaign::{Extras, Fault, Keeper, Plan, Plant, Restart};
use crate::chance::Chance;
use crate::checker::{Checker, Findings, Invariant, News, Presence, Tone, Violation};

/// What is under test.
#[derive(Clone, Copy, Debug)]
pub enum Subject {
    /// The shipped process, with a bug perhaps.
    Shipped(Launch, Option<Plant>),
    /// What people use today.
    Baseline(Baseline),
}

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The rules that were broken.
    pub violations: Vec<Violation>,
    /// What happened, for whoever works on the simulator.
    pub timeline: Vec<(Duration, String)>,
    /// What happened, for people who watch.
    pub news: Vec<News>,
    /// How often each thing happened that should happen sometimes.
    pub probes: BTreeMap<String, u64>,
    /// What could be seen, and what the processes under test did, until the healing; of [`recorded`] runs only.
    pub tape: Vec<crate::checker::Moment>,
    /// All requests and events as one number.
    pub hash: u64,
    /// How much time passed in the world.
    pub simulated: Duration,
    /// How often each rule was broken; `violations` keeps the first few of each.
    pub broken: BTreeMap<Invariant, u64>,
    /// How long identities could not be reached, and how long two copies wrote.
    pub presence: Presence,
    /// What is stuck at the end, and why.
    pub stuck: Vec<Stuck>,
}

/// All that there is in one run: opaque to visitors, who ask it by its methods.
pub struct World {
    pub(crate) chance: Chance,
    pub(crate) checker: Arc<Checker>,
    pub(crate) etcd: Arc<Etcd>,
    pub(crate) links: Arc<Links>,
    pub(crate) servers: Servers,
    pub(crate) server_hosts: Mutex<Vec<Arc<Host>>>,
    pub(crate) machines: Mutex<Vec<Machine>>,
    pub(crate) replicas: Vec<Replica>,
    /// What switches machines, where nodes are fenced.
    pub(crate) devices: Mutex<Vec<Arc<Device>>>,
    /// Pods of the StatefulSet.
    pub(crate) members: usize,
    /// UIDs of pods that their kubelets are to evict.
    pub(crate) evicted: Mutex<BTreeSet<String>>,
    /// Pods by UID of which a container is to be started again: why, and for how many seconds.
    pub(crate) restarts: Mutex<BTreeMap<String, (Restart, u64)>>,
    /// Pods whose containers ended for good, and how: on the disks of their machines.
    pub(crate) ended: Mutex<BTreeMap<String, &'static str>>,
    /// How often kube-controller-manager's attach/detach controller was told to start anew.
    pub(crate) attacher_starts: AtomicU64,
    /// What the plan has that not every plan has.
    pub(crate) with: Extras,
    /// Whether somebody makes workloads with a budget.
    pub(crate) has_budgets: bool,
    /// Until when the controllers of workloads with a budget do nothing.
    pub(crate) stalled_until: Mutex<Duration>,
    /// The latest request of each client that requests evictions.
    pub(crate) requested: Mutex<BTreeMap<usize, String>>,
    pub(crate) launch: Option<Launch>,
    pub(crate) plant: Option<Plant>,
    pub(crate) tape: Tape,
    /// The plan has come to its end, and was judged.
    pub(crate) over: AtomicBool,
}

impl Outcome {
    /// Whether it broke this rule.
    #[must_use]
    pub fn broke(&self, invariant: Invariant) -> bool {
        self.violations.iter().any(|violation| violation.invariant == invariant)
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("now", &self.checker.now()).finish_non_exhaustive()
    }
}

/// Runs a plan from its beginning to its end, in simulated time.
#[must_use]
pub fn run(plan: &Plan, subject: Subject) -> Outcome {
    start(plan, subject, Tape::default(), None).0
}

/// Runs a plan and records the moments at which something could have struck.
#[must_use]
pub fn recorded(plan: &Plan, subject: Subject) -> (Outcome, Vec<Moment>) {
    let (outcome, (moments, _)) = start(plan, subject, Tape::new(None), None);
    (outcome, moments)
}

/// Runs a plan with a strike; gives back the hash of all that was before it, if
/// it came.
#[must_use]
pub fn run_with_strike(plan: &Plan, subject: Subject, strike: &Strike) -> (Outcome, Option<u64>) {
    let (outcome, (_, before)) = start(plan, subject, Tape::new(Some(strike.clone())), None);
    (outcome, before)
}

/// Runs a plan before an audience.
pub(super) fn run_before(plan: &Plan, subject: Subject, audience: Audience) -> Outcome {
    start(plan, subject, Tape::default(), Some(audience)).0
}

/// What a tape holds at the end.
type TapeRecord = (Vec<Moment>, Option<u64>);

fn start(plan: &Plan, subject: Subject, tape: Tape, audience: Option<Audience>) -> (Outcome, TapeRecord) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    match runtime {
        Ok(runtime) => runtime.block_on(simulate(plan, subject, tape, audience)),
        Err(error) => {
            let (at, invariant, what) = (Duration::ZERO, Invariant::Simulator, error.to_string());
            let outcome = Outcome {
                violations: vec![Violation { at, invariant, plain: what.clone(), what }],
                broken: BTreeMap::from([(Invariant::Simulator, 1)]),
                ..Outcome::default()
            };
            (outcome, (Vec::new(), None))
        }
    }
}

async fn simulate(plan: &Plan, subject: Subject, tape: Tape, audience: Option<Audience>) -> (Outcome, TapeRecord) {
    let peers;
    let world = {
        let checker = Checker::new(super::drift::promised_times(plan.with));
        if tape.runs() {
            checker.keeps_tape();
        }
        let world = Arc::new(World::new(plan, subject, checker, tape));
        world.links.watch(&world.etcd);
        peers = Host::start("peers", world.chance.part("peers", 0), &world.checker);
        world.tape.start(peers.env());
        world.begin(plan, subject, &peers).await;
        world
    };
    match audience {
        None => world.run_plan(plan, subject, &peers).await,
        Some(audience) => {
            let leaves = audience.leaves();
            let shown = audience.watch(Arc::clone(&world), Arc::clone(&peers));
            peers.env().spawner.spawn("audience", shown);
            let play = async {
                world.run_plan(plan, subject, &peers).await;
                world.over.store(true, Ordering::Relaxed);
                futures::future::pending::<()>().await;
            };
            tokio::select! {
                biased;
                () = leaves.notified() => {}
                () = play => {}
            }
        }
    }
    let outcome = world.outcome();
    // Whatever runs holds the world: the circle ends here.
    peers.crash();
    world.end();
    (outcome, world.tape.finish())
}

impl World {
    fn new(plan: &Plan, subject: Subject, checker: Arc<Checker>, tape: Tape) -> Self {
        let chance = Chance::new(plan.seed);
        let (launch, plant) = match subject {
            Subject::Shipped(launch, plant) => (Some(launch), plant),
            Subject::Baseline(_) => (None, None),
        };
        let epoch = jiff::Timestamp::from_second(EPOCH).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        let replicas = if launch.is_some() { plan.replicas } else { 0 };
        Self {
            chance,
            etcd: Etcd::new(chance.part("etcd", 0), &super::fencing::kinds(plan), epoch),
            links: Links::new(chance.part("links", 0), &checker),
            servers: Servers::default(),
            server_hosts: Mutex::default(),
            machines: Mutex::new((0..plan.nodes).map(|_| Machine::default()).collect()),
            replicas: (0..replicas).map(Replica::new).collect(),
            devices: Mutex::default(),
            members: plan.pods,
            evicted: Mutex::default(),
            restarts: Mutex::default(),
            ended: Mutex::default(),
            attacher_starts: AtomicU64::default(),
            with: plan.with,
            has_budgets: plan.faults.iter().any(|(_, fault)| matches!(fault, Fault::Deploy { .. })),
            stalled_until: Mutex::default(),
            requested: Mutex::default(),
            launch,
            plant,
            tape,
            over: AtomicBool::new(false),
            checker,
        }
    }

    /// A world in which nothing has begun.
    #[cfg(test)]
    pub(crate) fn for_tests(plan: &Plan, subject: Subject) -> Arc<Self> {
        let checker = Checker::new(super::drift::promised_times(plan.with));
        Arc::new(Self::new(plan, subject, checker, Tape::default()))
    }

    /// Does what the plan says, heals, waits, and judges the end.
    async fn run_plan(self: &Arc<Self>, plan: &Plan, subject: Subject, peers: &Arc<Host>) {
        // People go on when all is well; whatever else happens does so before.
        let goes_on = |(at, fault): &(u64, Fault)| *at >= plan.heal_at && fault.is_of_budgets();
        let (after, before): (Vec<_>, Vec<_>) = plan.faults.iter().cloned().partition(goes_on);
        self.strike_all(before, peers).await;
        tokio::time::sleep(Duration::from_secs(plan.heal_at).saturating_sub(self.checker.now())).await;
        self.heal();
        let healed = self.checker.now();
        let ends = after.iter().map(|(at, fault)| Duration::from_secs(at + fault.lasts())).max();
        self.strike_all(after, peers).await;
        self.wait_settled(healed, ends, subject).await;
    }

    async fn strike_all(self: &Arc<Self>, faults: Vec<(u64, Fault)>, peers: &Arc<Host>) {
        for (at, fault) in faults {
            tokio::time::sleep(Duration::from_secs(at).saturating_sub(self.checker.now())).await;
            self.strike(fault, peers);
        }
    }

    /// A fault happens; it may take its time.
    pub(crate) fn strike(self: &Arc<Self>, fault: Fault, peers: &Arc<Host>) {
        self.checker.announce_with_detail(Tone::Fault, format!("fault: {fault}"), fault.to_string());
        self.checker.probe(&format!("fault {}", fault.kind()));
        let struck = Arc::clone(self);
        peers.env().spawner.spawn("fault", Box::pin(async move { struck.inject(&fault).await }));
    }

    fn outcome(&self) -> Outcome {
        let Findings { violations, timeline, news, probes, tape, broken } = self.checker.findings();
        Outcome {
            violations,
            timeline,
            news,
            probes,
            tape,
            hash: self.checker.hash(),
            simulated: self.checker.now(),
            broken,
            presence: self.checker.presence(),
            stuck: self.stuck(),
        }
    }

    pub(crate) fn node(&self, index: usize) -> String {
        format!("node-{index}")
    }

    async fn begin(self: &Arc<Self>, plan: &Plan, subject: Subject, peers: &Arc<Host>) {
        for server in 0..plan.servers {
            self.restart_server(server);
        }
        for node in 0..plan.nodes {
            let world = Arc::clone(self);
            peers.env().spawner.spawn("power", Box::pin(async move { world.power_on(node).await }));
        }
        self.start_watchdogs(peers);
        self.etcd.enforce(self.policies());
        self.install_devices(plan).await;
        self.install_volumes().await;
        self.create_objects().await;
        super::projects::start(self, peers);
        Workloads::start(self, peers, plan.pods, Duration::from_secs(plan.lease_collected_after));
        super::volumes::start(self, peers);
        if plan.with.attached_volumes {
            AttachDetach::start(self, peers);
        }
        if plan.with.guarded_volumes.is_some() {
            super::kcm_volumes::start(self, peers);
        }
        super::shops::Shops::start(self, peers);
        if plan.with.evictions.is_some() {
            self.checker.gate_switched(true);
        }
        super::evictions::Responders::start(self, peers);
        match subject {
            Subject::Shipped(launch, plant) => {
                self.checker.nodes_are_kept_by(plan.with.nodes);
                self.replicas.iter().for_each(|place| place.start(self, launch, plant));
                let Extras { taints, nodes, .. } = plan.with;
                if nodes == Keeper::Guarded || (nodes == Keeper::Theirs && taints) {
                    Nodes::start_alone(self, peers);
                }
                if taints || nodes != Keeper::Theirs {
                    super::taints::watch(self, peers);
                }
            }
            Subject::Baseline(baseline) => baseline.start(self, peers),
        }
        tokio::task::yield_now().await;
    }

    /// All is well from now on, but for what has no power.
    fn heal(self: &Arc<Self>) {
        self.checker.announce(Tone::Other, "all faults are healed");
        self.checker.healed();
        self.links.heal();
        self.heal_devices();
        self.heal_machines();
        self.switch_gate(true);
        for server in self.servers.all() {
            server.reach(Reach::Whole);
            server.follow(Following::AtOnce);
        }
        self.servers_changed();
        for place in &self.replicas {
            if let Some(host) = place.host() {
                host.resume();
            }
            if let Some(caller) = place.caller() {
                self.servers.all().iter().for_each(|server| server.disturb(&caller, Disturbance::Reset));
            }
            if let Some(launch) = self.launch {
                place.start(self, launch, self.plant);
            }
        }
    }

    /// Ends every host, so that nothing keeps anything alive.
    fn end(&self) {
        self.replicas.iter().for_each(Replica::crash);
        self.server_hosts.lock().iter().for_each(|host| host.crash());
        let nodes = self.machines.lock().len();
        for node in 0..nodes {
            self.halt(node);
        }
    }
}
