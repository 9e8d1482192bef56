//! Campaigns for a given time, and what is committed of them.
//!
//! ```text
//! campaign                  seeds for MINUTES (10), from SEED (drawn), 0 violations or exit code 1
//! campaign perturb          a strike at every call and event of every scenario (EACH=1)
//! campaign teeth            measures all planted bugs and writes tests/records/planted-bugs.md
//! campaign caught BUG...    measures these bugs, the rare ones too, and writes nothing
//! campaign guilty           minimises what the baselines broke, into tests/simulator/corpus
//! campaign plants [NAMES]   minimises what the planted bugs broke, into tests/simulator/corpus
//! campaign minimise SEED [SUBJECT]
//! campaign plan FILE        a plan as `minimise` prints it, with what happened
//! campaign strike SCENARIO STRIKE   one of those that `perturb` prints, with what happened
//! campaign seeds FROM TO    these seeds, with what happened in the first that broke a rule
//! ```

#[path = "../tests/suite/allocator/mod.rs"]
mod allocator;
#[path = "../tests/suite/files/mod.rs"]
mod files;
#[path = "../tests/suite/memory/mod.rs"]
mod memory;
#[path = "../tests/suite/shipped/mod.rs"]
mod shipped;
#[path = "../tests/suite/teeth/mod.rs"]
mod teeth;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use files::{corpus, page_of};
use memory::{memory, memory_line};
use pod_safety_shared::clock::Env;
use pod_safety_simulator::campaign::{
    Entry, Extras, Fault, Plan, Plant, Scenario, campaign, campaign_while, draw, fenced, first_seed_that_breaks,
    guarded, minimise, page, perturb, report, scenarios, subject, threads,
};
use pod_safety_simulator::checker::Invariant;
use pod_safety_simulator::world::{Strike, Subject, run, run_with_strike};
use shipped::SHIPPED;
use teeth::teeth;

/// The seeds in which violations of baselines and planted bugs are searched.
const SEEDS: u64 = 200;
/// How many seeds are searched for a plan of the corpus: some bugs need rare draws.
const SEEDS_FOR_PLANS: u64 = 4_000;
/// A plan with more faults than this is not worth a page.
const FAULTS: usize = 5;

fn print_line(text: &str) {
    let _written = writeln!(std::io::stdout(), "{text}");
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match args.as_slice() {
        [] => Ok(for_a_time()),
        ["perturb"] => Ok(all_strikes()),
        ["teeth"] => measure_teeth(),
        ["guilty"] => commit_guilty(),
        ["plants", names @ ..] => commit_plants(names),
        ["minimise", seed, rest @ ..] => minimise_one(seed, rest.first().copied().unwrap_or("shipped")),
        ["plan", file] => run_plan(file),
        ["strike", scenario, strike] => run_strike(scenario, strike),
        ["caught", names @ ..] => measure(names),
        ["seeds", from, to] => Ok(run_seeds(from.parse()?, to.parse()?)),
        _ => bail!("what is {args:?}? See the head of examples/campaign.rs"),
    }
}

/// A seed that differs every day.
fn some_seed() -> u64 {
    let wall = Env::real(1).clock.wall();
    u64::try_from(wall.as_millisecond()).unwrap_or(0) % 1_000_000_000
}

