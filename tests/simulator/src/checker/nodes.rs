//! S15, S16, L6 and L11: which nodes are marked as lost, when, and for how long. Checked in worlds in which pod-safety
//! manages nodes.
//!
//! | broken | when |
//! |---|---|
//! | S15 | a node's Ready is set to Unknown, and no quorum read of it and of its Lease shows that it did not report for the whole grace period |
//! | S15 | it is set to Unknown right after an outage of all API servers, and its kubelet reports again with them |
//! | S15 | it is tainted as unreachable, and its Ready is not Unknown; it is marked as suspected although it has reported |
//! | S16 | a taint of a lost node is removed, or gets another time, while the node is not Ready |
//! | L11 | it does not report, and is not set to Unknown within [`REACTS`]; it is Unknown, and not tainted; it is not tainted NoExecute in its turn |
//! | L6 | it reports again, and such a taint is still there [`REACTS`] later |
//!
//! **A kubelet reports** when its Lease changes or it writes its status: by the API server's log, and by the time of
//! the world. No clock of a machine or of a process counts. A process could know what its last reads showed.
//!
//! **The deadlines** begin again with a process that starts, because it has not yet received any report, and
//! [`RECOVERS`] after the last disturbance of the processes under test and API servers. While no kubelet at all
//! reports, a process waits for the API server's next bookmark (docs/node-lifecycle.md, "Whose clock, and whose
//! fault"). No node must be tainted NoExecute while its zone is disrupted, or while all nodes are lost.

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
/// `--node-eviction-rate`: at most one node of a zone in this time; a stamp may be a second off, and a node that waits
/// is checked again every five seconds.
const TURN: Duration = Duration::from_secs(10 + 1 + 5);
/// If no kubelet reports for this long, the API server itself may be unreachable.
const BREAK: Duration = Duration::from_secs(15);
/// How often an API server sends a bookmark on a watch without changes.
const BOOKMARK_EACH: Duration = Duration::from_secs(60);
/// The time that a new leader needs to fill its caches.
const TAKES_OVER: Duration = Duration::from_secs(10);
/// An outage of this length breaks every watch of Leases so often that one of the gaps lasts [`BREAK`].
const OUTAGE: Duration = Duration::from_secs(35);

/// Kubelets that were cut off from the API server come back within this time.
fn return_interval(grace: Duration) -> Duration {
    grace * 2 / 5
}

impl State {
    /// Checks an executed request against the rules of nodes, then records what it changed.
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
        let is_ours = is_shipped(&asked.caller);
        let quorum = asked.method == Method::GET && asked.parameter("resourceVersion").is_empty();
        if is_ours && quorum && matches!(code, 200 | 404) {
            self.nodes.record_read(now, &asked.caller, &asked.path);
        }
        for change in changes {
            if let Some(node) = change.name.strip_prefix("kube-node-lease/") {
                if let Some(told) = self.nodes.observe_lease(now, node, change) {
                    self.violated(now, Invariant::Heard, told);
                }
            } else if change.kind == "Node" {
                if is_ours {
                    self.check_node(now, asked, change);
                }
                self.nodes.observe_node(now, &asked.caller, change);
            } else if let (true, Some(before), Some(after)) = (is_ours, &change.before, &change.after)
                && change.kind == "Pod"
                && is_called_ready(before)
                && !is_called_ready(after)
            {
                self.probe("a pod of a lost node was called not ready");
                let message = format!("{} marks {} not ready", asked.caller, change.name);
                let text = format!("pod-safety marks {} not Ready", audience::pod(&change.name));
                self.announce(now, Tone::Loss, message, text);
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
        let message = format!("{name} is marked Unknown by {caller}");
        let Some((at, silent)) = self.nodes.read_by(now, caller, name) else {
            let what = format!("{message}, who has not read it and its Lease");
            return self.violated(now, Invariant::Heard, what);
        };
        if silent < GRACE {
            let what = format!("{message}: it had been silent for {silent:?} when that was read at {at:?}");
            return self.violated(now, Invariant::Heard, what);
        }
        let silence = format!("no report for {:.1} s", silent.as_secs_f64());
        let text = format!("pod-safety marks {name} Unknown: {silence}");
        self.announce(now, Tone::Loss, format!("{message}, {silence}"), text);
        self.probe("a silent node was called Unknown");
        self.nodes.doubt(at, name, &message);
        if self.acts.led_since().is_some_and(|since| since + silent > now) {
            self.probe("the leader changed while a node was silent");
        }
    }

    /// A suspicion rests on the reports in the cache: after a disturbance of the process these may be few.
    fn check_suspect_mark(&mut self, now: Duration, sent: Duration, name: &str) {
        self.probe("a silent node was suspected");
        // A report that came while the write was under way, or just before, could not stop it.
        let unreachable_for = now.saturating_sub(self.nodes.last_report_by(name, sent.saturating_sub(KNOWN)));
        let calm = self.budgets.untroubled_since(now, self.healed);
        let calm = calm.is_zero() || now > calm + RECOVERS;
        if calm && unreachable_for < SUSPECTED_AFTER {
            self.violated(
                now,
                Invariant::Heard,
                format!("{name} was suspected {unreachable_for:?} after it was heard"),
            );
        }
    }

    /// A taint of a lost node stays while the node is lost.
    fn check_recovered(&mut self, now: Duration, caller: &str, name: &str, before: &Node, after: &Node) {
        for taint in before.taints.iter().filter(|taint| is_of_loss(&taint.key)) {
            let message = format!("{caller} removes {taint} from {name}");
            let text = format!("pod-safety removes the taint {taint} from {name}");
            match after.taints.iter().find(|other| other.is_same(taint)) {
                Some(other) if other.added != taint.added => {
                    let what = format!("{caller} gave {taint} of {name} another time: {}", other.added);
                    self.violated(now, Invariant::Kept, what);
                }
                Some(_) => {}
                None if after.ready == "True" => self.announce(now, Tone::Other, message, text),
                None if after.replaces(taint, before) => {}
                None if taint.effect == "NoExecute" && self.all_lost_lately(now) => {
                    self.probe("all nodes were lost, and none was given up");
                    self.announce(now, Tone::Other, format!("{message}: every node is lost"), text);
                }
                None => {
                    let what = format!("{message}, and it says {:?}", after.ready);
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
    /// Which controller manages nodes: the rules apply where pod-safety does.
    pub(crate) fn nodes_are_kept_by(&self, keeper: Keeper) {
        self.state.lock().nodes.keeper = keeper;
    }

    /// A process under test starts, and has not received any report.
    pub(crate) fn process_begins(&self, caller: &str) {
        let now = self.now();
        self.state.lock().nodes.began.insert(caller.to_owned(), now);
    }

    /// All API servers are cut off from etcd, or no longer.
    pub(crate) fn all_servers_are_cut(&self, cut: bool) {
        let now = self.now();
        self.state.lock().nodes.servers_are_cut(now, cut);
    }

    /// Checks that every lost node is marked as lost by now, and no reachable one.
    pub(crate) fn check_nodes(&self) {
        let (now, mut state) = self.now_and_state();
        if state.nodes.keeper == Keeper::Theirs {
            return;
        }
        state.nodes.record_zones(now);
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
