//! What the status of a budget should be, and which pods are no longer disrupted. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::holds::{Decision, Hold};
use pod_safety_shared::authority::{BudgetUpdate, Intent, NotDisruptedUpdate, Update};
use pod_safety_shared::cache::{ScaleAnswer, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::controller_loop::Subject;
use pod_safety_shared::model::{Budget, BudgetStatus, Kind, Pod, PodKey, Uid};

use super::best_case::{BestCase, PodTotals};
use super::calculate::{Calculation, CalculationError, Member, Owner, calculate, fail_safe_status, needs_scales};
use super::config::Config;
use super::owners::{MAX_AGE, OwnerLookup, find_owner};

/// How many pods of one budget are named in a hold. A person reads the first few.
const MAX_PODS: usize = 10;

/// How many budgets of one pod are named in a hold.
const MAX_BUDGETS: usize = 10;

/// A budget whose pods belong to controllers with a scale subresource is checked this often, because no watch shows
/// when those are scaled.
const SCALE_REFRESH: Duration = Duration::from_secs(60);

/// While the API server does not answer, everything is checked this often.
const RECHECK_AFTER: Duration = Duration::from_secs(10);

/// The kinds whose caches must be synced and fresh to decide about a budget.
pub(super) const REQUIRED_KINDS: &[Kind] = &[
    Kind::Pods,
    Kind::Budgets,
    Kind::Deployments,
    Kind::ReplicaSets,
    Kind::StatefulSets,
    Kind::ReplicationControllers,
];

/// The key of a decision.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The budget with this UID.
    Budget(Uid),
    /// A pod with the condition `DisruptionTarget`.
    StalePod(Uid),
}

impl Key {
    /// The kinds whose caches must be synced and fresh to decide about the key.
    pub(super) const fn required_kinds(&self) -> &'static [Kind] {
        match self {
            Self::Budget(_) => REQUIRED_KINDS,
            Self::StalePod(_) => &[Kind::Pods],
        }
    }
}

/// Decides about one key.
#[must_use]
pub fn decide(key: &Key, view: &View<'_>, now: Mono, config: &Config) -> Decision {
    for kind in key.required_kinds() {
        if let Err(unfresh) = view.check_fresh(*kind, now) {
            return Decision::hold(Subject::Everything, unfresh).and_requeue_at(now + RECHECK_AFTER);
        }
    }
    match key {
        Key::Budget(uid) => view.budget(uid).map_or_else(Decision::default, |budget| decide_budget(budget, view, now)),
        Key::StalePod(uid) => view.pod(uid).map_or_else(Decision::default, |pod| decide_stale_pod(pod, now, config)),
    }
}

/// The condition `DisruptionTarget` states that a pod is about to be terminated. If it is not deleted within the
/// timeout, the condition is set to False (`syncStalePodDisruption`).
fn decide_stale_pod(pod: &Pod, now: Mono, config: &Config) -> Decision {
    let ends = pod.deletion.is_some() || pod.phase.is_terminal();
    let Some(target) = pod.disruption_target.filter(|_| !ends) else {
        return Decision::default();
    };
    let due = target.first_seen + config.stale_pod_timeout;
    if now < due {
        return Decision::default().and_requeue_at(due);
    }
    let update =
        Update::NotDisrupted(NotDisruptedUpdate { pod: pod.key.clone(), rv: pod.rv, generation: pod.generation });
    Decision { intents: vec![Intent::Update(update)], ..Decision::default() }
}

/// The pods of a budget with their owners, or the requests that must come first.
enum Members {
    Known(Vec<Member>, Option<Mono>),
    Unknown(Decision),
}

fn decide_budget(budget: &Budget, view: &View<'_>, now: Mono) -> Decision {
    let (members, recheck_at) = match members(budget, view, now) {
        Members::Known(members, recheck_at) => (members, recheck_at),
        Members::Unknown(decision) => return decision,
    };
    let mut decision = Decision { requeue_at: recheck_at, ..Decision::default() };
    let status = match calculate(budget, &members, now) {
        Ok(calculated) => {
            decision.holds = budget_holds(budget, &calculated, &members, view);
            let best = check_never_allowed(budget, &calculated.status, view, now, &mut decision);
            decision.holds.extend(best);
            if let Some(when) = calculated.recheck_at {
                // An entry expires after its two minutes, not exactly at their end.
                decision = decision.and_requeue_at(when + Duration::from_millis(1));
            }
            calculated.status
        }
        Err(why) => hold_failed(budget, &why, &mut decision),
    };
    decision.intents.extend(status_update(budget, status));
    decision
}

