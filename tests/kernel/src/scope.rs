//! The size of a world, its initial state, the broken axiom and the planted bug.

use std::time::Duration;

use pod_safety_model::Mono;
use pod_safety_proof::{AbsenceRead, QuorumRead};

use crate::objects;
use crate::process::{self, FirstRead, Process};
use crate::world::{AdversaryBudget, Lease, Machine, Node, PodObject, Power, Released, World};

/// Assumptions about the environment. A search breaks at most one, and must then find a counterexample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axiom {
    /// Nobody deletes the Node of a kubelet that is isolated, or has not reported since it was; nor is the kubelet isolated later.
    /// docs/assumptions.md: cut-off-nodes-are-kept
    CutOffNodesAreKept,
    /// A kubelet that reaches the API server receives a deletion and reports what it runs within a tick, and terminates a pod
    /// within its grace period.
    /// docs/assumptions.md: answers-when-free
    AnswersInTime,
    /// A kubelet that starts registers its Node, and writes to a pod, before it starts the pod's containers.
    /// docs/assumptions.md: writes-before-it-starts
    WritesBeforeItStarts,
    /// A kubelet that starts renews its Lease, if there is one, before its Node is deleted. This process watches from its start
    /// until it lists its pods.
    /// docs/assumptions.md: renews-when-it-starts
    RenewsWhenItStarts,
    /// A kubelet whose worker starts a container has reported that before.
    /// docs/assumptions.md: says-what-it-starts
    ReportsWhatItStarts,
    /// A starting kubelet lists the current state of its pods.
    /// docs/assumptions.md: lists-the-present
    ListsThePresent,
    /// A device that switches the wrong machine is noticed, because the kubelet of the node still reports.
    /// docs/assumptions.md: device-is-the-nodes
    MisnamedDevicesAreNoticed,
    /// An operator who confirms that a machine is off is right.
    /// docs/assumptions.md: people-are-right
    PeopleAreRight,
    /// The process claims a pod at its current version before it reads the node.
    /// docs/assumptions.md: claims-before-it-reads
    ClaimsBeforeItReads,
}

/// A bug planted around the kernel: it replaces one check, or invents one fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// The boot ID is not compared.
    NoBootId,
    /// Neither the Lease nor the Ready condition is checked.
    NoLease,
    /// The pod's node is not compared with the claim's.
    NodeOfTheClaim,
    /// Pods of a kubelet that reported recently are not deleted gracefully first.
    NoSignal,
    /// A worker that may be busy is treated as free.
    NeverBusy,
    /// A kubelet that may have just started is treated as one that watches its pods.
    NeverJustStarted,
    /// Neither verified facts nor the force delete expire.
    NoExpiry,
    /// The quarantine counts from the claim, not from the first read.
    NoQuarantine,
    /// The requests name no version.
    NoVersion,
    /// The requests name neither version nor UID.
    NoIdentity,
    /// A terminal phase is enough, whatever still runs.
    PhaseAlone,
    /// The request is about another pod than its permit.
    OtherPermit,
    /// A starting process treats a pod that is already deleted as newly deleted.
    DeletionIsNew,
}

/// The size of a world.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// Seconds of a tick.
    pub tick: u64,
    /// `leaseDurationSeconds`.
    pub lease_seconds: u64,
    /// Ticks between two renewals.
    pub renews_every: u8,
    /// Ticks of the quarantine.
    pub quarantine: u8,
    /// Ticks of the pod's grace period.
    pub grace: u8,
    /// Ticks after which the search stops.
    pub horizon: u8,
    /// The kubelet reports `observedGeneration`.
    pub reports_observed_generation: bool,
    /// What the adversary may still do.
    pub budget: AdversaryBudget,
    /// Whether an operator confirms the evidence; else a device provides it.
    pub by_person: bool,
    /// The device is a cloud provider: the instance is stopped while it may start again, and terminated when it never will.
    pub of_provider: bool,
    /// Initial states of the world.
    pub begins: &'static [Begin],
    /// Kinds of evidence that the search must find to release a pod.
    pub releases: &'static [Released],
    /// The axiom that is broken.
    pub broken: Option<Axiom>,
    /// The bug that is planted.
    pub plant: Option<Plant>,
}

/// An initial state of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// The pod runs, and its kubelet has reported that.
    Running,
    /// The pod is bound, and its kubelet has not started it yet.
    Bound,
    /// The pod is bound to no node.
    Unbound,
    /// The pod runs, and the device of its machine is wired to another machine.
    Misnamed,
    /// The pod runs, and another client has set its phase to Failed.
    CalledFailed,
    /// The pod runs, and its kubelet's worker is busy with a second container for any length of time.
    Busy,
}

impl Scope {
    /// A moment on the monotonic clock.
    pub(crate) fn mono(&self, tick: u8) -> Mono {
        objects::mono(tick, self.tick)
    }

    pub(crate) fn quarantine(&self) -> Duration {
        Duration::from_secs(u64::from(self.quarantine) * self.tick)
    }

    /// Ticks of a watch gap that may remain undetected.
    pub(crate) const fn break_ticks(&self) -> u8 {
        (process::BREAK_SECONDS / self.tick) as u8
    }

    /// Whether a kubelet can be unreachable for long enough before its Node is deleted; else the state keeps no heartbeats.
    pub(crate) const fn follows_heartbeats(&self) -> bool {
        self.lease_seconds + process::BREAK_SECONDS <= self.horizon as u64 * self.tick
    }

    pub(crate) fn breaks(&self, axiom: Axiom) -> bool {
        self.broken == Some(axiom)
    }

    pub(crate) fn has_plant(&self, plant: Plant) -> bool {
        self.plant == Some(plant)
    }

    /// The first read, made by the kernel from the bytes of the answers.
    pub(crate) fn first_read(&self, first: &FirstRead) -> Option<AbsenceRead> {
        let lease = first.lease.and_then(|lease| objects::lease(&lease, self.lease_seconds));
        let times = (self.mono(first.sent_at), self.mono(first.answered_at));
        AbsenceRead::from_read(QuorumRead::decode(objects::NODE, times, None, lease.as_ref()).ok()?)
    }

    pub(crate) fn begin(&self, begin: Begin) -> World {
        let runs = matches!(begin, Begin::Running | Begin::Misnamed | Begin::CalledFailed | Begin::Busy);
        let starts = begin == Begin::Busy;
        let busy = starts && !self.breaks(Axiom::ReportsWhatItStarts);
        let failed = begin == Begin::CalledFailed;
        let observed = u8::from(self.reports_observed_generation && begin != Begin::Unbound);
        let bound = begin != Begin::Unbound;
        let pod = PodObject { uid: 1, version: 1, bound, deleted: false, observed, running: runs, failed, busy };
        let node = Node { uid: 1, version: 1, boot: 1, ready: true, tainted: false };
        let lease = Lease { uid: 1, renewed: 0 };
        let machine = Machine {
            power: Power::On,
            boot: 1,
            connected: true,
            registered: true,
            renewed: true,
            listed: bound,
            deletion_seen_at: None,
            terminated: false,
            busy: starts,
            device_miswired: begin == Begin::Misnamed,
        };
        World {
            now: 0,
            pod: Some(pod),
            node: Some(node),
            nodes: 1,
            lease: Some(lease),
            evidence: None,
            machine,
            processes: if runs { 2 } else { 0 },
            sent: Vec::new(),
            process: Process::begin(0, Some(pod), Some(node), Some(lease)),
            budget: self.budget,
            error: None,
            released: None,
        }
    }
}
