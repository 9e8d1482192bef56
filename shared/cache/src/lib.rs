//! The one informer cache.
//!
//! Holds the latest state of each watched object, by UID, with an index for each lookup of a decision, and how
//! current that state is (sync state, last contact, objects that could not be read).
//!
//! Invariants: an object that cannot be decoded stays in the cache as *unknown*; it does not disappear. An object
//! that disappeared during a relist is reported as removed, by UID. A change of nothing but the resourceVersion
//! notifies no subscriber, except where a writer needs the new version. Kinds are not mutually consistent: a pod may
//! name a node that is not in the cache yet.

#![forbid(unsafe_code)]

mod absence;
mod budgets;
mod evictions;
mod feed;
mod heartbeat;
mod index;
mod kinds;
mod leases;
mod metrics;
mod nodes;
mod object;
mod own;
mod pod_worker;
mod selection;
mod snapshot;
mod sync;
mod table;
#[cfg(any(test, feature = "testing"))]
mod test_util;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod view;
mod volumes;
mod wall;
mod watchdogs;
mod workloads;
mod zones;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::{RwLock, RwLockReadGuard};

pub use absence::Absence;
pub use budgets::parse_selector;
pub use feed::{read_page, start_feeds};
pub use heartbeat::{Heartbeat, StartSign};
pub use metrics::CacheMetrics;
use object::Object;
pub use object::{Undecodable, node_from_wire, pod_from_wire};
pub use pod_safety_proof::{Inability, LastHeartbeat, Renewal, ReportKind};
pub use snapshot::{ObjectVisitor, Snapshot, SnapshotError, UnreadKind};
pub use sync::{FreshnessError, KindState, WATCH_GAP, WatchProblem};
pub use view::{Lookup, STALE_AFTER, View};
pub use volumes::{LastUse, UseReport};
pub use watchdogs::Watchdogs;
pub use workloads::ScaleAnswer;
pub use zones::ZoneCount;

use pod_safety_clock as clock;
use pod_safety_crds as api;
use pod_safety_proof::AbsenceRead;
use pod_safety_wire as wire;

use crate::clock::Mono;
use crate::model::{Budget, Controller, EvictionTarget, Interner, Kind, Node, NodeLease, Pod, Uid};
use crate::wire::Raw;
use absence::{Absences, STARTS_WITHIN};
use evictions::Evictions;
use heartbeat::Heartbeats;
use index::{NodeIndex, PodIndex};
use own::OwnKinds;
use selection::Selection;
use table::Table;
use volumes::Volumes;
use wall::WallClock;
use workloads::Workloads;
use zones::Zones;

/// Lean domain types, and those of pod-safety's own CRDs.
pub mod model {
    pub use pod_safety_crds::{
        CustomObject, CustomSpec, DeviceKey, FenceDeviceObject, FenceEvidenceObject, FencePolicyObject,
        NodeFenceObject, RemediationObject,
    };
    pub use pod_safety_model::*;
}

/// A change, for subscribers that keep work queues. It tells which keys to decide again; a decision reads the View,
/// not the change.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// A pod was added, changed or removed.
    Pod {
        /// The pod before the change.
        before: Option<&'a Pod>,
        /// The pod after the change.
        after: Option<&'a Pod>,
    },
    /// A node was added, changed or removed, or became unreadable.
    Node {
        /// Its name.
        name: &'a Arc<str>,
        /// Whether its NoExecute taints may have changed.
        taints: bool,
        /// Whether its readiness, or the time of its last transition, may have changed.
        readiness: bool,
    },
    /// A node's Lease was renewed, added or removed, or its kubelet reported an unchanged status.
    Heartbeat {
        /// The node's name.
        name: &'a Arc<str>,
        /// Whether the Node exists and a report can change a decision about it.
        relevant: bool,
    },
    /// What the status of a budget is computed from changed: its spec or status, its pods, or their controllers. Or
    /// the budget was removed.
    Budget {
        /// Its UID.
        uid: &'a Uid,
    },
    /// A FenceDevice, FencePolicy, NodeFence or FenceEvidence was added, changed or removed.
    Fencing {
        /// The node that it concerns; `None`: several nodes.
        node: Option<&'a Arc<str>>,
    },
    /// The state of an exclusive volume changed: where it is used, its Lease, or its holder.
    Volume {
        /// The name of its PersistentVolume.
        name: &'a Arc<str>,
        /// The pods that wait for the volume behind pod-safety's scheduling gate.
        gated: &'a [Uid],
    },
    /// What the decision about an eviction rests on changed: its requests, its Evictions, its pod, or what
    /// PodDisruptionBudgets allow.
    Eviction {
        /// The pod of the eviction.
        target: &'a EvictionTarget,
    },
    /// A kind was listed in full for the first time, or again.
    Listed(Kind),
}

