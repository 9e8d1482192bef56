//! The metrics of exported spans.

use pod_safety_shared::metrics::{MetricsError, registered};
use prometheus::{IntCounter, IntCounterVec, Opts, Registry};

/// The metrics of traces.
#[derive(Clone, Debug)]
pub struct TraceMetrics {
    spans: IntCounterVec,
    failures: IntCounter,
}

impl TraceMetrics {
    /// Registers the metrics at zero, whether traces are exported or not.
    ///
    /// # Errors
    /// Two metrics have the same name: a bug in this program.
    pub fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let spans = IntCounterVec::new(
            Opts::new(
                "pod_safety_trace_spans_total",
                "Spans that were exported, that the collector rejected, or that were dropped because their records were deleted before.",
            ),
            &["outcome"],
        )?;
        for outcome in ["exported", "rejected", "dropped"] {
            spans.with_label_values(&[outcome]);
        }
        let failures = IntCounter::new(
            "pod_safety_trace_export_failures_total",
            "Requests to the OpenTelemetry collector that failed. Their spans are exported later, unless the collector rejected them.",
        )?;
        Ok(Self { spans: registered(registry, spans)?, failures: registered(registry, failures)? })
    }

    pub(super) fn exported(&self, spans: u64) {
        self.spans.with_label_values(&["exported"]).inc_by(spans);
    }

    pub(super) fn rejected(&self, spans: u64) {
        self.spans.with_label_values(&["rejected"]).inc_by(spans);
    }

    pub(super) fn dropped(&self, spans: u64) {
        self.spans.with_label_values(&["dropped"]).inc_by(spans);
    }

    pub(super) fn failed(&self) {
        self.failures.inc();
    }
}
