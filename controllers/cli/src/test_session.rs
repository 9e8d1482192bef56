//! The API server that commands reach while a test runs, and what they print: [`open`](super::cluster::open), `print` and
//! `say` ask here.

use std::sync::Arc;
use std::thread::ThreadId;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use pod_safety_shared::client::Connection;
use pod_safety_shared::clock::{Clock, Env, Mono, Task};
use pod_safety_shared::testing::{AnswerFn, connection};

const NOW: &str = "2026-11-21T10:23:05Z";

/// The API server that the commands of a thread reach, and what they printed. Tests run beside one another.
struct TestSession {
    thread: ThreadId,
    says: Arc<AnswerFn>,
    printed: String,
    columns: Option<usize>,
}

static SESSIONS: Mutex<Vec<TestSession>> = Mutex::new(Vec::new());

fn with_current<T>(ask: impl FnOnce(&mut TestSession) -> T) -> Option<T> {
    let thread = std::thread::current().id();
    SESSIONS.lock().iter_mut().find(|session| session.thread == thread).map(ask)
}

/// Has the commands of this thread reach this API server until what they print is taken.
pub(crate) fn start_session(says: &Arc<AnswerFn>) {
    let (thread, says) = (std::thread::current().id(), Arc::clone(says));
    SESSIONS.lock().push(TestSession { thread, says, printed: String::new(), columns: None });
}

/// Has them print on a terminal so wide.
pub(crate) fn widen(to: Option<usize>) {
    with_current(|session| session.columns = to);
}

/// How wide that terminal is.
pub(crate) fn columns() -> Option<usize> {
    with_current(|session| session.columns).flatten()
}

/// What they printed since.
pub(crate) fn finish_session() -> String {
    let thread = std::thread::current().id();
    let mut stages = SESSIONS.lock();
    let at = stages.iter().position(|session| session.thread == thread).unwrap();
    stages.remove(at).printed
}

/// In place of a connection to a cluster, while a test runs.
pub(crate) fn test_connection() -> Option<(Connection, Env)> {
    let says = with_current(|session| Arc::clone(&session.says))?;
    let real = Env::real(1);
    let clock = Arc::new(FastClock { real: Arc::clone(&real.clock), ahead: Mutex::default() });
    let env = Env { clock, ..real };
    Some((connection(&env, says), env))
}

/// Whether a test keeps what is printed.
pub(crate) fn capture(printed: &str) -> bool {
    with_current(|session| session.printed.push_str(printed)).is_some()
}

/// A clock that passes pauses over. Deadlines of requests are longer than they, and stay.
struct FastClock {
    real: Arc<dyn Clock>,
    ahead: Mutex<Duration>,
}

impl Clock for FastClock {
    fn mono(&self) -> Mono {
        self.real.mono() + *self.ahead.lock()
    }
    fn wall(&self) -> Timestamp {
        NOW.parse().unwrap()
    }
    fn sleep_until(&self, deadline: Mono) -> Task {
        let remaining = deadline.since(self.mono());
        if remaining > Duration::from_secs(5) {
            return self.real.sleep_until(self.real.mono() + remaining);
        }
        *self.ahead.lock() += remaining;
        Box::pin(std::future::ready(()))
    }
}
