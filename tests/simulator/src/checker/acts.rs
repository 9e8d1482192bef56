//! What the controllers under test change, judged when it is applied.

mod gone;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::audience::{self, Tone};
use super::effects::{Effect, effects, is_terminal};
use super::requests::meant_gracefully;
use super::{Checker, Invariant, State};
use crate::api::{ApiRequest, ObservedChange};
use crate::world::{is_shipped, is_under_test, number_at, ready, str_at};

/// For how long after its reads evidence about a node may be used: a promise of
/// docs/proof.md.
/// docs/assumptions.md: no-boot-in-ten-seconds
pub(super) const VALID_FOR: Duration = Duration::from_secs(2);

/// A quarantine, and how long evidence is valid after it.
/// docs/assumptions.md: cut-off-nodes-are-kept
const COMES_BACK_WITHIN: Duration = Duration::from_secs(42);

/// What a Lease promises, less what a watch may be behind.
/// docs/assumptions.md: renews-each-quarter
const SILENT: Duration = Duration::from_secs(35);

/// Within this time of a kubelet's start it may watch no pods: 30 s, and what a watch may be behind.
/// docs/assumptions.md: watches-once-registered
const MAY_BEGIN_WITHIN: Duration = Duration::from_secs(50);

/// The Lease by which processes under test elect their leader.
const OUR_LEASE: &str = "kube-system/pod-safety";

/// A quorum read of a Node that was executed and did not find it.
#[derive(Clone, Copy, Debug)]
struct Missed {
    at: Duration,
    /// Since when the node had been missing without a break.
    missing_since: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Acts {
    /// Since when a Node is missing; one that is there has no entry.
    missing: BTreeMap<String, Duration>,
    /// When Leases of kubelets were renewed, by node.
    renewals: BTreeMap<String, Vec<Duration>>,
    /// Nodes that have a Lease.
    pub(super) leases: BTreeSet<String>,
    /// When Leases of kubelets were collected, by node.
    collected: BTreeMap<String, Duration>,
    /// When a process under test last listed these Leases, by process.
    listed: BTreeMap<String, Duration>,
    /// When one of them last listed these Leases again.
    listed_again_at: Option<Duration>,
    /// When a process first listed the Leases without one that was collected after its last list, by node: for all it knows, its
    /// kubelet renewed it until then.
    unlisted: BTreeMap<String, Duration>,
    /// Since when a Node is called Unknown.
    unknown: BTreeMap<String, Duration>,
    /// UIDs of pods of which it was said that they wait, and are not shown.
    reported: BTreeSet<String>,
    /// UIDs of pods that were removed, and whether what is under test did it.
    removed: BTreeMap<String, bool>,
    /// By process and node: the Node reads that missed, and all Lease reads, by quorum.
    missed: BTreeMap<(String, String), Vec<Missed>>,
    pub(super) lease_reads: BTreeMap<(String, String), Vec<Duration>>,
    /// Who wrote the terminal phase of a pod, and when, by UID.
    ended_by: BTreeMap<String, (String, Duration)>,
    /// When kubelets last reported on a pod, by node.
    reports: BTreeMap<String, Duration>,
    /// When pods got their nodes, by UID.
    bound: BTreeMap<String, Duration>,
    /// The leader, and since when.
    leader: Option<(String, Duration)>,
}

impl Acts {
    /// Whether there was a pod with this UID, and is none.
    pub(super) fn is_removed(&self, uid: &str) -> bool {
        self.removed.contains_key(uid)
    }

    /// Whether somebody else than what is under test removed this pod.
    pub(super) fn is_removed_by_others(&self, uid: &str) -> bool {
        self.removed.get(uid) == Some(&false)
    }

    /// Since when this Node is called Unknown; `None`: it is not.
    pub(super) fn unknown_since(&self, node: &str) -> Option<Duration> {
        self.unknown.get(node).copied()
    }

    /// Says something of a pod once.
    pub(super) fn report_once(&mut self, uid: &str) -> bool {
        self.reported.insert(uid.to_owned())
    }

    /// Whether it was renewed.
    fn learn_heartbeat(&mut self, now: Duration, node: &str, change: &ObservedChange) -> bool {
        if change.after.is_some() {
            self.leases.insert(node.to_owned());
        } else {
            self.leases.remove(node);
            self.collected.insert(node.to_owned(), now);
        }
        let renewed =
            |lease: &Option<Arc<Value>>| lease.as_ref().map(|lease| str_at(lease, "/spec/renewTime").to_owned());
        let is_new = change.after.is_some() && renewed(&change.before) != renewed(&change.after);
        if is_new {
            self.renewals.entry(node.to_owned()).or_default().push(now);
        }
        is_new
    }

