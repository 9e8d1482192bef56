//! Findings that are known and not fixed yet: rules that today's tree breaks.
//!
//! A break of such a rule is no violation of the run, and no success either: it is kept apart, and a
//! campaign counts its seeds apart. `tests/known.rs` asserts that each finding *still* breaks its rule by
//! its plan in the corpus, so whoever fixes it must take it from [`KNOWN`]: from then on its rule is one
//! like all others.

use super::Invariant;

/// Something that is known to be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its name in the review that found it.
    pub finding: &'static str,
    /// The issue that fixes it.
    pub issue: u32,
    /// The rule that it breaks.
    pub rule: Invariant,
    /// The plan in the corpus that shows it.
    pub plan: &'static str,
    /// What happens, in a sentence.
    pub what: &'static str,
}

/// All that is known to be wrong.
pub const KNOWN: [Known; 0] = [];

/// What is known of this rule.
pub(super) fn known(rule: Invariant) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.rule == rule)
}
