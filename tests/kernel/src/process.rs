//! Model of one pod-safety process: what its watches delivered, what it has read, and the force delete that it has begun. It calls the
//! shipped kernel for every decision and keeps the values that the kernel returned.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use pod_safety_model::{Incarnation, Mono, Pod};
use pod_safety_proof::{AbsenceRead, Evidence, LastHeartbeat, Liveness, PodVersion, Renewal, ReportKind};

use crate::objects;
use crate::search::Scope;
use crate::world::{Lease, Node, ObservedAt, PodObject, World};

/// A gap of the watch that may remain undetected (15 s), rounded up to whole ticks by [`Scope`].
pub(crate) const BREAK_SECONDS: u64 = 15;

/// A kubelet that starts may watch no pods for so long.
const START_SECONDS: u64 = 15;

/// Evidence that the kernel made, kept in a state of the search with a digest. Two are equal if their digests are.
#[derive(Clone, Debug)]
pub struct Held<S>(pub(crate) Arc<Evidence<S>>, u64);

impl<S: std::fmt::Debug> Held<S> {
    pub(crate) fn new(evidence: Evidence<S>) -> Self {
        let mut digest = DefaultHasher::new();
        format!("{evidence:?}").hash(&mut digest);
        Self(Arc::new(evidence), digest.finish())
    }
}

impl<S> PartialEq for Held<S> {
    fn eq(&self, other: &Self) -> bool {
        self.1 == other.1
    }
}

impl<S> Eq for Held<S> {}

impl<S> Hash for Held<S> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.1.hash(state);
    }
}

/// The pod, as it was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CachedPod {
    /// The object.
    pub object: PodObject,
    /// When the process observed it.
    pub seen: ObservedAt,
}

/// The Lease, as it was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CachedLease {
    /// No Lease was observed since this process started.
    Never,
    /// The Lease exists.
    There(Lease),
    /// The Lease was deleted in that tick.
    Gone(u8),
}

/// The last report of a kubelet before its Node was deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LastReport {
    at: u8,
    until: u8,
}

/// The Node is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Absence {
    since: u8,
    before: Option<LastReport>,
    /// This process observed the deletion of the Node.
    deletion_observed: bool,
    /// The first read.
    pub(crate) first: Option<FirstRead>,
}

/// The result of the first read of a missing Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FirstRead {
    /// Tick at which the read was sent.
    pub sent_at: u8,
    /// Tick at which the read was answered.
    pub answered_at: u8,
    /// The Lease at that time.
    pub lease: Option<Lease>,
}

/// Two reads in flight: of the Node and of its Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reads {
    /// Tick at which the reads were sent.
    pub sent_at: u8,
    /// The answer about the Node, once it has arrived.
    pub node: Option<Option<Node>>,
    /// The answer about the Lease, once it has arrived.
    pub lease: Option<Option<Lease>>,
    /// The first read, if these reads are to confirm it.
    pub first: Option<FirstRead>,
    /// The pod that was claimed before.
    pub claimed: Option<(u8, u8)>,
}

/// A force delete that has begun.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PendingDelete {
    /// The evidence that permits it.
    pub evidence: Held<PodVersion>,
    /// The version in the answer to the PATCH.
    pub answer: Option<u8>,
}

/// The process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    /// The pod.
    pub pod: Option<CachedPod>,
    /// The Node, by its UID.
    pub node: Option<u8>,
    /// The Lease.
    pub lease: CachedLease,
    /// When a renewal was observed.
    pub renewed_at: Option<u8>,
    /// When a renewal was observed that a kubelet makes when it starts.
    pub started_at: Option<u8>,
    /// When a report about a pod was observed.
    pub reported_at: Option<u8>,
    /// The Node is missing.
    pub absence: Option<Absence>,
    /// Since when the watch of Leases has had no gap.
    pub watching_since: u8,
    /// When the watch last delivered something.
    pub last_contact: u8,
    /// Reads in flight.
    pub reads: Option<Reads>,
    /// When the device reported off.
    pub checked_off_at: Option<u8>,
    /// The incarnation that was verified.
    pub verified: Option<Held<Incarnation>>,
    /// The pod that was claimed before the verification.
    pub claimed: Option<(u8, u8)>,
    /// The force delete in progress.
    pub pending_delete: Option<PendingDelete>,
    /// Not delivered yet: a renewal of the Lease.
    pub lease_renewed: bool,
    /// Not delivered yet: a renewal that a kubelet makes when it starts.
    pub kubelet_started: bool,
    /// Not delivered yet: a kubelet's report about the pod.
    pub pod_reported: bool,
    /// Not delivered yet: a new Node.
    pub node_created: bool,
}