fn members(budget: &Budget, view: &View<'_>, now: Mono) -> Members {
    let (mut members, mut to_request) = (Vec::new(), BTreeMap::new());
    let (mut waiting, mut recheck_at) = (Decision::default(), None::<Mono>);
    let mut recheck = |when: Mono| recheck_at = Some(recheck_at.map_or(when, |earlier| earlier.min(when)));
    let changed_at = view.budget_changed_at(&budget.key.uid);
    for pod in view.pods_of_budget(&budget.key.uid) {
        let lookup = if needs_scales(&budget.limit) {
            find_owner(pod, view, now, changed_at)
        } else {
            OwnerLookup::Owner(Owner::NoController)
        };
        let owner = match lookup {
            OwnerLookup::Owner(owner) => owner,
            OwnerLookup::Failed(owner, again) => {
                recheck(again);
                owner
            }
            OwnerLookup::RequestScale(controller) => {
                to_request.insert(controller.uid.clone(), controller);
                continue;
            }
            OwnerLookup::Wait(until) => {
                waiting = waiting.and_requeue_at(until);
                continue;
            }
        };
        if matches!(owner, Owner::Scaled(..))
            && let Some(answer) = view.scale(pod)
        {
            recheck(next_scale_request(answer, changed_at, now));
        }
        members.push(Member {
            name: (*pod.key.name).into(),
            uid: pod.key.uid.clone(),
            created: pod.created,
            ready: pod.ready,
            terminating: pod.deletion.is_some(),
            owner,
        });
    }
    if to_request.is_empty() && waiting.requeue_at.is_none() {
        return Members::Known(members, recheck_at);
    }
    let subject = || Subject::Budget(budget.key.clone());
    waiting.holds.extend(
        to_request
            .values()
            .next()
            .map(|first| (subject(), Hold::ScaleAsked { controller: format!("{}/{}", first.kind, first.name) })),
    );
    let namespace = &budget.key.namespace;
    let requests = to_request.into_values();
    waiting.intents.extend(requests.map(|controller| Intent::Scale { namespace: namespace.clone(), controller }));
    Members::Unknown(waiting)
}

/// When a scale is read again: periodically; but as soon as the answer expires if the budget's pods changed after the
/// request, because that change may be the first result of a scaling.
fn next_scale_request(answer: &ScaleAnswer, changed_at: Option<Mono>, now: Mono) -> Mono {
    if changed_at.is_some_and(|touched| touched < answer.requested_at) {
        now + SCALE_REFRESH
    } else {
        answer.answered_at + MAX_AGE + Duration::from_millis(1)
    }
}

fn hold_failed(budget: &Budget, why: &CalculationError, decision: &mut Decision) -> BudgetStatus {
    let selector = matches!(why, CalculationError::Selector(_));
    let hold = Hold::BudgetFailed { why: why.to_string(), selector };
    decision.holds.push((Subject::Budget(budget.key.clone()), hold));
    fail_safe_status(budget, why)
}

/// The write of the budget's status, if it differs.
fn status_update(budget: &Budget, status: BudgetStatus) -> Option<Intent> {
    if status == budget.status {
        return None;
    }
    let over = budget.status.disrupted.keys().filter(|name| !status.disrupted.contains_key(*name));
    let condition_status =
        |status: &BudgetStatus| status.allowed_condition.as_ref().map(|allowed| allowed.status.clone());
    Some(Intent::Update(Update::Budget(Box::new(BudgetUpdate {
        budget: budget.key.clone(),
        rv: budget.rv,
        over: over.cloned().collect(),
        transition: condition_status(&budget.status) != condition_status(&status),
        status,
    }))))
}

