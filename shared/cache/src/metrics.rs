//! The metrics of what is watched.

use pod_safety_client::registered;
use prometheus::{Gauge, GaugeVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use crate::model::Kind;

/// The metrics of the cache.
#[derive(Clone, Debug)]
pub struct CacheMetrics {
    objects: IntGaugeVec,
    undecodable: IntGaugeVec,
    synced: IntGaugeVec,
    last_contact: GaugeVec,
    relists: IntCounterVec,
    failures: IntCounterVec,
}

impl CacheMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// A metric is already registered.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let gauge =
            |name: &str, help: &str| registered(registry, IntGaugeVec::new(Opts::new(name, help), &["resource"])?);
        let counter = |name: &str, help: &str, labels: &[&str]| {
            registered(registry, IntCounterVec::new(Opts::new(name, help), labels)?)
        };
        let last_contact = GaugeVec::new(
            Opts::new(
                "pod_safety_last_watch_timestamp_seconds",
                "When the API server last sent anything about this resource.",
            ),
            &["resource"],
        )?;
        Ok(Self {
            objects: gauge("pod_safety_cache_objects", "Objects in the cache.")?,
            undecodable: gauge(
                "pod_safety_cache_undecodable_objects",
                "Objects that could not be decoded; they are never acted on.",
            )?,
            synced: gauge("pod_safety_cache_synced", "1 once the resource was listed in full.")?,
            last_contact: registered(registry, last_contact)?,
            relists: counter(
                "pod_safety_cache_lists_total",
                "Full lists of the resource: one at start, more after lost watches.",
                &["resource"],
            )?,
            failures: counter(
                "pod_safety_cache_watch_failures_total",
                "Lists and watches that failed.",
                &["resource", "error"],
            )?,
        })
    }

    /// How many objects of a kind there are, and how many of them cannot be decoded.
    pub(crate) fn objects_of(&self, kind: Kind) -> [IntGauge; 2] {
        [&self.objects, &self.undecodable].map(|gauge| gauge.with_label_values(&[kind.resource()]))
    }

    pub(crate) fn synced(&self, kind: Kind, synced: bool) {
        self.synced.with_label_values(&[kind.resource()]).set(i64::from(synced));
    }

    /// When something was last received about a kind.
    pub(crate) fn last_contact_of(&self, kind: Kind) -> Gauge {
        self.last_contact.with_label_values(&[kind.resource()])
    }

    pub(crate) fn listed(&self, kind: Kind) {
        self.relists.with_label_values(&[kind.resource()]).inc();
    }

    /// A list or a watch failed.
    pub fn failed(&self, kind: Kind, category: &str) {
        self.failures.with_label_values(&[kind.resource(), category]).inc();
    }
}
