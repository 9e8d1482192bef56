//! The agent of a node, and the watchdog behind it.
//!
//! The shipped state machine ([`pod_safety_watchdog::agent`]) decides the next step, and its Lease has the shipped
//! form. The world carries the step out: it kills the kubelet, ends processes, and feeds the watchdog. The watchdog is
//! a circuit outside of the machine. When it is not fed in time it resets the machine, a frozen one too.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::{Either, select};
use pod_safety_agent::lease;
use pod_safety_shared::clock::Env;
use pod_safety_watchdog::agent::{Agent, Answer, Order, StartupState, Times};
use pod_safety_watchdog::record::{Boot, Class, Device, Epoch, PodReport, Record, State, Version, lease_name};
use serde_json::Value;

use super::fencing::NAMESPACE;
use super::host::{Host, TRUE_RATE};
use super::request::send_request;
use super::run::World;
use super::{boot_id, str_at};
use crate::campaign::Plant;
use crate::chance::Chance;
use crate::checker::Tone;

/// The defaults of the shipped agent.
const TIMES: Times =
    Times { interval: Duration::from_secs(2), soft: Duration::from_secs(6), settle: Duration::from_secs(10) };
/// How long it waits for an answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);
/// The time until everything that can be ended has ended, in milliseconds at the most.
const ENDS_WITHIN: u64 = 1_500;
/// The timeout of the watchdog.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How much later a watchdog fires because it counts in ticks, in milliseconds at the most.
const TICK: u64 = 1_000;
/// How much slower than true time its clock runs, in millionths at the most.
const DRIFT: u64 = 10_000;
/// How often it checks its pods.
const CHECK_INTERVAL: Duration = Duration::from_secs(15);
/// How often the world checks whether the watchdog fires.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// With a planted bug that stops a kubelet instead of ending it, another actor may continue the kubelet within this
/// time.
const CONTINUED_WITHIN: u64 = 90;

/// How the watchdogs of the world name themselves, and the kernel of its nodes.
pub(super) const IDENTITY: &str = "simulated";
pub(super) const KERNEL: &str = "6";

/// The agent of one boot of a machine, its record in `/run`, and the watchdog.
#[derive(Default)]
pub(super) struct Guard {
    host: Option<Arc<Host>>,
    /// When the watchdog was fed last; `None`: it was not started in this boot.
    petted: Option<Duration>,
    /// A promise may have been made in this boot.
    promised: bool,
    /// Its last check of the pods: the epoch, and when.
    checked: Option<(Epoch, Duration, PodReport)>,
    /// No kubelet may start.
    pub(super) closed: bool,
}

impl Guard {
    /// Its machine lost power.
    pub(super) fn power_lost(self) {
        self.host.iter().for_each(|host| host.crash());
    }
}

struct Process {
    world: Arc<World>,
    node: usize,
    name: String,
    server: usize,
    env: Env,
    chance: Chance,
}

impl World {
    pub(super) fn has_agents(&self) -> bool {
        self.with.fencing.is_some_and(|fencing| fencing.agents.is_some())
    }

    /// The kubelet starts the agent's pod, if none runs.
    pub(super) fn start_agent_of(self: &Arc<Self>, node: usize) {
        if !self.has_agents() {
            return;
        }
        let name = self.node(node);
        let (host, boot, starts) = {
            let mut machines = self.machines.lock();
            let Some(machine) = machines.get_mut(node).filter(|machine| machine.powered) else { return };
            if machine.guard.host.is_some() {
                return;
            }
            machine.agents += 1;
            let chance = self.chance.part(&name, machine.agents + 5_000);
            let rate = self.rate_of_node(&name);
            let host = Host::start_with_rate(&name, chance, &self.checker, rate);
            machine.guard.host = Some(Arc::clone(&host));
            (host, machine.boot, machine.agents)
        };
        let chance = self.chance.part(&name, starts + 6_000);
        let server = node + usize::try_from(starts).unwrap_or(0);
        let process = Process { world: Arc::clone(self), node, name, server, env: host.env(), chance };
        host.env().spawner.spawn("agent", Box::pin(process.run(boot)));
    }

    /// The process of an agent dies: the kernel closes its device, which feeds it. Its kubelet starts another.
    pub(super) async fn kill_agent(self: &Arc<Self>, node: usize, seconds: u64) {
        let now = self.checker.now();
        self.with_machine(node, |machine| {
            let Some(host) = machine.guard.host.take() else { return };
            host.crash();
            machine.guard.petted = machine.guard.petted.map(|_| now);
        });
        self.wait(seconds).await;
        // No pod starts while the kubelet is stopped: the agent's own container is started by its runtime.
        self.start_agent_of(node);
    }

