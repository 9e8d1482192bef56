//! The verdict and the numbers of a PodDisruptionBudget.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pod_safety_shared::authority::{Intent, ScaleTarget, Update};
use pod_safety_shared::cache::{Lookup, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{Budget, Pod, UnhealthyPolicy, WorkloadKind, is_or_are};

use super::eviction::{EvictionAnswer, predict_eviction};
use super::explanation::{Arithmetic, BudgetExplanation, BudgetVerdict, Member};
use super::remediation;
use pod_safety_disruption::{
    Config, DELETION_TIMEOUT, Key, Owner, OwnerLookup, PodTotals, SYNC_FAILED, decide, find_owner, needs_scales,
};

/// How many reasons one sentence names.
const REASONS_SHOWN: usize = 3;

/// Explains a budget.
#[must_use]
pub fn explain_budget<'a>(budget: &'a Budget, view: &View<'a>, now: Mono) -> BudgetExplanation<'a> {
    let mut pods: Vec<&Pod> = view.pods_of_budget(&budget.key.uid).collect();
    pods.sort_by(|one, other| one.key.cmp(&other.key));
    let member = |pod: &'a Pod| Member {
        pod,
        owner: owner_of(pod, view),
        counts_as_healthy: budget.counts_as_healthy(pod),
        eviction: predict_eviction(pod, view.budgets_of_pod(pod)),
    };
    let members: Vec<Member<'a>> = pods.iter().map(|pod| member(pod)).collect();
    let reach = PodTotals::from_budget(budget, view, now);
    let unknown: Vec<String> = reach.unknown.iter().cloned().collect();
    let arithmetic = calculate(budget, &reach);
    let verdict = judge_budget(budget, &members, &reach);
    let (unscaled, ownerless) = failing_owners(budget, &members, view, now);
    let mut explained = BudgetExplanation {
        budget,
        verdict,
        arithmetic,
        members,
        unscaled,
        ownerless,
        notes: Vec::new(),
        remediations: Vec::new(),
        unknown,
        reach,
    };
    explained.notes = list_notes(&explained, view, now);
    explained.remediations = remediation::list_remediations(&explained);
    explained
}

/// What manages a pod: `Deployment/web` rather than the ReplicaSet between them.
#[must_use]
pub fn owner_of(pod: &Pod, view: &View<'_>) -> String {
    let Some(controller) = &pod.controller else { return "no controller".to_owned() };
    let above = match WorkloadKind::from_controller(controller) {
        Some(WorkloadKind::ReplicaSet) => match view.workload(WorkloadKind::ReplicaSet, &controller.uid) {
            Lookup::Known(set) => set.controller.as_deref(),
            Lookup::Unknown(_) | Lookup::Absent => None,
        },
        _ => None,
    };
    let controller = above.unwrap_or(controller);
    format!("{}/{}", controller.kind, controller.name)
}

fn judge_budget(budget: &Budget, members: &[Member<'_>], reach: &PodTotals) -> BudgetVerdict {
    if let Err(bad) = &budget.selector {
        return BudgetVerdict::Ignored(bad.to_string());
    }
    let status = &budget.status;
    // First, because kube-controller-manager does not update the observed generation when it fails: the API server then
    // answers that the budget is still being processed, and the condition has the cause.
    if let Some(condition) = status.allowed_condition.as_ref().filter(|condition| &*condition.reason == SYNC_FAILED) {
        return BudgetVerdict::SyncFailed(condition.message.clone());
    }
    if status.observed_generation < budget.generation {
        return BudgetVerdict::Processing;
    }
    if members.is_empty() {
        return BudgetVerdict::SelectsNothing;
    }
    // The API server removes them without asking a budget.
    if members.iter().all(|member| member.pod.phase.is_terminal()) {
        return BudgetVerdict::AllTerminated;
    }
    let mut others = BTreeMap::new();
    for member in members {
        if let EvictionAnswer::Fail(budgets) = &member.eviction {
            others.extend(budgets.iter().map(|other| (&other.key.uid, &other.key.name)));
        }
    }
    others.remove(&budget.key.uid);
    if !others.is_empty() {
        return BudgetVerdict::Overlaps(others.into_values().map(|name| (**name).into()).collect());
    }
    match status.disruptions_allowed {
        allowed if allowed > 0 => BudgetVerdict::Allows(allowed),
        _ if reach.never_allows(&budget.limit) => BudgetVerdict::Never,
        _ => BudgetVerdict::NoneNow,
    }
}

/// What makes kube-controller-manager fail the whole budget (`getExpectedScale`): owners without a scale, and pods whose
/// owners were deleted ("found no controllers for pod"). Pods that have terminated count there, too; pods without a
/// controller do not fail it.
fn failing_owners(
    budget: &Budget,
    members: &[Member<'_>],
    view: &View<'_>,
    now: Mono,
) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut unscaled, mut ownerless) = (BTreeSet::new(), BTreeSet::new());
    for member in members.iter().filter(|_| needs_scales(&budget.limit)) {
        match find_owner(member.pod, view, now, None) {
            OwnerLookup::Owner(Owner::Unscaled(_)) => drop(unscaled.insert(member.owner.clone())),
            OwnerLookup::Owner(Owner::Deleted(_)) => drop(ownerless.insert(member.pod.key.name.to_string())),
            OwnerLookup::Owner(_) | OwnerLookup::Failed(..) | OwnerLookup::RequestScale(_) | OwnerLookup::Wait(_) => {}
        }
    }
    (unscaled, ownerless)
}

