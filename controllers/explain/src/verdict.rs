//! What a budget comes to, in one word and in its numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pod_safety_shared::authority::{Intent, Scaled, Update};
use pod_safety_shared::cache::{Lookup, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{Amount, Budget, Pod, UnhealthyPolicy, Wanted, WorkloadKind};

use super::eviction::{Would, would};
use super::ways::{self, Way};
use pod_safety_disruption::{Config, DELETION_TIMEOUT, Found, Key, Owner, SYNC_FAILED, decide, find};

/// How many reasons are named in a sentence. A person reads the first few.
const REASONS_SHOWN: usize = 3;

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
    /// Ready pods that nobody asked to end, by the status.
    pub healthy: i32,
    /// How many of them there must be, by the status.
    pub needed: i32,
    /// How many evictions are let through, by the status.
    pub allowed: i32,
    /// How many pods there should be, by their controllers; `None`: they were not
    /// all found.
    pub replicas: Option<i32>,
    /// How many evictions would be let through with every pod healthy.
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
    let (counted, unknown) = Counted::of(&pods, view, now);
    let arithmetic = arithmetic(budget, unknown.is_empty().then_some(counted));
    let verdict = verdict(budget, &members, &arithmetic);
    let mut explained =
        Explained { budget, verdict, arithmetic, members, notes: Vec::new(), ways: Vec::new(), unknown };
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

fn verdict(budget: &Budget, members: &[Member<'_>], numbers: &Arithmetic) -> Verdict {
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
    match (numbers.allowed, numbers.ceiling) {
        (allowed, _) if allowed > 0 => Verdict::Allows(allowed),
        (_, Some(..=0)) => Verdict::Never,
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

fn arithmetic(budget: &Budget, counted: Option<Counted>) -> Arithmetic {
    let status = &budget.status;
    Arithmetic {
        healthy: status.current_healthy,
        needed: status.desired_healthy,
        allowed: status.disruptions_allowed,
        replicas: counted.as_ref().map(|counted| counted.expected(&budget.wanted)),
        ceiling: counted.map(|counted| counted.ceiling(&budget.wanted)),
    }
}

/// How many pods there are when everything is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    /// The sum of what controllers want.
    pub(super) scaled: i32,
    /// Pods that nobody manages.
    pub(super) unmanaged: i32,
    /// Pods whose controllers want no number.
    pub(super) unscaled: i32,
}

impl Counted {
    /// Counts, and says of whom it is not known how many they want. Pods are listed
    /// before their controllers: one that is not there then will not come.
    fn of(pods: &[&Pod], view: &View<'_>, now: Mono) -> (Self, Vec<String>) {
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
        notes.push(format!(
            "{unmanaged} of its pods have no controller: once evicted, they do not come back."
        ));
    }
    let not_ready =
        explained.members.iter().filter(|member| !member.pod.ready && member.pod.deletion.is_none()).count();
    if not_ready > 0 && budget.unhealthy == UnhealthyPolicy::IfHealthyBudget {
        notes.push(format!("{not_ready} of its pods are not Ready."));
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
