//! Runs the benchmark at a small size. Numbers are not checked: machines that run tests are busy.

use std::process::Command;

use serde_json::Value;

const BEGIN: &str = "<!-- measured: benchmarks -->";
const END: &str = "<!-- measured: to here, benchmarks -->";

/// Runs it at a small size; returns its output and the numbers.
fn quick(docs: &std::path::Path, more: &[&str]) -> anyhow::Result<(String, Value)> {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_pod-safety-bench"));
    let output = bench.arg("--quick").args(more).arg("--docs").arg(docs).output()?;
    anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let numbers = std::fs::read_to_string(docs.join("benchmarks.json"))?;
    Ok((String::from_utf8(output.stdout)?, serde_json::from_str(&numbers)?))
}

/// The samples of the run.
fn samples(numbers: &Value) -> impl Iterator<Item = &Value> {
    numbers["runs"][0]["samples"].as_array().into_iter().flatten()
}

fn counted(numbers: &Value, phase: &str) -> usize {
    samples(numbers).filter(|sample| sample["phase"] == phase).count()
}

#[test]
fn a_quick_run_measures_and_records_each_phase() {
    let docs = tempfile::tempdir().unwrap();
    let page = docs.path().join("benchmarks.md");
    std::fs::write(&page, format!("# Title\n\n{BEGIN}\n{END}\n\nend\n")).unwrap();

    // Without the PDB phase: kube-controller-manager needs minutes for it at any size.
    let (tables, numbers) = quick(docs.path(), &["--only", "start,quiet,heartbeats,removal,bare"]).unwrap();
    for line in
        ["| a cold start: start to synced caches, s |", "| bare loop, 32 connections: 100 orphans |", "100 DELETE pods"]
    {
        assert!(tables.contains(line), "{line} is missing:\n{tables}");
    }
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.starts_with("# Title\n") && page.ends_with(&format!("{END}\n\nend\n")), "{page}");
    assert!(page.contains("| a cold start: until caches are synced, s |"), "{page}");
    assert!(docs.path().join("benchmarks.svg").is_file());
    let phases = ["start", "quiet", "heartbeats", "removal", "bare"];
    assert_eq!(phases.map(|phase| counted(&numbers, phase)), [2, 2, 1, 1, 2], "{numbers:#}");
    assert!(numbers["runs"][0]["commit"].is_string() && numbers["runs"][1].is_null(), "{numbers:#}");
}

/// A hundred PDBs that each select a hundred pods, then ten pods with 90,000 labels each: the process keeps running, and `/readyz` answers
/// each time.
#[test]
fn attack_one_tenant_does_not_slow_the_others() {
    let docs = tempfile::tempdir().unwrap();
    std::fs::write(docs.path().join("benchmarks.md"), format!("{BEGIN}\n{END}\n")).unwrap();
    let (_, numbers) = quick(docs.path(), &["--only", "tenants", "--contenders", "ours"]).unwrap();
    assert_eq!(counted(&numbers, "tenants"), 3, "{numbers:#}");
    for sample in samples(&numbers) {
        let values = sample["values"].as_array().unwrap();
        let unanswered = values.iter().find(|value| value[0] == "/readyz without an answer");
        assert_eq!(unanswered.unwrap()[1], 0.0, "{sample:#}");
    }
}
