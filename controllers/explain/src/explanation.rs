//! A budget, explained: its verdict, its numbers, its pods, and what can be done.

use pod_safety_disruption::PodTotals;
use pod_safety_shared::model::{Budget, BudgetLimit, Pod};

use super::eviction::EvictionAnswer;

/// What a budget comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BudgetVerdict {
    /// Its selector cannot be read: the API server passes it over.
    Ignored(String),
    /// Its status is about an older generation.
    Processing,
    /// It chooses no pod.
    SelectsNothing,
    /// Its numbers cannot be calculated.
    SyncFailed(Box<str>),
    /// Pods of it are chosen by other budgets too.
    Overlaps(Vec<Box<str>>),
    /// It lets nothing through, even with every pod healthy.
    Never,
    /// It lets nothing through as things are.
    NoneNow,
    /// It lets so many through.
    Allows(i32),
}

impl BudgetVerdict {
    /// One CamelCase word, for programs.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Ignored(_) => "Ignored",
            Self::Processing => "BeingProcessed",
            Self::SelectsNothing => "SelectsNothing",
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
    /// How many of them there must be, by the status.
    pub needed: i32,
    /// How many evictions the status allows.
    pub allowed: i32,
    /// How many pods there should be, by their controllers; `None`: they were not
    /// all found.
    pub replicas: Option<i32>,
    /// How many pods that it selects can ever be healthy.
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
            // Evictions count down what is allowed; the healthy ones are counted later.
            return format!("{sum}, of which {allowed} left");
        }
        sum
    }
}

/// A pod that the budget chooses.
#[derive(Clone, Debug)]
pub struct Member<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// What manages it.
    pub owner: String,
    /// Whether it counts as healthy.
    pub counts_as_healthy: bool,
    /// What an eviction would be answered.
    pub eviction: EvictionAnswer<'a>,
}

/// A budget, explained.
#[derive(Clone, Debug)]
pub struct BudgetExplanation<'a> {
    /// Which one.
    pub budget: &'a Budget,
    /// What it comes to.
    pub verdict: BudgetVerdict,
    /// The numbers.
    pub arithmetic: Arithmetic,
    /// Its pods, by name.
    pub members: Vec<Member<'a>>,
    /// What else should be known.
    pub notes: Vec<String>,
    /// What a person can do, and what would come of it.
    pub remediations: Vec<Remediation>,
    /// Why it is not known how many pods there should be; empty: it is known.
    pub unknown: Vec<String>,
    /// Which pods it counts when all is well.
    pub(super) reach: PodTotals,
}

impl BudgetExplanation<'_> {
    /// What would have to change for it to allow more than none: ends the sentence "never more while …".
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

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remediation {
    /// What to change.
    pub change: String,
    /// What would come of it.
    pub effect: String,
    /// How many evictions it then allows with every pod healthy, where that was calculated.
    pub allows: Option<PredictedAllowance>,
}

/// What a change comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PredictedAllowance {
    /// With this in its spec it allows so many.
    Spec(BudgetLimit, i32),
    /// With so many replicas of its one controller it allows so many.
    Scale(i32, i32),
}
