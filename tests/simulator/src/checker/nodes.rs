//! S15, S16, L6 and L11: which nodes are called lost, when, and for how long. Judged in worlds
//! in which pod-safety looks after nodes.
//!
//! | broken | when |
//! |---|---|
//! | S15 | a node is called Unknown, and no quorum read of it and of its Lease shows a silence of the whole grace |
//! | S15 | it is called so right after an outage of all API servers, and its kubelet comes back with them |
//! | S15 | it is tainted as unreachable, and does not say Unknown; it is suspected, and was heard |
//! | S16 | a taint that says that it is lost goes, or gets another time, while it is not Ready |
//! | L11 | it is silent, and not called Unknown within [`REACTS`]; it is Unknown, and not tainted; it is not given up in its turn |
//! | L6 | it is heard again, and such a taint is there [`REACTS`] later |
//!
//! **Heard** is a kubelet whose Lease changed, or which reported: by the API server's log, and
//! by the time of the world. No clock of a machine or of a process counts. What a process could
//! know of that is what its last reads found.
//!
//! **In time** begins anew with a process that begins, for it has heard nobody yet, and when
//! troubles of our processes and API servers have been over for [`RECOVERS`]. While nobody at
//! all is heard it waits for the API server's next bookmark (docs/node-lifecycle.md, "Whose
//! clock, and whose fault"). Nobody need be given up while its zone is disrupted, or all are.

mod known;

#[cfg(test)]
mod tests;

use std::time::Duration;

use http::Method;

pub(super) use self::known::Nodes;
use self::known::{Node, is_of_loss};
use super::audience::{self, Tone};
use super::budgets::{REACTS, RECOVERS};
use super::volumes::KNOWN;
use super::{Checker, Invariant, State};
use crate::api::{ApiRequest, ObservedChange};
use crate::campaign::Keeper;
use crate::world::{is_called_ready, is_shipped};

/// `--node-monitor-grace-period`.
const GRACE: Duration = Duration::from_secs(50);
/// `--node-suspect-after`.
const SUSPECTED_AFTER: Duration = Duration::from_secs(25);
/// `--node-eviction-rate`: one node of a zone in so long; a stamp may be a second off, and whoever
/// waits looks again every five.
const TURN: Duration = Duration::from_secs(10 + 1 + 5);
/// After that silence of all kubelets it may be the API server that is silent.
const BREAK: Duration = Duration::from_secs(15);
/// How often an API server says something on what does not change.
const BOOKMARK_EACH: Duration = Duration::from_secs(60);
/// What a new leader needs until it knows all.
const TAKES_OVER: Duration = Duration::from_secs(10);
/// An outage of that length cuts every watch of Leases into pieces of which one is a break.
const OUTAGE: Duration = Duration::from_secs(35);

/// In this time kubelets come back that were kept from the API server.
fn return_interval(grace: Duration) -> Duration {
    grace * 2 / 5
}

impl State {
    /// A request was executed: what it says of nodes is judged, then it is learnt from.
    pub(super) fn check_requests_of_nodes(
        &mut self,
        now: Duration,
        asked: &ApiRequest,
        code: u16,
        changes: &[ObservedChange],
    ) {
        if self.nodes.keeper == Keeper::Theirs {
            return;
        }
        let ours = is_shipped(&asked.caller);
        let quorum = asked.method == Method::GET && asked.parameter("resourceVersion").is_empty();
        if ours && quorum && matches!(code, 200 | 404) {
            self.nodes.record_read(now, &asked.caller, &asked.path);
        }
        for change in changes {
            if let Some(node) = change.name.strip_prefix("kube-node-lease/") {
                if let Some(told) = self.nodes.observe_lease(now, node, change) {
                    self.violated(now, Invariant::Heard, told);
                }
            } else if change.kind == "Node" {
                if ours {
                    self.check_node(now, asked, change);
                }
                self.nodes.observe_node(now, &asked.caller, change);
            } else if let (true, Some(before), Some(after)) = (ours, &change.before, &change.after)
                && change.kind == "Pod"
                && is_called_ready(before)
                && !is_called_ready(after)
            {
                self.probe("a pod of a lost node was called not ready");
                let told = format!("{} marks {} not ready", asked.caller, change.name);
                let text = format!("pod-safety marks {} not Ready", audience::pod(&change.name));
                self.announce(now, Tone::Loss, told, text);
            }
        }
    }

    /// A process under test changed a node.
    fn check_node(&mut self, now: Duration, asked: &ApiRequest, change: &ObservedChange) {
        let caller: &str = &asked.caller;
        let (name, Some(after)) = (&change.name, &change.after) else { return };
        let Some(before) = self.nodes.all.get(name).cloned() else { return };
        let after = Node::from_object(after, Some(&before), now);
        if before.ready != after.ready && after.ready == "Unknown" {
            self.check_lost_mark(now, caller, name);
        }
        for taint in after.taints.iter().filter(|taint| !before.has_taint(&taint.key, &taint.effect)) {
            let text = format!("pod-safety taints {name} with {taint}");
            self.announce(now, Tone::Loss, format!("{caller} taints {name} with {taint}"), text);
            if taint.is_unreachable() && after.ready != "Unknown" {
                let what = format!("{caller} tainted {name} with {taint}, and it says {:?}", after.ready);
                self.violated(now, Invariant::Heard, what);
            }
            if taint.is_suspicion() {
                self.check_suspect_mark(now, asked.sent.unwrap_or(now), name);
            }
        }
        self.check_recovered(now, caller, name, &before, &after);
    }

