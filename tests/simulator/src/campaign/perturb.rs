//! Exhaustive perturbation: one strike at every call and every event of a scenario, of every kind that fits there, each
//! in a run of its own.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::plan::{Fault, Plan};
use super::scenarios::Scenario;
use crate::world::{Blow, Moment, Occasion, Strike, Subject, recorded, run_with_strike};

/// A standby waits this long after a leader's last renewal, and a second.
const LEASE_AND_MORE: u64 = 16;
/// Longer than any run: until the faults end.
const THE_REST: u64 = 600;
/// A jump of a wall clock: two seconds, a lease, an hour, a year.
const JUMPS: [i64; 4] = [2, 15, 3_600, 31_536_000];
/// A clock jumps or a link is cut only at every such event: the effect hardly differs between neighbouring events.
const COARSE: usize = 5;
/// How many broken runs are printed: more than that have one cause.
const SHOWN: usize = 40;

/// A run that broke a rule or differed from its reference.
#[derive(Clone, Debug)]
pub struct Broken {
    /// Its scenario.
    pub scenario: &'static str,
    /// Its strike.
    pub strike: Strike,
    /// The broken rules.
    pub what: Vec<String>,
}

/// The result of perturbing scenarios.
#[derive(Debug, Default)]
pub struct Perturbed {
    /// How many runs there were, by family.
    pub families: BTreeMap<&'static str, u64>,
    /// How many runs there were, by scenario.
    pub scenarios: BTreeMap<&'static str, u64>,
    /// How many there would be without the slice.
    pub all: usize,
    /// Runs whose beginning was not that of their reference.
    pub diverged: Vec<Broken>,
    /// Runs that broke a rule.
    pub broken: Vec<Broken>,
}

impl std::fmt::Display for Perturbed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let done: u64 = self.families.values().sum();
        let (diverged, broken) = (self.diverged.len(), self.broken.len());
        writeln!(f, "{done} of {} strikes, {diverged} diverged before their strike, {broken} broke a rule", self.all)?;
        for (name, count) in self.families.iter().chain(&self.scenarios) {
            writeln!(f, "  {count:>8}  {name}")?;
        }
        for Broken { scenario, strike, what } in self.broken.iter().chain(&self.diverged).take(SHOWN) {
            let strike = serde_json::to_string(strike).unwrap_or_default();
            writeln!(f, "  {scenario:?} {strike:?}: {what:?}")?;
        }
        Ok(())
    }
}

/// Which strikes a reference run offers.
type Offers = fn(&Scenario, &[Moment]) -> Vec<(&'static str, Strike, u64)>;

/// Strikes at every moment of every scenario. Every `each`th strike is carried out; one means all.
#[must_use]
pub fn perturb(scenarios: &[Scenario], subject: Subject, each: usize) -> Perturbed {
    strike_at(scenarios, subject, each, strikes)
}

/// Strikes at every write of every scenario, with every fault of a call and with everything that can happen to the rest
/// of the world meanwhile; every `each`th is carried out.
#[must_use]
pub fn perturb_writes(scenarios: &[Scenario], subject: Subject, each: usize) -> Perturbed {
    strike_at(scenarios, subject, each, strikes_at_writes)
}

fn strike_at(scenarios: &[Scenario], subject: Subject, each: usize, offers: Offers) -> Perturbed {
    let (mut jobs, mut tally) = (Vec::new(), Perturbed::default());
    for scenario in scenarios {
        let (outcome, moments) = recorded(&scenario.plan, subject);
        if !outcome.violations.is_empty() {
            let strike = Strike { replica: 0, occasion: Occasion::Call, number: 0, blow: Blow::Drop };
            let what = outcome.violations.iter().map(|violation| format!("without a strike: {violation:?}"));
            tally.broken.push(Broken { scenario: scenario.name, strike, what: what.collect() });
        }
        for (family, strike, hash) in offers(scenario, &moments) {
            jobs.push((scenario, family, strike, hash));
        }
    }
    tally.all = jobs.len();
    let jobs: Vec<_> = jobs.into_iter().step_by(each.max(1)).collect();
    let (next, tally) = (AtomicUsize::new(0), Mutex::new(tally));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some((scenario, family, strike, hash)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (outcome, before) = run_with_strike(&scenario.plan, subject, strike);
                    let broken = |what| Broken { scenario: scenario.name, strike: strike.clone(), what };
                    let mut tally = tally.lock();
                    *tally.families.entry(family).or_default() += 1;
                    *tally.scenarios.entry(scenario.name).or_default() += 1;
                    if before != Some(*hash) {
                        tally.diverged.push(broken(vec![format!("{before:?} is not {hash}")]));
                    }
                    if !outcome.violations.is_empty() {
                        let what = outcome.violations.iter().map(|violation| format!("{violation:?}"));
                        tally.broken.push(broken(what.collect()));
                    }
                }
            });
        }
    });
    tally.into_inner()
}

/// Everything that can strike at the moments of a reference run.
fn strikes(scenario: &Scenario, moments: &[Moment]) -> Vec<(&'static str, Strike, u64)> {
    let mut counts: BTreeMap<(usize, bool), usize> = BTreeMap::new();
    let mut all = Vec::new();
    for moment in moments {
        let Moment { replica, occasion, at, hash, .. } = *moment;
        let counter = counts.entry((replica, occasion == Occasion::Call)).or_default();
        let number = *counter;
        *counter += 1;
        if !(scenario.from..scenario.until).contains(&at) {
            continue;
        }
        let blows = match occasion {
            Occasion::Call => at_call(scenario, moment),
            Occasion::Event => at_event(scenario, moment, number),
        };
        for (family, blow) in blows {
            all.push((family, Strike { replica, occasion, number, blow }, hash));
        }
    }
    all
}

