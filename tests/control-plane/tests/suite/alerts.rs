//! The alerts, their runbooks and the dashboard are consistent with each other, and with the label values of the program. The suite
//! `prometheus` tests them in a running Prometheus.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use pod_safety_control_plane::binary;
use pod_safety_locks::{installed, repository};
use pod_safety_process::registry::Name;
use pod_safety_shared::api::Phase;
use pod_safety_shared::authority::{Step, VerifyError};
use pod_safety_shared::metrics::release_evidence_names;
use serde_json::Value;

const RULES: &str = "charts/pod-safety/rules/pod-safety.rules.yaml";
const RULE_TESTS: &str = "tests/control-plane/rules";
const RUNBOOKS: &str = "docs/runbooks";
const DASHBOARD: &str = "charts/pod-safety/dashboards/pod-safety.json";

fn read_file(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap()
}

fn files(folder: &str) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(repository().join(folder)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.map(|name| (name.clone(), read_file(&format!("{folder}/{name}")))).collect()
}

fn rules() -> Vec<Value> {
    let file: Value = serde_saphyr::from_str(&read_file(RULES)).unwrap();
    let groups = file["groups"].as_array().unwrap().clone();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

/// The rules of each alert: an alert with several severities has several.
fn alerts() -> BTreeMap<String, Vec<Value>> {
    let mut alerts: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for rule in rules() {
        if let Some(name) = rule["alert"].as_str() {
            alerts.entry(name.to_owned()).or_default().push(rule);
        }
    }
    assert!(alerts.len() > 20, "not the whole file");
    alerts
}

/// Every query to Prometheus.
fn queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read_file(DASHBOARD)).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let all = targets.cloned().chain(rules()).map(|asks| asks["expr"].as_str().unwrap().to_owned());
    let all: Vec<_> = all.collect();
    assert!(all.len() > 60, "{} queries: not all", all.len());
    all
}

#[test]
fn promtool_accepts_the_rules_and_finds_that_each_fires_and_stops() {
    let promtool = installed("promtool").unwrap();
    let tests = files(RULE_TESTS).into_keys().map(|name| format!("{RULE_TESTS}/{name}"));
    let tests: Vec<_> = ["test".to_owned(), "rules".to_owned()].into_iter().chain(tests).collect();
    for args in [vec!["check".to_owned(), "rules".to_owned(), RULES.to_owned()], tests] {
        let output = Command::new(&promtool).args(&args).current_dir(repository()).output().unwrap();
        let output_bytes = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "promtool {args:?}: {}", String::from_utf8_lossy(&output_bytes));
    }
}

#[test]
fn each_alert_has_a_rule_test_a_runbook_and_an_index_line() {
    let (pages, tests) = (files(RUNBOOKS), files(RULE_TESTS).into_values().collect::<String>());
    let index = &pages["README.md"];
    let mut expected = BTreeSet::from(["README.md".to_owned()]);
    for (name, rules) in alerts() {
        let summary = rules[0]["annotations"]["summary"].as_str().unwrap();
        let mut severities = Vec::new();
        for rule in &rules {
            let (severity, help_text) = (rule["labels"]["severity"].as_str().unwrap(), &rule["annotations"]);
            assert!(["critical", "warning", "info"].contains(&severity), "{name}: {severity}");
            assert_eq!(help_text["summary"], summary, "{name}");
            assert!(help_text["description"].as_str().unwrap().len() > summary.len(), "{name}: say more");
            let url = help_text["runbook_url"].as_str().unwrap();
            assert!(url.ends_with(&format!("/{RUNBOOKS}/{name}.md")), "{name}: {url}");
            severities.push(severity);
        }
        let severity = severities.join(", then ");
        let page = pages.get(&format!("{name}.md")).unwrap_or_else(|| panic!("{name} has no page"));
        let begins = format!("# {name}\n\n{summary} Severity: {severity}.\n");
        assert!(page.starts_with(&begins), "the page of {name} does not begin with\n{begins}");
        for part in ["## At risk", "## Look", "## Do", "## Do not"] {
            assert!(page.contains(&format!("\n{part}\n\n")), "the page of {name} has no part {part:?}");
        }
        let line = format!("| [{name}]({name}.md) | {severity} | {summary} |\n");
        assert!(index.contains(&line), "the index lacks\n{line}");
        let fires = tests.contains(&format!("{{alertname=\"{name}\"}}"));
        assert!(fires, "no test in {RULE_TESTS} sees {name} fire");
        expected.insert(format!("{name}.md"));
    }
    let there: BTreeSet<_> = pages.keys().cloned().collect();
    assert_eq!(there, expected, "pages and alerts");
    assert_eq!(index.matches("\n| [").count(), alerts().len(), "lines of the index and alerts");
}

