//! The list of cargo-mutants, and which of its mutants are known to be equivalent.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

/// One change of one place, as `cargo mutants --list --json` describes it.
#[derive(Deserialize)]
pub(crate) struct Mutant {
    /// Its place in the list, from 1. The environment variable `MUTANT` chooses it by this number.
    #[serde(skip)]
    pub(crate) number: usize,
    /// Its name without line numbers: file, change, and a number among equal ones.
    #[serde(skip)]
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) package: String,
    pub(crate) file: String,
    pub(crate) genre: Genre,
    pub(crate) replacement: String,
    pub(crate) span: Span,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Genre {
    FnValue,
    BinaryOperator,
    UnaryOperator,
    MatchArm,
    MatchArmGuard,
    StructField,
    /// A change from `tests/promises`: any expression, replaced by another.
    Slip,
}

#[derive(Deserialize)]
pub(crate) struct Span {
    start: Position,
    end: Position,
}

/// Lines and columns count from 1, columns in characters.
#[derive(Deserialize)]
struct Position {
    line: usize,
    column: usize,
}

impl Span {
    /// The span of these bytes of `source`.
    pub(crate) fn from_range(source: &str, range: &Range<usize>) -> Self {
        let at = |byte: usize| {
            let before = source.get(..byte).unwrap_or_default();
            let line = before.rsplit('\n').next().unwrap_or_default();
            Position { line: before.matches('\n').count() + 1, column: line.chars().count() + 1 }
        };
        Self { start: at(range.start), end: at(range.end) }
    }

    /// The bytes of `source` that it covers; `lines` has the start of each line.
    pub(crate) fn bytes(&self, source: &str, lines: &[usize]) -> Option<Range<usize>> {
        let byte = |at: &Position| {
            let line = *lines.get(at.line - 1)?;
            let before = source.get(line..)?.chars().take(at.column - 1).map(char::len_utf8).sum::<usize>();
            Some(line + before)
        };
        Some(byte(&self.start)?..byte(&self.end)?)
    }
}

/// All mutants of the list, numbered.
///
/// # Errors
/// If the file is not such a list, or the list is empty.
pub(crate) fn read_list(path: &Path) -> Result<Vec<Mutant>> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let mut mutants: Vec<Mutant> = serde_json::from_str(&text).context("cargo-mutants' list")?;
    let mut alike: BTreeMap<String, usize> = BTreeMap::new();
    for (index, mutant) in mutants.iter_mut().enumerate() {
        mutant.number = index + 1;
        let change = mutant.name.splitn(4, ':').nth(3).context("a name without line and column")?;
        let id = format!("{}:{}", mutant.file, change);
        let before = alike.entry(id.clone()).or_default();
        *before += 1;
        mutant.id = if *before == 1 { id } else { format!("{id} #{before}") };
    }
    if mutants.is_empty() {
        bail!("cargo-mutants' list is empty");
    }
    Ok(mutants)
}

/// The equivalent mutants: the id on a line, and the reason, indented, on the next.
///
/// # Errors
/// If a mutant has no reason, or a reason no mutant.
pub(crate) fn equivalents(text: &str) -> Result<BTreeMap<String, String>> {
    let mut lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let mut equivalents = BTreeMap::new();
    while let Some(id) = lines.next() {
        match lines.next() {
            Some(reason) if !id.starts_with(' ') && reason.starts_with(' ') => {
                equivalents.insert(id.to_owned(), reason.trim().to_owned());
            }
            _ => bail!("no reason follows: {id}"),
        }
    }
    Ok(equivalents)
}
