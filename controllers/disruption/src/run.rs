//! The wiring: which changes enqueue which keys, and the metrics.

use crate::holds::{Decision, Hold};
use pod_safety_shared::authority::{Update, UpdateOutcome};
use pod_safety_shared::cache::{Change, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::controller_loop::{Controller, Mode};
use pod_safety_shared::metrics::MetricsError;
use pod_safety_shared::model::Kind;
use prometheus::Registry;

use super::decide::REQUIRED_KINDS;
use super::metrics::DisruptionMetrics;
use super::{Config, Key, decide};

/// The disruption controller.
#[derive(Debug)]
pub struct Disruption {
    config: Config,
    metrics: DisruptionMetrics,
}

impl Disruption {
    /// Creates the controller.
    ///
    /// # Errors
    /// Two metrics of one name: a mistake in this program.
    pub fn new(config: Config, registry: &Registry) -> Result<Self, MetricsError> {
        Ok(Self { config, metrics: DisruptionMetrics::register(registry)? })
    }
}

impl Controller for Disruption {
    type Key = Key;
    type Hold = Hold;

    /// KCM's queue has this name, too.
    const NAME: &'static str = "disruption";
    const KINDS: &'static [Kind] = REQUIRED_KINDS;

    fn required_kinds(&self, key: &Key) -> &'static [Kind] {
        key.required_kinds()
    }

    /// Beside KCM's own controller there would be two writers of one status, which differ at KCM's weak spots: each
    /// would overwrite the other's.
    fn acts_in(&self, mode: Mode) -> bool {
        mode == Mode::Replace
    }

    fn keys_for(&self, change: &Change<'_>, enqueue: &mut dyn FnMut(Key)) {
        match change {
            Change::Budget { uid } => enqueue(Key::Budget((*uid).clone())),
            Change::Pod { after: Some(pod), .. } if pod.disruption_target.is_some() => {
                enqueue(Key::StalePod(pod.uid().clone()));
            }
            Change::Pod { .. }
            | Change::Node { .. }
            | Change::Heartbeat { .. }
            | Change::Fencing { .. }
            | Change::Volume { .. }
            | Change::Eviction { .. }
            | Change::Listed(_) => {}
        }
    }

    fn list_keys(&self, view: &View<'_>, enqueue: &mut dyn FnMut(Key)) {
        view.budgets().for_each(|budget| enqueue(Key::Budget(budget.key.uid.clone())));
        view.disruption_targets().for_each(|pod| enqueue(Key::StalePod(pod.uid().clone())));
    }

    fn decide(&self, key: &Key, view: &View<'_>, now: Mono) -> Decision {
        decide(key, view, now, &self.config)
    }

    fn update_completed(&self, update: &Update, outcome: &UpdateOutcome, _at: Mono) {
        self.metrics.record_update(update, outcome);
    }
}
