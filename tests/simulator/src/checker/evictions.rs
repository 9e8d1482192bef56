//! S7 and L5: the evictions that disruption budgets allow and deny.
//!
//! | broken | when |
//! |---|---|
//! | S7 | an eviction is allowed that the budget does not permit |
//! | S7 | a status allows more evictions than the budget does |
//! | S7 | a process under test sends an eviction with a UID that it must know to be wrong: the API server counts it before it denies it |
//! | L5 | an eviction is denied because of the budget while the budget permits it |
//! | L5 | at the end, without disturbances, a status allows fewer evictions than the budget does |
//!
//! What a budget permits is calculated by [`budgets`](super::budgets), for every moment of the window.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use super::budgets::{Budget, Counted, ENTRY_LIVES, REACTS};
use super::requests::LONGEST_REQUEST;
use super::{Checker, Invariant, State};
use crate::api::{ApiRequest, CONTINUE, ObservedChange};
use crate::world::{DRAIN, is_shipped, number_at, stamp, str_at};

const BUDGETS: &str = "/poddisruptionbudgets/";

/// The pod that a request asks to evict.
fn evicted_pod(asked: &ApiRequest) -> Option<String> {
    let path = asked.path.strip_prefix("/api/v1/namespaces/")?.strip_suffix("/eviction")?;
    let (namespace, name) = path.split_once("/pods/")?;
    Some(format!("{namespace}/{name}"))
}

fn allowed(budget: &Value) -> i64 {
    number_at(budget, "/status/disruptionsAllowed").unwrap_or(0)
}

/// The changes of budgets by which a request counted an eviction.
fn spent(changes: &[ObservedChange]) -> impl Iterator<Item = &ObservedChange> {
    changes.iter().filter(|change| {
        let both = change.before.as_ref().zip(change.after.as_ref());
        change.kind == "PodDisruptionBudget" && both.is_some_and(|(before, after)| allowed(after) < allowed(before))
    })
}

impl State {
    /// Checks evictions and statuses of an executed request, then records what it changed.
    pub(super) fn check_requests(&mut self, now: Duration, asked: &ApiRequest, code: u16, changes: &[ObservedChange]) {
        if let Some(pod) = evicted_pod(asked).filter(|_| asked.method == http::Method::POST) {
            self.check_eviction(now, asked, &pod, code, changes);
        } else if asked.path.contains(BUDGETS) && asked.path.ends_with("/status") {
            if code == 409 && is_shipped(&asked.caller) {
                self.probe("a budget's status met a conflict");
            }
            for change in changes.iter().filter(|change| change.kind == "PodDisruptionBudget") {
                self.check_status(now, asked, change);
            }
        }
        for change in changes {
            self.budgets.observe(now, change);
        }
    }

    fn check_eviction(&mut self, now: Duration, asked: &ApiRequest, pod: &str, code: u16, changes: &[ObservedChange]) {
        let member = self.budgets.pod(pod).cloned();
        for change in spent(changes) {
            let Some(member) = &member else { continue };
            let entries = change.before.as_ref().and_then(|budget| budget.pointer("/status/disruptedPods"));
            let own = pod.rsplit('/').next().unwrap_or_default();
            let twice = entries.is_some_and(|entries| entries.get(own).is_some());
            self.budgets.spent(&change.name, Counted { at: now, uid: member.uid.clone(), twice });
            if twice {
                self.probe("an eviction was counted twice");
            } else if !member.ready {
                self.probe("an eviction of an unready pod was counted");
            }
            self.check_spending(now, asked, pod, &change.name);
            self.budgets.counted(&member.uid, Some(now));
            self.spending.insert((asked.caller.to_string(), asked.path.clone()), member.uid.clone());
        }
        if code == CONTINUE {
            return;
        }
        let uid = self.spending.remove(&(asked.caller.to_string(), asked.path.clone()));
        match (code, uid) {
            (201, Some(_)) => self.probe("an eviction was let through"),
            (_, Some(uid)) => self.check_counted_but_refused(now, asked, pod, &uid, code),
            (429, None) => self.check_refusal(now, asked, pod),
            (201, None) if member.is_some() => self.probe("an eviction spent nothing"),
            _ => {}
        }
    }

    /// An eviction was counted.
    fn check_spending(&mut self, now: Duration, asked: &ApiRequest, pod: &str, name: &str) {
        let from = self.budgets.known_until(now, self.healed);
        let Some(budget) = self.budgets.budget(name) else { return };
        let allowed = self.allowed(now, from, budget, &BTreeSet::new());
        if allowed.most.max(allowed.truly) < 1 {
            let numbers = numbers(budget);
            let what = format!(
                "{} evicted {pod}, which {name} does not allow: {} by all that was known since {from:?}, {} in truth; {numbers}",
                asked.caller, allowed.most, allowed.truly
            );
            self.violated(now, Invariant::Budget, what);
        } else if allowed.truly < 1 {
            self.probe("limit: an eviction was let through by what was known, not by what was so");
        }
    }

    /// An eviction was counted, and then denied.
    fn check_counted_but_refused(&mut self, now: Duration, asked: &ApiRequest, pod: &str, uid: &str, code: u16) {
        self.budgets.counted(uid, None);
        self.probe("an eviction was counted and refused");
        if is_shipped(&asked.caller) || asked.caller.starts_with(DRAIN) {
            let body: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
            let expected_uid = str_at(&body, "/deleteOptions/preconditions/uid");
            // A change that came while the eviction was under way could not be known.
            let oldest_read = stamp(now.saturating_sub(LONGEST_REQUEST));
            let knowable =
                self.budgets.pod(pod).is_none_or(|member| member.uid != uid || member.created <= oldest_read);
            if code == 409 && expected_uid != uid && !knowable {
                self.probe("limit: a successor came while an eviction was under way");
            } else if code == 409 && expected_uid != uid {
                let what = format!(
                    "{} burnt budget on {pod}: it named UID {expected_uid:.8}, and the pod is {uid:.8}",
                    asked.caller
                );
                self.violated(now, Invariant::Budget, what);
            }
        }
    }

