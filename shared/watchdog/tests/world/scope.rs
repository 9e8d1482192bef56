//! Small models, and what is planted in them.

use std::sync::Arc;
use std::time::Duration;

use pod_safety_watchdog::agent::Times;
use pod_safety_watchdog::controller::{DrilledDevice, Terms};
use pod_safety_watchdog::record::{Class, Device};

/// How often each fault may still occur.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct FaultBudget {
    /// Writes of agents that reach the API server.
    pub(crate) writes: u8,
    /// Requests of agents whose answer does not come.
    pub(crate) lost: u8,
    /// Deaths of the agent.
    pub(crate) crashes: u8,
    /// Orderly ends of the agent.
    pub(crate) leaves: u8,
    /// Ends of pods that leave a process or a mount.
    pub(crate) stuck: u8,
    /// Boots after a reset.
    pub(crate) boots: u8,
    /// Ticks for which the machine is paused.
    pub(crate) pauses: u8,
    /// Restarts of the controller.
    pub(crate) restarts: u8,
    /// Restores of an older state of etcd.
    pub(crate) restores: u8,
}

/// A wrong protocol, made from outside of the state machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plant {
    /// The controller waits for one period of the device.
    OnePeriod,
    /// The ping when the device is closed is not counted.
    TwoPeriods,
    /// The device fires by the next tick.
    NoTicks,
    /// The controller counts from the node's renewTime, and the node's clock is slow.
    RenewTime,
    /// The agent pets as it sends.
    PetFirst,
    /// A second loop pets until the process ends (medik8s).
    Feeder,
    /// An answer that does not arrive counts as a grant (Deckhouse).
    GateOpen,
    /// A process that starts opens the device before it has a grant.
    OpensFirst,
    /// The device is stopped before the Lease is updated.
    DisarmsFirst,
    /// The boot ID is not compared.
    NoBootId,
    /// The device stops when the agent dies.
    CanBeStopped,
    /// A virtual machine without a pause budget.
    NoPause,
    /// Mounts are not checked.
    NoMounts,
    /// The revocation does not name the version that was observed.
    Blind,
    /// The kubelet starts as soon as there is a grant.
    StartsAtOnce,
}

/// The scope of a model.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) budget: FaultBudget,
    /// The last tick.
    pub(crate) horizon: u8,
    pub(crate) machines: u8,
    /// W.
    pub(crate) timeout: u8,
    /// Whether closing the device pets it.
    pub(crate) pings_on_close: bool,
    /// Pods must have ended and started again.
    pub(crate) again: bool,
    pub(crate) plant: Option<Plant>,
}

/// g. All times are in ticks of a second.
pub(crate) const TICK: u8 = 1;
/// How long evidence is valid.
pub(crate) const VALID: u8 = 1;
/// No machine boots faster, and no kubelet starts sooner after a grant.
pub(crate) const SETTLE: u8 = 2;
/// The longest pause of a virtual machine.
pub(crate) const PAUSES: u8 = 2;

pub(crate) const fn ticks(ticks: u8) -> Duration {
    Duration::from_secs(ticks as u64)
}

impl Scope {
    pub(crate) fn has(&self, plant: Plant) -> bool {
        self.plant == Some(plant)
    }

    pub(crate) fn times(&self) -> Times {
        let settle = if self.has(Plant::StartsAtOnce) { 0 } else { SETTLE };
        Times { interval: ticks(1), soft: ticks(self.timeout + 1), settle: ticks(settle) }
    }

    pub(crate) fn device(&self) -> Arc<Device> {
        let class = if self.budget.pauses > 0 && !self.has(Plant::NoPause) { Class::Virtual } else { Class::Hardware };
        Arc::new(Device {
            class,
            identity: "wdt".into(),
            firmware: 1,
            kernel: "6".into(),
            timeout: ticks(self.timeout),
            nowayout: true,
            pings_on_close: self.pings_on_close,
        })
    }

    pub(crate) fn terms(&self) -> Terms {
        let drilled = vec![DrilledDevice::from(&*self.device())];
        let (tick, reset, pause) = (ticks(TICK), Duration::ZERO, ticks(PAUSES));
        Terms { classes: vec![Class::Hardware, Class::Virtual], tick, drift_ppm: 0, reset, pause, drilled }
    }

    /// How much too early the controller verifies.
    pub(crate) fn early(&self) -> u8 {
        match self.plant {
            Some(Plant::OnePeriod) => 2 * (self.timeout + TICK),
            Some(Plant::TwoPeriods) => self.timeout + TICK,
            Some(Plant::NoTicks) => 3 * TICK,
            Some(Plant::RenewTime) => 3,
            _ => 0,
        }
    }
}
