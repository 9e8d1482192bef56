//! A machine with its agent, its kubelet and its watchdog.

use pod_safety_watchdog::agent::{Agent, Answer, Order, StartupState};
use pod_safety_watchdog::record::{Boot, State, Version};

use super::scope::{Plant, Scope, ticks};
use super::{Flight, World};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Machine {
    pub(crate) agent: Option<Agent>,
    /// Decided, and not executed yet.
    pub(crate) order: Option<Order>,
    /// Executed, and the agent has not received the answer yet.
    pub(crate) answer: Option<(Order, Answer)>,
    /// A write whose answer the agent waits for.
    pub(crate) waits: Option<Order>,
    /// The number of the process.
    pub(crate) process: u8,
    /// The device, while it runs.
    pub(crate) device: Option<Device>,
    pub(crate) stopped: bool,
    pub(crate) pods: bool,
    pub(crate) mounts: bool,
    pub(crate) boot: u8,
    /// When the machine was switched off.
    pub(crate) off: Option<u8>,
    /// A promise was made in this boot.
    pub(crate) promised: bool,
    /// Pods have been ended here, and started again.
    pub(crate) again: bool,
    pub(crate) ended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Device {
    pub(crate) petted: u8,
    pub(crate) open: bool,
}

pub(crate) fn boot(boot: u8) -> Boot {
    Boot { node: "node".into(), id: boot.to_string().into() }
}

impl Machine {
    pub(crate) fn new(scope: &Scope, at: u8) -> Self {
        let mut machine = Self {
            agent: None,
            order: None,
            answer: None,
            waits: None,
            process: 0,
            device: None,
            stopped: false,
            pods: true,
            mounts: true,
            // Two machines with one identity have been booted apart.
            boot: at * 10,
            off: None,
            promised: false,
            again: false,
            ended: false,
        };
        let _begins = machine.restarts(scope, at, 0);
        machine
    }

    pub(crate) fn restarts(&mut self, scope: &Scope, at: u8, now: u8) -> Option<()> {
        if self.agent.is_some() || self.off.is_some() {
            return None;
        }
        if let (Some(device), true) = (&mut self.device, scope.has(Plant::OpensFirst)) {
            (device.petted, device.open) = (now, true);
        }
        self.process += 1;
        let startup = StartupState { predecessor: self.promised, stopped: self.stopped };
        let process = u64::from(at) * 1_000 + u64::from(self.boot) * 100 + u64::from(self.process);
        self.agent = Some(Agent::new(boot(self.boot), scope.times(), process, startup, ticks(now)));
        Some(())
    }

    /// The process ends. The kernel closes its device.
    pub(crate) fn dies(&mut self, scope: &Scope, now: u8) -> Option<()> {
        self.agent.take()?;
        (self.order, self.answer, self.waits) = (None, None, None);
        if let Some(device) = self.device.as_mut().filter(|device| device.open) {
            device.open = false;
            if scope.pings_on_close {
                device.petted = now;
            }
            if scope.has(Plant::CanBeStopped) {
                self.device = None;
            }
        }
        Some(())
    }

    pub(crate) fn leaves(&mut self, scope: &Scope) -> Option<()> {
        let agent = self.agent.as_mut()?;
        if scope.has(Plant::DisarmsFirst) {
            (self.agent, self.order, self.answer, self.waits, self.device) = (None, None, None, None, None);
        } else {
            agent.shut_down();
        }
        Some(())
    }

    /// The device fires one period after the last pet, or up to a tick later.
    pub(crate) fn fires(&mut self, scope: &Scope, now: u8) -> Option<()> {
        let device = self.device.take()?;
        if now < device.petted + scope.timeout {
            return None;
        }
        (self.agent, self.order, self.answer, self.waits) = (None, None, None, None);
        (self.stopped, self.pods, self.mounts, self.promised) = (false, false, false, false);
        self.off = Some(now);
        Some(())
    }

    pub(crate) fn starts(&mut self) -> Option<()> {
        if self.off.is_some() || self.stopped || self.pods {
            return None;
        }
        (self.pods, self.mounts) = (true, true);
        self.again |= self.ended;
        Some(())
    }

    /// Delivers the answer to a write, if the process that sent it still waits for it.
    pub(crate) fn receive_answer(&mut self, flight: &Flight, version: Option<Version>) {
        if self.process != flight.process {
            return;
        }
        let waits = |order: &Order| matches!(order, Order::Write(record, over) if (record, over) == (&flight.record, &flight.over));
        if let Some(order) = self.waits.take_if(|order| waits(order)) {
            self.answer = Some((order, version.map_or(Answer::Conflict, Answer::Written)));
        }
    }
}

/// The agent stops waiting. What it sent may still arrive.
pub(crate) fn gives_up(world: &mut World, scope: &Scope, at: u8) -> Option<()> {
    let machine = &mut world.machines[usize::from(at)];
    let order = machine.waits.take()?;
    world.budget.lost = world.budget.lost.checked_sub(1)?;
    let answer = match &order {
        Order::Write(_, Some(version)) if scope.has(Plant::GateOpen) => Answer::Written(version.clone()),
        _ => Answer::Failed,
    };
    machine.answer = Some((order, answer));
    Some(())
}

/// Executes what was decided.
pub(crate) fn does(world: &mut World, scope: &Scope, at: u8, fails: bool) -> Option<()> {
    let now = world.now;
    let machine = &mut world.machines[usize::from(at)];
    let order = machine.order.take()?;
    let answer = match &order {
        Order::Read if fails => {
            world.budget.lost = world.budget.lost.checked_sub(1)?;
            Answer::Failed
        }
        Order::Stop => {
            machine.stopped = true;
            machine.ended = true;
            if fails {
                // Something remains: a process in state D with its mount, or the mount alone.
                world.budget.stuck = world.budget.stuck.checked_sub(1)?;
                machine.pods &= !scope.has(Plant::NoMounts);
            } else {
                (machine.pods, machine.mounts) = (false, false);
            }
            Answer::Done
        }
        _ if fails => return None,
        Order::Read => Answer::Lease(world.lease.clone()),
        Order::Write(..) => return sends(world, scope, at, order),
        Order::Open => {
            machine.device = Some(Device { petted: now, open: true });
            Answer::Opened(scope.device())
        }
        Order::Pet => {
            if let Some(device) = &mut machine.device {
                device.petted = now;
            }
            Answer::Done
        }
        Order::Prove => {
            let mounts = machine.mounts && !scope.has(Plant::NoMounts);
            Answer::Verified(machine.stopped && !machine.pods && !mounts)
        }
        Order::Release => {
            machine.stopped = false;
            Answer::Done
        }
        Order::Close => {
            machine.device = None;
            Answer::Done
        }
        Order::Exit => {
            machine.dies(scope, now)?;
            return Some(());
        }
        Order::Wait(_) => return None,
    };
    machine.answer = Some((order, answer));
    Some(())
}

/// The write is sent, and the agent waits for its answer.
fn sends(world: &mut World, scope: &Scope, at: u8, order: Order) -> Option<()> {
    let Order::Write(record, over) = &order else { return None };
    let machine = &mut world.machines[usize::from(at)];
    machine.promised |= record.state == State::Armed;
    if let (Some(device), true) = (&mut machine.device, scope.has(Plant::PetFirst)) {
        device.petted = world.now;
    }
    if let Some(budget) = world.budget.writes.checked_sub(1) {
        world.budget.writes = budget;
        let (process, record, over) = (machine.process, record.clone(), over.clone());
        world.flying.push(Flight { from: at, process, record, over });
    }
    machine.waits = Some(order);
    Some(())
}
