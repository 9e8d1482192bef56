//! # Mutants in one program
//!
//! cargo-mutants compiles the crate anew for each mutant, which takes days for thousands. Here its list is written into
//! one program, each mutant behind its number, and a run of the tests chooses one:
//!
//! - `list`: cargo-mutants' list, and which of them are known to be equivalent
//! - `schema`: a source file with all its mutants in it; `build`: compiled, without those that the compiler refuses
//! - `judge`: which tests reach which mutant, and whether one of them fails; `report`: tables, and the floor
//!
//! `docs/mutants.md` has what came out.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "it measures how long tests take, and says how far it is"
)]

mod build;
mod judge;
mod list;
mod report;
mod schema;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;

/// The tables stand behind this line.
const MARK: &str = "<!-- made by make mutants -->\n";

/// Each package with its folder. What a package's own tests miss, those of the packages after it may notice, where they use it.
pub(crate) static USERS: [(&str, &str); 16] = [
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
    ("pod-safety-explain", "controllers/explain"),
    ("pod-safety-drain", "controllers/drain"),
    ("pod-safety-process", "controllers/process"),
    ("pod-safety-cli", "controllers/cli"),
];

/// The packages whose tests may notice what this one's own tests miss. Controllers do not use each other.
fn users(package: &str) -> &'static [(&'static str, &'static str)] {
    let place = USERS.iter().position(|(name, folder)| *name == package && folder.starts_with("shared"));
    place.and_then(|place| USERS.get(place + 1..)).unwrap_or_default()
}

/// Says which mutants of cargo-mutants' list no unit test notices.
#[derive(Parser)]
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
    /// Write the tables into this file, too.
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
    let plan = Plan::parse();
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).context("the repository")?;
    let mutants = list::read(&plan.list)?;
    let equivalents = list::equivalents(include_str!("../equivalent.txt"))?;
    let (part, of) = plan.shard;
    let work = std::path::absolute(&plan.work)?;
    let jobs = plan.jobs.or(std::thread::available_parallelism().ok().map(usize::from)).unwrap_or(1).max(1);

    let mut packages: BTreeMap<&str, Vec<&list::Mutant>> = BTreeMap::new();
    for mutant in &mutants {
        packages.entry(&mutant.package).or_default().push(mutant);
    }
    let mut verdicts = BTreeMap::new();
    for (package, mutants) in packages {
        // Each package is compiled against the others as they are. Cargo knows a crate by its place in its workspace, so in
        // the folder of every day it would take these for those without mutants.
        let (tree, target) = (work.join("tree"), work.join("target"));
        build::copy(repository, &tree)?;
        let (programs, viable) = build::build(&tree, &target, package, &mutants, users(package))?;
        eprintln!("{package}: {} of {} mutants compile in their place", viable.len(), mutants.len());
        let mut left = mutants;
        left.retain(|mutant| viable.contains(&mutant.number) && mutant.number % of == part);
        for program in programs {
            let reached = judge::record(&program, &tree.join("reached"))?;
            eprintln!("{package}: judging {} mutants by {}", left.len(), program.path.display());
            verdicts.extend(judge::judge(&program, &reached, &left, jobs)?);
            left.retain(|mutant| verdicts.get(&mutant.number) == Some(&judge::Verdict::Missed));
        }
    }

    let chosen = mutants.iter().filter(|mutant| mutant.number % of == part);
    let judged: Vec<_> = chosen.map(|mutant| (mutant, verdicts.get(&mutant.number).copied())).collect();
    let tables = report::tables(&judged, &equivalents)?;
    std::io::stdout().write_all(tables.as_bytes())?;
    if let Some(path) = &plan.write {
        let text = std::fs::read_to_string(path)?;
        let (before, _) = text.split_once(MARK).context("the file has no place for the tables")?;
        std::fs::write(path, format!("{before}{MARK}\n{tables}"))?;
    }
    match report::complaints(&judged, &equivalents).as_slice() {
        [] => Ok(()),
        complaints => bail!("{}", complaints.join("\n")),
    }
}
