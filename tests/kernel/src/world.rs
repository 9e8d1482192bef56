//! The state of a small world: what the API server has, one machine, the requests under way, and one process of ours.

use crate::objects::{NODE, OTHER_NODE};
use crate::process::Process;

/// A pod `db-0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PodObject {
    /// Which one of that name: 1, then its successors.
    pub uid: u8,
    /// Counts writes.
    pub version: u8,
    /// It is bound to a node.
    pub bound: bool,
    /// It was deleted gracefully.
    pub deleted: bool,
    /// The generation that its kubelet reported about; 0: it never says.
    pub observed: u8,
    /// Its kubelet reported a container that runs.
    pub running: bool,
    /// Its phase is terminal.
    pub failed: bool,
    /// By its last report a container is being started, so its kubelet's worker may be busy.
    pub busy: bool,
}

impl PodObject {
    /// The node that it is bound to: the first pod to the doubtful one, successors to the other.
    pub(crate) const fn node(&self) -> Option<&'static str> {
        match (self.bound, self.uid) {
            (false, _) => None,
            (true, 1) => Some(NODE),
            (true, _) => Some(OTHER_NODE),
        }
    }
}

/// When this process saw a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObservedAt {
    /// Deleted, for the first time.
    pub deletion: u8,
    /// Its kubelet may have known of the deletion before.
    pub maybe_known: bool,
}

/// The Node of the doubtful machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// Which one of that name.
    pub uid: u8,
    /// Counts writes, where a taint depends on them.
    pub version: u8,
    /// The boot that it reports.
    pub boot: u8,
    /// Its condition Ready.
    pub ready: bool,
    /// It is declared out of service.
    pub tainted: bool,
}

/// The Lease of its kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// Which one of that name.
    pub uid: u8,
    /// The tick of the last renewal.
    pub renewed: u8,
}

/// A FenceEvidence about the doubtful node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FenceEvidence {
    /// The Node.
    pub node: u8,
    /// The boot.
    pub boot: u8,
    /// A person confirmed it; else a device did.
    pub by_person: bool,
    /// The Lease's `renewTime` then.
    pub renewed: Option<u8>,
}

/// The power of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Power {
    /// It runs.
    On,
    /// It does not.
    Off,
    /// It was powered on in that tick.
    Boots(u8),
}

/// The doubtful machine, and its kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Machine {
    /// Its power.
    pub power: Power,
    /// How often it booted.
    pub boot: u8,
    /// Its kubelet reaches the API server.
    pub connected: bool,
    /// Its kubelet registered its Node since it started.
    pub registered: bool,
    /// Its kubelet has the first pod in its memory.
    pub listed: bool,
    /// Since when its kubelet knows that the pod was deleted.
    pub deletion_seen_at: Option<u8>,
    /// Its kubelet terminated the pod, and starts it no more.
    pub terminated: bool,
    /// Its kubelet's worker starts a container of the pod beside the one that runs, and does nothing else until that is done.
    pub busy: bool,
    /// The device that is said to switch it switches another one, which is off.
    pub device_miswired: bool,
}

/// A request on its way to the API server, as its bytes say. 0: they do not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sent {
    /// DELETE with grace 0; else a PATCH to phase Failed.
    pub removes: bool,
    /// The UID that it names.
    pub uid: u8,
    /// The version that it names.
    pub version: u8,
}

/// What the adversary may do yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AdversaryBudget {
    /// Cut the kubelet off.
    pub cuts: u8,
    /// Delete the Node.
    pub node_deletions: u8,
    /// Delete the pod gracefully.
    pub pod_deletions: u8,
    /// Cut the power.
    pub outages: u8,
    /// Power the machine on.
    pub boots: u8,
    /// Restart our process.
    pub restarts: u8,
    /// Restart the kubelet.
    pub kubelet_restarts: u8,
    /// Write evidence.
    pub evidence: u8,
    /// Requests at once on their way.
    pub sent: u8,
    /// The watches may be behind.
    pub lag: bool,
}

/// What went wrong, if anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KernelError {
    /// The guard refused what an act of the kernel asked for.
    GuardRefused,
    /// The guard let a request pass with the permit for another.
    GuardFooled,
    /// A request names another UID or version than the evidence.
    OtherSubject,
}

/// Kinds of evidence that released a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Released {
    /// By `NodeGone`, and the kubelet had been silent before.
    NodeGone,
    /// By `PowerOff`.
    PowerOff,
    /// By `Confirmed`.
    Confirmed,
    /// By `KubeletTerminated`.
    KubeletTerminated,
    /// By `NeverScheduled`.
    NeverScheduled,
}

/// A state of the world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// The tick.
    pub now: u8,
    /// The pod that has the name.
    pub pod: Option<PodObject>,
    /// The Node.
    pub node: Option<Node>,
    /// How many Nodes of that name there were.
    pub nodes: u8,
    /// The Lease.
    pub lease: Option<Lease>,
    /// The evidence.
    pub evidence: Option<FenceEvidence>,
    /// The machine.
    pub machine: Machine,
    /// The processes that run, by the UID of their pod.
    pub processes: u8,
    /// Requests under way.
    pub sent: Vec<Sent>,
    /// Our process.
    pub process: Process,
    /// What may happen yet.
    pub budget: AdversaryBudget,
    /// What went wrong.
    pub error: Option<KernelError>,
    /// What released a pod last.
    pub released: Option<Released>,
}

impl World {
    /// Whether the process of that pod runs.
    pub(crate) const fn runs(&self, uid: u8) -> bool {
        self.processes & (1 << uid) != 0
    }

    pub(crate) const fn start(&mut self, uid: u8) {
        self.processes |= 1 << uid;
    }

    pub(crate) const fn end(&mut self, uid: u8) {
        self.processes &= !(1 << uid);
    }

    /// The first pod, if it has the name still.
    pub(crate) fn first_pod(&self) -> Option<PodObject> {
        self.pod.filter(|pod| pod.uid == 1)
    }

    /// The kubelet runs and reaches the API server.
    pub(crate) fn is_reporting(&self) -> bool {
        self.machine.connected && self.machine.power == Power::On
    }

    /// A write of the pod by its kubelet, or by others.
    pub(crate) fn write(&mut self, change: impl FnOnce(&mut PodObject)) -> Option<()> {
        let before = self.pod?;
        let pod = self.pod.as_mut()?;
        change(pod);
        pod.version += 1;
        let after = *pod;
        self.process.on_write(&before, &after);
        Some(())
    }

    /// Carries out a request, as the API server does: it compares, then writes. Gives back the version that it answers with.
    pub(crate) fn carry_out(&mut self, sent: Sent) -> Option<u8> {
        let pod = self.pod.filter(|pod| sent.uid == 0 || pod.uid == sent.uid)?;
        if sent.version != 0 && sent.version != pod.version {
            return None;
        }
        if sent.removes {
            self.pod = None;
            return Some(pod.version);
        }
        self.write(|pod| pod.failed = true)?;
        self.pod.map(|pod| pod.version)
    }
}
