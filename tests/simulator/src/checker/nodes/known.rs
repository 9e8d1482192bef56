//! The state of nodes and their kubelets by the API server's log.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use super::super::Invariant;
use super::{BOOKMARK_EACH, BREAK, GRACE, OUTAGE, SUSPECTED_AFTER, TURN, return_interval};
use crate::api::ObservedChange;
use crate::campaign::Keeper;
use crate::world::{is_shipped, str_at};

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const SUSPECT: &str = "pod-safety.dev/suspect";
/// The longest duration of a request: a write cannot rest on a read before that.
const READ_LASTS: Duration = Duration::from_secs(31);

/// Whether a taint with this key marks a node as lost.
pub(super) fn is_of_loss(key: &str) -> bool {
    matches!(key, UNREACHABLE | NOT_READY)
}

/// A taint that pod-safety adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Taint {
    pub(super) key: String,
    pub(super) effect: String,
    /// Its `timeAdded`.
    pub(super) added: String,
    /// Since when it is there.
    since: Duration,
}

impl std::fmt::Display for Taint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.key.rsplit('/').next().unwrap_or_default(), self.effect)
    }
}

impl Taint {
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.key == other.key && self.effect == other.effect
    }

    pub(super) fn is_unreachable(&self) -> bool {
        self.key == UNREACHABLE
    }

    pub(super) fn is_suspicion(&self) -> bool {
        self.key == SUSPECT
    }
}

/// A Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    uid: String,
    /// The status of its Ready condition, and since when.
    pub(super) ready: String,
    since: Duration,
    beat: String,
    zone: String,
    pub(super) taints: Vec<Taint>,
}

impl Node {
    pub(super) fn from_object(node: &Value, before: Option<&Self>, now: Duration) -> Self {
        let uid = str_at(node, "/metadata/uid").to_owned();
        let before = before.filter(|before| before.uid == uid);
        let conditions = node.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
        let condition = conditions.into_iter().find(|one| str_at(one, "/type") == "Ready");
        let says = |field: &str| condition.map(|condition| str_at(condition, field)).unwrap_or_default().to_owned();
        let ready = says("/status");
        let since = before.filter(|before| before.ready == ready).map_or(now, |before| before.since);
        let taints = node.pointer("/spec/taints").and_then(Value::as_array).into_iter().flatten();
        let ours = taints.filter(|taint| is_of_loss(str_at(taint, "/key")) || str_at(taint, "/key") == SUSPECT);
        let taints = ours.map(|taint| {
            let text = |field: &str| str_at(taint, field).to_owned();
            let mut new = Taint { key: text("/key"), effect: text("/effect"), added: text("/timeAdded"), since: now };
            let mut known = before.into_iter().flat_map(|before| &before.taints);
            new.since = known.find(|known| known.is_same(&new)).map_or(now, |known| known.since);
            new
        });
        let zone = node.pointer("/metadata/labels/topology.kubernetes.io~1zone").and_then(Value::as_str);
        let zone = zone.unwrap_or_default().to_owned();
        Self { ready, since, beat: says("/lastHeartbeatTime"), zone, taints: taints.collect(), uid }
    }

    pub(super) fn has_taint(&self, key: &str, effect: &str) -> bool {
        self.taints.iter().any(|taint| taint.key == key && taint.effect == effect)
    }

    /// Whether one of the two taints of a lost node replaced the other.
    pub(super) fn replaces(&self, gone: &Taint, before: &Self) -> bool {
        let other = if gone.key == UNREACHABLE { NOT_READY } else { UNREACHABLE };
        self.has_taint(other, &gone.effect) && !before.has_taint(other, &gone.effect)
    }

    fn is_ready(&self) -> bool {
        self.ready == "True"
    }
}

/// How a kubelet reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ReportKind {
    /// Its Lease changed.
    Renewal,
    /// It wrote the node's status.
    Report,
}