    pub(super) fn agent_of(&self, node: usize) -> Option<Arc<Host>> {
        self.machines.lock().get(node).and_then(|machine| machine.guard.host.clone())
    }

    /// The watchdogs run, from the beginning.
    pub(super) fn start_watchdogs(self: &Arc<Self>, peers: &Arc<Host>) {
        let nodes = if self.has_agents() { self.machines.lock().len() } else { 0 };
        for node in 0..nodes {
            peers.env().spawner.spawn("watchdog", Box::pin(Arc::clone(self).watch(node)));
        }
    }

    /// Resets the machine of a node when the watchdog was fed once, and not again in time.
    async fn watch(self: Arc<Self>, node: usize) {
        let chance = self.chance.part("watchdog", u64::try_from(node).unwrap_or(0));
        let ppm = TRUE_RATE + chance.below(DRIFT + 1, "watchdog", "drift", 0);
        let tick = Duration::from_millis(chance.below(TICK + 1, "watchdog", "tick", 0));
        let fires = (TIMEOUT + tick).mul_f64(f64::from(u32::try_from(ppm).unwrap_or(0)) / 1e6);
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            let now = self.checker.now();
            let petted = self.machines.lock().get(node).and_then(|machine| machine.guard.petted);
            // With the planted bug, a feeder without any check feeds as long as its machine runs.
            if self.plant == Some(Plant::FeedsApart) && !self.is_frozen(&self.node(node)) {
                self.with_machine(node, |machine| {
                    machine.guard.petted = machine.guard.petted.map(|_| now);
                });
            } else if petted.is_some_and(|at| at + fires <= now) {
                self.checker.probe("a watchdog reset a machine");
                self.checker.announce(Tone::Fault, format!("the watchdog resets {}", self.node(node)));
                self.power_off(node);
                self.power_on(node).await;
            }
        }
    }
}

impl Process {
    async fn run(self, boot: u32) {
        let uid = loop {
            let node = self.world.etcd.object("Node", &self.name);
            if let Some(node) = node.filter(|node| str_at(node, "/status/nodeInfo/bootID") == boot_id(&self.name, boot))
            {
                break str_at(&node, "/metadata/uid").to_owned();
            }
            self.env.sleep(TIMES.interval).await;
        };
        let boot = Boot { node: uid.into(), id: boot_id(&self.name, boot).into() };
        let (predecessor, stopped) = self.guard(|guard| (guard.promised, guard.closed));
        let process = self.chance.below(u64::MAX, &self.name, "process", 0);
        let mut agent = Agent::new(boot, TIMES, process, StartupState { predecessor, stopped }, self.now());
        loop {
            let order = agent.next(self.now());
            let answer = self.carry_out(&order).await;
            agent.handle_answer(self.now(), &order, answer);
        }
    }

    fn now(&self) -> Duration {
        self.env.now().since_start()
    }

    fn guard<T: Default>(&self, change: impl FnOnce(&mut Guard) -> T) -> T {
        let mut result = T::default();
        self.world.with_machine(self.node, |machine| result = change(&mut machine.guard));
        result
    }

    async fn carry_out(&self, order: &Order) -> Answer {
        match order {
            Order::Read => match self.send("GET", &self.path(), None).await {
                Some((200, body)) => decode_lease(&body).map_or(Answer::Failed, |seen| Answer::Lease(Some(seen))),
                Some((404, _)) => Answer::Lease(None),
                _ => Answer::Failed,
            },
            Order::Write(record, over) => self.write(record, over.as_ref()).await,
            Order::Open => {
                self.pet();
                Answer::Opened(Arc::new(device()))
            }
            Order::Pet => {
                self.pet();
                Answer::Done
            }
            Order::Stop => {
                self.stop().await;
                Answer::Done
            }
            Order::Prove => Answer::Verified(self.has_ended()),
            Order::Release => {
                self.guard(|guard| guard.closed = false);
                let before = self.world.machine_host(self.node);
                before.iter().for_each(|host| host.crash());
                self.world.checker.probe("an agent let a kubelet start again");
                self.world.start_kubelet_of(self.node, before.as_ref());
                Answer::Done
            }
            Order::Wait(until) => {
                self.env.sleep(until.saturating_sub(self.now())).await;
                Answer::Done
            }
            // No agent of a world gets an order to leave.
            Order::Close | Order::Exit => std::future::pending().await,
        }
    }

    fn pet(&self) {
        let now = self.world.checker.now();
        self.guard(|guard| guard.petted = Some(now));
    }

