//! KCM's two metrics under KCM's names.

use pod_safety_shared::authority::{DeleteOutcome, GracefulDeleteRequest};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::metrics::{MetricsError, registered};
use prometheus::{Histogram, HistogramOpts, IntCounter, Registry};

/// The metrics of evictions by taint, in addition to those of the queue and of the reasons of holds.
#[derive(Clone, Debug)]
pub(super) struct TaintEvictionMetrics {
    deletions: IntCounter,
    durations: Histogram,
}

impl TaintEvictionMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let deletions = IntCounter::new(
            "taint_eviction_controller_pod_deletions_total",
            "Pods that were deleted gracefully because of a taint of their node.",
        )?;
        let durations = Histogram::with_opts(
            HistogramOpts::new(
                "taint_eviction_controller_pod_deletion_duration_seconds",
                "Time from when a pod should have been deleted until it was.",
            )
            .buckets(vec![0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0]),
        )?;
        Ok(Self { deletions: registered(registry, deletions)?, durations: registered(registry, durations)? })
    }

    /// KCM multiplies its nanoseconds by 10⁹, so that every observation overflows; these are seconds.
    pub(super) fn record_deletion(&self, delete: &GracefulDeleteRequest, outcome: &DeleteOutcome, at: Mono) {
        if matches!(outcome, DeleteOutcome::Ending) {
            self.deletions.inc();
            self.durations.observe(at.since(delete.due).as_secs_f64());
        }
    }
}
