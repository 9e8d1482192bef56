//! The model: which steps are possible in a world, and which properties must always hold.

use stateright::{Model, Property};

use crate::machine::{self, Kubelet};
use crate::process::{self, Process, Stream};
pub use crate::scope::{Axiom, Begin, Plant, Scope};
use crate::steps::{self, Claimed, ReadOrder};
use crate::world::{FenceEvidence, Lease, PodObject, Power, Released, World};

/// Steps of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Time passes.
    Tick,
    /// The kubelet makes a step.
    Kubelet(Kubelet),
    /// The kubelet loses its connection to the API server.
    CutOff,
    /// The kubelet reaches the API server again.
    Reconnects,
    /// The machine loses power.
    PowerOff,
    /// The machine gets power.
    PowerOn,
    /// The machine has booted.
    Boots,
    /// An operator or an autoscaler deletes the Node.
    NodeDeleted,
    /// The garbage collector deletes the Lease.
    LeaseCollected,
    /// The node lifecycle controller marks the Node not Ready.
    NotReady,
    /// The pod is deleted gracefully.
    PodDeleted,
    /// The scheduler binds the pod.
    Bound,
    /// The StatefulSet controller creates the successor, which runs immediately on the other node.
    Successor,
    /// Evidence is written: by a fence device, or by an operator.
    EvidenceWritten {
        /// An operator confirmed it.
        by_person: bool,
    },
    /// A watch of the process delivers.
    Delivers(Stream),
    /// The process starts to read.
    BeginsReads(ReadOrder),
    /// The second of the two reads is answered.
    Reads,
    /// The process checks the device, which reports off.
    ChecksDevice,
    /// The kernel checks what was read.
    Judges,
    /// The kernel checks the pod, and the first request is sent.
    Releases(Claimed),
    /// The DELETE is sent.
    Removes,
    /// A request arrives. Its answer arrives or is lost.
    Arrives {
        /// Which.
        which: u8,
        /// The answer is lost.
        lost: bool,
    },
    /// A request is lost.
    Lost(u8),
    /// The process restarts, or another replica leads.
    ProcessRestarts,
}

impl Model for Scope {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        self.begins.iter().map(|begin| self.begin(*begin)).collect()
    }

    fn actions(&self, world: &World, actions: &mut Vec<Step>) {
        if world.processes.count_ones() > 1 || world.error.is_some() {
            return;
        }
        if world.pod.is_none() {
            actions.push(Step::Successor);
            return;
        }
        for which in 0..u8::try_from(world.sent.len()).unwrap_or_default() {
            actions.extend([false, true].map(|lost| Step::Arrives { which, lost }));
            if self.budget.sent == 1 {
                actions.push(Step::Lost(which));
            }
        }
        if self.is_over(world) {
            return;
        }
        self.world_actions(world, actions);
        self.process_actions(world, actions);
        actions.push(Step::Tick);
    }

    fn next_state(&self, last: &World, step: Step) -> Option<World> {
        let mut world = last.clone();
        world.released = None;
        self.apply(&mut world, step)?;
        if !self.budget.lag {
            for stream in [Stream::Pods, Stream::Leases, Stream::Nodes] {
                let _nothing_new = process::deliver(&mut world, stream, self);
            }
        }
        steps::normalize(&mut world, self);
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = vec![
            Property::<Self>::always(ONE_PROCESS, |_, world| world.processes.count_ones() <= 1),
            Property::<Self>::always(NOTHING_WRONG, |_, world| world.error.is_none()),
        ];
        for released in self.releases {
            all.push(match released {
                Released::NodeGone => Property::<Self>::sometimes("NodeGone releases", |_, world| {
                    world.released == Some(Released::NodeGone)
                }),
                Released::PowerOff => Property::<Self>::sometimes("PowerOff releases", |_, world| {
                    world.released == Some(Released::PowerOff)
                }),
                Released::Confirmed => Property::<Self>::sometimes("Confirmed releases", |_, world| {
                    world.released == Some(Released::Confirmed)
                }),
                Released::KubeletTerminated => Property::<Self>::sometimes("KubeletTerminated releases", |_, world| {
                    world.released == Some(Released::KubeletTerminated)
                }),
                Released::NeverScheduled => Property::<Self>::sometimes("NeverScheduled releases", |_, world| {
                    world.released == Some(Released::NeverScheduled)
                }),
            });
        }
        all
    }
}

/// The main safety property.
pub const ONE_PROCESS: &str = "never two processes of one identity";
/// The guard accepts exactly the requests of the kernel, and each request names the subject of its evidence.
pub const NOTHING_WRONG: &str = "every request is about what its evidence is about";

