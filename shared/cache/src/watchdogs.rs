//! When this process first saw each version of each watchdog Lease. These Leases are not watched: each is read when
//! it is needed.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use pod_safety_proof::Mark;
use pod_safety_watchdog::controller::LeaseWatch;

use crate::model::Uid;

/// The number of marks that are kept: far more than pods are stuck at one time. A mark that was dropped is made
/// again.
const MAX_MARKS: usize = 10_000;

/// The number of Leases that are kept: more than a cluster has nodes, though an autoscaler adds new ones. When it is
/// reached all are dropped, and each is observed again.
const MAX_LEASES: usize = 200_000;

/// What this process has observed of watchdog Leases, by their paths; and the rounds from which reports about pods
/// count.
#[derive(Debug, Default)]
pub struct Watchdogs {
    leases: Mutex<BTreeMap<Box<str>, LeaseWatch>>,
    marks: Mutex<BTreeMap<Uid, Mark>>,
}

impl Watchdogs {
    /// Reads or updates the record of the Lease at this path.
    pub fn update<T>(&self, path: &str, then: impl FnOnce(&mut LeaseWatch) -> T) -> T {
        let mut leases = self.leases.lock();
        if leases.len() >= MAX_LEASES && !leases.contains_key(path) {
            leases.clear();
        }
        then(leases.entry(path.into()).or_default())
    }

    /// The mark of a pod.
    #[must_use]
    pub fn mark(&self, pod: &Uid) -> Option<Mark> {
        self.marks.lock().get(pod).cloned()
    }

    /// Marks a pod.
    pub fn set_mark(&self, pod: &Uid, mark: Mark) {
        let mut marks = self.marks.lock();
        if marks.len() >= MAX_MARKS {
            marks.clear();
        }
        marks.insert(pod.clone(), mark);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchdog_leases_beyond_the_limit_are_dropped() {
        let watchdogs = Watchdogs::default();
        for number in 0..=MAX_LEASES {
            watchdogs.update(&number.to_string(), |_| ());
            watchdogs.update("it is looked at all the time", |_| ());
        }
        assert!(watchdogs.leases.lock().len() < 10);
    }

    #[test]
    fn watchdog_leases_are_dropped_only_when_the_limit_is_reached() {
        let watchdogs = Watchdogs::default();
        let count = || watchdogs.leases.lock().len();
        for number in 0..MAX_LEASES {
            watchdogs.update(&number.to_string(), |_| ());
        }
        assert_eq!(count(), MAX_LEASES);
        watchdogs.update("0", |_| ());
        assert_eq!(count(), MAX_LEASES, "this one is known");
        watchdogs.update("one more", |_| ());
        assert_eq!(count(), 1);
    }
}
