//! Detects control loops that are stuck.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Mono;

/// A loop without a heartbeat for this long is stuck. It is six heartbeat intervals.
const STUCK_AFTER: Duration = Duration::from_secs(120);

/// The last heartbeat of each loop.
#[derive(Clone, Debug, Default)]
pub struct LoopHeartbeats(Arc<Mutex<BTreeMap<&'static str, Mono>>>);

impl LoopHeartbeats {
    /// Registers a loop, which counts as alive from `now`.
    #[must_use]
    pub fn register(&self, name: &'static str, now: Mono) -> LoopHeartbeat {
        self.0.lock().insert(name, now);
        LoopHeartbeat { heartbeats: self.clone(), name }
    }

    /// The stuck loops, and for how long they have had no heartbeat.
    pub(crate) fn stuck(&self, now: Mono) -> Vec<(&'static str, Duration)> {
        let heartbeats = self.0.lock();
        let ages = heartbeats.iter().map(|(name, at)| (*name, now.since(*at)));
        ages.filter(|(_, age)| *age > STUCK_AFTER).collect()
    }
}

/// The heartbeat of one loop.
#[derive(Clone, Debug)]
pub struct LoopHeartbeat {
    heartbeats: LoopHeartbeats,
    name: &'static str,
}

impl LoopHeartbeat {
    /// Records a heartbeat.
    pub fn record(&self, now: Mono) {
        self.heartbeats.0.lock().insert(self.name, now);
    }
}
