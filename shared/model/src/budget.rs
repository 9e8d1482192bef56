//! A `PodDisruptionBudget`: the fields that decisions read.
//!
//! Source: `k8s.io/api/policy/v1`, `k8s.io/apimachinery/pkg/util/intstr`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::labels::{BadSelector, Selector};
use super::{Mono, Pod, Rv, Uid};

/// The identity of a budget: names can be used again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetKey {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// The UID.
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
    /// The invalid text.
    pub text: Box<str>,
}

/// An `IntOrString`: a number of pods, or a percentage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Pods.
    Pods(i32),
    /// A percentage of the expected pods.
    Percent(i32),
}

impl std::fmt::Display for Amount {
    /// In the form of the API.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pods(pods) => write!(f, "{pods}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl Amount {
    /// Parses the string form, which must be a percentage (`getIntOrPercentValueSafely`).
    ///
    /// # Errors
    /// The text is not a percentage.
    pub fn parse(text: &str) -> Result<Self, BadAmount> {
        let bad = || BadAmount { text: text.into() };
        let digits = text.strip_suffix('%').ok_or_else(bad)?;
        // Go's Atoi accepts a sign, too.
        digits.parse().map(Self::Percent).map_err(|_| bad())
    }

    /// The number of pods for `total` expected ones, rounded up (`GetScaledValueFromIntOrPercent(…, roundUp: true)`).
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

/// The limit of a budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BudgetLimit {
    /// So many pods must stay healthy.
    MinAvailable(Amount),
    /// So many pods may be unavailable.
    MaxUnavailable(Amount),
    /// Neither field is set: no limit.
    Unset,
    /// The named field cannot be parsed.
    Unreadable(&'static str, BadAmount),
}

/// `unhealthyPodEvictionPolicy`: how pods that are not Ready may be evicted. Only the API server applies it; the
/// budget's numbers do not depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnhealthyPolicy {
    /// Pods that are not Ready may be evicted while enough others are healthy. Unknown values count as this one
    /// (`eviction.go`).
    #[default]
    IfHealthyBudget,
    /// Pods that are not Ready may always be evicted.
    AlwaysAllow,
}

impl UnhealthyPolicy {
    /// The value in the API.
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
    /// The reason, in CamelCase.
    pub reason: Box<str>,
    /// The message; empty unless the calculation failed.
    pub message: Box<str>,
    /// The generation of the budget that the condition reflects.
    pub observed_generation: i64,
}

/// An entry of `disruptedPods`: the eviction of a pod was allowed.
///
/// The API has the pod's name and a time of the API server. When the entry expires, and which pod it means, is
/// decided by what this process observed: clocks differ, and a successor may have the name already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisruptedPod {
    /// When the eviction was allowed, in seconds of the API server's clock.
    pub at: i64,
    /// When this process first saw it.
    pub first_seen: Mono,
    /// The pod that had the name when the entry appeared; `None`: that was not observed.
    pub pod: Option<Uid>,
}

/// The status: the numbers of the last calculation, and the changes by evictions since.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BudgetStatus {
    /// The generation of the spec that the numbers reflect.
    pub observed_generation: i64,
    /// How many evictions the API server allows before the next calculation.
    pub disruptions_allowed: i32,
    /// Ready pods without a deletion.
    pub current_healthy: i32,
    /// How many healthy pods there must be.
    pub desired_healthy: i32,
    /// How many pods are expected.
    pub expected_pods: i32,
    /// Pods whose eviction was allowed, by name.
    pub disrupted: BTreeMap<Box<str>, DisruptedPod>,
    /// The condition `DisruptionAllowed`, if it was ever written.
    pub allowed_condition: Option<DisruptionAllowedCondition>,
}

/// A PodDisruptionBudget as decisions see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Namespace, name and UID.
    pub key: BudgetKey,
    /// The version that was read.
    pub rv: Rv,
    /// The generation of the spec.
    pub generation: i64,
    /// Which pods it selects; `None`: the field is not set, so it selects none.
    pub selector: Result<Option<Selector>, BadSelector>,
    /// `minAvailable` or `maxUnavailable`.
    pub limit: BudgetLimit,
    /// How pods that are not Ready may be evicted.
    pub unhealthy_policy: UnhealthyPolicy,
    /// Its status.
    pub status: BudgetStatus,
}

impl Budget {
    /// Whether a pod that it selects counts as healthy.
    #[must_use]
    pub fn counts_as_healthy(&self, pod: &Pod) -> bool {
        pod.ready && pod.deletion.is_none() && !self.status.disrupted.contains_key(&*pod.key.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `TestGetScaledValueFromIntOrPercent` and related tests.
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
