//! What the API server would answer an eviction, by what the budgets' statuses say.
//!
//! Source: `pkg/registry/core/pod/storage/eviction.go` (v1.37.2), `Create` and
//! `checkAndDecrement`.

use pod_safety_disruption::SYNC_FAILED;
use pod_safety_shared::model::{Budget, Phase, Pod, UnhealthyPolicy};

/// `MaxDisruptedPodSize`: so many evictions may wait for the controller of budgets.
const MOST_DISRUPTED: usize = 2000;

/// What would come of an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Would<'a> {
    /// Nothing: it ends already.
    Nothing,
    /// It would be removed at once: it ran to its end, by its phase.
    Remove,
    /// It would be let through without any budget.
    Free(Unguarded),
    /// It would be let through and use up one of what the budget allows.
    Allow(&'a Budget),
    /// It would be let through and use up nothing.
    NotCount(&'a Budget, NotCounted),
    /// It would be refused.
    Refuse(&'a Budget, RefusedBy),
    /// It would fail, for several budgets choose it.
    Fail(Vec<&'a Budget>),
}

/// Why no budget is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unguarded {
    /// None chooses the pod.
    NoBudget,
    /// It does not run yet.
    Pending,
}

/// Why a pod that is not Ready does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotCounted {
    /// `unhealthyPodEvictionPolicy: AlwaysAllow`.
    AlwaysAllow,
    /// Enough others are healthy.
    HealthyBudget,
}

/// Why a budget refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefusedBy {
    /// Its numbers are about an older generation.
    Processing,
    /// Its numbers could not be calculated; what the condition says.
    SyncFailed(Box<str>),
    /// It allows nothing now.
    Insufficient,
    /// It allows less than nothing: somebody wrote a number that nobody calculates.
    Negative,
    /// Too many evictions wait to be looked after.
    TooManyDisrupted,
}

impl RefusedBy {
    /// The HTTP code of the refusal.
    #[must_use]
    pub const fn code(&self) -> u16 {
        match self {
            Self::Processing | Self::SyncFailed(_) | Self::Insufficient => 429,
            Self::Negative | Self::TooManyDisrupted => 403,
        }
    }
}

/// What an eviction of `pod`, which `budgets` choose, would be answered now.
#[must_use]
pub fn would<'a>(pod: &Pod, budgets: impl IntoIterator<Item = &'a Budget>) -> Would<'a> {
    if pod.deletion.is_some() {
        return Would::Nothing;
    }
    if pod.phase.is_terminal() {
        return Would::Remove;
    }
    if pod.phase == Phase::Pending {
        return Would::Free(Unguarded::Pending);
    }
    let mut budgets: Vec<&Budget> = budgets.into_iter().collect();
    budgets.sort_by(|one, other| one.key.cmp(&other.key));
    let budget = match budgets.as_slice() {
        [] => return Would::Free(Unguarded::NoBudget),
        [budget] => *budget,
        _ => return Would::Fail(budgets),
    };
    let status = &budget.status;
    if !pod.ready {
        if budget.unhealthy == UnhealthyPolicy::AlwaysAllow {
            return Would::NotCount(budget, NotCounted::AlwaysAllow);
        }
        if status.current_healthy >= status.desired_healthy && status.desired_healthy > 0 {
            return Would::NotCount(budget, NotCounted::HealthyBudget);
        }
    }
    refusal(budget).map_or(Would::Allow(budget), |why| Would::Refuse(budget, why))
}

/// Why the budget lets nothing through, if so.
fn refusal(budget: &Budget) -> Option<RefusedBy> {
    let status = &budget.status;
    if status.observed_generation < budget.generation {
        return Some(RefusedBy::Processing);
    }
    if status.disruptions_allowed < 0 {
        return Some(RefusedBy::Negative);
    }
    if status.disrupted.len() > MOST_DISRUPTED {
        return Some(RefusedBy::TooManyDisrupted);
    }
    if status.disruptions_allowed > 0 {
        return None;
    }
    let failed =
        status.allowed.as_ref().filter(|said| &*said.reason == SYNC_FAILED && &*said.status == "False");
    Some(failed.map_or(RefusedBy::Insufficient, |said| RefusedBy::SyncFailed(said.message.clone())))
}

impl Would<'_> {
    /// Whether it would be let through.
    #[must_use]
    pub const fn goes(&self) -> bool {
        match self {
            Self::Free(_) | Self::Allow(_) | Self::NotCount(..) | Self::Remove => true,
            Self::Nothing | Self::Refuse(..) | Self::Fail(_) => false,
        }
    }

    /// One CamelCase word, for programs.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Nothing => "Terminating",
            Self::Remove => "Finished",
            Self::Free(Unguarded::NoBudget) => "NoBudget",
            Self::Free(Unguarded::Pending) => "Pending",
            Self::Allow(_) => "BudgetAllows",
            Self::NotCount(_, NotCounted::AlwaysAllow) => "UnhealthyAlwaysAllowed",
            Self::NotCount(_, NotCounted::HealthyBudget) => "UnhealthyBudgetHealthy",
            Self::Refuse(_, RefusedBy::Processing) => "BudgetBeingProcessed",
            Self::Refuse(_, RefusedBy::SyncFailed(_)) => "BudgetSyncFailed",
            Self::Refuse(_, RefusedBy::Insufficient) => "BudgetBlocks",
            Self::Refuse(_, RefusedBy::Negative) => "BudgetNegative",
            Self::Refuse(_, RefusedBy::TooManyDisrupted) => "TooManyDisrupted",
            Self::Fail(_) => "MultipleBudgets",
        }
    }

    /// The same for people: ends the sentence "an eviction would …".
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Nothing => "change nothing: it is terminating already".to_owned(),
            Self::Remove => "remove it: it has terminated".to_owned(),
            Self::Free(Unguarded::NoBudget) => "be allowed: no PodDisruptionBudget".to_owned(),
            Self::Free(Unguarded::Pending) => "be allowed: it is Pending".to_owned(),
            Self::Allow(budget) => {
                format!("be allowed, as one of {}", budget.status.disruptions_allowed)
            }
            Self::NotCount(_, NotCounted::AlwaysAllow) => {
                "be allowed: it is not Ready (AlwaysAllow)".to_owned()
            }
            Self::NotCount(_, NotCounted::HealthyBudget) => {
                "be allowed: it is not Ready, and enough others are".to_owned()
            }
            Self::Refuse(_, why) => format!("be denied ({}){}", why.code(), why.because()),
            Self::Fail(budgets) => {
                let names: Vec<&str> = budgets.iter().map(|budget| &*budget.key.name).collect();
                format!("fail (500): PodDisruptionBudgets {} select it", names.join(" and "))
            }
        }
    }
}

impl RefusedBy {
    const fn because(&self) -> &'static str {
        match self {
            Self::Processing => ": the PodDisruptionBudget is still being processed",
            Self::SyncFailed(_) => ": the PodDisruptionBudget failed to sync",
            Self::Insufficient => "",
            Self::Negative => ": its number of allowed disruptions is negative",
            Self::TooManyDisrupted => ": too many evictions wait in its status",
        }
    }
}
