//! One process of ours: what its watches delivered, what it has read, and the act that it has begun. It asks the shipped kernel
//! every question, and keeps the kernel's own answers.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use pod_safety_model::{Incarnation, Mono};
use pod_safety_proof::{AbsenceRead, Evidence, LastHeartbeat, Liveness, PodVersion, Renewal, ReportKind};

use crate::objects;
use crate::search::Scope;
use crate::world::{Lease, Node, ObservedAt, PodObject, World};

/// A gap of the watch that may go unnoticed (15 s), rounded up to whole ticks by [`Scope`].
pub(crate) const BREAK_SECONDS: u64 = 15;

/// Evidence that the kernel made, in a state of the search, and a digest of it. Two are equal if they say the same.
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
    /// When it was seen.
    pub seen: ObservedAt,
}

/// The Lease, as it was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CachedLease {
    /// There was none since this process began.
    Never,
    /// There is one.
    There(Lease),
    /// It went in that tick.
    Gone(u8),
}

/// What was heard of a kubelet before its Node went.
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
    /// This process saw the Node go.
    deletion_observed: bool,
    /// The first read.
    pub(crate) first: Option<FirstRead>,
}

/// What the first read of a missing Node found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FirstRead {
    /// Sent.
    pub sent_at: u8,
    /// Answered.
    pub answered_at: u8,
    /// The Lease then.
    pub lease: Option<Lease>,
}

/// Two reads under way: of the Node and of its Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reads {
    /// Sent.
    pub sent_at: u8,
    /// The answer about the Node, if it is there.
    pub node: Option<Option<Node>>,
    /// The answer about the Lease, if it is there.
    pub lease: Option<Option<Lease>>,
    /// The first read, which these shall confirm.
    pub first: Option<FirstRead>,
    /// The pod that was claimed before.
    pub claimed: Option<(u8, u8)>,
}

/// A force deletion that was begun.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PendingDelete {
    /// On what.
    pub evidence: Held<PodVersion>,
    /// The version that the PATCH was answered with.
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
    /// A renewal was seen.
    pub renewed_at: Option<u8>,
    /// A report on a pod was seen.
    pub reported_at: Option<u8>,
    /// The Node is missing.
    pub absence: Option<Absence>,
    /// The watch of Leases has had no gap since.
    pub watching_since: u8,
    /// It last brought something.
    pub last_contact: u8,
    /// Reads under way.
    pub reads: Option<Reads>,
    /// The device reported off.
    pub checked_off_at: Option<u8>,
    /// What was found about the node.
    pub verified: Option<Held<Incarnation>>,
    /// The pod that was claimed before it was found.
    pub claimed: Option<(u8, u8)>,
    /// The act.
    pub pending_delete: Option<PendingDelete>,
    /// Not delivered yet: a renewal.
    pub lease_renewed: bool,
    /// Not delivered yet: a report on the pod.
    pub pod_reported: bool,
    /// Not delivered yet: a Node that came.
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
    /// A process that begins, and lists everything.
    pub(crate) fn begin(now: u8, pod: Option<PodObject>, node: Option<Node>, lease: Option<Lease>) -> Self {
        let seen =
            |pod: &PodObject| ObservedAt { deletion: if pod.deleted { now } else { 0 }, maybe_known: true };
        let pod = pod.map(|object| CachedPod { object, seen: seen(&object) });
        Self {
            pod,
            node: node.map(|node| node.uid),
            lease: lease.map_or(CachedLease::Never, CachedLease::There),
            renewed_at: None,
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
            pod_reported: false,
            node_created: false,
        }
    }

    /// The pod was written: by its kubelet, as the cache would tell?
    pub(crate) fn on_write(&mut self, before: &PodObject, after: &PodObject) {
        let seen = ObservedAt { deletion: 0, maybe_known: false };
        let (before, after) = (objects::pod(before, seen, 1, 1), objects::pod(after, seen, 1, 1));
        self.pod_reported |= after.was_updated_by_kubelet(&before);
    }
}

/// A watch delivers all that it has. `None`: nothing.
pub(crate) fn deliver(world: &mut World, stream: Stream, scope: &Scope) -> Option<()> {
    let now = world.now;
    match stream {
        Stream::Pods => pods(world, now),
        Stream::Nodes => nodes(world, now, scope),
        Stream::Leases => leases(world, now, scope),
    }
}

