//! The type of every explanation, rendered for operators or as JSON.

use std::time::Duration;

use jiff::Timestamp;
pub(super) use pod_safety_shared::record::capitalize;
use serde::Serialize;

/// The state of an object, from the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Verdict {
    /// Nothing blocks it.
    Free,
    /// It proceeds without an operator.
    Waiting,
    /// There is evidence: it is being removed.
    Released,
    /// Something that the verdict depends on could not be read.
    Unknown,
    /// It does not proceed until an operator acts.
    Blocked,
}

/// The verdict, with its reason in CamelCase and as a sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Judgement {
    /// The verdict.
    #[serde(rename = "verdict")]
    pub verdict: Verdict,
    /// The reason in CamelCase.
    pub reason: &'static str,
    /// The reason as a sentence.
    pub message: String,
}

impl Judgement {
    /// A judgement of this verdict, reason and message.
    pub fn new(verdict: Verdict, reason: &'static str, message: impl Into<String>) -> Self {
        Self { verdict, reason, message: capitalize(&message.into()) }
    }

    /// Changes `Free` to `Unknown`, because not everything about the object could be read.
    pub fn mark_incomplete(&mut self) {
        if self.verdict == Verdict::Free {
            *self = Self::new(
                Verdict::Unknown,
                "NotRead",
                "nothing that could be read blocks it, but not everything could be read.",
            );
        }
    }
}

/// An entry of a history.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Moment {
    /// When it happened, by the clock of the component that recorded it.
    pub at: Timestamp,
    /// The object that it happened to, as `kind/NAMESPACE/NAME`; empty: the object that is explained.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub object: String,
    /// What happened.
    pub what: String,
    /// Details.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

impl Moment {
    /// An entry about the object that is explained.
    pub fn new(at: Timestamp, what: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { at, object: String::new(), what: what.into(), detail: detail.into() }
    }

    /// The same entry, about another object.
    #[must_use]
    pub fn about_object(self, object: &str) -> Self {
        Self { object: object.to_owned(), ..self }
    }
}

/// What happened to earlier pods of the same name, or to earlier boots of a node and earlier Nodes of its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Predecessors {
    /// When the last of them was gone, as far as it is recorded.
    pub until: Timestamp,
    /// What happened, in order.
    pub history: Vec<Moment>,
}

/// A condition that was checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its kind in CamelCase.
    pub r#type: &'static str,
    /// Its name for operators.
    #[serde(skip)]
    pub name: String,
    /// Whether the condition is met; `None`: it does not apply, or it is not known.
    pub met: Option<bool>,
    /// It is not met any more if it stays as it is.
    #[serde(skip)]
    pub late: bool,
    /// What was observed.
    pub detail: String,
}

pub(super) fn finding(r#type: &'static str, name: &str, met: Option<bool>, detail: impl Into<String>) -> Finding {
    Finding { r#type, name: name.to_owned(), met, late: false, detail: detail.into() }
}

/// An actor that may act on the object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Actor {
    /// The actor.
    pub who: String,
    /// Whether it may act, and under which condition.
    pub may: String,
}

/// Another object that the answer is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Item {
    /// The object, as `kind/NAMESPACE/NAME`.
    pub object: String,
    /// Its verdict.
    #[serde(flatten)]
    pub judgement: Judgement,
}

/// A next step for the operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Next {
    /// When the step applies.
    pub when: String,
    /// The command to copy; empty: `when` is the whole advice.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub command: String,
    /// The command changes nothing, or refuses what is not safe.
    pub safe: bool,
}

/// An explanation of one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// The object, as `kind/NAMESPACE/NAME`.
    pub object: String,
    /// A few facts about the object.
    pub facts: Vec<String>,
    /// The verdict.
    #[serde(flatten)]
    pub judgement: Judgement,
    /// What happened to earlier pods, boots or Nodes of the same name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Predecessors>,
    /// What happened to the object, in order.
    pub history: Vec<Moment>,
    /// Heartbeats and other signs that a node runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<Finding>,
    /// Evidence that the pod or node stopped; one piece of evidence is enough.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Finding>,
    /// The actors that may act on it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub actors: Vec<Actor>,
    /// The objects that it consists of, or that block it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<Item>,
    /// More for the operator to know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The next steps.
    pub next: Vec<Next>,
    /// What could not be read and is therefore not known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

impl Answer {
    /// An answer with a judgement and nothing else.
    #[must_use]
    pub const fn new(object: String, judgement: Judgement) -> Self {
        Self {
            object,
            facts: Vec::new(),
            judgement,
            before: None,
            history: Vec::new(),
            signals: Vec::new(),
            evidence: Vec::new(),
            actors: Vec::new(),
            items: Vec::new(),
            notes: Vec::new(),
            next: Vec::new(),
            missing: Vec::new(),
        }
    }

    /// Adds a next step.
    pub fn add_next_step(&mut self, when: impl Into<String>, command: impl Into<String>) {
        self.next.push(Next { when: when.into(), command: command.into(), safe: true });
    }

    /// Adds an actor.
    pub fn add_actor(&mut self, who: impl Into<String>, may: impl Into<String>) {
        self.actors.push(Actor { who: who.into(), may: may.into() });
    }

    /// The answer as an item of another answer.
    #[must_use]
    pub fn to_item(&self) -> Item {
        Item { object: self.object.clone(), judgement: self.judgement.clone() }
    }
}

/// "1 pod", "2 pods".
#[must_use]
pub fn pluralize(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// A duration for operators: `42s`, `3m08s`, `4h05m`, `2d4h`.
#[must_use]
pub fn format_duration(span: Duration) -> String {
    let seconds = span.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{:02}s", seconds % 60),
        (0, _, _) => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{days}d{}h", hours % 24),
    }
}

/// The time from `then` to `now`; zero if `then` is later.
#[must_use]
pub fn elapsed(then: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(then)).unwrap_or_default()
}

/// The timestamp of these seconds since the epoch; `None` if it is out of range.
pub(super) fn timestamp_from(seconds: i64) -> Option<Timestamp> {
    Timestamp::from_second(seconds).ok().filter(|at| at.as_second() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_duration_uses_at_most_two_units() {
        for (seconds, expected) in [(0, "0s"), (59, "59s"), (188, "3m08s"), (14_700, "4h05m"), (187_200, "2d4h")] {
            assert_eq!(format_duration(Duration::from_secs(seconds)), expected);
        }
    }
}
