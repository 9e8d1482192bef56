//! Checks the records of runs outside of `make test`: each record matches the current files, and the pages match the records.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use pod_safety_locks::documents::{Block, Command, blocks, commands_of};
use pod_safety_locks::records::{Changed, NAMES, Record, changed, check_changed, current, pages, record, rewritten};
use pod_safety_locks::{Source, repository};

#[test]
fn inputs_of_recorded_runs_are_unchanged_or_listed() -> Result<()> {
    let list = changed()?;
    let mut wrong = Vec::new();
    for name in NAMES {
        let record = record(name)?;
        wrong.extend(check_changed(name, &record, &current(&record.depends)?, &list));
    }
    let idle = list.iter().filter(|one| {
        let accepts_several = one.now.is_some() && one.paths.len() != 1;
        one.why.trim().is_empty() || !NAMES.contains(&one.record.as_str()) || accepts_several
    });
    wrong.extend(idle.map(|one| format!("tests/records/changed.toml: {one:?}")));
    ensure!(
        wrong.is_empty(),
        "files have changed since the runs of tests/records: run again what is named first, or say in tests/records/changed.toml why its \
         outcome stands (with `now`), or that it is stale (without)\n{}",
        wrong.join("\n")
    );
    Ok(())
}

#[test]
fn each_record_has_commit_date_outcome_and_files() -> Result<()> {
    for name in NAMES {
        let one = record(name)?;
        let is_commit = one.commit.len() == 40 && one.commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_day = one.date.len() == 10 && one.date.split('-').all(|part| part.parse::<u16>().is_ok());
        ensure!(is_commit && is_day && !one.outcome.is_empty() && !one.files.is_empty(), "{name}: {one:?}");
    }
    Ok(())
}

/// `cargo run -p pod-safety-locks --example record` writes the pages.
#[test]
fn pages_equal_the_records() -> Result<()> {
    let pages = pages()?;
    for page in &pages {
        ensure!(
            rewritten(page)? == page.text,
            "{} differs from tests/records: cargo run -p pod-safety-locks --example record",
            page.path
        );
    }
    for (path, what) in [
        ("docs/benchmarks.md", "bench"),
        ("docs/fence-devices.md", "image-agents"),
        ("docs/kind.md", "test-kind"),
        ("docs/kind.md", "test-kind steps"),
        ("tests/records/mutants.md", "mutants"),
        ("tests/records/real-nodes.md", "test-nodes-all"),
        ("docs/support.md", "all"),
        ("docs/watchdog-lease.md", "watchdog"),
    ] {
        let place = format!("<!-- record: {what} -->");
        ensure!(
            pages.iter().any(|page| page.path == path && page.text.contains(&place)),
            "{path} should show the record: {place}"
        );
    }
    Ok(())
}

#[test]
fn the_readme_cluster_commands_ran_as_written() -> Result<()> {
    let steps = record("test-kind")?.steps;
    let is_kind = |block: &Block| block.file == "README.md" && block.text.contains("kind create cluster");
    let block = blocks()?.into_iter().find(is_kind).context("README makes no kind cluster")?;
    for Command { place, text, .. } in commands_of(&block)? {
        let step = format!("`{text}`");
        ensure!(steps.iter().any(|one| one.name == step), "{place}: no step of make test-kind was {step}");
    }
    Ok(())
}

/// The agents of docs/quickstart-cloud.md are read from the page, and not hashed with it.
#[test]
fn every_agent_of_the_cloud_quickstart_ran_in_the_image() -> Result<()> {
    let ran = record("image-agents")?.figures.remove("agents that run").unwrap_or_default();
    let page = std::fs::read_to_string(repository().join("docs/quickstart-cloud.md"))?;
    let shown: Vec<_> = page.lines().filter_map(|line| line.trim().strip_prefix("agent: fence_")).collect();
    ensure!(shown.len() > 5, "{shown:?}");
    for agent in shown {
        let agent = format!("fence_{agent}");
        ensure!(
            ran.split(' ').any(|one| one == agent),
            "{agent} did not run when tests/image/agents.sh ran last: {ran}"
        );
    }
    Ok(())
}

