//! The field `event` of log lines, by which logs are searched and alerts are written.

/// The values of the field `event`. The set is closed: docs/logs.md has the same table, and a test compares them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum LogEvent {
    /// A controller does not act on an object yet.
    Held,
    /// A pod would be force deleted, but the mode does not allow it.
    WouldForceDelete,
    /// A pod would be deleted gracefully, but the mode does not allow it.
    WouldDelete,
    /// The check before a force deletion found no evidence.
    Refused,
    /// A write failed and is retried.
    Failed,
    /// An object changed before the request was sent, so nothing was done.
    Dropped,
    /// A pod was force deleted.
    PodForceDeleted,
    /// A pod was deleted gracefully.
    PodDeleted,
    /// Conditions, taints or labels of a node were written.
    NodeMarked,
    /// The Lease of an exclusive volume was written.
    VolumeLeaseWritten,
    /// An Eviction was created, attempted or ended.
    EvictionWritten,
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
    /// The name in logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use strum::VariantNames;

    use super::*;

    /// The first cell of each row of the table.
    fn documented() -> Vec<String> {
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/logs.md")).unwrap();
        let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        rows.map(str::to_owned).collect()
    }

    #[test]
    fn the_docs_list_every_event_and_no_other() {
        assert_eq!(documented(), LogEvent::VARIANTS);
    }
}
