//! What `make test` does not run leaves a record in tests/records: which commit was run, when, what came of it, and a hash of each file
//! that the run depends on. `changed.toml` lists what has changed since then, and why the outcome still stands, or that it does not.

mod files;
mod pages;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

pub use files::{current, of_commit};
pub use pages::{pages, rewritten, write as write_pages};

use crate::repository;

/// The runs that have a record.
pub const NAMES: [&str; 6] = ["test-kind", "test-nodes-all", "image-agents", "watchdog", "bench", "mutants"];

/// A run, as `tests/records/NAME.toml` has it. `command` and `depends` are written by a person, all else by the run.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// What was typed.
    pub command: String,
    /// Which files decide the outcome: `FILE`, `FOLDER/` as one, or `FOLDER/*`, each file below it by itself.
    pub depends: Vec<String>,
    /// The commit that was run.
    #[serde(default)]
    pub commit: String,
    /// When it ended, as `2026-11-29`.
    #[serde(default)]
    pub date: String,
    /// `passed`, or what failed.
    #[serde(default)]
    pub outcome: String,
    /// How long it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    /// Of the machine.
    #[serde(default)]
    pub cores: u64,
    /// Its version, if the run had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<String>,
    /// What else the pages say of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Figures that the pages quote.
    #[serde(default)]
    pub figures: BTreeMap<String, String>,
    /// Its steps, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// The hash of each file or folder that `depends` names.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
}

/// A step of a run.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Step {
    /// What is done.
    pub name: String,
    /// What must hold after it.
    pub holds: String,
    /// Tenths of a second, as text: `12.3`.
    pub seconds: String,
}

/// Files or folders that are not as the record has them.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Changed {
    /// The record.
    pub record: String,
    /// As the record names them.
    pub paths: Vec<String>,
    /// The hash of the only path, if this change cannot change the outcome. Without it the record is stale, and the pages say so.
    pub now: Option<String>,
    /// Why it cannot change the outcome, or why the run was not repeated.
    pub why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    changed: Vec<Changed>,
}

/// Where a record is.
#[must_use]
pub fn path(name: &str) -> String {
    format!("tests/records/{name}.toml")
}

/// A record.
///
/// # Errors
/// If it cannot be read, or has fields that are not known.
pub fn record(name: &str) -> Result<Record> {
    let path = path(name);
    let text = std::fs::read_to_string(repository().join(&path)).with_context(|| path.clone())?;
    toml::from_str(&text).context(path)
}

/// The list of what has changed.
///
/// # Errors
/// If it cannot be read.
pub fn changed() -> Result<Vec<Changed>> {
    let path = "tests/records/changed.toml";
    let text = std::fs::read_to_string(repository().join(path)).context(path)?;
    Ok(toml::from_str::<List>(&text).context(path)?.changed)
}

/// The files and folders of a record that the list says are stale.
#[must_use]
pub fn stale<'a>(name: &str, changed: &'a [Changed]) -> Vec<&'a Changed> {
    changed.iter().filter(|one| one.record == name && one.now.is_none()).collect()
}

/// What is wrong: a file that has changed and is not on the list, or an entry of the list of one that has not. `now` are the hashes of
/// the files as they are.
#[must_use]
pub fn check_changed(
    name: &str,
    record: &Record,
    now: &BTreeMap<String, String>,
    list: &[Changed],
) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut listed: BTreeMap<&str, &Changed> = BTreeMap::new();
    for entry in list.iter().filter(|entry| entry.record == name) {
        listed.extend(entry.paths.iter().map(|path| (path.as_str(), entry)));
    }
    let all = record.files.keys().chain(now.keys()).map(String::as_str).chain(listed.keys().copied());
    for path in all.collect::<BTreeSet<_>>() {
        let (then, now) = (record.files.get(path), now.get(path));
        let hash = now.map_or("gone", String::as_str);
        let said = match listed.get(path) {
            Some(_) if then == now => "is not changed, and is on the list".to_owned(),
            None if then != now => format!("has changed: now = \"{hash}\""),
            Some(Changed { now: Some(accepted), .. }) if accepted != hash => {
                format!("has changed once more: now = \"{hash}\"")
            }
            _ => continue,
        };
        wrong.push(format!("{name}: {path} {said}"));
    }
    wrong
}

