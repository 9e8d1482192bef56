//! Keys that must be decided: now, or from some moment on.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::Mono;

#[derive(Debug)]
pub(super) struct Dirty<K> {
    state: Mutex<State<K>>,
    news: Notify,
}

#[derive(Debug)]
struct State<K> {
    now: BTreeSet<K>,
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

impl<K> Default for Dirty<K> {
    fn default() -> Self {
        let (now, later, due, resting) = Default::default();
        Self { state: Mutex::new(State { now, later, due, resting, all: false }), news: Notify::new() }
    }
}

impl<K: Ord + Clone> Dirty<K> {
    pub(super) fn mark(&self, key: K) {
        self.state.lock().now.insert(key);
        self.news.notify_one();
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
            state.now.insert(key);
        }
        let mut taken = Vec::new();
        while taken.len() < limit
            && let Some(key) = state.now.pop_first()
        {
            match state.resting.get(&key).copied() {
                Some(until) if now < until => state.mark_at(key, until),
                _ => taken.push(key),
            }
        }
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
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono::from_start(Duration::from_secs(seconds))
    }

    #[test]
    fn a_key_is_taken_once_however_often_it_was_marked() {
        let dirty = Dirty::default();
        dirty.mark("a");
        dirty.mark("a");
        assert_eq!(dirty.take(10, at(0)), ["a"]);
        assert!(dirty.take(10, at(0)).is_empty());
    }

    #[test]
    fn the_earliest_moment_counts() {
        let dirty = Dirty::default();
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
        let dirty = Dirty::default();
        dirty.rest("a", at(5));
        dirty.mark("a");
        dirty.mark("b");
        assert_eq!(dirty.take(10, at(4)), ["b"]);
        assert_eq!(dirty.next_due(), Some(at(5)));
        dirty.mark("a");
        assert!(dirty.take(10, at(4)).is_empty());
        assert_eq!(dirty.take(10, at(5)), ["a"]);
        assert!(dirty.take(10, at(6)).is_empty(), "once");
    }

    #[test]
    fn what_does_not_fit_into_a_round_stays() {
        let dirty = Dirty::default();
        for key in 0..5 {
            dirty.mark(key);
        }
        assert_eq!(dirty.take(3, at(0)), [0, 1, 2]);
        assert_eq!(dirty.take(3, at(0)), [3, 4]);
    }
}
