//! Time, tasks and randomness, injected.
//!
//! The only crate that reads a clock or starts a task, so that a simulation can control both. Every deadline and
//! every hold uses monotonic time ([`Mono`]); wall time is only recorded for operators.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

pub use backoff::Backoff;
pub use pod_safety_model::Mono;

mod backoff;
pub mod duration;

/// A future that the [`Spawner`] runs.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The two clocks of a host.
pub trait Clock: Send + Sync + 'static {
    /// Monotonic time, for deadlines.
    fn mono(&self) -> Mono;
    /// Wall time, for operators. It may jump in either direction at any time.
    fn wall(&self) -> Timestamp;
    /// Completes at `deadline`, or at once if that has passed.
    fn sleep_until(&self, deadline: Mono) -> Task;
}

/// Starts tasks. A simulation pauses and drops them together with their host.
pub trait Spawner: Send + Sync + 'static {
    /// Runs `task` to completion in the background. `name` is for operators.
    fn spawn(&self, name: &'static str, task: Task);

    /// Runs a task that reads much on its own thread, which reads, decrypts and decodes: with two threads each piece
    /// would wake the other one. With `batching` enabled the thread waits a little before it polls, so that many
    /// small events that are not urgent are received together.
    fn spawn_on_own_thread(&self, name: &'static str, _batching: EventBatching, task: Task) {
        self.spawn(name, task);
    }
}

/// How long events may wait in the socket before a task with batching polls. A wakeup for one event costs ten times
/// as much as reading it, and 5,000 nodes send 500 events in a second.
///
/// The delay is short compared with what it delays. A renewed Lease is seen this much later. A node is then found
/// lost this much later than `--node-monitor-grace-period` after its last renewal, and never earlier, because its time
/// counts from when the renewal was seen. A renewal that waits in the socket at that time costs a quorum
/// read, which finds it.
pub const BATCH_WINDOW: Duration = Duration::from_millis(25);

/// The pause is shorter after much work: more events may arrive than the socket can buffer in 25 ms.
fn batch_pause(busy: Duration) -> Duration {
    BATCH_WINDOW.saturating_sub(busy * 10)
}

/// Whether a task currently receives events in batches.
#[derive(Clone, Debug, Default)]
pub struct EventBatching(Arc<AtomicBool>);

impl EventBatching {
    /// Enables or disables batching.
    pub fn set(&self, enabled: bool) {
        self.0.store(enabled, Ordering::Relaxed);
    }

    fn is_enabled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Randomness, for jitter only. No decision depends on it.
pub trait Rng: Send + Sync + 'static {
    /// A number in `0.0..1.0`.
    fn unit(&self) -> f64;
}

/// The environment of a process besides its cluster: time, tasks, randomness.
#[derive(Clone)]
pub struct Env {
    /// The clocks.
    pub clock: Arc<dyn Clock>,
    /// The task starter.
    pub spawner: Arc<dyn Spawner>,
    /// The source of jitter.
    pub rng: Arc<dyn Rng>,
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env").finish_non_exhaustive()
    }
}

impl Env {
    /// The real environment: tokio's clock and tasks, and a random generator with `seed`.
    #[must_use]
    pub fn real(seed: u64) -> Self {
        let real = Arc::new(SystemEnv::new(seed));
        Self { clock: Arc::<SystemEnv>::clone(&real), spawner: Arc::<SystemEnv>::clone(&real), rng: real }
    }

    /// The same environment with a wall clock that is this far ahead, as on another machine.
    #[must_use]
    pub fn with_wall_offset(&self, offset: SignedDuration) -> Self {
        let clock = Arc::new(OffsetClock { clock: Arc::clone(&self.clock), offset });
        Self { clock, ..self.clone() }
    }

    /// The current monotonic time.
    #[must_use]
    pub fn now(&self) -> Mono {
        self.clock.mono()
    }

    /// Completes after `span`.
    pub async fn sleep(&self, span: Duration) {
        self.clock.sleep_until(self.now() + span).await;
    }