    fn path(&self) -> String {
        format!("{}/{}", collection(), lease_name(&self.name))
    }

    /// Its answer, if it comes in time. A request on its way may arrive later.
    async fn send(&self, method: &'static str, path: &str, body: Option<Value>) -> Option<(u16, Value)> {
        let server = self.world.servers.get(self.server)?;
        let (caller, path) = (format!("{}.agent", self.name), path.to_owned());
        let (sender, answer) = oneshot::channel();
        let request = async move {
            let _gone = sender.send(send_request(&server, &caller, method, &path, body).await);
        };
        self.env.spawner.spawn("request", Box::pin(request));
        match select(answer, Box::pin(self.env.sleep(ANSWERS_WITHIN))).await {
            Either::Left((answer, _)) => answer.ok().flatten(),
            Either::Right(_) => None,
        }
    }

    async fn write(&self, record: &Record, over: Option<&Version>) -> Answer {
        if record.state == State::Armed {
            self.guard(|guard| guard.promised = true);
        }
        let body = lease::encode((NAMESPACE, &self.name), record, None, Some(&self.pods(record)), over);
        let body = serde_json::from_slice(&body).ok();
        let answer = match over {
            Some(_) => self.send("PUT", &self.path(), body).await,
            None => self.send("POST", &collection(), body).await,
        };
        match answer {
            Some((200 | 201, body)) => decode_lease(&body).map_or(Answer::Failed, |seen| Answer::Written(seen.version)),
            Some((404 | 409, _)) => Answer::Conflict,
            _ => Answer::Failed,
        }
    }

    /// The pods that have a cgroup and no process, found before this round is sent or one check before.
    fn pods(&self, record: &Record) -> PodReport {
        let (now, epoch) = (self.now(), record.epoch);
        let before = self.guard(|guard| guard.checked.clone());
        if let Some((_, _, pods)) = before.filter(|(of, at, _)| *of == epoch && now < *at + CHECK_INTERVAL) {
            return pods;
        }
        let running = self.world.checker.processes_on(&self.name);
        let runs = |uid: &String| running.iter().any(|(_, process)| process.uid == *uid);
        let mut ended = BTreeSet::new();
        self.world.with_machine(self.node, |machine| ended = machine.cgroups.clone());
        if self.world.plant != Some(Plant::ReportsAll) {
            ended.retain(|uid| !runs(uid));
        }
        let pods =
            PodReport { checked_round: record.round, terminated: ended.into_iter().collect(), leftover: Vec::new() };
        self.guard(|guard| guard.checked = Some((epoch, now, pods.clone())));
        pods
    }

    /// Kills the kubelet, and ends what can be ended.
    async fn stop(&self) {
        self.guard(|guard| guard.closed = true);
        if let Some(kubelet) = self.world.machine_host(self.node) {
            if self.world.plant == Some(Plant::StopsKubelets) {
                kubelet.pause();
                let (env, after) = (self.env.clone(), self.chance.below(CONTINUED_WITHIN, &self.name, "continued", 0));
                let continued = async move {
                    env.sleep(Duration::from_secs(after)).await;
                    kubelet.resume();
                };
                self.env.spawner.spawn("continued", Box::pin(continued));
            } else {
                kubelet.crash();
            }
        }
        let draw = self.chance.below(ENDS_WITHIN, &self.name, "ends", self.now().as_secs());
        self.env.sleep(Duration::from_millis(draw)).await;
        if self.world.lasts(&self.name, |machine| machine.stuck_until) {
            return self.world.checker.probe("an agent could not end a process");
        }
        for (number, _) in self.world.checker.processes_on(&self.name) {
            self.world.checker.probe("an agent ended a process");
            self.world.checker.process_ends(number, "its node's agent ended it");
        }
    }

    fn has_ended(&self) -> bool {
        let kubelet = self.world.machine_host(self.node);
        let stopped = kubelet.is_none_or(|host| host.is_dead() || host.is_paused());
        stopped && self.guard(|guard| guard.closed) && self.world.checker.processes_on(&self.name).is_empty()
    }
}

fn collection() -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases")
}

fn decode_lease(body: &Value) -> Option<pod_safety_watchdog::record::ObservedLease> {
    lease::parse(body.to_string().as_bytes()).ok()
}

fn device() -> Device {
    Device {
        class: Class::Hardware,
        identity: IDENTITY.into(),
        firmware: 0,
        kernel: KERNEL.into(),
        timeout: TIMEOUT,
        nowayout: true,
        pings_on_close: true,
    }
}
