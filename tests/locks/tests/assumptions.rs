//! docs/assumptions.md is the register of assumptions: each axiom, excuse and constant names a row, and each row is named and has a reason
//! and a test, or is a limit of docs/proof.md.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use pod_safety_locks::{repository, sources};

const REGISTER: &str = "docs/assumptions.md";
/// How a comment names its row.
const NAMES: &str = "// docs/assumptions.md: ";

struct Row {
    id: String,
    why: String,
    trial: String,
    broken: String,
}

fn rows(page: &str) -> Vec<Row> {
    let cells = |line: &str| line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect();
    let lines = page.lines().filter(|line| line.starts_with("| `"));
    lines
        .filter_map(|line| {
            let cells: Vec<String> = cells(line);
            let [id, _, _, why, trial, broken] = cells.try_into().ok()?;
            Some(Row { id: id.trim_matches('`').to_owned(), why, trial, broken })
        })
        .collect()
}

fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// What is missing from a row.
fn lacks(row: &Row, tests: &str, limits: &str) -> Vec<String> {
    let mut lacks = Vec::new();
    let tried: Vec<&str> = quoted(&row.trial).collect();
    let is_test = |name: &&str| tests.contains(&format!("fn {name}(")) || tests.contains(&format!("\"{name}"));
    lacks.extend(tried.iter().filter(|name| !is_test(name)).map(|name| format!("no test {name}")));
    for upstream in quoted(&row.why).filter(|word| word.contains(".go")) {
        let (file, function) = upstream.split_once(".go:").unwrap_or((upstream, ""));
        let named = file.contains("pkg/") && !function.is_empty() && !function.contains(['/', ' ']);
        lacks.extend((!named).then(|| format!("{upstream}: write pkg/…:function")));
    }
    let limit = row.broken.split_once("Limit: ").map(|(_, limit)| limit);
    let unexplained = tried.is_empty() || row.why.is_empty() || row.why == "none";
    match limit {
        None if unexplained => lacks.push("no reason or no trial, and no limit".to_owned()),
        Some(limit) if !limits.contains(&format!("**{limit}")) => {
            lacks.push(format!("docs/proof.md has no limit {limit}"));
        }
        _ => {}
    }
    lacks.into_iter().map(|what| format!("{}: {what}", row.id)).collect()
}

#[test]
fn every_assumption_has_a_reason_and_a_trial_or_is_a_limit() -> Result<()> {
    let read = |path: &str| std::fs::read_to_string(repository().join(path)).with_context(|| path.to_owned());
    let (rows, limits) = (rows(&read(REGISTER)?), read("docs/proof.md")?);
    ensure!(rows.len() > 30, "{} rows: not all of them", rows.len());
    let tests: String = sources()?.into_iter().map(|source| source.text).collect();
    let problems: Vec<String> = rows.iter().flat_map(|row| lacks(row, &tests, &limits)).collect();
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

#[test]
fn every_comment_names_a_row_and_every_row_is_named() -> Result<()> {
    let page = std::fs::read_to_string(repository().join(REGISTER))?;
    let registered: BTreeSet<String> = rows(&page).into_iter().map(|row| row.id).collect();
    let (mut named, mut unknown) = (BTreeSet::new(), Vec::new());
    for source in sources()?.iter().filter(|source| !source.path.ends_with("locks/tests/assumptions.rs")) {
        let lists = source.text.lines().filter_map(|line| line.split_once(NAMES));
        for id in lists.flat_map(|(_, list)| list.split(',')).map(str::trim) {
            if !registered.contains(id) {
                unknown.push(format!("{}: {id}", source.path));
            }
            named.insert(id.to_owned());
        }
    }
    ensure!(unknown.is_empty(), "no such rows:\n{}", unknown.join("\n"));
    let idle: Vec<_> = registered.iter().filter(|id| !named.contains(*id)).collect();
    ensure!(idle.is_empty(), "no axiom, excuse or constant names these rows: {idle:?}");
    Ok(())
}

/// Checks each axiom of the kernel search, each assumption that the checker excuses, and the durations of three files. Other constants
/// and excuses name their row without this check.
#[test]
fn every_axiom_and_excuse_that_is_listed_names_its_row() -> Result<()> {
    let read = |path: &str| std::fs::read_to_string(repository().join(path)).with_context(|| path.to_owned());
    for (path, name, fewest) in
        [("tests/kernel/src/scope.rs", "Axiom", 7), ("tests/simulator/src/checker/alive.rs", "Assumption", 3)]
    {
        let text = read(path)?;
        let listed = text.split_once(&format!("enum {name} {{")).and_then(|(_, rest)| rest.split_once("\n}"));
        let (listed, _) = listed.with_context(|| format!("{path}: no enum {name}"))?;
        let variants = listed.lines().filter(|line| line.ends_with(',') && !line.contains("//")).count();
        let names = listed.matches(NAMES).count();
        ensure!(variants >= fewest && variants == names, "{path}: {variants} variants, {names} name a row");
    }
    for path in ["shared/proof/src/evidence.rs", "shared/cache/src/sync.rs", "shared/cache/src/view.rs"] {
        let text = read(path)?;
        let mut docs = String::new();
        for line in text.lines() {
            let is_duration = line.starts_with("pub const") && line.contains(": Duration");
            ensure!(!is_duration || docs.contains(NAMES), "{path}: no row is named above {line}");
            if line.trim_start().starts_with("//") { docs.push_str(line) } else { docs.clear() }
        }
    }
    Ok(())
}

#[test]
fn a_planted_row_is_noticed() {
    let of = |text: &str| rows(text).iter().flat_map(|row| lacks(row, "fn tried(", "- **Known.**")).count();
    assert_eq!(of("| `a` | x | y | `pkg/a.go:F` | `tried` | z |"), 0);
    assert_eq!(of("| `a` | x | y | `pkg/a.go` | `tried` | z |"), 1, "no function");
    assert_eq!(of("| `a` | x | y | `pkg/a.go:F` | `gone` | z |"), 1, "no such test");
    assert_eq!(of("| `a` | x | y | Raft | none | z |"), 1, "no trial");
    assert_eq!(of("| `a` | x | y | Raft | none | z. Limit: Known |"), 0);
    assert_eq!(of("| `a` | x | y | Raft | none | z. Limit: Unknown |"), 1);
}
