//! The wiring: what wakes the decisions, and who counts their outcomes.

use std::sync::Arc;

use crate::holds::{Decision, Hold};
use pod_safety_shared::authority::{Intent, Outcome, Update};
use pod_safety_shared::cache::{Change, Lookup, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::drive::Controller;
use pod_safety_shared::lease::Leadership;
use pod_safety_shared::metrics::MetricsError;
use pod_safety_shared::model::{Kind, Pod};
use prometheus::Registry;

use super::metrics::NodeLifecycleMetrics;
use super::{Config, Key, decide};

/// The controller.
#[derive(Debug)]
pub struct NodeLifecycle {
    config: Config,
    leadership: Arc<Leadership>,
    metrics: NodeLifecycleMetrics,
}

impl NodeLifecycle {
    /// A controller by `config`.
    ///
    /// # Errors
    /// Two metrics of one name: a mistake in this program.
    pub fn new(
        config: Config,
        leadership: Arc<Leadership>,
        registry: &Registry,
    ) -> Result<Self, MetricsError> {
        Ok(Self { config, leadership, metrics: NodeLifecycleMetrics::register(registry)? })
    }

    /// What people learn of a decision about a node.
    fn decided(&self, name: &str, decision: &Decision, view: &View<'_>, now: Mono) {
        let Lookup::Known(node) = view.node(name) else { return };
        let update = decision.intents.iter().find_map(|intent| match intent {
            Intent::Update(Update::Node(update)) => Some(&**update),
            Intent::Update(
                Update::Budget { .. }
                | Update::PodOfLostNode { .. }
                | Update::NotDisrupted { .. }
                | Update::Volume(_)
                | Update::Eviction(_)
                | Update::Forget(_)
                | Update::Ungate { .. },
            )
            | Intent::Witness { .. }
            | Intent::Force(_)
            | Intent::Delete(_)
            | Intent::Scale { .. }
            | Intent::Fence(_)
            | Intent::Monitor(_)
            | Intent::Remediate(_)
            | Intent::Review(_) => None,
        });
        self.metrics.decided(node, update, view, self.config.monitor_grace, now);
    }
}

/// Whether a change of a pod can change what it should say of its node. Other status noise must not
/// cost a decision each.
fn matters(before: Option<&Pod>, after: Option<&Pod>) -> bool {
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

    fn needs(&self, key: &Key) -> &'static [Kind] {
        key.needs()
    }

    fn touched(&self, change: &Change<'_>, mark: &mut dyn FnMut(Key)) {
        match change {
            Change::Pod { before, after } if matters(*before, *after) => {
                if let Some(node) = after.and_then(|pod| pod.node.as_ref()) {
                    mark(Key::Pods(Arc::clone(node)));
                }
            }
            Change::Node { name, readiness, taints: _ } => {
                mark(Key::Node(Arc::clone(name)));
                if *readiness {
                    mark(Key::Pods(Arc::clone(name)));
                }
            }
            // Five hundred in a second on five thousand nodes: each has its timer instead.
            Change::Heartbeat { awaited: false, .. } => {}
            Change::Heartbeat { name, awaited: true } => mark(Key::Node(Arc::clone(name))),
            Change::Pod { .. }
            | Change::Budget { .. }
            | Change::Fencing { .. }
            | Change::Volume { .. }
            | Change::Eviction { .. }
            | Change::Listed(_) => {}
        }
    }

    fn all(&self, view: &View<'_>, mark: &mut dyn FnMut(Key)) {
        self.metrics.show_zones(view);
        view.nodes().for_each(|node| mark(Key::Node(Arc::clone(&node.name))));
        view.nodes_named_by_pods().for_each(|node| mark(Key::Pods(Arc::clone(node))));
    }

    fn decide(&self, key: &Key, view: &View<'_>, now: Mono) -> Decision {
        let config = Config { led_since: self.leadership.since(now), ..self.config.clone() };
        let decision = decide(key, view, now, &config);
        match key {
            Key::Node(name) => self.decided(name, &decision, view, now),
            Key::Pods(_) => {}
        }
        decision
    }

    fn updated(&self, update: &Update, outcome: &Outcome, at: Mono) {
        match update {
            Update::Node(update) => self.metrics.updated(update, outcome, at),
            Update::Budget { .. }
            | Update::Forget(_)
            | Update::PodOfLostNode { .. }
            | Update::NotDisrupted { .. }
            | Update::Volume(_)
            | Update::Eviction(_)
            | Update::Ungate { .. } => {}
        }
    }
}