    /// When this process last read the node's Lease before that moment.
    pub(super) fn lease_read(&self, caller: &str, node: &str, before: Duration) -> Option<Duration> {
        let reads = self.lease_reads.get(&(caller.to_owned(), node.to_owned()))?;
        reads.iter().rev().find(|at| **at <= before).copied()
    }

    /// Since when this Node is missing; `None`: it is there, or never was.
    pub(super) fn missing_since(&self, node: &str) -> Option<Duration> {
        self.missing.get(node).copied()
    }

    /// When this node's Lease was last renewed.
    pub(super) fn renewed_at(&self, node: &str) -> Option<Duration> {
        self.renewals.get(node).and_then(|renewals| renewals.last().copied())
    }

    /// When this node's kubelet was last seen to act, by the API.
    pub(super) fn last_sign(&self, node: &str) -> Option<Duration> {
        self.renewed_at(node).max(self.reports.get(node).copied())
    }

    fn learn_list_of_leases(&mut self, now: Duration, caller: &str) {
        let before = self.listed.insert(caller.to_owned(), now);
        self.listed_again_at = before.map(|_| now).or(self.listed_again_at);
        let before = before.unwrap_or_default();
        let since = self.collected.iter().filter(|(_, at)| **at > before);
        self.unlisted.extend(since.map(|(node, _)| (node.clone(), now)));
    }

    /// When this node's kubelet may have acted last, for all that the processes under test know: their watch did not bring the end of
    /// its Lease.
    pub(super) fn last_possible_sign(&self, node: &str) -> Option<Duration> {
        self.last_sign(node).max(self.unlisted.get(node).copied())
    }

    /// Whether this node's kubelet may have just started when its Node was deleted, for all that the processes under test know: it
    /// created its Lease, did not renew it ten seconds after the renewal before, or they listed the Leases again.
    pub(super) fn may_have_just_started(&self, node: &str) -> bool {
        let Some(since) = self.missing_since(node) else { return false };
        let from = since.saturating_sub(MAY_BEGIN_WITHIN);
        let renewals = self.renewals.get(node).map(Vec::as_slice).unwrap_or_default();
        let in_step = |pair: &[Duration]| (10_000..=11_000).contains(&(pair[1] - pair[0]).as_millis());
        renewals.first().is_some_and(|created| *created >= from)
            || renewals.windows(2).any(|pair| pair[1] >= from && !in_step(pair))
            || self.listed_again_at.is_some_and(|at| (from..=since + MAY_BEGIN_WITHIN).contains(&at))
    }

    /// Whether this node's Lease had not been renewed for so long when its Node went that it was silent for whoever
    /// watches it. Those who are behind may take it for silent some seconds earlier.
    pub(super) fn unreachable_before(&self, node: &str) -> bool {
        let renewed = self.renewed_at(node).unwrap_or_default();
        self.missing_since(node).is_some_and(|since| since.saturating_sub(renewed) >= SILENT)
    }

    pub(super) fn bound_at(&self, uid: &str) -> Option<Duration> {
        self.bound.get(uid).copied()
    }

    pub(super) fn ended_at(&self, uid: &str) -> Option<Duration> {
        self.ended_by.get(uid).map(|(_, at)| *at)
    }

    /// Since when the present leader leads.
    pub(super) fn led_since(&self) -> Option<Duration> {
        self.leader.as_ref().map(|(_, since)| *since)
    }

