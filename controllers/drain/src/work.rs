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
use super::plan::{Row, Way};

/// The longest pause before a budget is asked again: it is worth a request, for the
/// pod that it waits for may be Ready by now.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How many evictions are under way at a time.
const TOGETHER: usize = 16;

/// What is said of a pod whose eviction was under way when the drain ended.
const UNANSWERED: &str = "its eviction was in progress, so it may terminate";

/// How far a pod is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// To be evicted, not before then.
    Waits(Mono),
    /// An EvictionRequest for it was sent then; whether a controller has looked at it.
    Requested(Mono, bool),
    /// It ends.
    Ends,
    /// It went.
    Gone,
    /// It does not go; whether for safety.
    Stopped(bool),
}

#[derive(Clone, Debug)]
struct Item {
    pod: PodKey,
    lane: Option<BudgetKey>,
    state: State,
    /// Its eviction was sent and is not answered yet.
    asked: bool,
    /// Its eviction is requested, and not sent.
    by_request: bool,
    pause: Duration,
    /// Since when its eviction has failed in a way that may never end.
    fails_since: Option<Mono>,
    /// What was said last of it.
    said: String,
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
    Left,
    /// Something was refused for safety.
    Refused,
}

/// The pods that must go.
#[derive(Clone, Debug, Default)]
pub struct Work {
    items: Vec<Item>,
    requests: requested::Requests,
}

/// How many pods are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Taken on.
    pub all: usize,
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
            all: self.all + other.all,
            gone: self.gone + other.gone,
            ending: self.ending + other.ending,
            waiting: self.waiting + other.waiting,
            stopped: self.stopped + other.stopped,
        }
    }
}

