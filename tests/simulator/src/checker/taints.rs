//! S14 and L10: who is asked to end for a taint of the effect `NoExecute`, and when.
//!
//! | broken | when |
//! |---|---|
//! | S14 | a pod is asked to end that bears all taints of its node, or the first of them still |
//! | S14 | it is asked without a quorum read of its node right before |
//! | S12 | a process under test deletes gracefully what it did not mark so |
//! | S5 | it leaves a pod another grace than the pod's own |
//! | L10 | a pod that bears a taint no longer is not asked to end within [`REACTS`] |
//!
//! That nobody else is asked in a pod's place is S4. What a process could know of a
//! node is what its last quorum read found: a taint that was lifted after that read may
//! end the pod still. Of the pod it knows all, for its requests name the version.
//!
//! **When.** Taint and pod have met when the taint was added, by its stamp, or when the
//! pod was bound, if that was later. S14 counts from there whatever becomes of our
//! processes and their clocks. L10 does too, but for what docs/taint-eviction.md takes
//! back: a taint without a stamp counts from when a process saw it, and so does any taint
//! for a process whose wall clock has jumped back. Troubles of our processes and their
//! API servers are over [`RECOVERS`] after their end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::Method;
use serde_json::Value;

use super::audience::{self, Tone};
use super::budgets::{REACTS, RECOVERS};
use super::effects::is_terminal;
use super::{Checker, Invariant, State};
use crate::api::{ApiRequest, ObservedChange};
use crate::world::{is_shipped, moment, number_at, str_at};

/// For how long the read of a node speaks for its pods: a promise of the authority, and a
/// little for the way of the requests.
const READ_VALID_FOR: Duration = Duration::from_millis(2_200);
/// The longest that the answer of the mark can take, and a second: its deletion follows.
const MARK_LASTS: Duration = Duration::from_secs(31);
/// What a new leader needs until it knows all.
const TAKES_OVER: Duration = Duration::from_secs(10);
/// The reason by which a deletion for a taint can be told.
const REASON: &str = "DeletionByTaintManager";
/// And for a Node that is gone.
pub(super) const NODE_GONE: &str = "DeletionByPodGC";

/// A taint of the effect `NoExecute`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Taint {
    key: String,
    value: String,
    /// When its node got it.
    applied: Duration,
    /// When it was added, by its own word.
    added: Option<Duration>,
    /// The same by a clock that is right: the jumps of the clock that stamped it are taken off.
    stamped: Option<Duration>,
}

/// A bound pod.
#[derive(Clone, Debug)]
struct Bound {
    name: String,
    node: String,
    /// When, by its own word.
    bound: Duration,
    grace: Option<i64>,
    tolerations: Value,
    /// Since when it is as it is.
    since: Duration,
    /// It ends already, or has ended.
    ends: bool,
}

#[derive(Debug, Default)]
pub(super) struct Taints {
    /// By node.
    nodes: BTreeMap<String, Vec<Taint>>,
    /// By UID.
    pods: BTreeMap<String, Bound>,
    /// The last quorum read of a node by a process, and the taints that it found.
    reads: BTreeMap<(String, String), (Duration, Vec<Taint>)>,
    /// When a process marked a pod, by process and UID.
    marked: BTreeMap<(String, String), Duration>,
    /// Processes whose wall clock jumped back.
    behind: BTreeSet<String>,
    /// By how many seconds the wall clock of a process has jumped, in all.
    jumped: BTreeMap<String, i64>,
    /// Pods of which L10 was said.
    late: BTreeSet<String>,
}

/// How long a pod bears a taint; `None`: for ever.
fn toleration_period(tolerations: &Value, taint: &Taint) -> Option<Duration> {
    let matches = |one: &&Value| {
        let (key, effect) = (str_at(one, "/key"), str_at(one, "/effect"));
        let value = match str_at(one, "/operator") {
            "" | "Equal" => str_at(one, "/value") == taint.value,
            operator => operator == "Exists",
        };
        (key.is_empty() || key == taint.key) && (effect.is_empty() || effect == "NoExecute") && value
    };
    match tolerations.as_array().into_iter().flatten().find(matches) {
        None => Some(Duration::ZERO),
        Some(one) => {
            number_at(one, "/tolerationSeconds").map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
        }
    }
}

