//! What the controllers under test change, judged when it is applied.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use super::{Checker, Invariant, State};
use crate::api::{Asked, Seen};
use crate::world::{is_shipped, is_under_test, number, word};

/// For how long after its reads evidence about a node may be used: a promise of
/// docs/proof.md.
const VALID_FOR: Duration = Duration::from_secs(2);

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
    leases: BTreeSet<String>,
    /// By process and node: the Node reads that missed, and all Lease reads.
    missed: BTreeMap<(String, String), Vec<Missed>>,
    lease_reads: BTreeMap<(String, String), Vec<Duration>>,
    /// Whoever wrote the terminal phase of a pod, by UID.
    ended_by: BTreeMap<String, String>,
}

impl Acts {
    /// Since when this Node is missing; `None`: it is there, or never was.
    pub(super) fn missing_since(&self, node: &str) -> Option<Duration> {
        self.missing.get(node).copied()
    }

    /// Why "the node is gone" is not honest evidence for this act; `None` if it is.
    fn dishonest(&self, caller: &str, node: &str, sent: Duration, quarantine: Duration) -> Option<String> {
        let key = (caller.to_owned(), node.to_owned());
        let missed = self.missed.get(&key).map(Vec::as_slice).unwrap_or_default();
        let Some(last) = missed.iter().rev().find(|read| read.at <= sent) else {
            return Some(format!("{caller} never read node {node} as missing"));
        };
        if sent.saturating_sub(last.at) > VALID_FOR {
            return Some(format!("the last read of node {node} was {:?} old", sent.saturating_sub(last.at)));
        }
        let old_enough = |read: &&Missed| read.at + quarantine <= last.at;
        let Some(first) = missed.iter().rev().find(old_enough) else {
            return Some(format!("no read of node {node} lies a quarantine before the last"));
        };
        if first.missing_since != last.missing_since {
            return Some(format!("node {node} was there between the two reads"));
        }
        let reads = self.lease_reads.get(&key).map(Vec::as_slice).unwrap_or_default();
        let nearest = |to: Duration| reads.iter().copied().min_by_key(|at| at.abs_diff(to)).unwrap_or(to);
        let (from, to) = (first.at.max(nearest(first.at)), last.at.min(nearest(last.at)));
        let renewed = self.renewals.get(node).into_iter().flatten().find(|at| **at > from && **at < to);
        renewed.map(|at| {
            format!(
                "the Lease of node {node} was renewed at {at:?}, between the reads at {from:?} and {to:?}"
            )
        })
    }
}

impl Checker {
    /// A request was executed; these are its doings.
    pub(crate) fn executed(&self, asked: &Asked, code: u16, changes: &[Seen]) {
        let now = self.now();
        let mut state = self.state.lock();
        let head = format!("{} {} {} {:?} {code}", asked.caller, asked.method, asked.path, asked.query);
        state.trace(&[&now.as_millis().to_le_bytes(), head.as_bytes(), &asked.body]);
        if is_under_test(&asked.caller) {
            if is_shipped(&asked.caller) {
                state.requested(now, asked);
            }
            state.read(now, asked, code);
        }
        for change in changes {
            if is_under_test(&asked.caller) && change.kind == "Pod" {
                state.judge(now, asked, change, self.promise.quarantine);
            }
            state.learn(now, &asked.caller, change);
        }
    }
}

