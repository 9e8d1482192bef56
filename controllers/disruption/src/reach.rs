//! What a budget comes to when all is well: how many of its pods can ever be healthy,
//! and how many evictions it then allows. Pure, and by the arithmetic of [`calculate`](super::calculate).
//!
//! Invariant: it never allows less than the status of now: what is healthy now can be healthy.

use std::collections::{BTreeMap, BTreeSet};

use pod_safety_shared::cache::View;
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{Budget, Pod, Scale, Uid, Wanted};

use super::calculate::{Owner, asks_owners, wants};
use super::owners::{Found, find};

/// The pods of one controller that wants a number of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Scaled {
    /// Its number. Of a custom kind it may count something else than pods.
    replicas: i32,
    /// Its pods that the budget selects.
    selected: i32,
    /// Its pods that the budget does not select.
    others: i32,
}

impl Scaled {
    /// How many of its pods the budget selects when none is missing. Where the selector chooses some of them only
    /// (`role: primary`), the others are no replacement.
    fn reached(self) -> i32 {
        self.selected.max(self.replicas.saturating_sub(self.others))
    }
}

/// Which pods a budget counts when all is well. Pods that have terminated never become healthy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    scaled: BTreeMap<Uid, Scaled>,
    /// Pods without a controller.
    unmanaged: i32,
    /// Pods whose controllers want no number.
    unscaled: i32,
    /// Why it is not known how many there should be; empty: it is known.
    pub unknown: BTreeSet<String>,
}

/// What it comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Best {
    /// How many pods it expects.
    pub expected: i32,
    /// How many can be healthy.
    pub healthy: i32,
    /// How many of them must be.
    pub desired: i32,
    /// How many evictions it allows then.
    pub allowed: i32,
}

impl Reach {
    /// Counts. Pods that were listed before their controllers count as those of controllers without a number:
    /// a controller that was not there then will not come.
    #[must_use]
    pub fn of(budget: &Budget, view: &View<'_>, now: Mono) -> Self {
        let mut reach = Self::default();
        let mut controllers: BTreeMap<&Uid, Uid> = BTreeMap::new();
        for pod in view.pods_of_budget(&budget.key.uid) {
            let lives = i32::from(!pod.phase.is_terminal());
            match behind(pod, view, now) {
                Behind::Owner(Owner::Scaled(uid, replicas)) => {
                    let scaled = reach.scaled.entry(uid.clone()).or_default();
                    scaled.replicas = replicas;
                    scaled.selected = scaled.selected.saturating_add(lives);
                    controllers.extend(pod.controller.as_ref().map(|controller| (&controller.uid, uid)));
                }
                Behind::Owner(Owner::Nobody) => reach.unmanaged = reach.unmanaged.saturating_add(lives),
                Behind::Owner(Owner::Unscaled(_)) => reach.unscaled = reach.unscaled.saturating_add(lives),
                Behind::Owner(Owner::Unknown(why)) => drop(reach.unknown.insert(why.into())),
                Behind::NotAsked(of) => drop(reach.unknown.insert(format!("{of} was not asked"))),
            }
        }
        for (controller, owner) in controllers {
            let all = view.pods_of_controller(controller);
            let others = all.filter(|pod| !pod.phase.is_terminal() && !selects(budget, pod)).count();
            if let Some(scaled) = reach.scaled.get_mut(&owner) {
                scaled.others = scaled.others.saturating_add(i32::try_from(others).unwrap_or(i32::MAX));
            }
        }
        reach
    }

