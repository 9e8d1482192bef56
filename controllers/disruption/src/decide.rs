//! What the status of a budget should be, and which pods are no longer disrupted.
//! Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::holds::{Decision, Hold};
use pod_safety_shared::authority::{Intent, Update};
use pod_safety_shared::cache::{ScaleAnswer, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::drive::Subject;
use pod_safety_shared::model::{Budget, BudgetStatus, Kind, Pod, PodKey, Uid};

use super::calculate::{Calculated, CannotCalculate, Member, Owner, asks_owners, calculate, fail_safe};
use super::config::Config;
use super::owners::{FRESH, Found, find};
use super::reach::{Best, Reach};

/// How many pods of one budget are named in a hold. A person reads the first few.
const PODS_SHOWN: usize = 10;

/// How many budgets of one pod are named in a hold.
const BUDGETS_SHOWN: usize = 10;

/// A budget whose pods belong to controllers that must be asked is looked at this
/// often, for nobody tells when those are scaled.
const ASK_EACH: Duration = Duration::from_secs(60);

/// While the API server is silent, everything is looked at this often.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// What must be known to decide about a budget.
pub(super) const NEEDS: &[Kind] = &[
    Kind::Pods,
    Kind::Budgets,
    Kind::Deployments,
    Kind::ReplicaSets,
    Kind::StatefulSets,
    Kind::ReplicationControllers,
];

/// What is decided about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The budget with this UID.
    Budget(Uid),
    /// A pod that somebody was about to end.
    StalePod(Uid),
}

impl Key {
    /// What must be known to decide about it.
    pub(super) const fn needs(&self) -> &'static [Kind] {
        match self {
            Self::Budget(_) => NEEDS,
            Self::StalePod(_) => &[Kind::Pods],
        }
    }
}

/// Decides about one key.
#[must_use]
pub fn decide(key: &Key, view: &View<'_>, now: Mono, config: &Config) -> Decision {
    for kind in key.needs() {
        if let Err(unfresh) = view.fresh(*kind, now) {
            return Decision::hold(Subject::Everything, unfresh).and_recheck_at(now + LOOK_AGAIN);
        }
    }
    match key {
        Key::Budget(uid) => view.budget(uid).map_or_else(Decision::default, |one| budget(one, view, now)),
        Key::StalePod(uid) => view.pod(uid).map_or_else(Decision::default, |pod| stale_pod(pod, now, config)),
    }
}

/// The condition `DisruptionTarget` says that a pod is about to end. If it does not
/// within the timeout, the condition is a lie (`syncStalePodDisruption`).
fn stale_pod(pod: &Pod, now: Mono, config: &Config) -> Decision {
    let ends = pod.deletion.is_some() || pod.phase.is_terminal();
    let Some(target) = pod.disruption_target.filter(|_| !ends) else {
        return Decision::default();
    };
    let due = target.first_seen + config.stale_pod_timeout;
    if now < due {
        return Decision::default().and_recheck_at(due);
    }
    let update = Update::NotDisrupted { pod: pod.key.clone(), rv: pod.rv, generation: pod.generation };
    Decision { intents: vec![Intent::Update(update)], ..Decision::default() }
}

/// The pods of a budget with what stands behind them, or what must be known first.
enum Behind {
    Known(Vec<Member>, Option<Mono>),
    Unknown(Decision),
}

fn budget(budget: &Budget, view: &View<'_>, now: Mono) -> Decision {
    let (members, recheck_at) = match members(budget, view, now) {
        Behind::Known(members, recheck_at) => (members, recheck_at),
        Behind::Unknown(decision) => return decision,
    };
    let mut decision = Decision { recheck_at, ..Decision::default() };
    let status = match calculate(budget, &members, now) {
        Ok(calculated) => {
            decision.holds = holds(budget, &calculated, &members, view);
            let best = never_more(budget, &calculated.status, view, now, &mut decision);
            decision.holds.extend(best);
            if let Some(when) = calculated.recheck_at {
                // An entry is over when its two minutes have passed, not as they do.
                decision = decision.and_recheck_at(when + Duration::from_millis(1));
            }
            calculated.status
        }
        Err(why) => failed(budget, &why, &mut decision),
    };
    decision.intents.extend(update(budget, status));
    decision
}

