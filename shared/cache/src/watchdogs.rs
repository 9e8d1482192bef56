//! When this process first saw which version of which watchdog Lease. They are not watched: each is read when it is needed.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use pod_safety_proof::Mark;
use pod_safety_watchdog::controller::Watch;

use crate::model::Uid;

/// Marks of more pods than this are not kept: far more than are stuck at one time, and a mark that is gone is made anew.
const MOST_MARKS: usize = 10_000;

/// At most this number of Leases is kept, more than a cluster has nodes: an autoscaler makes new ones. When it is reached all are
/// forgotten, and each is waited for again.
const MOST_KNOWN: usize = 200_000;

/// What this process knows of watchdog Leases, by their paths; and the rounds from which reports about pods count.
#[derive(Debug, Default)]
pub struct Watchdogs {
    known: Mutex<BTreeMap<Box<str>, Watch>>,
    marks: Mutex<BTreeMap<Uid, Mark>>,
}

impl Watchdogs {
    /// What it knows of this one.
    pub fn with<T>(&self, path: &str, then: impl FnOnce(&mut Watch) -> T) -> T {
        let mut known = self.known.lock();
        if known.len() >= MOST_KNOWN && !known.contains_key(path) {
            known.clear();
        }
        then(known.entry(path.into()).or_default())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_of_nodes_that_came_and_went_take_no_memory_without_end() {
        let known = Watchdogs::default();
        for number in 0..=MOST_KNOWN {
            known.with(&number.to_string(), |_| ());
            known.with("it is looked at all the time", |_| ());
        }
        assert!(known.known.lock().len() < 10);
    }

    #[test]
    fn all_leases_are_forgotten_when_there_are_too_many_and_not_before() {
        let known = Watchdogs::default();
        let kept = || known.known.lock().len();
        for number in 0..MOST_KNOWN {
            known.with(&number.to_string(), |_| ());
        }
        assert_eq!(kept(), MOST_KNOWN);
        known.with("0", |_| ());
        assert_eq!(kept(), MOST_KNOWN, "this one is known");
        known.with("one more", |_| ());
        assert_eq!(kept(), 1);
    }
}
