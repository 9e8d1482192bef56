//! A host of the world: its clocks, its tasks, its random numbers.
//!
//! A crash aborts all tasks of a host. A pause (SIGSTOP, a frozen machine) stops their polls while time goes on: timers
//! fire meanwhile, and everything happens at once afterwards, which is how a process reaches the end of its own Lease.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::FutureExt;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use pod_safety_shared::clock::{Clock, Env, Mono, Rng, Spawner, Task};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::chance::Chance;
use crate::checker::{Checker, Invariant};

/// Finished tasks are removed when this many are held.
const TIDY_AT: usize = 64;

/// The wall clock at the start of every run.
pub(crate) const EPOCH: i64 = 1_790_000_000;

/// A time of the run as a timestamp in objects, by a clock that is right.
pub(crate) fn stamp(now: Duration) -> String {
    let start = Timestamp::from_second(EPOCH).unwrap_or(Timestamp::UNIX_EPOCH);
    format!("{:.0}", start.saturating_add(now).unwrap_or(start))
}

/// The moment of a timestamp, in the time of the run; `None`: it is no timestamp. Times before the start count as the
/// start.
pub(crate) fn moment(stamp: &str) -> Option<Duration> {
    let then: Timestamp = stamp.parse().ok()?;
    Some(Duration::from_secs(u64::try_from(then.as_second() - EPOCH).unwrap_or(0)))
}

#[derive(Default)]
struct Inner {
    dead: bool,
    paused: bool,
    wakers: Vec<Waker>,
    tasks: Vec<AbortHandle>,
    tidy_at: usize,
    offset: SignedDuration,
}

/// The rate of a clock that is right, in millionths.
pub(crate) const TRUE_RATE: u64 = 1_000_000;

/// One running process, or one machine from boot to halt.
pub(crate) struct Host {
    name: Arc<str>,
    began: Instant,
    /// How fast its monotonic clock runs, in millionths of true time. Its wall clock is kept right.
    rate: u64,
    chance: Chance,
    drawn: AtomicU64,
    checker: Arc<Checker>,
    inner: Arc<Mutex<Inner>>,
}

impl Host {
    /// A host that has just started.
    pub(crate) fn start(name: &str, chance: Chance, checker: &Arc<Checker>) -> Arc<Self> {
        Self::start_with_rate(name, chance, checker, TRUE_RATE)
    }

    pub(crate) fn start_with_rate(name: &str, chance: Chance, checker: &Arc<Checker>, rate: u64) -> Arc<Self> {
        let inner = Arc::new(Mutex::new(Inner { tidy_at: TIDY_AT, ..Inner::default() }));
        let (checker, drawn) = (Arc::clone(checker), AtomicU64::new(0));
        Arc::new(Self { name: name.into(), began: checker.instant(), rate, chance, drawn, checker, inner })
    }

    pub(crate) fn env(self: &Arc<Self>) -> Env {
        Env { clock: Arc::<Self>::clone(self), spawner: Arc::<Self>::clone(self), rng: Arc::<Self>::clone(self) }
    }

    /// Runs a task until the host crashes.
    pub(crate) fn start_task(self: &Arc<Self>, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.env().spawner.spawn(name, Box::pin(task));
    }

    /// Aborts every task for good.
    pub(crate) fn crash(&self) {
        let tasks = {
            let mut inner = self.inner.lock();
            inner.dead = true;
            std::mem::take(&mut inner.tasks)
        };
        tasks.iter().for_each(AbortHandle::abort);
    }

    pub(crate) fn pause(&self) {
        self.inner.lock().paused = true;
    }

    pub(crate) fn resume(&self) {
        let wakers = {
            let mut inner = self.inner.lock();
            inner.paused = false;
            std::mem::take(&mut inner.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.inner.lock().dead
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.inner.lock().paused
    }

    /// The wall clock jumps; the monotonic one never does.
    pub(crate) fn jump(&self, by: SignedDuration) {
        let offset = &mut self.inner.lock().offset;
        *offset = offset.saturating_add(by);
    }
}

/// A part of a time, rounded up: a task that sleeps until a moment does not wake before it.
fn scaled(time: Duration, by: u64, of: u64) -> Duration {
    if by == of {
        return time;
    }
    let nanos = (time.as_nanos() * u128::from(by)).div_ceil(u128::from(of.max(1)));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// A task that is not polled while its host is paused.
struct Gated {
    host: Arc<Mutex<Inner>>,
    task: Task,
}

impl Future for Gated {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        {
            let mut host = self.host.lock();
            if host.dead {
                return Poll::Ready(());
            }
            if host.paused {
                host.wakers.push(context.waker().clone());
                return Poll::Pending;
            }
        }
        self.task.as_mut().poll(context)
    }
}

impl Clock for Host {
    fn mono(&self) -> Mono {
        let passed = self.checker.instant().duration_since(self.began);
        Mono::from_start(scaled(passed, self.rate, TRUE_RATE))
    }

    fn wall(&self) -> Timestamp {
        let offset = self.inner.lock().offset;
        let now = Timestamp::from_second(EPOCH).unwrap_or(Timestamp::UNIX_EPOCH) + self.checker.now();
        now.saturating_add(offset).unwrap_or(now)
    }

    fn sleep_until(&self, deadline: Mono) -> Task {
        // Nothing sleeps longer than a simulation.
        let span = scaled(deadline.since_start().min(Duration::from_secs(1 << 30)), TRUE_RATE, self.rate);
        Box::pin(tokio::time::sleep_until(self.began + span))
    }
}

impl Spawner for Host {
    #[expect(clippy::disallowed_methods, reason = "the world's own task starter")]
    fn spawn(&self, name: &'static str, task: Task) {
        if self.inner.lock().dead {
            return;
        }
        let (checker, host) = (Arc::clone(&self.checker), Arc::clone(&self.name));
        let gated = Gated { host: Arc::clone(&self.inner), task };
        let guarded = async move {
            if AssertUnwindSafe(gated).catch_unwind().await.is_err() {
                checker.violated(Invariant::NoPanic, format!("task {name} of {host} panicked"));
            }
        };
        let handle = tokio::spawn(guarded).abort_handle();
        let mut inner = self.inner.lock();
        inner.tasks.push(handle);
        if inner.tasks.len() >= inner.tidy_at {
            inner.tasks.retain(|task| !task.is_finished());
            inner.tidy_at = inner.tasks.len() * 2 + TIDY_AT;
        }
    }
}

impl Rng for Host {
    fn unit(&self) -> f64 {
        let counter = self.drawn.fetch_add(1, Ordering::Relaxed);
        let part = self.chance.below(1 << 20, &self.name, "jitter", counter);
        f64::from(u32::try_from(part).unwrap_or(0)) / f64::from(1_u32 << 20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_by_a_slow_or_fast_clock_ends_at_its_time_by_that_clock() {
        for rate in [999_000, 999_999, TRUE_RATE, 1_000_001, 1_001_000, 8 * TRUE_RATE] {
            for wanted in [1, 999, 40_000, 86_400_000].map(Duration::from_millis) {
                let slept = scaled(wanted, TRUE_RATE, rate);
                let told = scaled(slept, rate, TRUE_RATE);
                assert!(told >= wanted && told - wanted < Duration::from_micros(1), "{rate} {wanted:?} {told:?}");
            }
        }
        assert_eq!(scaled(Duration::from_secs(40), 999_000, TRUE_RATE), Duration::from_millis(39_960));
    }
}