    /// An eviction was denied because of the budget.
    fn check_refusal(&mut self, now: Duration, asked: &ApiRequest, pod: &str) {
        let Some(member) = self.budgets.pod(pod).cloned() else { return };
        for name in self.budgets.guarding(&member) {
            let Some(budget) = self.budgets.budget(&name) else { continue };
            self.probe(if budget.is_observed() {
                "an eviction was refused: the budget is exhausted"
            } else {
                "an eviction was refused: the budget is still being processed"
            });
            if let Some(why) = self.withheld_disruption(now, &name) {
                let what = format!("{} may not evict {pod}, and {name} {why}", asked.caller);
                self.violated(now, Invariant::Refused, what);
            }
        }
    }

    /// Why a budget that allows no disruption should allow one.
    fn withheld_disruption(&self, now: Duration, name: &str) -> Option<String> {
        let from = self.budgets.known_until(now, self.healed);
        let budget = self.budgets.budget(name).filter(|budget| budget.since < from)?;
        let allowed = self.allowed(now, from, budget, &self.disrupted_pods(now, budget));
        let numbers = numbers(budget);
        (allowed.least.min(allowed.truly) > budget.status("disruptionsAllowed").max(0) || !budget.is_observed()).then(
            || {
                format!(
                    "allows {} by all that was known since {from:?}, {} in truth; {numbers}",
                    allowed.least, allowed.truly
                )
            },
        )
    }

    /// The pods in `status.disruptedPods`: only entries of these pods, not of earlier pods of the same name.
    fn disrupted_pods(&self, now: Duration, budget: &Budget) -> BTreeSet<String> {
        let namespace = str_at(&budget.object, "/metadata/namespace");
        let oldest = stamp(now.saturating_sub(ENTRY_LIVES + REACTS));
        // A process that starts does not know the age of an entry by its own clock: the entry's two minutes begin
        // again.
        let untroubled = self.budgets.untroubled_since(now, self.healed);
        let anew = now.saturating_sub(untroubled) <= ENTRY_LIVES + REACTS;
        let mut uids = BTreeSet::new();
        for (name, at) in budget.entries() {
            let member = self.budgets.pod(&format!("{namespace}/{name}"));
            let own = member.filter(|member| {
                member.created.as_str() <= at && (at >= oldest.as_str() || anew || self.clocks_jumped)
            });
            uids.extend(own.map(|member| member.uid.clone()));
        }
        uids
    }

    /// A budget's status was written.
    fn check_status(&mut self, now: Duration, asked: &ApiRequest, change: &ObservedChange) {
        let Some(after) = &change.after else { return };
        let from = self.budgets.known_until(now, self.healed);
        let Some(budget) = self.budgets.budget(&change.name) else { return };
        let may = self.allowed(now, from, budget, &BTreeSet::new());
        let old: BTreeSet<String> = budget.entries().map(|(name, _)| name.clone()).collect();
        let says = allowed(after);
        if says > may.most.max(may.truly).max(0) {
            let what = format!(
                "{} says that {} allows {says}; it allows {} by all that was known since {from:?}, {} in truth",
                asked.caller, change.name, may.most, may.truly
            );
            self.violated(now, Invariant::Budget, what);
        }
        let new = after.pointer("/status/disruptedPods");
        let namespace = str_at(after, "/metadata/namespace").to_owned();
        for name in old.iter().filter(|name| new.is_none_or(|new| new.get(name.as_str()).is_none())) {
            let pod = self.budgets.pod(&format!("{namespace}/{name}"));
            if pod.is_some_and(|pod| !pod.terminates) {
                self.probe("an entry went, and its pod did not");
            }
        }
    }
}

/// The numbers of a budget, for messages.
fn numbers(budget: &Budget) -> String {
    let [allowed, current, desired, expected, observed] =
        ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods", "observedGeneration"]
            .map(|field| budget.status(field));
    format!("its status: {allowed} allowed, {current} of {expected} healthy, {desired} needed, generation {observed}")
}

impl Checker {
    /// Checks at the end, without disturbances, that the statuses are right.
    pub(crate) fn check_budgets(&self) {
        let (now, mut state) = self.now_and_state();
        let names: Vec<String> = state.budgets.all().map(|(name, _)| name.clone()).collect();
        for name in names {
            if let Some(why) = state.withheld_disruption(now, &name) {
                state.violated(now, Invariant::Refused, format!("{name} {why}"));
            }
            let from = state.budgets.known_until(now, state.healed);
            let Some(budget) = state.budgets.budget(&name) else { continue };
            let may = state.allowed(now, from, budget, &BTreeSet::new());
            let says = budget.status("disruptionsAllowed");
            if says > may.most.max(may.truly).max(0) {
                let what = format!(
                    "at rest {name} allows {} by what is known, {} in truth; {}",
                    may.most,
                    may.truly,
                    numbers(budget)
                );
                state.violated(now, Invariant::Budget, what);
            }
            state.probe("a budget came to rest");
        }
    }
}

#[cfg(test)]
mod tests;
