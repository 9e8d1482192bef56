//! Nodes that pods name and that are not there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::sync::WATCH_GAP;
use crate::clock::Mono;
use pod_safety_proof::AbsenceRead;

/// That a node is missing, and what a quorum read said of it.
#[derive(Clone, Debug)]
pub struct Absence {
    /// Since when this process has missed it, without a break.
    pub since: Mono,
    /// What was heard of its kubelet before its Node went; `None`: this process did not see it go.
    pub(super) last_contact: Option<KubeletContact>,
    /// Its kubelet reports that it saw the deletion of a pod; `false`: it does not, or this process did not see the Node go.
    pub(super) reports_deletions: bool,
    /// The first quorum read in that time, if it was taken and not refuted.
    pub first_read: Option<AbsenceRead>,
}

/// What was heard of a kubelet before its Node went.
#[derive(Clone, Copy, Debug)]
pub(super) struct KubeletContact {
    /// When it was last heard, or from when on this process would have heard it without a break.
    pub(super) last_report: Mono,
    /// Until when it could have been heard: without its Node, a kubelet cannot make its Lease anew.
    pub(super) observed_until: Mono,
    /// How long it promises to be heard again within.
    pub(super) lease_duration: Duration,
}

impl KubeletContact {
    /// Whether the kubelet was silent for a whole duration of its Lease, if `sign` is the last sign of its life. The watch
    /// may have been cut for as long as a break before anybody notices, so that much does not count.
    pub(super) fn was_unreachable(&self, last_heartbeat: Option<Mono>) -> bool {
        let last_report = last_heartbeat.map_or(self.last_report, |sign| sign.max(self.last_report));
        self.observed_until.since(last_report) >= self.lease_duration + WATCH_GAP
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
            let absence =
                Absence { since: now, last_contact: None, reports_deletions: false, first_read: None };
            self.0.insert(Arc::clone(name), absence);
        }
    }

    /// This process saw the Node go.
    pub(super) fn record_node_deleted(
        &mut self,
        name: &str,
        last_contact: Option<KubeletContact>,
        reports_deletions: bool,
    ) {
        if let Some(absence) = self.0.get_mut(name) {
            (absence.last_contact, absence.reports_deletions) = (last_contact, reports_deletions);
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Absence> {
        self.0.get(name)
    }

    pub(super) fn record_absence_read(&mut self, name: &str, first_read: AbsenceRead) {
        if let Some(absence) = self.0.get_mut(name)
            && first_read.requested_at() >= absence.since
        {
            absence.first_read = Some(first_read);
        }
    }

    pub(super) fn discard_absence_read(&mut self, name: &str) {
        if let Some(absence) = self.0.get_mut(name) {
            absence.first_read = None;
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Absence)> {
        self.0.iter()
    }
}
