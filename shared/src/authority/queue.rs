//! The fair queue of requests. Priority levels take turns, and within a level nodes (or namespaces) take turns, a small
//! batch each. So ten thousand orphans of one node never delay the one pod of another node, and terminated pods never delay
//! an orphan.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Mono;

/// How many pods of one node are processed in one turn. Each turn that needs quorum reads makes two of them, so 32 pods
/// share this cost. Evidence that expires during a turn, because the API server is slow, is read again.
pub(super) const BATCH: usize = 32;

/// How many requests of one priority level may wait, so that a lost zone of thousands of pods blocks no force deletion of
/// another level. A request for a pod takes some 200 bytes. A request that does not fit is decided again when there is
/// room.
pub(super) const LIMIT: usize = 20_000;

/// The shortest time after which a rejected request is decided again. It also applies while the rate of the queue is unknown.
const MIN_RETRY: Duration = Duration::from_secs(1);
/// The longest time after which a rejected request is decided again.
const MAX_RETRY: Duration = Duration::from_secs(30);
/// If two turns are farther apart than this, the queue was empty in between, and the rate is unknown.
const IDLE: Duration = Duration::from_secs(3);

/// The rate at which requests leave the queue. Requests that a full queue rejected are decided again when half of the queue
/// is done. Otherwise all 330,000 pods of a lost zone would be decided each second, for the 2,000 of them that fit.
#[derive(Debug, Default)]
pub(super) struct DrainRate {
    since: Mono,
    done: usize,
    each_second: f64,
}

impl DrainRate {
    /// Records that `count` requests left the queue.
    pub(super) fn record(&mut self, count: usize, now: Mono) {
        self.done += count;
        let span = now.since(self.since);
        if span >= MIN_RETRY {
            let done = if span < IDLE { u32::try_from(self.done).unwrap_or(u32::MAX) } else { 0 };
            (self.each_second, self.since, self.done) = (f64::from(done) / span.as_secs_f64(), now, 0);
        }
    }

    /// The time until there is room.
    pub(super) fn time_to_room(&self) -> Duration {
        if self.each_second == 0.0 {
            return MIN_RETRY;
        }
        let half = u32::try_from(LIMIT / 2).unwrap_or(u32::MAX);
        let span = Duration::try_from_secs_f64(f64::from(half) / self.each_second).unwrap_or(MAX_RETRY);
        span.clamp(MIN_RETRY, MAX_RETRY)
    }
}

/// A bounded queue that is fair on two levels: between priority levels, and between the flows of a level.
#[derive(Debug)]
pub(super) struct FairQueue<C, T> {
    levels: BTreeMap<C, Flows<T>>,
    turns: VecDeque<C>,
}

#[derive(Debug)]
struct Flows<T> {
    flows: BTreeMap<Arc<str>, VecDeque<T>>,
    turns: VecDeque<Arc<str>>,
    len: usize,
}

impl<C: Ord + Copy, T> Default for FairQueue<C, T> {
    fn default() -> Self {
        Self { levels: BTreeMap::new(), turns: VecDeque::new() }
    }
}

impl<C: Ord + Copy, T> FairQueue<C, T> {
    /// Adds `item`; returns it if its priority level is full.
    pub(super) fn push(&mut self, level: C, flow: &Arc<str>, item: T) -> Result<(), T> {
        let flows = self.levels.entry(level).or_insert_with(|| {
            self.turns.push_back(level);
            Flows { flows: BTreeMap::new(), turns: VecDeque::new(), len: 0 }
        });
        if flows.len >= LIMIT {
            return Err(item);
        }
        flows.len += 1;
        let waiting = flows.flows.entry(Arc::clone(flow)).or_insert_with(|| {
            flows.turns.push_back(Arc::clone(flow));
            VecDeque::new()
        });
        waiting.push_back(item);
        Ok(())
    }

    /// The next turn: up to [`BATCH`] items of one flow.
    pub(super) fn pop(&mut self) -> Option<Vec<T>> {
        self.pop_except(None)
    }

    /// The next turn of any priority level except this one.
    pub(super) fn pop_except(&mut self, except: Option<C>) -> Option<Vec<T>> {
        let at = self.turns.iter().position(|level| Some(*level) != except)?;
        let level = self.turns.remove(at)?;
        let flows = self.levels.get_mut(&level)?;
        let flow = flows.turns.pop_front()?;
        let waiting = flows.flows.get_mut(&flow)?;
        let batch: Vec<T> = waiting.drain(..BATCH.min(waiting.len())).collect();
        flows.len -= batch.len();
        if waiting.is_empty() {
            flows.flows.remove(&flow);
        } else {
            flows.turns.push_back(flow);
        }
        if flows.turns.is_empty() {
            self.levels.remove(&level);
        } else {
            self.turns.push_back(level);
        }
        Some(batch)
    }

