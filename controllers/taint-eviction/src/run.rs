//! The wiring: which changes enqueue which keys, and the metrics.

use std::sync::Arc;

use crate::holds::{Decision, Hold};
use pod_safety_shared::authority::{DeleteOutcome, GracefulDeleteRequest};
use pod_safety_shared::cache::{Change, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::controller_loop::{Controller, Mode};
use pod_safety_shared::metrics::MetricsError;
use pod_safety_shared::model::{Kind, Pod};
use prometheus::Registry;

use super::decide::REQUIRED_KINDS;
use super::metrics::TaintEvictionMetrics;
use super::{Key, decide};

/// The taint-eviction controller.
#[derive(Debug)]
pub struct TaintEviction {
    metrics: TaintEvictionMetrics,
}

impl TaintEviction {
    /// Creates the controller. It has no settings, as in KCM.
    ///
    /// # Errors
    /// Two metrics of one name: a mistake in this program.
    pub fn new(registry: &Registry) -> Result<Self, MetricsError> {
        Ok(Self { metrics: TaintEvictionMetrics::register(registry)? })
    }
}

/// Whether a change of a pod can change its eviction. Other status updates must not cost a decision each.
fn is_relevant(before: Option<&Pod>, after: Option<&Pod>) -> bool {
    match (before, after) {
        (Some(before), Some(after)) => {
            before.node != after.node
                || before.bound_at != after.bound_at
                || before.tolerations != after.tolerations
                || before.deletion.is_some() != after.deletion.is_some()
                || before.phase.is_terminal() != after.phase.is_terminal()
        }
        (None, Some(_)) | (Some(_), None) => true,
        (None, None) => false,
    }
}

impl Controller for TaintEviction {
    type Key = Key;
    type Hold = Hold;

    const NAME: &'static str = "taint-eviction";
    const KINDS: &'static [Kind] = REQUIRED_KINDS;

    /// Beside KCM's own controller it would report every deletion twice, and be the only one to delete at KCM's weak
    /// spots.
    fn acts_in(&self, mode: Mode) -> bool {
        mode == Mode::Replace
    }

    fn keys_for(&self, change: &Change<'_>, enqueue: &mut dyn FnMut(Key)) {
        match change {
            Change::Pod { before, after } if is_relevant(*before, *after) => {
                for node in [before, after].into_iter().flatten().filter_map(|pod| pod.node.as_ref()) {
                    enqueue(Key(Arc::clone(node)));
                }
            }
            Change::Node { name, taints: true, readiness: _ } => enqueue(Key(Arc::clone(name))),
            Change::Pod { .. }
            | Change::Node { .. }
            | Change::Heartbeat { .. }
            | Change::Budget { .. }
            | Change::Fencing { .. }
            | Change::Volume { .. }
            | Change::Eviction { .. }
            | Change::Listed(_) => {}
        }
    }

    fn list_keys(&self, view: &View<'_>, enqueue: &mut dyn FnMut(Key)) {
        view.nodes_named_by_pods().for_each(|node| enqueue(Key(Arc::clone(node))));
    }

    fn decide(&self, key: &Key, view: &View<'_>, now: Mono) -> Decision {
        decide(key, view, now)
    }

    fn delete_completed(&self, delete: &GracefulDeleteRequest, outcome: &DeleteOutcome, at: Mono) {
        self.metrics.record_deletion(delete, outcome, at);
    }
}
