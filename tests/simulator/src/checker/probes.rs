//! What must happen sometimes: a campaign in which it does not has not looked there.

use std::collections::BTreeMap;

/// How many seeds the numbers below are for.
const SEEDS: u64 = 2_000;

/// What must happen, and at least how often in [`SEEDS`] seeds: about a third of
/// what was measured, so that another drawing of faults does not break them.
const SOMETIMES: [(&str, u64); 0] = [];

/// What happened too rarely in a campaign of `seeds` seeds: name, count, and what
/// was wanted. Fewer seeds than the table is for want proportionally less, and
/// nothing of what would come out below three.
#[must_use]
pub fn unreached(probes: &BTreeMap<String, u64>, seeds: u64) -> Vec<(&'static str, u64, u64)> {
    let wanted = |count: u64| count.saturating_mul(seeds.min(SEEDS)) / SEEDS;
    let counted = |name: &str| probes.get(name).copied().unwrap_or_default();
    let rows = SOMETIMES.iter().map(|(name, count)| (*name, counted(name), wanted(*count)));
    rows.filter(|(_, count, wanted)| *wanted >= 3 && count < wanted).collect()
}
