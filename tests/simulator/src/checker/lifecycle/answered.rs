//! L13: at the end, when all is quiet, each request and each Eviction has its answer, goes on, or says what it waits for.

use std::sync::Arc;
use std::time::Duration;

use pod_safety_shared::model::{EVICTION_INVALID, IMPERATIVE_EVICTOR};
use serde_json::Value;

use super::super::budgets::RECOVERS;
use super::super::shown_holds::Shown;
use super::super::{Checker, Invariant, State};
use super::{Lifecycle, active, condition, entry, is_open, reason, requests, target_of};
use crate::world::{number_at, str_at};

/// What changed less than this ago is about to be answered.
const ANSWERED_WITHIN: Duration = Duration::from_secs(45);
/// A process asks an API server that did not serve the API again within this.
const FOUND_WITHIN: Duration = Duration::from_secs(95);
/// A new leader knows all after this.
const TAKES_OVER: Duration = Duration::from_secs(10);
/// A responder of ours reports each three minutes, and one that was refused each ten.
const REPORTS_WITHIN: Duration = Duration::from_secs(240);
const RETRIES_WITHIN: Duration = Duration::from_secs(660);
/// One of an application loses its turn after 20 minutes.
const LOSES_TURN_WITHIN: Duration = Duration::from_secs(1_260);

impl State {
    /// Since when nothing kept the processes under test from their work.
    fn undisturbed_since(&self, now: Duration) -> Option<Duration> {
        let calm = self.budgets.untroubled_since(now, self.healed);
        let calm = if calm.is_zero() { calm } else { calm + RECOVERS };
        let led = self.acts.led_since()? + TAKES_OVER;
        let served = self.lifecycle.served?;
        let served = if served.is_zero() { served } else { served + FOUND_WITHIN };
        Some(calm.max(led).max(served))
    }

    /// What is wrong with a request at rest.
    fn unanswered(&self, request: &Value, pod: Option<&Value>, holds: &Shown) -> Option<&'static str> {
        let uid = target_of(request);
        let observed = number_at(request, "/status/observedGeneration");
        if observed != number_at(request, "/metadata/generation") {
            return Some("its generation was not observed");
        }
        let evicted = condition(request, "TargetEvicted").is_some();
        let failed = reason(request, "Failed");
        if evicted || failed == Some(EVICTION_INVALID) || !requests(request) {
            return None;
        }
        let target = self.lifecycle.pods.get(uid);
        let Some(pod) = pod else { return Some("its pod is gone, and it does not say so") };
        if target.is_some_and(|target| target.in_group) {
            return Some("its pod belongs to a gang, and it does not say so");
        }
        let goes_on = self.lifecycle.evictions_of(uid).any(|(_, eviction)| is_open(eviction));
        let waits = holds.holds_pod(pod, "NoFurtherResponder");
        (!goes_on && !waits).then_some("no Eviction of its pod goes on, and nothing says why")
    }

    /// What is wrong with an Eviction that goes on.
    fn stands_still(&self, now: Duration, name: &str, eviction: &Value, pod: Option<&Value>) -> Option<&'static str> {
        let uid = target_of(eviction);
        if pod.is_none() || self.lifecycle.pods.get(uid).is_some_and(|target| target.terminal.is_some()) {
            return Some("its pod ended, and it goes on");
        }
        if !self.lifecycle.requested().contains(uid) {
            return Some("nobody requests it, and it goes on");
        }
        let Some(responder) = active(eviction) else { return Some("no responder is active") };
        let reported = self.lifecycle.reported.get(&(name.to_owned(), responder.to_owned())).copied();
        let silent = now.saturating_sub(reported.unwrap_or_default());
        let terminates = pod.is_some_and(|pod| pod.pointer("/metadata/deletionTimestamp").is_some());
        let own = super::OWN.contains(&responder);
        let most = match (own, responder == IMPERATIVE_EVICTOR && !terminates) {
            (false, _) => LOSES_TURN_WITHIN,
            (true, true) => RETRIES_WITHIN,
            (true, false) => REPORTS_WITHIN,
        };
        // A process whose wall clock went back counts by what it saw, and waits twice as long.
        let most = if self.clocks_jumped { most * 2 } else { most };
        if silent > most {
            return Some("its responder does not report, and keeps its turn");
        }
        let message = entry(eviction, "responders", responder).map_or("", |one| str_at(one, "/message"));
        (own && message.is_empty()).then_some("its responder does not say what it waits for")
    }
}

impl Checker {
    /// The end, when all is quiet: `holds` are the holds that the processes under test show.
    pub(crate) fn check_evictions(&self, pods: &[Arc<Value>], holds: &Shown) {
        let (now, mut state) = self.now_and_state();
        let Some(from) = state.undisturbed_since(now) else { return };
        let there = |uid: &str| pods.iter().find(|pod| str_at(pod, "/metadata/uid") == uid).map(|pod| &**pod);
        let Lifecycle { requests, evictions, .. } = &state.lifecycle;
        let (requests, evictions) = (requests.clone(), evictions.clone());
        let quiet = |state: &State, uid: &str| {
            let changed = state.lifecycle.changed.get(uid).copied().unwrap_or_default();
            now > changed.max(from) + ANSWERED_WITHIN
        };
        for (name, request) in requests {
            let request = &*request;
            if !quiet(&state, target_of(request)) {
                continue;
            }
            state.probe("a request to evict came to rest");
            if let Some(why) = state.unanswered(request, there(target_of(request)), holds) {
                let what = format!("{name} of {:.8}: {why}; {}", target_of(request), request["status"]);
                state.violated(now, Invariant::Answered, what);
            }
        }
        for (name, eviction) in evictions {
            let eviction = &*eviction;
            if !is_open(eviction) || !quiet(&state, target_of(eviction)) {
                continue;
            }
            let why = state.stands_still(now, &name, eviction, there(target_of(eviction)));
            if let Some(why) = why {
                let what = format!("{name} of {:.8}: {why}; {}", target_of(eviction), eviction["status"]);
                state.violated(now, Invariant::Answered, what);
            } else if let Some(responder) = active(eviction) {
                state.probe(&format!("an Eviction waits: {responder}"));
            }
        }
    }
}
