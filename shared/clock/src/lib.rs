//! Time, tasks and chance, injected.
//!
//! Duty: the only place that reads a clock or starts a task, so that a
//! simulation can own both. Monotonic time ([`Mono`]) is for every deadline and
//! every hold; wall time is only ever written down for people.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

pub use pod_safety_model::Mono;

/// A future that the [`Spawner`] runs.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The two clocks of a host.
pub trait Clock: Send + Sync + 'static {
    /// Monotonic time, for deadlines.
    fn mono(&self) -> Mono;
    /// Wall time, for people. May jump in either direction at any moment.
    fn wall(&self) -> Timestamp;
    /// Completes at `deadline`, at once if that has passed.
    fn sleep_until(&self, deadline: Mono) -> Task;
}

/// Starts tasks. A simulation pauses and drops them with their host.
pub trait Spawner: Send + Sync + 'static {
    /// Runs `task` to its end in the background. `name` is for people.
    fn spawn(&self, name: &'static str, task: Task);

    /// The same for a task that reads much. It has a thread of its own, which reads, decrypts and decodes: two threads that hand
    /// each piece on wake each other for it. With `collects` that thread lets what arrives collect before it looks, for a
    /// task that reads many small events, none of which is urgent.
    fn spawn_on_own_thread(&self, name: &'static str, _collects: EventBatching, task: Task) {
        self.spawn(name, task);
    }
}

/// So long news may lie in the socket before a task that collects looks at it. To be woken for one piece costs ten times as
/// much as to read it, and 500 pieces come in a second from 5,000 nodes.
///
/// It is short against what it delays. A renewed Lease is seen so much later than it comes: a node is found lost so much later,
/// 40 s after its last renewal (`--node-monitor-grace-period`), and never earlier, for its time runs from when its renewal was
/// seen. A renewal that lies in the socket when that time is over costs a quorum read, which shows it.
pub const BATCH_WINDOW: Duration = Duration::from_millis(25);

/// The nap is shorter where much had collected: so much may come that the socket has no room for 25 ms of it.
fn batch_pause(busy: Duration) -> Duration {
    BATCH_WINDOW.saturating_sub(busy * 10)
}

/// Whether a task lets news collect at the moment.
#[derive(Clone, Debug, Default)]
pub struct EventBatching(Arc<AtomicBool>);

impl EventBatching {
    /// From now on it does, or does not.
    pub fn set(&self, collects: bool) {
        self.0.store(collects, Ordering::Relaxed);
    }

    fn is_enabled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Chance, for jitter only. No decision depends on it.
pub trait Rng: Send + Sync + 'static {
    /// A number in `0.0..1.0`.
    fn unit(&self) -> f64;
}

/// What a process gets from the world besides its cluster: time, tasks, chance.
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
    /// The real world: tokio's clock and tasks, chance seeded by `seed`.
    #[must_use]
    pub fn real(seed: u64) -> Self {
        let real = Arc::new(SystemEnv::new(seed));
        Self { clock: Arc::<SystemEnv>::clone(&real), spawner: Arc::<SystemEnv>::clone(&real), rng: real }
    }

    /// The same with a wall clock that is so far ahead: another machine's.
    #[must_use]
    pub fn with_wall_offset(&self, ahead: SignedDuration) -> Self {
        let clock = Arc::new(OffsetClock { clock: Arc::clone(&self.clock), offset: ahead });
        Self { clock, ..self.clone() }
    }

    /// Monotonic now.
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

    /// Runs `work` until `deadline`; `None` means that the deadline came first
    /// and `work` was dropped. The clock is asked before `work` is: a process that
    /// was stopped for a while must not go on with what it had in hand.
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

/// A clock whose wall clock is another's.
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

/// The time since the host booted, including its suspension (`CLOCK_BOOTTIME`). All processes of a host read the same value, so
/// it can name a deadline to another process; a [`Mono`] cannot. Elsewhere than on Linux, where no fence agents run: the
/// monotonic clock.
#[must_use]
pub fn since_boot() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    #[cfg(target_os = "linux")]
    let clock = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

