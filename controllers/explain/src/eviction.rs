//! What the API server would answer an eviction, by the statuses of the PodDisruptionBudgets.
//!
//! Source: `pkg/registry/core/pod/storage/eviction.go` (v1.37.2), `Create` and
//! `checkAndDecrement`.

use pod_safety_disruption::SYNC_FAILED;
use pod_safety_shared::model::{Budget, Phase, Pod, UnhealthyPolicy};

/// `MaxDisruptedPodSize`: how many evictions may wait until the disruption controller has counted them.
const MAX_DISRUPTED_PODS: usize = 2000;

/// The result of an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvictionAnswer<'a> {
    /// Nothing changes: the pod terminates already.
    AlreadyTerminating,
    /// The pod would be removed at once: its phase is terminal.
    AlreadyFinished,
    /// The eviction would be allowed without a PodDisruptionBudget.
    Unguarded(Unguarded),
    /// The eviction would be allowed and use up one disruption of the budget.
    Allow(&'a Budget),
    /// The eviction would be allowed and use up no disruption.
    AllowUncounted(&'a Budget, NotCounted),
    /// The eviction would be refused.
    Refuse(&'a Budget, RefusalCause),
    /// The eviction would fail, because several budgets select the pod.
    Fail(Vec<&'a Budget>),
}

/// Why no budget is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unguarded {
    /// No budget selects the pod.
    NoBudget,
    /// The pod is pending.
    Pending,
}

/// Why the eviction of a pod that is not Ready uses up no disruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotCounted {
    /// `unhealthyPodEvictionPolicy: AlwaysAllow`.
    AlwaysAllow,
    /// Enough other pods are healthy.
    HealthyBudget,
}

/// Why a budget refuses an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefusalCause {
    /// Its status is about an older generation.
    Processing,
    /// Its status could not be calculated; the message of the condition.
    SyncFailed(Box<str>),
    /// It allows no disruption now.
    Insufficient,
    /// The allowed disruptions are negative: something other than the disruption controller wrote them.
    Negative,
    /// Too many evictions wait for the disruption controller.
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

/// What the API server would answer an eviction of `pod` now, if `budgets` select it.
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

/// Why the budget allows no eviction; `None`: it allows one.
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
    Some(failed.map_or(RefusalCause::Insufficient, |condition| RefusalCause::SyncFailed(condition.message.clone())))
}

impl EvictionAnswer<'_> {
    /// Whether the eviction would be allowed.
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        match self {
            Self::Unguarded(_) | Self::Allow(_) | Self::AllowUncounted(..) | Self::AlreadyFinished => true,
            Self::AlreadyTerminating | Self::Refuse(..) | Self::Fail(_) => false,
        }
    }

    /// The reason in CamelCase, for programs.
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

    /// The result for operators: ends the sentence "an eviction would …".
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
            Self::AllowUncounted(_, NotCounted::AlwaysAllow) => "be allowed: it is not Ready (AlwaysAllow)".to_owned(),
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