impl Work {
    /// Takes on these rows of a plan, as far as they do not stay and are not known.
    pub fn take<'a>(&mut self, rows: impl IntoIterator<Item = &'a Row>, now: Mono) {
        let known = self.all();
        for row in rows.into_iter().filter(|row| !known.contains(&row.pod.uid)) {
            let (state, said) = match row.action {
                Action::Evict | Action::Wait | Action::Blocked => (State::Waits(now), "not tried yet"),
                Action::Ending => (State::Ends, "terminating already"),
                Action::Unagreed => (State::Stopped(false), &*row.why),
                Action::Unsafe => (State::Stopped(true), &*row.why),
                Action::Stay => continue,
            };
            self.items.push(Item {
                pod: row.pod.clone(),
                lane: row.budget.clone(),
                state,
                asked: false,
                by_request: self.requests.are_sent && matches!(row.way, Way::Request(_)),
                pause: Duration::ZERO,
                fails_since: None,
                said: said.to_owned(),
            });
        }
    }

    /// The pods that may be evicted, and from when on: of each budget the one that is
    /// due first, while no other eviction of it is under way.
    fn heads(&self) -> impl Iterator<Item = (usize, &Item, Mono)> {
        let asked = self.items.iter().filter(|item| item.asked).filter_map(|item| item.lane.as_ref());
        let mut lanes: BTreeSet<&BudgetKey> = asked.collect();
        let waits = |(index, item): (usize, &'_ Item)| match item.state {
            State::Waits(until) if !item.asked && !item.by_request => Some((until, index)),
            State::Waits(_) | State::Requested(..) | State::Ends | State::Gone | State::Stopped(_) => None,
        };
        let mut waiting: Vec<(Mono, usize)> = self.items.iter().enumerate().filter_map(waits).collect();
        waiting.sort_unstable();
        let heads =
            waiting.into_iter().filter_map(|(until, index)| Some((index, self.items.get(index)?, until)));
        heads.filter(move |(_, item, _)| item.lane.as_ref().is_none_or(|lane| lanes.insert(lane)))
    }

    /// The pods to evict now.
    #[must_use]
    pub fn due(&self, now: Mono) -> Vec<(usize, PodKey)> {
        let room = TOGETHER.saturating_sub(self.items.iter().filter(|item| item.asked).count());
        let due = self.heads().filter(|(.., until)| *until <= now);
        due.take(room).map(|(index, item, _)| (index, item.pod.clone())).collect()
    }

    /// The eviction of this pod is sent: until it is answered, nobody knows whether the
    /// pod ends.
    pub fn asked(&mut self, index: usize) {
        if let Some(item) = self.items.get_mut(index) {
            item.asked = true;
        }
    }

    /// When the next pod is due; `None`: none waits, or it waits for an eviction that is under way.
    #[must_use]
    pub fn next_due(&self) -> Option<Mono> {
        self.heads().map(|(.., until)| until).min()
    }

    /// Whether nothing is left to do or to wait for.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let over = |item: &Item| matches!(item.state, State::Gone | State::Stopped(_)) && !item.asked;
        self.items.iter().all(over)
    }

    /// Whether some pod ends, or may without being asked by us.
    #[must_use]
    pub fn ends(&self) -> bool {
        self.items.iter().any(|item| matches!(item.state, State::Ends | State::Requested(..)))
    }

    /// An eviction was answered. Gives back a line about it, if it says something new.
    pub fn answered(
        &mut self,
        index: usize,
        answer: &Result<Evicted, NotEvicted>,
        now: Mono,
    ) -> Option<Line> {
        let item = self.items.get_mut(index)?;
        item.asked = false;
        let at_most = answer.as_ref().err().and_then(NotEvicted::at_most);
        item.fails_since = at_most.map(|_| item.fails_since.unwrap_or(now));
        let failed_for = item.fails_since.map_or(Duration::ZERO, |since| now.since(since));
        let said = match answer {
            Ok(Evicted::Ends { grace }) => {
                item.state = State::Ends;
                format!("evicted, terminates within {grace}s")
            }
            Ok(Evicted::Ending) => {
                item.state = State::Ends;
                "terminating already".to_owned()
            }
            Ok(Evicted::Gone | Evicted::Another) => {
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
            Err(why) => match why.again() {
                Some(pause) => {
                    // The API server's own wish counts; ours grows.
                    item.pause = (item.pause * 2).clamp(pause, LONGEST_PAUSE.max(pause));
                    item.state = State::Waits(now + item.pause);
                    let tried = at_most.map(|most| format!(", tried for {}s", most.as_secs()));
                    format!("waits{}: {}", tried.unwrap_or_default(), error_chain(why))
                }
                None => {
                    item.state = State::Stopped(matches!(why, NotEvicted::Unsafe));
                    format!("not evicted: {}", error_chain(why))
                }
            },
        };
        let text = (said != item.said).then(|| format!("pod/{} {said}", item.pod));
        item.said = said;
        let tone = match item.state {
            State::Waits(_) | State::Requested(..) => Tone::Attention,
            State::Ends | State::Gone => Tone::Good,
            State::Stopped(_) => Tone::Bad,
        };
        text.map(|text| Line { tone, text })
    }

    /// The pods that are on the node now. Gives back a line for each that went.
    pub fn seen(&mut self, there: &BTreeSet<Uid>) -> Vec<Line> {
        let left = |item: &Item| item.state != State::Gone && !item.asked;
        let ended = |item: &&mut Item| left(item) && !there.contains(&item.pod.uid);
        let went = self.items.iter_mut().filter(ended).map(|item| {
            item.state = State::Gone;
            Line { tone: Tone::Good, text: format!("pod/{} gone", item.pod) }
        });
        went.collect()
    }

    /// How many are where.
    #[must_use]
    pub fn count(&self) -> Count {
        let mut count = Count { all: self.items.len(), ..Count::default() };
        for item in &self.items {
            let of = match item.state {
                State::Waits(_) | State::Requested(..) => &mut count.waiting,
                State::Ends => &mut count.ending,
                State::Gone => &mut count.gone,
                State::Stopped(_) => &mut count.stopped,
            };
            *of += 1;
        }
        count
    }

    /// What was not done, and why; `seen`: the pods of the node were read just now.
    #[must_use]
    pub fn left(&self, seen: bool) -> Vec<Line> {
        let left = self.items.iter().filter(|item| item.state != State::Gone);
        let there = if seen { "still exists" } else { "existed when it was read last" };
        let line = |item: &Item| {
            let tone = if matches!(item.state, State::Stopped(_)) { Tone::Bad } else { Tone::Attention };
            let said = if item.asked { UNANSWERED } else { &item.said };
            Line { tone, text: format!("pod/{} {there}: {said}", item.pod) }
        };
        left.map(line).collect()
    }

    /// A pod of the node that was not there when the drain began: it is told of, and left alone.
    #[must_use]
    pub fn came(row: &Row, node: &str, tolerates: bool) -> Line {
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
            (false, true) => Outcome::Left,
            (false, false) => Outcome::Gone,
        }
    }

    /// Everything that was taken on.
    #[must_use]
    pub fn all(&self) -> BTreeSet<Uid> {
        self.items.iter().map(|item| item.pod.uid.clone()).collect()
    }
}

#[cfg(test)]
pub(super) mod tests;