impl Scope {
    /// Whether no process of the first pod can run any more, and only requests in flight may still do harm.
    fn is_over(&self, world: &World) -> bool {
        let machine = &world.machine;
        let replaced = world.pod.is_some_and(|pod| pod.uid > 1);
        let ended = !world.runs(1) && (machine.terminated || replaced && !machine.listed);
        let needs_first_pod = self.releases.contains(&Released::KubeletTerminated) && !replaced;
        let other = self.breaks(Axiom::ListsThePresent) || self.has_plant(Plant::NodeOfTheClaim);
        ended && !needs_first_pod && !other
    }

    /// Steps of the machine, its kubelet and operators. Each step checks again whether it is possible.
    fn world_actions(&self, world: &World, actions: &mut Vec<Step>) {
        let (budget, machine) = (&world.budget, &world.machine);
        match machine.power {
            Power::On => actions.extend(Kubelet::ALL.map(Step::Kubelet)),
            Power::Off if budget.boots > 0 => actions.push(Step::PowerOn),
            Power::Off => {}
            Power::Boots(_) => actions.push(Step::Boots),
        }
        let may = [
            (budget.cuts > 0 && machine.connected, Step::CutOff),
            (!machine.connected, Step::Reconnects),
            (budget.outages > 0, Step::PowerOff),
            (budget.node_deletions > 0, Step::NodeDeleted),
            (world.lease.is_some(), Step::LeaseCollected),
            (self.budget.evidence > 0, Step::NotReady),
            (budget.pod_deletions > 0, Step::PodDeleted),
            (world.pod.is_some_and(|pod| !pod.bound), Step::Bound),
            (budget.evidence > 0, Step::EvidenceWritten { by_person: self.by_person }),
        ];
        actions.extend(may.into_iter().filter(|(may, _)| *may).map(|(_, step)| step));
    }

    fn process_actions(&self, world: &World, actions: &mut Vec<Step>) {
        let process = &world.process;
        if self.budget.lag {
            actions.extend([Stream::Pods, Stream::Nodes, Stream::Leases].map(Step::Delivers));
        }
        match &process.reads {
            Some(reads) if reads.node.is_some() && reads.lease.is_some() => actions.push(Step::Judges),
            Some(_) => actions.push(Step::Reads),
            None => {
                actions.extend(ReadOrder::ALL.map(Step::BeginsReads));
                if world.evidence.is_some() {
                    actions.push(Step::ChecksDevice);
                }
            }
        }
        if process.pending_delete.is_some() {
            actions.push(Step::Removes);
        } else {
            actions.extend(Claimed::ALL.map(Step::Releases));
        }
        if world.budget.restarts > 0 {
            actions.push(Step::ProcessRestarts);
        }
    }

    fn apply(&self, world: &mut World, step: Step) -> Option<()> {
        match step {
            Step::Tick => self.tick(world),
            Step::Kubelet(step) => machine::kubelet(world, step, self),
            Step::CutOff | Step::Reconnects | Step::PowerOff | Step::PowerOn | Step::Boots => self.machine(world, step),
            Step::NodeDeleted | Step::LeaseCollected | Step::NotReady | Step::PodDeleted | Step::Bound => {
                self.objects(world, step)
            }
            Step::Successor => successor(world),
            Step::EvidenceWritten { by_person } => self.evidence(world, by_person),
            Step::Delivers(stream) => process::deliver(world, stream, self),
            Step::BeginsReads(ask) => steps::begin_reads(world, ask, self),
            Step::Reads => steps::answer_read(world),
            Step::ChecksDevice => steps::check_device(world),
            Step::Judges => steps::verify(world, self),
            Step::Releases(claim) => steps::release(world, claim, self),
            Step::Removes => steps::remove(world, self),
            Step::Arrives { which, lost } => steps::arrive(world, which, lost),
            Step::Lost(which) => {
                world.sent.remove(usize::from(which));
                Some(())
            }
            Step::ProcessRestarts => {
                if world.runs(1) && !world.machine.listed && !self.breaks(Axiom::RenewsWhenItStarts) {
                    return None;
                }
                world.budget.restarts = world.budget.restarts.checked_sub(1)?;
                world.process = Process::begin(world.now, world.pod, world.node, world.lease);
                if self.has_plant(Plant::DeletionIsNew)
                    && let Some(pod) = &mut world.process.pod
                {
                    pod.seen.maybe_known = false;
                }
                Some(())
            }
        }
    }

    fn tick(&self, world: &mut World) -> Option<()> {
        if world.now >= self.horizon || !machine::may_tick(world, self) {
            return None;
        }
        world.now += 1;
        Some(())
    }