/// The texts read "1 pods or nodes": a count stands at the end of its sentence, where any number is right.
#[test]
fn bug_texts_of_alerts_were_wrong_for_one() {
    let mut counts = 0;
    for (name, rules) in alerts() {
        for description in rules.iter().map(|rule| rule["annotations"]["description"].as_str().unwrap()) {
            for after in description.split("{{ $value").skip(1) {
                let (format, after) = after.split_once("}}").unwrap();
                if !matches!(format.trim(), "" | "| printf \"%.0f\"") {
                    continue;
                }
                counts += 1;
                let is_right = [".", " of the "].iter().any(|end| after.starts_with(end));
                assert!(is_right, "{name}: {description}");
            }
        }
    }
    assert!(counts > 20, "{counts} counts: not all");
}

#[test]
fn links_of_the_runbooks_exist() {
    let pages = files(RUNBOOKS);
    for (name, page) in &pages {
        for link in page.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = link.split('#').next().unwrap_or_default();
            let is_on_this_page = path.is_empty();
            let there = is_on_this_page || repository().join(RUNBOOKS).join(path).is_file();
            assert!(there, "{name} leads to {link}");
        }
    }
}

/// The metrics in an expression.
fn queried_metrics(expr: &str) -> BTreeSet<String> {
    const LISTS: [&str; 6] = ["by", "on", "without", "ignoring", "group_left", "group_right"];
    const WORDS: [&str; 3] = ["and", "or", "unless"];
    let mut rest = expr;
    let mut matches = BTreeSet::new();
    while let Some(first) = rest.chars().next() {
        let closing = match first {
            '"' => Some('"'),
            '{' => Some('}'),
            '[' => Some(']'),
            _ => None,
        };
        if let Some(closing) = closing {
            rest = rest[1..].split_once(closing).unwrap().1;
            continue;
        }
        if first.is_ascii_digit() {
            rest = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '.');
            continue;
        }
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "_:".contains(c))).unwrap_or(rest.len());
        if end == 0 {
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let (word, after) = rest.split_at(end);
        rest = after;
        if LISTS.contains(&word) {
            rest = rest.split_once(')').unwrap().1;
        } else if !WORDS.contains(&word)
            && !["(", "by ", "without "].iter().any(|next| rest.trim_start().starts_with(next))
        {
            matches.insert(word.to_owned());
        }
    }
    matches
}

#[test]
fn names_of_metrics_are_found_in_expressions() {
    let expr = r#"histogram_quantile(0.99, sum by (cluster, le) (rate(a_bucket{x=~"b|c"}[5m]) and on (job) d)) > 1.5 unless e == 0"#;
    assert_eq!(queried_metrics(expr), ["a_bucket", "d", "e"].map(str::to_owned).into());
}

#[test]
fn expressions_use_documented_metrics_only() {
    let docs = read_file("docs/metrics.md");
    let listed = |line: &str| Some(line.strip_prefix("| `")?.split_once("` | ")?.0.to_owned());
    let mut documented: BTreeSet<_> = docs.lines().filter_map(listed).collect();
    let histograms = docs.lines().filter(|line| line.contains("` | histogram |")).filter_map(listed);
    let buckets: Vec<_> = histograms.map(|name| format!("{name}_bucket")).collect();
    documented.extend(buckets);
    documented.extend(rules().iter().filter_map(|rule| rule["record"].as_str().map(str::to_owned)));
    // Metrics of Prometheus and of kube-apiserver.
    documented.extend(["up", "apiserver_validating_admission_policy_check_total"].map(str::to_owned));
    for query in queries() {
        let unknown: Vec<_> = queried_metrics(&query).difference(&documented).cloned().collect();
        assert!(unknown.is_empty(), "docs/metrics.md, which is the binary's own list, lacks {unknown:?}: {query}");
    }
}

