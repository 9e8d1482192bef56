//! The one informer cache.
//!
//! Duty: hold what the API server last said, by UID, with an index for every
//! question that a decision asks, and know how far that can be believed (sync
//! state, last contact, objects that could not be read).
//!
//! Invariants: an object that cannot be decoded stays as *unknown*, it does not
//! vanish; what vanished during a relist is reported as removed, by UID; a change
//! that alters nothing but the resourceVersion wakes nobody; kinds are not
//! mutually consistent, so a pod may name a node that is not known yet.

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
pub use heartbeat::Heartbeat;
pub use metrics::CacheMetrics;
use object::Object;
pub use object::{Undecodable, node_from_wire, pod_from_wire};
pub use pod_safety_proof::{LastHeartbeat, Renewal, ReportKind};
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
use absence::Absences;
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

/// Lean domain types, and those of our own kinds.
pub mod model {
    pub use pod_safety_crds::{
        CustomObject, CustomSpec, DeviceKey, FenceDeviceObject, FenceEvidenceObject, FencePolicyObject,
        NodeFenceObject, RemediationObject,
    };
    pub use pod_safety_model::*;
}

/// What changed, for those who keep dirty keys. It says where to look, never
/// what to believe.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// A pod appeared, changed or went.
    Pod {
        /// As it was.
        before: Option<&'a Pod>,
        /// As it is.
        after: Option<&'a Pod>,
    },
    /// A node appeared, changed or went, or became unreadable.
    Node {
        /// Its name.
        name: &'a Arc<str>,
        /// Whether its taints that end pods may be others now.
        taints: bool,
        /// Whether its readiness may be another now, or last changed at another time.
        readiness: bool,
    },
    /// A node's Lease was renewed, appeared or went, or its kubelet reported that all is as it was.
    Heartbeat {
        /// The node's name.
        name: &'a Arc<str>,
        /// Whether the node is there and a sign of life of it is news.
        relevant: bool,
    },
    /// What the status of a budget rests on changed: its spec or status, its pods,
    /// or their controllers. Or the budget went.
    Budget {
        /// Its UID.
        uid: &'a Uid,
    },
    /// A device, a policy, a fence or evidence appeared, changed or went.
    Fencing {
        /// The node that it is about; `None`: about several.
        node: Option<&'a Arc<str>>,
    },
    /// What is known of an exclusive volume changed: where it is used, whose it is, or its holder.
    Volume {
        /// The name of its PersistentVolume.
        name: &'a Arc<str>,
        /// The pods that wait for it behind our gate.
        gated: &'a [Uid],
    },
    /// What an eviction rests on changed: its requests, its Evictions, its pod, or what budgets allow.
    Eviction {
        /// Of which pod.
        target: &'a EvictionTarget,
    },
    /// A kind was listed in full for the first time, or again.
    Listed(Kind),
}

/// Hears of changes while the cache is locked: mark and return.
pub trait Subscriber: Send + Sync + 'static {
    /// Marks what `change` may affect.
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
    /// By namespace, and by all that an owner reference says: whoever writes a
    /// foreign UID into one gets an answer of his own.
    scales: BTreeMap<(Arc<str>, Arc<Controller>), ScaleAnswer>,
    /// Whether budgets are followed, so that pods are kept with their labels.
    budgets_enabled: bool,
    selection: Selection,
    /// Whether nodes are fenced, so that they are kept with what that asks of them.
    fencing_enabled: bool,
    /// The namespaces whose FenceDevices and PodSafetyRemediations are followed; `None`: of every one.
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
    /// Pods whose end is proved, until they are removed.
    proved_terminated: BTreeSet<Uid>,
    kinds: sync::Kinds,
    wall: WallClock,
    interner: Interner,
}

/// A read guard: while it lives, the cache does not change.
pub struct ViewGuard<'a>(RwLockReadGuard<'a, Inner>);

