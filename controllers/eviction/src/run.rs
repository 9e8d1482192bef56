//! The wiring: what wakes the decisions, and who counts their outcomes.

use std::sync::Arc;

use pod_safety_shared::authority::{Outcome, Update};
use pod_safety_shared::cache::{Change, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::drive::Controller;
use pod_safety_shared::metrics::MetricsError;
use pod_safety_shared::model::Kind;
use prometheus::Registry;

use super::decide::{FOLLOWED, NEEDS};
use super::holds::{Decision, Hold};
use super::metrics::EvictionMetrics;
use super::{Key, decide};

/// The controller.
#[derive(Debug)]
pub struct EvictionController {
    metrics: EvictionMetrics,
}

impl EvictionController {
    /// A controller.
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
    const KINDS: &'static [Kind] = FOLLOWED;

    fn needs(&self, _key: &Key) -> &'static [Kind] {
        NEEDS
    }

    fn touched(&self, change: &Change<'_>, mark: &mut dyn FnMut(Key)) {
        match change {
            Change::Eviction { target } => mark(Key::Target((*target).clone())),
            Change::Node { name, readiness: true, .. } | Change::Fencing { node: Some(name) } => {
                mark(Key::Node(Arc::clone(name)));
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

    fn all(&self, view: &View<'_>, mark: &mut dyn FnMut(Key)) {
        view.eviction_targets().for_each(|target| mark(Key::Target(target.clone())));
    }

    fn decide(&self, key: &Key, view: &View<'_>, now: Mono) -> Decision {
        decide(key, view, now)
    }

    fn updated(&self, update: &Update, outcome: &Outcome, _at: Mono) {
        self.metrics.updated(update, outcome);
    }
}
