//! The wiring: which changes enqueue which keys, and the metrics.

use std::sync::Arc;

use crate::holds::{Decision, Hold};
use pod_safety_shared::cache::{Change, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::controller_loop::Controller;
use pod_safety_shared::metrics::MetricsError;
use pod_safety_shared::model::{Kind, Pod};
use prometheus::Registry;

use super::decide::WATCHED_KINDS;
use super::metrics::FencingMetrics;
use super::{Config, Key, decide};

/// The fencing controller.
#[derive(Debug)]
pub struct Fencing {
    config: Config,
    metrics: FencingMetrics,
}

impl Fencing {
    /// Creates the controller.
    ///
    /// # Errors
    /// Two metrics of one name: a mistake in this program.
    pub fn new(config: Config, registry: &Registry) -> Result<Self, MetricsError> {
        Ok(Self { config, metrics: FencingMetrics::register(registry)? })
    }
}

/// Whether a change of a pod can change the decision about its node: it begins or ceases to wait for the node.
fn is_relevant(before: Option<&Pod>, after: Option<&Pod>) -> bool {
    let blocks_node = |pod: Option<&Pod>| pod.is_some_and(|pod| pod.deletion.is_some() && !pod.waits_for_finalizers());
    blocks_node(before) != blocks_node(after)
}

impl Controller for Fencing {
    type Key = Key;
    type Hold = Hold;

    const NAME: &'static str = "fencing";
    const KINDS: &'static [Kind] = WATCHED_KINDS;

    fn required_kinds(&self, key: &Key) -> &'static [Kind] {
        key.required_kinds()
    }

    fn keys_for(&self, change: &Change<'_>, enqueue: &mut dyn FnMut(Key)) {
        match change {
            Change::Pod { before, after } if is_relevant(*before, *after) => {
                if let Some(node) = after.or(*before).and_then(|pod| pod.node.as_ref()) {
                    enqueue(Key::Node(Arc::clone(node)));
                }
            }
            Change::Node { name, .. }
            | Change::Heartbeat { name, relevant: true }
            | Change::Fencing { node: Some(name) } => enqueue(Key::Node(Arc::clone(name))),
            // A heartbeat of a healthy node changes nothing.
            Change::Heartbeat { relevant: false, .. }
            | Change::Pod { .. }
            | Change::Budget { .. }
            | Change::Fencing { node: None }
            | Change::Volume { .. }
            | Change::Eviction { .. }
            | Change::Listed(_) => {}
        }
    }

    /// A policy or a device is about many nodes, and changes seldom.
    fn affects_all(&self, change: &Change<'_>) -> bool {
        matches!(change, Change::Fencing { node: None })
    }

    fn list_keys(&self, view: &View<'_>, enqueue: &mut dyn FnMut(Key)) {
        self.metrics.refresh(view);
        view.nodes().for_each(|node| enqueue(Key::Node(Arc::clone(&node.name))));
        view.node_fences().for_each(|fence| enqueue(Key::Node(fence.spec.node.name.as_str().into())));
        view.fence_evidence().for_each(|proof| enqueue(Key::Node(proof.spec.node.name.as_str().into())));
        view.remediations()
            .filter_map(|remediation| remediation.node())
            .for_each(|node| enqueue(Key::Node(node.into())));
        view.devices().for_each(|device| enqueue(Key::Device(device.uid.clone())));
        view.policies().for_each(|policy| enqueue(Key::Policy(policy.uid.clone())));
    }

    fn decide(&self, key: &Key, view: &View<'_>, now: Mono) -> Decision {
        let decision = decide(key, view, now, &self.config);
        match key {
            Key::Node(name) => self.metrics.record_progress(name, view, now),
            // A change of a device affects all keys, and `list_keys` lists these.
            Key::Device(_) | Key::Policy(_) => {}
        }
        decision
    }
}
