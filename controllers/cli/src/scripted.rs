//! The API server that commands reach while a test runs, and what they print: [`open`](super::cluster::open), `print` and
//! `say` ask here.

use std::sync::Arc;
use std::thread::ThreadId;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use pod_safety_shared::client::Connection;
use pod_safety_shared::clock::{Clock, Env, Mono, Task};
use pod_safety_shared::testing::{Says, connection};

const NOW: &str = "2026-11-21T10:23:05Z";

/// The API server that the commands of a thread reach, and what they printed. Tests run beside one another.
struct Stage {
    thread: ThreadId,
    says: Arc<Says>,
    printed: String,
    columns: Option<usize>,
}

static STAGES: Mutex<Vec<Stage>> = Mutex::new(Vec::new());

fn on_stage<T>(ask: impl FnOnce(&mut Stage) -> T) -> Option<T> {
    let thread = std::thread::current().id();
    STAGES.lock().iter_mut().find(|stage| stage.thread == thread).map(ask)
}

/// Has the commands of this thread reach this API server until what they print is taken.
pub(crate) fn enter(says: &Arc<Says>) {
    let (thread, says) = (std::thread::current().id(), Arc::clone(says));
    STAGES.lock().push(Stage { thread, says, printed: String::new(), columns: None });
}

/// Has them print on a terminal so wide.
pub(crate) fn widen(to: Option<usize>) {
    on_stage(|stage| stage.columns = to);
}

/// How wide that terminal is.
pub(crate) fn columns() -> Option<usize> {
    on_stage(|stage| stage.columns).flatten()
}

/// What they printed since.
pub(crate) fn leave() -> String {
    let thread = std::thread::current().id();
    let mut stages = STAGES.lock();
    let at = stages.iter().position(|stage| stage.thread == thread).unwrap();
    stages.remove(at).printed
}

/// In place of a connection to a cluster, while a test runs.
pub(crate) fn connected() -> Option<(Connection, Env)> {
    let says = on_stage(|stage| Arc::clone(&stage.says))?;
    let real = Env::real(1);
    let clock = Arc::new(Hurried { real: Arc::clone(&real.clock), ahead: Mutex::default() });
    let env = Env { clock, ..real };
    Some((connection(&env, says), env))
}

/// Whether a test keeps what is printed.
pub(crate) fn keeps(printed: &str) -> bool {
    on_stage(|stage| stage.printed.push_str(printed)).is_some()
}

/// A clock that passes pauses over. Deadlines of requests are longer than they, and stay.
struct Hurried {
    real: Arc<dyn Clock>,
    ahead: Mutex<Duration>,
}

impl Clock for Hurried {
    fn mono(&self) -> Mono {
        self.real.mono() + *self.ahead.lock()
    }
    fn wall(&self) -> Timestamp {
        NOW.parse().unwrap()
    }
    fn sleep_until(&self, deadline: Mono) -> Task {
        let left = deadline.since(self.mono());
        if left > Duration::from_secs(5) {
            return self.real.sleep_until(self.real.mono() + left);
        }
        *self.ahead.lock() += left;
        Box::pin(std::future::ready(()))
    }
}
