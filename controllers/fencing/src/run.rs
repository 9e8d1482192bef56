//! The wiring: what wakes the decisions, and who counts their outcomes.

use std::sync::Arc;

use crate::holds::{Decision, Hold};
use pod_safety_shared::cache::{Change, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::drive::Controller;
use pod_safety_shared::metrics::MetricsError;
use pod_safety_shared::model::{Kind, Pod};
use prometheus::Registry;

use super::decide::FOLLOWED;
use super::metrics::FencingMetrics;
use super::{Config, Key, decide};

/// The controller.
#[derive(Debug)]
pub struct Fencing {
    config: Config,
    metrics: FencingMetrics,
}

impl Fencing {
    /// A controller by `config`.
    ///
    /// # Errors
    /// Two metrics of one name: a mistake in this program.
    pub fn new(config: Config, registry: &Registry) -> Result<Self, MetricsError> {
        Ok(Self { config, metrics: FencingMetrics::register(registry)? })
    }
}

/// Whether a change of a pod can change what is thought of its node: that somebody waits for it, or no longer.
fn matters(before: Option<&Pod>, after: Option<&Pod>) -> bool {
    let waits =
        |pod: Option<&Pod>| pod.is_some_and(|pod| pod.deletion.is_some() && !pod.waits_for_finalizers());
    waits(before) != waits(after)
}

impl Controller for Fencing {
    type Key = Key;
    type Hold = Hold;

    const NAME: &'static str = "fencing";
    const KINDS: &'static [Kind] = FOLLOWED;

    fn needs(&self, key: &Key) -> &'static [Kind] {
        key.needs()
    }

    fn touched(&self, change: &Change<'_>, mark: &mut dyn FnMut(Key)) {
        match change {
            Change::Pod { before, after } if matters(*before, *after) => {
                if let Some(node) = after.or(*before).and_then(|pod| pod.node.as_ref()) {
                    mark(Key::Node(Arc::clone(node)));
                }
            }
            Change::Node { name, .. }
            | Change::Heartbeat { name, awaited: true }
            | Change::Fencing { node: Some(name) } => mark(Key::Node(Arc::clone(name))),
            // Of a node that is well a heartbeat is no news.
            Change::Heartbeat { awaited: false, .. }
            | Change::Pod { .. }
            | Change::Budget { .. }
            | Change::Fencing { node: None }
            | Change::Volume { .. }
            | Change::Eviction { .. }
            | Change::Listed(_) => {}
        }
    }

    /// A policy or a device is about many nodes, and changes seldom.
    fn touches_all(&self, change: &Change<'_>) -> bool {
        matches!(change, Change::Fencing { node: None })
    }

    fn all(&self, view: &View<'_>, mark: &mut dyn FnMut(Key)) {
        self.metrics.show(view);
        view.nodes().for_each(|node| mark(Key::Node(Arc::clone(&node.name))));
        view.fences().for_each(|fence| mark(Key::Node(fence.spec.node.name.as_str().into())));
        view.proofs().for_each(|proof| mark(Key::Node(proof.spec.node.name.as_str().into())));
        view.remediations().filter_map(|one| one.node()).for_each(|node| mark(Key::Node(node.into())));
        view.devices().for_each(|device| mark(Key::Device(device.uid.clone())));
        view.policies().for_each(|policy| mark(Key::Policy(policy.uid.clone())));
    }

    fn decide(&self, key: &Key, view: &View<'_>, now: Mono) -> Decision {
        let decision = decide(key, view, now, &self.config);
        match key {
            Key::Node(name) => self.metrics.progressed(name, view, now),
            // A change of a device is followed by `all`, which shows them.
            Key::Device(_) | Key::Policy(_) => {}
        }
        decision
    }
}
