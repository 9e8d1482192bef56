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
use crate::world::{Lease, Node, PodObject, Seen, World};

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
    pub seen: Seen,
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
pub(crate) struct Heard {
    at: u8,
    until: u8,
}

/// The Node is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Absence {
    since: u8,
    before: Option<Heard>,
    /// This process saw the Node go.
    seen_to_go: bool,
    /// The first read.
    pub(crate) witness: Option<FirstRead>,
}

/// What the first read of a missing Node found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FirstRead {
    /// Sent.
    pub asked: u8,
    /// Answered.
    pub answered: u8,
    /// The Lease then.
    pub lease: Option<Lease>,
}

/// Two reads under way: of the Node and of its Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reads {
    /// Sent.
    pub asked: u8,
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
pub struct Act {
    /// On what.
    pub evidence: Held<PodVersion>,
    /// The version that the PATCH was answered with.
    pub answer: Option<u8>,
}

/// The process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ours {
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
    pub listening: u8,
    /// It last brought something.
    pub contact: u8,
    /// Reads under way.
    pub reads: Option<Reads>,
    /// The device reported off.
    pub shown: Option<u8>,
    /// What was found about the node.
    pub found: Option<Held<Incarnation>>,
    /// The pod that was claimed before it was found.
    pub claimed: Option<(u8, u8)>,
    /// The act.
    pub act: Option<Act>,
    /// Not delivered yet: a renewal.
    pub lease_moved: bool,
    /// Not delivered yet: a report on the pod.
    pub pod_reported: bool,
    /// Not delivered yet: a Node that came.
    pub node_came: bool,
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

impl Ours {
    /// A process that begins, and lists everything.
    pub(crate) fn begin(now: u8, pod: Option<PodObject>, node: Option<Node>, lease: Option<Lease>) -> Self {
        let seen = |pod: &PodObject| Seen { deletion: if pod.deleted { now } else { 0 }, known: true };
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
                seen_to_go: false,
                witness: None,
            }),
            listening: now,
            contact: now,
            reads: None,
            shown: None,
            found: None,
            claimed: None,
            act: None,
            lease_moved: false,
            pod_reported: false,
            node_came: false,
        }
    }

    /// The pod was written: by its kubelet, as the cache would tell?
    pub(crate) fn wrote(&mut self, before: &PodObject, after: &PodObject) {
        let seen = Seen { deletion: 0, known: false };
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
    let ours = &mut world.ours;
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
                Seen { known: seen.known || reported, ..seen }
            }
            Some(_) if object.deleted => Seen { deletion: now, known: reported },
            None if object.deleted => Seen { deletion: now, known: true },
            Some(_) | None => Seen { deletion: 0, known: true },
        };
        CachedPod { object, seen }
    });
    Some(())
}

fn nodes(world: &mut World, now: u8, scope: &Scope) -> Option<()> {
    let ours = &mut world.ours;
    let uid = world.node.map(|node| node.uid);
    let came = std::mem::take(&mut ours.node_came);
    if ours.node == uid && !came {
        return None;
    }
    ours.node = uid;
    let unbroken = now - ours.contact <= scope.break_ticks();
    let gone_at = if let CachedLease::Gone(at) = ours.lease { Some(at) } else { None };
    let at = ours.renewed_at.unwrap_or(0).max(ours.listening);
    let before = (unbroken && scope.follows_silence()).then_some(Heard { at, until: gone_at.unwrap_or(now) });
    ours.absence = uid.is_none().then_some(Absence { since: now, before, seen_to_go: true, witness: None });
    Some(())
}

fn leases(world: &mut World, now: u8, scope: &Scope) -> Option<()> {
    let ours = &mut world.ours;
    let moved = std::mem::take(&mut ours.lease_moved);
    let after = match (world.lease, ours.lease) {
        (Some(lease), _) => CachedLease::There(lease),
        (None, CachedLease::There(_)) => CachedLease::Gone(now),
        // It came and went.
        (None, CachedLease::Never) if moved => CachedLease::Gone(now),
        (None, before) => before,
    };
    if ours.lease == after && !moved && (ours.contact == now || !scope.follows_silence()) {
        return None;
    }
    if scope.follows_silence() {
        if now - ours.contact > scope.break_ticks() {
            ours.listening = now;
        }
        ours.contact = now;
    }
    if moved {
        ours.renewed_at = Some(now);
    }
    ours.lease = after;
    Some(())
}

/// What the kernel asks of the cache.
pub(crate) struct View<'a> {
    ours: &'a Ours,
    scope: &'a Scope,
    witness: Option<AbsenceRead>,
}

impl<'a> View<'a> {
    pub(crate) fn new(ours: &'a Ours, scope: &'a Scope) -> Self {
        let witness = ours.absence.and_then(|absence| absence.witness);
        Self { ours, scope, witness: witness.and_then(|first| scope.witness(&first)) }
    }
}

impl Liveness for View<'_> {
    // Nothing is so far behind within the horizon (150 s).
    fn is_current(&self, _now: Mono) -> bool {
        true
    }

    fn first_read(&self, _node: &str) -> Option<&AbsenceRead> {
        self.witness.as_ref()
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
        self.scope.says_what_it_observed && self.ours.absence.is_some_and(|absence| absence.seen_to_go)
    }
}

/// That a first read was made, if the Node is missing since.
pub(crate) fn witnessed(ours: &mut Ours, first: FirstRead) -> Option<()> {
    let absence = ours.absence.as_mut().filter(|absence| first.asked >= absence.since)?;
    absence.witness = Some(first);
    Some(())
}
