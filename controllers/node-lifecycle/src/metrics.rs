//! KCM's metrics under KCM's names, and the delay until lost nodes are found.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pod_safety_shared::authority::{Effect, NodeUpdate, UpdateOutcome};
use pod_safety_shared::cache::{View, ZoneCount};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::metrics::{MetricsError, registered};
use pod_safety_shared::model::{NOT_READY_TAINT, Node, UNREACHABLE_TAINT, Uid};
use prometheus::{GaugeVec, Histogram, HistogramOpts, IntCounterVec, Opts, Registry};

/// A kubelet may change the zone of its own Node again and again. With more zones than this, zones without nodes are
/// dropped: an empty zone has no information, and each has four series.
const MAX_ZONES: usize = 256;

/// The metrics of lost nodes, in addition to those of the queue and of the reasons of holds.
#[derive(Debug)]
pub(super) struct NodeLifecycleMetrics {
    health: GaugeVec,
    size: GaugeVec,
    unhealthy: GaugeVec,
    evictions: IntCounterVec,
    durations: Histogram,
    lag: Histogram,
    /// Zones with series: a zone without nodes is shown as empty, as KCM does.
    zones: Mutex<BTreeSet<Arc<str>>>,
    /// The last update requested for each node, until its outcome: decisions do not depend on it.
    pending: Mutex<BTreeMap<Uid, PendingUpdate>>,
}

#[derive(Debug)]
struct PendingUpdate {
    requested_at: Mono,
    /// When the node should have been found lost, if this update finds it lost.
    due: Option<Mono>,
    /// The zone in which it is tainted `NoExecute`, if it is.
    tainted_zone: Option<Arc<str>>,
}

impl NodeLifecycleMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, MetricsError> {
        let gauge = |name: &str, help: &str| registered(registry, GaugeVec::new(Opts::new(name, help), &["zone"])?);
        let histogram = |name: &str, help: &str, buckets: Vec<f64>| {
            registered(registry, Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets))?)
        };
        let evictions = IntCounterVec::new(
            Opts::new("node_collector_evictions_total", "Nodes that were tainted NoExecute because they were lost."),
            &["zone"],
        )?;
        Ok(Self {
            health: gauge("node_collector_zone_health", "Percentage of nodes of a zone that are Ready.")?,
            size: gauge("node_collector_zone_size", "Nodes of a zone.")?,
            unhealthy: gauge("node_collector_unhealthy_nodes_in_zone", "Nodes of a zone that are not Ready.")?,
            evictions: registered(registry, evictions)?,
            // KCM's buckets: a millisecond, multiplied by four seven times.
            durations: histogram(
                "node_collector_update_node_health_duration_seconds",
                "Time from the decision about a node until its conditions, taints and labels were written.",
                prometheus::exponential_buckets(0.001, 4.0, 8)?,
            )?,
            lag: histogram(
                "pod_safety_node_detection_lag_seconds",
                "Time from the end of an unreachable node's grace period until its conditions were written as Unknown.",
                vec![0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0],
            )?,
            zones: Mutex::default(),
            pending: Mutex::default(),
        })
    }

    /// Refreshes the series of every zone, and of former zones as empty.
    pub(super) fn refresh_zones(&self, view: &View<'_>) {
        let zones: BTreeMap<_, _> = view.zones().collect();
        let recorded = self.zones.lock().clone();
        recorded.iter().filter(|zone| !zones.contains_key(*zone)).for_each(|zone| {
            self.set_zone(zone, ZoneCount::default());
        });
        zones.iter().for_each(|(zone, count)| self.set_zone(zone, *count));
        self.remove_empty_zones(view);
    }

    fn remove_empty_zones(&self, view: &View<'_>) {
        let mut shown = self.zones.lock();
        if shown.len() <= MAX_ZONES {
            return;
        }
        shown.retain(|zone| {
            let has_nodes = view.zone(zone).counted() > 0;
            if !has_nodes {
                let labels = &[&**zone];
                for gauge in [&self.health, &self.size, &self.unhealthy] {
                    let _never_shown = gauge.remove_label_values(labels);
                }
                let _never_shown = self.evictions.remove_label_values(labels);
            }
            has_nodes
        });
    }

    #[expect(clippy::cast_precision_loss, reason = "gauges are floats, and zones are small")]
    fn set_zone(&self, zone: &Arc<str>, count: ZoneCount) {
        let (ready, all) = (count.ready as f64, count.counted() as f64);
        let health = if count.counted() == 0 { 100.0 } else { 100.0 * ready / all };
        let labels = &[&**zone];
        self.health.with_label_values(labels).set(health);
        self.size.with_label_values(labels).set(all);
        self.unhealthy.with_label_values(labels).set(count.not_ready as f64);
        if self.zones.lock().insert(Arc::clone(zone)) {
            self.evictions.with_label_values(labels).inc_by(0);
        }
    }

    /// A decision about a node was made.
    pub(super) fn record_decision(
        &self,
        node: &Node,
        update: Option<&NodeUpdate>,
        view: &View<'_>,
        grace: Duration,
        now: Mono,
    ) {
        self.set_zone(&node.zone, view.zone(&node.zone));
        self.remove_empty_zones(view);
        let Some(update) = update else { return };
        let silence = update.not_reporting.as_ref().filter(|silence| !silence.never_posted);
        let pending = PendingUpdate {
            requested_at: now,
            due: silence.map(|silence| silence.last_report + grace),
            tainted_zone: taints_no_execute(update).then(|| Arc::clone(&node.zone)),
        };
        self.pending.lock().insert(node.uid.clone(), pending);
    }

    /// The update completed, or failed.
    pub(super) fn record_update(&self, update: &NodeUpdate, outcome: &UpdateOutcome, at: Mono) {
        let Some(pending) = self.pending.lock().remove(&update.node.uid) else { return };
        if !matches!(outcome, UpdateOutcome::Written) {
            return;
        }
        self.durations.observe(at.since(pending.requested_at).as_secs_f64());
        if let Some(due) = pending.due.filter(|_| update.not_reporting.is_some()) {
            self.lag.observe(at.since(due).as_secs_f64());
        }
        if let Some(zone) = pending.tainted_zone.filter(|_| taints_no_execute(update)) {
            self.evictions.with_label_values(&[&*zone]).inc();
        }
    }
}

/// Whether it takes a turn of its zone: a node that has one of the two taints already takes none.
fn taints_no_execute(update: &NodeUpdate) -> bool {
    let has_no_execute = |taints: &[(&'static str, Effect)]| {
        let of_loss = |key: &str| matches!(key, NOT_READY_TAINT | UNREACHABLE_TAINT);
        taints.iter().any(|(key, effect)| *effect == Effect::NoExecute && of_loss(key))
    };
    has_no_execute(&update.add) && !has_no_execute(&update.remove)
}