fn pods(world: &mut World, now: u8) -> Option<()> {
    let ours = &mut world.process;
    let before = ours.pod;
    if before.map(|cached| cached.object) == world.pod && !ours.pod_reported {
        return None;
    }
    if std::mem::take(&mut ours.pod_reported) {
        ours.reported_at = Some(now);
    }
    ours.pod = world.pod.map(|object| {
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
    let ours = &mut world.process;
    let uid = world.node.map(|node| node.uid);
    let came = std::mem::take(&mut ours.node_created);
    if ours.node == uid && !came {
        return None;
    }
    ours.node = uid;
    let unbroken = now - ours.last_contact <= scope.break_ticks();
    let gone_at = if let CachedLease::Gone(at) = ours.lease { Some(at) } else { None };
    let at = ours.renewed_at.unwrap_or(0).max(ours.watching_since);
    let before =
        (unbroken && scope.follows_heartbeats()).then_some(LastReport { at, until: gone_at.unwrap_or(now) });
    ours.absence =
        uid.is_none().then_some(Absence { since: now, before, deletion_observed: true, first: None });
    Some(())
}

fn leases(world: &mut World, now: u8, scope: &Scope) -> Option<()> {
    let ours = &mut world.process;
    let moved = std::mem::take(&mut ours.lease_renewed);
    let after = match (world.lease, ours.lease) {
        (Some(lease), _) => CachedLease::There(lease),
        (None, CachedLease::There(_)) => CachedLease::Gone(now),
        // It came and went.
        (None, CachedLease::Never) if moved => CachedLease::Gone(now),
        (None, before) => before,
    };
    if ours.lease == after && !moved && (ours.last_contact == now || !scope.follows_heartbeats()) {
        return None;
    }
    if scope.follows_heartbeats() {
        if now - ours.last_contact > scope.break_ticks() {
            ours.watching_since = now;
        }
        ours.last_contact = now;
    }
    if moved {
        ours.renewed_at = Some(now);
    }
    ours.lease = after;
    Some(())
}

/// What the kernel asks of the cache.
pub(crate) struct View<'a> {
    ours: &'a Process,
    scope: &'a Scope,
    first: Option<AbsenceRead>,
}

impl<'a> View<'a> {
    pub(crate) fn new(ours: &'a Process, scope: &'a Scope) -> Self {
        let witness = ours.absence.and_then(|absence| absence.first);
        Self { ours, scope, first: witness.and_then(|first| scope.first_read(&first)) }
    }
}

impl Liveness for View<'_> {
    // Nothing is so far behind within the horizon (150 s).
    fn is_current(&self, _now: Mono) -> bool {
        true
    }

    fn first_read(&self, _node: &str) -> Option<&AbsenceRead> {
        self.first.as_ref()
    }

    fn last_heartbeat(&self, _node: &str) -> Option<LastHeartbeat> {
        let lease = self.ours.renewed_at.map(|at| (at, ReportKind::LeaseRenewed));
        let report = self.ours.reported_at.map(|at| (at, ReportKind::PodReported));
        let last = lease.into_iter().chain(report).max_by_key(|(at, _)| *at);
        last.map(|(at, sign)| LastHeartbeat { kind: sign, at: self.scope.mono(at) })
    }

    fn lease(&self, _node: &str) -> Option<Option<Timestamp>> {
        let CachedLease::There(lease) = self.ours.lease else { return None };
        Some(Some(objects::timestamp(lease.renewed)))
    }

    fn lease_is_gone(&self, _node: &str) -> bool {
        !matches!(self.ours.lease, CachedLease::There(_))
    }

    fn renewal(&self, _node: &str) -> Option<Renewal> {
        let renewed = match self.ours.lease {
            CachedLease::There(lease) => Some(objects::timestamp(lease.renewed)),
            CachedLease::Never | CachedLease::Gone(_) => None,
        };
        Some(Renewal { at: self.scope.mono(self.ours.renewed_at?), renewed })
    }

    fn unreachable_before_node_deleted(&self, node: &str) -> bool {
        let sign = self.last_heartbeat(node).map(|sign| sign.at);
        let before = self.ours.absence.and_then(|absence| absence.before);
        before.is_some_and(|before| {
            let at = sign.map_or(self.scope.mono(before.at), |sign| sign.max(self.scope.mono(before.at)));
            let needed = Duration::from_secs(self.scope.lease_seconds + BREAK_SECONDS);
            self.scope.mono(before.until).since(at) >= needed
        })
    }

    fn reports_deletions(&self, _node: &str) -> bool {
        self.scope.reports_observed_generation
            && self.ours.absence.is_some_and(|absence| absence.deletion_observed)
    }
}

/// That a first read was made, if the Node is missing since.
pub(crate) fn first_read_of(ours: &mut Process, first: FirstRead) -> Option<()> {
    let absence = ours.absence.as_mut().filter(|absence| first.sent_at >= absence.since)?;
    absence.first = Some(first);
    Some(())
}
