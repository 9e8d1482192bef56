//! A cache that a test fills directly, and the objects for it. Not in the shipped binary.

#[expect(missing_docs, clippy::unwrap_used, reason = "test support, in which each name is its sentence")]
pub mod objects;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use pod_safety_proof::AbsenceRead;
use serde_json::Value;

use crate::clock::Mono;
use crate::model::{Kind, Scale, Uid};
use crate::wire::{Encoding, Raw};
use crate::{Cache, CacheWriter as _, ScaleAnswer, ViewGuard, WatchProblem};

/// The moment `seconds` after the start.
#[must_use]
pub const fn at(seconds: u64) -> Mono {
    Mono::from_start(Duration::from_secs(seconds))
}

/// A cache that a test fills directly.
#[derive(Clone, Debug, Default)]
pub struct World {
    cache: Arc<Cache>,
    /// The version of the last object that was put.
    version: Arc<AtomicU64>,
}

impl World {
    /// An empty cluster whose kinds are all listed at the start.
    #[must_use]
    pub fn listed() -> Self {
        Self::listed_except(&[])
    }

    /// An empty cluster of which these kinds could not be listed.
    #[must_use]
    pub fn listed_except(unread: &[Kind]) -> Self {
        let world = Self::default();
        world.cache.enable_budgets();
        world.cache.enable_fencing();
        world.cache.enable_volume_guard();
        world.cache.enable_evictions();
        for &kind in Kind::ALL.iter().filter(|kind| !unread.contains(kind)) {
            world.mark_listed(kind, at(0));
        }
        world
    }

    /// An empty cache, as after a restart of the process: the versions of objects continue.
    #[must_use]
    pub fn restarted(&self) -> Self {
        Self { cache: Arc::default(), version: Arc::clone(&self.version) }
    }

    /// Ends a list of a kind at `now`, so that the kind is synced.
    pub fn mark_listed(&self, kind: Kind, now: Mono) {
        // Objects that were applied before belong to this list.
        self.cache.end_list_of_kind(kind, now);
    }

    /// Marks a kind as not served by the API server.
    pub fn mark_unserved(&self, kind: Kind) {
        self.cache.mark_unserved(kind);
    }

    /// Records a problem of this kind's feed.
    pub fn record_problem(&self, kind: Kind, problem: WatchProblem) {
        self.cache.record_problem(kind, problem);
    }

    /// Records an event of every kind at `now`, so that all are fresh.
    pub fn confirm_all(&self, now: Mono) {
        self.confirm_kinds(Kind::ALL, now);
    }

    /// Records an event of these kinds at `now`.
    pub fn confirm_kinds(&self, kinds: &[Kind], now: Mono) {
        for &kind in kinds {
            self.cache.record_event(kind, now);
        }
    }

    /// Applies an object, in the JSON of the API, at `now`.
    ///
    /// # Panics
    /// The object does not decode as the kind.
    #[expect(clippy::expect_used, reason = "test support")]
    pub fn apply(&self, kind: Kind, object: &Value, now: Mono) {
        let raw = Raw::from_body(Encoding::Json, object.to_string().into()).expect("JSON needs no envelope");
        self.cache.apply_raw(kind, &raw, now).expect("an object of the kind");
    }

    /// Applies a wire object at `now`, readable or not.
    pub fn apply_wire(&self, kind: Kind, raw: &Raw, now: Mono) {
        drop(self.cache.apply_wire(kind, raw, now));
    }

    /// Applies an object at `now` with a new resourceVersion; returns it with that version.
    ///
    /// # Panics
    /// The object does not decode as the kind.
    pub fn put(&self, kind: Kind, object: impl Into<Value>, now: Mono) -> Value {
        let version = 100 + self.version.fetch_add(1, Ordering::Relaxed);
        let mut object = object.into();
        object["metadata"]["resourceVersion"] = version.to_string().into();
        self.apply(kind, &object, now);
        object
    }

    /// Removes an object at `now`.
    ///
    /// # Panics
    /// The UID is empty.
    #[expect(clippy::expect_used, reason = "test support")]
    pub fn remove(&self, kind: Kind, uid: &str, now: Mono) {
        let uid = Uid::new(uid).expect("a UID");
        self.cache.remove_of_kind(kind, &uid, now);
    }

    /// Records the scale of the controller of this pod, requested and answered at `now`.
    ///
    /// # Panics
    /// There is no such pod, or it has no controller.
    pub fn set_scale(&self, pod: &str, scale: Result<Scale, &str>, now: Mono) {
        self.set_scale_at(pod, scale, now, now);
    }

    /// Records the scale of the controller of this pod with these times.
    ///
    /// # Panics
    /// There is no such pod, or it has no controller.
    #[expect(clippy::expect_used, reason = "test support")]
    pub fn set_scale_at(&self, pod: &str, scale: Result<Scale, &str>, requested_at: Mono, answered_at: Mono) {
        let uid = Uid::new(pod).expect("a UID");
        let (namespace, controller) = {
            let guard = self.cache.read();
            let pod = guard.view().pod(&uid).cloned().expect("the pod");
            (pod.key.namespace, pod.controller.expect("its controller"))
        };
        let answer = ScaleAnswer { requested_at, answered_at, scale: scale.map_err(Into::into) };
        self.cache.record_scale(&namespace, &controller, answer);
    }

    /// Records the wall time at `now`, in seconds since 1970.
    ///
    /// # Panics
    /// It is out of range.
    #[expect(clippy::expect_used, reason = "test support")]
    pub fn set_wall_time(&self, seconds: i64, now: Mono) {
        self.cache.record_wall_time(now, Timestamp::from_second(seconds).expect("a time"));
    }

    /// Records at `now` that a quorum read did not find this node.
    pub fn record_absence_read(&self, node: &str, now: Mono) {
        self.record_absence_read_at(node, now, now);
    }

    /// Records that a quorum read with these times did not find this node.
    pub fn record_absence_read_at(&self, node: &str, requested_at: Mono, answered_at: Mono) {
        self.cache.record_absence_read(node, AbsenceRead::for_decide_tests(requested_at, answered_at));
    }

    /// Makes the kubelet of this missing node count as unreachable before its Node was deleted.
    pub fn set_unreachable_before_node_deleted(&self, node: &str) {
        self.cache.set_unreachable_before_node_deleted(node);
    }

    /// The view that decisions read.
    #[must_use]
    pub fn read(&self) -> ViewGuard<'_> {
        self.cache.read()
    }

    /// The cache itself.
    #[must_use]
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }
}
