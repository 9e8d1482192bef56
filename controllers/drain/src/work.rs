//! What is left to do on the node. One budget's pods go one after another, all
//! others together; nobody is asked before it makes sense, and a pod that waits
//! stands before no other.

mod requested;

use std::collections::BTreeSet;
use std::time::Duration;

use pod_safety_shared::authority::{Evicted, NotEvicted};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{BudgetKey, PodKey, Uid};
use pod_safety_shared::record::error_chain;

use super::action::Action;
use super::plan::{EvictionMethod, Row};

/// The longest pause before a budget is asked again: it is worth a request, for the
/// pod that it waits for may be Ready by now.
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// How many evictions are under way at a time.
const MAX_CONCURRENT_EVICTIONS: usize = 16;

/// What is said of a pod whose eviction was under way when the drain ended.
const UNANSWERED: &str = "its eviction was in progress, so it may terminate";

/// How far a pod is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// To be evicted, not before then.
    Pending(Mono),
    /// An EvictionRequest for it was sent then; whether a controller has looked at it.
    Requested(Mono, bool),
    /// It ends.
    Terminating,
    /// It went.
    Gone,
    /// It does not go; whether for safety.
    Stopped(bool),
}

#[derive(Clone, Debug)]
struct Item {
    pod: PodKey,
    budget: Option<BudgetKey>,
    state: State,
    /// Its eviction was sent and is not answered yet.
    in_flight: bool,
    /// Its eviction is requested, and not sent.
    by_request: bool,
    pause: Duration,
    /// Since when its eviction has failed in a way that may never end.
    failing_since: Option<Mono>,
    /// What was said last of it.
    last_message: String,
}

/// How it is with what is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Well.
    Good,
    /// It is waited for, or should be known.
    Attention,
    /// It does not go.
    Bad,
}

/// Something to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// How it is.
    pub tone: Tone,
    /// The sentence.
    pub text: String,
}

/// How it ended, when nothing is left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything is gone.
    Gone,
    /// Something was not evicted.
    Incomplete,
    /// Something was refused for safety.
    Refused,
}

/// The pods that must go.
#[derive(Clone, Debug, Default)]
pub struct DrainProgress {
    items: Vec<Item>,
    requests: requested::RequestState,
}

/// How many pods are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Taken on.
    pub total: usize,
    /// Gone.
    pub gone: usize,
    /// Ending.
    pub ending: usize,
    /// Waiting.
    pub waiting: usize,
    /// Given up.
    pub stopped: usize,
}

impl Count {
    /// Of both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            total: self.total + other.total,
            gone: self.gone + other.gone,
            ending: self.ending + other.ending,
            waiting: self.waiting + other.waiting,
            stopped: self.stopped + other.stopped,
        }
    }
}

