//! Requests that are in flight, were just done, or failed too recently to be retried. The only place that decides about
//! retries.
//!
//! `K` is what has one request at a time: an object by its UID, or the flow of a node, a device, a remediation or a policy.
//! `V` is what a request rests on: the version of its object, and what else was read. A failure does not delay a request
//! that rests on something else.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::{Backoff, Mono};
use crate::model::{Rv, Uid};

/// How long a removed object is not requested again while the watch has not delivered its removal.
const SETTLED_FOR: Duration = Duration::from_secs(30);

/// The default backoff between two attempts for one key.
const BACKOFF: Backoff = Backoff { initial: Duration::from_secs(1), maximum: Duration::from_secs(60) };
/// A failure is forgotten after this long without an attempt.
const FORGET_AFTER: Duration = Duration::from_secs(600);

#[derive(Debug)]
enum Entry<V> {
    /// The request is queued or in flight. `again`: it was requested again since.
    Busy { again: bool, failures: u32 },
    /// The request was not tried. The failures before it count until [`RetryTracker::tidy`].
    Untried { failures: u32 },
    /// The object was removed; the cache does not show it yet.
    Settled { until: Mono },
    /// A status was written over this version; the cache does not show it yet.
    Written { over: V, until: Mono },
    /// The request failed at this version, or there is nothing to do yet, and it will be retried.
    Paused { of: V, failures: u32, until: Mono },
}

/// Whether a request is accepted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// The request is accepted, and counts as in flight.
    Admitted,
    /// A request for the object is in flight.
    Busy,
    /// The request failed or was just done: it is not accepted before this time.
    Paused(Mono),
}

/// Requests by their keys: at most one of a key is in flight.
#[derive(Debug)]
pub(super) struct RetryTracker<K = Uid, V = Rv> {
    entries: BTreeMap<K, Entry<V>>,
    backoff: Backoff,
}

impl<V> Default for RetryTracker<Uid, V> {
    fn default() -> Self {
        Self::new(BACKOFF)
    }
}

impl<K, V> RetryTracker<K, V> {
    pub(super) const fn new(backoff: Backoff) -> Self {
        Self { entries: BTreeMap::new(), backoff }
    }
}

impl<K: Ord + Clone, V: PartialEq> RetryTracker<K, V> {
    pub(super) fn admit(&mut self, key: &K, basis: &V, now: Mono) -> Admission {
        let failures = match self.entries.get_mut(key) {
            Some(Entry::Busy { again, .. }) => {
                *again = true;
                return Admission::Busy;
            }
            // If the pod still exists when the pause ends, as after etcd was restored, the request is accepted again.
            Some(Entry::Settled { until }) if now < *until => return Admission::Paused(*until),
            // The watch wakes up a caller that came too early. If the watch delivers nothing, the end of the pause does.
            Some(Entry::Written { over, until }) if over == basis && now < *until => {
                return Admission::Paused(*until);
            }
            Some(Entry::Paused { of, until, .. }) if of == basis && now < *until => {
                return Admission::Paused(*until);
            }
            Some(Entry::Paused { failures, .. } | Entry::Untried { failures }) => *failures,
            Some(Entry::Settled { .. } | Entry::Written { .. }) | None => 0,
        };
        self.entries.insert(key.clone(), Entry::Busy { again: false, failures });
        Admission::Admitted
    }

    /// Whether the same object was requested again while the request was in flight. The rejected request may rest on newer
    /// data.
    pub(super) fn was_requested_again(&self, key: &K) -> bool {
        matches!(self.entries.get(key), Some(Entry::Busy { again: true, .. }))
    }

    /// The number of failures in a row before the request that is in flight.
    pub(super) fn failures<Q: Ord + ?Sized>(&self, key: &Q) -> u32
    where
        K: Borrow<Q>,
    {
        match self.entries.get(key) {
            Some(Entry::Busy { failures, .. } | Entry::Paused { failures, .. } | Entry::Untried { failures }) => {
                *failures
            }
            Some(Entry::Settled { .. } | Entry::Written { .. }) | None => 0,
        }
    }

    /// The object was removed.
    pub(super) fn settle(&mut self, key: &K, now: Mono) {
        self.entries.insert(key.clone(), Entry::Settled { until: now + SETTLED_FOR });
    }

    /// A status was written over this version. Until the watch shows another version, there is nothing to write.
    pub(super) fn record_written(&mut self, key: &K, over: V, now: Mono) {
        self.entries.insert(key.clone(), Entry::Written { over, until: now + SETTLED_FOR });
    }

    /// The request failed. Returns when it may be retried.
    pub(super) fn record_failure(&mut self, key: &K, of: V, at_least: Duration, now: Mono) -> Mono {
        let failures = self.failures(key).saturating_add(1);
        let until = now + self.backoff.after(failures).max(at_least);
        self.entries.insert(key.clone(), Entry::Paused { of, failures, until });
        until
    }

    /// There was nothing to do, and soon there will not be either. This is no failure, so the pause does not grow.
    pub(super) fn pause(&mut self, key: &K, of: V, pause: Duration, now: Mono) -> Mono {
        let until = now + pause;
        self.entries.insert(key.clone(), Entry::Paused { of, failures: 0, until });
        until
    }