    pub(super) fn leader(&self) -> Option<&str> {
        self.leader.as_ref().map(|(name, _)| name.as_str())
    }
}

impl Checker {
    /// A request was executed; these are its doings.
    pub(crate) fn executed(&self, asked: &ApiRequest, code: u16, changes: &[ObservedChange]) {
        let (now, mut state) = self.now_and_state();
        let head = format!("{} {} {} {:?} {code}", asked.caller, asked.method, asked.path, asked.query);
        state.trace(&[&now.as_millis().to_le_bytes(), head.as_bytes(), &asked.body]);
        state.record_on_tape(now, &head, &asked.body, changes);
        state.record_report(now, asked);
        if is_under_test(&asked.caller) {
            if is_shipped(&asked.caller) {
                state.requested(now, asked);
                state.check_late(now, asked, changes);
            }
            state.record_read(now, asked, code);
        }
        state.check_requests(now, asked, code, changes);
        state.check_taint_changes(now, asked, code, changes);
        state.check_requests_of_nodes(now, asked, code, changes);
        state.judge_fences(now, asked, changes);
        state.check_lifecycle(now, asked, code, changes);
        if state.storage.guarded {
            state.check_volume_requests(now, asked, changes);
        }
        let removed = changes.iter().any(|change| change.after.is_none());
        for change in changes {
            // A removal sets the grace to zero on its way; one act is judged once.
            let on_its_way = removed && change.after.is_some();
            if is_under_test(&asked.caller) && change.kind == "Pod" && !on_its_way {
                state.check(now, asked, change, self.promise.quarantine);
            }
            state.observe(now, asked, change);
        }
    }
}

impl State {
    /// A read by a process under test.
    fn record_read(&mut self, now: Duration, asked: &ApiRequest, code: u16) {
        if asked.method != http::Method::GET {
            return;
        }
        let quorum = asked.parameter("resourceVersion").is_empty();
        let acts = &mut self.acts;
        if let Some(node) = asked.path.strip_prefix("/api/v1/nodes/") {
            let missing_since = acts.missing.get(node).copied();
            if let (404, true, Some(missing_since)) = (code, quorum, missing_since) {
                let key = (asked.caller.to_string(), node.to_owned());
                acts.missed.entry(key).or_default().push(Missed { at: now, missing_since });
                self.probe("quorum read missed a node");
            } else if code == 200 && quorum {
                let missed = acts.missed.contains_key(&(asked.caller.to_string(), node.to_owned()));
                self.probe(if missed {
                    "quorum read found a node that an earlier one had missed"
                } else {
                    "quorum read found a node"
                });
            }
        } else if let Some((_, node)) = asked.path.split_once("/namespaces/kube-node-lease/leases/")
            && quorum
            && matches!(code, 200 | 404)
        {
            acts.lease_reads.entry((asked.caller.to_string(), node.to_owned())).or_default().push(now);
        } else if asked.path.ends_with("/namespaces/kube-node-lease/leases")
            && code == 200
            && asked.parameter("limit") != "1"
            && asked.parameter("watch").is_empty()
        {
            acts.learn_list_of_leases(now, &asked.caller);
        }
    }

    /// What any change says about nodes, kubelets and ends.
    pub(super) fn observe(&mut self, now: Duration, asked: &ApiRequest, change: &ObservedChange) {
        let caller = &*asked.caller;
        let acts = &mut self.acts;
        match (change.kind.as_str(), &change.after) {
            ("Node", None) => {
                acts.missing.insert(change.name.clone(), now);
                acts.unknown.remove(&change.name);
            }
            ("Node", Some(node)) => {
                acts.missing.remove(&change.name);
                if ready(node) == "Unknown" {
                    acts.unknown.entry(change.name.clone()).or_insert(now);
                } else {
                    acts.unknown.remove(&change.name);
                }
            }
            ("Lease", _) => {
                if let Some(node) = change.name.strip_prefix("kube-node-lease/") {
                    if acts.learn_heartbeat(now, node, change) {
                        self.check_renewing(now, node);
                    }
                } else if change.name == OUR_LEASE {
                    let holder = change.after.as_ref().map_or("", |lease| str_at(lease, "/spec/holderIdentity"));
                    if acts.leader().unwrap_or_default() != holder {
                        acts.leader = (!holder.is_empty()).then(|| (holder.to_owned(), now));
                    }
                }
            }
            ("Pod", None) => {
                let uid = change.before.as_ref().map(|pod| str_at(pod, "/metadata/uid").to_owned());
                acts.removed.extend(uid.map(|uid| (uid, is_under_test(caller))));
            }
            ("Pod", Some(after)) => {
                let (uid, node) = (str_at(after, "/metadata/uid"), str_at(after, "/spec/nodeName"));
                if is_terminal(after) && !change.before.as_deref().is_some_and(is_terminal) {
                    acts.ended_by.insert(uid.to_owned(), (caller.to_owned(), now));
                }
                if !node.is_empty() && !acts.bound.contains_key(uid) {
                    acts.bound.insert(uid.to_owned(), now);
                }
                // A watch does not say who deletes a pod: that is no sign of life that a process could see.
                if caller == node && asked.method != http::Method::DELETE {
                    acts.reports.insert(node.to_owned(), now);
                }
            }
            _ => {}
        }
    }