    fn machine(&self, world: &mut World, step: Step) -> Option<()> {
        let machine = &mut world.machine;
        match step {
            Step::CutOff if machine.connected && machine.power == Power::On => {
                let kept = world.node.is_some() || self.breaks(Axiom::CutOffNodesAreKept);
                let noticed = !machine.device_miswired || self.breaks(Axiom::MisnamedDevicesAreNoticed);
                world.budget.cuts = world.budget.cuts.checked_sub(1).filter(|_| kept && noticed)?;
                machine.connected = false;
            }
            Step::Reconnects if !machine.connected && machine.power == Power::On => machine.connected = true,
            Step::PowerOff if machine.power == Power::On && !machine.device_miswired => {
                world.budget.outages = world.budget.outages.checked_sub(1)?;
                (machine.power, machine.connected, machine.registered) = (Power::Off, true, false);
                (machine.renewed, machine.listed, machine.deletion_seen_at) = (false, false, None);
                world.end(1);
            }
            Step::PowerOn if machine.power == Power::Off => {
                world.budget.boots = world.budget.boots.checked_sub(1)?;
                machine.power = Power::Boots(world.now);
            }
            Step::Boots => {
                let Power::Boots(since) = machine.power else { return None };
                let least = pod_safety_proof::MINIMUM_BOOT.as_secs();
                let took = u64::from(world.now - since) * self.tick;
                if took < least {
                    return None;
                }
                machine.power = Power::On;
                machine.boot += 1;
            }
            _ => return None,
        }
        Some(())
    }

    fn objects(&self, world: &mut World, step: Step) -> Option<()> {
        match step {
            Step::NodeDeleted => {
                world.node?;
                let lately = |lease: Lease| world.now - lease.renewed <= self.renews_every;
                let reports = world.is_reporting() && world.lease.is_some_and(lately);
                let cut_off = world.machine.power == Power::On && !reports;
                if cut_off && !self.breaks(Axiom::CutOffNodesAreKept) {
                    return None;
                }
                let starts = world.machine.registered && !world.machine.renewed && world.lease.is_some();
                if starts && !self.breaks(Axiom::RenewsWhenItStarts) {
                    return None;
                }
                world.budget.node_deletions = world.budget.node_deletions.checked_sub(1)?;
                world.node = None;
            }
            Step::LeaseCollected => {
                world.lease.filter(|lease| world.node.is_none_or(|node| node.uid != lease.uid))?;
                world.lease = None;
            }
            Step::NotReady => {
                let node = world.node.as_mut().filter(|node| node.ready)?;
                world.lease.is_none_or(|lease| world.now - lease.renewed > self.renews_every).then_some(())?;
                node.ready = false;
            }
            Step::PodDeleted => {
                world.first_pod().filter(|pod| !pod.deleted && !pod.failed)?;
                world.budget.pod_deletions = world.budget.pod_deletions.checked_sub(1)?;
                world.write(|pod| pod.deleted = true)?;
            }
            Step::Bound => {
                world.first_pod().filter(|pod| !pod.bound && !pod.failed && !pod.deleted)?;
                world.write(|pod| pod.bound = true)?;
            }
            _ => return None,
        }
        Some(())
    }

    /// Evidence may be written if the device reports off and the Lease was not renewed for as long as a running kubelet would have
    /// taken, or if an operator confirms it.
    fn evidence(&self, world: &mut World, by_person: bool) -> Option<()> {
        let node = world.node.filter(|_| world.evidence.is_none())?;
        let renewed = world.lease.map(|lease| lease.renewed);
        let unreachable = renewed.is_none_or(|at| u64::from(world.now - at) * self.tick >= 15);
        let off = world.machine.power == Power::Off;
        let may_write = if by_person {
            off || self.breaks(Axiom::PeopleAreRight)
        } else {
            (unreachable || self.has_plant(Plant::NoLease)) && (off || world.machine.device_miswired)
        };
        world.budget.evidence = world.budget.evidence.checked_sub(1).filter(|_| may_write)?;
        world.evidence = Some(FenceEvidence { node: node.uid, boot: node.boot, by_person, renewed });
        Some(())
    }
}

/// The StatefulSet controller creates the next pod as soon as the name is free.
fn successor(world: &mut World) -> Option<()> {
    if world.pod.is_some() {
        return None;
    }
    let uid = if world.runs(2) || world.runs(3) { 3 } else { 2 };
    world.pod = Some(PodObject {
        uid,
        version: 1,
        bound: true,
        deleted: false,
        observed: 1,
        running: true,
        failed: false,
        busy: false,
    });
    world.start(uid);
    Some(())
}
