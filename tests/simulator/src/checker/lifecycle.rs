//! S20, S21 and L13: requests to evict pods, and what becomes of them.
//!
//! | broken | when |
//! |---|---|
//! | S20 | a process under test writes a condition that is final and not true, or without the quorum read on which it rests |
//! | S21 | a second Eviction of a pod is created while one goes on, or two of them have an active responder |
//! | S21 | a responder loses its turn before its 20 minutes, or before the 5 s after the end of the pod |
//! | S21 | a process under test writes what a responder of an application reports |
//! | S21 | it evicts a pod when it is not the turn of the evictor, or deletes an Eviction that goes on |
//! | S7 | it deletes a pod whose eviction is requested, past its budget |
//! | L13 | at the end, when all is quiet, a request or an Eviction makes no progress, and nothing says why |
//!
//! Whether an eviction lets two pods of one identity run is S1, which looks at processes alone.

mod answered;
mod observed;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use pod_safety_shared::model::{CANCELED, EVICTION_INVALID, IMPERATIVE_EVICTOR, LOST_NODE_RESPONDER};
use serde_json::Value;

use super::audience::Tone;
use super::requests::LONGEST_REQUEST;
use super::{Checker, Invariant, State};
use crate::api::{ApiRequest, ObservedChange};
use crate::world::{LIFECYCLE, is_shipped, number_at, str_at};

/// A list speaks for a second, and the write that follows may be under way as long as any request.
const READ_LASTS: Duration = Duration::from_secs(LONGEST_REQUEST.as_secs() + 2);
/// A responder that does not report keeps its turn for 20 minutes, less what clocks drift.
const SILENT_FOR: Duration = Duration::from_secs(1_195);
/// The same for the 5 s after the end of its pod.
const GRACEFUL_COMPLETION: Duration = Duration::from_millis(4_900);
/// The responders of pod-safety.
const OWN: [&str; 2] = [IMPERATIVE_EVICTOR, LOST_NODE_RESPONDER];

/// A pod that there is or was.
#[derive(Clone, Debug, Default)]
struct Target {
    name: String,
    in_group: bool,
    gone: Option<Duration>,
    terminal: Option<Duration>,
}

#[derive(Debug, Default)]
pub(super) struct Lifecycle {
    /// The Eviction API is served, or was: since when.
    served: Option<Duration>,
    /// By UID.
    pods: BTreeMap<String, Target>,
    /// By namespace and name.
    requests: BTreeMap<String, Arc<Value>>,
    evictions: BTreeMap<String, Arc<Value>>,
    /// Pods whose eviction was requested, at each list that a process read by quorum.
    reads: BTreeMap<String, Vec<(Duration, BTreeSet<String>)>>,
    /// Reasons for which Evictions of a pod failed.
    failed: BTreeSet<(String, String)>,
    /// When the last Eviction of a pod ended or went, and when the last turn of its evictor ended.
    closed: BTreeMap<String, Duration>,
    turn_ended: BTreeMap<String, Duration>,
    /// When a responder of an Eviction last started or reported.
    reported: BTreeMap<(String, String), Duration>,
    /// When something changed about a pod, its requests or its Evictions.
    changed: BTreeMap<String, Duration>,
}

fn target_of(object: &Value) -> &str {
    str_at(object, "/spec/target/pod/uid")
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let all = object.pointer("/status/conditions").and_then(Value::as_array)?;
    all.iter().find(|one| str_at(one, "/type") == kind && str_at(one, "/status") == "True")
}

/// The reason for which a condition is true.
fn reason<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    condition(object, kind).map(|one| str_at(one, "/reason"))
}

fn is_open(eviction: &Value) -> bool {
    condition(eviction, "Failed").is_none() && condition(eviction, "TargetEvicted").is_none()
}

/// Whether a request asks for the eviction.
fn requests(request: &Value) -> bool {
    str_at(request, "/spec/intent") == "Eviction" && request.pointer("/metadata/deletionTimestamp").is_none()
}

fn entries<'a>(object: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    object.pointer(&format!("/status/{list}")).and_then(Value::as_array).into_iter().flatten()
}

fn entry<'a>(object: &'a Value, list: &str, name: &str) -> Option<&'a Value> {
    entries(object, list).find(|one| str_at(one, "/name") == name)
}

fn active(eviction: &Value) -> Option<&str> {
    let mut all = entries(eviction, "targetResponders");
    all.find(|one| str_at(one, "/state") == "Active").map(|one| str_at(one, "/name"))
}

