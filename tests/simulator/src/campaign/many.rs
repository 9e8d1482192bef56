//! Runs of many seeds on all cores, and their results.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::draw::draw;
use super::plan::Plan;
use crate::checker::{Invariant, Violation};
use crate::world::{Outcome, Subject, run};

/// How many broken seeds are kept with their outcome.
const KEPT: usize = 5;

/// The results of many runs.
#[derive(Debug, Default)]
pub struct Tally {
    /// How many runs there were.
    pub seeds: u64,
    /// The simulated time of all of them.
    pub simulated: Duration,
    /// How often each probe was hit.
    pub probes: BTreeMap<String, u64>,
    /// The first seeds whose runs broke a rule.
    pub broken: BTreeMap<u64, Outcome>,
    /// The first violation of each broken seed.
    pub violations: BTreeMap<u64, Violation>,
    /// The first seed that broke each rule.
    pub first: BTreeMap<Invariant, u64>,
}

impl Tally {
    fn add(&mut self, seed: u64, outcome: Outcome) {
        self.seeds += 1;
        self.simulated += outcome.simulated;
        for (name, count) in &outcome.probes {
            *self.probes.entry(name.clone()).or_default() += count;
        }
        for violation in &outcome.violations {
            let first = self.first.entry(violation.invariant).or_insert(seed);
            *first = seed.min(*first);
        }
        if let Some(violation) = outcome.violations.first() {
            self.violations.insert(seed, violation.clone());
            if self.broken.len() < KEPT {
                self.broken.insert(seed, outcome);
            }
        }
    }
}

impl Tally {
    /// The speed of the runs, which took `took`.
    #[must_use]
    pub fn pace(&self, took: Duration) -> String {
        let took = took.as_secs_f64().max(0.001);
        let (seeds, simulated) =
            (f64::from(u32::try_from(self.seeds).unwrap_or(u32::MAX)), self.simulated.as_secs_f64());
        format!(
            "{:.0} s on {} threads: {:.1} seeds/s, {:.1} simulated hours/s, or {:.1} seeds/s of 15 simulated minutes",
            took,
            threads(),
            seeds / took,
            simulated / 3600.0 / took,
            simulated / 900.0 / took
        )
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let hours = self.simulated.as_secs_f64() / 3600.0;
        writeln!(f, "{} seeds, {hours:.1} simulated hours, {} broken", self.seeds, self.violations.len())?;
        for (seed, Violation { at, invariant, what, .. }) in &self.violations {
            writeln!(f, "  seed {seed} at {:.3}s: {invariant}: {what}", at.as_secs_f64())?;
        }
        self.probes.iter().try_for_each(|(name, count)| writeln!(f, "  {count:>8}  {name}"))
    }
}

/// Runs the seeds on all cores while `go_on` allows it, each thread taking the next seed.
fn each(seeds: Range<u64>, subject: Subject, go_on: &(dyn Fn() -> bool + Sync), done: &(dyn Fn(u64, Outcome) + Sync)) {
    let next = AtomicU64::new(seeds.start);
    std::thread::scope(|scope| {
        for _ in 0..threads() {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || !go_on() {
                        break;
                    }
                    done(seed, run(&draw(seed), subject));
                }
            });
        }
    });
}

/// How many simulations run at once: one on each core.
#[must_use]
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Runs all seeds.
#[must_use]
pub fn campaign(seeds: Range<u64>, subject: Subject) -> Tally {
    campaign_while(seeds, subject, &|| true)
}

/// Runs seeds while `go_on` allows it.
#[must_use]
pub fn campaign_while(seeds: Range<u64>, subject: Subject, go_on: &(dyn Fn() -> bool + Sync)) -> Tally {
    let tally = Mutex::new(Tally::default());
    each(seeds, subject, go_on, &|seed, outcome| tally.lock().add(seed, outcome));
    tally.into_inner()
}

/// The first seed that breaks this rule, with the number of seeds that were run and its outcome.
#[must_use]
pub fn first_seed_that_breaks(invariant: Invariant, seeds: Range<u64>, subject: Subject) -> Option<(u64, Outcome)> {
    let (found, stop) = (Mutex::new(BTreeMap::new()), AtomicBool::new(false));
    each(seeds, subject, &|| !stop.load(Ordering::Relaxed), &|seed, outcome| {
        if outcome.broke(invariant) {
            stop.store(true, Ordering::Relaxed);
            found.lock().insert(seed, outcome);
        }
    });
    found.into_inner().pop_first()
}

/// Runs a plan twice; `Err` has both hashes.
///
/// # Errors
/// The runs differ.
pub fn same_twice(plan: &Plan, subject: Subject) -> Result<u64, (u64, u64)> {
    let (first, second) = (run(plan, subject).hash, run(plan, subject).hash);
    if first == second { Ok(first) } else { Err((first, second)) }
}

/// A report of a run: its plan, the broken rules, the timeline, and how to repeat the run.
#[must_use]
pub fn report(plan: &Plan, outcome: &Outcome) -> String {
    let mut text = String::new();
    let seed = plan.seed;
    let _written = writeln!(text, "seed {seed}: {}", serde_json::to_string(plan).unwrap_or_default());
    for violation in &outcome.violations {
        let _written =
            writeln!(text, "  {:>9.3}s  {}: {}", violation.at.as_secs_f64(), violation.invariant, violation.what);
    }
    let _written = writeln!(text, "what happened:");
    for (at, what) in &outcome.timeline {
        let _written = writeln!(text, "  {:>9.3}s  {what}", at.as_secs_f64());
    }
    let _written =
        writeln!(text, "again: POD_SAFETY_SEED={seed} cargo test -p pod-safety-simulator --test suite campaign::");
    text
}
