//! What a budget comes to, in one word and in its numbers.

use std::collections::BTreeMap;
use std::sync::Arc;

use pod_safety_shared::authority::{Intent, Scaled, Update};
use pod_safety_shared::cache::{Lookup, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{Budget, Pod, UnhealthyPolicy, WorkloadKind, are};

use super::eviction::{Would, would};
use super::explained::{Arithmetic, Explained, Member, Verdict};
use super::ways;
use pod_safety_disruption::{Config, DELETION_TIMEOUT, Found, Key, Reach, SYNC_FAILED, decide, find};

/// How many reasons are named in a sentence. A person reads the first few.
const REASONS_SHOWN: usize = 3;

/// Explains a budget.
#[must_use]
pub fn explain<'a>(budget: &'a Budget, view: &View<'a>, now: Mono) -> Explained<'a> {
    let mut pods: Vec<&Pod> = view.pods_of_budget(&budget.key.uid).collect();
    pods.sort_by(|one, other| one.key.cmp(&other.key));
    let member = |pod: &'a Pod| Member {
        pod,
        owner: owner_of(pod, view),
        counts: budget.counts(pod),
        would: would(pod, view.budgets_of_pod(pod)),
    };
    let members: Vec<Member<'a>> = pods.iter().map(|pod| member(pod)).collect();
    let reach = Reach::of(budget, view, now);
    let unknown: Vec<String> = reach.unknown.iter().cloned().collect();
    let arithmetic = arithmetic(budget, &reach);
    let verdict = verdict(budget, &members, &reach);
    let mut explained = Explained {
        budget,
        verdict,
        arithmetic,
        members,
        notes: Vec::new(),
        ways: Vec::new(),
        unknown,
        reach,
    };
    explained.notes = notes(&explained, view, now);
    explained.ways = ways::of(&explained);
    explained
}

/// What manages a pod: `Deployment/web` rather than the ReplicaSet between them.
#[must_use]
pub fn owner_of(pod: &Pod, view: &View<'_>) -> String {
    let Some(controller) = &pod.controller else { return "no controller".to_owned() };
    let above = match WorkloadKind::of(controller) {
        Some(WorkloadKind::ReplicaSet) => match view.workload(WorkloadKind::ReplicaSet, &controller.uid) {
            Lookup::Known(set) => set.controller.as_deref(),
            Lookup::Unknown(_) | Lookup::Absent => None,
        },
        _ => None,
    };
    let controller = above.unwrap_or(controller);
    format!("{}/{}", controller.kind, controller.name)
}

fn verdict(budget: &Budget, members: &[Member<'_>], reach: &Reach) -> Verdict {
    if let Err(bad) = &budget.selector {
        return Verdict::Ignored(bad.to_string());
    }
    let status = &budget.status;
    // First, for kube-controller-manager leaves the observed generation as it was when it
    // fails: the API server then speaks of processing, and the condition says what is wrong.
    if let Some(said) = status.allowed.as_ref().filter(|said| &*said.reason == SYNC_FAILED) {
        return Verdict::SyncFailed(said.message.clone());
    }
    if status.observed_generation < budget.generation {
        return Verdict::Processing;
    }
    if members.is_empty() {
        return Verdict::SelectsNothing;
    }
    let mut others = BTreeMap::new();
    for member in members {
        if let Would::Fail(budgets) = &member.would {
            others.extend(budgets.iter().map(|other| (&other.key.uid, &other.key.name)));
        }
    }
    others.remove(&budget.key.uid);
    if !others.is_empty() {
        return Verdict::Overlaps(others.into_values().map(|name| (**name).into()).collect());
    }
    match status.disruptions_allowed {
        allowed if allowed > 0 => Verdict::Allows(allowed),
        _ if reach.never(&budget.wanted) => Verdict::Never,
        _ => Verdict::NoneNow,
    }
}

/// The controllers of its pods that have to be asked how many pods they want, before
/// it is explained: nothing that was listed says it.
pub fn asks<'a>(budget: &Budget, view: &'a View<'_>, now: Mono) -> impl Iterator<Item = Scaled> + use<'a> {
    view.pods_of_budget(&budget.key.uid).filter_map(move |pod| match find(pod, view, now, None) {
        Found::Ask(controller) => Some((Arc::clone(&pod.key.namespace), controller)),
        Found::Owner(_) | Found::Failed(..) | Found::Wait(_) => None,
    })
}

fn arithmetic(budget: &Budget, reach: &Reach) -> Arithmetic {
    let status = &budget.status;
    let best = reach.unknown.is_empty().then(|| reach.best(&budget.wanted));
    Arithmetic {
        healthy: status.current_healthy,
        needed: status.desired_healthy,
        allowed: status.disruptions_allowed,
        replicas: best.map(|best| best.expected),
        reached: best.map(|best| best.healthy),
        ceiling: best.map(|best| best.allowed),
    }
}

/// What the controller of budgets would say of it now, where that differs from
/// what stands there.
fn notes(explained: &Explained<'_>, view: &View<'_>, now: Mono) -> Vec<String> {
    let budget = explained.budget;
    let mut notes = Vec::new();
    let decision = decide(
        &Key::Budget(budget.key.uid.clone()),
        view,
        now,
        &Config { stale_pod_timeout: DELETION_TIMEOUT },
    );
    let written = &budget.status;
    for intent in &decision.intents {
        let Intent::Update(Update::Budget { status, .. }) = intent else { continue };
        let numbers = Arithmetic {
            healthy: status.current_healthy,
            needed: status.desired_healthy,
            allowed: status.disruptions_allowed,
            ..explained.arithmetic
        };
        let same = (written.current_healthy, written.desired_healthy, written.disruptions_allowed)
            == (numbers.healthy, numbers.needed, numbers.allowed);
        if !same {
            notes.push(format!(
                "With its current pods its status should be {}: the disruption controller is behind, or does not run.",
                numbers.words()
            ));
        }
    }
    if !explained.unknown.is_empty() {
        let why = shown(&explained.unknown);
        notes.push(format!(
            "It is not known how many pods there should be, nor how many evictions it allows when all of them are healthy: {why}"
        ));
    }
    let unmanaged = explained.members.iter().filter(|member| member.pod.controller.is_none()).count();
    if unmanaged > 0 {
        let words = if unmanaged == 1 {
            "has no controller: once evicted, it does"
        } else {
            "have no controller: once evicted, they do"
        };
        notes.push(format!("{unmanaged} of its pods {words} not come back."));
    }
    let not_ready =
        explained.members.iter().filter(|member| !member.pod.ready && member.pod.deletion.is_none()).count();
    if not_ready > 0 && budget.unhealthy == UnhealthyPolicy::IfHealthyBudget {
        notes.push(format!("{not_ready} of its pods {} not Ready.", are(not_ready)));
    }
    notes
}

/// The first few of many reasons.
fn shown(reasons: &[String]) -> String {
    let mut text: Vec<&str> = reasons.iter().take(REASONS_SHOWN).map(String::as_str).collect();
    let more = format!("and {} more", reasons.len().saturating_sub(REASONS_SHOWN));
    if reasons.len() > REASONS_SHOWN {
        text.push(&more);
    }
    text.join("; ")
}
