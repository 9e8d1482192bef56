//! The metrics of volumes, in addition to those of the queue and of the reasons of holds.

use pod_safety_shared::authority::{Update, UpdateOutcome, VolumeChange};
use pod_safety_shared::metrics::{MetricsError, registered};
use prometheus::{IntCounterVec, Opts, Registry};

#[derive(Clone, Debug)]
pub(super) struct VolumeGuardMetrics {
    changes: IntCounterVec,
}

impl VolumeGuardMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let changes = IntCounterVec::new(
            Opts::new("pod_safety_volume_changes_total", "Writes of Leases of exclusive volumes, by kind of change."),
            &["change"],
        )?;
        for change in VolumeChange::NAMES {
            changes.with_label_values(&[*change]).inc_by(0);
        }
        Ok(Self { changes: registered(registry, changes)? })
    }

    pub(super) fn record_update(&self, update: &Update, outcome: &UpdateOutcome) {
        if let (Update::Volume(update), UpdateOutcome::Written) = (update, outcome) {
            self.changes.with_label_values(&[update.change.name()]).inc();
        }
    }
}