fn members(budget: &Budget, view: &View<'_>, now: Mono) -> Behind {
    let (mut members, mut ask) = (Vec::new(), BTreeMap::new());
    let (mut waits, mut recheck_at) = (Decision::default(), None::<Mono>);
    let mut recheck = |when: Mono| recheck_at = Some(recheck_at.map_or(when, |earlier| earlier.min(when)));
    let touched = view.budget_touched(&budget.key.uid);
    for pod in view.pods_of_budget(&budget.key.uid) {
        let found = if asks_owners(&budget.wanted) {
            find(pod, view, now, touched)
        } else {
            Found::Owner(Owner::Nobody)
        };
        let owner = match found {
            Found::Owner(owner) => owner,
            Found::Failed(owner, again) => {
                recheck(again);
                owner
            }
            Found::Ask(controller) => {
                ask.insert(controller.uid.clone(), controller);
                continue;
            }
            Found::Wait(until) => {
                waits = waits.and_recheck_at(until);
                continue;
            }
        };
        if matches!(owner, Owner::Scaled(..))
            && let Some(answer) = view.scale(pod)
        {
            recheck(ask_next(answer, touched, now));
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
    if ask.is_empty() && waits.recheck_at.is_none() {
        return Behind::Known(members, recheck_at);
    }
    let subject = || Subject::Budget(budget.key.clone());
    waits.holds.extend(
        ask.values().next().map(|first| {
            (subject(), Hold::ScaleAsked { controller: format!("{}/{}", first.kind, first.name) })
        }),
    );
    let namespace = &budget.key.namespace;
    let questions = ask.into_values();
    waits
        .intents
        .extend(questions.map(|controller| Intent::Scale { namespace: namespace.clone(), controller }));
    Behind::Unknown(waits)
}

/// When a scale is asked again: once in a while; but as soon as the answer's time is
/// over if the budget's pods changed after the question was put, for that may be the
/// first of what follows a scaling.
fn ask_next(answer: &ScaleAnswer, touched: Option<Mono>, now: Mono) -> Mono {
    if touched.is_some_and(|touched| touched < answer.asked) {
        now + ASK_EACH
    } else {
        answer.answered + FRESH + Duration::from_millis(1)
    }
}

fn failed(budget: &Budget, why: &CannotCalculate, decision: &mut Decision) -> BudgetStatus {
    let selector = matches!(why, CannotCalculate::Selector(_));
    let hold = Hold::BudgetFailed { why: why.to_string(), selector };
    decision.holds.push((Subject::Budget(budget.key.clone()), hold));
    fail_safe(budget, why)
}

/// The write that makes the budget's status what it should be, if it is not.
fn update(budget: &Budget, status: BudgetStatus) -> Option<Intent> {
    if status == budget.status {
        return None;
    }
    let over = budget.status.disrupted.keys().filter(|name| !status.disrupted.contains_key(*name));
    let says = |status: &BudgetStatus| status.allowed.as_ref().map(|allowed| allowed.status.clone());
    Some(Intent::Update(Update::Budget {
        budget: budget.key.clone(),
        rv: budget.rv,
        over: over.cloned().collect(),
        transition: says(&budget.status) != says(&status),
        status: Box::new(status),
    }))
}

/// What a person should know of the budget.
fn holds(
    budget: &Budget,
    calculated: &Calculated,
    members: &[Member],
    view: &View<'_>,
) -> Vec<(Subject, Hold)> {
    let Calculated { not_deleted, unmanaged, odd, .. } = calculated;
    let mut holds = Vec::new();
    let mut about_budget = |hold| holds.push((Subject::Budget(budget.key.clone()), hold));
    let shown = |names: &[Box<str>]| names.iter().take(PODS_SHOWN).map(ToString::to_string).collect();
    if members.is_empty() {
        about_budget(Hold::NoPods);
    }
    let left_out = view.pods_left_out(&budget.key.namespace).take(PODS_SHOWN);
    let left_out: Vec<String> = left_out.map(|pod| pod.key.name.to_string()).collect();
    if !left_out.is_empty() {
        about_budget(Hold::TooManyLabels { pods: left_out });
    }
    if !unmanaged.is_empty() {
        about_budget(Hold::UnmanagedPods { pods: shown(unmanaged) });
    }
    if !odd.is_empty() {
        let pods = odd.iter().take(PODS_SHOWN).map(|(pod, of)| format!("{pod} of {of}")).collect();
        about_budget(Hold::PodsNotCounted { pods });
    }
    let named = |name: &str| members.iter().find(|member| *member.name == *name);
    for member in not_deleted.iter().filter_map(|name| named(name)) {
        holds
            .push((about_pod(budget, member), Hold::EvictionNotCompleted { budget: budget.key.to_string() }));
    }
    holds.extend(overlaps(budget, members, view));
    holds
}

/// Whether nothing can ever be allowed. A pod that is missing now is no reason to say so, nor what is scaled to nothing:
/// its pods go. Of a custom controller that nobody had to ask yet the scale is asked.
fn never_more(
    budget: &Budget,
    status: &BudgetStatus,
    view: &View<'_>,
    now: Mono,
    decision: &mut Decision,
) -> Option<(Subject, Hold)> {
    if status.disruptions_allowed > 0 {
        return None;
    }
    let reach = Reach::of(budget, view, now);
    if !reach.unknown.is_empty() {
        decision.intents.extend(questions(budget, view, now));
        return None;
    }
    let Best { healthy, desired, allowed, .. } = reach.best(&budget.wanted);
    if allowed > 0 {
        // Who manages its pods may make others of them, which it does not select: nobody tells of those.
        if reach.misses() {
            *decision = std::mem::take(decision).and_recheck_at(now + ASK_EACH);
        }
        return None;
    }
    let never = reach.never(&budget.wanted);
    never.then(|| (Subject::Budget(budget.key.clone()), Hold::DisruptionsNeverAllowed { desired, healthy }))
}

/// The controllers of its pods that were never asked how many they want, each once.
fn questions(budget: &Budget, view: &View<'_>, now: Mono) -> impl Iterator<Item = Intent> {
    let mut ask = BTreeMap::new();
    for pod in view.pods_of_budget(&budget.key.uid).filter(|pod| view.scale(pod).is_none()) {
        if let Found::Ask(controller) = find(pod, view, now, None) {
            ask.insert(controller.uid.clone(), controller);
        }
    }
    let namespace = Arc::clone(&budget.key.namespace);
    ask.into_values().map(move |controller| Intent::Scale { namespace: Arc::clone(&namespace), controller })
}

fn about_pod(budget: &Budget, member: &Member) -> Subject {
    Subject::Pod(PodKey {
        namespace: budget.key.namespace.clone(),
        name: (*member.name).into(),
        uid: member.uid.clone(),
    })
}

/// Pods that other budgets choose too. Of those budgets one says so, the same whichever is decided. The others are not even
/// looked through: a tenant may have thousands of each, all of which overlap.
fn overlaps<'a>(
    budget: &'a Budget,
    members: &'a [Member],
    view: &'a View<'_>,
) -> impl Iterator<Item = (Subject, Hold)> + 'a {
    let overlapping = members.iter().filter_map(|member| {
        let mut others = view.budgets_of_pod(view.pod(&member.uid)?);
        others.next().filter(|first| first.key.uid == budget.key.uid)?;
        let mut names: Vec<String> =
            others.take(BUDGETS_SHOWN - 1).map(|other| other.key.name.to_string()).collect();
        let several = !names.is_empty();
        names.push(budget.key.name.to_string());
        names.sort();
        several.then(|| (about_pod(budget, member), Hold::MultipleBudgets { budgets: names }))
    });
    overlapping.take(PODS_SHOWN)
}
