//! The state of a small world: the objects of the API server, one machine, the requests in flight, and one pod-safety process.

use crate::objects::{NODE, OTHER_NODE};
use crate::process::Process;

/// A pod `db-0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PodObject {
    /// 1 for the first pod of that name, then its successors.
    pub uid: u8,
    /// Increases with each write.
    pub version: u8,
    /// It is bound to a node.
    pub bound: bool,
    /// It was deleted gracefully.
    pub deleted: bool,
    /// The `observedGeneration` that its kubelet reported; 0: none.
    pub observed: u8,
    /// Its kubelet reported a running container.
    pub running: bool,
    /// Its phase is terminal.
    pub failed: bool,
    /// Its last report shows a container that is being started, so the kubelet's worker may be busy.
    pub busy: bool,
}

impl PodObject {
    /// The node that it is bound to: the node in doubt for the first pod, the other one for successors.
    pub(crate) const fn node(&self) -> Option<&'static str> {
        match (self.bound, self.uid) {
            (false, _) => None,
            (true, 1) => Some(NODE),
            (true, _) => Some(OTHER_NODE),
        }
    }
}

/// When this process observed a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObservedAt {
    /// The deletion, for the first time.
    pub deletion: u8,
    /// Its kubelet may have received the deletion earlier.
    pub maybe_known: bool,
}

/// The Node in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// 1 for the first Node of that name, then its successors.
    pub uid: u8,
    /// Increases with each write that a taint depends on.
    pub version: u8,
    /// The boot that it reports.
    pub boot: u8,
    /// Its Ready condition.
    pub ready: bool,
    /// It has the out-of-service taint.
    pub tainted: bool,
}

/// The Lease of its kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// 1 for the first Lease of that name, then its successors.
    pub uid: u8,
    /// The tick of the last renewal.
    pub renewed: u8,
}

/// A FenceEvidence about the node in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FenceEvidence {
    /// UID of the Node.
    pub node: u8,
    /// The boot of the machine.
    pub boot: u8,
    /// An operator confirmed it; else a device reported it.
    pub by_person: bool,
    /// The Lease's `renewTime` at that time.
    pub renewed: Option<u8>,
}

/// The power of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Power {
    /// The machine has power.
    On,
    /// The machine has no power.
    Off,
    /// The machine was powered on in that tick.
    Boots(u8),
}

/// The machine in doubt, and its kubelet.
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
    /// Its kubelet has renewed the Lease since it started.
    pub renewed: bool,
    /// Its kubelet has the first pod in its memory.
    pub listed: bool,
    /// Since when its kubelet knows that the pod was deleted.
    pub deletion_seen_at: Option<u8>,
    /// Its kubelet terminated the pod, and will not start it again.
    pub terminated: bool,
    /// Its kubelet's worker starts another container of the pod, and does nothing else until that is done.
    pub busy: bool,
    /// Its fence device is wired to another machine, which is off.
    pub device_miswired: bool,
}

/// A request to the API server, as decoded from its bytes. 0: not named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sent {
    /// DELETE with grace period 0; else a PATCH to phase Failed.
    pub removes: bool,
    /// The UID precondition.
    pub uid: u8,
    /// The resourceVersion precondition.
    pub version: u8,
}

/// What the adversary may still do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AdversaryBudget {
    /// Disconnect the kubelet.
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
    /// Requests in flight at the same time.
    pub sent: u8,
    /// The watches may be behind.
    pub lag: bool,
}

/// Errors of the kernel or its guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KernelError {
    /// The guard refused a request of the kernel.
    GuardRefused,
    /// The guard accepted a request with the permit of another.
    GuardFooled,
    /// A request names another UID or version than the evidence.
    OtherSubject,
}

/// Kinds of evidence that released a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Released {
    /// By `NodeGone`, and the kubelet was unreachable before.
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
    /// Requests in flight.
    pub sent: Vec<Sent>,
    /// Our process.
    pub process: Process,
    /// What the adversary may still do.
    pub budget: AdversaryBudget,
    /// The error of the kernel or its guard, if any.
    pub error: Option<KernelError>,
    /// A machine that is off may since be reported as a stopped instance, and a stopped instance as a terminated one.
    /// No later report is weaker.
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

    /// The first pod, while it still has the name.
    pub(crate) fn first_pod(&self) -> Option<PodObject> {
        self.pod.filter(|pod| pod.uid == 1)
    }

    /// Whether the kubelet runs and reaches the API server.
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

    /// Applies a request like the API server: compares, then writes. Returns the version of the answer.
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