#[derive(Debug, Default)]
pub(in crate::checker) struct Nodes {
    pub(super) keeper: Keeper,
    pub(super) all: BTreeMap<String, Node>,
    /// When processes under test started.
    pub(super) began: BTreeMap<String, Duration>,
    /// When each report of a node came: the last one, and the one before that.
    last_reports: BTreeMap<(String, ReportKind), (Duration, Option<Duration>)>,
    /// The reads of a process: when, and the kubelet's last report at that time.
    reads: BTreeMap<(String, String, ReportKind), Vec<(Duration, Duration)>>,
    /// When any kubelet renewed its Lease, and when one did after a gap.
    renewed: Duration,
    resumed: Duration,
    /// The last outage of all API servers, and its end.
    outage: Option<(Duration, Option<Duration>)>,
    /// Nodes that were marked as lost right after the outage: the rule is broken if they report again until then.
    doubted: BTreeMap<String, (Duration, String)>,
    /// When every node was lost last.
    all_lost: Option<Duration>,
    /// Since when the eviction turns of a zone are neither suspended nor changed.
    zones: BTreeMap<String, Duration>,
    reported: BTreeSet<(String, String, &'static str)>,
}

/// A deadline: when, by which rule, for which node.
type Owed = (Duration, Invariant, String, &'static str);

impl Nodes {
    pub(super) fn last_report(&self, node: &str) -> Duration {
        let sign = |sign| self.last_reports.get(&(node.to_owned(), sign)).map_or(Duration::ZERO, |(last, _)| *last);
        sign(ReportKind::Renewal).max(sign(ReportKind::Report))
    }

    /// The kubelet's last report before this moment, which is a short while ago.
    pub(super) fn last_report_by(&self, node: &str, at: Duration) -> Duration {
        let sign = |sign| {
            let (last, before) = *self.last_reports.get(&(node.to_owned(), sign))?;
            Some(last).filter(|last| *last <= at).or(before.filter(|before| *before <= at))
        };
        sign(ReportKind::Renewal).max(sign(ReportKind::Report)).unwrap_or_default()
    }

    fn record_report(&mut self, node: &str, sign: ReportKind, now: Duration) {
        let reports = self.last_reports.entry((node.to_owned(), sign)).or_insert((now, None));
        if reports.0 != now {
            *reports = (now, Some(reports.0));
        }
    }

    /// A process read a node, or its Lease.
    pub(super) fn record_read(&mut self, now: Duration, caller: &str, path: &str) {
        let lease = path.split_once("/namespaces/kube-node-lease/leases/");
        let (name, sign) = match (path.strip_prefix("/api/v1/nodes/"), lease) {
            (Some(name), _) => (name, ReportKind::Report),
            (None, Some((_, name))) => (name, ReportKind::Renewal),
            (None, None) => return,
        };
        let last_report = self.last_reports.get(&(name.to_owned(), sign)).map_or(Duration::ZERO, |(last, _)| *last);
        let reads = self.reads.entry((caller.to_owned(), name.to_owned(), sign)).or_default();
        reads.retain(|(at, _)| now.saturating_sub(*at) <= READ_LASTS);
        reads.push((now, last_report));
    }

    /// When this process last read the node and its Lease, and for how long both had been without a report then.
    pub(super) fn read_by(&self, now: Duration, caller: &str, node: &str) -> Option<(Duration, Duration)> {
        let of = |sign| {
            let reads = self.reads.get(&(caller.to_owned(), node.to_owned(), sign))?.iter();
            let fresh = reads.filter(|(at, _)| now.saturating_sub(*at) <= READ_LASTS);
            fresh.map(|(at, heard)| (at.saturating_sub(*heard), *at)).max()
        };
        let (lease, node) = (of(ReportKind::Renewal)?, of(ReportKind::Report)?);
        Some((lease.1.max(node.1), lease.0.min(node.0)))
    }

    pub(super) fn servers_are_cut(&mut self, now: Duration, cut: bool) {
        self.outage = match (self.outage, cut) {
            (Some((from, None)), false) => Some((from, Some(now))),
            (Some((_, Some(_))) | None, true) => Some((now, None)),
            (same, _) => same,
        };
    }

    /// A node was marked as lost by a read at this moment: checks whether the API server was unreachable rather than
    /// the kubelet.
    pub(super) fn doubt(&mut self, at: Duration, node: &str, message: &str) {
        let Some((from, Some(until))) = self.outage else { return };
        let back = until + return_interval(GRACE);
        if until.saturating_sub(from) >= OUTAGE && at < back {
            let message = format!("{message} after an outage of all API servers until {until:?}, and comes back");
            self.doubted.insert(node.to_owned(), (back, message));
        }
    }

    /// Records a change of a Lease. Returns what it shows to be wrong with an earlier mark.
    pub(super) fn observe_lease(&mut self, now: Duration, node: &str, change: &ObservedChange) -> Option<String> {
        let after = change.after.as_deref()?;
        let renewed =
            |lease: &Value| (str_at(lease, "/metadata/uid").to_owned(), str_at(lease, "/spec/renewTime").to_owned());
        if change.before.as_deref().is_some_and(|before| renewed(before) == renewed(after)) {
            return None;
        }
        self.record_report(node, ReportKind::Renewal, now);
        if now.saturating_sub(self.renewed) > BREAK {
            self.resumed = now;
        }
        self.renewed = now;
        self.doubted.remove(node).filter(|(back, _)| now < *back).map(|(_, told)| told)
    }

    pub(super) fn observe_node(&mut self, now: Duration, caller: &str, change: &ObservedChange) {
        let name = &change.name;
        let before = self.all.remove(name);
        let were_lost = self.are_all_lost(before.as_ref());
        let after = change.after.as_deref().map(|node| Node::from_object(node, before.as_ref(), now));
        if let Some(after) = &after {
            let same = before.as_ref().filter(|before| before.uid == after.uid);
            let has_reported = same.is_none_or(|same| same.beat != after.beat || same.ready != after.ready);
            if has_reported && !is_shipped(caller) && after.ready != "Unknown" {
                self.record_report(name, ReportKind::Report, now);
            }
        }
        let seen = |node: &Option<Node>| node.as_ref().map(|node| (node.ready.clone(), node.taints.clone()));
        if seen(&before) != seen(&after) {
            for node in [&before, &after].into_iter().flatten() {
                self.zones.insert(node.zone.clone(), now);
            }
        }
        if let Some(after) = after {
            self.all.insert(name.clone(), after);
        }
        if were_lost || self.are_all_lost(None) {
            self.all_lost = Some(now);
        }
    }

    fn are_all_lost(&self, other: Option<&Node>) -> bool {
        let mut all = self.all.values().chain(other).peekable();
        all.peek().is_some() && all.all(|node| !node.is_ready())
    }

    /// When every node was lost last.
    pub(super) fn all_lost(&self) -> Option<Duration> {
        self.all_lost
    }

    /// Records when zones were disrupted last, or all nodes lost.
    pub(super) fn record_zones(&mut self, now: Duration) {
        let all_lost = self.are_all_lost(None);
        if all_lost {
            self.all_lost = Some(now);
        }
        let zones: BTreeSet<String> = self.all.values().map(|node| node.zone.clone()).collect();
        for zone in zones {
            if all_lost || self.is_disrupted(&zone, now) {
                self.zones.insert(zone, now);
            }
        }
    }

    /// Whether too many nodes of a zone are lost, or would be if the unreachable ones were lost too.
    fn is_disrupted(&self, zone: &str, now: Duration) -> bool {
        let here = || self.all.iter().filter(|(_, node)| node.zone == zone);
        let all = here().count();
        let lost = here().filter(|(_, node)| !node.is_ready()).count();
        // Two renewals as the process received them lie a little closer together in the log.
        let unreachable = |name: &str| now.saturating_sub(self.last_report(name)) > BREAK;
        let feared = here().filter(|(name, node)| node.is_ready() && unreachable(name)).count();
        (lost..=lost + feared).any(|lost| lost >= 3 && lost < all && lost * 100 >= all * 55)
    }

    /// The deadlines of the processes under test, whose leader watches since `listens`.
    pub(super) fn owed(&self, now: Duration, listens: Duration) -> Vec<Owed> {
        let is_ours = self.keeper == Keeper::Ours;
        let mut owed = Vec::new();
        for (name, node) in &self.all {
            let mut owes = |when: Duration, rule: Invariant, what: &'static str| {
                owed.push((when, rule, name.clone(), what));
            };
            let lost = |effect: &str| node.has_taint(UNREACHABLE, effect);
            let suspicion = node.taints.iter().find(|taint| taint.is_suspicion());
            match (node.ready.as_str(), is_ours) {
                ("True", true) => {
                    owes(
                        self.not_reporting_for(name, GRACE, now, listens),
                        Invariant::Lost,
                        "is silent and called Ready",
                    );
                    if node.taints.iter().any(|taint| is_of_loss(&taint.key)) {
                        owes(node.since, Invariant::Recovered, "is Ready again and tainted still");
                    }
                }
                ("Unknown", true) => {
                    if !lost("NoSchedule") {
                        owes(node.since, Invariant::Lost, "is Unknown and gets pods");
                    }
                    let nobody_is_heard = now.saturating_sub(self.renewed) > BREAK;
                    if !lost("NoExecute") && !nobody_is_heard {
                        let turn = self.zones.get(&node.zone).copied().unwrap_or_default().max(node.since);
                        // A node that was lost with all others gets its time after the first of them reports again.
                        let back = self.resumed.max(listens) + BREAK + return_interval(GRACE);
                        owes((turn + TURN).max(back), Invariant::Lost, "is Unknown and not given up in its turn");
                    }
                }
                ("True", false) if suspicion.is_none() => {
                    let when = self.not_reporting_for(name, SUSPECTED_AFTER, now, listens);
                    owes(when, Invariant::Lost, "is silent and not suspected");
                }
                _ => {}
            }
            if let Some(suspicion) = suspicion {
                let last_report = self.last_report(name);
                if last_report > suspicion.since {
                    owes(last_report, Invariant::Recovered, "is heard again and suspected still");
                } else if !node.is_ready() {
                    owes(node.since, Invariant::Recovered, "is called Unknown and suspected still");
                }
            }
        }
        owed
    }

    /// The latest moment at which a node must be found unreachable.
    fn not_reporting_for(&self, name: &str, grace: Duration, now: Duration, listens: Duration) -> Duration {
        let due = self.last_report(name).max(listens) + grace;
        if now.saturating_sub(self.renewed) > BREAK {
            // A watch that is opened again waits for its own bookmark. One that is listed again after that starts the
            // count once more.
            return due + BOOKMARK_EACH * 2 + return_interval(grace) * 2;
        }
        due.max(self.resumed + return_interval(grace))
    }

    /// Whether this was not reported yet.
    pub(super) fn report_once(&mut self, name: &str, what: &'static str) -> bool {
        let uid = self.all.get(name).map(|node| node.uid.clone()).unwrap_or_default();
        self.reported.insert((name.to_owned(), uid, what))
    }
}
