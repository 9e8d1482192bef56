//! A write about an eviction as a [`StatusWrite`], and its records: the line in the journal, and an Event on the pod.

use futures::future::BoxFuture;
use pod_safety_leader::outcome::RequestError;

use super::super::node::NodeChanges;
use super::super::outcome::UpdateOutcome;
use super::super::priority::{PriorityLevel, WorkerPool};
use super::super::status_write::{Records, StatusWrite, UpdateTurn, WriteTarget, Written};
use super::{ConditionChanges, EvictionChange, EvictionUpdate, write};
use crate::events::{Event, EventType, InvolvedObject, ReportingController};
use crate::record::{Action, LogEvent, Record, error_chain};

/// The Event of a change. Changes of labels have none.
fn event_for(change: &EvictionChange, answer: Option<&String>) -> Option<(EventType, &'static str, String)> {
    let ended = |changes: &ConditionChanges| match (changes.evicted.is_true, changes.failed.is_true) {
        (true, _) => Some((EventType::Normal, "EvictionSucceeded", changes.evicted.reason.clone())),
        (false, true) => {
            let why = format!("{}: {}", changes.failed.reason, changes.failed.message);
            Some((EventType::Warning, "EvictionFailed", why.trim_end_matches(": ").to_owned()))
        }
        (false, false) => None,
    };
    match change {
        EvictionChange::Create { .. } => {
            Some((EventType::Normal, "EvictionBegins", "an Eviction was created for its requests".to_owned()))
        }
        EvictionChange::Status(change) => change.conditions.as_ref().and_then(ended),
        EvictionChange::Refuse { .. } => {
            let why = "a request to evict it is invalid: its status says why";
            Some((EventType::Warning, "EvictionRequestInvalid", why.to_owned()))
        }
        EvictionChange::Evict { .. } => {
            let answer = answer.cloned().unwrap_or_default();
            let kind = if answer.contains("(attempts=") { EventType::Warning } else { EventType::Normal };
            Some((kind, "EvictionAttempted", answer))
        }
        EvictionChange::Request { .. }
        | EvictionChange::Mark { .. }
        | EvictionChange::Report(_)
        | EvictionChange::Collect => None,
    }
}

impl StatusWrite for EvictionUpdate {
    fn target(&self) -> WriteTarget<'_> {
        WriteTarget { uid: &self.uid, rv: self.rv, flow: &self.pod.namespace }
    }

    fn level(&self) -> PriorityLevel {
        PriorityLevel::Eviction
    }

    fn pool(&self) -> WorkerPool {
        WorkerPool::Evictions
    }

    fn write<'a>(&'a self, turn: UpdateTurn<'a, '_>) -> BoxFuture<'a, Written> {
        Box::pin(async move {
            let (outcome, message) = write(turn.writer, turn.evictions, self).await;
            (outcome, NodeChanges { message, ..NodeChanges::default() })
        })
    }

    fn log(&self, _: &UpdateOutcome, _controller: &'static str) {}

    fn record(&self, records: &Records<'_>, outcome: &UpdateOutcome, done: &NodeChanges, controller: &'static str) {
        let (uid, change) = (&self.uid, self.change.name());
        let (action, reason, message) = match outcome {
            UpdateOutcome::Written => match event_for(&self.change, done.message.as_ref()) {
                Some((kind, reason, message)) => {
                    let object = InvolvedObject::Pod(self.pod.clone());
                    let event = Event::new(ReportingController::Own, object, kind, reason, message.clone());
                    records.events.record(event);
                    (Action::Evicted, reason, message)
                }
                None => {
                    tracing::debug!(controller, %uid, pod = %self.pod, change, "an eviction was written");
                    return;
                }
            },
            UpdateOutcome::Error(RequestError::Failed(error)) => (Action::Failed, error.category(), error_chain(error)),
            _ => {
                tracing::debug!(controller, %uid, pod = %self.pod, change, outcome = outcome.name(), "an eviction was not written; deciding again");
                return;
            }
        };
        let (at, pod) = (records.at, Some(self.pod.clone()));
        let (budget, node, node_uid) = (None, None, None);
        let event = match action {
            Action::Evicted => LogEvent::EvictionWritten,
            _ => LogEvent::Failed,
        };
        let record = Record { at, controller, action, pod, budget, node, node_uid, reason, message };
        records.journal.write_as(event, record);
    }
}