    /// Removes all items, for instance when leadership is lost.
    pub(super) fn drain(&mut self) -> Vec<T> {
        let mut all = Vec::with_capacity(self.len());
        while let Some(batch) = self.pop() {
            all.extend(batch);
        }
        all
    }

    pub(super) fn len(&self) -> usize {
        self.levels.values().map(|flows| flows.len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A queue whose level 1 is full, with one flow.
    fn full() -> (FairQueue<u8, usize>, Arc<str>) {
        let (mut queue, flow) = (FairQueue::default(), Arc::from("flow"));
        for item in 0..LIMIT {
            queue.push(1, &flow, item).unwrap();
        }
        (queue, flow)
    }

    /// With one limit for all levels, a lost zone blocked force deletions.
    #[test]
    fn a_full_level_does_not_reject_items_of_other_levels() {
        let (mut queue, flow) = full();
        assert_eq!(queue.push(1, &flow, 0), Err(0));
        assert_eq!(queue.push(2, &flow, 0), Ok(()));
        assert_eq!(queue.len(), LIMIT + 1);
        assert_eq!(queue.pop().unwrap().len(), BATCH);
        assert_eq!(queue.push(1, &flow, 0), Ok(()), "there is room again");
    }

    #[test]
    fn a_small_flow_is_served_after_one_batch_of_a_large_flow() {
        let mut queue = FairQueue::<u8, u32>::default();
        let (large, small) = (Arc::from("large"), Arc::from("small"));
        for item in 0..1_000 {
            queue.push(1, &large, item).unwrap();
        }
        queue.push(1, &small, 9_999).unwrap();
        assert_eq!(queue.pop().unwrap().len(), BATCH);
        assert_eq!(queue.pop().unwrap(), [9_999]);
        assert_eq!(queue.len(), 1_000 - BATCH);
    }

    #[test]
    fn a_small_level_is_served_after_one_batch_of_a_large_level() {
        let mut queue = FairQueue::<u8, u32>::default();
        for flow in 0..100 {
            queue.push(1, &Arc::from(format!("flow-{flow}")), flow).unwrap();
        }
        queue.push(2, &Arc::from("other"), 9_999).unwrap();
        queue.pop().unwrap();
        assert_eq!(queue.pop().unwrap(), [9_999]);
    }

    #[test]
    fn pop_except_skips_the_level_and_keeps_its_turn() {
        let mut queue = FairQueue::<u8, u32>::default();
        for level in [1, 2] {
            queue.push(level, &Arc::from("flow"), u32::from(level)).unwrap();
        }
        assert_eq!(queue.pop_except(Some(1)).unwrap(), [2]);
        assert_eq!(queue.pop_except(Some(1)), None);
        assert_eq!(queue.pop().unwrap(), [1]);
    }

    #[test]
    fn rejected_items_are_retried_when_half_of_the_queue_is_done() {
        let (mut drain, at_time) = (DrainRate::default(), |millis| Mono::from_start(Duration::from_millis(millis)));
        assert_eq!(drain.time_to_room(), MIN_RETRY, "nothing was done yet");
        drain.record(1_000, at_time(500));
        assert_eq!(drain.time_to_room(), MIN_RETRY, "half a second says nothing");
        for (done, at, room) in [
            (1_000, 1_000, 5_000),
            (20_000, 2_000, 1_000),
            (500, 3_000, 20_000),
            (32, 5_000, 30_000),
            (1_000, 65_000, 1_000),
            (4_000, 67_000, 5_000),
            (4_000, 70_000, 1_000),
        ] {
            drain.record(done, at_time(at));
            assert_eq!(drain.time_to_room(), Duration::from_millis(room), "{done} at {at} ms");
        }
    }

    #[test]
    fn push_returns_the_item_if_the_level_is_full() {
        let (mut queue, flow) = full();
        assert_eq!(queue.push(1, &flow, 7), Err(7));
        assert_eq!(queue.drain().len(), LIMIT);
        assert_eq!(queue.len(), 0);
    }

    proptest! {
        #[test]
        fn no_item_is_lost_duplicated_or_reordered_in_its_flow(pushes in prop::collection::vec((0_u8..3, 0_u8..4), 0..200)) {
            let mut queue = FairQueue::<u8, (u8, u8, usize)>::default();
            for (at, (level, flow)) in pushes.iter().enumerate() {
                queue.push(*level, &Arc::from(flow.to_string()), (*level, *flow, at)).unwrap();
            }
            let popped = queue.drain();
            prop_assert_eq!(popped.len(), pushes.len());
            let mut last = BTreeMap::new();
            for (level, flow, at) in popped {
                prop_assert!(last.insert((level, flow), at).is_none_or(|before| before < at));
            }
        }
    }
}
