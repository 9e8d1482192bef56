//! A power switch as a device beside its machine (BMC, PDU, hypervisor): it takes orders to switch off and on, and
//! reports the power state; and it can report falsely, be late, and not answer.
//!
//! It records what it really did to the power; its answers may differ from that.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pod_safety_shared::clock::Spawner;

use super::host::Host;
use super::run::World;
use crate::campaign::Manner;

/// A request to a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Off,
    On,
    Status,
}

/// The power state that a switch reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReportedPower {
    On,
    Off,
}

/// One line of the record: a request, or an act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Asked(Order),
    TurnedOff,
    TurnedOn,
}

/// The switch of one machine.
pub(crate) struct Switch {
    node: usize,
    host: Arc<Host>,
    state: Mutex<State>,
}

struct State {
    manner: Manner,
    claims: ReportedPower,
    ledger: Vec<(Duration, Entry)>,
}

impl Switch {
    pub(crate) fn new(world: &World, node: usize, manner: Manner) -> Arc<Self> {
        let name = format!("switch-{node}");
        let host = Host::start(&name, world.chance.part(&name, 0), &world.checker);
        let state = State { manner, claims: ReportedPower::On, ledger: Vec::new() };
        Arc::new(Self { node, host, state: Mutex::new(state) })
    }

    #[cfg(test)]
    fn ledger(&self) -> Vec<(Duration, Entry)> {
        self.state.lock().ledger.clone()
    }

    fn write(&self, world: &World, entry: Entry) {
        self.state.lock().ledger.push((world.checker.now(), entry));
    }

    /// Sends a request to the switch; `None`: no answer comes.
    pub(crate) async fn execute(self: &Arc<Self>, world: &Arc<World>, order: Order) -> Option<ReportedPower> {
        let manner = self.state.lock().manner;
        if manner == Manner::Dead {
            return None;
        }
        self.write(world, Entry::Asked(order));
        let desired = match order {
            Order::Status => return Some(self.reported_power(world)),
            Order::Off => ReportedPower::Off,
            Order::On => ReportedPower::On,
        };
        match manner {
            Manner::SaysOffWhileOn if desired == ReportedPower::Off => {}
            Manner::Late(seconds) => self.switch_after(world, desired, seconds),
            Manner::Twice(seconds) => {
                self.switch(world, desired).await;
                self.switch_after(world, desired, seconds);
            }
            Manner::Honest | Manner::SaysOffWhileOn | Manner::DoneButSilent | Manner::Dead => {
                self.switch(world, desired).await;
            }
        }
        self.state.lock().claims = desired;
        (manner != Manner::DoneButSilent).then_some(desired)
    }

    /// A reliable switch measures; the others repeat the last order.
    fn reported_power(&self, world: &World) -> ReportedPower {
        let state = self.state.lock();
        match state.manner {
            Manner::SaysOffWhileOn | Manner::Late(_) => state.claims,
            _ if world.machine_host(self.node).is_some() => ReportedPower::On,
            _ => ReportedPower::Off,
        }
    }

    fn switch_after(self: &Arc<Self>, world: &Arc<World>, desired: ReportedPower, seconds: u64) {
        let (switch, world) = (Arc::clone(self), Arc::clone(world));
        self.host.spawn(
            "switch",
            Box::pin(async move {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                switch.switch(&world, desired).await;
            }),
        );
    }

    async fn switch(&self, world: &Arc<World>, desired: ReportedPower) {
        match desired {
            ReportedPower::Off => {
                world.power_off(self.node);
                self.write(world, Entry::TurnedOff);
            }
            ReportedPower::On => {
                world.power_on(self.node).await;
                self.write(world, Entry::TurnedOn);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::Plan;
    use crate::world::{Baseline, Subject};

    /// A world of one machine that was on for 20 s. Returns the result of a request to its switch: the answer, the
    /// power at once and a minute later, and how often the power changed.
    fn run_order(manner: Manner, order: Order) -> (Option<ReportedPower>, bool, bool, usize) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let plan = Plan { seed: 1, servers: 1, nodes: 1, heal_at: 100, ..Plan::default() };
            let plan = Plan { lease_collected_after: 15, ..plan };
            let world = World::for_tests(&plan, Subject::Baseline(Baseline::Script));
            world.restart_server(0);
            world.power_on(0).await;
            let switch = Switch::new(&world, 0, manner);
            let on = || world.machine_host(0).is_some();
            let answer = switch.execute(&world, order).await;
            let at_once = on();
            tokio::time::sleep(Duration::from_secs(60)).await;
            let turned = |entry: &&(Duration, Entry)| !matches!(entry.1, Entry::Asked(_));
            (answer, at_once, on(), switch.ledger().iter().filter(turned).count())
        })
    }

    #[test]
    fn a_switch_may_report_falsely_and_its_record_is_true() {
        assert_eq!(run_order(Manner::Honest, Order::Off), (Some(ReportedPower::Off), false, false, 1));
        assert_eq!(run_order(Manner::Honest, Order::Status), (Some(ReportedPower::On), true, true, 0));
        assert_eq!(run_order(Manner::SaysOffWhileOn, Order::Off), (Some(ReportedPower::Off), true, true, 0));
        assert_eq!(run_order(Manner::Late(30), Order::Off), (Some(ReportedPower::Off), true, false, 1));
        assert_eq!(run_order(Manner::Twice(30), Order::Off), (Some(ReportedPower::Off), false, false, 2));
        assert_eq!(run_order(Manner::DoneButSilent, Order::Off), (None, false, false, 1));
        assert_eq!(run_order(Manner::Dead, Order::Off), (None, true, true, 0));
    }
}
