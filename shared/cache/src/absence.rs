//! Nodes that pods name and that are not there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::sync::BREAK;
use crate::clock::Mono;
use pod_safety_proof::Witness;

/// That a node is missing, and what a quorum read said of it.
#[derive(Clone, Debug)]
pub struct Absence {
    /// Since when this process has missed it, without a break.
    pub since: Mono,
    /// What was heard of its kubelet before its Node went; `None`: this process did not see it go.
    pub(super) before: Option<Heard>,
    /// Its kubelet reports that it saw the deletion of a pod; `false`: it does not, or this process did not see the Node go.
    pub(super) reports_deletions: bool,
    /// The first quorum read in that time, if it was taken and not refuted.
    pub witness: Option<Witness>,
}

/// What was heard of a kubelet before its Node went.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    /// When it was last heard, or from when on this process would have heard it without a break.
    pub(super) at: Mono,
    /// Until when it could have been heard: without its Node, a kubelet cannot make its Lease anew.
    pub(super) until: Mono,
    /// How long it promises to be heard again within.
    pub(super) duration: Duration,
}

impl Heard {
    /// Whether the kubelet was silent for a whole duration of its Lease, if `sign` is the last sign of its life. The watch
    /// may have been cut for as long as a break before anybody notices, so that much does not count.
    pub(super) fn fell_silent(&self, sign: Option<Mono>) -> bool {
        let at = sign.map_or(self.at, |sign| sign.max(self.at));
        self.until.since(at) >= self.duration + BREAK
    }
}

#[derive(Debug, Default)]
pub(super) struct Absences(BTreeMap<Arc<str>, Absence>);

impl Absences {
    /// A node that comes back, or that no pod names any more, loses its record:
    /// its next absence is another one.
    pub(super) fn set(&mut self, name: &Arc<str>, missing: bool, now: Mono) {
        if !missing {
            self.0.remove(name);
        } else if !self.0.contains_key(name) {
            let absence = Absence { since: now, before: None, reports_deletions: false, witness: None };
            self.0.insert(Arc::clone(name), absence);
        }
    }

    /// This process saw the Node go.
    pub(super) fn went(&mut self, name: &str, before: Option<Heard>, reports_deletions: bool) {
        if let Some(absence) = self.0.get_mut(name) {
            (absence.before, absence.reports_deletions) = (before, reports_deletions);
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Absence> {
        self.0.get(name)
    }

    pub(super) fn witnessed(&mut self, name: &str, witness: Witness) {
        if let Some(absence) = self.0.get_mut(name)
            && witness.asked_at() >= absence.since
        {
            absence.witness = Some(witness);
        }
    }

    pub(super) fn refuted(&mut self, name: &str) {
        if let Some(absence) = self.0.get_mut(name) {
            absence.witness = None;
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Absence)> {
        self.0.iter()
    }
}