/// Eight digits of a commit, as pages show it.
#[must_use]
pub fn short(commit: &str) -> &str {
    commit.get(..8).unwrap_or(commit)
}

/// Writes what a run found into its record, and into the pages that quote it. `told` are `KEY=VALUE`: commit, outcome, seconds, kubernetes,
/// note, date, cores, `figure=NAME: VALUE`, `steps=FILE`. `old` is for a run of long ago, whose files are not those of today.
///
/// # Errors
/// If a file that the run depends on is not as the commit has it, or a key is not known.
pub fn write(name: &str, told: &[String], old: bool) -> Result<()> {
    let record = parse_record(name, told)?;
    if !old {
        ran_as_committed(&record)?;
    }
    let text = format!(
        "# Written by the run; a person writes `command` and `depends`.\n{}",
        toml::to_string(&record)?
    );
    std::fs::write(repository().join(path(name)), text)?;
    pages::write()
}

fn parse_record(name: &str, told: &[String]) -> Result<Record> {
    let Record { command, depends, .. } = record(name)?;
    let mut record = Record { command, depends, ..Record::default() };
    record.cores = std::thread::available_parallelism()?.get().try_into()?;
    record.date = files::output("date", &["--utc", "+%F"])?;
    for one in told {
        let (key, value) = one.split_once('=').with_context(|| format!("{one:?} is not KEY=VALUE"))?;
        set(&mut record, key, value)?;
    }
    ensure!(!record.outcome.is_empty(), "outcome= says what came of it: passed, or what failed");
    record.commit =
        files::output("git", &["rev-parse", "--verify", &format!("{}^{{commit}}", record.commit)])?;
    record.files = of_commit(&record.commit, &record.depends)?;
    ensure!(!record.files.is_empty(), "{name} depends on no file");
    Ok(record)
}

/// Refuses a run of files that differ from the commit that it names.
fn ran_as_committed(record: &Record) -> Result<()> {
    let now = current(&record.depends)?;
    let differs: Vec<&str> = record
        .files
        .iter()
        .filter(|(path, hash)| now.get(*path) != Some(hash))
        .map(|(path, _)| path.as_str())
        .collect();
    let (commit, differs) = (short(&record.commit), differs.join(", "));
    ensure!(differs.is_empty(), "this run was not of commit {commit}: these files differ from it: {differs}");
    Ok(())
}

fn set(record: &mut Record, key: &str, value: &str) -> Result<()> {
    let text = value.to_owned();
    match key {
        "commit" => record.commit = text,
        "date" => record.date = text,
        "outcome" => record.outcome = text,
        "note" => record.note = Some(text),
        "kubernetes" => record.kubernetes = Some(text),
        "seconds" => record.seconds = Some(value.parse()?),
        "cores" => record.cores = value.parse()?,
        "steps" => record.steps = std::fs::read_to_string(value)?.lines().map(step).collect::<Result<_>>()?,
        "figure" => {
            let (name, value) =
                value.split_once(": ").with_context(|| format!("{value:?} is not NAME: VALUE"))?;
            record.figures.insert(name.to_owned(), value.to_owned());
        }
        _ => anyhow::bail!("{key}= is not known"),
    }
    Ok(())
}

fn step(line: &str) -> Result<Step> {
    let mut parts = line.split('\t').map(str::to_owned);
    let mut next = || parts.next().with_context(|| format!("not SECONDS, NAME and WHAT HOLDS: {line:?}"));
    let (seconds, name, holds) = (next()?, next()?, next()?);
    Ok(Step { name, holds, seconds })
}
