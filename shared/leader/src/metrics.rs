//! Metrics: an owned registry, and the metrics of the shared parts.
//!
//! Labels come from closed enums. The exception is kube-controller-manager's own pair `pod_gc_collector_*`, whose
//! `namespace` label is part of its interface.

use pod_safety_proof::EvidenceName;
use prometheus::{
    Encoder, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder,
};
use strum::IntoEnumIterator as _;

use crate::model::FenceEvidenceKind;
use crate::outcome::VerifyError;

pub use pod_safety_cache::CacheMetrics;
pub use pod_safety_client::{ClientMetrics, registered};

/// The names of the kinds of evidence that release pods, so that the metric has each series from the start.
#[must_use]
pub fn release_evidence_names() -> Vec<&'static str> {
    let fenced = FenceEvidenceKind::iter().filter(|kind| kind.ends_incarnation());
    let fenced: Vec<_> = fenced.filter(|kind| *kind != FenceEvidenceKind::OperatorConfirmed).collect();
    let releasing = EvidenceName::iter().filter(|name| releases_pods(*name));
    let names = releasing.flat_map(|name| match name {
        EvidenceName::Fenced => fenced.iter().map(|kind| kind.name()).collect(),
        other => vec![<&'static str>::from(other)],
    });
    names.collect()
}

const fn releases_pods(name: EvidenceName) -> bool {
    match name {
        EvidenceName::NodeGone
        | EvidenceName::NeverScheduled
        | EvidenceName::KubeletTerminated
        | EvidenceName::PodsEnded
        | EvidenceName::TrustedTaint
        | EvidenceName::Fenced
        | EvidenceName::Confirmed => true,
        EvidenceName::BootChanged | EvidenceName::StorageFenced => false,
    }
}

/// Why the metrics could not be registered or encoded.
#[derive(Debug, thiserror::Error)]
#[error("registering or writing metrics")]
pub struct MetricsError(#[from] prometheus::Error);

/// The metrics registry of one process. It is not global, because a simulation runs many processes.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    modes: IntGaugeVec,
    fence_agents: IntGauge,
    /// The metrics of the client.
    pub client: ClientMetrics,
    /// The metrics of the cache.
    pub cache: CacheMetrics,
    /// The metrics of leader election.
    pub lease: LeaseMetrics,
    /// The metrics of the authority.
    pub authority: AuthorityMetrics,
    /// The metrics of the controllers' work queues.
    pub queues: QueueMetrics,
}

impl Metrics {
    /// A registry with the metrics of the shared parts, the process's own and `pod_safety_build_info`.
    ///
    /// # Errors
    /// Two metrics have the same name, which is a defect of this program.
    pub fn new() -> Result<Self, MetricsError> {
        let registry = Registry::new();
        #[cfg(target_os = "linux")] // It reads /proc.
        registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
        let build = IntGaugeVec::new(
            Opts::new("pod_safety_build_info", "Constant 1, labelled with the version that runs."),
            &["version"],
        )?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        registry.register(Box::new(build))?;
        let modes = IntGaugeVec::new(
            Opts::new("pod_safety_controller_mode", "1 for the mode in which the controller runs."),
            &["controller", "mode"],
        )?;
        let fence_agents = IntGauge::new(
            "pod_safety_fence_agents_available",
            "1 if fence agents can run; 0 if the process that runs them does not answer.",
        )?;
        fence_agents.set(1);
        Ok(Self {
            modes: registered(&registry, modes)?,
            fence_agents: registered(&registry, fence_agents)?,
            client: ClientMetrics::register(&registry)?,
            cache: CacheMetrics::register(&registry)?,
            lease: LeaseMetrics::register(&registry)?,
            authority: AuthorityMetrics::register(&registry)?,
            queues: QueueMetrics::register(&registry)?,
            registry,
        })
    }

    /// Records that a controller runs in this mode.
    pub fn set_mode(&self, controller: &str, mode: &str) {
        self.modes.with_label_values(&[controller, mode]).set(1);
    }

    /// Whether fence agents can run.
    pub fn set_fence_agents(&self, available: bool) {
        self.fence_agents.set(available.into());
    }

    /// The last value of [`Self::set_fence_agents`]; `true` at first.
    #[must_use]
    pub fn has_fence_agents(&self) -> bool {
        self.fence_agents.get() == 1
    }

    /// The registry, where a controller registers its own metrics.
    #[must_use]
    pub const fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The metrics in Prometheus text format.
    ///
    /// # Errors
    /// Two metrics contradict each other, which is a defect of this program.
    pub fn encode(&self) -> Result<Vec<u8>, MetricsError> {
        let mut page = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut page)?;
        Ok(page)
    }
}

/// The metrics of leader election.
#[derive(Clone, Debug)]
pub struct LeaseMetrics {
    master: IntGaugeVec,
    changes: IntCounterVec,
}

impl LeaseMetrics {
    fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let master = IntGaugeVec::new(
            Opts::new("leader_election_master_status", "1 while this process holds the named lease."),
            &["name"],
        )?;
        let changes = IntCounterVec::new(
            Opts::new("pod_safety_leader_changes_total", "Times this process gained or lost the lease."),
            &["change"],
        )?;
        for change in ["gained", "lost"] {
            changes.with_label_values(&[change]);
        }
        Ok(Self { master: registered(registry, master)?, changes: registered(registry, changes)? })
    }

    pub(crate) fn set_leading(&self, name: &str, leads: bool) {
        self.master.with_label_values(&[name]).set(i64::from(leads));
    }

    pub(crate) fn count_change(&self, gained: bool) {
        self.changes.with_label_values(&[if gained { "gained" } else { "lost" }]).inc();
    }
}

