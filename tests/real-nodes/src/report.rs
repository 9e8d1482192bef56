//! The table, as Markdown.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::cluster::Mode;
use crate::oracle::{Handover, Violation};
use crate::play::Finding;
use crate::promise_check::Outlived;
use crate::scenario::{self, Outcome, Scenario};

/// All findings.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Report {
    found: Vec<Found>,
    /// Of rounds with random faults.
    pub(crate) rounds: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Found {
    scenario: String,
    way: Mode,
    finding: Finding,
}

/// The text above the table in its file.
const HEAD: &str = "# Results on real nodes

`make test-nodes-all` writes this page; [real-nodes.md](../../docs/real-nodes.md#how-to-read-the-table) says how to read it.

<!-- record: test-nodes-all -->
<!-- end of record -->
";

/// The text about outcomes that may be unsafe with pod-safety.
const WHY: &str = "A switch that lies about a machine that is cut off is believed where no second fact is required \
    ([why](../../docs/real-nodes.md#what-is-not-covered)).";

impl Report {
    pub(crate) fn add(&mut self, scenario: &Scenario, way: Mode, finding: Finding) {
        self.found.push(Found { scenario: scenario.name.to_owned(), way, finding });
    }

    /// Adds the findings of another world.
    pub(crate) fn join(&mut self, other: Self) {
        self.found.extend(other.found);
        self.rounds.extend(other.rounds);
    }

    /// In the order of the scenarios.
    fn lines(&self) -> impl Iterator<Item = (&'static Scenario, BTreeMap<Mode, &Finding>)> {
        scenario::ALL.iter().filter_map(|scenario| {
            let of_it = self.found.iter().filter(|found| found.scenario == scenario.name);
            let ways: BTreeMap<_, _> = of_it.map(|found| (found.way, &found.finding)).collect();
            (!ways.is_empty()).then_some((scenario, ways))
        })
    }

    /// As a page of the documentation, about the tree of `commit`.
    pub(crate) fn page(&self, commit: &str) -> String {
        format!("{HEAD}\nCommit {commit}. {}\n\n{}", self.unsafe_with_us(), self.markdown())
    }

    fn unsafe_with_us(&self) -> String {
        let is_unsafe = |ways: &BTreeMap<Mode, &Finding>| {
            ways.iter().any(|(way, finding)| *way != Mode::Plain && finding.outcome == Outcome::Unsafe)
        };
        let names: Vec<_> = self.lines().filter(|(_, ways)| is_unsafe(ways)).map(|(one, _)| one.name).collect();
        if names.is_empty() {
            return "No row is unsafe with pod-safety.".to_owned();
        }
        format!("**Unsafe with pod-safety: {}.** {WHY}", names.join("; "))
    }

    /// A line for each scenario, a cell for each mode; below it, what was reported, and the results of random rounds.
    pub(crate) fn markdown(&self) -> String {
        let mut text = "| scenario | plain | guard | replace |\n|---|---|---|---|\n".to_owned();
        let is_calm =
            |ways: &BTreeMap<Mode, &Finding>| ways.values().all(|finding| finding.outcome == Outcome::Undisturbed);
        for (scenario, ways) in self.lines().filter(|(_, ways)| !is_calm(ways)) {
            let cells = Mode::ALL.map(|way| ways.get(&way).map_or_else(|| "–".to_owned(), |finding| cell(finding)));
            // A complaint of users has a number.
            let of = if scenario.of.contains('#') { format!(" ({})", scenario.of) } else { String::new() };
            let _infallible = writeln!(text, "| {}{of} | {} |", scenario.name, cells.join(" | "));
        }
        let calm: Vec<_> = self.lines().filter(|(_, ways)| is_calm(ways)).map(|(scenario, _)| scenario.name).collect();
        if !calm.is_empty() {
            let _infallible = writeln!(text, "\nUndisturbed in every way: {}.", calm.join("; "));
        }
        text += "\nWhat pod-safety said of an identity that waited, and which acts admission denied:\n\n";
        for (scenario, ways) in self.lines() {
            let messages: BTreeSet<_> = ways.values().flat_map(|finding| &finding.said).collect();
            if !messages.is_empty() {
                let messages =
                    messages.into_iter().map(String::as_str).collect::<Vec<_>>().join("; ").replace(['\n', '|'], " ");
                let _infallible = writeln!(text, "- {}: {messages}", scenario.name);
            }
        }
        let outlived = self.found.iter().map(|one| one.finding.outlived).fold(None, Outlived::longer);
        if let Some(outlived) = outlived {
            let _infallible = writeln!(text, "\nWith agents, {outlived}. T counts from a later moment.");
        }
        if !self.rounds.is_empty() {
            text += "\nRounds of faults by chance, under `replace`:\n\n\
                | seed | rounds | undisturbed | recovered | waited | unsafe | shortest time between two copies |\n\
                |--:|--:|--:|--:|--:|--:|--:|\n";
        }
        for line in &self.rounds {
            let _infallible = writeln!(text, "{line}");
        }
        text
    }
}

/// Violations, recovery time, and whether a person must act.
pub(crate) fn cell(finding: &Finding) -> String {
    let time = finding.recovered.map(|time| format!("{:.0} s", time.as_secs_f64()));
    let after = match finding.calm {
        Some(calm) => format!("person + {:.0} s", calm.as_secs_f64()),
        None => "person, restart".to_owned(),
    };
    match (finding.outcome, time) {
        (Outcome::Undisturbed, _) => "undisturbed".to_owned(),
        (Outcome::Recovers, Some(time)) => time,
        (Outcome::Recovers | Outcome::Waits, _) => after,
        (Outcome::Unsafe, time) => {
            format!("**unsafe for {:.0} s**, {}", damage(&finding.violations), time.unwrap_or(after))
        }
    }
}

/// How late the last line of an earlier copy was, and how soon after it the next copy began.
pub(crate) fn margins(handovers: &[Handover], outlived: Option<Outlived>) -> String {
    let ended = handovers.iter().map(|one| one.ended).reduce(f64::max);
    let between = shortest(handovers);
    let mut text = ended.zip(between).map_or_else(String::new, |(ended, between)| format!(
        " {} times an identity went to another copy: the latest copy ended {ended:.1} s after the first fault, and no copy began sooner than {between:.1} s after the end of the one before.",
        handovers.len()
    ));
    if let Some(outlived) = outlived {
        let _infallible = write!(text, " With agents, {outlived}.");
    }
    text
}

/// The shortest time from the end of a copy to the beginning of the next.
pub(crate) fn shortest(handovers: &[Handover]) -> Option<f64> {
    handovers.iter().map(|one| one.began - one.ended).reduce(f64::min)
}

/// The longest time for which an identity had two copies.
fn damage(violations: &[Violation]) -> f64 {
    violations.iter().map(Violation::seconds).fold(0.0, f64::max)
}
