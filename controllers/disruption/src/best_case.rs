//! What a budget allows when all pods are healthy: how many of its pods can ever be healthy, and how many evictions
//! it then allows. Pure, and by the arithmetic of [`calculate`](super::calculate).
//!
//! Invariant: it never allows fewer evictions than the present status: pods that are healthy now can be healthy.

use std::collections::{BTreeMap, BTreeSet};

use pod_safety_shared::cache::View;
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{Budget, BudgetLimit, Pod, Scale, Uid};

use super::calculate::{Owner, amounts_of, needs_scales};
use super::owners::{OwnerLookup, deleted_owner, display_name, find_owner};

/// The pods of one controller with a scale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Scaled {
    /// The controller's replicas. A custom kind may count something else than pods.
    replicas: i32,
    /// Its pods that the budget selects and that can become healthy.
    selected: i32,
    /// Whether the budget selects one that has not terminated.
    has_pods: bool,
    /// Its pods that the budget does not select.
    others: i32,
}

impl Scaled {
    /// How many of its pods the budget selects when none is missing. If the selector matches only some of them
    /// (`role: primary`), the others are no replacement.
    fn max_selected(self) -> i32 {
        self.selected.max(self.replicas.saturating_sub(self.others))
    }
}

/// The pods that a budget counts when all are healthy. Pods that have terminated or terminate never become healthy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodTotals {
    scaled: BTreeMap<Uid, Scaled>,
    /// Pods without a controller.
    unmanaged: i32,
    /// Pods whose controllers have no scale, or do not exist.
    unscaled: i32,
    /// Why the number of expected pods is unknown; empty: it is known.
    pub unknown: BTreeSet<String>,
}

/// The best case of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BestCase {
    /// How many pods it expects.
    pub expected: i32,
    /// How many can be healthy.
    pub healthy: i32,
    /// How many of them must be healthy.
    pub desired: i32,
    /// How many evictions it allows then.
    pub allowed: i32,
}

impl PodTotals {
    /// Counts the pods. Pods that were listed before their controllers count as pods of controllers without a scale:
    /// a controller that did not exist then will not appear.
    #[must_use]
    pub fn from_budget(budget: &Budget, view: &View<'_>, now: Mono) -> Self {
        let mut totals = Self::default();
        let mut controllers: BTreeMap<&Uid, Uid> = BTreeMap::new();
        for pod in view.pods_of_budget(&budget.key.uid) {
            let living = i32::from(may_become_healthy(pod));
            match known_owner(pod, view, now) {
                KnownOwner::Owner(Owner::Scaled(uid, replicas)) => {
                    let scaled = totals.scaled.entry(uid.clone()).or_default();
                    scaled.replicas = replicas;
                    scaled.selected = scaled.selected.saturating_add(living);
                    scaled.has_pods |= !pod.phase.is_terminal();
                    controllers.extend(pod.controller.as_ref().map(|controller| (&controller.uid, uid)));
                }
                KnownOwner::Owner(Owner::NoController) => totals.unmanaged = totals.unmanaged.saturating_add(living),
                KnownOwner::Owner(Owner::Deleted(_)) => totals.unscaled = totals.unscaled.saturating_add(living),
                // How many pods it wants is unknown: it may replace one that terminates.
                KnownOwner::Owner(Owner::Unscaled(_)) => {
                    totals.unscaled = totals.unscaled.saturating_add(i32::from(!pod.phase.is_terminal()));
                }
                KnownOwner::Owner(Owner::Unknown(why)) => drop(totals.unknown.insert(why.into())),
                KnownOwner::NotRequested(of) => drop(totals.unknown.insert(format!("{of} was not asked"))),
            }
        }
        for (controller, owner) in controllers {
            let all = view.pods_of_controller(controller);
            let others = all.filter(|pod| may_become_healthy(pod) && !selects(budget, pod)).count();
            if let Some(scaled) = totals.scaled.get_mut(&owner) {
                scaled.others = scaled.others.saturating_add(i32::try_from(others).unwrap_or(i32::MAX));
            }
        }
        totals
    }

