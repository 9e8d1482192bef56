//! # Mutants in one program
//!
//! cargo-mutants compiles the crate again for each mutant, which takes days for thousands. Here all of them are compiled into
//! one program, each behind its number, and a run of the tests selects one:
//!
//! - `list`: cargo-mutants' list, and the mutants that are known to be equivalent
//! - `schema`: a source file with all its mutants; `build`: compiles it without those that the compiler rejects
//! - `judge`: which tests reach which mutant, and whether one of them fails; `cache`: the verdicts of earlier runs
//! - `report`: tables, and the floor
//! - `promises`: the same with one given change for each promise of the documentation
//!
//! `tests/records/mutants.md` has the results, and `missed.txt` each missed mutant.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "it measures how long tests take, and says how far it is"
)]

mod build;
mod cache;
mod judge;
mod list;
mod promises;
mod report;
mod schema;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, Parser};

use crate::build::Program;
use crate::cache::{Cache, Package};
use crate::judge::Verdict;
use crate::list::Mutant;

/// The table stands behind this line.
const MARK: &str = "<!-- made by make mutants -->\n";

/// Each package with its folder. Packages later in the list use earlier ones, so their tests may catch what a package's own tests miss.
pub(crate) static USERS: [Package; 17] = [
    ("pod-safety-proof", "shared/proof"),
    ("pod-safety-client", "shared/client"),
    ("pod-safety-cache", "shared/cache"),
    ("pod-safety-leader", "shared/leader"),
    ("pod-safety-fence", "shared/fence"),
    ("pod-safety-shared", "shared"),
    ("pod-safety-pod-gc", "controllers/pod-gc"),
    ("pod-safety-disruption", "controllers/disruption"),
    ("pod-safety-node-lifecycle", "controllers/node-lifecycle"),
    ("pod-safety-taint-eviction", "controllers/taint-eviction"),
    ("pod-safety-fencing", "controllers/fencing"),
    ("pod-safety-volume-guard", "controllers/volume-guard"),
    ("pod-safety-eviction", "controllers/eviction"),
    ("pod-safety-explain", "controllers/explain"),
    ("pod-safety-drain", "controllers/drain"),
    ("pod-safety-process", "controllers/process"),
    ("pod-safety-cli", "controllers/cli"),
];

/// Packages without a list of cargo-mutants.
static OTHERS: [Package; 14] = [
    ("pod-safety-model", "shared/model"),
    ("pod-safety-wire", "shared/wire"),
    ("pod-safety-crds", "shared/crds"),
    ("pod-safety-clock", "shared/clock"),
    ("pod-safety-transport", "shared/transport"),
    ("pod-safety-screen", "shared/screen"),
    ("pod-safety-http1", "shared/http1"),
    ("pod-safety-otlp", "shared/otlp"),
    ("pod-safety-watchdog", "shared/watchdog"),
    ("pod-safety-doctor", "controllers/doctor"),
    ("pod-safety-print", "controllers/print"),
    ("pod-safety-traces", "controllers/traces"),
    ("pod-safety-agent", "controllers/agent"),
    ("pod-safety-devices", "devices"),
];

/// Changes the code, and lists the changes that no unit test detects.
#[derive(Parser)]
enum Command {
    /// Each of cargo-mutants' list.
    Mutants(Plan),
    /// The slips of `tests/promises`.
    Promises(promises::Plan),
}

#[derive(Args)]
struct Plan {
    /// What `cargo mutants --list --json` printed.
    list: PathBuf,
    /// Where the sources with mutants lie, and what is built of them.
    #[arg(long, default_value = "target/mutants")]
    work: PathBuf,
    /// Judge every N-th mutant, from the K-th: `K/N`, K from 0.
    #[arg(long, default_value = "0/1", value_parser = shard)]
    shard: (usize, usize),
    /// How many mutants to judge at a time; as many as there are processors by default.
    #[arg(long)]
    jobs: Option<usize>,
    /// Judge nothing: make the table from the verdicts of earlier runs, without new mutants
    #[arg(long)]
    known: bool,
    /// Write the table into this file, and the list of the missed into `tests/mutants/missed.txt`.
    #[arg(long)]
    write: Option<PathBuf>,
}

fn shard(text: &str) -> Result<(usize, usize)> {
    let (part, of) = text.split_once('/').context("a part is K/N")?;
    let (part, of) = (part.parse()?, of.parse()?);
    ensure!(part < of, "K goes from 0 to N-1");
    Ok((part, of))
}

fn main() -> Result<()> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).context("the repository")?;
    match Command::parse() {
        Command::Mutants(plan) => judge_list(repository, plan),
        Command::Promises(plan) => promises::run(repository, &plan),
    }
}