impl DrainProgress {
    /// Takes on these rows of a plan, as far as they do not stay and are not known.
    pub fn add_rows<'a>(&mut self, rows: impl IntoIterator<Item = &'a Row>, now: Mono) {
        let existing = self.uids();
        for row in rows.into_iter().filter(|row| !existing.contains(&row.pod.uid)) {
            let (state, message) = match row.action {
                Action::Evict | Action::Wait | Action::Blocked => (State::Pending(now), "not tried yet"),
                Action::Ending => (State::Terminating, "terminating already"),
                Action::NeedsConsent => (State::Stopped(false), &*row.message),
                Action::Unsafe => (State::Stopped(true), &*row.message),
                Action::Stay => continue,
            };
            self.items.push(Item {
                pod: row.pod.clone(),
                budget: row.budget.clone(),
                state,
                in_flight: false,
                by_request: self.requests.are_sent && matches!(row.method, EvictionMethod::Request(_)),
                pause: Duration::ZERO,
                failing_since: None,
                last_message: message.to_owned(),
            });
        }
    }

    /// The pods that may be evicted, and from when on: of each budget the one that is
    /// due first, while no other eviction of it is under way.
    fn next_per_budget(&self) -> impl Iterator<Item = (usize, &Item, Mono)> {
        let in_flight =
            self.items.iter().filter(|item| item.in_flight).filter_map(|item| item.budget.as_ref());
        let mut lanes: BTreeSet<&BudgetKey> = in_flight.collect();
        let waits = |(index, item): (usize, &'_ Item)| match item.state {
            State::Pending(until) if !item.in_flight && !item.by_request => Some((until, index)),
            State::Pending(_)
            | State::Requested(..)
            | State::Terminating
            | State::Gone
            | State::Stopped(_) => None,
        };
        let mut waiting: Vec<(Mono, usize)> = self.items.iter().enumerate().filter_map(waits).collect();
        waiting.sort_unstable();
        let heads =
            waiting.into_iter().filter_map(|(until, index)| Some((index, self.items.get(index)?, until)));
        heads.filter(move |(_, item, _)| item.budget.as_ref().is_none_or(|lane| lanes.insert(lane)))
    }

    /// The pods to evict now.
    #[must_use]
    pub fn due(&self, now: Mono) -> Vec<(usize, PodKey)> {
        let room =
            MAX_CONCURRENT_EVICTIONS.saturating_sub(self.items.iter().filter(|item| item.in_flight).count());
        let due = self.next_per_budget().filter(|(.., until)| *until <= now);
        due.take(room).map(|(index, item, _)| (index, item.pod.clone())).collect()
    }

    /// The eviction of this pod is sent: until it is answered, nobody knows whether the
    /// pod ends.
    pub fn mark_sent(&mut self, index: usize) {
        if let Some(item) = self.items.get_mut(index) {
            item.in_flight = true;
        }
    }

    /// When the next pod is due; `None`: none waits, or it waits for an eviction that is under way.
    #[must_use]
    pub fn next_due(&self) -> Option<Mono> {
        self.next_per_budget().map(|(.., until)| until).min()
    }

    /// Whether nothing is left to do or to wait for.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let over = |item: &Item| matches!(item.state, State::Gone | State::Stopped(_)) && !item.in_flight;
        self.items.iter().all(over)
    }

    /// Whether some pod ends, or may without being asked by us.
    #[must_use]
    pub fn has_terminating(&self) -> bool {
        self.items.iter().any(|item| matches!(item.state, State::Terminating | State::Requested(..)))
    }

    /// An eviction was answered. Gives back a line about it, if it says something new.
    pub fn record_answer(
        &mut self,
        index: usize,
        answer: &Result<Evicted, NotEvicted>,
        now: Mono,
    ) -> Option<Line> {
        let item = self.items.get_mut(index)?;
        item.in_flight = false;
        let at_most = answer.as_ref().err().and_then(NotEvicted::retry_limit);
        item.failing_since = at_most.map(|_| item.failing_since.unwrap_or(now));
        let failed_for = item.failing_since.map_or(Duration::ZERO, |since| now.since(since));
        let message = match answer {
            Ok(Evicted::Terminates { grace }) => {
                item.state = State::Terminating;
                format!("evicted, terminates within {grace}s")
            }
            Ok(Evicted::AlreadyTerminating) => {
                item.state = State::Terminating;
                "terminating already".to_owned()
            }
            Ok(Evicted::Gone | Evicted::Replaced) => {
                item.state = State::Gone;
                "gone".to_owned()
            }
            Ok(Evicted::Finished) => {
                item.state = State::Gone;
                "has terminated: none of its containers runs".to_owned()
            }
            Err(why) if at_most.is_some_and(|most| failed_for >= most) => {
                item.state = State::Stopped(false);
                format!("not evicted, after {}s of trying: {}", failed_for.as_secs(), error_chain(why))
            }
            Err(why) => match why.retry_delay() {
                Some(pause) => {
                    // The API server's own wish counts; ours grows.
                    item.pause = (item.pause * 2).clamp(pause, MAX_PAUSE.max(pause));
                    item.state = State::Pending(now + item.pause);
                    let tried = at_most.map(|most| format!(", tried for {}s", most.as_secs()));
                    format!("waits{}: {}", tried.unwrap_or_default(), error_chain(why))
                }
                None => {
                    item.state = State::Stopped(matches!(why, NotEvicted::Unsafe));
                    format!("not evicted: {}", error_chain(why))
                }
            },
        };
        let text = (message != item.last_message).then(|| format!("pod/{} {message}", item.pod));
        item.last_message = message;
        let tone = match item.state {
            State::Pending(_) | State::Requested(..) => Tone::Attention,
            State::Terminating | State::Gone => Tone::Good,
            State::Stopped(_) => Tone::Bad,
        };
        text.map(|text| Line { tone, text })
    }

    /// The pods that are on the node now. Gives back a line for each that went.
    pub fn record_present(&mut self, present: &BTreeSet<Uid>) -> Vec<Line> {
        let may_be_gone = |item: &Item| item.state != State::Gone && !item.in_flight;
        let ended = |item: &&mut Item| may_be_gone(item) && !present.contains(&item.pod.uid);
        let went = self.items.iter_mut().filter(ended).map(|item| {
            item.state = State::Gone;
            Line { tone: Tone::Good, text: format!("pod/{} gone", item.pod) }
        });
        went.collect()
    }

    /// How many are where.
    #[must_use]
    pub fn count(&self) -> Count {
        let mut count = Count { total: self.items.len(), ..Count::default() };
        for item in &self.items {
            let of = match item.state {
                State::Pending(_) | State::Requested(..) => &mut count.waiting,
                State::Terminating => &mut count.ending,
                State::Gone => &mut count.gone,
                State::Stopped(_) => &mut count.stopped,
            };
            *of += 1;
        }
        count
    }

    /// What was not done, and why; `seen`: the pods of the node were read just now.
    #[must_use]
    pub fn describe_remaining(&self, seen: bool) -> Vec<Line> {
        let remaining = self.items.iter().filter(|item| item.state != State::Gone);
        let there = if seen { "still exists" } else { "existed when it was read last" };
        let line = |item: &Item| {
            let tone = if matches!(item.state, State::Stopped(_)) { Tone::Bad } else { Tone::Attention };
            let message = if item.in_flight { UNANSWERED } else { &item.last_message };
            Line { tone, text: format!("pod/{} {there}: {message}", item.pod) }
        };
        remaining.map(line).collect()
    }

    /// A pod of the node that was not there when the drain began: it is told of, and left alone.
    #[must_use]
    pub fn describe_late_pod(row: &Row, node: &str, tolerates: bool) -> Line {
        let why = if tolerates {
            "it tolerates the cordon"
        } else {
            "it does not tolerate the cordon, so something else than the scheduler put it there"
        };
        let text =
            format!("pod/{} of {} came to node/{node} after the cordon and stays: {why}", row.pod, row.owner);
        Line { tone: Tone::Attention, text }
    }

    /// How it ended, when nothing is left to do.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let is_any = |state: &State| self.items.iter().any(|item| item.state == *state);
        match (is_any(&State::Stopped(true)), is_any(&State::Stopped(false))) {
            (true, _) => Outcome::Refused,
            (false, true) => Outcome::Incomplete,
            (false, false) => Outcome::Gone,
        }
    }

    /// Everything that was taken on.
    #[must_use]
    pub fn uids(&self) -> BTreeSet<Uid> {
        self.items.iter().map(|item| item.pod.uid.clone()).collect()
    }
}

#[cfg(test)]
pub(super) mod tests;
