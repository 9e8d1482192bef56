//! One or two nodes with one identity, an API server, and the controller.

pub(crate) mod machine;
pub(crate) mod scope;

use std::sync::Arc;

use pod_safety_watchdog::agent::Order;
use pod_safety_watchdog::controller::LeaseWatch;
use pod_safety_watchdog::record::{Boot, ObservedLease, Record, Version};
use stateright::{Model, Property};

use machine::Machine;
use scope::{FaultBudget, Plant, SETTLE, Scope, TICK, VALID, ticks};

/// The property that is checked.
pub(crate) const NO_PROCESS: &str =
    "no guarded process of a boot runs, and no mount is left, while there is evidence about it";

/// The state of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) now: u8,
    pub(crate) budget: FaultBudget,
    pub(crate) machines: Vec<Machine>,
    pub(crate) lease: Option<ObservedLease>,
    pub(crate) revision: u8,
    /// An older state, to be restored.
    pub(crate) kept: Option<(Option<ObservedLease>, u8)>,
    /// Writes that were sent and have not arrived.
    pub(crate) flying: Vec<Flight>,
    /// The boot ID that the Node object shows.
    pub(crate) boot: u8,
    pub(crate) ours: LeaseWatch,
    /// The boot that there is evidence about, and until when.
    pub(crate) evidence: Option<(u8, u8)>,
}

/// A write of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Flight {
    pub(crate) from: u8,
    /// The process that waits for its answer.
    pub(crate) process: u8,
    pub(crate) record: Record,
    pub(crate) over: Option<Version>,
}

/// The steps of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Tick,
    /// Time passes while the machine is paused.
    Paused,
    /// The agent reads the clock, and decides what to do next.
    Decides(u8),
    /// It does that; `true`: it fails.
    Does(u8, bool),
    /// It reads the clock, and receives the answer.
    Takes(u8),
    /// The answer to its write does not arrive.
    GivesUp(u8),
    Arrives(u8),
    /// The kubelet starts a guarded pod.
    Starts(u8),
    Dies(u8),
    Restarts(u8),
    Leaves(u8),
    Fires(u8),
    Boots(u8),
    Keeps,
    Restores,
    Sees,
    /// The controller revokes; its answer may be lost.
    Revokes {
        lost: bool,
    },
    Judges,
    WeRestart,
}

impl Model for Scope {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let machines = (0..self.machines).map(|at| Machine::new(self, at)).collect();
        let (lease, flying, ours) = (None, Vec::new(), LeaseWatch::default());
        let (now, budget, revision, kept, boot, evidence) = (0, self.budget, 0, None, 0, None);
        vec![World { now, budget, machines, lease, revision, kept, flying, boot, ours, evidence }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Step>) {
        if world.evidence.is_some_and(|(_, until)| world.now > until) || world.violates_safety() {
            return;
        }
        for at in 0..self.machines {
            let here = [Step::Decides(at), Step::Does(at, false), Step::Does(at, true), Step::Takes(at)];
            actions.extend(here);
            actions.extend([Step::GivesUp(at), Step::Starts(at), Step::Dies(at), Step::Restarts(at)]);
            actions.extend([Step::Leaves(at), Step::Fires(at), Step::Boots(at)]);
        }
        actions.extend((0..u8::try_from(world.flying.len()).unwrap_or_default()).map(Step::Arrives));
        actions.extend([Step::Keeps, Step::Restores, Step::Sees, Step::Judges, Step::WeRestart]);
        actions.extend([false, true].map(|lost| Step::Revokes { lost }));
        actions.extend([Step::Tick, Step::Paused]);
    }

    fn next_state(&self, last: &World, step: Step) -> Option<World> {
        let mut world = last.clone();
        world.apply_step(self, &step)?;
        (world != *last).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = vec![
            Property::<Self>::always(NO_PROCESS, |_, world| !world.violates_safety()),
            Property::<Self>::sometimes("there is evidence", |_, world| world.evidence.is_some()),
        ];
        if self.again {
            all.push(Property::<Self>::sometimes("pods start again under a new grant", |_, world| {
                world.machines.iter().any(|machine| machine.again)
            }));
        }
        all
    }
}

impl World {
    fn violates_safety(&self) -> bool {
        let Some((boot, until)) = self.evidence else { return false };
        let runs = |machine: &Machine| machine.boot == boot && (machine.pods || machine.mounts);
        self.now <= until && self.machines.iter().any(runs)
    }