    /// What a budget that wants this comes to, as [`calculate`](super::calculate) would calculate it with every pod healthy.
    #[must_use]
    pub fn best(&self, wanted: &Wanted) -> Best {
        let asks = asks_owners(wanted);
        let sum = |of: fn(&Scaled) -> i32| self.scaled.values().map(of).fold(0, i32::saturating_add);
        // Pods whose controllers have no number count in a whole number only.
        let unscaled = if asks { 0 } else { self.unscaled };
        let healthy = sum(|scaled| scaled.reached()).saturating_add(self.unmanaged).saturating_add(unscaled);
        let amounts = wants(wanted, || healthy, || Ok(sum(|scaled| scaled.replicas)));
        // What cannot be calculated allows nothing.
        let Ok((expected, desired)) = amounts else {
            return Best { expected: 0, healthy, desired: 0, allowed: 0 };
        };
        let allowed = if expected <= 0 { 0 } else { healthy.saturating_sub(desired).max(0) };
        Best { expected, healthy, desired, allowed }
    }

    /// How many pods its controllers want, if it selects only some of them.
    #[must_use]
    pub fn of_more(&self) -> Option<i32> {
        let partial = self.scaled.values().any(|scaled| scaled.reached() < scaled.replicas);
        partial.then(|| self.replicas())
    }

    /// Whether some of the pods that its controllers want are not there, or not selected.
    #[must_use]
    pub fn misses(&self) -> bool {
        self.scaled.values().any(|scaled| scaled.selected < scaled.replicas)
    }

    /// The same if its one controller wanted so many. `None`: it has several or none, the budget would not select
    /// what is added, or the number does not count pods.
    #[must_use]
    pub fn scaled_to(&self, replicas: i32) -> Option<Self> {
        let mut scaled = self.clone();
        let mut all = scaled.scaled.values_mut();
        let (Some(one), None) = (all.next(), all.next()) else { return None };
        if one.others > 0 || one.selected > one.replicas || self.unmanaged > 0 || self.unscaled > 0 {
            return None;
        }
        one.replicas = replicas;
        Some(scaled)
    }

    /// Whether a budget that wants this can never allow an eviction of the pods that are there. What is scaled to nothing
    /// goes, and nobody waits for its eviction.
    #[must_use]
    pub fn never(&self, wanted: &Wanted) -> bool {
        let selected = self.scaled.values().any(|scaled| scaled.selected > 0 && scaled.replicas > 0);
        let lives = selected || self.unmanaged > 0 || self.unscaled > 0;
        self.unknown.is_empty() && lives && self.best(wanted).allowed <= 0
    }

    /// How many pods its controllers want.
    #[must_use]
    pub fn replicas(&self) -> i32 {
        self.scaled.values().map(|scaled| scaled.replicas).fold(0, i32::saturating_add)
    }
}

/// Whether a budget selects the pod.
fn selects(budget: &Budget, pod: &Pod) -> bool {
    matches!(&budget.selector, Ok(Some(selector)) if selector.matches(&pod.labels))
}

/// What stands behind a pod, as far as that is known.
enum Behind {
    Owner(Owner),
    NotAsked(String),
}

/// The last answer of a controller counts however old it is: this is what would be, not what is.
fn behind(pod: &Pod, view: &View<'_>, now: Mono) -> Behind {
    let refused = view.scale(pod).is_some_and(|answer| answer.scale.is_err());
    match find(pod, view, now, None) {
        Found::Owner(owner) => Behind::Owner(owner),
        Found::Failed(owner, _) if refused => Behind::Owner(owner),
        Found::Failed(..) | Found::Wait(_) => Behind::Owner(Owner::Unscaled("".into())),
        Found::Ask(of) => match view.scale(pod).map(|answer| &answer.scale) {
            Some(Ok(Scale::Replicas(replicas))) => Behind::Owner(Owner::Scaled(of.uid.clone(), *replicas)),
            Some(Ok(Scale::None | Scale::Absent)) => {
                Behind::Owner(Owner::Unscaled(format!("{}/{}", of.kind, of.name).into()))
            }
            Some(Err(why)) => Behind::Owner(Owner::Unknown(why.clone())),
            None => Behind::NotAsked(format!("{}/{}", of.kind, of.name)),
        },
    }
}