fn is_turn_of_evictor(eviction: &Value) -> bool {
    is_open(eviction) && active(eviction) == Some(IMPERATIVE_EVICTOR)
}

impl Lifecycle {
    fn evictions_of<'a>(&'a self, uid: &'a str) -> impl Iterator<Item = (&'a String, &'a Arc<Value>)> {
        self.evictions.iter().filter(move |(_, eviction)| target_of(eviction) == uid)
    }

    fn requested(&self) -> BTreeSet<String> {
        let all = self.requests.values().filter(|request| requests(request));
        all.map(|request| target_of(request).to_owned()).collect()
    }

    /// Whether something happened by then, or a little while ago.
    fn lately(times: &BTreeMap<String, Duration>, uid: &str, now: Duration) -> bool {
        times.get(uid).is_some_and(|at| now.saturating_sub(*at) <= READ_LASTS)
    }
}

impl State {
    /// A request was executed: what concerns evictions is judged, then it is learnt from.
    pub(super) fn check_lifecycle(&mut self, now: Duration, asked: &ApiRequest, code: u16, changes: &[ObservedChange]) {
        if self.lifecycle.served.is_none() {
            return;
        }
        if is_shipped(&asked.caller) {
            self.read_requests(now, asked, code);
            if asked.method == Method::POST && asked.path.ends_with("/eviction") {
                self.check_attempt(now, asked);
            }
            if asked.method == Method::DELETE && asked.path.contains("/pods/") {
                self.check_bypass(now, asked);
            }
            for change in changes {
                match change.kind.as_str() {
                    "Eviction" => self.check_eviction_of_pod(now, asked, change),
                    "EvictionRequest" => self.check_request(now, asked, change),
                    _ => {}
                }
            }
        }
        for change in changes {
            if change.kind == "Eviction" {
                self.announce_eviction(now, change);
            }
            self.lifecycle.observe(now, change);
        }
    }

    /// Whose turn it is, and how it ends, for people who watch.
    fn announce_eviction(&mut self, now: Duration, change: &ObservedChange) {
        let (Some(after), before) = (&change.after, &change.before) else { return };
        let pod = str_at(after, "/spec/target/pod/name");
        let before = |of: fn(&Value) -> Option<&str>| before.as_ref().and_then(|before| of(before));
        let [ended, failed] = ["TargetEvicted", "Failed"].map(|kind| reason(after, kind));
        let was_open = change.before.as_ref().is_none_or(|before| is_open(before));
        let text = match (ended, failed) {
            (Some(reason), _) if was_open => format!("the eviction of {pod} ends: {reason}"),
            (None, Some(reason)) if was_open => format!("the eviction of {pod} fails: {reason}"),
            (None, None) => match active(after).filter(|name| before(active) != Some(name)) {
                Some(name) => format!("the eviction of {pod}: the turn of {name}"),
                None => return,
            },
            _ => return,
        };
        self.announce(now, Tone::Loss, text.clone(), text);
    }

    fn read_requests(&mut self, now: Duration, asked: &ApiRequest, code: u16) {
        let lists = asked.path.strip_prefix(LIFECYCLE) == Some("/evictionrequests") && !asked.watches();
        if asked.method != Method::GET || !lists || code != 200 {
            return;
        }
        let requested = self.lifecycle.requested();
        let reads = self.lifecycle.reads.entry(asked.caller.to_string()).or_default();
        reads.retain(|(at, _)| now.saturating_sub(*at) <= READ_LASTS);
        reads.push((now, requested));
    }

    fn out_of_turn(&mut self, now: Duration, what: String) {
        self.violated(now, Invariant::Turn, what);
    }

    /// An eviction by a process under test.
    fn check_attempt(&mut self, now: Duration, asked: &ApiRequest) {
        let body: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
        let uid = str_at(&body, "/deleteOptions/preconditions/uid");
        let lifecycle = &self.lifecycle;
        let turn = lifecycle.evictions_of(uid).any(|(_, eviction)| is_turn_of_evictor(eviction));
        if turn || Lifecycle::lately(&lifecycle.turn_ended, uid, now) {
            self.probe("pod-safety evicted a pod by request");
        } else {
            let what = format!("{} sent {} for {uid:.8}, which is not the evictor's turn", asked.caller, asked.path);
            self.out_of_turn(now, what);
        }
    }

