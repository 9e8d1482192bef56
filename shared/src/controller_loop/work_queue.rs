//! The work queue: keys to decide about now, or from some time on.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::Mono;
use crate::metrics::Queue;

/// How much earlier than all other keys a new leader enqueues those that were refused before, so that they come first.
const BEFORE_ALL: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct WorkQueue<K> {
    state: Mutex<State<K>>,
    notify: Notify,
    metrics: Queue,
}

#[derive(Debug)]
struct State<K> {
    /// The keys to decide about now, and since when.
    ready: BTreeMap<K, Mono>,
    /// The same keys in the order of their turns: a key that is enqueued repeatedly does not get ahead of others.
    order: BTreeSet<(Mono, K)>,
    later: BTreeMap<K, Mono>,
    due: BTreeSet<(Mono, K)>,
    resting: BTreeMap<K, Mono>,
    /// Keys whose last decision resulted in a request of the leader while this process was not the leader.
    refused: BTreeSet<K>,
    all: bool,
}

impl<K: Ord + Clone> State<K> {
    /// Enqueues the key; returns whether it was not in the queue.
    fn enqueue(&mut self, key: K, since: Mono) -> bool {
        let Entry::Vacant(vacant) = self.ready.entry(key.clone()) else { return false };
        vacant.insert(since);
        self.order.insert((since, key))
    }

    /// Removes the key that has waited longest.
    fn pop(&mut self) -> Option<(K, Mono)> {
        let (since, key) = self.order.pop_first()?;
        self.ready.remove(&key);
        Some((key, since))
    }