/// When a pod will not bear these taints any more; `None`: it bears them for ever. A
/// taint counts from `met`, at the earliest.
fn eviction_time(pod: &Bound, taints: &[Taint], met: impl Fn(&Taint) -> Duration) -> Option<Duration> {
    let until = |taint: &Taint| Some(met(taint).max(pod.bound) + toleration_period(&pod.tolerations, taint)?);
    taints.iter().filter_map(until).min()
}

/// `ahead`: by how much the clock of whoever wrote the node is ahead.
fn taints_of(node: &Value, before: &[Taint], now: Duration, ahead: Duration) -> Vec<Taint> {
    let all = node.pointer("/spec/taints").and_then(Value::as_array).into_iter().flatten();
    let taints = all.filter(|taint| str_at(taint, "/effect") == "NoExecute").map(|taint| {
        let (key, value) = (str_at(taint, "/key").to_owned(), str_at(taint, "/value").to_owned());
        let added = moment(str_at(taint, "/timeAdded"));
        let earlier = before.iter().find(|earlier| earlier.key == key && earlier.added == added);
        let stamped = added.map(|added| added.saturating_sub(ahead));
        let (applied, stamped) = earlier.map_or((now, stamped), |earlier| (earlier.applied, earlier.stamped));
        Taint { key, value, applied, added, stamped }
    });
    taints.collect()
}

fn bound(pod: &Value, name: &str, now: Duration) -> Bound {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    let scheduled = conditions.into_iter().find(|one| str_at(one, "/type") == "PodScheduled");
    let scheduled = scheduled.and_then(|one| moment(str_at(one, "/lastTransitionTime")));
    Bound {
        name: name.to_owned(),
        node: str_at(pod, "/spec/nodeName").to_owned(),
        bound: scheduled.or_else(|| moment(str_at(pod, "/metadata/creationTimestamp"))).unwrap_or_default(),
        grace: number_at(pod, "/spec/terminationGracePeriodSeconds"),
        tolerations: pod.pointer("/spec/tolerations").cloned().unwrap_or_default(),
        since: now,
        ends: pod.pointer("/metadata/deletionTimestamp").is_some() || is_terminal(pod),
    }
}

/// The UID that a request means.
fn named_uid(body: &Value) -> String {
    [str_at(body, "/preconditions/uid"), str_at(body, "/metadata/uid")].concat()
}

impl Taints {
    fn taints_on(&self, node: &str) -> &[Taint] {
        self.nodes.get(node).map_or(&[], Vec::as_slice)
    }

    /// The wall clock of a process jumped.
    pub(super) fn clock_jumped(&mut self, caller: &str, seconds: i64) {
        if seconds < 0 {
            self.behind.insert(caller.to_owned());
        }
        *self.jumped.entry(caller.to_owned()).or_default() += seconds;
    }

    /// Whether a process marked a pod before it deletes it.
    pub(super) fn is_marked(&self, caller: &str, uid: &str) -> bool {
        self.marked.contains_key(&(caller.to_owned(), uid.to_owned()))
    }

    /// By how much the wall clock of a process is ahead; zero if it is behind.
    fn ahead(&self, caller: &str) -> Duration {
        let jumped = self.jumped.get(caller).copied().unwrap_or_default();
        Duration::from_secs(u64::try_from(jumped).unwrap_or(0))
    }
}

impl State {
    /// A request was executed: deletions for taints are judged, then it is learnt from.
    pub(super) fn check_taint_changes(
        &mut self,
        now: Duration,
        asked: &ApiRequest,
        code: u16,
        changes: &[ObservedChange],
    ) {
        if is_shipped(&asked.caller) && (200..300).contains(&code) {
            let node = asked.path.strip_prefix("/api/v1/nodes/").filter(|node| !node.contains('/'));
            match (&asked.method, node) {
                (&Method::GET, Some(node)) if asked.parameter("resourceVersion").is_empty() => {
                    let found = (now, self.taints.taints_on(node).to_vec());
                    self.taints.reads.insert((asked.caller.to_string(), node.to_owned()), found);
                }
                (&Method::PATCH, None) if asked.path.ends_with("/status") => self.check_mark(now, asked),
                (&Method::DELETE, None) if asked.path.contains("/pods/") => self.check_deletion(now, asked),
                _ => {}
            }
        }
        let ahead = self.taints.ahead(&asked.caller);
        for change in changes {
            self.observe_taints(now, change, ahead);
        }
    }

