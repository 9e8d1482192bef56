//! The arithmetic of a budget: from its pods and their controllers to its status. Pure.
//!
//! Source: `pkg/controller/disruption/disruption.go` of Kubernetes v1.37.2 (`trySync`,
//! `getExpectedPodCount`, `countHealthyPods`, `buildDisruptedPodMap`, `updatePdbStatus`).

use std::collections::BTreeMap;
use std::time::Duration;

use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{
    Amount, Budget, BudgetLimit, BudgetStatus, DisruptedPod, DisruptionAllowedCondition, Uid,
};

/// `DeletionTimeout`: a pod whose eviction was allowed this long ago and that still exists was not evicted. Measured
/// from when this process saw it: clocks of API servers and controllers differ (weak spot W-DC8).
/// docs/assumptions.md: budgets-count-evictions
pub const DELETION_TIMEOUT: Duration = Duration::from_secs(120);

/// Reason of the condition `DisruptionAllowed`: evictions are allowed.
pub const SUFFICIENT_PODS: &str = "SufficientPods";
/// No eviction is allowed now.
pub const INSUFFICIENT_PODS: &str = "InsufficientPods";
/// The numbers could not be calculated: no eviction is allowed.
pub const SYNC_FAILED: &str = "SyncFailed";

/// The owner of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// A controller with a scale: its UID and its replicas.
    Scaled(Uid, i32),
    /// The pod has no controller.
    NoController,
    /// A controller without a scale (a DaemonSet, a Job), by kind and name.
    Unscaled(Box<str>),
    /// A controller that does not exist any more, by kind and name.
    Deleted(Box<str>),
    /// The scale could not be read, and why: its pods are assumed to count.
    Unknown(Box<str>),
}

/// A pod that the budget selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: Box<str>,
    /// The identity.
    pub uid: Uid,
    /// When it was created, in seconds of the API server's clock.
    pub created: i64,
    /// Its condition `Ready` is `True`.
    pub ready: bool,
    /// It is being deleted.
    pub terminating: bool,
    /// Its owner.
    pub owner: Owner,
}

/// The result of a calculation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calculation {
    /// The status as it should be.
    pub status: BudgetStatus,
    /// When an entry of `disrupted` expires.
    pub recheck_at: Option<Mono>,
    /// Pods whose eviction was allowed, and that still exist.
    pub not_deleted: Vec<Box<str>>,
    /// Pods without a controller: they count as healthy if they are, but not as expected.
    pub unmanaged: Vec<Box<str>>,
    /// Pods that do not count at all, and their controllers.
    pub unscaled_pods: Vec<(Box<str>, Box<str>)>,
}

/// Why the numbers cannot be calculated; shown in the condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CalculationError {
    /// The selector.
    #[error("spec.selector: {0}; fix or delete the PodDisruptionBudget")]
    Selector(String),
    /// An amount.
    #[error("spec.{field}: {why}; fix or delete the PodDisruptionBudget")]
    Amount {
        /// The field.
        field: &'static str,
        /// What is wrong.
        why: String,
    },
    /// A scale that could not be read.
    #[error("the controller of pod {pod}: {why}; it is retried")]
    Owner {
        /// The pod.
        pod: Box<str>,
        /// What went wrong.
        why: Box<str>,
    },
}

/// Whether the scales of the controllers are needed. A whole number of `minAvailable` depends on the pods alone.
#[must_use]
pub const fn needs_scales(limit: &BudgetLimit) -> bool {
    !matches!(limit, BudgetLimit::MinAvailable(Amount::Pods(_)) | BudgetLimit::Unset)
}

/// Calculates the status of a budget from the pods that it selects.
///
/// # Errors
/// What must be corrected, or read again, first: see [`fail_safe_status`].
pub fn calculate(budget: &Budget, members: &[Member], now: Mono) -> Result<Calculation, CalculationError> {
    if let Err(bad) = &budget.selector {
        return Err(CalculationError::Selector(bad.to_string()));
    }
    let (expected, desired) = expected_and_desired(budget, members)?;
    let DisruptedPods { entries, recheck_at, not_deleted } = disrupted_pods(budget, members, now);
    let counts = |member: &&Member| {
        let excused = member.terminating || entries.contains_key(&member.name);
        member.ready && !excused && !is_excluded(budget, member)
    };
    let current = to_i32(members.iter().filter(counts).count());
    let allowed = if expected <= 0 { 0 } else { current.saturating_sub(desired).max(0) };
    let reason = if allowed > 0 { SUFFICIENT_PODS } else { INSUFFICIENT_PODS };
    let needs_scales = needs_scales(&budget.limit);
    let unmanaged = members.iter().filter(|member| needs_scales && member.owner == Owner::NoController);
    Ok(Calculation {
        status: BudgetStatus {
            observed_generation: budget.generation,
            disruptions_allowed: allowed,
            current_healthy: current,
            desired_healthy: desired,
            expected_pods: expected,
            disrupted: entries,
            allowed_condition: Some(DisruptionAllowedCondition {
                status: if allowed > 0 { "True" } else { "False" }.into(),
                reason: reason.into(),
                message: "".into(),
                observed_generation: budget.generation,
            }),
        },
        recheck_at,
        not_deleted,
        unmanaged: unmanaged.map(|member| member.name.clone()).collect(),
        unscaled_pods: members.iter().filter(|_| needs_scales).filter_map(unscaled_owner).collect(),
    })
}