/// The rows of the two tables of docs/watchdog-lease.md, by their names in tests/watchdog/qemu.sh.
const WATCHDOG: [(&str, &str); 10] = [
    ("open", "the process keeps the device open"),
    ("stopped", "it is stopped (SIGSTOP)"),
    ("killed", "it is killed 8 s later"),
    ("paused", "the virtual machine is paused for 15 s"),
    ("agent-armed", "grants go on for 25 s"),
    ("agent-stopped", "the agent is stopped (SIGSTOP)"),
    ("agent-killed", "the agent is killed 1 s later"),
    ("agent-stopped-killed", "it is stopped, and killed 8 s later"),
    ("agent-outage", "the cable is pulled for 30 s"),
    ("agent-revoked", "another client writes `Revoked`"),
];

#[test]
fn the_tables_of_the_watchdog_are_those_of_its_record() -> Result<()> {
    let figures = record("watchdog")?.figures;
    let page = std::fs::read_to_string(repository().join("docs/watchdog-lease.md"))?.replace("**", "");
    for (what, name) in WATCHDOG {
        // For an agent: `POD | RESET | GRANTS`, for a device: the seconds to its reset.
        let parts = |driver: &str| -> Result<Vec<String>> {
            let figure = figures.get(&format!("{driver}, {what}")).with_context(|| format!("{driver}, {what}"))?;
            Ok(figure.split(" | ").map(str::to_owned).collect())
        };
        let (hard, soft) = (parts("i6300esb")?, parts("softdog")?);
        let row = match (hard.as_slice(), soft.as_slice()) {
            ([hard], [soft]) => format!("| {name} | {hard} | {soft} |"),
            ([pod, hard, ..], [_, soft, ..]) => {
                let pod = match (pod.as_str(), hard.as_str()) {
                    ("runs on", "not") => "it runs on",
                    ("runs on", _) => "with the machine",
                    (ended, _) => ended,
                };
                let reset = |seconds: &str| seconds.replace("not", "never");
                format!("| {name} | {pod} | {} | {} |", reset(hard), reset(soft))
            }
            _ => anyhow::bail!("{what}: {hard:?} and {soft:?}"),
        };
        ensure!(page.contains(&row), "docs/watchdog-lease.md should have the row: {row}");
    }
    Ok(())
}

#[test]
fn a_page_without_the_end_of_its_record_or_with_an_unknown_one_is_refused() {
    for text in ["<!-- record: test-kind -->\nNone.\n", "<!-- record: test-moon -->\n<!-- end of record -->\n"] {
        let page = Source { path: "docs/x.md".to_owned(), text: text.to_owned() };
        assert!(rewritten(&page).is_err(), "{text}");
    }
}

#[test]
fn a_change_is_detected_unless_listed_with_its_hash() -> Result<()> {
    let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(path, hash)| ((*path).to_owned(), (*hash).to_owned())).collect()
    };
    let entry = |path: &str, now: Option<&str>| Changed {
        record: "bench".to_owned(),
        paths: vec![path.to_owned()],
        now: now.map(str::to_owned),
        why: "a comment".to_owned(),
    };
    let then = Record { files: map(&[("a", "1"), ("b/", "2")]), ..record("bench")? };
    type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], Vec<Changed>, &'a str);
    let cases: [Case<'_>; 9] = [
        ("as it was", &[("a", "1"), ("b/", "2")], vec![], ""),
        ("changed", &[("a", "7"), ("b/", "2")], vec![], "bench: a has changed: now = \"7\""),
        ("new", &[("a", "1"), ("b/", "2"), ("c", "3")], vec![], "c has changed"),
        ("gone", &[("b/", "2")], vec![], "now = \"gone\""),
        ("allowed", &[("a", "7"), ("b/", "2")], vec![entry("a", Some("7"))], ""),
        ("changed again", &[("a", "8"), ("b/", "2")], vec![entry("a", Some("7"))], "a has changed once more"),
        ("stale", &[("a", "1"), ("b/", "9")], vec![entry("b/", None)], ""),
        ("idle", &[("a", "1"), ("b/", "2")], vec![entry("a", Some("1"))], "a is not changed"),
        ("unknown", &[("a", "1"), ("b/", "2")], vec![entry("d", None)], "d is not changed"),
    ];
    for (what, now, list, expected) in cases {
        let wrong = check_changed("bench", &then, &map(now), &list).join("\n");
        assert!(if expected.is_empty() { wrong.is_empty() } else { wrong.contains(expected) }, "{what}: {wrong:?}");
    }
    Ok(())
}
