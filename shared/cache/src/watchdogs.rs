//! When this process first saw which version of which watchdog Lease. They are not watched: each is read when it is needed.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use pod_safety_proof::Mark;
use pod_safety_watchdog::controller::LeaseWatch;

use crate::model::Uid;

/// Marks of more pods than this are not kept: far more than are stuck at one time, and a mark that is gone is made anew.
const MAX_MARKS: usize = 10_000;

/// At most this number of Leases is kept, more than a cluster has nodes: an autoscaler makes new ones. When it is reached all are
/// forgotten, and each is waited for again.
const MAX_LEASES: usize = 200_000;

/// What this process knows of watchdog Leases, by their paths; and the rounds from which reports about pods count.
#[derive(Debug, Default)]
pub struct Watchdogs {
    leases: Mutex<BTreeMap<Box<str>, LeaseWatch>>,
    marks: Mutex<BTreeMap<Uid, Mark>>,
}

impl Watchdogs {
    /// What it knows of this one.
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
    fn leases_of_nodes_that_came_and_went_take_no_memory_without_end() {
        let watchdogs = Watchdogs::default();
        for number in 0..=MAX_LEASES {
            watchdogs.update(&number.to_string(), |_| ());
            watchdogs.update("it is looked at all the time", |_| ());
        }
        assert!(watchdogs.leases.lock().len() < 10);
    }

    #[test]
    fn all_leases_are_forgotten_when_there_are_too_many_and_not_before() {
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
