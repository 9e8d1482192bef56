//! The harness of the benchmark, run small. No number is looked at: machines that run tests are busy.

use std::process::Command;

use serde_json::Value;

const BEGIN: &str = "<!-- measured: written by `make bench` from here -->";
const END: &str = "<!-- measured: to here -->";

#[test]
fn a_quick_run_measures_each_phase_and_writes_it_down() {
    let docs = tempfile::tempdir().unwrap();
    let page = docs.path().join("benchmarks.md");
    std::fs::write(&page, format!("# Title\n\n{BEGIN}\n{END}\n\nend\n")).unwrap();

    let mut bench = Command::new(env!("CARGO_BIN_EXE_pod-safety-bench"));
    // Not the budgets: kube-controller-manager's part of them takes minutes however small they are.
    bench.args(["--quick", "--only", "start,quiet,heartbeats,removal,bare"]);
    let output = bench.arg("--docs").arg(docs.path()).output().unwrap();
    let progress = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{progress}");

    let tables = String::from_utf8(output.stdout).unwrap();
    for line in [
        "| a cold start: start to synced caches, s |",
        "| bare loop, 32 connections: 100 orphans |",
        "100 DELETE pods",
    ] {
        assert!(tables.contains(line), "{line} is missing:\n{tables}");
    }
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.starts_with("# Title\n") && page.ends_with(&format!("{END}\n\nend\n")), "{page}");
    assert!(page.contains(tables.trim()), "{page}");

    let numbers = std::fs::read_to_string(docs.path().join("benchmarks.json")).unwrap();
    let numbers: Value = serde_json::from_str(&numbers).unwrap();
    let samples = numbers["samples"].as_array().unwrap();
    let counted = ["start", "quiet", "heartbeats", "removal", "bare"]
        .map(|phase| samples.iter().filter(|sample| sample["phase"] == phase).count());
    assert_eq!(counted, [2, 2, 1, 1, 2], "{numbers:#}");
    assert!(!numbers["targets"].as_array().unwrap().is_empty());
}

/// The page that `make bench` fills has a place for the tables.
#[test]
fn the_documentation_has_the_markers() {
    let page = include_str!("../../../docs/benchmarks.md");
    assert!(page.find(BEGIN).is_some_and(|begin| page.find(END) > Some(begin)));
}
