//! Every plan that showed a bug or a limit, on every run of the tests.
//!
//! New ones are written by `cargo run -p pod-safety-simulator --example campaign -- guilty` and `-- plants`, or by
//! hand.

use std::collections::BTreeSet;

use files::{corpus, page_of};
use memory::{memory, memory_line};
use pod_safety_simulator::campaign::{Entry, threads};
use teeth::teeth;

use crate::files;
use crate::memory;
use crate::shipped;
use crate::teeth;

/// The entries of the corpus with their names, in order.
fn entries() -> anyhow::Result<Vec<(String, Entry)>> {
    let mut entries = Vec::new();
    for file in std::fs::read_dir(corpus())? {
        let path = file?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let entry = serde_json::from_slice(&std::fs::read(&path)?)
            .map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
        entries.push((name, entry));
    }
    entries.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(entries)
}

/// Calls this for every entry, on all cores.
fn all(work: impl Fn(&str, &Entry) -> Vec<String> + Sync) -> Vec<String> {
    let entries = entries().unwrap();
    assert!(entries.len() >= 10, "the corpus is in another place: {} entries", entries.len());
    std::thread::scope(|scope| {
        let work = &work;
        let parts: Vec<_> = entries.chunks(entries.len().div_ceil(threads())).collect();
        let running: Vec<_> = parts
            .into_iter()
            .map(|part| {
                scope.spawn(move || part.iter().flat_map(|(name, entry)| work(name, entry)).collect::<Vec<_>>())
            })
            .collect();
        running.into_iter().flat_map(|part| part.join().unwrap()).collect()
    })
}

#[test]
fn every_plan_of_the_corpus_has_its_expected_result() {
    let before = memory("VmRSS:");
    let surprises = all(|name, entry| {
        let surprises = entry.surprises(shipped::launch).into_iter();
        surprises.map(|surprise| format!("{name}: {surprise}")).collect()
    });
    println!("{}", memory_line(before, threads()));
    assert!(surprises.is_empty(), "{}", surprises.join("\n"));
}

#[test]
fn the_pages_of_baseline_violations_match_their_runs() {
    let stale = all(|name, entry| {
        if !name.starts_with("guilty-") {
            return Vec::new();
        }
        let committed = std::fs::read_to_string(corpus().join(format!("{name}.txt"))).unwrap_or_default();
        let now = page_of(entry, shipped::launch).unwrap_or_default();
        if committed == now { Vec::new() } else { vec![format!("{name}.txt should be:\n{now}")] }
    });
    assert!(stale.is_empty(), "{}", stale.join("\n"));
}

#[test]
fn the_baselines_break_several_rules_with_few_faults() {
    let mut broken = BTreeSet::new();
    for (name, entry) in entries().unwrap() {
        if !name.starts_with("guilty-") {
            continue;
        }
        assert!(entry.plan.faults.len() <= 5, "{name} has {} faults", entry.plan.faults.len());
        assert_eq!(entry.expect.get("shipped"), Some(&Vec::new()), "{name}: ours stays silent");
        for (subject, rules) in &entry.expect {
            broken.extend(rules.iter().map(|rule| (subject.clone(), rule.clone())));
        }
    }
    println!("{broken:?}");
    for subject in ["kcm", "script"] {
        let rules = broken.iter().filter(|(name, _)| name == subject).count();
        assert!(rules >= 3, "{subject} is found guilty of {rules} rules only");
    }
}

#[test]
fn every_plan_of_a_planted_bug_breaks_no_rule_without_it() {
    let mut planted = 0;
    for (name, entry) in entries().unwrap() {
        if entry.expect.keys().any(|subject| subject.starts_with("shipped with")) {
            // A plan of a real bug names the planted bug that repeats it, and is not the smallest plan of that bug.
            planted += usize::from(name.starts_with("plant-"));
            assert_eq!(entry.expect.get("shipped"), Some(&Vec::new()), "{name}");
        }
    }
    let page = std::fs::read_to_string(teeth()).unwrap();
    let listed: usize =
        page.lines().filter(|line| line.starts_with("- ")).map(|line| line.matches('`').count() / 2).sum();
    assert_eq!(planted, listed, "one plan for each planted bug");
}
