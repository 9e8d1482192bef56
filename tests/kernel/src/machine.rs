//! The machine under suspicion and its kubelet: the steps of each, and the deadlines that the axioms set.

use crate::search::{Axiom, Scope};
use crate::world::{Lease, Node, Power, World};

/// Steps of the kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kubelet {
    /// Renews its Lease and its Node's condition.
    Renews,
    /// Registers its Node, or the boot of its machine.
    Registers,
    /// Lists its pods.
    Lists,
    /// Starts the process.
    Starts,
    /// Reports that the process runs.
    Reports,
    /// Receives the deletion of the pod, and acknowledges it if the kubelet is recent enough.
    Receives,
    /// Terminates the process.
    Terminates,
    /// Reports that the process terminated.
    ReportsEnd,
    /// Removes the pod that it terminated.
    Removes,
    /// Restarts; the process of the pod keeps running.
    Restarts,
    /// The kubelet's worker has started its container and is free again.
    IsFree,
}

impl Kubelet {
    /// All of them.
    pub(crate) const ALL: [Self; 11] = [
        Self::Renews,
        Self::Registers,
        Self::Lists,
        Self::Starts,
        Self::Reports,
        Self::Receives,
        Self::Terminates,
        Self::ReportsEnd,
        Self::Removes,
        Self::Restarts,
        Self::IsFree,
    ];
}

/// Applies a step of the kubelet, if the step is possible.
pub(crate) fn kubelet(world: &mut World, step: Kubelet, scope: &Scope) -> Option<()> {
    let on = world.machine.power == Power::On;
    let reports = world.is_reporting();
    let pod = world.first_pod();
    match step {
        Kubelet::Renews if reports => renew(world),
        Kubelet::Registers if reports => register(world),
        Kubelet::Lists if reports && !world.machine.listed && !world.machine.terminated => list(world, scope),
        Kubelet::Starts if on && world.machine.listed && !world.machine.terminated && !world.runs(1) => {
            world.start(1);
            Some(())
        }
        Kubelet::Reports if reports && world.runs(1) && !pod?.running && !pod?.failed => {
            world.write(|pod| pod.running = true)
        }
        Kubelet::Receives
            if reports
                && world.machine.listed
                && !world.machine.busy
                && world.machine.deletion_seen_at.is_none()
                && pod?.deleted =>
        {
            world.machine.deletion_seen_at = Some(world.now);
            if scope.reports_observed_generation { world.write(|pod| pod.observed = 2) } else { Some(()) }
        }
        Kubelet::Terminates if on && world.machine.deletion_seen_at.is_some() && !world.machine.terminated => {
            world.end(1);
            world.machine.terminated = true;
            Some(())
        }
        Kubelet::ReportsEnd if reports && world.machine.terminated && !pod?.failed => world.write(|pod| {
            (pod.running, pod.failed) = (false, true);
        }),
        Kubelet::Removes if reports && world.machine.terminated && pod?.failed => {
            world.pod = None;
            Some(())
        }
        Kubelet::Restarts if on && world.budget.kubelet_restarts > 0 => {
            world.budget.kubelet_restarts -= 1;
            let machine = &mut world.machine;
            (machine.registered, machine.renewed, machine.listed, machine.busy) = (false, false, false, false);
            Some(())
        }
        Kubelet::IsFree if on && world.machine.busy => {
            world.machine.busy = false;
            Some(())
        }
        _ => None,
    }
}

/// Without its Node the kubelet cannot create its Lease: the Lease would have no owner.
fn renew(world: &mut World) -> Option<()> {
    let (now, starts) = (world.now, !world.machine.renewed);
    let restarts = starts && world.lease.is_some();
    match &mut world.lease {
        Some(lease) if lease.renewed == now && !starts => return None,
        Some(lease) => lease.renewed = now,
        None => world.lease = Some(Lease { uid: world.node?.uid, renewed: now }),
    }
    world.machine.renewed = true;
    world.process.lease_renewed = true;
    world.process.kubelet_started |= restarts;
    if let Some(node) = &mut world.node
        && node.boot == world.machine.boot
    {
        node.ready = true;
    }
    Some(())
}

/// A kubelet registers when it starts and never again: if its Node is deleted later, the Node stays away.
fn register(world: &mut World) -> Option<()> {
    let boot = world.machine.boot;
    if std::mem::replace(&mut world.machine.registered, true) {
        return None;
    }
    match &mut world.node {
        Some(node) => (node.boot, node.ready) = (boot, true),
        None => {
            world.nodes += 1;
            let node = Node { uid: world.nodes, version: 1, boot, ready: true, tainted: false };
            world.node = Some(node);
            world.process.node_created = true;
        }
    }
    Some(())
}

/// The kubelet starts pods that are neither deleted nor finished. Before it starts a container it writes to the pod. It reads
/// no pods before it has found its Node.
/// docs/assumptions.md: watches-once-registered
fn list(world: &mut World, scope: &Scope) -> Option<()> {
    world.node?;
    if !world.machine.registered && !scope.breaks(Axiom::WritesBeforeItStarts) {
        return None;
    }
    let from_the_past = scope.breaks(Axiom::ListsThePresent) && world.first_pod().is_none();
    if !from_the_past {
        let pod = world.first_pod().filter(|pod| pod.bound && !pod.failed)?;
        if !world.runs(1) && pod.deleted {
            return None;
        }
        if !world.runs(1) && !scope.breaks(Axiom::WritesBeforeItStarts) {
            world.write(|pod| pod.running = false)?;
        }
    }
    world.machine.listed = true;
    Some(())
}

/// Whether everything that the axioms promise within a tick has been done, so that the tick may end.
pub(crate) fn may_tick(world: &World, scope: &Scope) -> bool {
    let machine = &world.machine;
    let renewed = world.lease.map(|lease| lease.renewed);
    let must_renew = world.is_reporting() && (world.node.is_some() || world.lease.is_some());
    let late = renewed.is_none_or(|at| world.now + 1 - at > scope.renews_every);
    if must_renew && (late || !machine.renewed) {
        return false;
    }
    if scope.breaks(Axiom::AnswersInTime) || machine.power != Power::On {
        return true;
    }
    if world.is_reporting() && !machine.registered {
        return false;
    }
    let to_list = world.first_pod().is_some_and(|pod| pod.bound && !pod.failed && (world.runs(1) || !pod.deleted));
    if world.is_reporting() && world.node.is_some() && to_list && !machine.listed && !machine.terminated {
        return false;
    }
    let over = machine.deletion_seen_at.is_some_and(|seen_at| world.now >= seen_at + scope.grace);
    if over && !machine.terminated {
        return false;
    }
    let Some(pod) = world.first_pod().filter(|_| world.is_reporting() && machine.listed) else { return true };
    let unreceived = pod.deleted && machine.deletion_seen_at.is_none() && world.runs(1) && !machine.busy;
    let unreported = world.runs(1) && !pod.running && !pod.failed;
    let unreported_end = machine.terminated && !pod.failed;
    !(unreceived || unreported || unreported_end)
}
