//! The promises of the documentation: each sentence with a code change ("slip") that breaks it and the test that detects it.
//!
//! Input: `tests/promises/*.toml`. A slip is an expression of the source with a plausible wrong replacement. Output: the rows whose test
//! passes with the slip in place; such a row fails the run.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use serde::Deserialize;

use crate::build::{self, Program};
use crate::cache::Package;
use crate::judge::{self, TIMEOUT_FACTOR, Verdict};
use crate::list::{Genre, Mutant, Span};
use crate::{OTHERS, USERS};

/// Says which promise of the pages no test holds.
#[derive(Args)]
pub(crate) struct Plan {
    /// Where the sources with slips lie, and what is built of them.
    #[arg(long, default_value = "target/promises")]
    work: PathBuf,
    /// Try one of so many packages' rows, drawn by the commit.
    #[arg(long, default_value_t = 1)]
    draw: usize,
    /// Try the rows of this package alone.
    #[arg(long)]
    only: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    promise: Vec<Row>,
    #[serde(default)]
    held: Vec<Held>,
}

/// A promise that no change of one expression breaks.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Held {
    page: String,
    sentence: String,
    /// A test anywhere in the repository.
    test: String,
}

/// A promise.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Row {
    /// The page that has the sentence.
    page: String,
    /// The sentence or its essential part; line breaks count as spaces.
    sentence: String,
    /// The file with the code that keeps the promise.
    file: String,
    /// An expression that occurs once in that file.
    find: String,
    /// Its replacement, which breaks the promise.
    slip: String,
    /// The unit test that then fails.
    test: String,
    /// The package of that test, if it is not the package of the file.
    by: Option<String>,
}

/// A row with the place of its expression.
struct Slip {
    row: Row,
    own: Package,
    by: Package,
    mutant: Mutant,
}

fn normalize(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The one place of `what` in `text`.
fn only_place(text: &str, what: &str) -> Result<Range<usize>> {
    let mut matches = text.match_indices(what);
    let (start, _) = matches.next().context("is not there")?;
    ensure!(matches.next().is_none(), "is there more than once");
    Ok(start..start + what.len())
}

fn files(repository: &Path) -> Result<Vec<File>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(repository.join("tests/promises"))? {
        let path = entry?.path();
        let text = std::fs::read_to_string(&path)?;
        files.push(toml::from_str(&text).with_context(|| path.display().to_string())?);
    }
    Ok(files)
}

/// All rows, with their places.
fn read_rows(repository: &Path) -> Result<Vec<Slip>> {
    let (mut slips, mut wrong) = (Vec::new(), Vec::new());
    let all = files(repository)?;
    let sources = build::files(repository, &["controllers", "devices", "shared", "tests"])?;
    for held in all.iter().flat_map(|file| &file.held) {
        if let Err(error) = check_held(repository, held, &sources) {
            wrong.push(format!("{error:#}\n    {}", held.sentence));
        }
    }
    for file in all {
        for row in file.promise {
            let sentence = row.sentence.clone();
            match place(repository, row, slips.len() + 1) {
                Ok(slip) => slips.push(slip),
                Err(error) => wrong.push(format!("{error:#}\n    {sentence}")),
            }
        }
    }
    ensure!(wrong.is_empty(), "{} rows are about something that is not there:\n{}", wrong.len(), wrong.join("\n"));
    Ok(slips)
}

/// The only occurrence of a sentence in a page.
fn find_sentence(repository: &Path, page: &str, sentence: &str) -> Result<()> {
    let text = std::fs::read_to_string(repository.join(page)).with_context(|| page.to_owned())?;
    only_place(&normalize(&text), &normalize(sentence)).with_context(|| format!("the sentence, in {page}"))?;
    Ok(())
}

/// Whether one of the sources has a test of this name.
fn is_test_of(sources: &[(String, Vec<u8>)], name: &str) -> bool {
    let function = format!("fn {name}(");
    let has =
        |(file, text): &(String, Vec<u8>)| file.ends_with(".rs") && String::from_utf8_lossy(text).contains(&function);
    sources.iter().any(has)
}

