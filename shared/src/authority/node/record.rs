//! The write of a node as a [`StatusWrite`], and its records: the line in the journal, and the Events that
//! kube-controller-manager also emits.

use std::sync::Arc;

use futures::future::BoxFuture;
use pod_safety_leader::outcome::RequestError;

use super::super::outcome::UpdateOutcome;
use super::super::priority::{PriorityLevel, WorkerPool};
use super::super::status_write::{Records, StatusWrite, UpdateTurn, WriteTarget, Written};
use super::{NodeChanges, NodeUpdate, write};
use crate::events::{Event, EventType, InvolvedObject, ReportingController};
use crate::record::{Action, Record, error_chain};

/// The reporting controller and the reason of Events about nodes that are not ready, and about their pods.
pub(in super::super) const NODE_NOT_READY: (ReportingController, &str) =
    (ReportingController::Upstream("node-controller"), "NodeNotReady");

impl StatusWrite for NodeUpdate {
    fn target(&self) -> WriteTarget<'_> {
        WriteTarget { uid: &self.node.uid, rv: self.rv, flow: &self.node.name }
    }

    fn level(&self) -> PriorityLevel {
        PriorityLevel::Node
    }

    fn pool(&self) -> WorkerPool {
        WorkerPool::Nodes
    }

    fn write<'a>(&'a self, turn: UpdateTurn<'a, '_>) -> BoxFuture<'a, Written> {
        Box::pin(write(turn.writer, self))
    }

    fn log(&self, outcome: &UpdateOutcome, controller: &'static str) {
        let (uid, node) = (&self.node.uid, &self.node.name);
        match outcome {
            // The journal has this line already.
            UpdateOutcome::Written | UpdateOutcome::Error(RequestError::Failed(_)) => {}
            UpdateOutcome::NoEffect => {
                tracing::warn!(controller, %uid, %node, "an update of a node had no effect: the node is already as wanted, or an admission webhook or policy reverts it; trying again");
            }
            UpdateOutcome::Heard => {
                tracing::warn!(controller, %uid, %node, "the kubelet reported meanwhile, so nothing was written: this process sees stale Nodes or Leases");
            }
            _ => {
                tracing::debug!(controller, %uid, of = %node, outcome = outcome.name(), "a status was not written; deciding again");
            }
        }
    }

    /// Writes one line for each decision that changed something, and one for a failure: the status of a node may be written
    /// although its taints are not.
    fn record(&self, records: &Records<'_>, outcome: &UpdateOutcome, done: &NodeChanges, controller: &'static str) {
        if done.turned_not_ready {
            let (reporter, reason) = NODE_NOT_READY;
            let message = format!("Node {} status is now: {reason}", self.node.name);
            let object = InvolvedObject::Node(self.node.clone());
            records.events.record(Event::new(reporter, object, EventType::Normal, reason, message));
        }
        let write_record = |action, reason, message| {
            let (node, node_uid) = (Some(Arc::clone(&self.node.name)), Some(self.node.uid.clone()));
            let (pod, budget) = (None, None);
            let at = records.at;
            records.journal.write(Record { at, controller, action, pod, budget, node, node_uid, reason, message });
        };
        if !done.is_empty() {
            write_record(Action::Marked, done.reason(), done.to_string());
        }
        if let UpdateOutcome::Error(RequestError::Failed(error)) = outcome {
            write_record(Action::Failed, error.category(), error_chain(error));
        }
    }
}
