//! What was decided and done: for people, and for checkers.
//!
//! Every act of the authority and every hold becomes one [`Record`]: a log line,
//! an entry of `/debug/decisions`, a metric, and where it matters an Event.

mod event;

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;

pub use event::LogEvent;
pub use pod_safety_client::error_chain;

use crate::model::{BudgetKey, PodKey, Uid};

/// How many records `/debug/decisions` keeps: a burst of a thousand pods and its
/// prelude, in about half a megabyte.
const KEEP: usize = 1_024;

/// The words with which messages begin. Any other may be the name of an object.
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

/// The text with a capital letter, unless it may begin with a name.
#[must_use]
pub fn capitalize(text: &str) -> String {
    let first = text.split(' ').next().unwrap_or_default();
    let (letter, rest) = text.split_at(usize::from(FIRST_WORDS.contains(&first)));
    letter.to_uppercase() + rest
}

/// One thing that was decided or done.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// When, by our wall clock: for people only.
    pub at: Timestamp,
    /// Which controller decided.
    pub controller: &'static str,
    /// What was done or withheld.
    pub action: Action,
    /// To which pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodKey>,
    /// To which budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetKey>,
    /// On which node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<Arc<str>>,
    /// Which one of that name, where it was done to the node itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_uid: Option<Uid>,
    /// The reason, one CamelCase word.
    pub reason: &'static str,
    /// The reason in a sentence, with its numbers.
    pub message: String,
}

/// What became of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Action {
    /// Deliberately nothing.
    Held,
    /// It would have been done, but the mode is `observe`.
    WouldForceDelete,
    /// The pod would have been asked to end, but in this mode that is not ours.
    WouldDelete,
    /// The evidence was not there.
    Refused,
    /// The pod was removed, by the evidence named.
    ForceDeleted,
    /// The pod was asked to end by its own grace, for the reason named.
    Deleted,
    /// Conditions, taints or labels of the node were written.
    Marked,
    /// A step of fencing the node was taken.
    Fenced,
    /// Whose an exclusive volume is was written.
    Guarded,
    /// How far the eviction of a pod is was written.
    Evicted,
    /// It was tried and failed; it will be decided again.
    Failed,
    /// The object had changed or gone; nothing was done.
    Dropped,
}

impl Action {
    /// What its log line is about, where nothing says it more exactly.
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
    /// Keeps `record`, and writes the log line of what changed something.
    pub fn write(&self, record: Record) {
        self.write_as(record.action.event(), record);
    }

    /// The same, where the action does not say all.
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