/// Receives changes while the cache is locked: an implementation enqueues keys and returns.
pub trait Subscriber: Send + Sync + 'static {
    /// Enqueues the keys that `change` may affect.
    fn on_change(&self, change: Change<'_>);
}

/// The cache. Shared by reference; writes take microseconds.
#[derive(Default)]
pub struct Cache {
    inner: RwLock<Inner>,
    subscribers: RwLock<Vec<Arc<dyn Subscriber>>>,
    watchdogs: Watchdogs,
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").finish_non_exhaustive()
    }
}

#[derive(Default)]
pub(crate) struct Inner {
    pods: Table<Pod>,
    pod_index: PodIndex,
    nodes: Table<Node>,
    node_index: NodeIndex,
    zones: Zones,
    leases: Table<NodeLease>,
    budgets: Table<Budget>,
    workloads: Workloads,
    /// By namespace and by the whole owner reference: an object whose owner reference carries a foreign UID gets its
    /// own entry.
    scales: BTreeMap<(Arc<str>, Arc<Controller>), ScaleAnswer>,
    /// Whether budgets are followed, so that pods are kept with their labels.
    budgets_enabled: bool,
    selection: Selection,
    /// Whether nodes are fenced, so that they are kept with the fields that fencing reads.
    fencing_enabled: bool,
    /// The namespaces whose FenceDevices and PodSafetyRemediations are followed; `None`: all namespaces.
    fencing_namespaces: Option<BTreeSet<String>>,
    own_kinds: OwnKinds,
    /// Whether volumes are guarded, so that pods are kept with their claims.
    volume_guard_enabled: bool,
    volumes: Volumes,
    /// Whether evictions are followed, so that pods are kept with their responders.
    evictions_enabled: bool,
    evictions: Evictions,
    heartbeats: Heartbeats,
    absences: Absences,
    /// Pods whose processes are proved to have ended, until the pods are removed.
    proved_terminated: BTreeSet<Uid>,
    kinds: sync::Kinds,
    wall: WallClock,
    interner: Interner,
}

/// A read guard: the cache does not change while a guard exists.
pub struct ViewGuard<'a>(RwLockReadGuard<'a, Inner>);

impl std::fmt::Debug for ViewGuard<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ViewGuard").finish_non_exhaustive()
    }
}

impl ViewGuard<'_> {
    /// The view that decisions read.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        View::new(&self.0)
    }
}

impl Cache {
    /// Adds a subscriber. One that subscribes late must decide every key once.
    pub fn subscribe(&self, subscriber: Arc<dyn Subscriber>) {
        self.subscribers.write().push(subscriber);
    }

    /// Keeps labels and controllers of pods, for the selectors of budgets. To be called before the first pod is
    /// applied.
    pub(crate) fn enable_budgets(&self) {
        self.inner.write().budgets_enabled = true;
    }

    /// Keeps the fields of nodes that fencing reads, and the controllers of pods. To be called before the first of
    /// them is applied.
    pub(crate) fn enable_fencing(&self) {
        self.inner.write().fencing_enabled = true;
    }

    /// Follows FenceDevices and PodSafetyRemediations of these namespaces only: they switch machines off, and RBAC
    /// rights in one namespace must not extend to nodes. Objects of other namespaces that were applied before stay;
    /// no decision uses their devices.
    pub fn restrict_fencing_to(&self, namespaces: BTreeSet<String>) {
        self.inner.write().fencing_namespaces = Some(namespaces);
    }

    /// The path by which objects of a kind are listed and watched: of one namespace if they are followed in one only,
    /// else of all.
    fn collection_path(&self, kind: Kind) -> String {
        let inner = self.inner.read();
        let namespaces = inner.fencing_namespaces.as_ref().filter(|_| kind.is_own_crd() && kind.is_namespaced());
        let only = namespaces.filter(|all| all.len() == 1).and_then(BTreeSet::first);
        kind.path_in(only.map(String::as_str))
    }

    /// Keeps the claims of pods, and the fields of nodes that the volume guard reads. To be called before the first
    /// of them is applied.
    pub(crate) fn enable_volume_guard(&self) {
        self.inner.write().volume_guard_enabled = true;
    }

    /// Keeps the responders of pods. To be called before the first pod is applied.
    pub(crate) fn enable_evictions(&self) {
        self.inner.write().evictions_enabled = true;
    }

