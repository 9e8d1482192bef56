//! The referee: it watches processes, requests and what they change, and knows
//! what the controllers under test cannot know.
//!
//! | file | invariants |
//! |---|---|
//! | `processes` | S1: at most one process with write access per identity; the ledger of ground truth |
//! | `effects` | what one change did to a pod |
//! | `audience` | no rule: what happens, in words for people who watch |
//! | `acts` | S2, S4, S5, S6, S11: what is changed, with which evidence, and of which UID |
//! | `requests` | S12, S13: how requests look, and how many there are |
//! | `leaders` | S9: who may write when, judged when it is sent and when it is applied |
//! | `alive` | S18, S19: nobody is released whose kubelet is there to be heard |
//! | `open` | the rules that today's tree is known to break |
//! | `budgets`, `evictions` | S7, L5: what disruption budgets let through and refuse |
//! | `lifecycle` | S20, S21, L13: requests to evict pods, and what becomes of them |
//! | `taints` | S14, L10: who ends for a taint, and when |
//! | `nodes` | S15, S16, L6, L11: which nodes are called lost, when, and for how long |
//! | `fences` | S10, L2, L3: who is switched off, by which intent, and what is made of it |
//! | `storage` | S8: at most one writer per volume |
//! | `presence` | no rule: how long pods could not be reached, and how long two copies wrote |
//! | `volumes` | S17, L12: whose an exclusive volume is |
//! | `liveness` | L1, L7, L9: what is proved gone is removed in time, what is not has a reason |
//! | `shown` | what the processes under test show of what they leave alone |
//! | `twins` | S3: what a process under test saw and did, to compare with another run |
//! | `probes` | what must happen sometimes, and how often |
//! | `rest` | L4, L8: the end of a run is quiet, and outlives its leader |
//!
//! Everything is checked when it happens. The same events give the same
//! `Checker::hash`, which is how two runs of one seed are compared.

mod acts;
mod alive;
mod audience;
mod budgets;
mod effects;
mod evictions;
mod fences;
mod leaders;
mod lifecycle;
mod liveness;
mod nodes;
mod presence;
mod probes;
mod processes;
mod requests;
mod rest;
mod shown_holds;
mod storage;
mod taints;
mod twins;
mod volumes;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

pub use audience::{News, Tone};
use parking_lot::{Mutex, MutexGuard};
pub use probes::unreached;
pub(crate) use rest::FAILOVER;
use tokio::time::Instant;
pub use twins::{Moment, first_difference};

pub(crate) use alive::Assumption;
pub(crate) use budgets::desired as healthy_of;
pub(crate) use fences::{Answered, Touched};
pub(crate) use leaders::{gives_back, is_guarded};
pub use presence::{Longest, Presence};
pub(crate) use requests::Outstanding;
pub(crate) use shown_holds::Shown;
pub(crate) use volumes::Owned;

/// A rule that no run may break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// S1: at most one process with write access per identity.
    AtMostOne,
    /// S2: what takes a pod's name away rests on evidence that is true.
    Evidence,
    /// S4: no effect on an object of another UID than the one decided on.
    Identity,
    /// S5: grace is never lengthened, and never shortened without evidence.
    Grace,
    /// S6: what was meant gracefully removes nothing at once.
    Graceful,
    /// S7: no more is disrupted than a budget allows.
    Budget,
    /// S8: at most one writer per volume.
    Storage,
    /// S9: nobody writes after the end of its term.
    Term,
    /// S10: nobody is switched off but by a written intent, and nothing is proved but by looks.
    Fence,
    /// S11: an end stays an end, and conditions are true.
    Truth,
    /// S12: how requests must look.
    Hygiene,
    /// S13: no panic.
    NoPanic,
    /// S13: no request without end or number.
    HotLoop,
    /// S14: nobody is asked to end for a taint that it bears still.
    Tolerance,
    /// S15: nobody who is heard is called lost.
    Heard,
    /// S16: what says that a node is lost stays until it is heard.
    Kept,
    /// S17: an exclusive volume is one life's at a time, until that has ended.
    Owner,
    /// S18: no pod is released for want of its Node while its kubelet speaks with an API server.
    Connected,
    /// S19: no pod is released by the word of a device while its kubelet renews its Lease.
    Renewing,
    /// S20: a request or an Eviction ends only as it did.
    Verdict,
    /// S21: one Eviction of a pod goes on, and one responder has its turn until that is over.
    Turn,
    /// L1: what is proved gone is removed in time.
    Liveness,
    /// L2: what fencing proved is made use of at once.
    Released,
    /// L3: an incident comes to its end, and what is proved is used.
    Ended,
    /// L4: when all is well, what can run runs, and stays.
    Rest,
    /// L5: what a budget allows is not refused for its sake.
    Refused,
    /// L6: a node that is heard again is free in time.
    Recovered,
    /// L7: a pod that waits for its end without a proof is shown.
    Stuck,
    /// L8: a leader that died is replaced in time.
    Failover,
    /// L9: what cannot be proved is reported.
    Reported,
    /// L10: whoever bears a taint no longer is asked to end in time.
    Evicted,
    /// L11: a node that is silent is called lost in time, and given up in its turn.
    Lost,
    /// L12: no volume is held, and no pod waits for one, without a reason.
    Free,
    /// L13: no request to evict a pod waits without a reason.
    Answered,
    /// The simulator itself does not know what to do.
    Simulator,
}