    /// `span` lengthened by up to `fraction` of itself.
    #[must_use]
    pub fn jitter(&self, span: Duration, fraction: f64) -> Duration {
        span.mul_f64(1.0 + self.rng.unit() * fraction)
    }

    /// Runs `work` until `deadline`; `None`: the deadline passed first and `work` was dropped. The clock is checked
    /// before `work` is polled: a process that was stopped for a while must not continue with it.
    pub async fn timeout_at<T>(&self, deadline: Mono, work: impl Future<Output = T> + Send) -> Option<T> {
        let mut sleep = self.clock.sleep_until(deadline);
        futures::pin_mut!(work);
        std::future::poll_fn(|context| {
            if self.now() >= deadline || sleep.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            work.as_mut().poll(context).map(Some)
        })
        .await
    }
}

/// A clock whose wall clock has an offset.
struct OffsetClock {
    clock: Arc<dyn Clock>,
    offset: SignedDuration,
}

impl Clock for OffsetClock {
    fn mono(&self) -> Mono {
        self.clock.mono()
    }

    fn wall(&self) -> Timestamp {
        let wall = self.clock.wall();
        wall.saturating_add(self.offset).unwrap_or(wall)
    }

    fn sleep_until(&self, deadline: Mono) -> Task {
        self.clock.sleep_until(deadline)
    }
}

/// The time since the host booted, including suspension (`CLOCK_BOOTTIME`). All processes of a host read the same
/// value, so it can be used for a deadline in another process; a [`Mono`] cannot. On systems other than Linux, where
/// no fence agents run, it is the monotonic clock.
#[must_use]
pub fn since_boot() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    #[cfg(target_os = "linux")]
    let clock = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

/// For how long the host has been suspended since it booted: `CLOCK_BOOTTIME` counts that time, `CLOCK_MONOTONIC`
/// does not. The second clock is read later, so the result is never too large, and may be too small by the time
/// between both reads.
#[cfg(target_os = "linux")]
fn suspended_since_boot() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let since_boot = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
    let whole = since_boot(ClockId::Boottime);
    whole.saturating_sub(since_boot(ClockId::Monotonic))
}

#[cfg(not(target_os = "linux"))]
fn suspended_since_boot() -> Duration {
    Duration::ZERO
}

/// The real environment. Under tokio's paused test clock its monotonic clock is the paused one.
struct SystemEnv {
    start: tokio::time::Instant,
    suspended: fn() -> Duration,
    /// For how long the host had been suspended since boot when this clock was created, and the largest value read
    /// since. Tokio's clock does not count a suspension; other machines go on, and cached data is older than that
    /// clock shows.
    suspended_at_start: Duration,
    max_suspended: Mutex<Duration>,
    random: Mutex<u64>,
}

impl SystemEnv {
    fn new(seed: u64) -> Self {
        Self::with_suspension(suspended_since_boot, seed)
    }

    #[expect(clippy::disallowed_methods, reason = "the one place that reads the monotonic clock")]
    fn with_suspension(suspended: fn() -> Duration, seed: u64) -> Self {
        let (start, suspended_at_start) = (tokio::time::Instant::now(), suspended());
        Self {
            start,
            suspended,
            suspended_at_start,
            max_suspended: Mutex::new(suspended_at_start),
            random: Mutex::new(seed | 1),
        }
    }

    /// For how long the host has been suspended since this clock was created. It never decreases.
    fn suspended_since_start(&self) -> Duration {
        let mut max_suspended = self.max_suspended.lock();
        *max_suspended = (*max_suspended).max((self.suspended)());
        max_suspended.saturating_sub(self.suspended_at_start)
    }
}

impl Clock for SystemEnv {
    fn mono(&self) -> Mono {
        Mono::from_start(self.start.elapsed() + self.suspended_since_start())
    }

    #[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
    fn wall(&self) -> Timestamp {
        Timestamp::now()
    }

    fn sleep_until(&self, deadline: Mono) -> Task {
        Box::pin(tokio::time::sleep_until(
            self.start + deadline.since_start().saturating_sub(self.suspended_since_start()),
        ))
    }
}