impl std::fmt::Debug for ViewGuard<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ViewGuard").finish_non_exhaustive()
    }
}

impl ViewGuard<'_> {
    /// What decisions see.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        View::new(&self.0)
    }
}

impl Cache {
    /// Adds a listener. Those who subscribe late must look at everything once.
    pub fn subscribe(&self, subscriber: Arc<dyn Subscriber>) {
        self.subscribers.write().push(subscriber);
    }

    /// Keeps labels and controllers of pods, for the budgets that choose among
    /// them. Before the first pod comes.
    pub(crate) fn enable_budgets(&self) {
        self.inner.write().budgets_enabled = true;
    }

    /// Keeps what fencing asks of nodes, and the controllers of pods. Before the first of them comes.
    pub(crate) fn enable_fencing(&self) {
        self.inner.write().fencing_enabled = true;
    }

    /// Follows FenceDevices and PodSafetyRemediations of these namespaces alone: by theirs machines are switched off, and a
    /// right in one namespace is no right on nodes. What came before stays, and no decision uses a device of it.
    pub fn restrict_fencing_to(&self, namespaces: BTreeSet<String>) {
        self.inner.write().fencing_namespaces = Some(namespaces);
    }

    /// Where objects of a kind are listed and watched: in the one namespace that they are followed in, or in all.
    fn collection_path(&self, kind: Kind) -> String {
        let inner = self.inner.read();
        let namespaces =
            inner.fencing_namespaces.as_ref().filter(|_| kind.is_own_crd() && kind.is_namespaced());
        let only = namespaces.filter(|all| all.len() == 1).and_then(BTreeSet::first);
        kind.path_in(only.map(String::as_str))
    }

    /// Keeps claims of pods, and what guarding volumes asks of nodes. Before the first of them comes.
    pub(crate) fn enable_volume_guard(&self) {
        self.inner.write().volume_guard_enabled = true;
    }

    /// Keeps responders of pods. Before the first of them comes.
    pub(crate) fn enable_evictions(&self) {
        self.inner.write().evictions_enabled = true;
    }

    /// Reads. Do not hold the guard across an await.
    #[must_use]
    pub fn read(&self) -> ViewGuard<'_> {
        ViewGuard(self.inner.read())
    }

    /// The object as it now is.
    pub(crate) fn apply<T: Object>(&self, wire: T::Wire, now: Mono) {
        let mut inner = self.inner.write();
        match T::project(wire, &mut inner.interner, now) {
            Ok(object) => T::put(&mut inner, object, now, &mut |change| self.notify(change)),
            Err(undecodable) => {
                T::put_undecodable(&mut inner, undecodable, now, &mut |change| self.notify(change))
            }
        }
    }

    /// A new version of an object that is known, if a glance at it is enough: gives back the version.
    fn apply_partial<'a, T: Object>(&self, raw: &'a Raw, now: Mono) -> Option<&'a str> {
        let mut inner = self.inner.write();
        let (object, version) = T::decode_partial(&inner, raw)?;
        T::put(&mut inner, object, now, &mut |change| self.notify(change));
        Some(version)
    }

    /// An object that could not be read at all or in part.
    pub(crate) fn apply_undecodable<T: Object>(&self, undecodable: Undecodable, now: Mono) {
        let mut inner = self.inner.write();
        T::put_undecodable(&mut inner, undecodable, now, &mut |change| self.notify(change));
    }

    /// The object with this UID went.
    pub(crate) fn remove<T: Object>(&self, uid: &Uid, now: Mono) {
        T::remove(&mut self.inner.write(), uid, now, &mut |change| self.notify(change));
    }

    /// A list begins: what it does not name is gone at its end.
    pub(crate) fn begin_list<T: Object>(&self) {
        T::table(&mut self.inner.write()).begin_list();
    }

    /// A list ended: removes what it did not name and counts the kind as synced.
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

    /// The API server answered about this kind.
    pub(crate) fn record_contact(&self, kind: Kind, now: Mono) {
        self.inner.write().kinds.record_contact(kind, now);
    }

    /// The API server sent an event, a bookmark, or all of a list of this kind.
    pub(crate) fn record_event(&self, kind: Kind, now: Mono) {
        self.inner.write().kinds.record_event(kind, now);
    }

    /// The wall clock says so at `now`, for the ages of what others stamped.
    pub(crate) fn record_wall_time(&self, now: Mono, wall: Timestamp) {
        self.inner.write().wall.record(now, wall);
    }

    /// The API server does not serve this kind.
    pub(crate) fn mark_unserved(&self, kind: Kind) {
        self.inner.write().kinds.mark_unserved(kind);
    }

    /// The feed of this kind is in trouble.
    pub(crate) fn record_problem(&self, kind: Kind, trouble: WatchProblem) {
        self.inner.write().kinds.record_problem(kind, trouble);
    }

    /// Forgets what nobody can ask for any more.
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

