//! A `PodDisruptionBudget` as decisions see it.
//!
//! Source: `k8s.io/api/policy/v1`, `k8s.io/apimachinery/pkg/util/intstr`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::labels::{BadSelector, Selector};
use super::{Mono, Pod, Rv, Uid};

/// Which budget, and which of those that had its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetKey {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// The identity.
    pub uid: Uid,
}

impl std::fmt::Display for BudgetKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Why `minAvailable` or `maxUnavailable` cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is neither a number nor a percentage such as \"30%\"")]
pub struct BadAmount {
    /// What stands there.
    pub text: Box<str>,
}

/// An `IntOrString`: so many pods, or so many of a hundred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Pods.
    Pods(i32),
    /// Percent of the pods that are expected.
    Percent(i32),
}

impl std::fmt::Display for Amount {
    /// As the API writes it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pods(pods) => write!(f, "{pods}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl Amount {
    /// Reads the string form, which must be a percentage (`getIntOrPercentValueSafely`).
    ///
    /// # Errors
    /// Anything else.
    pub fn parse(text: &str) -> Result<Self, BadAmount> {
        let bad = || BadAmount { text: text.into() };
        let digits = text.strip_suffix('%').ok_or_else(bad)?;
        // Go's Atoi takes a sign, too.
        digits.parse().map(Self::Percent).map_err(|_| bad())
    }

    /// How many of `total` pods it is, rounded up
    /// (`GetScaledValueFromIntOrPercent(…, roundUp: true)`).
    #[must_use]
    pub fn scaled_value(self, total: i32) -> i32 {
        match self {
            Self::Pods(pods) => pods,
            Self::Percent(percent) => {
                let hundredths = i64::from(percent) * i64::from(total);
                // Division rounds toward zero, which for a negative number is up already.
                let up = i64::from(hundredths > 0 && hundredths % 100 != 0);
                let whole = hundredths / 100 + up;
                i32::try_from(whole).unwrap_or(if whole < 0 { i32::MIN } else { i32::MAX })
            }
        }
    }
}

/// What a budget asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BudgetLimit {
    /// So many must stay healthy.
    MinAvailable(Amount),
    /// So many may be missing.
    MaxUnavailable(Amount),
    /// Neither field is set: nothing is wanted.
    Unset,
    /// A field that cannot be read, by its name.
    Unreadable(&'static str, BadAmount),
}

/// What a budget asks for pods that are not Ready: `unhealthyPodEvictionPolicy`. The
/// API server alone obeys it; the budget's numbers do not depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnhealthyPolicy {
    /// They may go while enough others are healthy. Also what a word means that
    /// nobody knows (`eviction.go`).
    #[default]
    IfHealthyBudget,
    /// They may always go.
    AlwaysAllow,
}

impl UnhealthyPolicy {
    /// Its word in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::IfHealthyBudget => "IfHealthyBudget",
            Self::AlwaysAllow => "AlwaysAllow",
        }
    }
}

/// The condition `DisruptionAllowed`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisruptionAllowedCondition {
    /// `True`, `False`; anything else counts as `Unknown`.
    pub status: Box<str>,
    /// One word.
    pub reason: Box<str>,
    /// A sentence; empty unless the calculation failed.
    pub message: Box<str>,
    /// The generation that it is about.
    pub observed_generation: i64,
}

/// An entry of `disruptedPods`: the eviction of a pod was let through.
///
/// The API knows the pod's name and the API server's time. When it is over, and
/// whom it is about, is decided by what this process saw (weak spots W-DC6, W-DC8):
/// clocks differ, and a successor may have the name already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisruptedPod {
    /// When, in seconds of the API server's clock.
    pub at: i64,
    /// When this process first saw it.
    pub first_seen: Mono,
    /// Who had the name when the entry appeared; `None`: that was not seen.
    pub pod: Option<Uid>,
}

/// What the last calculation wrote, and what evictions changed since.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BudgetStatus {
    /// The generation of the spec that the numbers are about.
    pub observed_generation: i64,
    /// How many evictions the API server lets through before the next calculation.
    pub disruptions_allowed: i32,
    /// Ready pods that nobody asked to end.
    pub current_healthy: i32,
    /// How many of them there must be.
    pub desired_healthy: i32,
    /// How many pods there should be.
    pub expected_pods: i32,
    /// Pods whose eviction was let through, by name.
    pub disrupted: BTreeMap<Box<str>, DisruptedPod>,
    /// The condition, if it was ever written.
    pub allowed_condition: Option<DisruptionAllowedCondition>,
}

/// A budget as decisions see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Where and who.
    pub key: BudgetKey,
    /// The version that was read.
    pub rv: Rv,
    /// Counts changes of the spec.
    pub generation: i64,
    /// Which pods it is about; `None`: the field is not set, so none.
    pub selector: Result<Option<Selector>, BadSelector>,
    /// What it asks for.
    pub limit: BudgetLimit,
    /// What it asks for pods that are not Ready.
    pub unhealthy_policy: UnhealthyPolicy,
    /// Its status.
    pub status: BudgetStatus,
}

impl Budget {
    /// Whether a pod that it chooses counts as healthy.
    #[must_use]
    pub fn counts_as_healthy(&self, pod: &Pod) -> bool {
        pod.ready && pod.deletion.is_none() && !self.status.disrupted.contains_key(&*pod.key.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `TestGetScaledValueFromIntOrPercent` and its neighbours.
    #[test]
    fn percentages_are_rounded_up() {
        let cases = [
            (Amount::Pods(3), 100, 3),
            (Amount::Percent(50), 3, 2),
            (Amount::Percent(90), 10, 9),
            (Amount::Percent(95), 10, 10),
            (Amount::Percent(1), 1, 1),
            (Amount::Percent(0), 7, 0),
            (Amount::Percent(100), 7, 7),
            (Amount::Percent(30), 0, 0),
            (Amount::Percent(-50), 3, -1),
            (Amount::Percent(i32::MAX), i32::MAX, i32::MAX),
        ];
        for (amount, total, expected) in cases {
            assert_eq!(amount.scaled_value(total), expected, "{amount:?} of {total}");
        }
    }

    #[test]
    fn a_string_must_be_a_percentage() {
        assert_eq!(Amount::parse("30%"), Ok(Amount::Percent(30)));
        assert_eq!(Amount::parse("-1%"), Ok(Amount::Percent(-1)));
        for text in ["", "%", "30", "30 %", "a%", "1.5%", "99999999999%"] {
            let message = Amount::parse(text).unwrap_err().to_string();
            assert!(message.contains(&format!("{text:?}")), "{message}");
        }
    }
}