    /// Locks for reading. Do not hold the guard across an await.
    #[must_use]
    pub fn read(&self) -> ViewGuard<'_> {
        ViewGuard(self.inner.read())
    }

    /// Stores the current version of an object.
    pub(crate) fn apply<T: Object>(&self, wire: T::Wire, now: Mono) {
        let mut inner = self.inner.write();
        match T::project(wire, &mut inner.interner, now) {
            Ok(object) => T::put(&mut inner, object, now, &mut |change| self.notify(change)),
            Err(undecodable) => T::put_undecodable(&mut inner, undecodable, now, &mut |change| self.notify(change)),
        }
    }

    /// Stores a new version of a cached object if partial decoding is enough; returns the version.
    fn apply_partial<'a, T: Object>(&self, raw: &'a Raw, now: Mono) -> Option<&'a str> {
        let mut inner = self.inner.write();
        let (object, version) = T::decode_partial(&inner, raw)?;
        T::put(&mut inner, object, now, &mut |change| self.notify(change));
        Some(version)
    }

    /// Records an object that could not be read at all or in part.
    pub(crate) fn apply_undecodable<T: Object>(&self, undecodable: Undecodable, now: Mono) {
        let mut inner = self.inner.write();
        T::put_undecodable(&mut inner, undecodable, now, &mut |change| self.notify(change));
    }

    /// Removes the object with this UID.
    pub(crate) fn remove<T: Object>(&self, uid: &Uid, now: Mono) {
        T::remove(&mut self.inner.write(), uid, now, &mut |change| self.notify(change));
    }

    /// Begins a list: an object that the list does not contain counts as removed at its end.
    pub(crate) fn begin_list<T: Object>(&self) {
        T::table(&mut self.inner.write()).begin_list();
    }

    /// Ends a list: removes the objects that it did not contain and marks the kind as synced.
    pub(crate) fn end_list<T: Object>(&self, now: Mono) {
        let mut inner = self.inner.write();
        let notify = &mut |change: Change<'_>| self.notify(change);
        for uid in T::table(&mut inner).end_list() {
            T::note_missed_changes(&mut inner, &uid, now);
            T::remove(&mut inner, &uid, now, notify);
        }
        let first = inner.kinds.mark_listed(T::KIND, now);
        if T::KIND == Kind::Nodes && first {
            inner.record_absences(now);
        }
        inner.interner.shrink();
        notify(Change::Listed(T::KIND));
    }

    /// Records an answer of the API server about this kind.
    pub(crate) fn record_contact(&self, kind: Kind, now: Mono) {
        self.inner.write().kinds.record_contact(kind, now);
    }

    /// Records an event, a bookmark, or the end of a list of this kind.
    pub(crate) fn record_event(&self, kind: Kind, now: Mono) {
        self.inner.write().kinds.record_event(kind, now);
    }

    /// Records the wall time at `now`, to compute the ages of timestamps that others wrote.
    pub(crate) fn record_wall_time(&self, now: Mono, wall: Timestamp) {
        self.inner.write().wall.record(now, wall);
    }

    /// Records that the API server does not serve this kind.
    pub(crate) fn mark_unserved(&self, kind: Kind) {
        self.inner.write().kinds.mark_unserved(kind);
    }

    /// Records a problem of this kind's feed.
    pub(crate) fn record_problem(&self, kind: Kind, problem: WatchProblem) {
        self.inner.write().kinds.record_problem(kind, problem);
    }

    /// Drops entries that no decision can need any more.
    pub fn prune(&self, now: Mono) {
        let mut inner = self.inner.write();
        let Inner { heartbeats, absences, .. } = &mut *inner;
        heartbeats.prune(now, |name| absences.get(name).is_some());
        inner.scales.retain(|_, answer| now.since(answer.answered_at) < SCALE_ANSWER_TTL);
        inner.interner.shrink();
    }

    fn notify(&self, change: Change<'_>) {
        for subscriber in self.subscribers.read().iter() {
            subscriber.on_change(change);
        }
    }
}

/// What the authority learns by its own reads. A crate that cannot name this trait cannot write to the cache.
pub trait CacheWriter {
    /// Records the answer of a controller's scale subresource, or why it could not be read.
    fn record_scale(&self, namespace: &Arc<str>, controller: &Arc<Controller>, answer: ScaleAnswer);
    /// When each watchdog Lease was first seen.
    fn watchdogs(&self) -> &Watchdogs;
    /// Records the result of a quorum read of a node that the cache misses. Without effect if the Node exists again.
    fn record_absence_read(&self, node: &str, read: AbsenceRead);
    /// Discards the result of a quorum read: a later read refuted it.
    fn discard_absence_read(&self, node: &str);
    /// Records that there is evidence that the processes of this pod have ended, whichever client removes the pod.
    fn record_proved_terminated(&self, pod: &Uid);
}

