//! The corpus: every plan that showed a bug or a limit, run again with the tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::plan::Plan;
use super::plant::Plant;
use crate::world::{Baseline, Launch, Outcome, Strike, Subject, run, run_with_strike};

/// One plan, and its expected results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Entry {
    /// What it shows.
    pub why: String,
    /// What happens.
    pub plan: Plan,
    /// What happens at one call or event exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strike: Option<Strike>,
    /// By subject (`shipped`, `kcm`, `script`, `shipped with NoUid`): the rules that it breaks. An empty list: it
    /// breaks none.
    pub expect: BTreeMap<String, Vec<String>>,
}

/// The subject that a name in a corpus stands for; `None`: there is no such subject.
#[must_use]
pub fn subject(name: &str, launch: Launch) -> Option<Subject> {
    match name {
        "shipped" => Some(Subject::Shipped(launch, None)),
        "kcm" => Some(Subject::Baseline(Baseline::KubeControllerManager)),
        "script" => Some(Subject::Baseline(Baseline::Script)),
        _ => {
            let planted = name.strip_prefix("shipped with ")?;
            let (plant, _) = Plant::ALL.into_iter().find(|(plant, _)| format!("{plant:?}") == planted)?;
            Some(Subject::Shipped(launch, Some(plant)))
        }
    }
}

impl Entry {
    /// Runs it with every subject that it names. Returns the differences from the expectation.
    #[must_use]
    pub fn surprises(&self, launch: Launch) -> Vec<String> {
        let mut surprises = Vec::new();
        for (name, expected) in &self.expect {
            let Some(subject) = subject(name, launch) else {
                surprises.push(format!("nobody knows the subject {name:?}"));
                continue;
            };
            let outcome = match &self.strike {
                None => run(&self.plan, subject),
                Some(strike) => run_with_strike(&self.plan, subject, strike).0,
            };
            let broken: BTreeSet<String> =
                outcome.violations.iter().map(|violation| violation.invariant.to_string()).collect();
            let as_expected = match expected.as_slice() {
                [] => broken.is_empty(),
                some => some.iter().all(|rule| broken.contains(rule)),
            };
            if !as_expected {
                surprises.push(format!("{name} should break {expected:?} and broke {broken:?}"));
            }
        }
        surprises
    }
}

/// How many lines a page has.
const PAGE: usize = 60;

/// A run on one page: its plan and its timeline up to the first violation of this rule.
#[must_use]
pub fn page(title: &str, plan: &Plan, outcome: &Outcome, rule: &str) -> String {
    let mut text = format!("{title}\n\n");
    let Plan { seed, servers, nodes, replicas, pods, .. } = plan;
    let _written = writeln!(
        text,
        "seed {seed}: {servers} API servers, {nodes} nodes, {pods} pods of a StatefulSet, {replicas} processes\n\nplan:"
    );
    for (at, fault) in &plan.faults {
        let _written = writeln!(text, "  {at:>5}.000s  {fault:?}");
    }
    text.push_str("\nwhat happened:\n");
    let broke = format!("VIOLATION {rule}");
    let end = outcome.timeline.iter().position(|(_, what)| what.starts_with(&broke));
    let lines = outcome.timeline.get(..=end.unwrap_or(outcome.timeline.len().saturating_sub(1))).unwrap_or_default();
    if lines.len() > PAGE {
        text.push_str("  (its beginning is left out)\n");
    }
    for (at, what) in lines.iter().skip(lines.len().saturating_sub(PAGE)) {
        let _written = writeln!(text, "  {:>9.3}s  {what}", at.as_secs_f64());
    }
    text
}