/// KCM's `failSafe`: if the status cannot be calculated, no eviction is allowed. The other numbers keep their last
/// values.
#[must_use]
pub fn fail_safe_status(budget: &Budget, why: &CalculationError) -> BudgetStatus {
    let mut status = budget.status.clone();
    status.disruptions_allowed = 0;
    status.allowed_condition = Some(DisruptionAllowedCondition {
        status: "False".into(),
        reason: SYNC_FAILED.into(),
        message: why.to_string().into(),
        observed_generation: budget.status.observed_generation,
    });
    status
}

/// How many pods are expected, and how many of them must be healthy.
fn expected_and_desired(budget: &Budget, members: &[Member]) -> Result<(i32, i32), CalculationError> {
    amounts_of(&budget.limit, || to_i32(members.len()), || sum_scales(members))
}

/// The same from the number of pods and the replicas of their controllers.
pub(super) fn amounts_of(
    limit: &BudgetLimit,
    count_members: impl FnOnce() -> i32,
    scales: impl FnOnce() -> Result<i32, CalculationError>,
) -> Result<(i32, i32), CalculationError> {
    Ok(match limit {
        BudgetLimit::Unset => (0, 0),
        // No owner is looked up: pods without a controller count.
        BudgetLimit::MinAvailable(pods @ Amount::Pods(_)) => {
            let expected = count_members();
            (expected, clamp_to_zero(*pods, expected)?)
        }
        BudgetLimit::MinAvailable(percent) => {
            let expected = scales()?;
            (expected, clamp_to_zero(*percent, expected)?)
        }
        BudgetLimit::MaxUnavailable(amount) => {
            let expected = scales()?;
            (expected, expected.saturating_sub(amount.scaled_value(expected)).max(0))
        }
        BudgetLimit::Unreadable(field, why) => {
            return Err(CalculationError::Amount { field, why: why.to_string() });
        }
    })
}

/// How many pods must be healthy. The API server accepts no status with a negative number, and KCM reports that by
/// `failSafe`.
fn clamp_to_zero(amount: Amount, expected: i32) -> Result<i32, CalculationError> {
    let desired = amount.scaled_value(expected);
    if desired < 0 {
        let why = format!("it comes to {desired} of {expected} pods");
        return Err(CalculationError::Amount { field: "minAvailable", why });
    }
    Ok(desired)
}

/// The sum of the replicas of the controllers, each counted once.
fn sum_scales(members: &[Member]) -> Result<i32, CalculationError> {
    let mut scales = BTreeMap::new();
    for member in members {
        match &member.owner {
            Owner::Scaled(uid, replicas) => drop(scales.insert(uid, *replicas)),
            Owner::NoController | Owner::Unscaled(_) | Owner::Deleted(_) => {}
            Owner::Unknown(why) => {
                return Err(CalculationError::Owner { pod: member.name.clone(), why: why.clone() });
            }
        }
    }
    Ok(scales.into_values().fold(0, i32::saturating_add))
}

/// KCM fails the whole budget when one pod's controller has no scale (weak spot W-DC5). Here such a pod is neither
/// expected nor healthy, as if the budget did not select it.
fn is_excluded(budget: &Budget, member: &Member) -> bool {
    needs_scales(&budget.limit) && unscaled_owner(member).is_some()
}

fn unscaled_owner(member: &Member) -> Option<(Box<str>, Box<str>)> {
    match &member.owner {
        Owner::Unscaled(kind) => Some((member.name.clone(), kind.clone())),
        Owner::Deleted(kind) => Some((member.name.clone(), format!("{kind}, which does not exist").into())),
        Owner::Scaled(..) | Owner::NoController | Owner::Unknown(_) => None,
    }
}

/// Pods that are being disrupted.
struct DisruptedPods {
    entries: BTreeMap<Box<str>, DisruptedPod>,
    recheck_at: Option<Mono>,
    not_deleted: Vec<Box<str>>,
}

/// The entries that are still valid: of pods that exist, whose eviction was allowed less than two minutes ago, and
/// that are not terminating yet.
fn disrupted_pods(budget: &Budget, members: &[Member], now: Mono) -> DisruptedPods {
    let mut result = DisruptedPods { entries: BTreeMap::new(), recheck_at: None, not_deleted: Vec::new() };
    let recorded = &budget.status.disrupted;
    for member in members.iter().filter(|member| !member.terminating) {
        let Some(entry) = recorded.get(&member.name).filter(|entry| is_about(entry, member)) else {
            continue;
        };
        let expires = entry.first_seen + DELETION_TIMEOUT;
        if expires < now {
            result.not_deleted.push(member.name.clone());
            continue;
        }
        result.entries.insert(member.name.clone(), entry.clone());
        result.recheck_at = Some(result.recheck_at.map_or(expires, |earlier| earlier.min(expires)));
    }
    result
}

/// The entry of an evicted pod does not apply to a new pod of the same name (weak spot W-DC6 of KCM). If this process
/// did not see for which pod it was written, the API server's timestamps decide.
fn is_about(entry: &DisruptedPod, member: &Member) -> bool {
    match &entry.pod {
        Some(uid) => *uid == member.uid,
        None => member.created <= entry.at,
    }
}

fn to_i32(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests;