    /// A change of a pod by a process under test.
    fn check(&mut self, now: Duration, asked: &ApiRequest, change: &ObservedChange, quarantine: Duration) {
        let Some(before) = &change.before else {
            let what = format!("{} created {}", asked.caller, change.name);
            return self.violated(now, Invariant::Evidence, what);
        };
        let uid = str_at(before, "/metadata/uid").to_owned();
        let intention = self.requests.intention(asked);
        if intention.as_ref().is_some_and(|intention| intention.uid != uid) {
            let what = format!("{} {} hit pod {uid}, which was not meant", asked.method, asked.path);
            self.violated(now, Invariant::Identity, what);
        }
        if asked.method == http::Method::POST && str_at(before, "/spec/nodeName").is_empty() {
            // An eviction, of a pod that has no process anywhere.
            return self.probe("a pod without a node was evicted");
        }
        if asked.method == http::Method::DELETE
            && change.after.as_ref().is_some_and(|pod| pod.pointer("/metadata/finalizers/0").is_some())
        {
            self.probe("removal waits for finalizers");
        }
        if change.after.is_none() && !is_terminal(before) && is_shipped(&asked.caller) {
            // Its phase is set by compare-and-swap first: that is the re-read of the pod.
            let what = format!("{} removed {} without having called it ended", asked.caller, change.name);
            self.violated_of(now, Invariant::Evidence, Some(&change.name), what);
        }
        let sent = intention.map_or(now, |intention| intention.sent);
        for effect in effects(before, change.after.as_deref()) {
            let ended = change.after.as_deref().is_some_and(is_terminal);
            let verdict = if effect == Effect::CalledOrphan && !ended {
                self.acts.missed_lately(&asked.caller, str_at(before, "/spec/nodeName"), sent)
            } else {
                self.evidence(&asked.caller, before, sent, quarantine)
            };
            self.check_effect(now, asked, change, effect, verdict);
        }
    }

    fn check_effect(
        &mut self,
        now: Duration,
        asked: &ApiRequest,
        change: &ObservedChange,
        effect: Effect,
        verdict: Result<&'static str, String>,
    ) {
        let Some(before) = &change.before else { return };
        let (uid, node) = (str_at(before, "/metadata/uid").to_owned(), str_at(before, "/spec/nodeName").to_owned());
        let (invariant, what) = match effect {
            Effect::Removed if meant_gracefully(asked) => (Invariant::Graceful, "removed at once"),
            Effect::Removed => (Invariant::Evidence, "removed"),
            Effect::Ended => (Invariant::Evidence, "marked terminated"),
            Effect::Released => (Invariant::Evidence, "released from its finalizers"),
            Effect::Shortened => (Invariant::Grace, "given less grace"),
            Effect::CalledOrphan => (Invariant::Truth, "called an orphan"),
            Effect::Lengthened => (Invariant::Grace, "given more grace"),
            Effect::Revived => (Invariant::Truth, "called alive again"),
        };
        let told = format!("{} ({uid:.8}) was {what} by {}", change.name, asked.caller);
        let of = Some(change.name.as_str());
        let kind = match verdict {
            _ if matches!(effect, Effect::Lengthened | Effect::Revived) => {
                return self.violated_of(now, invariant, of, format!("{told}, for which there is no reason"));
            }
            Err(why) => return self.violated_of(now, invariant, of, format!("{told}: {why}")),
            Ok(kind) => kind,
        };
        if effect == Effect::CalledOrphan && !["NodeGone", "Missing"].contains(&kind) {
            return self.violated_of(now, invariant, of, format!("{told} on evidence {kind}"));
        }
        self.probe(&format!("{what} on {kind}"));
        if matches!(effect, Effect::Removed | Effect::Ended) {
            let told = format!("{} ({uid:.8}) {what} by {} on evidence {kind}", change.name, asked.caller);
            let (who, pod) = (audience::caller_name(&asked.caller), audience::pod(&change.name));
            let text = match (effect, kind) {
                (Effect::Removed, "ProvedBefore") => format!("{who} removes {pod}: a new copy may start"),
                (Effect::Removed, _) => format!("{who} removes {pod}: {}", audience::proof(kind)),
                _ => format!("{who} marks {pod} terminated: {}", audience::proof(kind)),
            };
            self.announce(now, Tone::Release, told, text);
            if kind == "NodeGone" {
                self.vouch(now, asked, before, &node, effect == Effect::Ended);
            }
        }
    }