fn judge_list(repository: &Path, plan: Plan) -> Result<()> {
    let mutants = list::read_list(&plan.list)?;
    let equivalents = list::equivalents(include_str!("../equivalent.txt"))?;
    let (part, of) = plan.shard;
    let work = std::path::absolute(&plan.work)?;
    let jobs = plan.jobs.or(std::thread::available_parallelism().ok().map(usize::from)).unwrap_or(1).max(1);

    let unknown = mutants.iter().find(|mutant| USERS.iter().all(|(package, _)| *package != mutant.package));
    ensure!(unknown.is_none(), "{} is not among the packages", unknown.map_or("", |mutant| &mutant.package));
    let mut judged = Vec::new();
    for (place, own) in USERS.iter().enumerate() {
        let all: Vec<_> = mutants.iter().filter(|mutant| mutant.package == own.0).collect();
        let chosen: Vec<_> = all.iter().copied().filter(|mutant| mutant.number % of == part).collect();
        if chosen.is_empty() {
            continue;
        }
        // Controllers do not depend on each other.
        let users = USERS.get(place + 1..).filter(|_| own.1.starts_with("shared")).unwrap_or_default();
        let mut cache = Cache::load(repository, &work, *own, users, plan.known)?;
        if !plan.known && chosen.iter().any(|mutant| cache.verdict(mutant).is_none()) {
            // Each crate is compiled against unchanged dependencies.
            let (tree, target) = (work.join("tree"), target(repository));
            build::copy(repository, &tree)?;
            let refused = cache.refused(&all);
            let (programs, viable) = build::build(&tree, &target, *own, users, &all, refused)?;
            eprintln!("{}: {} of {} mutants compile in their place", own.0, viable.len(), all.len());
            cache.compiled(&all, &viable);
            judge_by(&programs, &mut cache, &chosen, &work, jobs)?;
            for mutant in chosen.iter().filter(|mutant| cache.verdict(mutant) == Some(Some(Verdict::Missed))) {
                eprintln!("missed: {}", mutant.name);
            }
        }
        judged.extend(chosen.into_iter().filter_map(|mutant| Some((mutant, cache.verdict(mutant)?))));
    }

    let (table, missed) = (report::table(&judged)?, report::list_of_missed(&judged, &equivalents)?);
    std::io::stdout().write_all(format!("{table}\n{missed}").as_bytes())?;
    if let Some(path) = &plan.write {
        let text = std::fs::read_to_string(path)?;
        let (before, _) = text.split_once(MARK).context("the file has no place for the table")?;
        std::fs::write(path, format!("{before}{MARK}\nCommit {}.\n\n{table}", commit(repository)?))?;
        std::fs::write(repository.join("tests/mutants/missed.txt"), missed)?;
    }
    match report::complaints(&judged, &equivalents).as_slice() {
        [] => Ok(()),
        complaints => bail!("{}", complaints.join("\n")),
    }
}

/// The target directory of cargo.
pub(crate) fn target(repository: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository.join("target"), |folder| repository.join(folder))
}

/// The commit of the tree with its date, and whether the tree differs from it.
fn commit(repository: &Path) -> Result<String> {
    let name = git(repository, &["describe", "--always", "--dirty", "--abbrev=8"])?;
    Ok(format!("`{name}`, {}", git(repository, &["log", "-1", "--format=%cs"])?))
}

/// The output of git.
pub(crate) fn git(repository: &Path, arguments: &[&str]) -> Result<String> {
    let output = std::process::Command::new("git").arg("-C").arg(repository).args(arguments).output()?;
    ensure!(output.status.success(), "git: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Runs the tests of each program on the mutants that the programs before it missed and that have no cached verdict.
fn judge_by(programs: &[Program], cache: &mut Cache, mutants: &[&Mutant], work: &Path, jobs: usize) -> Result<()> {
    for program in programs {
        let remaining: Vec<_> =
            mutants.iter().copied().filter(|mutant| cache.needs_verdict(program.package, mutant)).collect();
        if remaining.is_empty() {
            continue;
        }
        eprintln!("judging {} mutants by {}", remaining.len(), program.package);
        let reached = judge::record(program, &work.join("reached"))?;
        let verdicts = judge::judge_mutants(program, &reached, &remaining, jobs)?;
        let new_verdicts =
            remaining.iter().filter_map(|mutant| Some((mutant.id.clone(), *verdicts.get(&mutant.number)?)));
        cache.add(program.package, new_verdicts)?;
    }
    Ok(())
}