/// The values in `label=`, `label!=`, `label=~` or `label!~`, each alternative separately.
fn values(expr: &str, label: &str) -> Vec<String> {
    let matchers = expr.split(label).skip(1).filter_map(|rest| {
        let rest = rest.trim_start_matches(['=', '~', '!']).strip_prefix('"')?;
        Some(rest.split_once('"')?.0.to_owned())
    });
    matchers.flat_map(|value| value.split('|').map(str::to_owned).collect::<Vec<_>>()).collect()
}

fn every_hold() -> Vec<&'static str> {
    Name::ALL.iter().flat_map(|name| name.hold_reasons()).collect()
}

#[test]
fn expressions_use_existing_label_values_only() {
    let reasons: BTreeSet<_> = every_hold().into_iter().chain(VerifyError::reasons()).collect();
    let words = [
        ("reason", reasons),
        ("phase", Phase::ALL.iter().copied().map(Phase::name).collect()),
        ("step", Step::NAMES.iter().copied().collect()),
        ("evidence", release_evidence_names().into_iter().collect()),
        ("mode", ["observe", "guard", "replace"].into()),
    ];
    for query in queries() {
        for (label, documented) in &words {
            let unknown: Vec<_> =
                values(&query, label).into_iter().filter(|value| !documented.contains(value.as_str())).collect();
            assert!(unknown.is_empty(), "{label} is never {unknown:?}: {query}");
        }
    }
    assert_eq!(values(r#"a{reason=~"B|C", reason!="D"}"#, "reason"), ["B", "C", "D"]);
}

#[test]
fn each_hold_that_needs_an_operator_has_an_alert() {
    let alerted: BTreeSet<_> =
        rules().iter().flat_map(|rule| values(rule["expr"].as_str().unwrap(), "reason")).collect();
    // Holds that end by themselves, are intended, or have a metric of their own.
    let without_alert = [
        "AttemptUnderWay",
        "AwaitingOperator",
        "AwaitsKubelet",
        "Collateral",
        "Concurrency",
        "Cooldown",
        "Drain",
        "DryRun",
        "EvictionOff",
        "FenceNotNeeded",
        "MachinePoweredOff",
        "ProviderBehind",
        "RetryBackoff",
        "NoPods",
        "NotSynced",
        "PodsNotCounted",
        "Quarantine",
        "RemediationTimedOut",
        "Repeated",
        "ScaleAsked",
        "SignOfLife",
        "Stale",
        "Tolerated",
        "TooManyLabels",
        "UnmanagedPods",
        "VolumeDetached",
        "VolumeUnconfirmed",
        "WaitsForVolume",
        "WouldFence",
    ];
    let forgotten: BTreeSet<_> = every_hold()
        .into_iter()
        .filter(|reason| !alerted.contains(*reason) && !without_alert.contains(reason))
        .collect();
    assert_eq!(forgotten, BTreeSet::new(), "neither an alert nor a reason to be silent");
}

/// The dashboard showed "none" for an identity that waits for evidence, while the alert for it fired.
#[test]
fn bug_the_dashboard_counts_each_hold_that_needs_an_operator() {
    let dashboard: Value = serde_json::from_str(&read_file(DASHBOARD)).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let panel = panels.iter().find(|panel| panel["title"] == "Held for a person").unwrap();
    let counted: BTreeSet<_> = values(panel["targets"][0]["expr"].as_str().unwrap(), "reason").into_iter().collect();
    let of_a_person = [
        "PodSafetyPodsHeld",
        "PodSafetyFinalizersHeld",
        "PodSafetyEvidenceConflictsWithReady",
        "PodSafetyFenceBlocked",
        "PodSafetyVolumeHeld",
        "PodSafetyVolumeOnSeveralNodes",
    ];
    let alerts = alerts();
    let expected = of_a_person.iter().flat_map(|name| &alerts[*name]);
    let expected: BTreeSet<_> = expected.flat_map(|rule| values(rule["expr"].as_str().unwrap(), "reason")).collect();
    assert!(expected.contains("NoEvidence") && expected.contains("VolumeUnproved"));
    let missing: Vec<_> = expected.difference(&counted).collect();
    assert!(missing.is_empty(), "the panel does not count {missing:?}");
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    assert!(variables.iter().any(|one| one["name"] == "cluster"), "one dashboard for several clusters");
    for query in panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten() {
        let expr = query["expr"].as_str().unwrap();
        assert!(expr.contains("cluster=~\"$cluster\""), "of another cluster, too: {expr}");
        assert!(!expr.contains("sum(max by (") || expr.contains("sum(max by (cluster, "), "of one cluster: {expr}");
        let is_increase = ["rate(", "increase("].iter().any(|function| expr.contains(function));
        assert!(is_increase || !expr.contains("_total{"), "since the process started: {expr}");
    }
}

/// A panel without a series has the first colour of its thresholds: "Held for a person: none" was green while no process led, and so were
/// the nodes of a cluster where no process counts them.
#[test]
fn bug_an_unknown_value_was_shown_green() {
    let dashboard: Value = serde_json::from_str(&read_file(DASHBOARD)).unwrap();
    let all = dashboard["panels"].as_array().unwrap().iter();
    let numbers: Vec<_> = all.filter(|panel| panel["type"] == "stat").collect();
    assert!(numbers.len() > 5, "not all");
    for panel in numbers {
        let defaults = &panel["fieldConfig"]["defaults"];
        let begins = &defaults["thresholds"]["steps"][0];
        assert_ne!(begins["color"], "green", "{}", panel["title"]);
        assert!(begins["value"].is_null(), "{}", panel["title"]);
    }
}

/// Labels name no objects, so an alert must name a command that lists them.
#[tokio::test]
async fn every_alert_names_the_command_to_type() {
    for (name, rules) in alerts() {
        for rule in rules {
            let command = rule["annotations"]["command"].as_str().unwrap_or_default();
            let words: Vec<_> = command.split(' ').collect();
            assert_eq!(words[0], "pod-safety", "{name}: {command:?}");
            let help_text = help(&words[1..=1]).await;
            assert!(words.len() < 3 || help_text.contains(words[2]), "{name}: {command}");
        }
    }
}

/// The text in backticks, and the lines of command blocks.
fn code(page: &str) -> Vec<&str> {
    let mut matches = Vec::new();
    for (number, part) in page.split("```").enumerate() {
        match number % 2 {
            0 => matches.extend(part.split('`').skip(1).step_by(2)),
            _ => matches.extend(part.lines()),
        }
    }
    matches
}

/// The help of a command of the program.
async fn help(command: &[&str]) -> String {
    let output =
        tokio::process::Command::new(binary().await.unwrap()).args(command).arg("--help").output().await.unwrap();
    assert!(output.status.success(), "there is no pod-safety {command:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn commands_and_flags_that_the_pages_name_exist() {
    const OF_KUBECTL: [&str; 3] = ["--force", "--disable-eviction", "--previous"];
    let run = help(&["run"]).await;
    let flag = |word: &str| word.split('=').next().unwrap_or_default().to_owned();
    let mut commands = BTreeSet::new();
    for (name, page) in files(RUNBOOKS) {
        for line in code(&page) {
            if let Some(words) = line.strip_prefix("pod-safety ") {
                let own_arguments = words.split(" | ").next().unwrap_or_default().split_whitespace();
                let (flags, words): (Vec<_>, Vec<_>) = own_arguments.partition(|word| word.starts_with("--"));
                let lower =
                    |word: &&&str| !word.starts_with('-') && word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
                let command: Vec<_> = words.iter().take_while(lower).copied().collect();
                let help_text = help(&command).await;
                for flag in flags.into_iter().map(flag) {
                    assert!(help_text.contains(&flag), "{name}: {line}");
                }
                commands.insert(command.join(" "));
            } else if line.starts_with("--") && !OF_KUBECTL.contains(&line) {
                let flag = flag(line.split(' ').next().unwrap_or_default());
                assert!(run.contains(&format!("{flag} ")) || run.contains(&format!("{flag}[")), "{name}: {line}");
            }
        }
    }
    assert!(commands.len() >= 5, "the pages lead to commands: {commands:?}");
}
