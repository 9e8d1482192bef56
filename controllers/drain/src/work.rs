//! What remains to be done on the node. Pods of one budget are evicted one after another, all others together. No
//! eviction is sent before it can succeed, and a waiting pod does not block other pods.

mod requested;

use std::collections::BTreeSet;
use std::time::Duration;

use pod_safety_shared::authority::{Evicted, NotEvicted};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{BudgetKey, PodKey, Uid};
use pod_safety_shared::record::error_chain;

use super::action::Action;
use super::plan::{EvictionMethod, Row};

/// The longest pause before an eviction is retried: a retry is worth a request, because the pod that the budget waits
/// for may be Ready by now.
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// How many evictions are in flight at a time.
const MAX_CONCURRENT_EVICTIONS: usize = 16;

/// The message about a pod whose eviction was in flight when the drain ended.
const UNANSWERED: &str = "its eviction was in progress, so it may terminate";

/// The state of a pod's eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// To be evicted, not before this time.
    Pending(Mono),
    /// An EvictionRequest for it was sent at this time; whether a controller has observed it.
    Requested(Mono, bool),
    /// It is terminating.
    Terminating,
    /// It is gone.
    Gone,
    /// It is not evicted; whether for safety.
    Stopped(bool),
}

#[derive(Clone, Debug)]
struct Item {
    pod: PodKey,
    budget: Option<BudgetKey>,
    state: State,
    /// Its eviction was sent and not answered yet.
    in_flight: bool,
    /// Its eviction is requested by an EvictionRequest, and not sent directly.
    by_request: bool,
    pause: Duration,
    /// Since when its eviction has failed with an error that may never end.
    failing_since: Option<Mono>,
    /// The last message about it.
    last_message: String,
}

/// The tone of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Good news.
    Good,
    /// It is waited for, or should be known.
    Attention,
    /// It is not evicted.
    Bad,
}

/// A line to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its tone.
    pub tone: Tone,
    /// Its text.
    pub text: String,
}

/// How the drain ended, when nothing remains to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every pod is gone.
    Gone,
    /// Some pod was not evicted.
    Incomplete,
    /// Some pod was refused for safety.
    Refused,
}

/// The pods to evict.
#[derive(Clone, Debug, Default)]
pub struct DrainProgress {
    items: Vec<Item>,
    requests: requested::RequestState,
}

/// How many pods are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// All pods.
    pub total: usize,
    /// Gone.
    pub gone: usize,
    /// Terminating.
    pub ending: usize,
    /// Waiting.
    pub waiting: usize,
    /// Given up.
    pub stopped: usize,
}

impl Count {
    /// The sum of both.
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
    /// Adds the rows of a plan whose pods do not stay and are not in it yet.
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

    /// The pods that may be evicted, and from when on: for each budget the pod that is due first, if no other eviction
    /// of that budget is in flight.
    fn next_per_budget(&self) -> impl Iterator<Item = (usize, &Item, Mono)> {
        let in_flight = self.items.iter().filter(|item| item.in_flight).filter_map(|item| item.budget.as_ref());
        let mut budgets: BTreeSet<&BudgetKey> = in_flight.collect();
        let waits = |(index, item): (usize, &'_ Item)| match item.state {
            State::Pending(until) if !item.in_flight && !item.by_request => Some((until, index)),
            State::Pending(_) | State::Requested(..) | State::Terminating | State::Gone | State::Stopped(_) => None,
        };
        let mut waiting: Vec<(Mono, usize)> = self.items.iter().enumerate().filter_map(waits).collect();
        waiting.sort_unstable();
        let heads = waiting.into_iter().filter_map(|(until, index)| Some((index, self.items.get(index)?, until)));
        heads.filter(move |(_, item, _)| item.budget.as_ref().is_none_or(|budget| budgets.insert(budget)))
    }

