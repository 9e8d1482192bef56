//! Pods of missing nodes: what it shows that their kubelet does not report, and that their processes may write to volumes.

use std::sync::Arc;

use pod_safety_proof::{AbsenceRead, Inability};

use super::{Lookup, View};
use crate::clock::Mono;
use crate::model::{Holder, Pod};

impl<'a> View<'a> {
    /// Whether the kubelet of a missing node had not reported for a whole duration of its Lease when its Node was
    /// deleted, and has not since. `false` also where this process did not see the deletion, or had not watched
    /// without a gap before: unknown does not count as unreachable.
    #[must_use]
    pub fn unreachable_before_node_deleted(&self, node: &str) -> bool {
        self.inner.unreachable_before_node_deleted(node)
    }

    /// Whether the kubelet of a missing node reports at once that it saw the deletion of a pod. `false` also where
    /// this process did not see the deletion of the Node.
    #[must_use]
    pub fn reports_deletions(&self, node: &str) -> bool {
        self.absence(node).is_some_and(|absence| absence.reports_deletions)
    }

    /// Whether the kubelet of a missing node may have started so shortly before its Node was deleted that it does not
    /// know this pod: it renewed its Lease then, and not when a kubelet that runs would have, or it registered its Node
    /// after the pod was bound. `false` also where this process did not watch.
    #[must_use]
    pub fn may_have_just_started(&self, pod: &Pod, node: &str) -> bool {
        self.inner.may_have_just_started(pod, node)
    }

    /// See [`pod_safety_proof::why_unable_to_report`].
    #[must_use]
    pub fn why_unable_to_report(&self, pod: &Pod, node: &str) -> Option<Inability> {
        pod_safety_proof::why_unable_to_report(pod, node, self)
    }

    /// See [`pod_safety_proof::unreachable_is_proof`].
    #[must_use]
    pub fn unreachable_is_proof(&self, pod: &Pod, node: &str, first: &AbsenceRead) -> bool {
        pod_safety_proof::unreachable_is_proof(pod, node, first, self)
    }

    /// Whether a pod that is bound to a missing node may still write to this volume. Unless its kubelet was
    /// unreachable before the Node was deleted, that is so while the pod exists, and after another client removed it
    /// while the kubelet's worker for it may have been busy. The pod for which the volume was taken counts, too,
    /// whatever happened to its claim.
    #[must_use]
    pub fn is_used_on_missing_node(&self, volume: &str, holder: &Holder) -> bool {
        let taken_for = holder.pod.as_ref().and_then(|pod| self.pod(pod));
        let mut users = self.pods_using(volume).chain(taken_for);
        let removed = || {
            self.inner.volumes.removed(volume).any(|(node, all)| **node == *holder.node && all.terminates_at.is_none())
        };
        !self.unreachable_before_node_deleted(&holder.node)
            && (users.any(|pod| pod.node.as_ref() == Some(&holder.node) && pod.may_mount_volumes()) || removed())
    }

    /// When the processes of pods of a missing node that other clients removed have terminated, if its kubelet sees
    /// the removal.
    #[must_use]
    pub fn removed_pods_terminate_at(&self, volume: &str, holder: &Holder) -> Option<Mono> {
        let (_, removed) = self.inner.volumes.removed(volume).find(|(node, _)| **node == holder.node)?;
        removed.terminates_at.filter(|_| !self.unreachable_before_node_deleted(&holder.node))
    }

    /// The same for a volume without a holder: the missing node on which the pods terminate last, with `None` where
    /// the time is unknown.
    #[must_use]
    pub fn last_termination_on_missing_node(&self, volume: &str) -> Option<(&'a Arc<str>, Option<Mono>)> {
        let last_reports = self.inner.volumes.removed(volume).filter(|(_, removed)| !removed.all_unreachable);
        let missing = last_reports.filter(|(node, _)| matches!(self.node(node), Lookup::Absent));
        missing.map(|(node, removed)| (node, removed.terminates_at)).max_by_key(|(_, end)| (end.is_none(), *end))
    }
}
