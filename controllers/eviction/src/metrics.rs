//! The metrics of evictions, in addition to those of the queue and of the reasons of holds.

use pod_safety_shared::authority::{EvictionChange, Update, UpdateOutcome};
use pod_safety_shared::metrics::{MetricsError, registered};
use prometheus::{IntCounterVec, Opts, Registry};

/// Counts the writes.
#[derive(Clone, Debug)]
pub(super) struct EvictionMetrics {
    writes: IntCounterVec,
    ended: IntCounterVec,
}

/// How Evictions end.
const END_REASONS: [&str; 5] =
    ["PodDeleted", "PodTerminal", "EvictionInvalid", "CanceledDueToNoRequesters", "NoFurtherResponder"];

impl EvictionMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let counter = |name: &str, help: &str, labels: &[&str]| {
            registered(registry, IntCounterVec::new(Opts::new(name, help), labels)?)
        };
        let writes = counter(
            "pod_safety_eviction_writes_total",
            "Writes of EvictionRequests and Evictions, and attempts to evict, by kind of change and outcome.",
            &["change", "outcome"],
        )?;
        let ended = counter("pod_safety_evictions_ended_total", "Evictions that ended, by reason.", &["reason"])?;
        for change in EvictionChange::NAMES {
            writes.with_label_values(&[*change, "written"]).inc_by(0);
        }
        for reason in END_REASONS {
            ended.with_label_values(&[reason]).inc_by(0);
        }
        Ok(Self { writes, ended })
    }

    pub(super) fn record_update(&self, update: &Update, outcome: &UpdateOutcome) {
        let Update::Eviction(update) = update else { return };
        self.writes.with_label_values(&[update.change.name(), outcome.name()]).inc();
        let EvictionChange::Status(change) = &update.change else { return };
        let Some(stand) = change.conditions.as_ref().filter(|_| matches!(outcome, UpdateOutcome::Written)) else {
            return;
        };
        let ends = [&stand.evicted, &stand.failed].into_iter().find(|stated| stated.is_true);
        if let Some(reason) = ends.and_then(|stated| END_REASONS.iter().find(|reason| **reason == stated.reason)) {
            self.ended.with_label_values(&[reason]).inc();
        }
    }
}
