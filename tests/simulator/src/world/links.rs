//! The network between callers and API servers: which requests arrive, and which are delayed or lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::Mutex;

use crate::api::{ApiRequest, Conduct, Course, Etcd, Fate};
use crate::campaign::Trouble;
use crate::chance::Chance;
use crate::checker::Checker;

#[derive(Debug, Default)]
struct State {
    /// Until when a caller reaches no API server.
    cut: BTreeMap<String, Duration>,
    /// Until when a caller does not reach this one, by both their names.
    cut_from: BTreeMap<(String, String), Duration>,
    /// Other faults of a caller's requests, and until when.
    troubles: BTreeMap<String, Vec<(Trouble, u64, Duration)>>,
    sent: BTreeMap<String, u64>,
}

impl State {
    fn is_cut(&self, now: Duration, caller: &str, server: &str) -> bool {
        let is_over = |until: &Duration| now >= *until;
        if self.cut.get(caller).is_some_and(|until| !is_over(until)) {
            return true;
        }
        // Few worlds have any; each request checks.
        let of_pair =
            |((cut, from), until): (&(String, String), &Duration)| cut == caller && from == server && !is_over(until);
        self.cut_from.iter().any(of_pair)
    }
}

/// The links of a world.
pub(crate) struct Links {
    chance: Chance,
    checker: Arc<Checker>,
    etcd: OnceLock<Arc<Etcd>>,
    state: Mutex<State>,
}

impl Links {
    pub(crate) fn new(chance: Chance, checker: &Arc<Checker>) -> Arc<Self> {
        Arc::new(Self { chance, checker: Arc::clone(checker), etcd: OnceLock::new(), state: Mutex::default() })
    }

    /// The log whose changes are shown to the checker.
    pub(crate) fn watch(&self, etcd: &Arc<Etcd>) {
        drop(self.etcd.set(Arc::clone(etcd)));
    }

    /// Cuts a caller off for a while.
    pub(crate) fn cut(&self, caller: &str, until: Duration) {
        let cut = &mut self.state.lock().cut;
        let cut_until = cut.get(caller).copied().unwrap_or_default();
        cut.insert(caller.to_owned(), cut_until.max(until));
    }

    /// Cuts a caller off from one server for a while.
    pub(crate) fn cut_from(&self, caller: &str, server: &str, until: Duration) {
        let cut = &mut self.state.lock().cut_from;
        let cut_until = cut.entry((caller.to_owned(), server.to_owned())).or_default();
        *cut_until = until.max(*cut_until);
    }

    pub(crate) fn is_cut(&self, caller: &str, server: &str) -> bool {
        self.state.lock().is_cut(self.checker.now(), caller, server)
    }

    /// This share of the caller's requests, in percent, gets the fault.
    pub(crate) fn trouble(&self, caller: &str, trouble: Trouble, percent: u64, until: Duration) {
        self.state.lock().troubles.entry(caller.to_owned()).or_default().push((trouble, percent, until));
    }

    /// Ends the cuts of a caller.
    pub(crate) fn reconnect(&self, caller: &str) {
        let mut state = self.state.lock();
        state.cut.remove(caller);
        state.cut_from.retain(|(cut, _), _| cut != caller);
    }

    /// Ends all faults.
    pub(crate) fn heal(&self) {
        let mut state = self.state.lock();
        state.cut.clear();
        state.cut_from.clear();
        state.troubles.clear();
    }
}

impl Conduct for Links {
    fn course(&self, server: &str, asked: &ApiRequest) -> Course {
        let now = self.checker.now();
        let mut state = self.state.lock();
        let number = match state.sent.get_mut(&*asked.caller) {
            Some(sent) => {
                *sent += 1;
                *sent
            }
            None => {
                state.sent.insert(asked.caller.to_string(), 1);
                1
            }
        };
        let draw = |purpose: &str, bound: u64| self.chance.below(bound, &asked.caller, purpose, number);
        let span = |purpose: &str| Duration::from_millis(1 + draw(purpose, 4));
        let mut course = Course {
            before: span("there"),
            after: span("back"),
            fate: Fate::Deliver,
            reset: draw("reset", 2) == 0,
            sent: Some(now),
        };
        // The processes of one replica share its link.
        let place = asked.caller.split('.').next().unwrap_or_default();
        if state.is_cut(now, place, server) {
            course.fate = Fate::DropBefore;
            course.reset = draw("reset", 4) == 0;
            return course;
        }
        let troubles = state.troubles.get(place).map(Vec::as_slice).unwrap_or_default();
        for (index, (trouble, percent, until)) in troubles.iter().enumerate() {
            if now >= *until || draw(&format!("trouble {index}"), 100) >= *percent {
                continue;
            }
            match trouble {
                Trouble::LoseAnswer => course.fate = Fate::ApplyThenLoseAnswer,
                Trouble::CutAnswer => course.fate = Fate::CutAnswer,
                Trouble::DropRequest => course.fate = Fate::DropBefore,
                Trouble::Error(code) => course.fate = Fate::Error(*code),
                Trouble::Delay(milliseconds) => {
                    course.before += Duration::from_millis(draw("delay", *milliseconds + 1))
                }
            }
            self.checker.probe(&format!("request met: {}", trouble.name()));
        }
        course
    }

    fn between(&self, _server: &str, asked: &ApiRequest) -> Duration {
        let revision = self.etcd.get().map_or(0, |etcd| etcd.revision());
        let draw = |purpose: &str, bound: u64| self.chance.below(bound, &asked.caller, purpose, revision);
        // Now and then a request takes long: a webhook, a slow etcd.
        let most = if draw("slow", 10) == 0 { 1_000 } else { 10 };
        Duration::from_millis(1 + draw("between", most))
    }

    fn executed(&self, _server: &str, asked: &ApiRequest, code: u16, revision_before: u64) {
        let Some(etcd) = self.etcd.get() else { return };
        let changes = if etcd.revision() == revision_before { Vec::new() } else { etcd.changes_after(revision_before) };
        self.checker.executed(asked, code, &changes);
    }
}