impl CacheWriter for Cache {
    fn record_scale(&self, namespace: &Arc<str>, controller: &Arc<Controller>, answer: ScaleAnswer) {
        let mut inner = self.inner.write();
        inner.scales.insert((Arc::clone(namespace), Arc::clone(controller)), answer);
        inner.notify_workload(&controller.uid, &mut |change| self.notify(change));
    }

    fn watchdogs(&self) -> &Watchdogs {
        &self.watchdogs
    }

    fn record_absence_read(&self, node: &str, read: AbsenceRead) {
        self.inner.write().absences.record_absence_read(node, read);
    }

    fn discard_absence_read(&self, node: &str) {
        self.inner.write().absences.discard_absence_read(node);
    }

    fn record_proved_terminated(&self, pod: &Uid) {
        let mut inner = self.inner.write();
        if inner.volume_guard_enabled && inner.pods.get_known(pod).is_some() {
            inner.proved_terminated.insert(pod.clone());
        }
    }
}

/// How long the answer of a scale subresource is kept. Its readers repeat the request long before.
const SCALE_ANSWER_TTL: Duration = Duration::from_secs(600);

impl Inner {
    /// Whether pod-safety's own objects of this namespace are followed. Cluster-scoped objects have an empty
    /// namespace.
    fn is_fencing_namespace(&self, namespace: &str) -> bool {
        namespace.is_empty() || self.fencing_namespaces.as_ref().is_none_or(|all| all.contains(namespace))
    }

    /// Updates which budgets select which pods; returns the budgets that the change affects.
    fn replace_pod(&mut self, before: Option<&Pod>, after: Option<&Pod>, now: Mono) -> BTreeSet<Uid> {
        if self.budgets_enabled { self.selection.replace_pod(before, after, now) } else { BTreeSet::new() }
    }

    fn last_heartbeat(&self, node: &str) -> Option<LastHeartbeat> {
        let lease = self.heartbeats.get(node).and_then(|heartbeat| heartbeat.renewed_at);
        let lease = lease.map(|at| LastHeartbeat { kind: ReportKind::LeaseRenewed, at });
        let report = self.pod_index.last_report(node);
        let report = report.map(|at| LastHeartbeat { kind: ReportKind::PodReported, at });
        [lease, report].into_iter().flatten().max_by_key(|heartbeat| heartbeat.at)
    }

    fn unreachable_before_node_deleted(&self, node: &str) -> bool {
        let last_heartbeat = self.last_heartbeat(node).map(|heartbeat| heartbeat.at);
        let last_contact = self.absences.get(node).and_then(|absence| absence.last_contact);
        last_contact.is_some_and(|before| before.was_unreachable(last_heartbeat))
    }

    /// A kubelet shows that it started by a renewal at another time than the next one of the kubelet before, or by
    /// creating its Node or its Lease, which shows nothing about pods that were bound later.
    fn may_have_just_started(&self, pod: &Pod, node: &str) -> bool {
        let Some(absence) = self.absences.get(node) else { return false };
        let started = self.heartbeats.get(node).and_then(|heartbeat| heartbeat.started);
        let shows_start =
            |sign: &StartSign| pod.bound_at < sign.pods_bound_before && absence.since <= sign.seen_at + STARTS_WITHIN;
        absence.young_node_created.is_some_and(|created| pod.bound_at < created)
            || started.as_ref().is_some_and(shows_start)
    }

    /// Records every node that a pod or a volume Lease names and that does not exist.
    fn record_absences(&mut self, now: Mono) {
        for name in self.pod_index.nodes().chain(self.volumes.holders()) {
            self.absences.set(name, !self.node_index.contains(name), now);
        }
    }

    /// Recomputes whether this node is named by pods or volume Leases and missing. Before the first list of nodes
    /// none counts as missing.
    fn update_absence(&mut self, name: &Arc<str>, now: Mono) {
        let missing = self.kinds.state(Kind::Nodes).synced
            && !self.node_index.contains(name)
            && (self.pod_index.on_node(name).next().is_some() || self.volumes.held_by(name).next().is_some());
        self.absences.set(name, missing, now);
        if !missing {
            self.pod_index.forget_if_unused(name);
        }
    }
}

#[cfg(test)]
mod tests;
