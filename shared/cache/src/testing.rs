//! A cache that a test fills by hand, and the objects for it. Not in the shipped binary.

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

/// A cache that a test fills by hand.
#[derive(Clone, Debug, Default)]
pub struct World {
    cache: Arc<Cache>,
    /// Of the last object that was put.
    version: Arc<AtomicU64>,
}

impl World {
    /// An empty cluster that was listed at the start.
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

    /// A cache that knows nothing yet, for a process that begins anew: versions go on.
    #[must_use]
    pub fn restarted(&self) -> Self {
        Self { cache: Arc::default(), version: Arc::clone(&self.version) }
    }

    /// Counts a kind as listed, and as heard of, at `now`.
    pub fn mark_listed(&self, kind: Kind, now: Mono) {
        // Everything that is there was named by the list.
        self.cache.end_list_of_kind(kind, now);
    }

    /// The API server does not serve this kind.
    pub fn mark_unserved(&self, kind: Kind) {
        self.cache.mark_unserved(kind);
    }

    /// The feed of this kind is in trouble.
    pub fn record_problem(&self, kind: Kind, trouble: WatchProblem) {
        self.cache.record_problem(kind, trouble);
    }

    /// The API server says at `now` that every kind is as it was.
    pub fn confirm_all(&self, now: Mono) {
        self.confirm_kinds(Kind::ALL, now);
    }

    /// The API server says at `now` that these kinds are as they were.
    pub fn confirm_kinds(&self, kinds: &[Kind], now: Mono) {
        for &kind in kinds {
            self.cache.record_event(kind, now);
        }
    }

    /// An object appears or changes at `now`. JSON as the API has it.
    ///
    /// # Panics
    /// The object is none of the kind.
    #[expect(clippy::expect_used, reason = "test support")]
    pub fn apply(&self, kind: Kind, object: &Value, now: Mono) {
        let raw = Raw::from_body(Encoding::Json, object.to_string().into()).expect("JSON needs no envelope");
        self.cache.apply_raw(kind, &raw, now).expect("an object of the kind");
    }

    /// What the API server sent of an object arrives at `now`, readable or not.
    pub fn apply_wire(&self, kind: Kind, raw: &Raw, now: Mono) {
        drop(self.cache.apply_wire(kind, raw, now));
    }

    /// An object appears or changes at `now`, at a version of its own; it comes back as it then is.
    ///
    /// # Panics
    /// The object is none of the kind.
    pub fn put(&self, kind: Kind, object: impl Into<Value>, now: Mono) -> Value {
        let version = 100 + self.version.fetch_add(1, Ordering::Relaxed);
        let mut object = object.into();
        object["metadata"]["resourceVersion"] = version.to_string().into();
        self.apply(kind, &object, now);
        object
    }

    /// An object goes at `now`.
    ///
    /// # Panics
    /// The UID is empty.
    #[expect(clippy::expect_used, reason = "test support")]
    pub fn remove(&self, kind: Kind, uid: &str, now: Mono) {
        let uid = Uid::new(uid).expect("a UID");
        self.cache.remove_of_kind(kind, &uid, now);
    }

    /// The scale of the controller of this pod was asked and answered at `now`.
    ///
    /// # Panics
    /// There is no such pod, or it has no controller.
    pub fn set_scale(&self, pod: &str, scale: Result<Scale, &str>, now: Mono) {
        self.set_scale_at(pod, scale, now, now);
    }

    /// The scale of the controller of this pod was asked and answered then.
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

    /// The wall clock says so at `now`, in seconds since 1970.
    ///
    /// # Panics
    /// It is no time.
    #[expect(clippy::expect_used, reason = "test support")]
    pub fn set_wall_time(&self, seconds: i64, now: Mono) {
        self.cache.record_wall_time(now, Timestamp::from_second(seconds).expect("a time"));
    }

    /// A quorum read did not find this node, at `now`.
    pub fn record_absence_read(&self, node: &str, now: Mono) {
        self.record_absence_read_at(node, now, now);
    }

    /// A quorum read that was asked and answered then did not find this node.
    pub fn record_absence_read_at(&self, node: &str, requested_at: Mono, answered_at: Mono) {
        self.cache.record_absence_read(node, AbsenceRead::for_decide_tests(requested_at, answered_at));
    }

    /// The kubelet of this missing node had been silent for long when this process saw its Node go.
    pub fn set_unreachable_before_node_deleted(&self, node: &str) {
        self.cache.set_unreachable_before_node_deleted(node);
    }

    /// What decisions see.
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
