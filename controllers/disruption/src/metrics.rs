//! The metrics of disruption budgets, in addition to those of the queue and of the reasons of holds.

use pod_safety_shared::authority::{Update, UpdateOutcome};
use pod_safety_shared::metrics::{MetricsError, registered};
use prometheus::{IntCounterVec, Opts, Registry};

/// Counts the statuses that were written.
#[derive(Clone, Debug)]
pub(super) struct DisruptionMetrics {
    updates: IntCounterVec,
}

impl DisruptionMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let updates = IntCounterVec::new(
            Opts::new(
                "pod_safety_disruption_updates_total",
                "Status updates of PodDisruptionBudgets, and of pods that were not disrupted after all, by outcome.",
            ),
            &["of", "outcome"],
        )?;
        for of in ["budget", "pod"] {
            updates.with_label_values(&[of, "written"]);
        }
        Ok(Self { updates: registered(registry, updates)? })
    }

    pub(super) fn record_update(&self, update: &Update, outcome: &UpdateOutcome) {
        let label = match update {
            Update::Budget(_) => "budget",
            Update::NotDisrupted(_) => "pod",
            _ => return,
        };
        self.updates.with_label_values(&[label, outcome.name()]).inc();
    }
}
