//! When this process first saw which version of which watchdog Lease. They are not watched: each is read when it is needed.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use pod_safety_proof::Mark;
use pod_safety_watchdog::controller::Watch;

use crate::model::Uid;

/// Marks of more pods than this are not kept: far more than are stuck at one time, and a mark that is gone is made anew.
const MOST_MARKS: usize = 10_000;

/// What this process knows of watchdog Leases, by their paths; and the rounds from which reports about pods count.
#[derive(Debug, Default)]
pub struct Watchdogs {
    known: Mutex<BTreeMap<Box<str>, Watch>>,
    marks: Mutex<BTreeMap<Uid, Mark>>,
}

impl Watchdogs {
    /// What it knows of this one.
    pub fn with<T>(&self, path: &str, then: impl FnOnce(&mut Watch) -> T) -> T {
        then(self.known.lock().entry(path.into()).or_default())
    }

    /// The mark of a pod.
    #[must_use]
    pub fn mark(&self, pod: &Uid) -> Option<Mark> {
        self.marks.lock().get(pod).cloned()
    }

    /// Marks a pod.
    pub fn set_mark(&self, pod: &Uid, mark: Mark) {
        let mut marks = self.marks.lock();
        if marks.len() >= MOST_MARKS {
            marks.clear();
        }
        marks.insert(pod.clone(), mark);
    }
}