fn check_held(repository: &Path, held: &Held, sources: &[(String, Vec<u8>)]) -> Result<()> {
    find_sentence(repository, &held.page, &held.sentence)?;
    ensure!(is_test_of(sources, &held.test), "no test {}", held.test);
    Ok(())
}

fn place(repository: &Path, row: Row, number: usize) -> Result<Slip> {
    find_sentence(repository, &row.page, &row.sentence)?;
    let source = std::fs::read_to_string(repository.join(&row.file)).with_context(|| row.file.clone())?;
    let range = only_place(&source, &row.find).with_context(|| format!("`{}`, in {}", row.find, row.file))?;
    let packages = || USERS.iter().chain(&OTHERS).copied();
    let own = packages().find(|(_, folder)| row.file.starts_with(&format!("{folder}/src/")));
    let own = own.with_context(|| format!("{} is of no package", row.file))?;
    let by = match &row.by {
        Some(by) => packages().find(|(package, _)| package == by).with_context(|| format!("no package {by}"))?,
        None => own,
    };
    let function = row.test.rsplit("::").next().unwrap_or_default();
    let is_there = is_test_of(&build::files(repository, &[by.1])?, function);
    ensure!(is_there, "no test {} in {}", row.test, by.1);
    let mutant = Mutant {
        number,
        id: String::new(),
        name: row.sentence.clone(),
        package: own.0.to_owned(),
        file: row.file.clone(),
        genre: Genre::Slip,
        replacement: row.slip.clone(),
        span: Span::from_range(&source, &range),
    };
    Ok(Slip { row, own, by, mutant })
}

/// Runs the tests with each slip in place.
///
/// # Errors
/// If a row does not match the files, a slip does not compile, or its test does not detect it.
pub(crate) fn run(repository: &Path, plan: &Plan) -> Result<()> {
    let (begin, work) = (Instant::now(), std::path::absolute(&plan.work)?);
    let mut packages: BTreeMap<Package, Vec<Slip>> = BTreeMap::new();
    for slip in read_rows(repository)? {
        packages.entry(slip.own).or_default().push(slip);
    }
    let drawn = commit_number(repository)? % plan.draw.max(1);
    let (mut tried, mut complaints) = (0, Vec::new());
    for (place, (own, slips)) in packages.iter().enumerate() {
        let chosen = plan.only.as_ref().map_or(place % plan.draw.max(1) == drawn, |only| only == own.0);
        if !chosen {
            continue;
        }
        tried += slips.len();
        complaints.extend(try_package(repository, &work, *own, slips)?);
    }
    let took = begin.elapsed().as_secs();
    eprintln!("{tried} slips, {} caught, {took} s", tried - complaints.len());
    if complaints.is_empty() { Ok(()) } else { bail!("{}", complaints.join("\n")) }
}

fn try_package(repository: &Path, work: &Path, own: Package, slips: &[Slip]) -> Result<Vec<String>> {
    let (tree, target) = (work.join("tree"), crate::target(repository));
    build::copy(repository, &tree)?;
    let mutants: Vec<_> = slips.iter().map(|slip| &slip.mutant).collect();
    let mut users: Vec<Package> = slips.iter().map(|slip| slip.by).filter(|by| *by != own).collect();
    users.sort_unstable();
    users.dedup();
    let (programs, viable) = build::build(&tree, &target, own, &users, &mutants, Default::default())?;
    let list = |program| Ok((program, judge::tests(program)?));
    let programs = programs.iter().map(list).collect::<Result<Vec<_>>>()?;
    let mut complaints = Vec::new();
    for slip in slips {
        let Row { page, sentence, file, find, slip: replacement, test, .. } = &slip.row;
        let of_test = programs.iter().find(|(program, _)| program.package == slip.by.0);
        let (program, tests) = of_test.context("a program")?;
        let wrong = match viable.contains(&slip.mutant.number) {
            false => Some("the compiler refuses the slip"),
            true if !tests.contains(test) => Some("there is no such test"),
            true => verdict(program, slip)?,
        };
        if let Some(wrong) = wrong {
            complaints.push(format!(
                "{wrong}: {test}\n    {page}: {sentence}\n    {file}: `{}` for `{}`",
                normalize(replacement),
                normalize(find)
            ));
        }
    }
    Ok(complaints)
}

