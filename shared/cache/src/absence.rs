//! Nodes that pods or volume Leases name and that do not exist.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::sync::WATCH_GAP;
use crate::clock::Mono;
use pod_safety_proof::AbsenceRead;

/// A kubelet looks for its Node each second, and watches pods once it has found it. Its list of Nodes may fail three times:
/// client-go's reflector then lists again after 0.8, 1.6 and 3.2 s, or up to twice that.
/// docs/assumptions.md: watches-once-registered
const START_TAKES: Duration = Duration::from_secs(15);

/// The same, as this process sees it: the watch of Leases may be ahead of that of Nodes.
pub(super) const STARTS_WITHIN: Duration = START_TAKES.saturating_add(WATCH_GAP);

/// The absence of a node, and the first quorum read of it.
#[derive(Clone, Debug, Default)]
pub struct Absence {
    /// Since when this process has missed the node, without a gap.
    pub since: Mono,
    /// The last contact with its kubelet before its Node was deleted; `None`: this process did not see the deletion.
    pub(super) last_contact: Option<KubeletContact>,
    /// Whether its kubelet reports that it saw the deletion of a pod; `false` also if this process did not see the
    /// deletion of the Node.
    pub(super) reports_deletions: bool,
    /// The creation time of its Node in seconds of the API server's clock, if this process saw it deleted as soon as a kubelet
    /// that registered it may have been unable to watch pods.
    pub(super) young_node_created: Option<i64>,
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
            self.0.insert(Arc::clone(name), Absence { since: now, ..Absence::default() });
        }
    }

    /// Records that this process saw the Node removed.
    pub(super) fn record_node_deleted(
        &mut self,
        name: &str,
        last_contact: Option<KubeletContact>,
        reports_deletions: bool,
        young_node_created: Option<i64>,
    ) {
        if let Some(absence) = self.0.get_mut(name) {
            (absence.last_contact, absence.reports_deletions) = (last_contact, reports_deletions);
            absence.young_node_created = young_node_created;
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
