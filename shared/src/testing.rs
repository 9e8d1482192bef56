//! Views without a cluster, for table tests of `decide`. Not in the shipped binary.

#[cfg(test)]
pub(crate) mod example_hold;
#[cfg(test)]
mod parts;

use std::collections::BTreeSet;
use std::time::Duration;

use crate::cache::FreshnessError;
use crate::controller_loop::{Decision, HoldReason};
use crate::events::EventType;
use crate::model::Kind;
#[cfg(test)]
pub(crate) use parts::{Claimed, parts};
pub use pod_safety_cache::testing::{World, at, objects};
pub use pod_safety_client::scripted::{AnswerFn, connection};

/// Whether this environment variable requests that a test rewrites its golden files.
///
/// # Panics
/// The variable is set in CI, where it would disable the comparison, or to a value other than `1`.
#[must_use]
pub fn should_rewrite(variable: &str) -> bool {
    let Some(value) = std::env::var_os(variable) else { return false };
    assert!(std::env::var_os("CI").is_none(), "{variable} is set, and so is CI");
    assert_eq!(value, "1", "{variable}: only 1 means something");
    true
}

/// The reasons of a decision's holds.
#[must_use]
pub fn hold_reasons<H: HoldReason>(decision: &Decision<H>) -> Vec<&'static str> {
    decision.holds.iter().map(|(_, hold)| hold.reason()).collect()
}

/// Compares every hold of a controller with the Event that it should have. `counts_down` has the reasons of holds that
/// count down.
///
/// # Panics
/// If an Event differs, or a hold of the controller is not among the rows.
pub fn assert_events<H: HoldReason>(rows: Vec<(H, Option<(EventType, &'static str)>)>, counts_down: &[&str]) {
    let kind = Kind::Pods;
    let unfresh = [FreshnessError::NotSynced { kind }, FreshnessError::Stale { kind, silent: Duration::from_secs(90) }];
    let rows: Vec<_> = rows.into_iter().chain(unfresh.map(|why| (H::from(why), None))).collect();
    for (hold, event) in &rows {
        let here = (hold.event(), hold.counts_down());
        assert_eq!(here, (*event, counts_down.contains(&hold.reason())), "{hold}");
    }
    let actual: BTreeSet<_> = rows.iter().map(|(hold, _)| hold.reason()).collect();
    assert_eq!(actual, H::reason_names().into_iter().collect());
}

/// The metrics in Prometheus text format.
///
/// # Panics
/// The metrics cannot be encoded.
#[must_use]
#[expect(clippy::expect_used, reason = "test support")]
pub fn metrics_text(registry: &prometheus::Registry) -> String {
    prometheus::TextEncoder::new().encode_to_string(&registry.gather()).expect("text")
}