/// What the authority learns by reads of its own. A crate that cannot name this trait cannot tell the cache anything.
pub trait CacheWriter {
    /// What a controller's scale said, or why it could not be asked.
    fn record_scale(&self, namespace: &Arc<str>, controller: &Arc<Controller>, answer: ScaleAnswer);
    /// When which watchdog Lease was seen first.
    fn watchdogs(&self) -> &Watchdogs;
    /// Keeps what a quorum read said of a node that the cache misses. Without effect if the node is back.
    fn record_absence_read(&self, node: &str, witness: AbsenceRead);
    /// Forgets what a quorum read said: it has been refuted.
    fn discard_absence_read(&self, node: &str);
    /// There is evidence that the processes of this pod have ended, whichever client removes it.
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

    fn record_absence_read(&self, node: &str, witness: AbsenceRead) {
        self.inner.write().absences.record_absence_read(node, witness);
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

/// How long an answer about a scale is kept: whoever needs it asks again long before.
const SCALE_ANSWER_TTL: Duration = Duration::from_secs(600);

impl Inner {
    /// Whether objects of ours in this namespace count. Those of the cluster are in none.
    fn is_fencing_namespace(&self, namespace: &str) -> bool {
        namespace.is_empty() || self.fencing_namespaces.as_ref().is_none_or(|all| all.contains(namespace))
    }

    /// Keeps up which budgets choose which pods; gives back those that this concerns.
    fn replace_pod(&mut self, before: Option<&Pod>, after: Option<&Pod>, now: Mono) -> BTreeSet<Uid> {
        if self.budgets_enabled { self.selection.replace_pod(before, after, now) } else { BTreeSet::new() }
    }

    fn last_heartbeat(&self, node: &str) -> Option<LastHeartbeat> {
        let lease = self.heartbeats.get(node).and_then(|beat| beat.renewed_at);
        let lease = lease.map(|at| LastHeartbeat { kind: ReportKind::LeaseRenewed, at });
        let report = self.pod_index.last_report(node);
        let report = report.map(|at| LastHeartbeat { kind: ReportKind::PodReported, at });
        [lease, report].into_iter().flatten().max_by_key(|sign| sign.at)
    }

    fn unreachable_before_node_deleted(&self, node: &str) -> bool {
        let last_heartbeat = self.last_heartbeat(node).map(|sign| sign.at);
        let last_contact = self.absences.get(node).and_then(|absence| absence.last_contact);
        last_contact.is_some_and(|before| before.was_unreachable(last_heartbeat))
    }

    /// Every node that some pod names and nobody knows.
    fn record_absences(&mut self, now: Mono) {
        for name in self.pod_index.nodes().chain(self.volumes.holders()) {
            self.absences.set(name, !self.node_index.contains(name), now);
        }
    }

    /// Looks again whether this node is named by pods and missing. Before the
    /// nodes were listed nothing can be said to be missing.
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