    /// A process says that a pod will be deleted for a taint.
    fn check_mark(&mut self, now: Duration, asked: &ApiRequest) {
        let body: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
        let conditions = body.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
        let reasons: Vec<&str> = conditions.map(|one| str_at(one, "/reason")).collect();
        let (uid, caller) = (named_uid(&body), asked.caller.to_string());
        let sent = self.requests.intention(asked).map_or(now, |intention| intention.sent);
        if reasons.contains(&NODE_GONE) && str_at(&body, "/status/phase").is_empty() {
            // Its condition says so, which is judged where it is applied.
            self.taints.marked.insert((caller, uid), sent);
            return;
        }
        if !reasons.contains(&REASON) {
            return;
        }
        self.taints.marked.insert((caller.clone(), uid.clone()), sent);
        let Some(pod) = self.taints.pods.get(&uid).cloned() else { return };
        let told = format!("{} ({uid:.8}) was marked by {caller}", pod.name);
        let look = self.taints.reads.get(&(caller, pod.node.clone()));
        let Some((looked, found)) = look.filter(|(looked, _)| sent.saturating_sub(*looked) < READ_VALID_FOR) else {
            let when = look.map(|(looked, _)| *looked);
            let what = format!("{told}, sent at {sent:?}; its node {} was last read at {when:?}", pod.node);
            return self.violated(now, Invariant::Tolerance, what);
        };
        // One from the future is new.
        let met = |taint: &Taint| taint.stamped.map_or(taint.applied, |stamped| stamped.min(taint.applied));
        match eviction_time(&pod, found, met) {
            None => {
                let what = format!("{told}, and bears all of {found:?}, which was read at {looked:?}");
                self.violated(now, Invariant::Tolerance, what);
            }
            Some(due) if sent < due => {
                let what = format!("{told} at {sent:?}, and bears {found:?} until {due:?}");
                self.violated(now, Invariant::Tolerance, what);
            }
            Some(due) => self.count_mark(now, &pod, &found.clone(), due),
        }
    }

    fn count_mark(&mut self, now: Duration, pod: &Bound, taints: &[Taint], due: Duration) {
        let met = taints.iter().map(|taint| taint.applied).min().unwrap_or_default().max(pod.bound);
        let at_once = due <= met;
        let new_leader = !at_once && self.acts.led_since().is_some_and(|since| since > met);
        self.probe(if at_once {
            "asked to end for a taint at once"
        } else {
            "asked to end for a taint after its time"
        });
        let text = format!("{} is deleted because of a taint", audience::pod(&pod.name));
        self.announce(now, Tone::Loss, format!("{} is deleted because of a taint", pod.name), text);
        if new_leader {
            self.probe("the leader changed while a pod's time ran");
        }
        if taints.len() > 1 {
            self.probe("asked to end for the first of several taints");
        }
    }

    /// A process asks a pod to end.
    fn check_deletion(&mut self, now: Duration, asked: &ApiRequest) {
        let body: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
        let Some(grace @ 1..) = number_at(&body, "/gracePeriodSeconds") else { return };
        let uid = named_uid(&body);
        let marked = self.taints.marked.get(&(asked.caller.to_string(), uid.clone())).copied();
        if marked.is_none_or(|marked| now.saturating_sub(marked) > MARK_LASTS) {
            let what = format!(
                "{} deletes {} with a grace of {grace} s, and marked it at {marked:?}",
                asked.caller, asked.path
            );
            return self.violated(now, Invariant::Hygiene, what);
        }
        let own = self.taints.pods.get(&uid).and_then(|pod| pod.grace);
        if own.is_some_and(|own| own.max(1) != grace) {
            let what = format!("{} leaves {} {grace} s to end, its own are {own:?}", asked.caller, asked.path);
            self.violated(now, Invariant::Grace, what);
        }
    }

