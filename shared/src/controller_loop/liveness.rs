//! Which loops turn.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Mono;

/// A loop that has not turned for this long is stuck: six of its beats.
const STUCK_AFTER: Duration = Duration::from_secs(120);

/// Which loops turned when.
#[derive(Clone, Debug, Default)]
pub struct LoopHeartbeats(Arc<Mutex<BTreeMap<&'static str, Mono>>>);

impl LoopHeartbeats {
    /// The beat of one loop, which counts as alive from `now`.
    #[must_use]
    pub fn register(&self, name: &'static str, now: Mono) -> LoopHeartbeat {
        self.0.lock().insert(name, now);
        LoopHeartbeat { heartbeats: self.clone(), name }
    }

    /// The loops that did not turn for too long, and for how long.
    pub(crate) fn stuck(&self, now: Mono) -> Vec<(&'static str, Duration)> {
        let heartbeats = self.0.lock();
        let ages = heartbeats.iter().map(|(name, at)| (*name, now.since(*at)));
        ages.filter(|(_, silent)| *silent > STUCK_AFTER).collect()
    }
}

/// The beat of one loop.
#[derive(Clone, Debug)]
pub struct LoopHeartbeat {
    heartbeats: LoopHeartbeats,
    name: &'static str,
}

impl LoopHeartbeat {
    /// The loop turned.
    pub fn record(&self, now: Mono) {
        self.heartbeats.0.lock().insert(self.name, now);
    }
}
