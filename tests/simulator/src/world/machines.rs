//! Machines: power, boots, ailments, and the kubelet of each.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::agent::Guard;
use super::host::Host;
use super::kubelet::Kubelet;
use super::run::World;
use crate::campaign::Ailment;
use crate::checker::Tone;

/// How long a machine takes from power to kubelet.
const BOOT: Duration = Duration::from_secs(15);

/// The state of a machine.
#[derive(Default)]
pub(crate) struct Machine {
    pub(crate) boot: u32,
    pub(crate) powered: bool,
    /// It has power: it runs, or boots.
    lit: bool,
    /// How often it lost power: a boot that began before the last loss does not complete.
    losses: u32,
    /// Until when its kubelet receives no changes of its pods.
    pub(crate) deaf_until: Duration,
    /// Until when its processes survive being killed.
    pub(crate) stuck_until: Duration,
    /// Which of its two outlets were switched off.
    dark: [bool; 2],
    /// Its ailment, and until when.
    pub(super) sick: Option<(Ailment, Duration)>,
    /// When it got power, and when it lost power.
    changes: Vec<(Duration, bool)>,
    /// When its provider terminated it: it never has power again.
    pub(super) terminated: Option<Duration>,
    /// How often its kubelet was started: each start uses the next API server.
    starts: usize,
    pub(crate) host: Option<Arc<Host>>,
    /// The pods that have a cgroup: from the start by their kubelet until it has ended them, or the machine boots.
    pub(super) cgroups: BTreeSet<String>,
    /// Its agent and its watchdog.
    pub(super) guard: Guard,
    /// How often its agent was started.
    pub(super) agents: u64,
}

/// The number of the machine of this name. Called every second, so it creates no name.
pub(super) fn number_of(name: &str) -> Option<usize> {
    name.strip_prefix("node-")?.parse().ok()
}

impl World {
    pub(crate) fn machine_host(&self, node: usize) -> Option<Arc<Host>> {
        self.machines.lock().get(node).and_then(|machine| machine.host.clone())
    }

    pub(super) fn with_machine(&self, node: usize, change: impl FnOnce(&mut Machine)) {
        if let Some(machine) = self.machines.lock().get_mut(node) {
            change(machine);
        }
    }

    /// Whether a time in the state of this machine has not passed yet.
    pub(crate) fn lasts(&self, name: &str, until: impl Fn(&Machine) -> Duration) -> bool {
        let (now, machines) = (self.checker.now(), self.machines.lock());
        number_of(name).and_then(|node| machines.get(node)).is_some_and(|machine| now < until(machine))
    }

    /// The present ailment of the machine of this name.
    pub(crate) fn ailment_of(&self, name: &str) -> Option<Ailment> {
        let now = self.checker.now();
        let machines = self.machines.lock();
        machines.get(number_of(name)?)?.sick.filter(|(_, until)| now < *until).map(|(ailment, _)| ailment)
    }

    /// Ends the ailments of all machines that have power.
    pub(crate) fn heal_machines(&self) {
        self.machines.lock().iter_mut().for_each(|machine| machine.sick = None);
    }

    /// Whether a machine is frozen, with its processes.
    pub(crate) fn is_frozen(&self, name: &str) -> bool {
        let host = number_of(name).and_then(|node| self.machine_host(node));
        host.is_some_and(|host| host.is_paused())
    }

    /// Whether a machine reaches no API server.
    pub(crate) fn is_cut(&self, name: &str) -> bool {
        self.servers.all().iter().all(|server| self.links.is_cut(name, server.name()))
    }

    /// A machine halts.
    pub(crate) fn halt(&self, node: usize) {
        if let Some(machine) = self.machines.lock().get_mut(node) {
            if machine.lit {
                machine.changes.push((self.checker.now(), false));
            }
            (machine.powered, machine.lit) = (false, false);
            machine.losses += 1;
            if let Some(host) = machine.host.take() {
                host.crash();
            }
            std::mem::take(&mut machine.guard).power_lost();
        }
    }

    pub(crate) fn power_off(&self, node: usize) {
        self.halt(node);
        let name = self.node(node);
        for (number, _) in self.checker.processes_on(&name) {
            self.checker.process_ends(number, "its machine lost power");
        }
    }

    pub(crate) fn outlet_is_on(&self, node: usize, outlet: usize) -> bool {
        let machines = self.machines.lock();
        machines.get(node).and_then(|machine| machine.dark.get(outlet)).is_some_and(|dark| !dark)
    }

    pub(crate) fn set_outlet(&self, node: usize, outlet: usize, on: bool) {
        self.with_machine(node, |machine| {
            if let Some(dark) = machine.dark.get_mut(outlet) {
                *dark = !on;
            }
        });
    }

    /// Whether a machine has power, though it may not have booted yet.
    pub(crate) fn has_power(&self, node: usize) -> bool {
        self.machines.lock().get(node).is_some_and(|machine| machine.lit)
    }

    /// Whether it had power at that moment; `None`: it did not exist yet.
    pub(super) fn had_power(&self, node: usize, then: Duration) -> Option<bool> {
        let machines = self.machines.lock();
        let changes = &machines.get(node)?.changes;
        changes.iter().rev().find(|(at, _)| *at <= then).map(|(_, lit)| *lit)
    }

    pub(super) fn was_terminated(&self, node: usize, then: Duration) -> bool {
        let machines = self.machines.lock();
        machines.get(node).and_then(|machine| machine.terminated).is_some_and(|at| at <= then)
    }

    pub(crate) async fn power_on(self: &Arc<Self>, node: usize) {
        let mut losses = 0;
        if !(0..2).any(|outlet| self.outlet_is_on(node, outlet)) {
            return self.checker.probe("a machine without supply did not start");
        }
        let now = self.checker.now();
        if self.was_terminated(node, now) {
            return self.checker.probe("an instance that was terminated did not start");
        }
        self.with_machine(node, |machine| {
            if !machine.lit {
                machine.changes.push((now, true));
            }
            machine.lit = true;
            losses = machine.losses;
        });
        tokio::time::sleep(BOOT).await;
        {
            let mut machines = self.machines.lock();
            let boots = |machine: &&mut Machine| !machine.powered && machine.losses == losses;
            let Some(machine) = machines.get_mut(node).filter(boots) else { return };
            machine.powered = true;
            machine.stuck_until = Duration::ZERO;
            machine.cgroups.clear();
            machine.sick = None;
            machine.boot += 1;
        }
        self.checker.announce(Tone::Other, format!("{} boots", self.node(node)));
        self.start_kubelet_of(node, None);
    }

    /// Starts a kubelet in place of the one that ran on `before`, unless the state of the machine has changed since.
    pub(super) fn start_kubelet_of(self: &Arc<Self>, node: usize, before: Option<&Arc<Host>>) {
        let name = self.node(node);
        let (boot, server, host) = {
            let mut machines = self.machines.lock();
            let Some(machine) = machines.get_mut(node).filter(|machine| machine.powered) else { return };
            let same = match (&machine.host, before) {
                (Some(now), Some(before)) => Arc::ptr_eq(now, before),
                (None, None) => true,
                _ => false,
            };
            if !same || machine.guard.closed {
                return;
            }
            machine.starts += 1;
            let chance = self.chance.part(&name, u64::try_from(machine.starts).unwrap_or(0) + 1_000);
            let host = Host::start_with_rate(&name, chance, &self.checker, self.rate_of_node(&name));
            machine.host = Some(Arc::clone(&host));
            (machine.boot, node + machine.starts, host)
        };
        Kubelet::start(self, &Arc::from(name), boot, server, &host);
        self.start_agent_of(node);
    }
}
