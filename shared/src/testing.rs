//! Views without a cluster, for tables of `decide`. Not in the shipped binary.

#[cfg(test)]
pub(crate) mod objects;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::authority::Witness;
use crate::cache::{Cache, ScaleAnswer, ViewGuard};
use crate::clock::Mono;
use crate::model::{Kind, Scale, Uid};
use crate::wire::{Encoding, Raw};

/// The moment `seconds` after the start.
#[must_use]
pub const fn at(seconds: u64) -> Mono {
    Mono::from_start(Duration::from_secs(seconds))
}

/// A cache that a test fills by hand.
#[derive(Clone, Debug, Default)]
pub struct World {
    cache: Arc<Cache>,
}

impl World {
    /// An empty cluster that was listed at the start.
    #[must_use]
    pub fn listed() -> Self {
        Self::listed_but(&[])
    }

    /// An empty cluster of which these kinds could not be listed.
    #[must_use]
    pub fn listed_but(unread: &[Kind]) -> Self {
        let world = Self::default();
        world.cache.select();
        world.cache.fence();
        world.cache.guard();
        for kind in Kind::ALL.into_iter().filter(|kind| !unread.contains(kind)) {
            world.list(kind, at(0));
        }
        world
    }

    /// Counts a kind as listed, and as heard of, at `now`.
    pub fn list(&self, kind: Kind, now: Mono) {
        // Everything that is there was named by the list.
        self.cache.end_list_of(kind, now);
    }

    /// The API server says at `now` that every kind is as it was.
    pub fn hear(&self, now: Mono) {
        for kind in Kind::ALL {
            self.cache.heard(kind, now);
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

    /// An object goes at `now`.
    ///
    /// # Panics
    /// The UID is empty.
    #[expect(clippy::expect_used, reason = "test support")]
    pub fn remove(&self, kind: Kind, uid: &str, now: Mono) {
        let uid = Uid::new(uid).expect("a UID");
        self.cache.remove_of(kind, &uid, now);
    }

    /// The scale of the controller of this pod was asked and answered at `now`.
    ///
    /// # Panics
    /// There is no such pod, or nobody manages it.
    pub fn scale(&self, pod: &str, scale: Result<Scale, &str>, now: Mono) {
        self.scale_asked(pod, scale, now, now);
    }

    /// The scale of the controller of this pod was asked and answered then.
    ///
    /// # Panics
    /// There is no such pod, or nobody manages it.
    #[expect(clippy::expect_used, reason = "test support")]
    pub fn scale_asked(&self, pod: &str, scale: Result<Scale, &str>, asked: Mono, answered: Mono) {
        let uid = Uid::new(pod).expect("a UID");
        let (namespace, controller) = {
            let guard = self.cache.read();
            let pod = guard.view().pod(&uid).cloned().expect("the pod");
            (pod.key.namespace, pod.controller.expect("its controller"))
        };
        let answer = ScaleAnswer { asked, answered, scale: scale.map_err(Into::into) };
        self.cache.scaled(&namespace, &controller, answer);
    }

    /// The wall clock says so at `now`, in seconds since 1970.
    ///
    /// # Panics
    /// It is no time.
    #[expect(clippy::expect_used, reason = "test support")]
    pub fn wall(&self, seconds: i64, now: Mono) {
        self.cache.read_wall(now, Timestamp::from_second(seconds).expect("a time"));
    }

    /// A quorum read did not find this node, at `now`.
    pub fn witness(&self, node: &str, now: Mono) {
        self.cache.witnessed(node, Witness::for_decide_tests(now));
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
