//! Clocks of a runtime whose time is paused.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use pod_safety_shared::clock::{Clock, Env, Mono, Task};

/// Wall time that moves with tokio's paused clock, from the first of 2027.
struct Paused(Env);

impl Clock for Paused {
    fn mono(&self) -> Mono {
        self.0.now()
    }
    fn wall(&self) -> Timestamp {
        let start: Timestamp = "2027-01-01T00:00:00Z".parse().unwrap();
        start + SignedDuration::try_from(self.mono().since_start()).unwrap()
    }
    fn sleep_until(&self, deadline: Mono) -> Task {
        self.0.clock.sleep_until(deadline)
    }
}

/// The world of such a runtime; to be called inside of it.
pub(crate) fn env(seed: u64) -> Env {
    let real = Env::real(seed);
    Env { clock: Arc::new(Paused(real.clone())), ..real }
}
