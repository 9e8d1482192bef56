//! The API server of commands in tests, and their output: [`connect`](super::cluster::connect), `print` and
//! `print_stderr` use it.

use std::sync::Arc;
use std::thread::ThreadId;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use pod_safety_shared::client::Connection;
use pod_safety_shared::clock::{Clock, Env, Mono, Task};
use pod_safety_shared::testing::{AnswerFn, connection};

const NOW: &str = "2026-11-21T10:23:05Z";

/// The API server of the commands of a thread, and their output. Tests run concurrently.
struct TestSession {
    thread: ThreadId,
    respond: Arc<AnswerFn>,
    printed: String,
    columns: Option<usize>,
}

static SESSIONS: Mutex<Vec<TestSession>> = Mutex::new(Vec::new());

fn with_current<T>(apply: impl FnOnce(&mut TestSession) -> T) -> Option<T> {
    let thread = std::thread::current().id();
    SESSIONS.lock().iter_mut().find(|session| session.thread == thread).map(apply)
}

/// Connects the commands of this thread to this API server until their output is taken.
pub(crate) fn start_session(respond: &Arc<AnswerFn>) {
    let (thread, respond) = (std::thread::current().id(), Arc::clone(respond));
    SESSIONS.lock().push(TestSession { thread, respond, printed: String::new(), columns: None });
}

/// Sets the width of their terminal.
pub(crate) fn widen(to: Option<usize>) {
    with_current(|session| session.columns = to);
}

/// The width of that terminal.
pub(crate) fn columns() -> Option<usize> {
    with_current(|session| session.columns).flatten()
}

/// Ends the session and returns the output since it started.
pub(crate) fn finish_session() -> String {
    let thread = std::thread::current().id();
    let mut sessions = SESSIONS.lock();
    let at = sessions.iter().position(|session| session.thread == thread).unwrap();
    sessions.remove(at).printed
}

/// Replaces the connection to a cluster while a test runs.
pub(crate) fn test_connection() -> Option<(Connection, Env)> {
    let respond = with_current(|session| Arc::clone(&session.respond))?;
    let real = Env::real(1);
    let clock = Arc::new(FastClock { real: Arc::clone(&real.clock), ahead: Mutex::default() });
    let env = Env { clock, ..real };
    Some((connection(&env, respond), env))
}

/// Captures the output of a command in a test; false: no test captures it.
pub(crate) fn capture(printed: &str) -> bool {
    with_current(|session| session.printed.push_str(printed)).is_some()
}

/// A clock that skips pauses. Deadlines of requests are longer than pauses, and stay.
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
