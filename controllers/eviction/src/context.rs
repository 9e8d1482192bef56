//! The objects about one pod with a requested eviction.

use std::sync::Arc;
use std::time::Duration;

use pod_safety_shared::cache::{Lookup, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{
    Eviction, EvictionPhase, EvictionRequest, EvictionTarget, Kind, Pod, PodKey, Responder,
};

/// The objects about one pod.
pub(super) struct EvictionContext<'a> {
    pub(super) view: &'a View<'a>,
    pub(super) now: Mono,
    pub(super) target: &'a EvictionTarget,
    pub(super) pod: Lookup<'a, Pod>,
    /// Ordered by name.
    pub(super) requests: Vec<&'a EvictionRequest>,
    /// The oldest first; by name if two are equally old.
    pub(super) evictions: Vec<&'a Eviction>,
}

/// The turn of one of our responders.
#[derive(Clone, Copy)]
pub(super) struct Turn<'a> {
    pub(super) eviction: &'a Eviction,
    pub(super) responder: &'a Responder,
    pub(super) pod: &'a Pod,
}

impl Turn<'_> {
    /// The time since its last heartbeat; `None`: there is none.
    pub(super) fn since_heartbeat(&self, ctx: &EvictionContext<'_>) -> Option<Duration> {
        self.responder.heartbeat.map(|at| ctx.age(self.eviction, at, self.responder.seen.heartbeat))
    }
}

impl<'a> EvictionContext<'a> {
    pub(super) fn new(target: &'a EvictionTarget, view: &'a View<'a>, now: Mono) -> Self {
        let mut requests: Vec<_> = view.eviction_requests_of(target).collect();
        requests.sort_by_key(|request| &request.name);
        let mut evictions: Vec<_> = view.evictions_of(target).collect();
        evictions.sort_by_key(|eviction| (eviction.created, &eviction.name));
        Self { view, now, target, pod: view.lookup_pod(&target.uid), requests, evictions }
    }

    /// The key of the pod, from any object that names it; `None`: none does.
    pub(super) fn key(&self) -> Option<PodKey> {
        let named = self.requests.first().map(|request| &request.pod);
        named.or(self.evictions.first().map(|eviction| &eviction.pod)).cloned()
    }

    /// The pod, if it exists and can be read.
    pub(super) fn existing_pod(&self) -> Option<&'a Pod> {
        match self.pod {
            Lookup::Known(pod) => Some(pod),
            Lookup::Absent | Lookup::Unknown(_) => None,
        }
    }

    /// Rule 5: the Eviction that counts.
    pub(super) fn relevant(&self) -> Option<&'a Eviction> {
        Eviction::most_relevant(self.evictions.iter().copied())
    }

    /// The active Eviction: of several the oldest (rule 7).
    pub(super) fn active(&self) -> Option<&'a Eviction> {
        self.evictions.iter().copied().find(|eviction| eviction.phase() == EvictionPhase::Active)
    }

    /// The requests for the eviction of this very pod (rules 2 and 3). An invalid request is none.
    pub(super) fn open_requests(&self) -> impl Iterator<Item = &'a EvictionRequest> + '_ {
        self.requests.iter().copied().filter(|request| request.is_effective() && !is_invalid(request))
    }

    /// The time since a value of this Eviction was written; the value has the timestamp `at` of another clock, and this
    /// process first saw it at `seen`. A value that changed while this process watched has its age by the monotonic clock,
    /// whatever the wall clocks show. A value from before may be older, by its timestamp.
    pub(super) fn age(&self, eviction: &Eviction, at: i64, seen: Mono) -> Duration {
        let observed = self.now.since(seen);
        if seen == eviction.first_seen { observed.max(self.view.age(at, self.now)) } else { observed }
    }

    /// Whether there are objects of this kind that cannot be decoded: one may be about this pod.
    pub(super) fn has_unreadable(&self, kind: Kind) -> bool {
        self.view.count(kind).1 > 0
    }

    /// The turn of our responder of this name, if it is active and not completed, and the pod exists.
    pub(super) fn turn_of(&self, name: &str) -> Option<Turn<'a>> {
        let eviction = self.active()?;
        let responder = eviction.active().filter(|active| *active.name == *name && active.completed.is_none())?;
        let pod = self.existing_pod().filter(|pod| !pod.phase.is_terminal())?;
        Some(Turn { eviction, responder, pod })
    }

    pub(super) fn namespace(&self) -> &'a Arc<str> {
        &self.target.namespace
    }
}

/// `Failed=True/EvictionInvalid` is final for a request (rule 4).
pub(super) fn is_invalid(request: &EvictionRequest) -> bool {
    request.conditions.failure_reason() == Some(pod_safety_shared::model::EVICTION_INVALID)
}
