//! The wiring: which changes enqueue which keys, and the metrics.

use std::sync::Arc;

use pod_safety_shared::authority::{Update, UpdateOutcome};
use pod_safety_shared::cache::{Change, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::controller_loop::Controller;
use pod_safety_shared::metrics::MetricsError;
use pod_safety_shared::model::Kind;
use prometheus::Registry;

use super::decide::{REQUIRED_KINDS, WATCHED_KINDS};
use super::holds::{Decision, Hold};
use super::metrics::EvictionMetrics;
use super::{Key, decide};

/// The controller.
#[derive(Debug)]
pub struct EvictionController {
    metrics: EvictionMetrics,
}

impl EvictionController {
    /// Creates the controller.
    ///
    /// # Errors
    /// Two metrics of one name: a mistake in this program.
    pub fn new(registry: &Registry) -> Result<Self, MetricsError> {
        Ok(Self { metrics: EvictionMetrics::register(registry)? })
    }
}

impl Controller for EvictionController {
    type Key = Key;
    type Hold = Hold;

    const NAME: &'static str = "eviction";
    const KINDS: &'static [Kind] = WATCHED_KINDS;

    fn required_kinds(&self, _key: &Key) -> &'static [Kind] {
        REQUIRED_KINDS
    }

    fn keys_for(&self, change: &Change<'_>, enqueue: &mut dyn FnMut(Key)) {
        match change {
            Change::Eviction { target } => enqueue(Key::Target((*target).clone())),
            Change::Node { name, readiness: true, .. } | Change::Fencing { node: Some(name) } => {
                enqueue(Key::Node(Arc::clone(name)));
            }
            Change::Pod { .. }
            | Change::Node { .. }
            | Change::Heartbeat { .. }
            | Change::Budget { .. }
            | Change::Fencing { node: None }
            | Change::Volume { .. }
            | Change::Listed(_) => {}
        }
    }

    fn list_keys(&self, view: &View<'_>, enqueue: &mut dyn FnMut(Key)) {
        view.eviction_targets().for_each(|target| enqueue(Key::Target(target.clone())));
    }

    fn decide(&self, key: &Key, view: &View<'_>, now: Mono) -> Decision {
        decide(key, view, now)
    }

    fn update_completed(&self, update: &Update, outcome: &UpdateOutcome, _at: Mono) {
        self.metrics.record_update(update, outcome);
    }
}