/// The problem with the test of a row, if any.
fn verdict(program: &Program, slip: &Slip) -> Result<Option<&'static str>> {
    let test = [slip.row.test.as_str()];
    let number = slip.mutant.number.to_string();
    let with = |number: &str| judge::run(program, &test, TIMEOUT_FACTOR, ("MUTANT", number));
    Ok(match (with("0")?, with(&number)?) {
        (Verdict::Missed, Verdict::Caught | Verdict::ByTime) => None,
        (Verdict::Missed, Verdict::Missed) => Some("the test does not notice"),
        (Verdict::Caught | Verdict::ByTime, _) => Some("the test fails without the slip"),
    })
}

/// A number derived from the commit.
fn commit_number(repository: &Path) -> Result<usize> {
    let name = crate::git(repository, &["rev-parse", "HEAD"])?;
    Ok(usize::from_str_radix(name.get(..8).context("a commit")?, 16)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages with promises.
    const PAGES: [&str; 13] = [
        "README.md",
        "SECURITY.md",
        "docs/admission.md",
        "docs/commands.md",
        "docs/disruption.md",
        "docs/eviction.md",
        "docs/fencing.md",
        "docs/node-lifecycle.md",
        "docs/proof.md",
        "docs/taint-eviction.md",
        "docs/threat-model.md",
        "docs/volume-guard.md",
        "docs/watchdog-lease.md",
    ];

    /// Words that mark a promise.
    const PROMISES: [&str; 5] = ["never", "always", "at most", "at least", "nobody"];

    /// A part of a table row or of a list item counts as a sentence from this many words on.
    const FEWEST_WORDS: usize = 7;

    fn repository() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
    }

    /// The sentences of a page that promise something, without code blocks.
    fn promising(page: &str) -> Vec<String> {
        let prose: String = page.split("```").step_by(2).collect();
        let prose = normalize(&prose).replace(". ", "\n").replace(" | ", "\n").replace(" - ", "\n");
        let is_promise = |sentence: &&str| {
            let spoken: String = sentence.split('`').step_by(2).collect();
            let spoken = format!(" {} ", spoken.to_lowercase().replace([',', ';', ':', '.', '(', ')'], " "));
            PROMISES.iter().any(|word| spoken.contains(&format!(" {word} ")))
                && sentence.split(' ').count() >= FEWEST_WORDS
        };
        prose.lines().filter(is_promise).map(str::to_owned).collect()
    }

    #[test]
    fn rows_name_existing_files_and_tests() {
        let slips = read_rows(repository()).unwrap();
        assert!(slips.len() >= 580, "{}", slips.len());
    }

    #[test]
    fn each_promising_sentence_has_a_row() {
        let all = files(repository()).unwrap();
        let rows = all.iter().flat_map(|file| &file.promise).map(|row| (&row.page, normalize(&row.sentence)));
        let held = all.iter().flat_map(|file| &file.held).map(|held| (&held.page, normalize(&held.sentence)));
        let rows: Vec<_> = rows.chain(held).collect();
        let mut without = Vec::new();
        for page in PAGES {
            let text = std::fs::read_to_string(repository().join(page)).unwrap();
            let of_page = || rows.iter().filter(|(of, _)| *of == page).map(|(_, sentence)| sentence);
            assert!(of_page().next().is_some(), "{page} has no row");
            for sentence in promising(&text) {
                if !of_page().any(|row| row.contains(&sentence) || sentence.contains(row.trim_end_matches('.'))) {
                    without.push(format!("{page}: {sentence}"));
                }
            }
        }
        assert!(without.is_empty(), "no row in tests/promises:\n{}", without.join("\n"));
    }
}
