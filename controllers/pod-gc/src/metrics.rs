//! KCM's two metrics under KCM's names, labels included.

use pod_safety_shared::authority::{ClaimKind, ForceDeleteRequest, ForceOutcome, RequestError};
use pod_safety_shared::metrics::{MetricsError, registered};
use prometheus::{IntCounterVec, Opts, Registry};

/// The metrics of the pod garbage collector.
#[derive(Clone, Debug)]
pub(super) struct PodGcMetrics {
    deleted: IntCounterVec,
    errors: IntCounterVec,
}

impl PodGcMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let counter = |name: &str, help: &str| {
            registered(registry, IntCounterVec::new(Opts::new(name, help), &["namespace", "reason"])?)
        };
        let deleted = counter(
            "pod_gc_collector_force_delete_pods_total",
            "Pods that the collector force deleted, or tried to and failed, as kube-controller-manager counts them.",
        )?;
        let errors = counter(
            "pod_gc_collector_force_delete_pod_errors_total",
            "Force deletions that failed with an error of the API server.",
        )?;
        Ok(Self { deleted, errors })
    }

    /// A refusal because evidence is missing is no attempt: the executor counts it.
    pub(super) fn record_force_delete(&self, force: &ForceDeleteRequest, outcome: &ForceOutcome) {
        let labels = &[&*force.pod.namespace, reason(ClaimKind::from(&force.claim))];
        match outcome {
            ForceOutcome::Released(_) | ForceOutcome::FinalizersRemain(_) => {
                self.deleted.with_label_values(labels).inc();
                // Prometheus detects the first error only if there was a zero before.
                self.errors.with_label_values(labels).inc_by(0);
            }
            ForceOutcome::Error(RequestError::Failed(_)) => {
                self.deleted.with_label_values(labels).inc();
                self.errors.with_label_values(labels).inc();
            }
            ForceOutcome::Refused(_) | ForceOutcome::Error(_) => {}
        }
    }
}

/// KCM's value of the label `reason` for the rule.
const fn reason(kind: ClaimKind) -> &'static str {
    match kind {
        ClaimKind::NodeGone => "orphaned",
        ClaimKind::NeverScheduled => "unscheduled",
        // KCM's collector has no such rule.
        ClaimKind::KubeletTerminated | ClaimKind::PodsEnded => "terminated",
        ClaimKind::OutOfService | ClaimKind::Fenced => "out-of-service",
    }
}
