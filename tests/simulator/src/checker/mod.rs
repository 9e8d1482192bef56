//! The referee: it watches processes, requests and what they change, and knows
//! what the controllers under test cannot know.
//!
//! | file | invariants |
//! |---|---|
//! | `processes` | S1: at most one process with write access per identity; the ledger of ground truth |
//! | `acts` | S2, S4: what is removed, with which evidence, and of which UID |
//! | `requests` | S9, S12, S13: who may write when, and how requests look |
//! | `liveness` | L1: what is proved gone is removed in time, what is not has a reason |
//!
//! Everything is checked when it happens. The same events give the same
//! `Checker::hash`, which is how two runs of one seed are compared.

mod acts;
mod liveness;
mod processes;
mod requests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

pub use processes::Gap;

/// A rule that no run may break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// S1: at most one process with write access per identity.
    AtMostOne,
    /// S2: what takes a pod's name away rests on evidence that is true.
    Evidence,
    /// S4: no effect on an object of another UID than the one decided on.
    Identity,
    /// S9: nobody writes after the end of its term.
    Term,
    /// S12: how requests must look.
    Hygiene,
    /// S13: no panic.
    NoPanic,
    /// S13: no request without end or number.
    HotLoop,
    /// L1: what is proved gone is removed in time.
    Liveness,
    /// The simulator itself does not know what to do.
    Simulator,
}

impl std::fmt::Display for Invariant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::AtMostOne => "S1 at most one",
            Self::Evidence => "S2 evidence",
            Self::Identity => "S4 identity",
            Self::Term => "S9 term",
            Self::Hygiene => "S12 hygiene",
            Self::NoPanic => "S13 no panic",
            Self::HotLoop => "S13 no hot loop",
            Self::Liveness => "L1 liveness",
            Self::Simulator => "simulator",
        })
    }
}

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// When, since the start of the run.
    pub at: Duration,
    /// Which rule.
    pub invariant: Invariant,
    /// How.
    pub what: String,
}

/// What a run came to.
pub(crate) struct Findings {
    pub(crate) violations: Vec<Violation>,
    pub(crate) timeline: Vec<(Duration, String)>,
    pub(crate) probes: BTreeMap<String, u64>,
    /// How often each rule was broken; `violations` keeps the first few.
    pub(crate) broken: BTreeMap<Invariant, u64>,
}

/// What the controllers under test were promised to wait for, and must.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promise {
    /// Between the two reads of a missing node.
    pub(crate) quarantine: Duration,
    /// From the last renewal that was sent and answered to the last write.
    pub(crate) renew_deadline: Duration,
}

#[derive(Debug)]
struct State {
    violations: Vec<Violation>,
    timeline: Vec<(Duration, String)>,
    probes: BTreeMap<String, u64>,
    broken: BTreeMap<Invariant, u64>,
    hash: u64,
    processes: processes::Ledger,
    acts: acts::Acts,
    requests: requests::Requests,
}

/// The referee of one run.
#[derive(Debug)]
pub(crate) struct Checker {
    began: Instant,
    promise: Promise,
    state: Mutex<State>,
}

/// More than these of one invariant say nothing new.
const VIOLATIONS_KEPT: usize = 5;

impl Checker {
    #[expect(clippy::disallowed_methods, reason = "the clock of the world begins here")]
    pub(crate) fn new(promise: Promise) -> Arc<Self> {
        let state = State {
            violations: Vec::new(),
            timeline: Vec::new(),
            probes: BTreeMap::new(),
            broken: BTreeMap::new(),
            hash: 0xCBF2_9CE4_8422_2325,
            processes: processes::Ledger::default(),
            acts: acts::Acts::default(),
            requests: requests::Requests::default(),
        };
        Arc::new(Self { began: Instant::now(), promise, state: Mutex::new(state) })
    }

    /// Now, by the clock that no simulated host can see.
    #[expect(clippy::disallowed_methods, reason = "the clock of the world")]
    pub(crate) fn instant(&self) -> Instant {
        debug_assert!(tokio::runtime::Handle::try_current().is_ok(), "only inside of a simulation");
        Instant::now()
    }

    /// Time since the start of the run.
    pub(crate) fn now(&self) -> Duration {
        self.instant().duration_since(self.began)
    }

    /// Something happened that a person would want to read.
    pub(crate) fn note(&self, what: impl Into<String>) {
        let now = self.now();
        self.state.lock().note(now, what.into());
    }

    /// Something happened that should happen sometimes.
    pub(crate) fn probe(&self, name: &str) {
        self.state.lock().probe(name);
    }

    pub(crate) fn violated(&self, invariant: Invariant, what: impl Into<String>) {
        let now = self.now();
        self.state.lock().violated(now, invariant, what.into());
    }

    /// All that happened, as one number.
    pub(crate) fn hash(&self) -> u64 {
        self.state.lock().hash
    }

    /// What was found, what happened, and how often.
    pub(crate) fn findings(&self) -> Findings {
        let state = self.state.lock();
        let (violations, timeline) = (state.violations.clone(), state.timeline.clone());
        Findings { violations, timeline, probes: state.probes.clone(), broken: state.broken.clone() }
    }

    /// What happened after the first `known` lines of the timeline.
    pub(crate) fn news(&self, known: usize) -> Vec<(Duration, String)> {
        self.state.lock().timeline.get(known..).unwrap_or_default().to_vec()
    }

    /// The rules that were broken so far.
    pub(crate) fn violations(&self) -> Vec<Violation> {
        self.state.lock().violations.clone()
    }
}

impl State {
    fn note(&mut self, now: Duration, what: String) {
        self.trace(&[what.as_bytes(), &now.as_millis().to_le_bytes()]);
        self.timeline.push((now, what));
    }

    fn probe(&mut self, name: &str) {
        match self.probes.get_mut(name) {
            Some(count) => *count += 1,
            None => drop(self.probes.insert(name.to_owned(), 1)),
        }
    }

    fn violated(&mut self, now: Duration, invariant: Invariant, what: String) {
        self.note(now, format!("VIOLATION {invariant}: {what}"));
        *self.broken.entry(invariant).or_default() += 1;
        let known = self.violations.iter().filter(|known| known.invariant == invariant).count();
        if known < VIOLATIONS_KEPT {
            self.violations.push(Violation { at: now, invariant, what });
        }
    }

    /// FNV-1a over everything that happens.
    fn trace(&mut self, parts: &[&[u8]]) {
        for byte in parts.iter().copied().flatten() {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3);
        }
    }
}
