//! The one shape of an answer to "why is it as it is": for people and for programs.

use std::time::Duration;

use jiff::Timestamp;
pub(super) use pod_safety_shared::record::capitalize;
use serde::Serialize;

/// How something stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Verdict {
    /// Nothing keeps it.
    Free,
    /// It goes on by itself.
    Waiting,
    /// There is proof: it is being removed.
    Released,
    /// What it hangs on could not be read.
    Unknown,
    /// It does not go on until somebody does something.
    Blocked,
}

/// The verdict, with its reason in one CamelCase word and in a sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Judgement {
    /// How it stands.
    #[serde(rename = "verdict")]
    pub verdict: Verdict,
    /// Why, in one word.
    pub reason: &'static str,
    /// Why, for people.
    pub message: String,
}

impl Judgement {
    /// One with these words.
    pub fn new(verdict: Verdict, reason: &'static str, message: impl Into<String>) -> Self {
        Self { verdict, reason, message: capitalize(&message.into()) }
    }

    /// That nothing keeps it is no longer said, because not everything about it could be read.
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

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Moment {
    /// When, by the clock of whoever wrote it down.
    pub at: Timestamp,
    /// To which object, as `kind/NAMESPACE/NAME`; empty: to the one that is asked about.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub object: String,
    /// What.
    pub what: String,
    /// More of it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

impl Moment {
    /// That this happened to the object that is asked about.
    pub fn new(at: Timestamp, what: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { at, object: String::new(), what: what.into(), detail: detail.into() }
    }

    /// The same, told among those of others.
    #[must_use]
    pub fn about_object(self, object: &str) -> Self {
        Self { object: object.to_owned(), ..self }
    }
}

/// What happened to the pods that had a name before the pod that has it now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Predecessors {
    /// When the last one of them was gone, as far as that was said.
    pub until: Timestamp,
    /// How it went, in order.
    pub history: Vec<Moment>,
}

/// Something that may be so, was looked for, and was found or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its kind, in one CamelCase word.
    pub r#type: &'static str,
    /// Its name for people.
    #[serde(skip)]
    pub name: String,
    /// Whether it is so; nothing: it does not apply, or nobody knows.
    pub met: Option<bool>,
    /// What was seen.
    pub detail: String,
}

pub(super) fn finding(
    r#type: &'static str,
    name: &str,
    met: Option<bool>,
    detail: impl Into<String>,
) -> Finding {
    Finding { r#type, name: name.to_owned(), met, detail: detail.into() }
}

/// Who may do something about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Actor {
    /// Who.
    pub who: String,
    /// Whether, and under which condition.
    pub may: String,
}

/// Another object that the answer is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Item {
    /// Which one, as `kind/NAMESPACE/NAME`.
    pub object: String,
    /// How it stands.
    #[serde(flatten)]
    pub judgement: Judgement,
}

/// What can be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Next {
    /// In which case.
    pub when: String,
    /// The command, to be copied; without one, `when` says it all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub command: String,
    /// It changes nothing, or refuses what is not safe.
    pub safe: bool,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// About which object, as `kind/NAMESPACE/NAME`.
    pub object: String,
    /// What it is, in a few facts.
    pub facts: Vec<String>,
    /// The verdict.
    #[serde(flatten)]
    pub judgement: Judgement,
    /// What happened to the pods that had its name before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Predecessors>,
    /// How it got here, in order.
    pub history: Vec<Moment>,
    /// Signs of life.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<Finding>,
    /// Proofs that it stopped, of which one is enough.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Finding>,
    /// Who may do something.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub actors: Vec<Actor>,
    /// What it consists of, or what holds it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<Item>,
    /// What else should be known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What can be done.
    pub next: Vec<Next>,
    /// What could not be read, and what is therefore not known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

impl Answer {
    /// An answer of which only the verdict is known.
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

    /// Adds a command for a case.
    pub fn add_next_step(&mut self, when: impl Into<String>, command: impl Into<String>) {
        self.next.push(Next { when: when.into(), command: command.into(), safe: true });
    }

    /// Adds who may do something.
    pub fn add_actor(&mut self, who: impl Into<String>, may: impl Into<String>) {
        self.actors.push(Actor { who: who.into(), may: may.into() });
    }

    /// As part of another answer.
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

/// A span of time as people say it: `42s`, `3m08s`, `4h05m`, `2d4h`.
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

/// The span from then to now; none if it lies ahead.
#[must_use]
pub fn elapsed(then: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(then)).unwrap_or_default()
}

/// A moment of these seconds; those beyond the calendar are none.
pub(super) fn timestamp_from(seconds: i64) -> Option<Timestamp> {
    Timestamp::from_second(seconds).ok().filter(|at| at.as_second() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_said_as_people_say_them() {
        for (seconds, expected) in
            [(0, "0s"), (59, "59s"), (188, "3m08s"), (14_700, "4h05m"), (187_200, "2d4h")]
        {
            assert_eq!(format_duration(Duration::from_secs(seconds)), expected);
        }
    }
}