/// The controllers whose scale must be read before the budget is explained: the lists that were read do not have their
/// replicas.
pub fn required_scales<'a>(
    budget: &Budget,
    view: &'a View<'_>,
    now: Mono,
) -> impl Iterator<Item = ScaleTarget> + use<'a> {
    view.pods_of_budget(&budget.key.uid).filter_map(move |pod| match find_owner(pod, view, now, None) {
        OwnerLookup::RequestScale(controller) => Some((Arc::clone(&pod.key.namespace), controller)),
        OwnerLookup::Owner(_) | OwnerLookup::Failed(..) | OwnerLookup::Wait(_) => None,
    })
}

fn calculate(budget: &Budget, reach: &PodTotals) -> Arithmetic {
    let status = &budget.status;
    let best = reach.unknown.is_empty().then(|| reach.best_case(&budget.limit));
    Arithmetic {
        healthy: status.current_healthy,
        needed: status.desired_healthy,
        allowed: status.disruptions_allowed,
        replicas: best.map(|best| best.expected),
        max_healthy: best.map(|best| best.healthy),
        ceiling: best.map(|best| best.allowed),
    }
}

/// Why kube-controller-manager does not calculate the budget; else the status that the disruption controller would write
/// now, where it differs from the status in the object.
fn list_differences(explained: &BudgetExplanation<'_>, view: &View<'_>, now: Mono) -> Vec<String> {
    let mut notes = Vec::new();
    if matches!(explained.verdict, BudgetVerdict::SyncFailed(_)) {
        if !explained.ownerless.is_empty() {
            let pods: Vec<String> = explained.ownerless.iter().cloned().collect();
            notes.push(format!(
                "It selects pods whose owners were deleted ({}): kube-controller-manager calculates a minAvailable that is a whole number only, until they are gone.",
                join_first(&pods)
            ));
        }
        if !explained.unscaled.is_empty() {
            let owners: Vec<String> = explained.unscaled.iter().cloned().collect();
            notes.push(format!(
                "It selects pods of owners without a scale ({}): kube-controller-manager then calculates only a minAvailable that is a whole number.",
                join_first(&owners)
            ));
        }
    }
    if !notes.is_empty() {
        return notes;
    }
    let (budget, config) = (explained.budget, Config { stale_pod_timeout: DELETION_TIMEOUT });
    for intent in decide(&Key::Budget(budget.key.uid.clone()), view, now, &config).intents {
        let Intent::Update(Update::Budget(update)) = intent else { continue };
        let status = &update.status;
        let numbers = Arithmetic {
            healthy: status.current_healthy,
            needed: status.desired_healthy,
            allowed: status.disruptions_allowed,
            ..explained.arithmetic
        };
        if !is_written(&numbers, explained) {
            notes.push(format!(
                "With its current pods its status should be {}: the disruption controller is behind, or does not run.",
                numbers.describe()
            ));
        }
    }
    notes
}

/// Whether the status has these numbers, or those of kube-controller-manager, which counts an eviction by the name of the
/// pod, for at most two minutes (`buildDisruptedPodMap`).
fn is_written(numbers: &Arithmetic, explained: &BudgetExplanation<'_>) -> bool {
    let status = &explained.budget.status;
    let written = (status.current_healthy, status.desired_healthy, status.disruptions_allowed);
    let evicted = explained.members.iter().filter(|member| member.eviction_counts()).map(|_| 1).sum::<i32>();
    let by_name = numbers.healthy.saturating_sub(evicted);
    written == (numbers.healthy, numbers.needed, numbers.allowed)
        || written == (by_name, numbers.needed, by_name.saturating_sub(numbers.needed).max(0))
}

/// What else an operator should know.
fn list_notes(explained: &BudgetExplanation<'_>, view: &View<'_>, now: Mono) -> Vec<String> {
    let budget = explained.budget;
    let mut notes = list_differences(explained, view, now);
    if !explained.unknown.is_empty() {
        let why = join_first(&explained.unknown);
        notes.push(format!(
            "It is not known how many pods there should be, nor how many evictions it allows when all of them are healthy: {why}"
        ));
    }
    let living = || explained.members.iter().map(|member| member.pod).filter(|pod| !pod.phase.is_terminal());
    let unmanaged = living().filter(|pod| pod.controller.is_none()).count();
    if unmanaged > 0 {
        let subject = if unmanaged == 1 {
            "has no controller: once evicted, it does"
        } else {
            "have no controller: once evicted, they do"
        };
        notes.push(format!("{unmanaged} of its pods {subject} not come back."));
    }
    let not_ready = living().filter(|pod| !pod.ready && pod.deletion.is_none()).count();
    if not_ready > 0 && budget.unhealthy_policy == UnhealthyPolicy::IfHealthyBudget {
        notes.push(format!("{not_ready} of its pods {} not Ready.", is_or_are(not_ready)));
    }
    notes
}

/// Joins the first few reasons.
fn join_first(reasons: &[String]) -> String {
    let mut text: Vec<&str> = reasons.iter().take(REASONS_SHOWN).map(String::as_str).collect();
    let more = format!("and {} more", reasons.len().saturating_sub(REASONS_SHOWN));
    if reasons.len() > REASONS_SHOWN {
        text.push(&more);
    }
    text.join("; ")
}