impl std::fmt::Display for Invariant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::AtMostOne => "S1 at most one",
            Self::Evidence => "S2 evidence",
            Self::Identity => "S4 identity",
            Self::Grace => "S5 grace",
            Self::Graceful => "S6 graceful",
            Self::Budget => "S7 budget",
            Self::Storage => "S8 storage",
            Self::Term => "S9 term",
            Self::Fence => "S10 fence",
            Self::Truth => "S11 truth",
            Self::Hygiene => "S12 hygiene",
            Self::NoPanic => "S13 no panic",
            Self::HotLoop => "S13 no hot loop",
            Self::Tolerance => "S14 tolerance",
            Self::Heard => "S15 heard",
            Self::Kept => "S16 kept",
            Self::Owner => "S17 owner",
            Self::Connected => "S18 connected",
            Self::Renewing => "S19 renewing",
            Self::Verdict => "S20 verdict",
            Self::Turn => "S21 turn",
            Self::Liveness => "L1 liveness",
            Self::Released => "L2 released",
            Self::Ended => "L3 ended",
            Self::Rest => "L4 rest",
            Self::Refused => "L5 refused",
            Self::Recovered => "L6 recovered",
            Self::Stuck => "L7 stuck",
            Self::Failover => "L8 failover",
            Self::Reported => "L9 reported",
            Self::Evicted => "L10 evicted",
            Self::Lost => "L11 lost",
            Self::Free => "L12 free",
            Self::Answered => "L13 answered",
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
    /// The same in words for people who watch.
    pub plain: String,
}

/// What a run came to.
pub(crate) struct Findings {
    pub(crate) violations: Vec<Violation>,
    pub(crate) timeline: Vec<(Duration, String)>,
    pub(crate) news: Vec<News>,
    pub(crate) probes: BTreeMap<String, u64>,
    pub(crate) tape: Vec<Moment>,
    /// How often each rule was broken; `violations` keeps the first few.
    pub(crate) broken: BTreeMap<Invariant, u64>,
}

/// What the controllers under test were promised to wait for, and must.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promise {
    /// Between the two reads of a missing node.
    pub(crate) quarantine: Duration,
    /// Terminated pods that are left alone.
    pub(crate) terminated_threshold: usize,
    /// From the last renewal that was sent and answered to the last write.
    pub(crate) renew_deadline: Duration,
}

#[derive(Debug, Default)]
struct State {
    violations: Vec<Violation>,
    timeline: Vec<(Duration, String)>,
    news: Vec<News>,
    /// What people were told of broken rules.
    announced_violations: BTreeSet<String>,
    probes: BTreeMap<String, u64>,
    broken: BTreeMap<Invariant, u64>,
    hash: u64,
    processes: processes::Ledger,
    presence: presence::Presence,
    /// Since when nothing goes wrong any more.
    healed: Option<Duration>,
    acts: acts::Acts,
    budgets: budgets::Budgets,
    /// Evictions that were counted and are not through yet: UIDs by caller and path.
    spending: BTreeMap<(String, String), String>,
    /// The wall clock of a process under test jumped: entries expire when it says so.
    clocks_jumped: bool,
    storage: storage::Storage,
    taints: taints::Taints,
    nodes: nodes::Nodes,
    owners: volumes::Owners,
    alive: alive::KubeletReports,
    quarantine: Duration,
    fences: fences::Fences,
    tape: Vec<Moment>,
    keeps_tape: bool,
    requests: requests::Requests,
    leaders: leaders::Leaders,
    lifecycle: lifecycle::Lifecycle,
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
        let state = State { hash: 0xCBF2_9CE4_8422_2325, quarantine: promise.quarantine, ..State::default() };
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

    fn now_and_state(&self) -> (Duration, MutexGuard<'_, State>) {
        (self.now(), self.state.lock())
    }

    /// Something happened that whoever works on the simulator wants to read.
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

    /// Nothing goes wrong from now on.
    pub(crate) fn healed(&self) {
        let now = self.now();
        self.state.lock().healed = Some(now);
    }

    /// All that happened, as one number.
    pub(crate) fn hash(&self) -> u64 {
        self.state.lock().hash
    }

    /// What was found, what happened, and how often.
    pub(crate) fn findings(&self) -> Findings {
        let state = self.state.lock();
        let (violations, timeline) = (state.violations.clone(), state.timeline.clone());
        Findings {
            violations,
            timeline,
            news: state.news.clone(),
            probes: state.probes.clone(),
            tape: state.tape.clone(),
            broken: state.broken.clone(),
        }
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
        self.violated_of(now, invariant, None, what);
    }

    /// A rule about this object was broken.
    fn violated_of(&mut self, now: Duration, invariant: Invariant, of: Option<&str>, what: String) {
        let plain = invariant.broken(of);
        self.announce_violation(now, &plain);
        self.note(now, format!("VIOLATION {invariant}: {what}"));
        *self.broken.entry(invariant).or_default() += 1;
        let known = self.violations.iter().filter(|known| known.invariant == invariant).count();
        if known < VIOLATIONS_KEPT {
            self.violations.push(Violation { at: now, invariant, what, plain });
        }
    }

    /// FNV-1a over everything that happens.
    fn trace(&mut self, parts: &[&[u8]]) {
        for byte in parts.iter().copied().flatten() {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3);
        }
    }
}
