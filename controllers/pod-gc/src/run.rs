//! The wiring: which changes enqueue which keys, and the metrics.

use std::sync::Arc;

use crate::holds::{Decision, Hold};
use pod_safety_shared::authority::{ForceDeleteRequest, ForceOutcome};
use pod_safety_shared::cache::{Change, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::controller_loop::Controller;
use pod_safety_shared::metrics::MetricsError;
use pod_safety_shared::model::{Kind, Pod};
use prometheus::Registry;

use super::metrics::PodGcMetrics;
use super::{Config, Key, decide};

/// The pod garbage collector.
#[derive(Debug)]
pub struct PodGc {
    config: Config,
    metrics: PodGcMetrics,
}

impl PodGc {
    /// Creates the controller.
    ///
    /// # Errors
    /// Two metrics of one name: a mistake in this program.
    pub fn new(config: Config, registry: &Registry) -> Result<Self, MetricsError> {
        Ok(Self { config, metrics: PodGcMetrics::register(registry)? })
    }
}

/// Whether a change of a pod can change a decision about its node. Status updates of healthy pods on healthy nodes
/// must not cost a decision each.
fn is_relevant_to_node(before: Option<&Pod>, after: Option<&Pod>) -> bool {
    match (before, after) {
        (Some(before), Some(after)) => {
            before.node != after.node
                || after.deletion.is_some()
                || before.deletion != after.deletion
                || before.phase != after.phase
        }
        (None, Some(_)) | (Some(_), None) => true,
        (None, None) => false,
    }
}

impl Controller for PodGc {
    type Key = Key;
    type Hold = Hold;

    const NAME: &'static str = "pod-gc";
    const KINDS: &'static [Kind] = &[Kind::Pods, Kind::Nodes, Kind::NodeLeases];

    fn required_kinds(&self, key: &Key) -> &'static [Kind] {
        key.required_kinds()
    }

    fn keys_for(&self, change: &Change<'_>, enqueue: &mut dyn FnMut(Key)) {
        match change {
            Change::Pod { before, after } => {
                if is_relevant_to_node(*before, *after) {
                    for node in [before, after].into_iter().flatten().filter_map(|pod| pod.node.as_ref()) {
                        enqueue(Key::Node(Arc::clone(node)));
                    }
                }
                for pod in [before, after].into_iter().flatten() {
                    if pod.node.is_none() && pod.deletion.is_some() {
                        enqueue(Key::Unscheduled(pod.key.uid.clone()));
                    }
                    if pod.phase.counts_as_terminated() {
                        enqueue(Key::Terminated);
                    }
                }
            }
            Change::Node { name, taints: false, .. } => enqueue(Key::Node(Arc::clone(name))),
            // Terminated pods of a node that is missing, out of service or fenced are left to the rules about nodes.
            // When the node appears, or loses that taint or evidence, they count again.
            Change::Node { name, taints: true, .. } | Change::Fencing { node: Some(name) } => {
                enqueue(Key::Node(Arc::clone(name)));
                enqueue(Key::Terminated);
            }
            // A heartbeat matters for missing nodes only; those are checked by timer, and the verifier reads once
            // more before it acts.
            Change::Heartbeat { .. }
            | Change::Budget { .. }
            | Change::Fencing { node: None }
            | Change::Volume { .. }
            | Change::Eviction { .. }
            | Change::Listed(_) => {}
        }
    }

    /// A policy may require less than before: held pods are decided again.
    fn affects_all(&self, change: &Change<'_>) -> bool {
        matches!(change, Change::Fencing { node: None })
    }

    fn list_keys(&self, view: &View<'_>, enqueue: &mut dyn FnMut(Key)) {
        view.nodes_named_by_pods().for_each(|node| enqueue(Key::Node(Arc::clone(node))));
        view.terminating_unscheduled().for_each(|pod| enqueue(Key::Unscheduled(pod.key.uid.clone())));
        enqueue(Key::Terminated);
    }

    fn decide(&self, key: &Key, view: &View<'_>, now: Mono) -> Decision {
        decide(key, view, now, &self.config)
    }

    fn completed(&self, force: &ForceDeleteRequest, outcome: &ForceOutcome) {
        self.metrics.record_force_delete(force, outcome);
    }
}
