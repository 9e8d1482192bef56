//! Nodes that pods or volume Leases name and that do not exist.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::sync::WATCH_GAP;
use crate::clock::Mono;
use pod_safety_proof::AbsenceRead;

/// The absence of a node, and the first quorum read of it.
#[derive(Clone, Debug)]
pub struct Absence {
    /// Since when this process has missed the node, without a gap.
    pub since: Mono,
    /// The last contact with its kubelet before its Node was deleted; `None`: this process did not see the deletion.
    pub(super) last_contact: Option<KubeletContact>,
    /// Whether its kubelet reports that it saw the deletion of a pod; `false` also if this process did not see the
    /// deletion of the Node.
    pub(super) reports_deletions: bool,
    /// The first quorum read during the absence, if it was made and not refuted.
    pub first_read: Option<AbsenceRead>,
}

/// The last contact with a kubelet before its Node was deleted.
#[derive(Clone, Copy, Debug)]
pub(super) struct KubeletContact {
    /// When it last reported, or from when on this process watched without a gap, if that is later.
    pub(super) last_report: Mono,
    /// Until when a report could have been observed: without its Node, a kubelet cannot create its Lease again.
    pub(super) observed_until: Mono,
    /// The lease duration, within which the kubelet renews.
    pub(super) lease_duration: Duration,
}

impl KubeletContact {
    /// Whether the kubelet did not report for a whole duration of its Lease, if `last_heartbeat` is its last report.
    /// A gap of the watch shorter than `WATCH_GAP` may go unnoticed, so that much is added.
    pub(super) fn was_unreachable(&self, last_heartbeat: Option<Mono>) -> bool {
        let last_report = last_heartbeat.map_or(self.last_report, |at| at.max(self.last_report));
        self.observed_until.since(last_report) >= self.lease_duration + WATCH_GAP
    }
}

#[derive(Debug, Default)]
pub(super) struct Absences(BTreeMap<Arc<str>, Absence>);

impl Absences {
    /// Sets or clears the absence of a node. A node that exists again, or that nothing names any more, loses its
    /// record: its next absence is a new one.
    pub(super) fn set(&mut self, name: &Arc<str>, missing: bool, now: Mono) {
        if !missing {
            self.0.remove(name);
        } else if !self.0.contains_key(name) {
            let absence = Absence { since: now, last_contact: None, reports_deletions: false, first_read: None };
            self.0.insert(Arc::clone(name), absence);
        }
    }

    /// Records that this process saw the Node removed.
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
