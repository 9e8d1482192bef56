//! Limits how many writes run at once, and pauses them, and reads of commands, when the API server is overloaded.
//!
//! A write that runs alone shows the API server's base latency. While concurrent writes take at most [`SLOWDOWN_FACTOR`]
//! times as long, the limit grows by one; when they take longer, it shrinks by one. More concurrent writes would gain
//! little, and would slow down all other clients of the API server. After a 429, no write is sent for the requested pause.

use std::sync::Arc;
use std::time::Duration;

use http::Response;
use kube::client::Body;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::MAX_BACKOFF;
use super::request::ApiError;
use pod_safety_clock::{Env, Mono};

/// The maximum number of write slots: few compared with the hundreds of seats of the API server's `workload-low`. More
/// would not make the deletions faster, only each of them slower (see `docs/benchmarks.md`).
pub const MAX_WRITE_SLOTS: usize = 16;

/// How much slower concurrent writes may be than a single one. Measured on two cores (docs/scale.md).
const SLOWDOWN_FACTOR: u32 = 3;

/// A latency below this never lowers the limit, however low the base latency is.
const FAST_ENOUGH: Duration = Duration::from_millis(18);

/// The number of writes whose median decides. The limit follows a change within a fraction of a second, and one slow write
/// changes nothing.
const WINDOW: usize = 16;

/// How often a read of a command is sent again: `maxRetries` of client-go.
const MAX_READ_RETRIES: usize = 10;

/// Called before a read waits to be sent again, with the HTTP code of the answer and how long this read waits in all.
pub type OnReadPause = Arc<dyn Fn(u16, Duration) + Send + Sync>;

/// The header `Retry-After`, if it is in seconds.
pub(crate) fn retry_after(response: &Response<Body>) -> Option<Duration> {
    let seconds = response.headers().get(http::header::RETRY_AFTER)?.to_str().ok()?.trim().parse();
    seconds.ok().map(Duration::from_secs)
}

/// The answer to a read that is sent again after the pauses that client-go's `checkWait` knows. A pause that would end
/// after the deadline is no use: its refusal is the answer.
pub(crate) async fn read_again<F: Future<Output = Result<Response<Body>, ApiError>>>(
    env: &Env,
    deadline: Mono,
    on_pause: &OnReadPause,
    send: impl Fn() -> F,
) -> Result<Response<Body>, ApiError> {
    let mut waited = Duration::ZERO;
    for _ in 0..MAX_READ_RETRIES {
        let response = send().await?;
        let status = response.status();
        let asks = status == http::StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
        let pause = retry_after(&response).filter(|&pause| asks && env.now() + pause < deadline);
        let Some(pause) = pause.map(|pause| pause.min(MAX_BACKOFF)) else { return Ok(response) };
        waited += pause;
        on_pause(status.as_u16(), waited);
        env.sleep(pause).await;
    }
    send().await
}

/// The pacer, which all connections of this process to one API server share.
#[derive(Clone, Debug)]
pub(crate) struct WritePacer {
    state: Arc<Mutex<State>>,
    room: Arc<Notify>,
}

#[derive(Debug)]
struct State {
    /// The end of the pause that the API server requested.
    backoff_until: Mono,
    slots_in_use: usize,
    limit: usize,
    /// The number of writes that were started, and of those in flight.
    started: u64,
    writing: usize,
    /// Writes up to this number were started under another limit, and do not count for the present one.
    ignored_until: u64,
    /// The latency of a write that runs alone.
    baseline: Option<Duration>,
    /// The latencies of the last writes.
    latencies: Vec<Duration>,
}

