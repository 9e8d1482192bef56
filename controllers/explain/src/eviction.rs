//! What the API server would answer an eviction, by what the budgets' statuses say.
//!
//! Source: `pkg/registry/core/pod/storage/eviction.go` (v1.37.2), `Create` and
//! `checkAndDecrement`.

use pod_safety_disruption::SYNC_FAILED;
use pod_safety_shared::model::{Budget, Phase, Pod, UnhealthyPolicy};

/// `MaxDisruptedPodSize`: so many evictions may wait for the controller of budgets.
const MAX_DISRUPTED_PODS: usize = 2000;

/// What would come of an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvictionAnswer<'a> {
    /// Nothing: it ends already.
    AlreadyTerminating,
    /// It would be removed at once: it ran to its end, by its phase.
    AlreadyFinished,
    /// It would be let through without any budget.
    Unguarded(Unguarded),
    /// It would be let through and use up one of what the budget allows.
    Allow(&'a Budget),
    /// It would be let through and use up nothing.
    AllowUncounted(&'a Budget, NotCounted),
    /// It would be refused.
    Refuse(&'a Budget, RefusalCause),
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
pub enum RefusalCause {
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

impl RefusalCause {
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
pub fn predict_eviction<'a>(pod: &Pod, budgets: impl IntoIterator<Item = &'a Budget>) -> EvictionAnswer<'a> {
    if pod.deletion.is_some() {
        return EvictionAnswer::AlreadyTerminating;
    }
    if pod.phase.is_terminal() {
        return EvictionAnswer::AlreadyFinished;
    }
    if pod.phase == Phase::Pending {
        return EvictionAnswer::Unguarded(Unguarded::Pending);
    }
    let mut budgets: Vec<&Budget> = budgets.into_iter().collect();
    budgets.sort_by(|one, other| one.key.cmp(&other.key));
    let budget = match budgets.as_slice() {
        [] => return EvictionAnswer::Unguarded(Unguarded::NoBudget),
        [budget] => *budget,
        _ => return EvictionAnswer::Fail(budgets),
    };
    let status = &budget.status;
    if !pod.ready {
        if budget.unhealthy_policy == UnhealthyPolicy::AlwaysAllow {
            return EvictionAnswer::AllowUncounted(budget, NotCounted::AlwaysAllow);
        }
        if status.current_healthy >= status.desired_healthy && status.desired_healthy > 0 {
            return EvictionAnswer::AllowUncounted(budget, NotCounted::HealthyBudget);
        }
    }
    budget_refusal(budget).map_or(EvictionAnswer::Allow(budget), |why| EvictionAnswer::Refuse(budget, why))
}

/// Why the budget lets nothing through, if so.
fn budget_refusal(budget: &Budget) -> Option<RefusalCause> {
    let status = &budget.status;
    if status.observed_generation < budget.generation {
        return Some(RefusalCause::Processing);
    }
    if status.disruptions_allowed < 0 {
        return Some(RefusalCause::Negative);
    }
    if status.disrupted.len() > MAX_DISRUPTED_PODS {
        return Some(RefusalCause::TooManyDisrupted);
    }
    if status.disruptions_allowed > 0 {
        return None;
    }
    let failed = status
        .allowed_condition
        .as_ref()
        .filter(|condition| &*condition.reason == SYNC_FAILED && &*condition.status == "False");
    Some(
        failed.map_or(RefusalCause::Insufficient, |condition| {
            RefusalCause::SyncFailed(condition.message.clone())
        }),
    )
}

impl EvictionAnswer<'_> {
    /// Whether it would be let through.
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        match self {
            Self::Unguarded(_) | Self::Allow(_) | Self::AllowUncounted(..) | Self::AlreadyFinished => true,
            Self::AlreadyTerminating | Self::Refuse(..) | Self::Fail(_) => false,
        }
    }

    /// One CamelCase word, for programs.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::AlreadyTerminating => "Terminating",
            Self::AlreadyFinished => "Finished",
            Self::Unguarded(Unguarded::NoBudget) => "NoBudget",
            Self::Unguarded(Unguarded::Pending) => "Pending",
            Self::Allow(_) => "BudgetAllows",
            Self::AllowUncounted(_, NotCounted::AlwaysAllow) => "UnhealthyAlwaysAllowed",
            Self::AllowUncounted(_, NotCounted::HealthyBudget) => "UnhealthyBudgetHealthy",
            Self::Refuse(_, RefusalCause::Processing) => "BudgetBeingProcessed",
            Self::Refuse(_, RefusalCause::SyncFailed(_)) => "BudgetSyncFailed",
            Self::Refuse(_, RefusalCause::Insufficient) => "BudgetBlocks",
            Self::Refuse(_, RefusalCause::Negative) => "BudgetNegative",
            Self::Refuse(_, RefusalCause::TooManyDisrupted) => "TooManyDisrupted",
            Self::Fail(_) => "MultipleBudgets",
        }
    }

    /// The same for people: ends the sentence "an eviction would …".
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::AlreadyTerminating => "change nothing: it is terminating already".to_owned(),
            Self::AlreadyFinished => "remove it: it has terminated".to_owned(),
            Self::Unguarded(Unguarded::NoBudget) => "be allowed: no PodDisruptionBudget".to_owned(),
            Self::Unguarded(Unguarded::Pending) => "be allowed: it is Pending".to_owned(),
            Self::Allow(budget) => {
                format!("be allowed, as one of {}", budget.status.disruptions_allowed)
            }
            Self::AllowUncounted(_, NotCounted::AlwaysAllow) => {
                "be allowed: it is not Ready (AlwaysAllow)".to_owned()
            }
            Self::AllowUncounted(_, NotCounted::HealthyBudget) => {
                "be allowed: it is not Ready, and enough others are".to_owned()
            }
            Self::Refuse(_, why) => format!("be denied ({}){}", why.code(), why.describe()),
            Self::Fail(budgets) => {
                let names: Vec<&str> = budgets.iter().map(|budget| &*budget.key.name).collect();
                format!("fail (500): PodDisruptionBudgets {} select it", names.join(" and "))
            }
        }
    }
}

impl RefusalCause {
    const fn describe(&self) -> &'static str {
        match self {
            Self::Processing => ": the PodDisruptionBudget is still being processed",
            Self::SyncFailed(_) => ": the PodDisruptionBudget failed to sync",
            Self::Insufficient => "",
            Self::Negative => ": its number of allowed disruptions is negative",
            Self::TooManyDisrupted => ": too many evictions wait in its status",
        }
    }
}