    /// The evidence was honest, and yet a process runs: a person deleted the Node of a machine that was on, and no kubelet showed
    /// that (docs/proof.md). Where a kubelet is connected, an assumption about it must have been broken in this run.
    /// docs/assumptions.md: cut-off-nodes-are-kept, answers-when-free
    fn vouch(&mut self, now: Duration, asked: &ApiRequest, pod: &Value, node: &str, first: bool) {
        let uid = str_at(pod, "/metadata/uid");
        if self.processes.of_uid(uid).next().is_none() {
            return;
        }
        let shipped = is_shipped(&asked.caller);
        let excuse = if shipped { self.excuse_of_release(now, uid, node) } else { Some("") };
        if excuse.is_some() {
            self.processes.of_uid(uid).for_each(|process| process.vouched_for = true);
        }
        if !first {
            return;
        }
        let lease = if self.acts.leases.contains(node) { "unrenewed" } else { "collected" };
        self.probe(&format!("limit: a person deleted the Node of a machine that ran, its Lease was {lease}"));
        match excuse {
            None => {
                let what = format!("{} releases the pod {uid:.8} for want of its Node", asked.caller);
                self.check_connected(now, node, &what);
            }
            Some(excuse) if shipped => self.probe(excuse),
            Some(_) => {}
        }
    }

    /// Why the processes of a pod may run when it is released for want of its Node; `None`: its kubelet was there to be heard.
    pub(super) fn excuse_of_release(&self, now: Duration, uid: &str, node: &str) -> Option<&'static str> {
        if self.acts.unreachable_before(node) {
            return Some(
                "limit: a kubelet that had been silent came back after its Node was deleted, and was not heard",
            );
        }
        if !self.is_connected(now, node) {
            return Some("limit: a person deleted the Node of a machine that ran and was not connected");
        }
        let asked = self.fences.leaves_since(uid)?;
        let back = self.connected_since(node).filter(|since| *since > asked && now < *since + COMES_BACK_WITHIN);
        if back.is_some_and(|since| self.acts.reports.get(node).is_none_or(|report| *report < since)) {
            return Some(
                "limit: a kubelet that was cut off without its Node came back within the quarantine, and reported nothing",
            );
        }
        self.broken_between(node, asked, now)
    }

    /// Which evidence there is for this pod, as it was right before the act.
    fn evidence(
        &mut self,
        caller: &str,
        pod: &Value,
        sent: Duration,
        quarantine: Duration,
    ) -> Result<&'static str, String> {
        let node = str_at(pod, "/spec/nodeName");
        if node.is_empty() {
            let terminating = pod.pointer("/metadata/deletionTimestamp").is_some();
            return if terminating { Ok("NeverScheduled") } else { Err("it is not terminating".to_owned()) };
        }
        let uid = str_at(pod, "/metadata/uid");
        let by_us = self.acts.ended_by.get(uid).is_some_and(|(by, _)| is_under_test(by));
        // Called ended by us, on evidence that was judged then, and something kept us
        // from the removal until the node was back: with the phase its name was given
        // away, and what is left to ask is the truth.
        let returned = self.acts.missing_since(node).is_none();
        if is_terminal(pod) && (!by_us || returned) {
            if self.processes.of_uid(uid).next().is_some() && !self.fences.is_deceived(uid) {
                return Err("its phase says ended, and a process of it runs".to_owned());
            }
            return Ok(if by_us { "ProvedBefore" } else { "KubeletTerminated" });
        }
        if returned && is_shipped(caller) && self.fences.is_fenced(node) {
            return self.check_release(caller, pod, sent).map(|()| "PowerOff");
        }
        // It was judged while the Node was there.
        if is_shipped(caller)
            && self.fences.gone_lately(node, sent).is_some()
            && self.check_release(caller, pod, sent).is_ok()
        {
            return Ok("PowerOff");
        }
        if returned && is_shipped(caller) && self.fences.has_agents() {
            return self.ended_unseen(pod).map(|()| "PodsEnded");
        }
        if let Some(why) = self.acts.dishonest(caller, node, sent, quarantine) {
            return Err(why);
        }
        Ok("NodeGone")
    }
}

impl State {
    /// An agent may report what is true alone: the kubelet has seen the deletion, so that it starts nothing, and nothing runs.
    fn ended_unseen(&mut self, pod: &Value) -> Result<(), String> {
        let uid = str_at(pod, "/metadata/uid");
        let observed = number_at(pod, "/status/observedGeneration").unwrap_or(0);
        let saw = pod.pointer("/metadata/deletionTimestamp").is_some()
            && number_at(pod, "/metadata/generation").is_some_and(|generation| observed >= generation);
        if !saw {
            return Err("its Node is there, and its kubelet has not seen its deletion".to_owned());
        }
        if self.processes.of_uid(uid).next().is_some() {
            return Err("its Node is there, and a process of it runs".to_owned());
        }
        Ok(())
    }
}