/// At a write: every fault of a call, an outage of the API, and jumps of the clock.
fn strikes_at_writes(scenario: &Scenario, moments: &[Moment]) -> Vec<(&'static str, Strike, u64)> {
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    let mut all = Vec::new();
    for moment in moments.iter().filter(|moment| moment.occasion == Occasion::Call) {
        let Moment { replica, occasion, at, hash, .. } = *moment;
        let counter = counts.entry(replica).or_default();
        let number = *counter;
        *counter += 1;
        if !moment.of_weight || !(scenario.from..scenario.until).contains(&at) {
            continue;
        }
        let mut blows = at_call(scenario, moment);
        for answers_lost in [false, true] {
            let cut = |server| Fault::CutServer { server, answers_lost, seconds: 20 };
            let outage = (0..scenario.plan.servers).map(cut).collect();
            blows.push(("no API server reaches etcd", Blow::Meanwhile(outage)));
        }
        for seconds in [3_600, -3_600] {
            let jump = Fault::JumpReplica { replica, seconds };
            blows.push(("clock of a process jumps", Blow::Meanwhile(vec![jump])));
        }
        // The process is cut off except for the request at hand, and another one may lead meanwhile.
        for seconds in [5, LEASE_AND_MORE + 4] {
            let cut = Fault::CutReplica { replica, seconds };
            blows.push(("link process–API cut", Blow::Meanwhile(vec![cut])));
        }
        all.extend(blows.into_iter().map(|(family, blow)| (family, Strike { replica, occasion, number, blow }, hash)));
    }
    all
}

fn at_call(scenario: &Scenario, moment: &Moment) -> Vec<(&'static str, Blow)> {
    let mut blows = Vec::new();
    for back in [0, 15, LEASE_AND_MORE] {
        blows.push(("crash before a call is sent", Blow::CrashBefore { back }));
        if moment.write {
            blows.push(("crash after a call is sent, its answer lost", Blow::CrashSent { back }));
        }
        blows.push(("crash with the answer unread", Blow::CrashAnswered { back }));
    }
    blows.push(("answer: never arrived", Blow::Drop));
    blows.push(("answer: applied and lost", Blow::LoseAnswer));
    for code in [409, 429, 500, 503] {
        let family = if code < 500 { "answer: 409 or 429" } else { "answer: 500 or 503" };
        blows.push((family, Blow::Error { code }));
    }
    if moment.write {
        for seconds in [7, LEASE_AND_MORE, THE_REST] {
            blows.push(("pause with a write in hand", Blow::Pause { seconds }));
        }
        let others = (0..scenario.plan.replicas).filter(|other| *other != moment.replica);
        blows.extend(others.map(|replica| ("another leader wakes at a write", Blow::Wake { replica })));
    }
    blows
}

fn at_event(scenario: &Scenario, moment: &Moment, number: usize) -> Vec<(&'static str, Blow)> {
    let (plan, replica): (&Plan, usize) = (&scenario.plan, moment.replica);
    let server = replica % plan.servers.max(1);
    let meanwhile = |faults: Vec<Fault>| Blow::Meanwhile(faults);
    let mut blows = Vec::new();
    for seconds in [2, 60, THE_REST] {
        blows.push(("cache stale from an event on", meanwhile(vec![Fault::LagServer { server, seconds }])));
    }
    let restart = Fault::CrashReplica { replica, seconds: 0 };
    let lag = Fault::LagServer { server, seconds: 60 };
    blows.push(("restart at a server of the past", meanwhile(vec![lag, restart.clone()])));
    blows.push(("410 and a new list", meanwhile(vec![Fault::Forget, Fault::SwitchServer { replica }])));
    blows.push(("410 and a restart", meanwhile(vec![Fault::Forget, restart])));
    if !number.is_multiple_of(COARSE) {
        return blows;
    }
    for jump in JUMPS.into_iter().flat_map(|jump| [jump, -jump]) {
        blows.push(("clock of a process jumps", meanwhile(vec![Fault::JumpReplica { replica, seconds: jump }])));
        for node in 0..plan.nodes {
            blows.push(("clock of a node jumps", meanwhile(vec![Fault::JumpNode { node, seconds: jump }])));
        }
    }
    for seconds in [5, 20] {
        blows.push(("link process–API cut", meanwhile(vec![Fault::CutReplica { replica, seconds }])));
        for answers_lost in [false, true] {
            let cut = Fault::CutServer { server, answers_lost, seconds };
            blows.push(("link API–etcd cut", meanwhile(vec![cut])));
        }
        for node in 0..plan.nodes {
            blows.push(("link node–API cut", meanwhile(vec![Fault::CutNode { node, seconds }])));
        }
    }
    for node in 0..plan.nodes {
        for fault in [
            Fault::KillKubelet { node, seconds: 20 },
            Fault::Freeze { node, seconds: 45 },
            Fault::Reboot { node },
            Fault::PowerOff { node, back: None },
            Fault::DeleteNode { node },
            Fault::Taint { node },
        ] {
            blows.push(("a node event", meanwhile(vec![fault])));
        }
    }
    blows
}

/// A moment of a plan, for the windows of scenarios.
pub(super) const fn second(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
