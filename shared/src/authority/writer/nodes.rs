//! Records of writes to nodes: the line in the journal, and the Events that kube-controller-manager also emits.

use std::sync::Arc;

use pod_safety_leader::outcome::RequestError;

use super::super::node::{NodeChanges, NodeUpdate};
use super::super::outcome::UpdateOutcome;
use super::Authority;
use crate::events::{Event, EventType, InvolvedObject, ReportingController};
use crate::model::PodKey;
use crate::record::{Action, Record, error_chain};

/// The reporting controller and the reason of Events about nodes that are not ready, and about their pods.
const NODE_NOT_READY: (ReportingController, &str) = (ReportingController::Upstream("node-controller"), "NodeNotReady");

impl Authority {
    /// Writes one line for each decision that changed something, and one for a failure: the status of a node may be written
    /// although its taints are not.
    pub(super) fn record_node_update(
        &self,
        update: &NodeUpdate,
        outcome: &UpdateOutcome,
        done: &NodeChanges,
        controller: &'static str,
    ) {
        if done.turned_not_ready {
            let (reporter, reason) = NODE_NOT_READY;
            let message = format!("Node {} status is now: {reason}", update.node.name);
            let object = InvolvedObject::Node(update.node.clone());
            self.events.record(Event::new(reporter, object, EventType::Normal, reason, message));
        }
        if !done.is_empty() {
            self.write_record(update, Action::Marked, done.reason(), done.to_string(), controller);
        }
        if let UpdateOutcome::Error(RequestError::Failed(error)) = outcome {
            self.write_record(update, Action::Failed, error.category(), error_chain(error), controller);
        }
    }

    fn write_record(
        &self,
        update: &NodeUpdate,
        action: Action,
        reason: &'static str,
        message: String,
        controller: &'static str,
    ) {
        let at = self.env.clock.wall();
        let (node, node_uid) = (Some(Arc::clone(&update.node.name)), Some(update.node.uid.clone()));
        let (pod, budget) = (None, None);
        self.journal.write(Record { at, controller, action, pod, budget, node, node_uid, reason, message });
    }

    pub(super) fn record_pod_not_ready(&self, pod: &PodKey, not_ready: bool) {
        if !not_ready {
            return;
        }
        let (reporter, reason) = NODE_NOT_READY;
        let (object, message) = (InvolvedObject::Pod(pod.clone()), "Node is not ready".to_owned());
        self.events.record(Event::new(reporter, object, EventType::Warning, reason, message));
    }
}
