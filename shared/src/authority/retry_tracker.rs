//! Requests that are in flight, were just done, or failed too recently to be retried. The only place that decides about
//! retries.
//!
//! `V` is what a request rests on: the version of its object, and what else was read. A failure does not delay a request
//! that rests on something else.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::{Backoff, Mono};
use crate::model::{Rv, Uid};

/// How long a removed pod is not requested again while the watch has not delivered its removal.
const SETTLED_FOR: Duration = Duration::from_secs(30);

/// The backoff between two attempts for one pod.
const BACKOFF: Backoff = Backoff { initial: Duration::from_secs(1), maximum: Duration::from_secs(60) };
/// A failure is forgotten after this long without an attempt.
const FORGET_AFTER: Duration = Duration::from_secs(600);

#[derive(Debug)]
enum Entry<V> {
    /// The request is queued or in flight. `again`: it was requested again since.
    Busy { again: bool },
    /// The pod was removed; the cache does not show it yet.
    Settled { until: Mono },
    /// A status was written over this version; the cache does not show it yet.
    Written { over: V, until: Mono },
    /// The request failed at this version, and will be retried.
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

/// Requests by the UID of their object.
#[derive(Debug)]
pub(super) struct RetryTracker<V = Rv> {
    entries: BTreeMap<Uid, Entry<V>>,
    failures: BTreeMap<Uid, u32>,
}

impl<V> Default for RetryTracker<V> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), failures: BTreeMap::new() }
    }
}

impl<V: PartialEq> RetryTracker<V> {
    pub(super) fn admit(&mut self, uid: &Uid, basis: &V, now: Mono) -> Admission {
        match self.entries.get_mut(uid) {
            Some(Entry::Busy { again }) => {
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
            Some(Entry::Paused { failures, .. }) => {
                let failures = *failures;
                self.failures.insert(uid.clone(), failures);
            }
            Some(Entry::Settled { .. } | Entry::Written { .. }) | None => {}
        }
        self.entries.insert(uid.clone(), Entry::Busy { again: false });
        Admission::Admitted
    }

    /// Whether the same object was requested again while the request was in flight. The rejected request may rest on newer
    /// data.
    pub(super) fn was_requested_again(&self, uid: &Uid) -> bool {
        matches!(self.entries.get(uid), Some(Entry::Busy { again: true }))
    }

    /// The pod was removed.
    pub(super) fn settle(&mut self, uid: &Uid, now: Mono) {
        self.failures.remove(uid);
        self.entries.insert(uid.clone(), Entry::Settled { until: now + SETTLED_FOR });
    }

    /// A status was written over this version. Until the watch shows another version, there is nothing to write.
    pub(super) fn record_written(&mut self, uid: &Uid, over: V, now: Mono) {
        self.failures.remove(uid);
        self.entries.insert(uid.clone(), Entry::Written { over, until: now + SETTLED_FOR });
    }

    /// The request failed. Returns when it may be retried.
    pub(super) fn record_failure(&mut self, uid: &Uid, of: V, at_least: Duration, now: Mono) -> Mono {
        let failures = self.failures.remove(uid).unwrap_or(0).saturating_add(1);
        let until = now + BACKOFF.after(failures).max(at_least);
        self.entries.insert(uid.clone(), Entry::Paused { of, failures, until });
        until
    }

    /// There was nothing to do, and soon there will not be either. This is no failure, so the pause does not grow.
    pub(super) fn pause(&mut self, uid: &Uid, of: V, pause: Duration, now: Mono) -> Mono {
        self.failures.remove(uid);
        let until = now + pause;
        self.entries.insert(uid.clone(), Entry::Paused { of, failures: 0, until });
        until
    }

    /// The request was not tried.
    pub(super) fn release(&mut self, uid: &Uid) {
        self.entries.remove(uid);
    }

    pub(super) fn tidy(&mut self, now: Mono) {
        self.entries.retain(|_, entry| match entry {
            Entry::Busy { .. } => true,
            Entry::Settled { until } | Entry::Written { until, .. } => now < *until,
            Entry::Paused { until, .. } => now.since(*until) < FORGET_AFTER,
        });
        let entries = &self.entries;
        self.failures.retain(|uid, _| entries.contains_key(uid));
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
