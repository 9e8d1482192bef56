//! What a log line is about: the field `event`, by which logs are searched and alerts on them are written.

/// The values of the field `event`. A closed set: docs/logs.md has the same table, and a test compares them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogEvent {
    /// A controller does not act on an object yet.
    Held,
    /// A pod would be force deleted, but the mode does not allow it.
    WouldForceDelete,
    /// A pod would be deleted gracefully, but the mode does not allow it.
    WouldDelete,
    /// The check before an act found no evidence.
    Refused,
    /// A write failed and is tried again.
    Failed,
    /// An object changed before the act, so nothing was done.
    Dropped,
    /// A pod was force deleted.
    PodForceDeleted,
    /// A pod was deleted gracefully.
    PodDeleted,
    /// Conditions, taints or labels of a node were written.
    NodeMarked,
    /// The Lease of an exclusive volume was written.
    VolumeLeaseWritten,
    /// The scheduling gate of a pod was removed.
    PodUngated,
    /// The condition DisruptionTarget of a pod was set to False.
    DisruptionTargetCleared,
    /// A NodeFence was created: an incident begins.
    FencingBegan,
    /// An order to fence devices was recorded and sent.
    FenceOrdered,
    /// An unhealthy node that reports is cordoned, and its pods are evicted.
    NodeDraining,
    /// The status checks after an order were recorded.
    PowerChecked,
    /// Evidence that a node is off was created.
    NodeFenced,
    /// Evidence that a storage accepts no writes from a node was created.
    StorageFenced,
    /// Evidence was invalidated, because something contradicts it.
    EvidenceContradicted,
    /// The taint out-of-service was added to a node.
    OutOfServiceTaintAdded,
    /// The taint out-of-service was removed, because its evidence is not valid any more.
    OutOfServiceTaintWithdrawn,
    /// A node is back with another boot, and the taint out-of-service was removed.
    NodeReturned,
    /// The status of a NodeFence was written.
    FenceUpdated,
    /// An old NodeFence or FenceEvidence was deleted.
    HistoryDeleted,
    /// This process became the leader.
    LeaderElected,
    /// This process is not the leader any more.
    LeaderLost,
}

impl LogEvent {
    /// Every event, in the order of docs/logs.md.
    pub const ALL: [Self; 26] = [
        Self::Held,
        Self::WouldForceDelete,
        Self::WouldDelete,
        Self::Refused,
        Self::Failed,
        Self::Dropped,
        Self::PodForceDeleted,
        Self::PodDeleted,
        Self::NodeMarked,
        Self::VolumeLeaseWritten,
        Self::PodUngated,
        Self::DisruptionTargetCleared,
        Self::FencingBegan,
        Self::FenceOrdered,
        Self::NodeDraining,
        Self::PowerChecked,
        Self::NodeFenced,
        Self::StorageFenced,
        Self::EvidenceContradicted,
        Self::OutOfServiceTaintAdded,
        Self::OutOfServiceTaintWithdrawn,
        Self::NodeReturned,
        Self::FenceUpdated,
        Self::HistoryDeleted,
        Self::LeaderElected,
        Self::LeaderLost,
    ];

    /// Its name in logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::WouldForceDelete => "would_force_delete",
            Self::WouldDelete => "would_delete",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Dropped => "dropped",
            Self::PodForceDeleted => "pod_force_deleted",
            Self::PodDeleted => "pod_deleted",
            Self::NodeMarked => "node_marked",
            Self::VolumeLeaseWritten => "volume_lease_written",
            Self::PodUngated => "pod_ungated",
            Self::DisruptionTargetCleared => "disruption_target_cleared",
            Self::FencingBegan => "fencing_began",
            Self::FenceOrdered => "fence_ordered",
            Self::NodeDraining => "node_draining",
            Self::PowerChecked => "power_checked",
            Self::NodeFenced => "node_fenced",
            Self::StorageFenced => "storage_fenced",
            Self::EvidenceContradicted => "evidence_contradicted",
            Self::OutOfServiceTaintAdded => "out_of_service_taint_added",
            Self::OutOfServiceTaintWithdrawn => "out_of_service_taint_withdrawn",
            Self::NodeReturned => "node_returned",
            Self::FenceUpdated => "fence_updated",
            Self::HistoryDeleted => "history_deleted",
            Self::LeaderElected => "leader_elected",
            Self::LeaderLost => "leader_lost",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first cell of each row of the table.
    fn documented() -> Vec<String> {
        let page =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/logs.md")).unwrap();
        let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        rows.map(str::to_owned).collect()
    }

    #[test]
    fn the_docs_list_every_event_and_no_other() {
        assert_eq!(documented(), LogEvent::ALL.map(LogEvent::name));
    }

    #[test]
    fn every_event_is_listed_once_in_snake_case() {
        for (index, event) in LogEvent::ALL.into_iter().enumerate() {
            assert_eq!(index, event as usize, "{event:?}");
            let name = event.name();
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
            let snake: String = format!("{event:?}")
                .chars()
                .flat_map(|letter| {
                    let low = letter.to_ascii_lowercase();
                    letter.is_ascii_uppercase().then_some('_').into_iter().chain([low])
                })
                .collect();
            assert_eq!(snake.trim_start_matches('_'), name);
        }
        assert_eq!(LogEvent::LeaderLost as usize + 1, LogEvent::ALL.len(), "the last one");
    }
}
