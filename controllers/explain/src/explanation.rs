//! The explanation of a PodDisruptionBudget: its verdict, its numbers, its pods, and what an operator can do.

use std::collections::BTreeSet;

use pod_safety_disruption::PodTotals;
use pod_safety_shared::model::{Budget, BudgetLimit, Pod};

use super::eviction::EvictionAnswer;

/// The verdict about a PodDisruptionBudget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BudgetVerdict {
    /// Its selector is invalid: the API server ignores it.
    Ignored(String),
    /// Its status is about an older generation.
    Processing,
    /// It selects no pod.
    SelectsNothing,
    /// It selects only pods that have terminated.
    AllTerminated,
    /// Its status cannot be calculated.
    SyncFailed(Box<str>),
    /// Some of its pods are selected by other budgets too.
    Overlaps(Vec<Box<str>>),
    /// It allows no eviction, even with every pod healthy.
    Never,
    /// It allows no eviction now.
    NoneNow,
    /// It allows this many evictions.
    Allows(i32),
}

impl BudgetVerdict {
    /// The reason in CamelCase, for programs.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Ignored(_) => "Ignored",
            Self::Processing => "BeingProcessed",
            Self::SelectsNothing => "SelectsNothing",
            Self::AllTerminated => "AllTerminated",
            Self::SyncFailed(_) => "SyncFailed",
            Self::Overlaps(_) => "Overlapping",
            Self::Never => "DisruptionsNeverAllowed",
            Self::NoneNow => "NoneNow",
            Self::Allows(_) => "Allows",
        }
    }
}

/// The numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arithmetic {
    /// Ready pods that are not being deleted, by the status.
    pub healthy: i32,
    /// How many of them must remain, by the status.
    pub needed: i32,
    /// How many evictions the status allows.
    pub allowed: i32,
    /// How many pods there should be, by their controllers; `None`: not all controllers were found.
    pub replicas: Option<i32>,
    /// How many of the pods that it selects can be healthy at most.
    pub max_healthy: Option<i32>,
    /// How many evictions would be allowed with every pod healthy.
    pub ceiling: Option<i32>,
}

impl Arithmetic {
    /// "3 healthy - 2 needed = 1".
    #[must_use]
    pub fn describe(&self) -> String {
        let Self { healthy, needed, allowed, .. } = self;
        let surplus = healthy.saturating_sub(*needed);
        if surplus < 0 {
            return format!("{healthy} healthy of {needed} needed");
        }
        let sum = format!("{healthy} healthy - {needed} needed = {surplus}");
        if surplus > *allowed && *allowed >= 0 {
            // An eviction reduces the allowed disruptions at once; the healthy pods are counted later.
            return format!("{sum}, of which {allowed} left");
        }
        sum
    }
}

/// A pod that the budget selects.
#[derive(Clone, Debug)]
pub struct Member<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// What manages it.
    pub owner: String,
    /// Whether it counts as healthy.
    pub counts_as_healthy: bool,
    /// What the API server would answer an eviction of it.
    pub eviction: EvictionAnswer<'a>,
}

impl Member<'_> {
    /// Whether it is Ready, and does not count because a pod of its name was evicted.
    #[must_use]
    pub fn eviction_counts(&self) -> bool {
        self.pod.ready && self.pod.deletion.is_none() && !self.counts_as_healthy
    }
}

/// A PodDisruptionBudget, explained.
#[derive(Clone, Debug)]
pub struct BudgetExplanation<'a> {
    /// The PodDisruptionBudget.
    pub budget: &'a Budget,
    /// Its verdict.
    pub verdict: BudgetVerdict,
    /// The numbers.
    pub arithmetic: Arithmetic,
    /// Its pods, by name.
    pub members: Vec<Member<'a>>,
    /// More for the operator to know.
    pub notes: Vec<String>,
    /// What an operator can do, and its effect.
    pub remediations: Vec<Remediation>,
    /// Why it is not known how many pods there should be; empty: it is known.
    pub unknown: Vec<String>,
    /// The owners without a scale because of which kube-controller-manager does not calculate it, such as Jobs.
    pub(super) unscaled: BTreeSet<String>,
    /// Its pods whose owners were deleted, because of which kube-controller-manager does not calculate it either.
    pub(super) ownerless: BTreeSet<String>,
    /// How many pods the budget counts when every pod is healthy.
    pub(super) reach: PodTotals,
}

impl BudgetExplanation<'_> {
    /// What would have to change for it to allow evictions: ends the sentence "never more while …".
    #[must_use]
    pub fn limit(&self) -> String {
        let replicas = self.arithmetic.replicas.unwrap_or(0);
        match self.reach.total_if_partial() {
            Some(all) => format!("it selects {} of {all} pods", self.arithmetic.max_healthy.unwrap_or(0)),
            None if replicas <= 0 => "none of its pods has a controller with a scale".to_owned(),
            None => format!("replicas is {replicas}"),
        }
    }
}

/// A change that an operator can make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remediation {
    /// What to change.
    pub change: String,
    /// The effect of the change.
    pub effect: String,
    /// How many evictions the budget then allows with every pod healthy, where that was calculated.
    pub allows: Option<PredictedAllowance>,
}

/// The calculated effect of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PredictedAllowance {
    /// With this in its spec the budget allows this many evictions.
    Spec(BudgetLimit, i32),
    /// With this many replicas of its one controller the budget allows this many evictions.
    Scale(i32, i32),
}
