//! Runs that `make test` does not include leave a record in tests/records: the commit, the date, the outcome, and a hash of each file that
//! the run depends on. `changed.toml` lists later changes of such files, and why the outcome still holds, or that it does not.

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

/// A run, as in `tests/records/NAME.toml`. A person writes `command` and `depends`, the run writes the rest.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The command of the run.
    pub command: String,
    /// The files that decide the outcome: `FILE`, `FOLDER/` as one, or `FOLDER/*`, each file below it separately.
    pub depends: Vec<String>,
    /// The commit that was run.
    #[serde(default)]
    pub commit: String,
    /// The date of its end, as `2026-11-29`.
    #[serde(default)]
    pub date: String,
    /// `passed`, or what failed.
    #[serde(default)]
    pub outcome: String,
    /// Its duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    /// The cores of the machine.
    #[serde(default)]
    pub cores: u64,
    /// Its version, if the run had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<String>,
    /// A remark that the pages quote.
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
    /// What the step does.
    pub name: String,
    /// What must hold after it.
    pub holds: String,
    /// Tenths of a second, as text: `12.3`.
    pub seconds: String,
}

/// Files or folders that differ from the record.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Changed {
    /// The name of the record.
    pub record: String,
    /// The paths as in the record.
    pub paths: Vec<String>,
    /// The hash of the only path, if this change cannot affect the outcome. Without it the record is stale, and the pages show that.
    pub now: Option<String>,
    /// Why the change cannot affect the outcome, or why the run was not repeated.
    pub why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    changed: Vec<Changed>,
}

/// The path of a record.
#[must_use]
pub fn path(name: &str) -> String {
    format!("tests/records/{name}.toml")
}

/// Reads a record.
///
/// # Errors
/// If it cannot be read, or has unknown fields.
pub fn record(name: &str) -> Result<Record> {
    let path = path(name);
    let text = std::fs::read_to_string(repository().join(&path)).with_context(|| path.clone())?;
    toml::from_str(&text).context(path)
}

/// Reads `changed.toml`.
///
/// # Errors
/// If it cannot be read.
pub fn changed() -> Result<Vec<Changed>> {
    let path = "tests/records/changed.toml";
    let text = std::fs::read_to_string(repository().join(path)).context(path)?;
    Ok(toml::from_str::<List>(&text).context(path)?.changed)
}

/// The entries of `changed.toml` that make a record stale.
#[must_use]
pub fn stale<'a>(name: &str, changed: &'a [Changed]) -> Vec<&'a Changed> {
    changed.iter().filter(|one| one.record == name && one.now.is_none()).collect()
}

/// The problems of a record: a changed file that `changed.toml` does not list, or an entry for an unchanged file. `now` has the hashes of
/// the current files.
#[must_use]
pub fn check_changed(name: &str, record: &Record, now: &BTreeMap<String, String>, list: &[Changed]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut listed: BTreeMap<&str, &Changed> = BTreeMap::new();
    for entry in list.iter().filter(|entry| entry.record == name) {
        listed.extend(entry.paths.iter().map(|path| (path.as_str(), entry)));
    }
    let all = record.files.keys().chain(now.keys()).map(String::as_str).chain(listed.keys().copied());
    for path in all.collect::<BTreeSet<_>>() {
        let (then, now) = (record.files.get(path), now.get(path));
        let hash = now.map_or("gone", String::as_str);
        let problem = match listed.get(path) {
            Some(_) if then == now => "is not changed, and is on the list".to_owned(),
            None if then != now => format!("has changed: now = \"{hash}\""),
            Some(Changed { now: Some(accepted), .. }) if accepted != hash => {
                format!("has changed once more: now = \"{hash}\"")
            }
            _ => continue,
        };
        wrong.push(format!("{name}: {path} {problem}"));
    }
    wrong
}

/// The first eight digits of a commit, as pages show it.
#[must_use]
pub fn short(commit: &str) -> &str {
    commit.get(..8).unwrap_or(commit)
}

/// Writes the result of a run into its record and into the pages that quote it. `pairs` are `KEY=VALUE`: commit, outcome, seconds, kubernetes,
/// note, date, cores, `figure=NAME: VALUE`, `steps=FILE`. `old` is for a past run, whose files differ from the current ones.
///
/// # Errors
/// If a file that the run depends on differs from the commit, or a key is unknown.
pub fn write(name: &str, pairs: &[String], old: bool) -> Result<()> {
    let record = parse_record(name, pairs)?;
    if !old {
        ran_as_committed(&record)?;
    }
    let text = format!("# Written by the run; a person writes `command` and `depends`.\n{}", toml::to_string(&record)?);
    std::fs::write(repository().join(path(name)), text)?;
    pages::write()
}

fn parse_record(name: &str, pairs: &[String]) -> Result<Record> {
    let Record { command, depends, .. } = record(name)?;
    let mut record = Record { command, depends, ..Record::default() };
    record.cores = std::thread::available_parallelism()?.get().try_into()?;
    record.date = files::output("date", &["--utc", "+%F"])?;
    for one in pairs {
        let (key, value) = one.split_once('=').with_context(|| format!("{one:?} is not KEY=VALUE"))?;
        set(&mut record, key, value)?;
    }
    ensure!(!record.outcome.is_empty(), "outcome= says what came of it: passed, or what failed");
    record.commit = files::output("git", &["rev-parse", "--verify", &format!("{}^{{commit}}", record.commit)])?;
    record.files = of_commit(&record.commit, &record.depends)?;
    ensure!(!record.files.is_empty(), "{name} depends on no file");
    Ok(record)
}

/// Fails if the files differ from the commit that the run names.
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
            let (name, value) = value.split_once(": ").with_context(|| format!("{value:?} is not NAME: VALUE"))?;
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
