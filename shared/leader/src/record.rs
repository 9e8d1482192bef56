//! The journal: a record of each decision and each outcome.
//!
//! Every request of the authority and every hold becomes one [`Record`]: a log line, an entry of `/debug/decisions`, a
//! metric, and in some cases an Event.

mod event;

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;

pub use event::LogEvent;
pub use pod_safety_client::error_chain;

use crate::model::{BudgetKey, PodKey, Uid};

/// How many records `/debug/decisions` keeps: those of a burst of a thousand pods, in about half a megabyte.
const KEEP: usize = 1_024;

/// The words that are capitalised at the beginning of a message. Any other word may be the name of an object.
const FIRST_WORDS: [&str; 25] = [
    "a",
    "after",
    "all",
    "an",
    "both",
    "created",
    "every",
    "fencing",
    "its",
    "it",
    "no",
    "node",
    "nodes",
    "not",
    "nothing",
    "of",
    "proved",
    "released",
    "switching",
    "that",
    "the",
    "there",
    "this",
    "volume",
    "what",
];

/// Capitalises the text, unless it may begin with a name.
#[must_use]
pub fn capitalize(text: &str) -> String {
    let first = text.split(' ').next().unwrap_or_default();
    let (letter, rest) = text.split_at(usize::from(FIRST_WORDS.contains(&first)));
    letter.to_uppercase() + rest
}

/// One decision or outcome.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// When, by this host's clock. It is only displayed.
    pub at: Timestamp,
    /// The controller.
    pub controller: &'static str,
    /// The action.
    pub action: Action,
    /// The pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodKey>,
    /// The budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetKey>,
    /// The node's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<Arc<str>>,
    /// The UID of the Node, if the action is about the node itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_uid: Option<Uid>,
    /// The reason, as one CamelCase word.
    pub reason: &'static str,
    /// The reason as a sentence, with numbers.
    pub message: String,
}

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Action {
    /// The object is on hold.
    Held,
    /// The pod would be force deleted, but the mode is `observe`.
    WouldForceDelete,
    /// The pod would be deleted gracefully, but the controller does not do so in this mode.
    WouldDelete,
    /// There was no evidence.
    Refused,
    /// The pod was force deleted, by this evidence.
    ForceDeleted,
    /// The pod was deleted gracefully, for this reason.
    Deleted,
    /// Conditions, taints or labels of the node were written.
    Marked,
    /// A step of fencing the node was executed.
    Fenced,
    /// The Lease of an exclusive volume was written.
    Guarded,
    /// An Eviction or an EvictionRequest was written.
    Evicted,
    /// A request failed; it will be decided again.
    Failed,
    /// The object had changed or was gone, so nothing was done.
    Dropped,
}

impl Action {
    /// The log event, unless the caller has a more exact one.
    const fn event(self) -> LogEvent {
        match self {
            Self::Held => LogEvent::Held,
            Self::WouldForceDelete => LogEvent::WouldForceDelete,
            Self::WouldDelete => LogEvent::WouldDelete,
            Self::Refused => LogEvent::Refused,
            Self::ForceDeleted => LogEvent::PodForceDeleted,
            Self::Deleted => LogEvent::PodDeleted,
            Self::Marked => LogEvent::NodeMarked,
            Self::Fenced => LogEvent::FenceUpdated,
            Self::Guarded => LogEvent::VolumeLeaseWritten,
            Self::Evicted => LogEvent::EvictionWritten,
            Self::Failed => LogEvent::Failed,
            Self::Dropped => LogEvent::Dropped,
        }
    }
}

/// The last records, oldest first.
#[derive(Debug, Default)]
pub struct Journal(Mutex<VecDeque<Record>>);

impl Journal {
    /// Keeps `record`, and writes its log line.
    pub fn write(&self, record: Record) {
        self.write_as(record.action.event(), record);
    }

    /// The same, with a more exact log event than the action has.
    pub fn write_as(&self, event: LogEvent, record: Record) {
        log(event, &record);
        let mut records = self.0.lock();
        if records.len() == KEEP {
            records.pop_front();
        }
        records.push_back(record);
    }

    /// The last records, oldest first.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        self.0.lock().iter().cloned().collect()
    }
}

fn log(event: LogEvent, record: &Record) {
    let Record { controller, action, pod, budget, node, node_uid, reason, message, at: _ } = record;
    let uid = pod.as_ref().map(|pod| &pod.uid).or(budget.as_ref().map(|budget| &budget.uid));
    let (pod, budget) = (pod.as_ref().map(ToString::to_string), budget.as_ref().map(ToString::to_string));
    let uid = uid.or(node_uid.as_ref()).map(ToString::to_string);
    let (pod, budget, uid, node) = (pod.as_deref(), budget.as_deref(), uid.as_deref(), node.as_deref());
    let event = event.name();
    match action {
        Action::ForceDeleted
        | Action::Deleted
        | Action::Marked
        | Action::Fenced
        | Action::Guarded
        | Action::Evicted
        | Action::Held
        | Action::WouldForceDelete
        | Action::WouldDelete => {
            tracing::info!(event, controller, ?action, pod, budget, uid, node, reason, "{message}");
        }
        Action::Refused | Action::Failed => {
            tracing::warn!(event, controller, ?action, pod, budget, uid, node, reason, "{message}")
        }
        Action::Dropped => {
            tracing::debug!(event, controller, ?action, pod, budget, uid, node, reason, "{message}")
        }
    }
}

#[cfg(test)]
mod tests;
