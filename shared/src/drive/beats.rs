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
pub struct Beats(Arc<Mutex<BTreeMap<&'static str, Mono>>>);

impl Beats {
    /// The beat of one loop, which counts as alive from `now`.
    #[must_use]
    pub fn of(&self, name: &'static str, now: Mono) -> Beat {
        self.0.lock().insert(name, now);
        Beat { beats: self.clone(), name }
    }

    /// The loops that did not turn for too long, and for how long.
    pub(crate) fn stuck(&self, now: Mono) -> Vec<(&'static str, Duration)> {
        let beats = self.0.lock();
        let silent = beats.iter().map(|(name, at)| (*name, now.since(*at)));
        silent.filter(|(_, silent)| *silent > STUCK_AFTER).collect()
    }
}

/// The beat of one loop.
#[derive(Clone, Debug)]
pub struct Beat {
    beats: Beats,
    name: &'static str,
}

impl Beat {
    /// The loop turned.
    pub fn at(&self, now: Mono) {
        self.beats.0.lock().insert(self.name, now);
    }
}
