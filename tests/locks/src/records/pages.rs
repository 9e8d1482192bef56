//! Text of the pages about records, between `<!-- record: NAME -->` and `<!-- end of record -->`. It is generated.

use std::fmt::Write as _;

use anyhow::{Context, Result, bail, ensure};

use super::{Changed, NAMES, Record, changed, record, short, stale};
use crate::{Source, repository, texts};

const BEGIN: &str = "<!-- record: ";
const END: &str = "<!-- end of record -->";

/// Writes the records into all pages.
pub fn write() -> Result<()> {
    for page in pages()? {
        let text = rewritten(&page)?;
        if text != page.text {
            std::fs::write(repository().join(&page.path), text)?;
        }
    }
    Ok(())
}

/// The pages that may quote a record.
pub fn pages() -> Result<Vec<Source>> {
    texts(&["README.md", "docs", "tests/records"], &["md"])
}

/// The page with the current text of its records.
///
/// # Errors
/// If a record does not exist, or its place has no end marker.
pub fn rewritten(page: &Source) -> Result<String> {
    let mut parts = page.text.split(BEGIN);
    let mut written = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (what, rest) = part.split_once(" -->").with_context(|| format!("{}: {BEGIN}{part}", page.path))?;
        let (_, after) =
            rest.split_once(END).with_context(|| format!("{}: {BEGIN}{what} --> has no {END}", page.path))?;
        write!(written, "{BEGIN}{what} -->\n{}{END}{after}", text(what)?)?;
    }
    Ok(written)
}

/// The text for a place: `NAME` is the sentence about a run, `NAME steps` the table of its steps, `NAME figures` its figures, `all` the
/// table of all runs.
///
/// # Errors
/// If there is no such record.
fn text(what: &str) -> Result<String> {
    let list = changed()?;
    if what == "all" {
        return table(&list);
    }
    let (name, part) = what.split_once(' ').unwrap_or((what, ""));
    ensure!(NAMES.contains(&name), "there is no record {name:?}: {}", NAMES.join(", "));
    let record = record(name)?;
    match part {
        "" => Ok(format!("{}\n", sentence(name, &record, &list))),
        "steps" => Ok(steps(&record)),
        "figures" => Ok(record.figures.iter().map(|(name, value)| format!("- {}: {value}\n", capital(name))).collect()),
        _ => bail!("{what:?}: a record is shown as NAME, NAME steps or NAME figures"),
    }
}

fn sentence(name: &str, record: &Record, list: &[Changed]) -> String {
    let mut text = format!("`{}`, last run {} on commit `{}`", record.command, record.date, short(&record.commit));
    if let Some(version) = &record.kubernetes {
        text += &format!(" with Kubernetes {version}");
    }
    if let Some(seconds) = record.seconds {
        text += &format!(", in {} on {} cores", length(seconds), record.cores);
    }
    text += &format!(": {}.", record.outcome);
    if let Some(note) = &record.note {
        text += &format!(" {note}");
    }
    for entry in stale(name, list) {
        let paths: Vec<_> = entry.paths.iter().map(|path| format!("`{path}`")).collect();
        text += &format!(" **Stale**: not run since these have changed: {}. {}", paths.join(", "), entry.why);
    }
    text
}

/// The table of the steps with an expected result. A long command is truncated.
fn steps(record: &Record) -> String {
    let mut text = "| step | s | what must hold |\n|---|---:|---|\n".to_owned();
    for step in record.steps.iter().filter(|step| !step.holds.is_empty()) {
        let words: Vec<&str> = step.name.split(' ').collect();
        let name = match words.get(..3) {
            Some(first) if step.name.starts_with('`') && words.len() > 3 => format!("{} …`", first.join(" ")),
            _ => step.name.clone(),
        };
        text += &format!("| {name} | {} | {} |\n", step.seconds, step.holds);
    }
    text + &format!("| in all, with what is between | {} | |\n", record.seconds.unwrap_or_default())
}

fn table(list: &[Changed]) -> Result<String> {
    let mut text = "| command | last run | commit | took | outcome |\n|---|---|---|---|---|\n".to_owned();
    for name in NAMES {
        let record = record(name)?;
        let stale = if stale(name, list).is_empty() { "" } else { "; **stale**: the code has changed since" };
        let took = record.seconds.map_or_else(|| "not noted".to_owned(), length);
        text += &format!(
            "| `{}` | {} | `{}` | {took} | {}{stale} |\n",
            record.command,
            record.date,
            short(&record.commit),
            record.outcome
        );
    }
    Ok(text)
}

fn length(seconds: u64) -> String {
    if seconds < 120 { format!("{seconds} s") } else { format!("{} min", (seconds + 30) / 60) }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
