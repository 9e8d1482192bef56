//! The corpus: where it is, and its pages.

use std::path::PathBuf;

use pod_safety_simulator::campaign::{Entry, page, subject};
use pod_safety_simulator::world::{Launch, run, run_with_strike};

/// `tests/simulator/corpus`.
pub(crate) fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// The page of an entry: the first subject that breaks a rule, up to the first violation.
pub(crate) fn page_of(entry: &Entry, launch: Launch) -> Option<String> {
    let (name, rules) = entry.expect.iter().find(|(_, rules)| !rules.is_empty())?;
    let (rule, subject) = (rules.first()?, subject(name, launch)?);
    let outcome = match &entry.strike {
        None => run(&entry.plan, subject),
        Some(strike) => run_with_strike(&entry.plan, subject, strike).0,
    };
    Some(page(&format!("{}\n\nsubject: {name}; broken: {rule}", entry.why), &entry.plan, &outcome, rule))
}
