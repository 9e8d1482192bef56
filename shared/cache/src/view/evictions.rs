//! Requests to evict pods, and Evictions.

use super::{Lookup, View, lookup};
use crate::clock::Mono;
use crate::model::{Eviction, EvictionRequest, EvictionTarget, Kind, Pod, Uid};

impl<'a> View<'a> {
    /// The readable requests to evict this pod.
    pub fn eviction_requests_of(&self, target: &EvictionTarget) -> impl Iterator<Item = &'a EvictionRequest> + use<'a> {
        self.inner.evictions.requests_of(target)
    }

    /// The readable Evictions of this pod.
    pub fn evictions_of(&self, target: &EvictionTarget) -> impl Iterator<Item = &'a Eviction> + use<'a> {
        self.inner.evictions.evictions_of(target)
    }

    /// Every readable request.
    pub fn eviction_requests(&self) -> impl Iterator<Item = &'a EvictionRequest> + use<'a> {
        self.inner.evictions.requests.iter()
    }

    /// Every readable Eviction.
    pub fn evictions(&self) -> impl Iterator<Item = &'a Eviction> + use<'a> {
        self.inner.evictions.evictions.iter()
    }

    /// Every pod that a readable request or Eviction is about.
    pub fn eviction_targets(&self) -> impl Iterator<Item = &'a EvictionTarget> + use<'a> {
        self.inner.evictions.targets()
    }

    /// Whether there is a readable request or Eviction about this pod.
    #[must_use]
    pub fn is_eviction_target(&self, target: &EvictionTarget) -> bool {
        self.inner.evictions.is_target(target)
    }

    /// When this process saw the pod removed, or its phase become terminal. `None`: it did not.
    #[must_use]
    pub fn target_ended_at(&self, target: &EvictionTarget) -> Option<Mono> {
        self.inner.evictions.ended_at(target)
    }

    /// Whether another controller writes the states of active Evictions of this namespace.
    #[must_use]
    pub fn has_foreign_evictions(&self, namespace: &str) -> bool {
        self.inner.evictions.has_foreign(namespace)
    }

    /// The pod with this UID. Unknown is not absent.
    #[must_use]
    pub fn lookup_pod(&self, uid: &Uid) -> Lookup<'a, Pod> {
        let gap = if self.inner.pods.unidentified() > 0 {
            Some("some pods cannot be decoded, not even their names")
        } else if self.state(Kind::Pods).synced {
            None
        } else {
            Some("pods are not listed yet")
        };
        lookup(self.inner.pods.get(uid), gap)
    }
}