fn for_a_time() -> ExitCode {
    let minutes = number("MINUTES").unwrap_or(10);
    let start = number("SEED").unwrap_or_else(some_seed);
    print_line(&format!("from seed {start} (SEED={start} runs them again), for {minutes} minutes"));
    let (clock, before) = (Env::real(0), memory("VmRSS:"));
    let began = clock.now();
    let end = began + Duration::from_secs(minutes * 60);
    let tally = campaign_while(start..u64::MAX, SHIPPED, &|| clock.now() < end);
    print_line(&format!("{tally}{}\n{}", tally.pace(clock.now().since(began)), memory_line(before, threads())));
    for (seed, outcome) in &tally.broken {
        let Some(first) = outcome.violations.first() else { continue };
        let Some(smallest) = minimise(&draw(*seed), SHIPPED, first.invariant) else { continue };
        print_line(&report(&smallest.plan, &smallest.outcome));
        print_line(&page(
            &format!("seed {seed}, minimised"),
            &smallest.plan,
            &smallest.outcome,
            &first.invariant.to_string(),
        ));
    }
    if tally.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_seeds(from: u64, to: u64) -> ExitCode {
    let clock = Env::real(0);
    let began = clock.now();
    let tally = campaign(from..to, SHIPPED);
    print_line(&format!("{tally}{}", tally.pace(clock.now().since(began))));
    for (seed, outcome) in &tally.broken {
        print_line(&report(&draw(*seed), outcome));
    }
    if tally.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn all_scenarios() -> Vec<Scenario> {
    scenarios().into_iter().chain(fenced()).chain(guarded()).collect()
}

fn run_strike(name: &str, strike: &str) -> Result<ExitCode> {
    let scenario = all_scenarios().into_iter().find(|scenario| scenario.name == name);
    let scenario = scenario.with_context(|| format!("there is no scenario {name:?}"))?;
    let strike: Strike = serde_json::from_str(strike).context("it is no strike")?;
    let (outcome, _) = run_with_strike(&scenario.plan, SHIPPED, &strike);
    print_line(&report(&scenario.plan, &outcome));
    Ok(if outcome.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn all_strikes() -> ExitCode {
    let clock = Env::real(0);
    let began = clock.now();
    let each = usize::try_from(number("EACH").unwrap_or(1)).unwrap_or(1);
    let tally = perturb(&all_scenarios(), SHIPPED, each);
    print_line(&format!("{tally}{:.0} s on {} threads", clock.now().since(began).as_secs_f64(), threads()));
    if tally.broken.is_empty() && tally.diverged.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn minimise_one(seed: &str, name: &str) -> Result<ExitCode> {
    let plan = draw(seed.parse().context("a seed is a number")?);
    let subject = subject(name, shipped::launch).context("no such subject")?;
    let outcome = run(&plan, subject);
    let Some(first) = outcome.violations.first() else {
        print_line("it breaks nothing");
        return Ok(ExitCode::SUCCESS);
    };
    let smallest = minimise(&plan, subject, first.invariant).context("it broke once and not again")?;
    print_line(&format!("{} runs: {}", smallest.runs, serde_json::to_string_pretty(&smallest.plan)?));
    print_line(&page(name, &smallest.plan, &smallest.outcome, &first.invariant.to_string()));
    Ok(ExitCode::FAILURE)
}

fn run_plan(file: &str) -> Result<ExitCode> {
    let plan: Plan = serde_json::from_str(&std::fs::read_to_string(file)?).context("it is no plan")?;
    let outcome = run(&plan, SHIPPED);
    print_line(&report(&plan, &outcome));
    Ok(if outcome.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Writes an entry's file, and its page if it is one of a baseline.
fn write_entry(name: &str, entry: &Entry) -> Result<()> {
    let text = serde_json::to_string_pretty(entry)? + "\n";
    std::fs::write(corpus().join(format!("{name}.json")), text)?;
    if name.starts_with("guilty-") {
        let page = page_of(entry, shipped::launch).context("it breaks nothing")?;
        std::fs::write(corpus().join(format!("{name}.txt")), page)?;
    }
    Ok(())
}

/// The short name of a rule: `S1`, `L1`.
fn short(invariant: Invariant) -> String {
    format!("{invariant:?}").to_lowercase()
}

fn commit_guilty() -> Result<ExitCode> {
    for name in ["kcm", "script"] {
        let subject = subject(name, shipped::launch).context("a baseline")?;
        let tally = campaign(0..SEEDS, subject);
        print_line(&format!("{name}: {} of {} seeds broke a rule", tally.violations.len(), tally.seeds));
        for (invariant, seed) in &tally.first {
            // The script has no budgets of its own.
            if name == "script" && matches!(invariant, Invariant::Budget | Invariant::Refused) {
                continue;
            }
            let Some(smallest) = minimise(&draw(*seed), subject, *invariant) else { continue };
            let faults = smallest.plan.faults.len();
            print_line(&format!(
                "{name}: {invariant} first at seed {seed}, {faults} faults after {} runs",
                smallest.runs
            ));
            let expect =
                BTreeMap::from([("shipped".to_owned(), Vec::new()), (name.to_owned(), vec![invariant.to_string()])]);
            let why = format!("{name} breaks {invariant}: the first seed that shows it is {seed}, minimised.");
            let entry = Entry { why, plan: smallest.plan, strike: None, expect };
            let surprises = entry.surprises(shipped::launch);
            if faults > FAULTS || !surprises.is_empty() {
                print_line(&format!("not committed: {surprises:?}"));
                continue;
            }
            write_entry(&format!("guilty-{name}-{}", short(*invariant)), &entry)?;
        }
    }
    commit_forced_detach()?;
    Ok(ExitCode::SUCCESS)
}

/// Drawn faults end before six minutes have passed: this plan is not drawn.
fn commit_forced_detach() -> Result<()> {
    let plan = Plan {
        heal_at: 520,
        with: Extras { attached_volumes: true, ..Extras::default() },
        faults: vec![(30, Fault::CutNode { node: 0, seconds: 1_000 }), (35, Fault::DeleteNode { node: 0 })],
        ..draw(3)
    };
    let (name, rule) = ("kcm", Invariant::Storage);
    let kcm = subject(name, shipped::launch).context("a baseline")?;
    let smallest = minimise(&plan, kcm, rule).context("the forced detach broke nothing")?;
    print_line(&format!("forced detach: {} faults after {} runs", smallest.plan.faults.len(), smallest.runs));
    let why = "kcm detaches a volume by force six minutes after its pod was removed, and two nodes write to it.";
    let expect = BTreeMap::from([("shipped".to_owned(), Vec::new()), (name.to_owned(), vec![rule.to_string()])]);
    let entry = Entry { why: why.to_owned(), plan: smallest.plan, strike: None, expect };
    write_entry("guilty-kcm-forceddetach", &entry)
}

/// Of the named bugs, or of all.
fn commit_plants(names: &[&str]) -> Result<ExitCode> {
    let is_requested = |plant: &Plant| names.is_empty() || names.contains(&format!("{plant:?}").as_str());
    let plants = Plant::ALL.into_iter().filter(|(plant, _)| is_requested(plant)).collect::<Vec<_>>();
    let plants = parking_lot::Mutex::new(plants);
    let next = || plants.lock().pop();
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads())
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    while let Some((plant, invariant)) = next() {
                        commit_plant(plant, invariant)?;
                    }
                    Ok(())
                })
            })
            .collect();
        running.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow::anyhow!("a thread died"))?)
    })?;
    Ok(ExitCode::SUCCESS)
}

