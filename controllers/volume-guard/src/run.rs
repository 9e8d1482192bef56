//! The wiring: which changes enqueue which keys, and the metrics.

use std::sync::Arc;

use crate::holds::{Decision, Hold};
use pod_safety_shared::authority::{Update, UpdateOutcome};
use pod_safety_shared::cache::{Change, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::controller_loop::Controller;
use pod_safety_shared::metrics::MetricsError;
use pod_safety_shared::model::Kind;
use prometheus::Registry;

use super::decide::REQUIRED_KINDS;
use super::metrics::VolumeGuardMetrics;
use super::{Config, Key, decide};

/// The volume guard.
#[derive(Debug)]
pub struct VolumeGuard {
    config: Config,
    metrics: VolumeGuardMetrics,
}

impl VolumeGuard {
    /// Creates the controller.
    ///
    /// # Errors
    /// Two metrics of one name: a mistake in this program.
    pub fn new(config: Config, registry: &Registry) -> Result<Self, MetricsError> {
        Ok(Self { config, metrics: VolumeGuardMetrics::register(registry)? })
    }
}

impl Controller for VolumeGuard {
    type Key = Key;
    type Hold = Hold;

    const NAME: &'static str = "volume-guard";
    const KINDS: &'static [Kind] = REQUIRED_KINDS;

    /// A policy may concern every node; policies are few, and change rarely. Evidence about a node arrives as a
    /// change of each volume that it holds.
    fn affects_all(&self, change: &Change<'_>) -> bool {
        matches!(change, Change::Fencing { node: None })
    }

    fn keys_for(&self, change: &Change<'_>, enqueue: &mut dyn FnMut(Key)) {
        match change {
            Change::Volume { name, gated } => {
                enqueue(Key::Volume(Arc::clone(name)));
                gated.iter().for_each(|uid| enqueue(Key::Gate(uid.clone())));
            }
            Change::Pod { after: Some(pod), .. } if pod.gated => enqueue(Key::Gate(pod.uid().clone())),
            Change::Pod { .. }
            | Change::Node { .. }
            | Change::Heartbeat { .. }
            | Change::Budget { .. }
            | Change::Fencing { .. }
            | Change::Eviction { .. }
            | Change::Listed(_) => {}
        }
    }

    fn list_keys(&self, view: &View<'_>, enqueue: &mut dyn FnMut(Key)) {
        view.volume_names().for_each(|name| enqueue(Key::Volume(Arc::clone(name))));
        view.gated().for_each(|pod| enqueue(Key::Gate(pod.uid().clone())));
    }

    fn decide(&self, key: &Key, view: &View<'_>, now: Mono) -> Decision {
        decide(key, view, now, &self.config)
    }

    fn update_completed(&self, update: &Update, outcome: &UpdateOutcome, _at: Mono) {
        self.metrics.record_update(update, outcome);
    }
}
