//! The wiring: which changes enqueue which keys, and the metrics.

use std::sync::Arc;

use crate::holds::{Decision, Hold};
use pod_safety_shared::authority::{Intent, Update, UpdateOutcome};
use pod_safety_shared::cache::{Change, Lookup, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::controller_loop::Controller;
use pod_safety_shared::lease::Leadership;
use pod_safety_shared::metrics::MetricsError;
use pod_safety_shared::model::{Kind, Pod};
use prometheus::Registry;

use super::metrics::NodeLifecycleMetrics;
use super::{Config, Key, decide};

/// The node-lifecycle controller.
#[derive(Debug)]
pub struct NodeLifecycle {
    config: Config,
    leadership: Arc<Leadership>,
    metrics: NodeLifecycleMetrics,
}

impl NodeLifecycle {
    /// Creates the controller.
    ///
    /// # Errors
    /// Two metrics of one name: a mistake in this program.
    pub fn new(config: Config, leadership: Arc<Leadership>, registry: &Registry) -> Result<Self, MetricsError> {
        Ok(Self { config, leadership, metrics: NodeLifecycleMetrics::register(registry)? })
    }

    /// Records the metrics of a decision about a node.
    fn record_decision(&self, name: &str, decision: &Decision, view: &View<'_>, now: Mono) {
        let Lookup::Known(node) = view.node(name) else { return };
        let update = decision.intents.iter().find_map(|intent| match intent {
            Intent::Update(Update::Node(update)) => Some(&**update),
            _ => None,
        });
        self.metrics.record_decision(node, update, view, self.config.monitor_grace, now);
    }
}

/// Whether a change of a pod can change its conditions that depend on its node. Other status updates must not cost a
/// decision each.
fn is_relevant(before: Option<&Pod>, after: Option<&Pod>) -> bool {
    match (before, after) {
        (Some(before), Some(after)) => {
            before.node != after.node
                || before.ready != after.ready
                || before.deletion.is_some() != after.deletion.is_some()
                || before.unreachable != after.unreachable
        }
        (None, Some(_)) => true,
        (_, None) => false,
    }
}

impl Controller for NodeLifecycle {
    type Key = Key;
    type Hold = Hold;

    const NAME: &'static str = "node-lifecycle";
    const KINDS: &'static [Kind] = &[Kind::Pods, Kind::Nodes, Kind::NodeLeases];

    fn required_kinds(&self, key: &Key) -> &'static [Kind] {
        key.required_kinds()
    }

    fn keys_for(&self, change: &Change<'_>, enqueue: &mut dyn FnMut(Key)) {
        match change {
            Change::Pod { before, after } if is_relevant(*before, *after) => {
                if let Some(node) = after.and_then(|pod| pod.node.as_ref()) {
                    enqueue(Key::Pods(Arc::clone(node)));
                }
            }
            Change::Node { name, readiness, taints: _ } => {
                enqueue(Key::Node(Arc::clone(name)));
                if *readiness {
                    enqueue(Key::Pods(Arc::clone(name)));
                }
            }
            // There are five hundred a second with five thousand nodes: each node has its timer instead.
            Change::Heartbeat { relevant: false, .. } => {}
            Change::Heartbeat { name, relevant: true } => enqueue(Key::Node(Arc::clone(name))),
            Change::Pod { .. }
            | Change::Budget { .. }
            | Change::Fencing { .. }
            | Change::Volume { .. }
            | Change::Eviction { .. }
            | Change::Listed(_) => {}
        }
    }

    fn list_keys(&self, view: &View<'_>, enqueue: &mut dyn FnMut(Key)) {
        self.metrics.refresh_zones(view);
        view.nodes().for_each(|node| enqueue(Key::Node(Arc::clone(&node.name))));
        view.nodes_named_by_pods().for_each(|node| enqueue(Key::Pods(Arc::clone(node))));
    }

    fn decide(&self, key: &Key, view: &View<'_>, now: Mono) -> Decision {
        let config = Config { led_since: self.leadership.leading_since(now), ..self.config.clone() };
        let decision = decide(key, view, now, &config);
        match key {
            Key::Node(name) => self.record_decision(name, &decision, view, now),
            Key::Pods(_) => {}
        }
        decision
    }

    fn update_completed(&self, update: &Update, outcome: &UpdateOutcome, at: Mono) {
        if let Update::Node(update) = update {
            self.metrics.record_update(update, outcome, at);
        }
    }
}