/// The holds of the budget, for its owner.
fn budget_holds(
    budget: &Budget,
    calculated: &Calculation,
    members: &[Member],
    view: &View<'_>,
) -> Vec<(Subject, Hold)> {
    let Calculation { not_deleted, unmanaged, unscaled_pods: odd, .. } = calculated;
    let mut holds = Vec::new();
    let mut hold_budget = |hold| holds.push((Subject::Budget(budget.key.clone()), hold));
    let first_names = |names: &[Box<str>]| names.iter().take(MAX_PODS).map(ToString::to_string).collect();
    if members.is_empty() {
        hold_budget(Hold::NoPods);
    }
    let left_out = view.pods_with_omitted_labels(&budget.key.namespace).take(MAX_PODS);
    let left_out: Vec<String> = left_out.map(|pod| pod.key.name.to_string()).collect();
    if !left_out.is_empty() {
        hold_budget(Hold::TooManyLabels { pods: left_out });
    }
    if !unmanaged.is_empty() {
        hold_budget(Hold::UnmanagedPods { pods: first_names(unmanaged) });
    }
    if !odd.is_empty() {
        let pods = odd.iter().take(MAX_PODS).map(|(pod, of)| format!("{pod} of {of}")).collect();
        hold_budget(Hold::PodsNotCounted { pods });
    }
    let named = |name: &str| members.iter().find(|member| *member.name == *name);
    for member in not_deleted.iter().filter_map(|name| named(name)) {
        holds.push((pod_subject(budget, member), Hold::EvictionNotCompleted { budget: budget.key.to_string() }));
    }
    holds.extend(overlapping_budgets(budget, members, view));
    holds
}

/// Whether nothing can ever be allowed. A pod that is missing now is no reason, nor a workload scaled to zero: its
/// pods are being deleted. A scale of a custom controller that was never read is requested first.
fn check_never_allowed(
    budget: &Budget,
    status: &BudgetStatus,
    view: &View<'_>,
    now: Mono,
    decision: &mut Decision,
) -> Option<(Subject, Hold)> {
    if status.disruptions_allowed > 0 {
        return None;
    }
    let totals = PodTotals::from_budget(budget, view, now);
    if !totals.unknown.is_empty() {
        decision.intents.extend(scale_requests(budget, view, now));
        return None;
    }
    let BestCase { healthy, desired, allowed, .. } = totals.best_case(&budget.limit);
    if allowed > 0 {
        // Pods that the budget does not select yet may be added or relabelled: their changes do not enqueue the
        // budget.
        if totals.is_missing_pods() {
            *decision = std::mem::take(decision).and_requeue_at(now + SCALE_REFRESH);
        }
        return None;
    }
    let never = totals.never_allows(&budget.limit);
    never.then(|| (Subject::Budget(budget.key.clone()), Hold::DisruptionsNeverAllowed { desired, healthy }))
}

/// The controllers of its pods whose scale was never read, each once.
fn scale_requests(budget: &Budget, view: &View<'_>, now: Mono) -> impl Iterator<Item = Intent> {
    let mut to_request = BTreeMap::new();
    for pod in view.pods_of_budget(&budget.key.uid).filter(|pod| view.scale(pod).is_none()) {
        if let OwnerLookup::RequestScale(controller) = find_owner(pod, view, now, None) {
            to_request.insert(controller.uid.clone(), controller);
        }
    }
    let namespace = Arc::clone(&budget.key.namespace);
    to_request.into_values().map(move |controller| Intent::Scale { namespace: Arc::clone(&namespace), controller })
}

fn pod_subject(budget: &Budget, member: &Member) -> Subject {
    Subject::Pod(PodKey {
        namespace: budget.key.namespace.clone(),
        name: (*member.name).into(),
        uid: member.uid.clone(),
    })
}

/// Pods that other budgets select, too. One of those budgets reports it, always the same one. The others are not even
/// scanned: a tenant may have thousands of budgets and pods, all of which overlap.
fn overlapping_budgets<'a>(
    budget: &'a Budget,
    members: &'a [Member],
    view: &'a View<'_>,
) -> impl Iterator<Item = (Subject, Hold)> + 'a {
    let overlapping = members.iter().filter_map(|member| {
        let mut others = view.budgets_of_pod(view.pod(&member.uid)?);
        others.next().filter(|first| first.key.uid == budget.key.uid)?;
        let mut names: Vec<String> = others.take(MAX_BUDGETS - 1).map(|other| other.key.name.to_string()).collect();
        let several = !names.is_empty();
        names.push(budget.key.name.to_string());
        names.sort();
        several.then(|| (pod_subject(budget, member), Hold::MultipleBudgets { budgets: names }))
    });
    overlapping.take(MAX_PODS)
}