impl State {
    fn record_latency(&mut self, number: u64, took: Duration, alone: bool) {
        if alone {
            self.baseline = Some(match self.baseline {
                None => took,
                Some(baseline) if took < baseline => (baseline + took) / 2,
                // One slow write changes little; a server that became slower is noticed after some.
                Some(baseline) => baseline + (took.min(baseline * SLOWDOWN_FACTOR) - baseline) / 8,
            });
        }
        if number <= self.ignored_until {
            return;
        }
        self.latencies.push(took);
        let Some(baseline) = self.baseline.filter(|_| self.latencies.len() >= WINDOW) else { return };
        self.latencies.sort_unstable();
        let median = self.latencies.get(self.latencies.len() / 2).copied().unwrap_or_default();
        self.latencies.clear();
        let slow = median > FAST_ENOUGH.max(baseline * SLOWDOWN_FACTOR);
        self.limit = if slow { (self.limit - 1).max(1) } else { (self.limit + 1).min(MAX_WRITE_SLOTS) };
        self.ignored_until = self.started;
    }
}

impl WritePacer {
    pub(crate) fn new(now: Mono) -> Self {
        let state = State {
            backoff_until: now,
            slots_in_use: 0,
            limit: MAX_WRITE_SLOTS,
            started: 0,
            writing: 0,
            ignored_until: 0,
            baseline: None,
            latencies: Vec::new(),
        };
        Self { state: Arc::new(Mutex::new(state)), room: Arc::default() }
    }

    /// Sends no writes until then, because the API server requested a pause.
    pub(crate) fn back_off_until(&self, until: Mono) {
        let mut state = self.state.lock();
        state.backoff_until = until.max(state.backoff_until);
    }

    /// Waits for the end of the pause.
    pub(crate) async fn wait_backoff(&self, env: &Env) {
        loop {
            let remaining = self.state.lock().backoff_until.since(env.now());
            if remaining.is_zero() {
                return;
            }
            env.sleep(remaining).await;
        }
    }

    /// Waits for the end of the pause, and for a slot. Dropping the slot releases it.
    pub(crate) async fn acquire_slot(&self, env: &Env) -> WriteSlot {
        loop {
            self.wait_backoff(env).await;
            {
                let mut state = self.state.lock();
                if state.slots_in_use < state.limit {
                    state.slots_in_use += 1;
                    return WriteSlot(self.clone());
                }
            }
            self.room.notified().await;
        }
    }

    /// Records that a write is sent now.
    pub(crate) fn begin_write(&self, now: Mono) -> Write {
        let mut state = self.state.lock();
        state.started += 1;
        state.writing += 1;
        Write { pace: self.clone(), at: now, number: state.started, was_only: state.writing == 1 }
    }
}

/// A write slot.
#[derive(Debug)]
pub struct WriteSlot(WritePacer);

impl Drop for WriteSlot {
    fn drop(&mut self) {
        self.0.state.lock().slots_in_use -= 1;
        self.0.room.notify_one();
    }
}

/// A write in flight.
#[derive(Debug)]
pub(crate) struct Write {
    pace: WritePacer,
    at: Mono,
    number: u64,
    /// No other write was in flight when it started.
    was_only: bool,
}

impl Write {
    /// The write succeeded. A write that fails or times out shows nothing about the latency.
    pub(crate) fn finish(self, now: Mono) {
        let mut state = self.pace.state.lock();
        let alone = self.was_only && self.number == state.started;
        state.record_latency(self.number, now.since(self.at), alone);
        drop(state);
        // The limit may have grown.
        self.pace.room.notify_one();
    }
}