fn commit_plant(plant: Plant, invariant: Invariant) -> Result<()> {
    let subject = Subject::Shipped(shipped::launch, Some(plant));
    let Some((seed, _)) = first_seed_that_breaks(invariant, 0..SEEDS_FOR_PLANS, subject) else {
        print_line(&format!("{plant:?}: not found in {SEEDS_FOR_PLANS} seeds"));
        return Ok(());
    };
    let smallest = minimise(&draw(seed), subject, invariant).context("it broke once and not again")?;
    let faults = smallest.plan.faults.len();
    print_line(&format!("{plant:?}: {invariant} at seed {seed}, {faults} faults after {} runs", smallest.runs));
    let expect = BTreeMap::from([
        ("shipped".to_owned(), Vec::new()),
        (format!("shipped with {plant:?}"), vec![invariant.to_string()]),
    ]);
    let entry = Entry { why: plant.what().to_owned(), plan: smallest.plan, strike: None, expect };
    write_entry(&corpus_entry(plant), &entry)
}

const TEETH: &str = "# Planted bugs

Each bug below is planted into the shipped process, at the seam below its client or by its settings; no product code knows of it.
[`plant.rs`](../simulator/src/campaign/plant.rs) says what each does. It counts as caught when the rule that names it ([the rules](../../docs/simulator.md#the-rules)) is broken. The
clean tree breaks no rule on the same seeds, nor on the smallest plan of each bug (`plant-*.json` of [the corpus](../simulator/corpus)).

Behind each name: the seeds to detection, from seed 0. `plan`: 200 seeds do not show it, and its plan in the corpus does; the number beside it counts the seeds to the
drawn plan of which that is the smallest, and without one it was made by hand. `cargo run -p pod-safety-simulator --example campaign -- teeth` writes this page.
`make test` fails when a bug is missing here, or takes more than four times as many seeds, and forty.

";

fn measure(names: &[&str]) -> Result<ExitCode> {
    for (plant, invariant) in Plant::ALL {
        if names.contains(&format!("{plant:?}").as_str()) {
            let subject = Subject::Shipped(shipped::launch, Some(plant));
            let found = first_seed_that_breaks(invariant, 0..SEEDS_FOR_PLANS, subject);
            print_line(&format!("{plant:?}: {invariant}: {:?}", found.map(|(seed, _)| seed + 1)));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Two rare events in one plan are not drawn often; the corpus records in which seed they were.
fn in_corpus(plant: Plant, invariant: Invariant) -> Result<Option<String>> {
    let Ok(text) = std::fs::read(corpus().join(format!("{}.json", corpus_entry(plant)))) else {
        return Ok(None);
    };
    let seed = serde_json::from_slice::<Entry>(&text)?.plan.seed;
    let drawn = run(&draw(seed), Subject::Shipped(shipped::launch, Some(plant)));
    Ok(Some(if drawn.broke(invariant) { format!("plan {}", seed + 1) } else { "plan".to_owned() }))
}

/// The name of a bug's plan in the corpus.
fn corpus_entry(plant: Plant) -> String {
    format!("plant-{}", format!("{plant:?}").to_lowercase())
}

fn measure_teeth() -> Result<ExitCode> {
    let (mut by_rule, mut missed) = (BTreeMap::<String, Vec<String>>::new(), Vec::new());
    for (plant, invariant) in Plant::ALL {
        let subject = Subject::Shipped(shipped::launch, Some(plant));
        let found = first_seed_that_breaks(invariant, 0..SEEDS, subject);
        print_line(&format!("{plant:?}: {invariant}: {:?}", found.as_ref().map(|(seed, _)| seed + 1)));
        let seeds = match found {
            Some((seed, _)) => Some((seed + 1).to_string()),
            None => in_corpus(plant, invariant)?,
        };
        match seeds {
            Some(seeds) => {
                by_rule.entry(invariant.to_string()).or_default().push(format!("`{plant:?}` {seeds}"));
            }
            None => missed.push(plant),
        }
    }
    if !missed.is_empty() {
        bail!("not caught within {SEEDS} seeds: {missed:?}");
    }
    let rules: Vec<_> = by_rule.iter().map(|(rule, bugs)| format!("- {rule}: {}\n", bugs.join(", "))).collect();
    std::fs::write(teeth(), TEETH.to_owned() + &rules.concat())?;
    Ok(ExitCode::SUCCESS)
}