/// The streams of the watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    /// Pods.
    Pods,
    /// Nodes.
    Nodes,
    /// Leases.
    Leases,
}

impl Process {
    /// A process that starts, and lists everything.
    pub(crate) fn begin(now: u8, pod: Option<PodObject>, node: Option<Node>, lease: Option<Lease>) -> Self {
        let seen = |pod: &PodObject| ObservedAt { deletion: if pod.deleted { now } else { 0 }, maybe_known: true };
        let pod = pod.map(|object| CachedPod { object, seen: seen(&object) });
        Self {
            pod,
            node: node.map(|node| node.uid),
            lease: lease.map_or(CachedLease::Never, CachedLease::There),
            renewed_at: None,
            started_at: None,
            reported_at: None,
            absence: node.is_none().then_some(Absence {
                since: now,
                before: None,
                deletion_observed: false,
                first: None,
            }),
            watching_since: now,
            last_contact: now,
            reads: None,
            checked_off_at: None,
            verified: None,
            claimed: None,
            pending_delete: None,
            lease_renewed: false,
            kubelet_started: false,
            pod_reported: false,
            node_created: false,
        }
    }

    /// Called for a write of the pod: notes whether the cache would count it as a write of the kubelet.
    pub(crate) fn on_write(&mut self, before: &PodObject, after: &PodObject) {
        let seen = ObservedAt { deletion: 0, maybe_known: false };
        let (before, after) = (objects::pod(before, seen, 1, 1), objects::pod(after, seen, 1, 1));
        self.pod_reported |= after.was_updated_by_kubelet(&before);
    }
}

/// A watch delivers all pending changes. `None`: there are none.
pub(crate) fn deliver(world: &mut World, stream: Stream, scope: &Scope) -> Option<()> {
    let now = world.now;
    match stream {
        Stream::Pods => pods(world, now),
        Stream::Nodes => nodes(world, now, scope),
        Stream::Leases => leases(world, now, scope),
    }
}

fn pods(world: &mut World, now: u8) -> Option<()> {
    let process = &mut world.process;
    let before = process.pod;
    if before.map(|cached| cached.object) == world.pod && !process.pod_reported {
        return None;
    }
    if std::mem::take(&mut process.pod_reported) {
        process.reported_at = Some(now);
    }
    process.pod = world.pod.map(|object| {
        let reported = object.observed >= if object.deleted { 2 } else { 1 };
        let seen = match before.filter(|cached| cached.object.uid == object.uid) {
            Some(CachedPod { object: before, seen }) if before.deleted => {
                ObservedAt { maybe_known: seen.maybe_known || reported, ..seen }
            }
            Some(_) if object.deleted => ObservedAt { deletion: now, maybe_known: reported },
            None if object.deleted => ObservedAt { deletion: now, maybe_known: true },
            Some(_) | None => ObservedAt { deletion: 0, maybe_known: true },
        };
        CachedPod { object, seen }
    });
    Some(())
}

fn nodes(world: &mut World, now: u8, scope: &Scope) -> Option<()> {
    let process = &mut world.process;
    let uid = world.node.map(|node| node.uid);
    let came = std::mem::take(&mut process.node_created);
    if process.node == uid && !came {
        return None;
    }
    process.node = uid;
    if came {
        process.started_at = Some(now);
    }
    let unbroken = now - process.last_contact <= scope.break_ticks();
    let gone_at = if let CachedLease::Gone(at) = process.lease { Some(at) } else { None };
    let at = process.renewed_at.unwrap_or(0).max(process.watching_since);
    let before = (unbroken && scope.follows_heartbeats()).then_some(LastReport { at, until: gone_at.unwrap_or(now) });
    process.absence = uid.is_none().then_some(Absence { since: now, before, deletion_observed: true, first: None });
    Some(())
}

