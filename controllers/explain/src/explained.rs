//! A budget, explained: its verdict, its numbers, its pods, and what can be done.

use std::collections::{BTreeMap, BTreeSet};

use pod_safety_disruption::{Found, Owner, find};
use pod_safety_shared::cache::View;
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{Amount, Budget, Pod, Wanted};

use super::eviction::Would;

/// What a budget comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
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

impl Verdict {
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
    /// How many evictions would be allowed with every pod healthy.
    pub ceiling: Option<i32>,
}

impl Arithmetic {
    /// "3 healthy - 2 needed = 1".
    #[must_use]
    pub fn words(&self) -> String {
        let Self { healthy, needed, allowed, .. } = self;
        let left = healthy.saturating_sub(*needed);
        let sum = format!("{healthy} healthy - {needed} needed = {left}");
        if left > *allowed && *allowed >= 0 {
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
    pub counts: bool,
    /// What an eviction would be answered.
    pub would: Would<'a>,
}

/// A budget, explained.
#[derive(Clone, Debug)]
pub struct Explained<'a> {
    /// Which one.
    pub budget: &'a Budget,
    /// What it comes to.
    pub verdict: Verdict,
    /// The numbers.
    pub arithmetic: Arithmetic,
    /// Its pods, by name.
    pub members: Vec<Member<'a>>,
    /// What else should be known.
    pub notes: Vec<String>,
    /// What a person can do, and what would come of it.
    pub ways: Vec<Way>,
    /// Why it is not known how many pods there should be; empty: it is known.
    pub unknown: Vec<String>,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// What to change.
    pub change: String,
    /// What would come of it.
    pub effect: String,
}

/// How many pods there are when everything is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    /// The sum of what controllers want.
    pub(super) scaled: i32,
    /// Pods without a controller.
    pub(super) unmanaged: i32,
    /// Pods whose controllers want no number.
    pub(super) unscaled: i32,
}

impl Counted {
    /// Counts, and says of whom it is not known how many they want. Pods are listed
    /// before their controllers: one that is not there then will not come.
    pub(super) fn of(pods: &[&Pod], view: &View<'_>, now: Mono) -> (Self, Vec<String>) {
        let (mut scales, mut unmanaged, mut unscaled) = (BTreeMap::new(), 0, 0);
        let mut unknown = BTreeSet::new();
        for pod in pods {
            let refused = view.scale(pod).is_some_and(|answer| answer.scale.is_err());
            match find(pod, view, now, None) {
                Found::Owner(Owner::Scaled(uid, replicas)) => drop(scales.insert(uid, replicas)),
                Found::Owner(Owner::Nobody) => unmanaged += 1,
                Found::Owner(Owner::Unknown(why)) => drop(unknown.insert(why.into_string())),
                Found::Failed(Owner::Unknown(why), _) if refused => drop(unknown.insert(why.into_string())),
                Found::Owner(Owner::Unscaled(_)) | Found::Failed(..) | Found::Wait(_) => unscaled += 1,
                Found::Ask(of) => drop(unknown.insert(format!("{}/{} was not asked", of.kind, of.name))),
            }
        }
        let scaled = scales.into_values().fold(0, i32::saturating_add);
        (Self { scaled, unmanaged, unscaled }, unknown.into_iter().collect())
    }

    /// How many pods the budget expects then.
    pub(super) const fn expected(&self, wanted: &Wanted) -> i32 {
        match wanted {
            Wanted::MinAvailable(Amount::Pods(_)) => {
                self.scaled.saturating_add(self.unmanaged).saturating_add(self.unscaled)
            }
            Wanted::MinAvailable(Amount::Percent(_))
            | Wanted::MaxUnavailable(_)
            | Wanted::Nothing
            | Wanted::Unreadable(..) => self.scaled,
        }
    }

    /// How many evictions it lets through then (`pod_safety_disruption::calculate`).
    pub(super) fn ceiling(&self, wanted: &Wanted) -> i32 {
        let expected = self.expected(wanted);
        let (healthy, needed) = match wanted {
            Wanted::MinAvailable(Amount::Pods(pods)) => (expected, *pods),
            Wanted::MinAvailable(percent) => (expected.saturating_add(self.unmanaged), percent.of(expected)),
            Wanted::MaxUnavailable(amount) => {
                (expected.saturating_add(self.unmanaged), expected.saturating_sub(amount.of(expected)).max(0))
            }
            Wanted::Nothing | Wanted::Unreadable(..) => (0, 0),
        };
        if expected <= 0 { 0 } else { healthy.saturating_sub(needed).max(0) }
    }
}