    /// The pods to evict now.
    #[must_use]
    pub fn due(&self, now: Mono) -> Vec<(usize, PodKey)> {
        let room = MAX_CONCURRENT_EVICTIONS.saturating_sub(self.items.iter().filter(|item| item.in_flight).count());
        let due = self.next_per_budget().filter(|(.., until)| *until <= now);
        due.take(room).map(|(index, item, _)| (index, item.pod.clone())).collect()
    }

    /// The eviction of this pod is sent: until it is answered, it is not known whether the pod terminates.
    pub fn mark_sent(&mut self, index: usize) {
        if let Some(item) = self.items.get_mut(index) {
            item.in_flight = true;
        }
    }

    /// When the next pod is due; `None`: none waits, or it waits for an eviction in flight.
    #[must_use]
    pub fn next_due(&self) -> Option<Mono> {
        self.next_per_budget().map(|(.., until)| until).min()
    }

    /// Whether nothing remains to be done or to wait for.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let over = |item: &Item| matches!(item.state, State::Gone | State::Stopped(_)) && !item.in_flight;
        self.items.iter().all(over)
    }

    /// Whether some pod terminates, or may terminate without an eviction by this drain.
    #[must_use]
    pub fn has_terminating(&self) -> bool {
        self.items.iter().any(|item| matches!(item.state, State::Terminating | State::Requested(..)))
    }

    /// Records the answer to an eviction. Returns a line about it, if it has news.
    pub fn record_answer(&mut self, index: usize, answer: &Result<Evicted, NotEvicted>, now: Mono) -> Option<Line> {
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
                    // The API server's own Retry-After takes precedence; the pause of this drain grows.
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

    /// Records the pods that are on the node now. Returns a line for each pod that is gone.
    pub fn record_present(&mut self, present: &BTreeSet<Uid>) -> Vec<Line> {
        let may_be_gone = |item: &Item| item.state != State::Gone && !item.in_flight;
        let ended = |item: &&mut Item| may_be_gone(item) && !present.contains(&item.pod.uid);
        let went = self.items.iter_mut().filter(ended).map(|item| {
            item.state = State::Gone;
            Line { tone: Tone::Good, text: format!("pod/{} gone", item.pod) }
        });
        went.collect()
    }

    /// How many pods are in each state.
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

    /// What was not done, and why; `seen`: the pods of the node were just read.
    #[must_use]
    pub fn describe_remaining(&self, seen: bool) -> Vec<Line> {
        let remaining = self.items.iter().filter(|item| item.state != State::Gone);
        let existence = if seen { "still exists" } else { "existed when it was read last" };
        let line = |item: &Item| {
            let tone = if matches!(item.state, State::Stopped(_)) { Tone::Bad } else { Tone::Attention };
            let message = if item.in_flight { UNANSWERED } else { &item.last_message };
            Line { tone, text: format!("pod/{} {existence}: {message}", item.pod) }
        };
        remaining.map(line).collect()
    }

    /// The line about a pod that was not on the node when the drain started: it is reported and not evicted.
    #[must_use]
    pub fn describe_late_pod(row: &Row, node: &str, tolerates: bool) -> Line {
        let why = if tolerates {
            "it tolerates the cordon"
        } else {
            "it does not tolerate the cordon, so something else than the scheduler put it there"
        };
        let text = format!("pod/{} of {} came to node/{node} after the cordon and stays: {why}", row.pod, row.owner);
        Line { tone: Tone::Attention, text }
    }

    /// How the drain ended, when nothing remains to be done.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let is_any = |state: &State| self.items.iter().any(|item| item.state == *state);
        match (is_any(&State::Stopped(true)), is_any(&State::Stopped(false))) {
            (true, _) => Outcome::Refused,
            (false, true) => Outcome::Incomplete,
            (false, false) => Outcome::Gone,
        }
    }

    /// The UIDs of all pods.
    #[must_use]
    pub fn uids(&self) -> BTreeSet<Uid> {
        self.items.iter().map(|item| item.pod.uid.clone()).collect()
    }
}

#[cfg(test)]
pub(super) mod tests;
