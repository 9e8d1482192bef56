//! Keys that must be decided: now, or from some moment on.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::Mono;
use crate::metrics::Queue;

#[derive(Debug)]
pub(super) struct Dirty<K> {
    state: Mutex<State<K>>,
    news: Notify,
    metrics: Queue,
}

#[derive(Debug)]
struct State<K> {
    /// Since when each is.
    now: BTreeMap<K, Mono>,
    later: BTreeMap<K, Mono>,
    due: BTreeSet<(Mono, K)>,
    resting: BTreeMap<K, Mono>,
    all: bool,
}

impl<K: Ord + Clone> State<K> {
    /// Marks the key from `when` on; the earliest such moment counts.
    fn mark_at(&mut self, key: K, when: Mono) {
        if let Some(earlier) = self.later.get(&key).copied() {
            if earlier <= when {
                return;
            }
            self.due.remove(&(earlier, key.clone()));
        }
        self.later.insert(key.clone(), when);
        self.due.insert((when, key));
    }
}

impl<K: Ord + Clone> Dirty<K> {
    pub(super) fn new(metrics: Queue) -> Self {
        let (now, later, due, resting) = Default::default();
        let state = Mutex::new(State { now, later, due, resting, all: false });
        Self { state, news: Notify::new(), metrics }
    }

    pub(super) fn mark(&self, key: K, now: Mono) {
        let mut state = self.state.lock();
        if let Entry::Vacant(vacant) = state.now.entry(key) {
            vacant.insert(now);
            self.metrics.adds.inc();
        }
        self.shows(&state);
        drop(state);
        self.news.notify_one();
    }

    fn shows(&self, state: &State<K>) {
        self.metrics.depth.set(i64::try_from(state.now.len()).unwrap_or(i64::MAX));
    }

    /// Marks the key from `when` on; the earliest such moment counts.
    pub(super) fn mark_at(&self, key: K, when: Mono) {
        self.state.lock().mark_at(key, when);
        self.news.notify_one();
    }

    /// Whatever marks this key, it is not taken before `until`.
    pub(super) fn rest(&self, key: K, until: Mono) {
        self.state.lock().resting.insert(key, until);
    }

    /// Every key that there is must be decided.
    pub(super) fn mark_all(&self) {
        self.state.lock().all = true;
        self.news.notify_one();
    }

    /// Whether every key was asked for; forgets it, and who has rested.
    pub(super) fn take_all(&self, now: Mono) -> bool {
        let mut state = self.state.lock();
        let all = std::mem::take(&mut state.all);
        if all {
            state.resting.retain(|_, until| now < *until);
        }
        all
    }

    /// Up to `limit` keys that are dirty at `now`.
    pub(super) fn take(&self, limit: usize, now: Mono) -> Vec<K> {
        let mut state = self.state.lock();
        while let Some((when, key)) = state.due.first().cloned()
            && when <= now
        {
            state.due.pop_first();
            state.later.remove(&key);
            if let Entry::Vacant(vacant) = state.now.entry(key) {
                vacant.insert(when);
                self.metrics.adds.inc();
            }
        }
        let mut taken = Vec::new();
        while taken.len() < limit
            && let Some((key, since)) = state.now.pop_first()
        {
            match state.resting.get(&key).copied() {
                Some(until) if now < until => state.mark_at(key, until),
                _ => {
                    self.metrics.waited.observe(now.since(since).as_secs_f64());
                    taken.push(key);
                }
            }
        }
        self.shows(&state);
        taken
    }

    /// When the next key becomes dirty by itself.
    pub(super) fn next_due(&self) -> Option<Mono> {
        self.state.lock().due.first().map(|(when, _)| *when)
    }

    /// Completes when something was marked.
    pub(super) async fn news(&self) {
        self.news.notified().await;
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::testing::at;

    fn dirty<K: Ord + Clone>() -> Dirty<K> {
        Dirty::new(crate::metrics::Metrics::new().unwrap().queues.of("toy"))
    }

    #[test]
    fn the_metrics_show_what_waits_and_how_long_it_did() {
        let dirty = dirty();
        dirty.mark("a", at(1));
        dirty.mark("a", at(2));
        dirty.mark_at("b", at(3));
        assert_eq!((dirty.metrics.depth.get(), dirty.metrics.adds.get()), (1, 1));
        dirty.take(10, at(4));
        assert_eq!((dirty.metrics.depth.get(), dirty.metrics.adds.get()), (0, 2));
        let waited = &dirty.metrics.waited;
        assert_eq!((waited.get_sample_count(), waited.get_sample_sum()), (2, 4.0), "three seconds and one");
    }

    #[test]
    fn a_key_is_taken_once_however_often_it_was_marked() {
        let dirty = dirty();
        dirty.mark("a", at(0));
        dirty.mark("a", at(0));
        assert_eq!(dirty.take(10, at(0)), ["a"]);
        assert!(dirty.take(10, at(0)).is_empty());
    }

    #[test]
    fn the_earliest_moment_counts() {
        let dirty = dirty();
        dirty.mark_at("a", at(9));
        dirty.mark_at("a", at(5));
        dirty.mark_at("a", at(7));
        assert_eq!(dirty.next_due(), Some(at(5)));
        assert!(dirty.take(10, at(4)).is_empty());
        assert_eq!(dirty.take(10, at(5)), ["a"]);
        assert_eq!(dirty.next_due(), None);
    }

    #[test]
    fn a_key_that_rests_is_taken_afterwards() {
        let dirty = dirty();
        dirty.rest("a", at(5));
        dirty.mark("a", at(0));
        dirty.mark("b", at(0));
        assert_eq!(dirty.take(10, at(4)), ["b"]);
        assert_eq!(dirty.next_due(), Some(at(5)));
        dirty.mark("a", at(0));
        assert!(dirty.take(10, at(4)).is_empty());
        assert_eq!(dirty.take(10, at(5)), ["a"]);
        assert!(dirty.take(10, at(6)).is_empty(), "once");
    }

    #[test]
    fn what_does_not_fit_into_a_round_stays() {
        let dirty = dirty();
        for key in 0..5 {
            dirty.mark(key, at(0));
        }
        assert_eq!(dirty.take(3, at(0)), [0, 1, 2]);
        assert_eq!(dirty.take(3, at(0)), [3, 4]);
    }
}