    fn observe_taints(&mut self, now: Duration, change: &ObservedChange, ahead: Duration) {
        match (change.kind.as_str(), &change.after) {
            ("Node", None) => drop(self.taints.nodes.remove(&change.name)),
            ("Node", Some(node)) => {
                let before = self.taints.taints_on(&change.name).to_vec();
                let after = taints_of(node, &before, now, ahead);
                self.count_spared(now, &change.name, &before, &after);
                self.taints.nodes.insert(change.name.clone(), after);
            }
            ("Pod", None) => {
                let uid = change.before.as_deref().map(|pod| str_at(pod, "/metadata/uid"));
                uid.and_then(|uid| self.taints.pods.remove(uid));
            }
            ("Pod", Some(pod)) if !str_at(pod, "/spec/nodeName").is_empty() => {
                let uid = str_at(pod, "/metadata/uid");
                let mut new = bound(pod, &change.name, now);
                if let Some(before) = self.taints.pods.get(uid) {
                    if before.tolerations == new.tolerations && before.bound == new.bound {
                        new.since = before.since;
                    } else if !self.taints.taints_on(&new.node).is_empty() {
                        self.probe("tolerations changed on a tainted node");
                    }
                }
                self.taints.pods.insert(uid.to_owned(), new);
            }
            _ => {}
        }
    }

    /// Pods whose time ran, and runs no longer.
    fn count_spared(&mut self, now: Duration, node: &str, before: &[Taint], after: &[Taint]) {
        let met = |taint: &Taint| taint.added.unwrap_or(taint.applied);
        let spared = |pod: &&Bound| {
            pod.node == node
                && !pod.ends
                && eviction_time(pod, before, met).is_some_and(|due| due > now)
                && eviction_time(pod, after, met).is_none()
        };
        for _ in 0..self.taints.pods.values().filter(spared).count() {
            self.probe("a taint was lifted while a pod's time ran");
        }
    }

    /// Until when a pod must have been asked to end, at the latest.
    fn due_eviction(&self, pod: &Bound, leader: &str, led_since: Duration) -> Option<Duration> {
        let behind = self.taints.behind.contains(leader);
        // What nobody stamped counts from when the leader saw it, and after an outage its lists may come later than its
        // lease (seed 790). While its watch is silent or lags, it sees it later (seeds 4492 and 8704).
        let seen = |taint: &Taint| {
            let clear = self.budgets.untroubled_since(taint.applied, self.healed);
            let clear = if clear > taint.applied { clear + RECOVERS } else { taint.applied };
            clear.max(led_since + TAKES_OVER)
        };
        let met = |taint: &Taint| taint.added.filter(|_| !behind).unwrap_or_else(|| seen(taint));
        // Stamped by a clock that was behind, before the pod came by its own: it may stay longer (docs/taint-eviction.md).
        let misdated =
            |taint: &Taint| taint.added.is_some_and(|added| added < pod.bound) && pod.bound + REACTS < taint.applied;
        let owed = |taint: &Taint| {
            if misdated(taint) {
                return None;
            }
            let due = eviction_time(pod, std::slice::from_ref(taint), met)?;
            Some(due.max(taint.applied).max(pod.since))
        };
        self.taints.taints_on(&pod.node).iter().filter_map(owed).min()
    }
}

impl Checker {
    /// Whoever bears a taint no longer has been asked to end by now.
    pub(crate) fn check_taints(&self) {
        let (now, mut state) = self.now_and_state();
        let calm = state.budgets.untroubled_since(now, state.healed);
        let calm = if calm.is_zero() { calm } else { calm + RECOVERS };
        let (Some(leader), Some(led_since)) = (state.acts.leader().map(str::to_owned), state.acts.led_since()) else {
            return;
        };
        let from = calm.max(led_since + TAKES_OVER);
        let mut late = Vec::new();
        for (uid, pod) in state.taints.pods.iter().filter(|(_, pod)| !pod.ends) {
            let Some(owed) = state.due_eviction(pod, &leader, led_since) else { continue };
            if now > owed.max(from) + REACTS && !state.taints.late.contains(uid) {
                let taints = state.taints.taints_on(&pod.node);
                let what = format!("{} ({uid:.8}) was to be asked to end at {owed:?} for {taints:?}", pod.name);
                late.push((uid.clone(), what));
            }
        }
        for (uid, what) in late {
            state.taints.late.insert(uid);
            state.violated(now, Invariant::Evicted, what);
        }
    }

    /// The wall clock of a process under test jumped.
    pub(crate) fn clock_of(&self, caller: &str, seconds: i64) {
        self.state.lock().taints.clock_jumped(caller, seconds);
    }
}

#[cfg(test)]
mod tests;
