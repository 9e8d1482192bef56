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
    all: bool,
}

impl<K> Default for Dirty<K> {
    fn default() -> Self {
        let state = State { now: BTreeSet::new(), later: BTreeMap::new(), due: BTreeSet::new(), all: false };
        Self { state: Mutex::new(state), news: Notify::new() }
    }
}

impl<K: Ord + Clone> Dirty<K> {
    pub(super) fn mark(&self, key: K) {
        self.state.lock().now.insert(key);
        self.news.notify_one();
    }

    /// Marks the key from `when` on; the earliest such moment counts.
    pub(super) fn mark_at(&self, key: K, when: Mono) {
        let mut state = self.state.lock();
        if let Some(earlier) = state.later.get(&key).copied() {
            if earlier <= when {
                return;
            }
            state.due.remove(&(earlier, key.clone()));
        }
        state.later.insert(key.clone(), when);
        state.due.insert((when, key));
        drop(state);
        self.news.notify_one();
    }

    /// Every key that there is must be decided.
    pub(super) fn mark_all(&self) {
        self.state.lock().all = true;
        self.news.notify_one();
    }

    /// Whether every key was asked for; forgets it.
    pub(super) fn take_all(&self) -> bool {
        std::mem::take(&mut self.state.lock().all)
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
            taken.push(key);
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
    fn what_does_not_fit_into_a_round_stays() {
        let dirty = Dirty::default();
        for key in 0..5 {
            dirty.mark(key);
        }
        assert_eq!(dirty.take(3, at(0)), [0, 1, 2]);
        assert_eq!(dirty.take(3, at(0)), [3, 4]);
    }
}
