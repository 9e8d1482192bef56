//! Runs, for each mutant, the tests that reach it, those of its own module and the quickest first, until one fails.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::build::Program;
use crate::list::Mutant;

/// A run may take this much longer than its tests take without a mutant, in CPU time and in wall time. The slowest test takes two seconds.
pub(crate) const TIMEOUT_FACTOR: Duration = Duration::from_secs(20);
/// In wall time a run may take this many times as long as its tests take without a mutant: a busy machine slows them.
const BUSY: u32 = 20;
/// Kilobytes. A mutant that allocates without limit ends its own process and not the machine.
const MEMORY: u64 = 8 << 20;
/// Bytes. Unoptimised code needs more stack than the default of a thread.
const STACK: &str = "67108864";
/// Tests per process. One of the first few tests catches most mutants.
const BATCHES: [usize; 3] = [4, 16, 64];

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Verdict {
    Caught,
    ByTime,
    Missed,
}

/// The tests that reach a mutant with their durations without it, the quickest first.
pub(crate) type Reached = BTreeMap<usize, BTreeSet<(Duration, String)>>;

/// Runs each test alone, without a mutant, and has it write the mutants that it reaches into the file `path`. A test that fails then is
/// left out and reported.
///
/// # Errors
/// If the program cannot be started.
pub(crate) fn record(program: &Program, path: &Path) -> Result<Reached> {
    let mut reached = Reached::new();
    for test in tests(program)? {
        std::fs::write(path, "")?; // for a test that reaches none
        let start = Instant::now();
        let verdict = run(program, &[&test], TIMEOUT_FACTOR, ("MUTANTS_REACHED", &path.to_string_lossy()))?;
        if verdict != Verdict::Missed {
            eprintln!("left out, for it fails without a mutant: {test}");
            continue;
        }
        for number in std::fs::read_to_string(path)?.lines() {
            reached.entry(number.parse()?).or_default().insert((start.elapsed(), test.clone()));
        }
    }
    Ok(reached)
}

/// The verdict on each of `mutants`, with `jobs` of them at a time.
///
/// # Errors
/// If a program cannot be started.
pub(crate) fn judge_mutants(
    program: &Program,
    reached: &Reached,
    mutants: &[&Mutant],
    jobs: usize,
) -> Result<BTreeMap<usize, Verdict>> {
    let share = |worker| {
        let mut verdicts = BTreeMap::new();
        for mutant in mutants.iter().skip(worker).step_by(jobs) {
            verdicts.insert(mutant.number, judge_one(program, reached, mutant)?);
        }
        anyhow::Ok(verdicts)
    };
    let share = &share;
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|worker| scope.spawn(move || share(worker))).collect();
        let mut verdicts = BTreeMap::new();
        for worker in workers {
            verdicts.extend(worker.join().ok().context("a worker panicked")??);
        }
        Ok(verdicts)
    })
}

fn judge_one(program: &Program, reached: &Reached, mutant: &Mutant) -> Result<Verdict> {
    let mut tests: Vec<_> = reached.get(&mutant.number).into_iter().flatten().collect();
    tests.sort_by_key(|(_, test)| Reverse(shared_calls(&mutant.file, test)));
    let mut tests = tests.into_iter();
    for size in BATCHES.into_iter().chain(std::iter::repeat(usize::MAX)) {
        let batch: Vec<_> = tests.by_ref().take(size).collect();
        let took: Duration = batch.iter().map(|(took, _)| *took).sum();
        let names: Vec<_> = batch.iter().map(|(_, test)| test.as_str()).collect();
        if names.is_empty() {
            break;
        }
        let verdict = run(program, &names, took, ("MUTANT", &mutant.number.to_string()))?;
        if verdict != Verdict::Missed {
            return Ok(verdict);
        }
    }
    Ok(Verdict::Missed)
}

/// How many modules a file and a test share: for `authority/verify.rs` and `authority::verify::tests::gone`, two.
fn shared_calls(file: &str, test: &str) -> usize {
    let modules = file.split_once("/src/").map_or(file, |(_, path)| path.trim_end_matches(".rs")).split('/');
    modules.zip(test.split("::")).take_while(|(module, of_test)| module == of_test).count()
}

/// The names of its tests.
///
/// # Errors
/// If the program cannot be started.
pub(crate) fn tests(program: &Program) -> Result<Vec<String>> {
    let list = Command::new(&program.path).args(["--list", "--format", "terse"]).output()?;
    let list = String::from_utf8(list.stdout)?;
    Ok(list.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

/// Whether these tests fail with this value of `MUTANT` or another variable.
///
/// # Errors
/// If the program cannot be started.
pub(crate) fn run(
    program: &Program,
    tests: &[&str],
    took: Duration,
    (variable, value): (&str, &str),
) -> Result<Verdict> {
    let (processor, clock) = ((TIMEOUT_FACTOR + took).as_secs(), (TIMEOUT_FACTOR + took * BUSY).as_secs());
    let limits = format!("ulimit -t {processor}; ulimit -v {MEMORY}; exec timeout -k 1 {clock} \"$0\" \"$@\"");
    let status = Command::new("sh")
        .args(["-c", &limits])
        .arg(&program.path)
        .args(["--exact", "--test-threads=1", "--quiet"])
        .args(tests)
        .current_dir(&program.folder)
        // Property tests draw the same cases each time, and failed cases are not kept for later mutants.
        .envs([("PROPTEST_RNG_SEED", "7"), ("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true")])
        .envs([("RUST_MIN_STACK", STACK), (variable, value)])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    Ok(match status.code() {
        Some(0) => Verdict::Missed,
        // Its wall time or CPU time limit was reached.
        Some(124 | 137 | 152) => Verdict::ByTime,
        _ => Verdict::Caught,
    })
}