    /// The best case for a budget with this limit, as [`calculate`](super::calculate) would calculate it with every
    /// pod healthy.
    #[must_use]
    pub fn best_case(&self, limit: &BudgetLimit) -> BestCase {
        let needs_scales = needs_scales(limit);
        let sum = |of: fn(&Scaled) -> i32| self.scaled.values().map(of).fold(0, i32::saturating_add);
        // Pods whose controllers have no scale count only for a whole number of `minAvailable`.
        let unscaled = if needs_scales { 0 } else { self.unscaled };
        let healthy = sum(|scaled| scaled.max_selected()).saturating_add(self.unmanaged).saturating_add(unscaled);
        let amounts = amounts_of(limit, || healthy, || Ok(sum(|scaled| scaled.replicas)));
        // If it cannot be calculated, nothing is allowed.
        let Ok((expected, desired)) = amounts else {
            return BestCase { expected: 0, healthy, desired: 0, allowed: 0 };
        };
        let allowed = if expected <= 0 { 0 } else { healthy.saturating_sub(desired).max(0) };
        BestCase { expected, healthy, desired, allowed }
    }

    /// How many pods its controllers want, if the budget selects only some of them.
    #[must_use]
    pub fn total_if_partial(&self) -> Option<i32> {
        let partial = self.scaled.values().any(|scaled| scaled.max_selected() < scaled.replicas);
        partial.then(|| self.total_replicas())
    }

    /// Whether some of the pods that its controllers want do not exist, or are not selected.
    #[must_use]
    pub fn is_missing_pods(&self) -> bool {
        self.scaled.values().any(|scaled| scaled.selected < scaled.replicas)
    }

    /// The same if its one controller had this many replicas. `None`: it has several controllers or none, the budget
    /// would not select the added pods, or the replicas do not count pods.
    #[must_use]
    pub fn with_replicas(&self, replicas: i32) -> Option<Self> {
        let mut scaled = self.clone();
        let mut all = scaled.scaled.values_mut();
        let (Some(controller), None) = (all.next(), all.next()) else { return None };
        if controller.others > 0 || controller.selected > controller.replicas || self.unmanaged > 0 || self.unscaled > 0
        {
            return None;
        }
        controller.replicas = replicas;
        Some(scaled)
    }

    /// Whether a budget with this limit can never allow an eviction of the existing pods. Pods scaled to zero are
    /// deleted, and need no eviction.
    #[must_use]
    pub fn never_allows(&self, limit: &BudgetLimit) -> bool {
        let selected = self.scaled.values().any(|scaled| scaled.has_pods && scaled.replicas > 0);
        let living = selected || self.unmanaged > 0 || self.unscaled > 0;
        self.unknown.is_empty() && living && self.best_case(limit).allowed <= 0
    }

    /// How many pods its controllers want.
    #[must_use]
    pub fn total_replicas(&self) -> i32 {
        self.scaled.values().map(|scaled| scaled.replicas).fold(0, i32::saturating_add)
    }
}

/// As `countHealthyPods` counts: a pod that terminates is not healthy, whatever it reports.
fn may_become_healthy(pod: &Pod) -> bool {
    !pod.phase.is_terminal() && pod.deletion.is_none()
}

/// Whether a budget selects the pod.
fn selects(budget: &Budget, pod: &Pod) -> bool {
    matches!(&budget.selector, Ok(Some(selector)) if selector.matches(&pod.labels))
}

/// The owner of a pod, as far as it is known.
enum KnownOwner {
    Owner(Owner),
    NotRequested(String),
}

/// The last answer about a scale counts however old it is: this is about what is possible, not about the present.
fn known_owner(pod: &Pod, view: &View<'_>, now: Mono) -> KnownOwner {
    let refused = view.scale(pod).is_some_and(|answer| answer.scale.is_err());
    match find_owner(pod, view, now, None) {
        OwnerLookup::Owner(owner) => KnownOwner::Owner(owner),
        OwnerLookup::Failed(owner, _) if refused => KnownOwner::Owner(owner),
        OwnerLookup::Failed(..) | OwnerLookup::Wait(_) => KnownOwner::Owner(Owner::Unscaled("".into())),
        OwnerLookup::RequestScale(of) => match view.scale(pod).map(|answer| &answer.scale) {
            Some(Ok(Scale::Replicas(replicas))) => KnownOwner::Owner(Owner::Scaled(of.uid.clone(), *replicas)),
            Some(Ok(Scale::None)) => KnownOwner::Owner(Owner::Unscaled(display_name(&of).into())),
            Some(Ok(Scale::Absent)) => KnownOwner::Owner(deleted_owner(&of)),
            Some(Err(why)) => KnownOwner::Owner(Owner::Unknown(why.clone())),
            None => KnownOwner::NotRequested(display_name(&of)),
        },
    }
}