    /// Enqueues the key at `when`; the earliest such time counts.
    fn enqueue_at(&mut self, key: K, when: Mono) {
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

impl<K: Ord + Clone> WorkQueue<K> {
    pub(super) fn new(metrics: Queue) -> Self {
        let (ready, order, later, due, resting, refused) = Default::default();
        let state = Mutex::new(State { ready, order, later, due, resting, refused, all: false });
        Self { state, notify: Notify::new(), metrics }
    }

    pub(super) fn enqueue(&self, key: K, now: Mono) {
        let mut state = self.state.lock();
        self.add(&mut state, key, now);
        self.set_depth(&state);
        drop(state);
        self.notify.notify_one();
    }

    fn add(&self, state: &mut State<K>, key: K, since: Mono) {
        if state.enqueue(key, since) {
            self.metrics.adds.inc();
        }
    }

    fn set_depth(&self, state: &State<K>) {
        self.metrics.depth.set(i64::try_from(state.ready.len()).unwrap_or(i64::MAX));
    }

    /// Enqueues the key at `when`; the earliest such time counts.
    pub(super) fn enqueue_at(&self, key: K, when: Mono) {
        self.state.lock().enqueue_at(key, when);
        self.notify.notify_one();
    }

    /// The key is not popped before `until`, even if it is enqueued.
    pub(super) fn defer_until(&self, key: K, until: Mono) {
        self.state.lock().resting.insert(key, until);
    }

    /// All keys must be decided.
    pub(super) fn enqueue_all(&self) {
        self.state.lock().all = true;
        self.notify.notify_one();
    }

    /// Records that the authority refused a request for this key, because this process is not the leader. Popping the key
    /// clears it.
    pub(super) fn set_refused(&self, key: K) {
        self.state.lock().refused.insert(key);
    }

    /// This process became the leader: all keys must be decided, those that were refused first.
    pub(super) fn requeue_refused(&self, now: Mono) {
        let before = Mono::from_start(now.since_start().saturating_sub(BEFORE_ALL));
        let mut state = self.state.lock();
        for key in std::mem::take(&mut state.refused) {
            self.add(&mut state, key, before);
        }
        state.all = true;
        self.set_depth(&state);
        drop(state);
        self.notify.notify_one();
    }

    /// Whether all keys must be decided; resets this flag, and drops deferrals that are over.
    pub(super) fn take_enqueue_all(&self, now: Mono) -> bool {
        let mut state = self.state.lock();
        let all = std::mem::take(&mut state.all);
        if all {
            state.resting.retain(|_, until| now < *until);
        }
        all
    }

    /// Removes the key that has been in the queue for longest at `now`.
    pub(super) fn pop(&self, now: Mono) -> Option<K> {
        let mut state = self.state.lock();
        while let Some((when, key)) = state.due.first().cloned()
            && when <= now
        {
            state.due.pop_first();
            state.later.remove(&key);
            self.add(&mut state, key, when);
        }
        let mut popped = None;
        while popped.is_none()
            && let Some((key, since)) = state.pop()
        {
            match state.resting.get(&key).copied() {
                Some(until) if now < until => state.enqueue_at(key, until),
                _ => {
                    self.metrics.waited.observe(now.since(since).as_secs_f64());
                    state.refused.remove(&key);
                    popped = Some(key);
                }
            }
        }
        self.set_depth(&state);
        popped
    }

    /// When the next deferred key is due.
    pub(super) fn next_due(&self) -> Option<Mono> {
        self.state.lock().due.first().map(|(when, _)| *when)
    }

    /// Completes when a key was enqueued.
    pub(super) async fn wait_for_work(&self) {
        self.notify.notified().await;
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::testing::at;

    fn pop_up_to<K: Ord + Clone>(dirty: &WorkQueue<K>, limit: usize, now: Mono) -> Vec<K> {
        std::iter::from_fn(|| dirty.pop(now)).take(limit).collect()
    }

    fn dirty<K: Ord + Clone>() -> WorkQueue<K> {
        WorkQueue::new(crate::metrics::Metrics::new().unwrap().queues.for_controller("toy"))
    }

    #[test]
    fn the_metrics_show_queue_depth_and_wait_times() {
        let dirty = dirty();
        dirty.enqueue("a", at(1));
        dirty.enqueue("a", at(2));
        dirty.enqueue_at("b", at(3));
        assert_eq!((dirty.metrics.depth.get(), dirty.metrics.adds.get()), (1, 1));
        pop_up_to(&dirty, 10, at(4));
        assert_eq!((dirty.metrics.depth.get(), dirty.metrics.adds.get()), (0, 2));
        let waited = &dirty.metrics.waited;
        assert_eq!((waited.get_sample_count(), waited.get_sample_sum()), (2, 4.0), "three seconds and one");
    }

    #[test]
    fn a_key_is_popped_once_however_often_it_was_enqueued() {
        let dirty = dirty();
        dirty.enqueue("a", at(0));
        dirty.enqueue("a", at(0));
        assert_eq!(pop_up_to(&dirty, 10, at(0)), ["a"]);
        assert!(pop_up_to(&dirty, 10, at(0)).is_empty());
    }

    /// A pod that flaps enqueued all two thousand budgets of a tenant again and again. Once, those whose keys sort first
    /// were decided over and over, and no other budget was.
    #[test]
    fn attack_keys_that_are_enqueued_repeatedly_do_not_delay_others() {
        let dirty = dirty();
        dirty.enqueue("z", at(0));
        for second in 0..3 {
            dirty.enqueue("a", at(second));
            dirty.enqueue("b", at(second));
            let taken = dirty.pop(at(second));
            assert_eq!(taken, Some(["a", "b", "z"][usize::try_from(second).unwrap()]));
        }
        assert_eq!(pop_up_to(&dirty, 10, at(3)), ["a", "b"]);
    }

    #[test]
    fn the_earliest_requeue_time_counts() {
        let dirty = dirty();
        dirty.enqueue_at("a", at(9));
        dirty.enqueue_at("a", at(5));
        dirty.enqueue_at("a", at(7));
        assert_eq!(dirty.next_due(), Some(at(5)));
        assert!(pop_up_to(&dirty, 10, at(4)).is_empty());
        assert_eq!(pop_up_to(&dirty, 10, at(5)), ["a"]);
        assert_eq!(dirty.next_due(), None);
    }

    #[test]
    fn a_deferred_key_is_popped_after_its_deferral() {
        let dirty = dirty();
        dirty.defer_until("a", at(5));
        dirty.enqueue("a", at(0));
        dirty.enqueue("b", at(0));
        assert_eq!(pop_up_to(&dirty, 10, at(4)), ["b"]);
        assert_eq!(dirty.next_due(), Some(at(5)));
        dirty.enqueue("a", at(0));
        assert!(pop_up_to(&dirty, 10, at(4)).is_empty());
        assert_eq!(pop_up_to(&dirty, 10, at(5)), ["a"]);
        assert!(pop_up_to(&dirty, 10, at(6)).is_empty(), "once");
    }

    #[test]
    fn keys_beyond_the_limit_stay_in_the_queue() {
        let dirty = dirty();
        for key in 0..5 {
            dirty.enqueue(key, at(0));
        }
        assert_eq!(pop_up_to(&dirty, 3, at(0)), [0, 1, 2]);
        assert_eq!(pop_up_to(&dirty, 3, at(0)), [3, 4]);
    }
}