/// The metrics of the deletion authority.
#[derive(Clone, Debug)]
pub struct AuthorityMetrics {
    /// Requests that are queued.
    pub queued: IntGauge,
    /// Requests that are in flight.
    pub in_flight: IntGauge,
    /// Completed requests, by outcome.
    pub outcomes: IntCounterVec,
    /// Pods force deleted, by the kind of evidence.
    pub releases: IntCounterVec,
    /// Claims without evidence, by reason.
    pub refusals: IntCounterVec,
    pub(crate) events_dropped: IntCounter,
    /// Steps of fencing, by step and outcome.
    pub fence_steps: IntCounterVec,
}

impl AuthorityMetrics {
    fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let gauge = |name: &str, help: &str| registered(registry, IntGauge::new(name, help)?);
        // Prometheus computes an increase only for a series that was there before, so each series starts at zero.
        let counter = |name: &str, help: &str, label: &str, values: &[&str]| -> Result<IntCounterVec, MetricsError> {
            let metric = registered(registry, IntCounterVec::new(Opts::new(name, help), &[label])?)?;
            for value in values {
                metric.with_label_values(&[*value]);
            }
            Ok(metric)
        };
        let fence_steps = IntCounterVec::new(
            Opts::new(
                "pod_safety_fence_steps_total",
                "Steps of fencing nodes, and status checks through fence devices, by outcome.",
            ),
            &["step", "outcome"],
        )?;
        Ok(Self {
            queued: gauge("pod_safety_authority_queued_intents", "Intents that wait for their turn.")?,
            in_flight: gauge("pod_safety_authority_intents_in_flight", "Intents that are being carried out.")?,
            outcomes: counter(
                "pod_safety_authority_outcomes_total",
                "Intents carried out, by outcome.",
                "outcome",
                &["failed"],
            )?,
            releases: counter(
                "pod_safety_force_deletes_total",
                "Pods force deleted, by the kind of evidence.",
                "evidence",
                &release_evidence_names(),
            )?,
            refusals: counter(
                "pod_safety_evidence_refusals_total",
                "Claims for which live reads gave no evidence, by reason.",
                "reason",
                &VerifyError::reasons(),
            )?,
            fence_steps: registered(registry, fence_steps)?,
            events_dropped: events_dropped(registry)?,
        })
    }

    /// Registers these steps of fencing, so that each series starts at zero.
    pub fn register_steps(&self, steps: impl IntoIterator<Item = &'static str>) {
        for step in steps {
            self.fence_steps.with_label_values(&[step, "written"]);
        }
    }
}

fn events_dropped(registry: &Registry) -> Result<IntCounter, MetricsError> {
    let dropped = IntCounter::new(
        "pod_safety_events_dropped_total",
        "Kubernetes Events that were not written because too many waited.",
    )?;
    Ok(registered(registry, dropped)?)
}

/// The metrics of the controllers' work queues, under client-go's names, so that dashboards and alerts on
/// kube-controller-manager's queues work.
#[derive(Clone, Debug)]
pub struct QueueMetrics {
    depth: IntGaugeVec,
    adds: IntCounterVec,
    retries: IntCounterVec,
    waited: HistogramVec,
    worked: HistogramVec,
}

/// The metrics of one controller's work queue.
#[derive(Clone, Debug)]
pub struct Queue {
    /// Keys in the queue.
    pub depth: IntGauge,
    /// Keys that were added.
    pub adds: IntCounter,
    /// Keys that were enqueued again because a request failed.
    pub retries: IntCounter,
    /// How long keys waited.
    pub waited: Histogram,
    /// How long decisions took.
    pub worked: Histogram,
}

impl QueueMetrics {
    fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let counter =
            |name: &str, help: &str| registered(registry, IntCounterVec::new(Opts::new(name, help), &["name"])?);
        let histogram = |name: &str, help: &str| {
            // client-go's buckets: powers of ten.
            let buckets = vec![1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0];
            registered(registry, HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets), &["name"])?)
        };
        let depth = IntGaugeVec::new(Opts::new("workqueue_depth", "Keys that wait for a decision."), &["name"])?;
        Ok(Self {
            depth: registered(registry, depth)?,
            adds: counter("workqueue_adds_total", "Keys that were queued for a decision.")?,
            retries: counter("workqueue_retries_total", "Keys that are decided again because an act failed.")?,
            waited: histogram("workqueue_queue_duration_seconds", "How long keys waited for a decision.")?,
            worked: histogram("workqueue_work_duration_seconds", "How long a decision about a key took.")?,
        })
    }

    /// The metrics of this controller's work queue.
    #[must_use]
    pub fn for_controller(&self, controller: &str) -> Queue {
        let labels = &[controller];
        Queue {
            depth: self.depth.with_label_values(labels),
            adds: self.adds.with_label_values(labels),
            retries: self.retries.with_label_values(labels),
            waited: self.waited.with_label_values(labels),
            worked: self.worked.with_label_values(labels),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controller_modes_and_steps_without_runs_are_in_the_metrics() {
        let metrics = Metrics::new().unwrap();
        metrics.set_mode("pod-gc", "guard");
        metrics.authority.register_steps(["open"]);
        let page = String::from_utf8(metrics.encode().unwrap()).unwrap();
        for line in [
            r#"pod_safety_controller_mode{controller="pod-gc",mode="guard"} 1"#,
            r#"pod_safety_fence_steps_total{outcome="written",step="open"} 0"#,
        ] {
            assert!(page.contains(line), "{line} in {page}");
        }
    }
}