/// How far the clock that counts a suspended host's sleep (`CLOCK_BOOTTIME`) is ahead of the one that does not. The second is
/// read later, so it is never more than that, and may be less by what passes between the two.
#[cfg(target_os = "linux")]
fn suspended_since_boot() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let since_boot = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
    let whole = since_boot(ClockId::Boottime);
    whole.saturating_sub(since_boot(ClockId::Monotonic))
}

#[cfg(not(target_os = "linux"))]
fn suspended() -> Duration {
    Duration::ZERO
}

/// The real world. Under tokio's paused test clock its monotonic clock is the
/// paused one.
struct SystemEnv {
    start: tokio::time::Instant,
    suspended: fn() -> Duration,
    /// For how long the host has been suspended since it booted: as this clock was made, and the most that was read since.
    /// Tokio's clock stands still meanwhile; machines do not, and what was read before is older than that clock says.
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

    /// For how long the host has been suspended since this clock was made. It never becomes less.
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

    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that starts threads, and naps on one of its own"
    )]
    fn spawn_on_own_thread(&self, name: &'static str, collects: EventBatching, task: Task) {
        let woke_at = Arc::new(Mutex::new(std::time::Instant::now()));
        let wakes = Arc::clone(&woke_at);
        let pause = move || {
            if collects.is_enabled() {
                std::thread::sleep(batch_pause(woke_at.lock().elapsed()));
            }
        };
        // It naps before it asks the kernel for events, so that what arrives meanwhile does not wake it.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .on_thread_park(pause)
            .on_thread_unpark(move || *wakes.lock() = std::time::Instant::now())
            .build();
        // The task is handed over only once there is a thread for it.
        let (sender, receiver) = std::sync::mpsc::channel::<Task>();
        let started = runtime.and_then(|runtime| {
            let run = move || receiver.recv().map_or((), |task| runtime.block_on(task));
            std::thread::Builder::new().name(name.to_owned()).spawn(run)
        });
        match started {
            Ok(_detached) => drop(sender.send(task)),
            // A system without room for a thread: to be woken more often is no harm.
            Err(_) => self.spawn(name, task),
        }
    }
}

impl Rng for SystemEnv {
    /// `xorshift64*` (Vigna 2016): enough for jitter, and no dependency.
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
    fn who_had_much_to_do_lets_less_collect() {
        let millis = Duration::from_millis;
        assert_eq!([0, 1, 2, 3].map(|busy| batch_pause(millis(busy))), [25, 15, 5, 0].map(millis));
    }

    /// Of what is sent one piece a millisecond, most finds the thread asleep, and all of it arrives.
    #[tokio::test]
    async fn what_comes_for_a_task_apart_collects_and_none_of_it_is_lost() {
        let (send, mut events) = tokio::sync::mpsc::unbounded_channel();
        let (done, result) = tokio::sync::oneshot::channel();
        let collects = EventBatching::default();
        collects.set(true);
        let task = async move {
            let mut all = Vec::new();
            while let Some(one) = events.recv().await {
                all.push(one);
            }
            drop(done.send((std::thread::current().name().map(str::to_owned), all)));
        };
        Env::real(1).spawner.spawn_on_own_thread("apart", collects, Box::pin(task));
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

    /// A9: a suspended host made neither evidence nor a term any older.
    #[tokio::test(start_paused = true)]
    async fn what_was_read_before_the_host_slept_is_as_old_as_that_and_what_is_due_is_due() {
        let slept = || Duration::from_secs(SLEPT.load(Ordering::SeqCst));
        let clock = SystemEnv::with_suspension(slept, 1);
        let began = clock.mono();
        let due = began + Duration::from_secs(60);
        SLEPT.store(5 + 3_600, Ordering::SeqCst);
        assert_eq!(clock.mono().since(began), Duration::from_secs(3_600));
        assert!(tokio::time::timeout(Duration::from_secs(1), clock.sleep_until(due)).await.is_ok());
        // The two clocks are read one after the other, so what was read may be less the next time.
        let before = clock.mono();
        SLEPT.store(5 + 3_599, Ordering::SeqCst);
        assert!(clock.mono() >= before, "it never goes back");
    }
}