    /// The request was not tried.
    pub(super) fn release(&mut self, key: &K) {
        match self.failures(key) {
            0 => self.forget(key),
            failures => drop(self.entries.insert(key.clone(), Entry::Untried { failures })),
        }
    }

    /// Nothing is left to do.
    pub(super) fn forget<Q: Ord + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        self.entries.remove(key);
    }

    pub(super) fn tidy(&mut self, now: Mono) {
        self.entries.retain(|_, entry| match entry {
            Entry::Busy { .. } => true,
            Entry::Untried { .. } => false,
            Entry::Settled { until } | Entry::Written { until, .. } => now < *until,
            Entry::Paused { until, .. } => now.since(*until) < FORGET_AFTER,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    fn rv(text: &str) -> Rv {
        text.parse().unwrap()
    }

    #[test]
    fn a_pod_has_one_request_in_flight() {
        let mut tracker = RetryTracker::default();
        let uid = Uid::new("a").unwrap();
        assert_eq!(tracker.admit(&uid, &rv("1"), at(0)), Admission::Admitted);
        assert_eq!(tracker.admit(&uid, &rv("2"), at(1)), Admission::Busy);
        tracker.settle(&uid, at(1));
        assert_eq!(tracker.admit(&uid, &rv("3"), at(30)), Admission::Paused(at(31)));
        assert_eq!(tracker.admit(&uid, &rv("3"), at(31)), Admission::Admitted);
    }

    #[test]
    fn a_written_status_is_admitted_again_at_a_new_version_or_after_the_pause() {
        let mut tracker = RetryTracker::default();
        let uid = Uid::new("a").unwrap();
        tracker.admit(&uid, &rv("1"), at(0));
        tracker.record_written(&uid, rv("1"), at(0));
        let paused = Admission::Paused(at(30));
        assert_eq!(tracker.admit(&uid, &rv("1"), at(29)), paused, "the cache is behind");
        assert_eq!(tracker.admit(&uid, &rv("2"), at(1)), Admission::Admitted, "the cache shows it");
        tracker.record_written(&uid, rv("2"), at(1));
        assert_eq!(tracker.admit(&uid, &rv("2"), at(31)), Admission::Admitted, "it changed nothing");
    }

    #[test]
    fn failures_at_one_version_back_off_and_a_new_version_is_admitted_at_once() {
        let mut tracker = RetryTracker::default();
        let uid = Uid::new("a").unwrap();
        let mut now = at(0);
        for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(tracker.admit(&uid, &rv("1"), now), Admission::Admitted);
            let until = tracker.record_failure(&uid, rv("1"), Duration::ZERO, now);
            assert_eq!(until.since(now), Duration::from_secs(pause));
            assert_eq!(tracker.admit(&uid, &rv("1"), now), Admission::Paused(until));
            now = until;
        }
        assert_eq!(tracker.admit(&uid, &rv("2"), at(0)), Admission::Admitted);
    }

    /// A full queue is no reason to try sooner.
    #[test]
    fn a_request_that_was_not_tried_keeps_the_failures_before_it() {
        let mut tracker = RetryTracker::default();
        let uid = Uid::new("a").unwrap();
        tracker.admit(&uid, &rv("1"), at(0));
        tracker.record_failure(&uid, rv("1"), Duration::ZERO, at(0));
        tracker.admit(&uid, &rv("2"), at(0));
        tracker.release(&uid);
        assert_eq!(tracker.admit(&uid, &rv("2"), at(0)), Admission::Admitted);
        assert_eq!(tracker.record_failure(&uid, rv("2"), Duration::ZERO, at(0)), at(2));
    }

    #[test]
    fn pause_does_not_back_off() {
        let mut tracker = RetryTracker::default();
        let uid = Uid::new("a").unwrap();
        for round in 0..5 {
            assert_eq!(tracker.admit(&uid, &rv("1"), at(round * 5)), Admission::Admitted);
            let until = tracker.pause(&uid, rv("1"), Duration::from_secs(5), at(round * 5));
            assert_eq!(until, at(round * 5 + 5));
            assert_eq!(tracker.admit(&uid, &rv("1"), at(round * 5 + 4)), Admission::Paused(until));
        }
    }

    #[test]
    fn record_failure_waits_at_least_for_retry_after() {
        let mut tracker = RetryTracker::default();
        let uid = Uid::new("a").unwrap();
        tracker.admit(&uid, &rv("1"), at(0));
        assert_eq!(tracker.record_failure(&uid, rv("1"), Duration::from_secs(7), at(0)), at(7));
    }

    #[test]
    fn tidy_removes_only_entries_that_are_over() {
        let mut tracker = RetryTracker::default();
        let (busy, settled, failed) = (Uid::new("a").unwrap(), Uid::new("b").unwrap(), Uid::new("c").unwrap());
        for uid in [&busy, &settled, &failed] {
            tracker.admit(uid, &rv("1"), at(0));
        }
        tracker.settle(&settled, at(0));
        let until = tracker.record_failure(&failed, rv("1"), Duration::ZERO, at(0)).since_start().as_secs();
        for (now, remaining) in [
            (29, vec![&busy, &settled, &failed]),
            (30, vec![&busy, &failed]),
            (until + 599, vec![&busy, &failed]),
            (until + 600, vec![&busy]),
        ] {
            tracker.tidy(at(now));
            assert_eq!(tracker.entries.keys().collect::<Vec<_>>(), remaining, "at {now}");
        }
    }
}
