//! Views without a cluster, for tables of `decide`. Not in the shipped binary.

#[cfg(test)]
mod parts;
#[cfg(test)]
pub(crate) mod toy;

use crate::drive::{Decision, HoldReason};
#[cfg(test)]
pub(crate) use parts::{Claimed, parts};
pub use pod_safety_cache::testing::{World, at, objects};
pub use pod_safety_client::scripted::{Says, connection};

/// Whether this variable says that a test writes its expectations anew.
///
/// # Panics
/// It is set in CI, where it would turn the comparison off, or to something other than `1`.
#[must_use]
pub fn writes_anew(variable: &str) -> bool {
    let Some(word) = std::env::var_os(variable) else { return false };
    assert!(std::env::var_os("CI").is_none(), "{variable} is set, and so is CI");
    assert_eq!(word, "1", "{variable}: only 1 means something");
    true
}

/// What holds, by its reasons.
#[must_use]
pub fn reasons<H: HoldReason>(decision: &Decision<H>) -> Vec<&'static str> {
    decision.holds.iter().map(|(_, hold)| hold.reason()).collect()
}

/// What Prometheus reads.
///
/// # Panics
/// It cannot be written.
#[must_use]
#[expect(clippy::expect_used, reason = "test support")]
pub fn page(registry: &prometheus::Registry) -> String {
    prometheus::TextEncoder::new().encode_to_string(&registry.gather()).expect("text")
}