impl Drop for Write {
    fn drop(&mut self) {
        self.pace.state.lock().writing -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// The limit after each of these windows of equal concurrent writes.
    fn limits(alone: u64, windows: &[u64]) -> Vec<usize> {
        let pace = WritePacer::new(Mono::default());
        let mut state = pace.state.lock();
        state.record_latency(1, millis(alone), true);
        state.latencies.clear();
        let limit_after = |took: &u64| {
            (0..WINDOW).for_each(|_| state.record_latency(u64::MAX, millis(*took), false));
            state.limit
        };
        windows.iter().map(limit_after).collect()
    }

    impl WritePacer {
        /// The latency of a write that runs alone.
        pub(crate) fn baseline(&self) -> Option<Duration> {
            self.state.lock().baseline
        }
    }

    #[tokio::test(start_paused = true)]
    async fn acquire_slot_waits_when_all_slots_are_in_use() {
        let (env, _wall) = crate::scripted::env();
        let pace = WritePacer::new(env.now());
        let mut turns = Vec::new();
        for _ in 0..MAX_WRITE_SLOTS {
            turns.push(pace.acquire_slot(&env).await);
        }
        let soon = || env.now() + millis(1);
        assert!(env.timeout_at(soon(), pace.acquire_slot(&env)).await.is_none());
        turns.pop();
        assert!(env.timeout_at(soon(), pace.acquire_slot(&env)).await.is_some());
    }

    #[test]
    fn the_limit_shrinks_when_writes_are_slow_and_grows_when_they_are_fast() {
        for (alone, windows, expected) in [
            (7, &[21, 22, 22, 22, 21, 21][..], &[16, 15, 14, 13, 14, 15][..]),
            // A fast write is not slow because an earlier one was faster.
            (1, &[18, 18, 19, 18], &[16, 16, 15, 16]),
            // A slow server has its own base latency.
            (200, &[600, 601], &[16, 15]),
        ] {
            assert_eq!(limits(alone, windows), expected, "{alone} ms alone, {windows:?}");
        }
    }

    /// Writes that were started before a change of the limit were slowed down by more writes than run now: the limit would
    /// fall to one and rise again.
    #[test]
    fn writes_that_started_under_another_limit_do_not_count() {
        let pace = WritePacer::new(Mono::default());
        let mut state = pace.state.lock();
        state.record_latency(1, millis(7), true);
        state.started = 100;
        (0..WINDOW).for_each(|_| state.record_latency(90, millis(50), false));
        assert_eq!(state.limit, MAX_WRITE_SLOTS - 1);
        (0..WINDOW).for_each(|_| state.record_latency(100, millis(50), false));
        assert_eq!(state.limit, MAX_WRITE_SLOTS - 1);
        (0..WINDOW).for_each(|_| state.record_latency(101, millis(50), false));
        assert_eq!(state.limit, MAX_WRITE_SLOTS - 2);
    }

    #[test]
    fn the_baseline_follows_latencies_and_is_robust_to_one_slow_write() {
        let pace = WritePacer::new(Mono::default());
        let mut state = pace.state.lock();
        for (took, usual) in [(10_000, 10_000), (8_000, 9_000), (900_000, 11_250), (11_250, 11_250)] {
            state.record_latency(1, Duration::from_micros(took), true);
            assert_eq!(state.baseline, Some(Duration::from_micros(usual)), "after {took}");
        }
        (0..100).for_each(|_| state.record_latency(1, millis(100), true));
        let learned = state.baseline.unwrap();
        assert!((millis(95)..=millis(100)).contains(&learned), "{learned:?}");
    }

    #[test]
    fn the_baseline_is_measured_only_from_writes_without_concurrency() {
        let pace = WritePacer::new(Mono::default());
        let at = |time| Mono::from_start(millis(time));
        pace.begin_write(at(0)).finish(at(10));
        assert_eq!(pace.state.lock().baseline, Some(millis(10)));
        let (first, second) = (pace.begin_write(at(20)), pace.begin_write(at(20)));
        second.finish(at(21));
        first.finish(at(22));
        let given_up = pace.begin_write(at(30));
        drop(given_up);
        pace.begin_write(at(40)).finish(at(50));
        let state = pace.state.lock();
        assert_eq!((state.baseline, state.writing), (Some(millis(10)), 0));
    }

    /// A server that became slower permanently would otherwise get one write at a time from then on.
    #[test]
    fn the_baseline_adapts_to_a_server_that_became_slower() {
        let pace = WritePacer::new(Mono::default());
        let mut state = pace.state.lock();
        (0..WINDOW).for_each(|_| state.record_latency(u64::MAX, millis(7), true));
        (0..20 * WINDOW).for_each(|_| state.record_latency(u64::MAX, millis(100), false));
        assert_eq!(state.limit, 1);
        (0..20 * WINDOW).for_each(|_| state.record_latency(u64::MAX, millis(100), true));
        assert_eq!(state.limit, MAX_WRITE_SLOTS);
    }
}
