//! How large a world is, how it begins, which axiom is broken, and which bug is planted.

use std::time::Duration;

use pod_safety_model::Mono;
use pod_safety_proof::{AbsenceRead, QuorumRead};

use crate::objects;
use crate::process::{self, FirstRead, Process};
use crate::world::{AdversaryBudget, Lease, Machine, Node, PodObject, Power, Released, World};

/// What must be true of the world outside. A search breaks one at most, and then finds why it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axiom {
    /// Nobody deletes the Node of a kubelet that is cut off, or has not reported yet since it was; nor is it cut off later.
    /// docs/assumptions.md: cut-off-nodes-are-kept
    CutOffNodesAreKept,
    /// A kubelet that reaches the API server receives a deletion and reports what it runs within a tick, and terminates a pod
    /// within its grace period.
    /// docs/assumptions.md: answers-when-free
    AnswersInTime,
    /// A kubelet that starts registers its Node, and writes to a pod, before it starts the pod's containers.
    /// docs/assumptions.md: writes-before-it-starts
    WritesBeforeItStarts,
    /// A kubelet whose worker starts a container has reported that before.
    /// docs/assumptions.md: says-what-it-starts
    ReportsWhatItStarts,
    /// A kubelet that starts lists its pods as they are.
    /// docs/assumptions.md: lists-the-present
    ListsThePresent,
    /// A device that switches another machine than it should is noticed, because the kubelet reports.
    /// docs/assumptions.md: device-is-the-nodes
    MisnamedDevicesAreNoticed,
    /// A person who confirms that a machine is off is right.
    /// docs/assumptions.md: people-are-right
    PeopleAreRight,
    /// Our process claims a pod at the version that it has before it reads the node.
    /// docs/assumptions.md: claims-before-it-reads
    ClaimsBeforeItReads,
}

/// A bug planted in what surrounds the kernel: one judgement is replaced, or one fact is invented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// The boot ID is not compared.
    NoBootId,
    /// Neither the Lease nor the condition Ready is looked at.
    NoLease,
    /// The pod's node is not compared with the claim's.
    NodeOfTheClaim,
    /// Pods of a kubelet that was active are not deleted gracefully first.
    NoSignal,
    /// A worker that may be busy is taken for one that is free.
    NeverBusy,
    /// What was found, and the act, do not expire.
    NoExpiry,
    /// The quarantine counts from the claim, not from the first read.
    NoQuarantine,
    /// The requests name no version.
    NoVersion,
    /// They name no UID either.
    NoIdentity,
    /// A terminal phase is enough, whatever runs.
    PhaseAlone,
    /// The request is about another pod than its permit.
    OtherPermit,
    /// A process that begins takes what is deleted for newly deleted.
    DeletionIsNew,
}

/// How large a world is.
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
    /// Ticks after which nothing is searched any more.
    pub horizon: u8,
    /// The kubelet reports `observedGeneration`.
    pub reports_observed_generation: bool,
    /// What the adversary may do.
    pub budget: AdversaryBudget,
    /// Whose evidence is written.
    pub by_person: bool,
    /// The device speaks for the provider of an instance: stopped while it may start again, and terminated when it never does.
    pub of_provider: bool,
    /// How the world begins.
    pub begins: &'static [Begin],
    /// Kinds of evidence that must be found to release a pod.
    pub releases: &'static [Released],
    /// The axiom that is broken.
    pub broken: Option<Axiom>,
    /// The bug that is planted.
    pub plant: Option<Plant>,
}

/// How a world begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// The pod runs, and its kubelet reported it.
    Running,
    /// The kubelet has it, and has not started it yet.
    Bound,
    /// It is bound to no node.
    Unbound,
    /// It runs, and the device that is said to switch its machine switches another.
    Misnamed,
    /// It runs, and somebody else called it Failed.
    CalledFailed,
    /// It runs, and its kubelet's worker starts a second container, for as long as it likes.
    Busy,
}

impl Scope {
    /// A moment.
    pub(crate) fn mono(&self, tick: u8) -> Mono {
        objects::mono(tick, self.tick)
    }

    pub(crate) fn quarantine(&self) -> Duration {
        Duration::from_secs(u64::from(self.quarantine) * self.tick)
    }

    /// A gap of the watch that may go unnoticed.
    pub(crate) const fn break_ticks(&self) -> u8 {
        (process::BREAK_SECONDS / self.tick) as u8
    }

    /// Whether a kubelet can have been silent for long enough before its Node goes; else nothing that tells is kept.
    pub(crate) const fn follows_heartbeats(&self) -> bool {
        self.lease_seconds + process::BREAK_SECONDS <= self.horizon as u64 * self.tick
    }

    pub(crate) fn breaks(&self, axiom: Axiom) -> bool {
        self.broken == Some(axiom)
    }

    pub(crate) fn has_plant(&self, plant: Plant) -> bool {
        self.plant == Some(plant)
    }

    /// The first read, made by the kernel from the bytes of its answers.
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
        let pod =
            PodObject { uid: 1, version: 1, bound, deleted: false, observed, running: runs, failed, busy };
        let node = Node { uid: 1, version: 1, boot: 1, ready: true, tainted: false };
        let lease = Lease { uid: 1, renewed: 0 };
        let machine = Machine {
            power: Power::On,
            boot: 1,
            connected: true,
            registered: true,
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
