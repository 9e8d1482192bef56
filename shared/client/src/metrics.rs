//! The metrics of requests to the API server.

use std::time::Duration;

use pod_safety_proof::Resource;
use prometheus::core::Collector;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

/// Registers a metric, and returns it.
///
/// # Errors
/// It is registered already.
pub fn registered<M: Collector + Clone + 'static>(registry: &Registry, metric: M) -> Result<M, prometheus::Error> {
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

/// Requests to the API server.
#[derive(Clone, Debug)]
pub struct ClientMetrics {
    requests: IntCounterVec,
    durations: HistogramVec,
}

impl ClientMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// They are registered already.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let requests = IntCounterVec::new(
            Opts::new("pod_safety_api_requests_total", "Requests to the API server. Code 0: no answer."),
            &["verb", "resource", "code"],
        )?;
        let durations = HistogramVec::new(
            HistogramOpts::new("pod_safety_api_request_duration_seconds", "Time until the API server began to answer.")
                .buckets(vec![0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0]),
            &["verb", "resource"],
        )?;
        Ok(Self { requests: registered(registry, requests)?, durations: registered(registry, durations)? })
    }

    pub(crate) fn observe(&self, verb: &str, resource: Resource, code: u16, took: Duration) {
        self.requests.with_label_values(&[verb, resource.name(), &code.to_string()]).inc();
        self.durations.with_label_values(&[verb, resource.name()]).observe(took.as_secs_f64());
    }
}
