//! Pods of missing nodes: their processes may write to volumes, and no kubelet reports on them.

use std::sync::Arc;

use super::{Lookup, View};
use crate::clock::Mono;
use crate::model::Holder;

impl<'a> View<'a> {
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