impl Spawner for SystemEnv {
    #[expect(clippy::disallowed_methods, reason = "the one place that starts tasks")]
    fn spawn(&self, _name: &'static str, task: Task) {
        tokio::spawn(task);
    }

    #[expect(clippy::disallowed_methods, reason = "the one place that starts threads, and naps on one of its own")]
    fn spawn_on_own_thread(&self, name: &'static str, batching: EventBatching, task: Task) {
        let woke_at = Arc::new(Mutex::new(std::time::Instant::now()));
        let wakes = Arc::clone(&woke_at);
        let pause = move || {
            if batching.is_enabled() {
                std::thread::sleep(batch_pause(woke_at.lock().elapsed()));
            }
        };
        // The thread pauses before it polls the kernel for events, so that events in between do not wake it.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .on_thread_park(pause)
            .on_thread_unpark(move || *wakes.lock() = std::time::Instant::now())
            .build();
        // The task is sent only once its thread exists.
        let (sender, receiver) = std::sync::mpsc::channel::<Task>();
        let started = runtime.and_then(|runtime| {
            let run = move || receiver.recv().map_or((), |task| runtime.block_on(task));
            std::thread::Builder::new().name(name.to_owned()).spawn(run)
        });
        match started {
            Ok(_detached) => drop(sender.send(task)),
            // If no thread can be created, the task runs on the shared runtime, at the cost of more wakeups.
            Err(_) => self.spawn(name, task),
        }
    }
}

impl Rng for SystemEnv {
    /// `xorshift64*` (Vigna 2016): sufficient for jitter, and no dependency.
    fn unit(&self) -> f64 {
        let mut state = self.random.lock();
        *state ^= *state >> 12;
        *state ^= *state << 25;
        *state ^= *state >> 27;
        let high = (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) as u32;
        f64::from(high) / (f64::from(u32::MAX) + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn the_batch_pause_is_shorter_after_more_work() {
        let millis = Duration::from_millis;
        assert_eq!([0, 1, 2, 3].map(|busy| batch_pause(millis(busy))), [25, 15, 5, 0].map(millis));
    }

    /// Events are sent one each millisecond: most find the thread paused, and all of them arrive.
    #[tokio::test]
    async fn a_task_on_its_own_thread_receives_batched_events_without_loss() {
        let (send, mut events) = tokio::sync::mpsc::unbounded_channel();
        let (done, result) = tokio::sync::oneshot::channel();
        let batching = EventBatching::default();
        batching.set(true);
        let task = async move {
            let mut all = Vec::new();
            while let Some(one) = events.recv().await {
                all.push(one);
            }
            drop(done.send((std::thread::current().name().map(str::to_owned), all)));
        };
        Env::real(1).spawner.spawn_on_own_thread("apart", batching, Box::pin(task));
        for one in 0..50 {
            send.send(one).unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(send);
        let (thread, all) = result.await.unwrap();
        assert_eq!(thread.as_deref(), Some("apart"));
        assert_eq!(all, (0..50).collect::<Vec<_>>());
    }

    static SLEPT: AtomicU64 = AtomicU64::new(5);

    /// A suspension of the host made neither evidence nor a leader's term any older.
    #[tokio::test(start_paused = true)]
    async fn monotonic_time_and_deadlines_include_the_suspension_of_the_host() {
        let slept = || Duration::from_secs(SLEPT.load(Ordering::SeqCst));
        let clock = SystemEnv::with_suspension(slept, 1);
        let began = clock.mono();
        let due = began + Duration::from_secs(60);
        SLEPT.store(5 + 3_600, Ordering::SeqCst);
        assert_eq!(clock.mono().since(began), Duration::from_secs(3_600));
        assert!(tokio::time::timeout(Duration::from_secs(1), clock.sleep_until(due)).await.is_ok());
        // The two clocks are read one after the other, so the next value may be smaller.
        let before = clock.mono();
        SLEPT.store(5 + 3_599, Ordering::SeqCst);
        assert!(clock.mono() >= before, "it never goes back");
    }
}