fn leases(world: &mut World, now: u8, scope: &Scope) -> Option<()> {
    let process = &mut world.process;
    let moved = std::mem::take(&mut process.lease_renewed);
    let after = match (world.lease, process.lease) {
        (Some(lease), _) => CachedLease::There(lease),
        (None, CachedLease::There(_)) => CachedLease::Gone(now),
        // The Lease was created and deleted in between.
        (None, CachedLease::Never) if moved => CachedLease::Gone(now),
        (None, before) => before,
    };
    if process.lease == after && !moved && (process.last_contact == now || !scope.follows_heartbeats()) {
        return None;
    }
    if scope.follows_heartbeats() {
        if now - process.last_contact > scope.break_ticks() {
            process.watching_since = now;
        }
        process.last_contact = now;
    }
    if moved {
        process.renewed_at = Some(now);
    }
    if std::mem::take(&mut process.kubelet_started) {
        process.started_at = Some(now);
    }
    process.lease = after;
    Some(())
}

/// The kernel's view of the cache.
pub(crate) struct View<'a> {
    process: &'a Process,
    scope: &'a Scope,
    first: Option<AbsenceRead>,
}

impl<'a> View<'a> {
    pub(crate) fn new(process: &'a Process, scope: &'a Scope) -> Self {
        let witness = process.absence.and_then(|absence| absence.first);
        Self { process, scope, first: witness.and_then(|first| scope.first_read(&first)) }
    }
}

impl Liveness for View<'_> {
    // Within the horizon of 150 s no watch is so far behind.
    fn is_current(&self, _now: Mono) -> bool {
        true
    }

    fn first_read(&self, _node: &str) -> Option<&AbsenceRead> {
        self.first.as_ref()
    }

    fn last_heartbeat(&self, _node: &str) -> Option<LastHeartbeat> {
        let lease = self.process.renewed_at.map(|at| (at, ReportKind::LeaseRenewed));
        let report = self.process.reported_at.map(|at| (at, ReportKind::PodReported));
        let last = lease.into_iter().chain(report).max_by_key(|(at, _)| *at);
        last.map(|(at, sign)| LastHeartbeat { kind: sign, at: self.scope.mono(at) })
    }

    fn lease(&self, _node: &str) -> Option<Option<Timestamp>> {
        let CachedLease::There(lease) = self.process.lease else { return None };
        Some(Some(objects::timestamp(lease.renewed)))
    }

    fn lease_is_gone(&self, _node: &str) -> bool {
        !matches!(self.process.lease, CachedLease::There(_))
    }

    fn renewal(&self, _node: &str) -> Option<Renewal> {
        let renewed = match self.process.lease {
            CachedLease::There(lease) => Some(objects::timestamp(lease.renewed)),
            CachedLease::Never | CachedLease::Gone(_) => None,
        };
        Some(Renewal { at: self.scope.mono(self.process.renewed_at?), renewed })
    }

    fn unreachable_before_node_deleted(&self, node: &str) -> bool {
        let sign = self.last_heartbeat(node).map(|sign| sign.at);
        let before = self.process.absence.and_then(|absence| absence.before);
        before.is_some_and(|before| {
            let at = sign.map_or(self.scope.mono(before.at), |sign| sign.max(self.scope.mono(before.at)));
            let needed = Duration::from_secs(self.scope.lease_seconds + BREAK_SECONDS);
            self.scope.mono(before.until).since(at) >= needed
        })
    }

    fn reports_deletions(&self, _node: &str) -> bool {
        self.scope.reports_observed_generation && self.process.absence.is_some_and(|absence| absence.deletion_observed)
    }

    fn may_have_just_started(&self, _pod: &Pod, _node: &str) -> bool {
        let times = self.process.started_at.zip(self.process.absence);
        times.is_some_and(|(started_at, absence)| {
            u64::from(absence.since.saturating_sub(started_at)) * self.scope.tick <= START_SECONDS + BREAK_SECONDS
        })
    }
}

/// Records a first read, if the Node has been missing since then.
pub(crate) fn first_read_of(process: &mut Process, first: FirstRead) -> Option<()> {
    let absence = process.absence.as_mut().filter(|absence| first.sent_at >= absence.since)?;
    absence.first = Some(first);
    Some(())
}