    /// A deletion of a pod, where its budget was to be asked.
    fn check_bypass(&mut self, now: Duration, asked: &ApiRequest) {
        let body: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
        let uid = str_at(&body, "/preconditions/uid");
        let turn = self.lifecycle.evictions_of(uid).any(|(_, eviction)| is_turn_of_evictor(eviction));
        let graceful = number_at(&body, "/gracePeriodSeconds") != Some(0);
        if turn && graceful && !self.taints.is_marked(&asked.caller, uid) {
            let what = format!("{} deletes {} ({uid:.8}) past its budget", asked.caller, asked.path);
            self.violated(now, Invariant::Budget, what);
        }
    }

    fn check_eviction_of_pod(&mut self, now: Duration, asked: &ApiRequest, change: &ObservedChange) {
        let told = format!("{} {} {}", asked.caller, asked.method, change.name);
        let (before, after) = match (&change.before, &change.after) {
            (None, None) => return,
            (Some(before), None) => {
                if is_open(before) {
                    self.out_of_turn(now, format!("{told}: it is deleted while it goes on"));
                }
                return;
            }
            (None, Some(after)) => {
                let uid = target_of(after);
                let other = self.lifecycle.evictions_of(uid).find(|(_, other)| is_open(other));
                if let Some(other) = other.map(|(other, _)| other.clone()) {
                    let what = format!("{told}: {other} of the same pod goes on");
                    self.out_of_turn(now, what);
                }
                self.probe("an Eviction was created");
                return;
            }
            (Some(before), Some(after)) => (before, after),
        };
        self.check_end_of_eviction(now, asked, change);
        self.check_turns(now, &told, &change.name, before, after);
        self.check_reports(now, &told, before, after);
    }

    fn check_end_of_eviction(&mut self, now: Duration, asked: &ApiRequest, change: &ObservedChange) {
        let (Some(before), Some(after)) = (&change.before, &change.after) else { return };
        let uid = target_of(after).to_owned();
        let told = format!("{} says of {} ({uid:.8})", asked.caller, change.name);
        let became = |kind: &str| match (reason(before, kind), reason(after, kind)) {
            (None, Some(reason)) => Some(reason.to_owned()),
            _ => None,
        };
        if let Some(reason) = became("TargetEvicted") {
            self.check_evicted(now, &told, &uid, &reason);
        }
        let Some(reason) = became("Failed") else { return };
        self.probe(&format!("an Eviction failed: {reason}"));
        let lifecycle = &self.lifecycle;
        let wrong = match reason.as_str() {
            CANCELED => {
                let reads = lifecycle.reads.get(&*asked.caller).into_iter().flatten();
                let mut lately = reads.filter(|(at, _)| now.saturating_sub(*at) <= READ_LASTS);
                (!lately.any(|(_, requested)| !requested.contains(&uid)))
                    .then_some("no list that it read said that nobody requests it")
            }
            EVICTION_INVALID => {
                let mut others = lifecycle.evictions_of(&uid).filter(|(name, _)| **name != change.name);
                let other = others.any(|(_, other)| is_open(other));
                (!other && !Lifecycle::lately(&lifecycle.closed, &uid, now))
                    .then_some("no other Eviction of its pod went on")
            }
            _ => {
                let gone = lifecycle.pods.get(&uid).and_then(|pod| pod.gone);
                gone.filter(|gone| now.saturating_sub(*gone) > READ_LASTS).map(|_| "its pod was gone long before")
            }
        };
        if let Some(why) = wrong {
            self.violated(now, Invariant::Verdict, format!("{told} that it failed, {reason}: {why}"));
        }
    }

    /// That a pod was evicted is so for ever: it must be gone, or have run to its end.
    fn check_evicted(&mut self, now: Duration, told: &str, uid: &str, reason: &str) {
        let target = self.lifecycle.pods.get(uid).cloned().unwrap_or_default();
        let holds = target.gone.is_some() || (reason == "PodTerminal" && target.terminal.is_some());
        self.probe(&format!("evicted: {reason}"));
        if !holds && !target.name.is_empty() {
            let what = format!("{told} that the target was evicted, {reason}, and the pod is there");
            self.violated(now, Invariant::Verdict, what);
        }
    }