    fn check_lost_mark(&mut self, now: Duration, caller: &str, name: &str) {
        let told = format!("{name} is marked Unknown by {caller}");
        let Some((at, silent)) = self.nodes.read_by(now, caller, name) else {
            let what = format!("{told}, who has not read it and its Lease");
            return self.violated(now, Invariant::Heard, what);
        };
        if silent < GRACE {
            let what = format!("{told}: it had been silent for {silent:?} when that was read at {at:?}");
            return self.violated(now, Invariant::Heard, what);
        }
        let silence = format!("no report for {:.1} s", silent.as_secs_f64());
        let text = format!("pod-safety marks {name} Unknown: {silence}");
        self.announce(now, Tone::Loss, format!("{told}, {silence}"), text);
        self.probe("a silent node was called Unknown");
        self.nodes.doubt(at, name, &told);
        if self.acts.led_since().is_some_and(|since| since + silent > now) {
            self.probe("the leader changed while a node was silent");
        }
    }

    /// A suspicion rests on what the cache has heard: with troubles of ours that may be little.
    fn check_suspect_mark(&mut self, now: Duration, sent: Duration, name: &str) {
        self.probe("a silent node was suspected");
        // What was heard while the write was under way, or just before, could not stop it.
        let silent = now.saturating_sub(self.nodes.last_report_by(name, sent.saturating_sub(KNOWN)));
        let calm = self.budgets.untroubled_since(now, self.healed);
        let calm = calm.is_zero() || now > calm + RECOVERS;
        if calm && silent < SUSPECTED_AFTER {
            self.violated(
                now,
                Invariant::Heard,
                format!("{name} was suspected {silent:?} after it was heard"),
            );
        }
    }

    /// What says that a node is lost stays while it is.
    fn check_recovered(&mut self, now: Duration, caller: &str, name: &str, before: &Node, after: &Node) {
        for taint in before.taints.iter().filter(|taint| is_of_loss(&taint.key)) {
            let told = format!("{caller} removes {taint} from {name}");
            let text = format!("pod-safety removes the taint {taint} from {name}");
            match after.taints.iter().find(|other| other.is_same(taint)) {
                Some(other) if other.added != taint.added => {
                    let what = format!("{caller} gave {taint} of {name} another time: {}", other.added);
                    self.violated(now, Invariant::Kept, what);
                }
                Some(_) => {}
                None if after.ready == "True" => self.announce(now, Tone::Other, told, text),
                None if after.replaces(taint, before) => {}
                None if taint.effect == "NoExecute" && self.all_lost_lately(now) => {
                    self.probe("all nodes were lost, and none was given up");
                    self.announce(now, Tone::Other, format!("{told}: every node is lost"), text);
                }
                None => {
                    let what = format!("{told}, and it says {:?}", after.ready);
                    self.violated(now, Invariant::Kept, what);
                }
            }
        }
        for taint in before.taints.iter().filter(|taint| taint.is_suspicion()) {
            if !after.has_taint(&taint.key, &taint.effect) {
                let text = format!("pod-safety removes the taint {taint} from {name}");
                self.announce(now, Tone::Other, format!("{caller} removes {taint} from {name}"), text);
            }
        }
    }

    /// Whether every node was lost, as far as a process could know.
    fn all_lost_lately(&self, now: Duration) -> bool {
        let calm = self.budgets.untroubled_since(now, self.healed);
        let behind = if !calm.is_zero() && now <= calm + RECOVERS { RECOVERS * 2 } else { REACTS };
        self.nodes.all_lost().is_some_and(|last| now.saturating_sub(last) <= behind)
    }
}

impl Checker {
    /// Who looks after nodes: the rules hold where pod-safety does.
    pub(crate) fn nodes_are_kept_by(&self, keeper: Keeper) {
        self.state.lock().nodes.keeper = keeper;
    }

    /// A process under test begins, and has heard nobody.
    pub(crate) fn process_begins(&self, caller: &str) {
        let now = self.now();
        self.state.lock().nodes.began.insert(caller.to_owned(), now);
    }

    /// Whether no API server reaches etcd now.
    pub(crate) fn all_servers_are_cut(&self, cut: bool) {
        let now = self.now();
        self.state.lock().nodes.servers_are_cut(now, cut);
    }

    /// Every node that is lost is called so by now, and none that is heard.
    pub(crate) fn check_nodes(&self) {
        let now = self.now();
        let mut state = self.state.lock();
        if state.nodes.keeper == Keeper::Theirs {
            return;
        }
        state.nodes.look_at_zones(now);
        let calm = state.budgets.untroubled_since(now, state.healed);
        let calm = if calm.is_zero() { calm } else { calm + RECOVERS };
        let (Some(leader), Some(led_since)) = (state.acts.leader(), state.acts.led_since()) else { return };
        let listens = state.nodes.began.get(leader).copied().unwrap_or_default().max(calm);
        let from = calm.max(led_since + TAKES_OVER);
        let late = |owed: &Duration| now > (*owed).max(from) + REACTS;
        let owed = state.nodes.owed(now, listens);
        let owed: Vec<_> = owed.into_iter().filter(|(owed, ..)| late(owed)).collect();
        for (owed, rule, name, what) in owed {
            if state.nodes.report_once(&name, what) {
                state.violated(now, rule, format!("{name} {what}: that was owed at {owed:?}"));
            }
        }
    }
}
