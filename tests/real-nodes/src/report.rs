//! The table, as Markdown.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::cluster::Way;
use crate::oracle::{Handover, Violation};
use crate::outlived::Outlived;
use crate::play::Finding;
use crate::scenario::{self, Outcome, Scenario};

/// All that was found.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Report {
    found: Vec<Found>,
    /// Of rounds by chance.
    pub(crate) rounds: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Found {
    scenario: String,
    way: Way,
    finding: Finding,
}

/// Above the table in its file.
const HEAD: &str = "# What came of it on real nodes

Written by `make test-nodes-all`; [real-nodes.md](real-nodes.md) says how to read it.

<!-- record: test-nodes-all -->
<!-- end of record -->

";

/// About what may be unsafe with pod-safety.
const WHY: &str = "Without a second fact a switch that lies about a machine that is cut off is believed; with one, as in the rows that \
    ask for it, it is not. [What is not covered](real-nodes.md#what-is-not-covered) says more.";

impl Report {
    pub(crate) fn add(&mut self, scenario: &Scenario, way: Way, finding: Finding) {
        self.found.push(Found { scenario: scenario.name.to_owned(), way, finding });
    }

    /// What was found in another world.
    pub(crate) fn join(&mut self, other: Self) {
        self.found.extend(other.found);
        self.rounds.extend(other.rounds);
    }

    /// In the order of the scenarios.
    fn lines(&self) -> impl Iterator<Item = (&'static Scenario, BTreeMap<Way, &Finding>)> {
        scenario::ALL.iter().filter_map(|scenario| {
            let of_it = self.found.iter().filter(|found| found.scenario == scenario.name);
            let ways: BTreeMap<_, _> = of_it.map(|found| (found.way, &found.finding)).collect();
            (!ways.is_empty()).then_some((scenario, ways))
        })
    }

    /// As a page of the documentation.
    pub(crate) fn page(&self) -> String {
        format!("{HEAD}{}\n\n{}", self.unsafe_with_us(), self.markdown())
    }

    fn unsafe_with_us(&self) -> String {
        let is_unsafe = |ways: &BTreeMap<Way, &Finding>| {
            ways.iter().any(|(way, finding)| *way != Way::Plain && finding.outcome == Outcome::Unsafe)
        };
        let names: Vec<_> =
            self.lines().filter(|(_, ways)| is_unsafe(ways)).map(|(one, _)| one.name).collect();
        if names.is_empty() {
            return "No row is unsafe with pod-safety.".to_owned();
        }
        format!("**Unsafe with pod-safety: \"{}\".** {WHY}", names.join("\", \""))
    }

    /// A line for each scenario, a cell for each way; below it, what was violated and what was said.
    pub(crate) fn markdown(&self) -> String {
        let mut text =
            "| scenario | asked by | plain | guard | replace |\n|---|---|---|---|---|\n".to_owned();
        for (scenario, ways) in self.lines() {
            let cells =
                Way::ALL.map(|way| ways.get(&way).map_or_else(|| "–".to_owned(), |finding| cell(finding)));
            let _infallible =
                writeln!(text, "| {} | {} | {} |", scenario.name, scenario.of, cells.join(" | "));
        }
        text += "\n| scenario | way | what was seen and said |\n|---|---|---|\n";
        for (scenario, ways) in self.lines() {
            for (way, finding) in ways {
                let violations = finding.violations.iter().map(ToString::to_string);
                let all: Vec<_> = violations.chain(finding.said.iter().cloned()).collect();
                if !all.is_empty() {
                    let all = all.join("; ").replace(['\n', '|'], " ");
                    let _infallible = writeln!(text, "| {} | {} | {} |", scenario.name, way.name(), all);
                }
            }
        }
        let outlived: Vec<_> =
            self.found.iter().filter_map(|one| Some((one, one.finding.outlived?))).collect();
        if !outlived.is_empty() {
            text += "\n| scenario with agents | way | the longest that a copy ran after the last grant of its node's agent | T |\n|---|---|--:|--:|\n";
        }
        for (Found { scenario, way, .. }, Outlived { seconds, bound }) in outlived {
            let _infallible =
                writeln!(text, "| {scenario} | {} | {seconds:.1} s | {bound:.1} s |", way.name());
        }
        for line in &self.rounds {
            let _infallible = writeln!(text, "\n{line}");
        }
        text
    }
}

/// Violations, recovery time, and whether a person is needed.
pub(crate) fn cell(finding: &Finding) -> String {
    let time = finding.recovered.map(|time| format!("{:.0} s", time.as_secs_f64()));
    let after = match finding.calm {
        Some(calm) => format!("{:.0} s after the repair", calm.as_secs_f64()),
        None => "not by the repair alone".to_owned(),
    };
    match (finding.outcome, time) {
        (Outcome::Undisturbed, _) => "undisturbed".to_owned(),
        (Outcome::Recovers, Some(time)) => format!("{time}, nobody needed"),
        (Outcome::Recovers | Outcome::Waits, _) => format!("waits for a person; {after}"),
        (Outcome::Unsafe, time) => {
            let what = damage(&finding.violations);
            format!("**unsafe: {what}**; {}", time.unwrap_or_else(|| format!("waits for a person; {after}")))
        }
    }
}

/// How late the last line of an earlier copy was, and how soon after it the next one began.
pub(crate) fn margins(handovers: &[Handover], outlived: Option<Outlived>) -> String {
    let ended = handovers.iter().map(|one| one.ended).reduce(f64::max);
    let between = handovers.iter().map(|one| one.began - one.ended).reduce(f64::min);
    let mut text = ended.zip(between).map_or_else(String::new, |(ended, between)| format!(
        " {} times an identity went to another copy: the latest copy ended {ended:.1} s after the first fault, and no copy began sooner than {between:.1} s after the end of the one before.",
        handovers.len()
    ));
    if let Some(outlived) = outlived {
        let _infallible = write!(text, " With agents, {outlived}.");
    }
    text
}

/// How many identities had two copies, and for how long at most.
fn damage(violations: &[Violation]) -> String {
    let identities: BTreeSet<_> = violations.iter().map(Violation::identity).collect();
    let longest = violations.iter().map(Violation::seconds).fold(0.0, f64::max);
    let copies = if identities.len() == 1 {
        "two copies of one identity"
    } else {
        "two copies each of several identities"
    };
    format!("{copies} for {longest:.1} s")
}