    fn check_turns(&mut self, now: Duration, told: &str, name: &str, before: &Value, after: &Value) {
        let uid = target_of(after).to_owned();
        if is_open(after) && active(after).is_some() {
            let goes_on = |(other, eviction): &(&String, &Arc<Value>)| {
                other.as_str() != name && is_open(eviction) && active(eviction).is_some()
            };
            let other = self.lifecycle.evictions_of(&uid).find(goes_on).map(|(other, _)| other.clone());
            if let Some(other) = other {
                let what = format!("{told}: a responder of it is active, and one of {other}");
                self.out_of_turn(now, what);
            }
        }
        for one in entries(after, "targetResponders") {
            let responder = str_at(one, "/name");
            let state = entry(before, "targetResponders", responder).map(|one| str_at(one, "/state"));
            if state != Some("Active") || str_at(one, "/state") == "Active" {
                continue;
            }
            self.probe(&format!("a turn ended: {}", str_at(one, "/state")));
            if str_at(one, "/state") != "Interrupted" {
                continue;
            }
            let since = if condition(after, "TargetEvicted").is_some() {
                let target = self.lifecycle.pods.get(&uid).cloned().unwrap_or_default();
                let ended = [target.gone, target.terminal].into_iter().flatten().min();
                ended.map(|ended| (ended, GRACEFUL_COMPLETION))
            } else {
                let key = (name.to_owned(), responder.to_owned());
                self.lifecycle.reported.get(&key).map(|reported| (*reported, SILENT_FOR))
            };
            if let Some((since, least)) = since.filter(|(since, least)| now.saturating_sub(*since) < *least) {
                let what = format!("{told}: {responder} lost its turn, which it had for {least:?} from {since:?}");
                self.out_of_turn(now, what);
            }
        }
    }

    /// What a responder of an application reports is its own.
    fn check_reports(&mut self, now: Duration, told: &str, before: &Value, after: &Value) {
        for one in entries(after, "responders").filter(|one| !OWN.contains(&str_at(one, "/name"))) {
            let earlier = entry(before, "responders", str_at(one, "/name"));
            let fields = ["heartbeatTime", "expectedCompletionTime", "completionTime", "message"];
            let changed =
                fields.iter().find(|field| earlier.and_then(|earlier| earlier.get(**field)) != one.get(**field));
            if let Some(field) = changed {
                let what = format!("{told}: it writes {field} of {}", str_at(one, "/name"));
                self.out_of_turn(now, what);
            }
        }
    }

    fn check_request(&mut self, now: Duration, asked: &ApiRequest, change: &ObservedChange) {
        let Some(after) = &change.after else { return };
        let uid = target_of(after).to_owned();
        let told = format!("{} says of {} ({uid:.8})", asked.caller, change.name);
        let became = |kind: &str| {
            let before = change.before.as_ref().and_then(|before| reason(before, kind));
            reason(after, kind).filter(|reason| before != Some(reason)).map(str::to_owned)
        };
        if let Some(reason) = became("TargetEvicted") {
            self.check_evicted(now, &told, &uid, &reason);
        }
        let Some(reason) = became("Failed") else { return };
        self.probe(&format!("a request failed: {reason}"));
        let target = self.lifecycle.pods.get(&uid).cloned().unwrap_or_default();
        let namespace = str_at(after, "/metadata/namespace");
        let named = format!("{namespace}/{}", str_at(after, "/spec/target/pod/name"));
        let valid = target.name == named && target.gone.is_none() && !target.in_group;
        let why = if reason == EVICTION_INVALID {
            valid.then_some("its pod is there")
        } else {
            let copied = self.lifecycle.failed.contains(&(uid.clone(), reason.clone()));
            (!copied).then_some("no Eviction of its pod says so")
        };
        if let Some(why) = why {
            self.violated(now, Invariant::Verdict, format!("{told} that it failed, {reason}: {why}"));
        }
    }
}

impl Checker {
    /// The Eviction API is served from now on, or not.
    pub(crate) fn gate_switched(&self, on: bool) {
        let (now, mut state) = self.now_and_state();
        if on || state.lifecycle.served.is_none() {
            state.lifecycle.served = Some(now);
        }
        if !on {
            state.probe("the Eviction API was switched off");
        }
    }

    /// Whether somebody requests the eviction of this pod, or an Eviction of it goes on.
    pub(crate) fn is_eviction_requested(&self, uid: &str) -> bool {
        let state = self.state.lock();
        let lifecycle = &state.lifecycle;
        let mut requests = lifecycle.requests.values().filter(|request| self::requests(request));
        requests.any(|request| target_of(request) == uid)
            || lifecycle.evictions_of(uid).any(|(_, eviction)| is_open(eviction))
    }
}

#[cfg(test)]
mod tests;
