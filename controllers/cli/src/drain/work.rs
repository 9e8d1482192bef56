//! What is left to do on the node. One budget's pods go one after another, all
//! others together; nobody is asked before it makes sense.

use std::collections::BTreeSet;
use std::time::Duration;

use pod_safety_drain::{Action, Plan};
use pod_safety_print::Tone;
use pod_safety_shared::authority::{Evicted, NotEvicted};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{BudgetKey, PodKey, Uid};
use pod_safety_shared::record::error_chain;

/// The longest pause before a budget is asked again: it is worth a request, for the
/// pod that it waits for may be Ready by now.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How many pods are evicted in one go.
const TOGETHER: usize = 16;

/// What is said of a pod whose eviction was under way when the drain ended.
const UNANSWERED: &str = "its eviction was in progress, so it may terminate";

/// How far a pod is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// To be evicted, not before then.
    Waits(Mono),
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
    pause: Duration,
    /// What was said last of it.
    said: String,
}

/// Something to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) tone: Tone,
    pub(super) text: String,
}

/// The pods that must go.
#[derive(Clone, Debug, Default)]
pub(super) struct Work {
    items: Vec<Item>,
}

/// How many pods are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) all: usize,
    pub(super) gone: usize,
    pub(super) ending: usize,
    pub(super) waiting: usize,
    pub(super) stopped: usize,
}

impl Work {
    /// Takes on what the plan says must go and what is not known yet. Gives back
    /// whether there was any.
    pub(super) fn take(&mut self, plan: &Plan, now: Mono) -> bool {
        let known: BTreeSet<Uid> = self.items.iter().map(|item| item.pod.uid.clone()).collect();
        for row in plan.rows.iter().filter(|row| !known.contains(&row.pod.uid)) {
            let (state, said) = match row.action {
                Action::Evict | Action::Wait => (State::Waits(now), "not tried yet"),
                Action::Ending => (State::Ends, "terminating already"),
                Action::Blocked | Action::Unsafe | Action::Stay => continue,
            };
            self.items.push(Item {
                pod: row.pod.clone(),
                lane: row.budget.clone(),
                state,
                asked: false,
                pause: Duration::ZERO,
                said: said.to_owned(),
            });
        }
        self.items.len() > known.len()
    }

    /// The pods that may be evicted, and from when on. The first of a budget stands
    /// for all behind it.
    fn heads(&self) -> impl Iterator<Item = (usize, &Item, Mono)> {
        let mut lanes = BTreeSet::new();
        self.items.iter().enumerate().filter_map(move |(index, item)| match item.state {
            State::Waits(until) => {
                let first = item.lane.as_ref().is_none_or(|lane| lanes.insert(lane));
                first.then_some((index, item, until))
            }
            State::Ends | State::Gone | State::Stopped(_) => None,
        })
    }

    /// The pods to evict now.
    pub(super) fn due(&self, now: Mono) -> Vec<(usize, PodKey)> {
        let due = self.heads().filter(|(.., until)| *until <= now);
        due.take(TOGETHER).map(|(index, item, _)| (index, item.pod.clone())).collect()
    }

    /// The eviction of this pod is sent: until it is answered, nobody knows whether the
    /// pod ends.
    pub(super) fn asked(&mut self, index: usize) {
        if let Some(item) = self.items.get_mut(index) {
            item.asked = true;
        }
    }

    /// When the next pod is due; `None`: none waits.
    pub(super) fn next_due(&self) -> Option<Mono> {
        self.heads().map(|(.., until)| until).min()
    }

    /// Whether some pod ends.
    pub(super) fn ends(&self) -> bool {
        self.items.iter().any(|item| item.state == State::Ends)
    }

    /// An eviction was answered. Gives back a line about it, if it says something new.
    pub(super) fn answered(
        &mut self,
        index: usize,
        answer: &Result<Evicted, NotEvicted>,
        now: Mono,
    ) -> Option<Line> {
        let item = self.items.get_mut(index)?;
        item.asked = false;
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
            Err(why) => match why.again() {
                Some(pause) => {
                    // The API server's own wish counts; ours grows.
                    item.pause = (item.pause * 2).clamp(pause, LONGEST_PAUSE.max(pause));
                    item.state = State::Waits(now + item.pause);
                    format!("waits: {}", error_chain(why))
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
            State::Waits(_) => Tone::Attention,
            State::Ends | State::Gone => Tone::Good,
            State::Stopped(_) => Tone::Bad,
        };
        text.map(|text| Line { tone, text })
    }

    /// The pods that are on the node now. Gives back a line for each that went.
    pub(super) fn seen(&mut self, there: &BTreeSet<Uid>) -> Vec<Line> {
        let ended = |item: &&mut Item| item.state == State::Ends && !there.contains(&item.pod.uid);
        let went = self.items.iter_mut().filter(ended).map(|item| {
            item.state = State::Gone;
            Line { tone: Tone::Good, text: format!("pod/{} gone", item.pod) }
        });
        went.collect()
    }

    /// How many are where.
    pub(super) fn count(&self) -> Count {
        let mut count = Count { all: self.items.len(), ..Count::default() };
        for item in &self.items {
            let of = match item.state {
                State::Waits(_) => &mut count.waiting,
                State::Ends => &mut count.ending,
                State::Gone => &mut count.gone,
                State::Stopped(_) => &mut count.stopped,
            };
            *of += 1;
        }
        count
    }

    /// What was not done, and why.
    pub(super) fn left(&self) -> Vec<Line> {
        let left = self.items.iter().filter(|item| item.state != State::Gone);
        let line = |item: &Item| {
            let tone = if matches!(item.state, State::Stopped(_)) { Tone::Bad } else { Tone::Attention };
            let said = if item.asked { UNANSWERED } else { &item.said };
            Line { tone, text: format!("pod/{} still exists: {said}", item.pod) }
        };
        left.map(line).collect()
    }

    /// Whether a pod was refused for safety.
    pub(super) fn refused_for_safety(&self) -> bool {
        self.items.iter().any(|item| item.state == State::Stopped(true))
    }
}

#[cfg(test)]
mod tests;