    fn apply_step(&mut self, scope: &Scope, step: &Step) -> Option<()> {
        match *step {
            Step::Tick => self.tick(scope, false),
            Step::Paused => self.tick(scope, true),
            Step::Decides(at) => self.decides(at),
            Step::Does(at, fails) => machine::does(self, scope, at, fails),
            Step::Takes(at) => {
                let now = ticks(self.now);
                let machine = &mut self.machines[usize::from(at)];
                let (order, answer) = machine.answer.take()?;
                machine.agent.as_mut()?.handle_answer(now, &order, answer);
                Some(())
            }
            Step::GivesUp(at) => machine::gives_up(self, scope, at),
            Step::Arrives(which) => self.arrives(which),
            Step::Starts(at) => self.machines[usize::from(at)].starts(),
            Step::Dies(at) => {
                self.budget.crashes = self.budget.crashes.checked_sub(1)?;
                self.machines[usize::from(at)].dies(scope, self.now)
            }
            Step::Restarts(at) => self.machines[usize::from(at)].restarts(scope, at, self.now),
            Step::Leaves(at) => {
                self.budget.leaves = self.budget.leaves.checked_sub(1)?;
                self.machines[usize::from(at)].leaves(scope)
            }
            Step::Fires(at) => self.machines[usize::from(at)].fires(scope, self.now),
            Step::Boots(at) => self.boots(scope, at),
            Step::Keeps if self.budget.restores > 0 && self.kept.is_none() => {
                self.kept = Some((self.lease.clone(), self.revision));
                Some(())
            }
            Step::Restores => {
                self.budget.restores = self.budget.restores.checked_sub(1)?;
                (self.lease, self.revision) = self.kept.clone()?;
                Some(())
            }
            Step::Keeps => None,
            Step::Sees => {
                match &self.lease {
                    Some(lease) => self.ours.observe(ticks(self.now), lease),
                    None => self.ours.observe_absent(),
                }
                Some(())
            }
            Step::Revokes { lost } => self.revokes(scope, lost),
            Step::Judges => self.judges(scope),
            Step::WeRestart => {
                self.budget.restarts = self.budget.restarts.checked_sub(1)?;
                self.ours = LeaseWatch::default();
                Some(())
            }
        }
    }

    fn boots(&mut self, scope: &Scope, at: u8) -> Option<()> {
        self.budget.boots = self.budget.boots.checked_sub(1)?;
        let machine = &mut self.machines[usize::from(at)];
        let off = machine.off?;
        if self.now < off + SETTLE {
            return None;
        }
        *machine = Machine { boot: machine.boot + 1, agent: None, ..Machine::new(scope, at) };
        // A kubelet that starts writes the boot ID, and the status of a pod before it starts the pod: earlier
        // evidence is void, since each request names the version of its object (an axiom of docs/kernel-search.md).
        (self.boot, self.evidence) = (machine.boot, None);
        machine.restarts(scope, at, self.now)
    }

    /// A device that was not petted fires at the end of its timeout, if it has not before.
    fn tick(&mut self, scope: &Scope, paused: bool) -> Option<()> {
        if self.now >= scope.horizon {
            return None;
        }
        if paused {
            self.budget.pauses = self.budget.pauses.checked_sub(1)?;
        }
        let now = self.now;
        for machine in &mut self.machines {
            let Some(device) = &mut machine.device else { continue };
            if paused {
                device.petted += 1;
            } else if scope.has(Plant::Feeder) && machine.agent.is_some() {
                device.petted = now;
            }
        }
        self.now += 1;
        for machine in &mut self.machines {
            if machine.device.is_some_and(|device| self.now >= device.petted + scope.timeout + TICK) {
                machine.fires(scope, self.now)?;
            }
        }
        Some(())
    }

    fn decides(&mut self, at: u8) -> Option<()> {
        let now = ticks(self.now);
        let machine = &mut self.machines[usize::from(at)];
        if machine.order.is_some() || machine.answer.is_some() || machine.waits.is_some() {
            return None;
        }
        let order = machine.agent.as_mut()?.next(now);
        machine.order = match order {
            Order::Wait(_) => None,
            order => Some(order),
        };
        Some(())
    }

    /// The API server compares the version and writes.
    pub(crate) fn write(&mut self, over: Option<&Version>, record: Record) -> Option<Version> {
        if self.lease.as_ref().map(|lease| &lease.version) != over {
            return None;
        }
        self.revision += 1;
        let version: Version = self.revision.to_string().into();
        self.lease = Some(ObservedLease { version: Arc::clone(&version), record: Some(record) });
        Some(version)
    }

    fn arrives(&mut self, which: u8) -> Option<()> {
        let flight = self.flying.remove(usize::from(which));
        let version = self.write(flight.over.as_ref(), flight.record.clone());
        self.machines[usize::from(flight.from)].receive_answer(&flight, version);
        Some(())
    }

    fn revokes(&mut self, scope: &Scope, lost: bool) -> Option<()> {
        let mut revocation = self.ours.plan_revocation().ok()?;
        if scope.has(Plant::Blind) {
            revocation.version = Arc::clone(&self.lease.as_ref()?.version);
            // It keeps the annotations that the write does not name.
            if let Some(lease) = &mut self.lease {
                lease.record = Some(revocation.record.clone());
            }
        }
        let now = ticks(self.now);
        // A request whose answer is lost is observed later, like a write of another client.
        let version = self.write(Some(&revocation.version), revocation.record.clone())?;
        if !lost {
            self.ours.confirm_revocation(now, &revocation, version);
        }
        Some(())
    }

    fn judges(&mut self, scope: &Scope) -> Option<()> {
        let lease = self.lease.clone()?;
        let node = machine::boot(self.boot);
        let boot: Boot = match &lease.record {
            Some(record) if scope.has(Plant::NoBootId) => record.boot.clone(),
            _ => node,
        };
        let now = ticks(self.now + scope.early());
        self.ours.verify_ended(now, &lease, &boot, &scope.terms()).ok()?;
        self.evidence = Some((self.boot, self.now + VALID));
        Some(())
    }
}