impl State {
    /// A read by a process under test.
    fn read(&mut self, now: Duration, asked: &Asked, code: u16) {
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
            } else if code == 200 {
                self.probe("quorum read found a node that the cache missed");
            }
        } else if let Some((_, node)) = asked.path.split_once("/namespaces/kube-node-lease/leases/") {
            acts.lease_reads.entry((asked.caller.to_string(), node.to_owned())).or_default().push(now);
        }
    }

    /// What any change says about nodes, kubelets and ends.
    fn learn(&mut self, now: Duration, caller: &str, change: &Seen) {
        let acts = &mut self.acts;
        match change.kind.as_str() {
            "Node" if change.after.is_none() => drop(acts.missing.insert(change.name.clone(), now)),
            "Node" => drop(acts.missing.remove(&change.name)),
            "Lease" => {
                let Some(node) = change.name.strip_prefix("kube-node-lease/") else { return };
                if change.after.is_some() {
                    acts.leases.insert(node.to_owned());
                } else {
                    acts.leases.remove(node);
                }
                let renewed = |lease: &Option<Value>| {
                    lease.as_ref().map(|lease| word(lease, "/spec/renewTime").to_owned())
                };
                if change.after.is_some() && renewed(&change.before) != renewed(&change.after) {
                    acts.renewals.entry(node.to_owned()).or_default().push(now);
                }
            }
            "Pod" => {
                let Some(after) = &change.after else { return };
                if is_terminal(after) && !change.before.as_ref().is_some_and(is_terminal) {
                    acts.ended_by.insert(word(after, "/metadata/uid").to_owned(), caller.to_owned());
                }
            }
            _ => {}
        }
    }

    /// A change of a pod by a process under test.
    fn judge(&mut self, now: Duration, asked: &Asked, change: &Seen, quarantine: Duration) {
        let Some(before) = &change.before else {
            return self.violated(
                now,
                Invariant::Evidence,
                format!("{} created {}", asked.caller, change.name),
            );
        };
        let uid = word(before, "/metadata/uid").to_owned();
        let intention = self.requests.intention(asked);
        if intention.as_ref().is_some_and(|intention| intention.uid != uid) {
            let what = format!("{} {} hit pod {uid}, which was not meant", asked.method, asked.path);
            self.violated(now, Invariant::Identity, what);
        }
        let ends = change.after.as_ref().is_some_and(|after| is_terminal(after) && !is_terminal(before));
        if change.after.is_some() && !ends {
            if number(before, "/metadata/deletionGracePeriodSeconds") == Some(0)
                || asked.method == http::Method::DELETE
            {
                self.probe("removal waits for finalizers");
            }
            return;
        }
        if change.after.is_none() && !is_terminal(before) && is_shipped(&asked.caller) {
            // Its phase is set by compare-and-swap first: that is the re-read of the pod.
            let what = format!("{} removed {} without having called it ended", asked.caller, change.name);
            self.violated(now, Invariant::Evidence, what);
        }
        let sent = intention.map_or(now, |intention| intention.sent);
        let verdict = self.evidence(&asked.caller, before, sent, quarantine);
        let what = if ends { "called ended" } else { "removed" };
        match verdict {
            Ok(kind) => {
                self.note(
                    now,
                    format!("{} ({uid:.8}) {what} by {} on evidence {kind}", change.name, asked.caller),
                );
                self.probe(&format!("{what} on {kind}"));
                if kind == "NodeGone" {
                    let node = word(before, "/spec/nodeName").to_owned();
                    self.vouch(&uid, &node, ends);
                }
            }
            Err(why) => {
                let what = format!("{} ({uid:.8}) was {what} by {}: {why}", change.name, asked.caller);
                self.violated(now, Invariant::Evidence, what);
            }
        }
    }

    /// The evidence was honest, and yet a process runs: a person deleted the Node of
    /// a machine that was on, and no kubelet showed that (docs/proof.md).
    fn vouch(&mut self, uid: &str, node: &str, first: bool) {
        let mut running = 0;
        for process in self.processes.of_uid(uid) {
            process.vouched_for = true;
            running += 1;
        }
        if running > 0 && first {
            let lease = if self.acts.leases.contains(node) { "unrenewed" } else { "collected" };
            self.probe(&format!(
                "limit: a person deleted the Node of a machine that ran, its Lease was {lease}"
            ));
        }
    }

    /// Which evidence there is for this pod, as it was right before the act.
    fn evidence(
        &mut self,
        caller: &str,
        pod: &Value,
        sent: Duration,
        quarantine: Duration,
    ) -> Result<&'static str, String> {
        let node = word(pod, "/spec/nodeName");
        if node.is_empty() {
            let terminating = pod.pointer("/metadata/deletionTimestamp").is_some();
            return if terminating { Ok("NeverScheduled") } else { Err("it is not terminating".to_owned()) };
        }
        let uid = word(pod, "/metadata/uid");
        let by_us = self.acts.ended_by.get(uid).is_some_and(|by| is_under_test(by));
        if is_terminal(pod) && !by_us {
            if self.processes.of_uid(uid).next().is_some() {
                return Err("its phase says ended, and a process of it runs".to_owned());
            }
            return Ok("KubeletTerminated");
        }
        if let Some(why) = self.acts.dishonest(caller, node, sent, quarantine) {
            return Err(why);
        }
        Ok("NodeGone")
    }
}

fn is_terminal(pod: &Value) -> bool {
    matches!(word(pod, "/status/phase"), "Failed" | "Succeeded")
}
