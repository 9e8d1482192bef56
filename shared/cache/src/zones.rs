//! Nodes by zone: how many are Ready, which was tainted as lost last, and which wait for that; and when each Ready
//! node last reported. Updated with every change, because a thousand nodes need these numbers at once when a zone is
//! lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;

use crate::clock::Mono;
use crate::model::{Node, Readiness, Taint, Uid};

/// The numbers of nodes of a zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneCount {
    /// Nodes that are Ready.
    pub ready: usize,
    /// Nodes that are not Ready, or whose readiness is unknown.
    pub not_ready: usize,
    /// Nodes with the label that excludes them.
    pub excluded: usize,
}

impl ZoneCount {
    /// How many nodes count.
    #[must_use]
    pub const fn counted(self) -> usize {
        self.ready + self.not_ready
    }

    fn counter_for(&mut self, node: &NodeEntry) -> &mut usize {
        match (node.excluded, node.last_report) {
            (true, _) => &mut self.excluded,
            (false, Some(_)) => &mut self.ready,
            (false, None) => &mut self.not_ready,
        }
    }
}

/// The order in which nodes of a zone are tainted as lost: longest lost first, then by name. Nodes without a time of
/// their last transition come last.
type MarkOrder = (i64, Arc<str>, Uid);

#[derive(Debug, Default)]
struct Zone {
    nodes: BTreeSet<(Arc<str>, Uid)>,
    count: ZoneCount,
    waiting: BTreeSet<MarkOrder>,
    /// The last taint that marked a node as lost, even if it was removed since: a node that recovers passes its turn
    /// to no other node.
    last_marked: Option<Taint>,
}

/// Under what a node is indexed.
#[derive(Debug)]
struct NodeEntry {
    name: Arc<str>,
    zone: Arc<str>,
    excluded: bool,
    /// When it last reported, if it is Ready.
    last_report: Option<Mono>,
    not_ready_since: Option<i64>,
    marked: bool,
    /// Whether a report would change a decision about it.
    suspect: bool,
}

impl NodeEntry {
    fn new(node: &Node, last_report: Mono) -> Self {
        let marked = node.lost_taints().next().is_some();
        let lost = matches!(node.readiness, Readiness::NotReady | Readiness::Unknown);
        Self {
            name: Arc::clone(&node.name),
            zone: Arc::clone(&node.zone),
            excluded: node.excluded,
            last_report: (node.readiness == Readiness::Ready).then_some(last_report),
            not_ready_since: (lost && !marked).then(|| not_ready_since(node)),
            marked,
            suspect: node.is_suspect(),
        }
    }

    fn mark_order(&self, uid: &Uid) -> Option<MarkOrder> {
        Some((self.not_ready_since?, Arc::clone(&self.name), uid.clone()))
    }
}

fn not_ready_since(node: &Node) -> i64 {
    node.ready_since.unwrap_or(i64::MAX)
}

impl Zone {
    fn add(&mut self, entry: &NodeEntry, uid: &Uid) {
        *self.count.counter_for(entry) += 1;
        self.nodes.insert((Arc::clone(&entry.name), uid.clone()));
        self.waiting.extend(entry.mark_order(uid));
    }

    fn remove(&mut self, entry: &NodeEntry, uid: &Uid) {
        *self.count.counter_for(entry) -= 1;
        self.nodes.remove(&(Arc::clone(&entry.name), uid.clone()));
        if let Some(order) = entry.mark_order(uid) {
            self.waiting.remove(&order);
        }
    }

    /// Records that a node was tainted as lost. The change of its taint from not-ready to unreachable is no second
    /// mark.
    fn record_mark(&mut self, node: &Node) {
        let last = node.lost_taints().chain(&self.last_marked).max_by_key(|taint| taint.since()).cloned();
        self.last_marked = last;
    }
}

/// The index.
#[derive(Debug, Default)]
pub(super) struct Zones {
    zones: BTreeMap<Arc<str>, Zone>,
    entries: IndexMap<Uid, NodeEntry>,
    /// The Ready nodes, by their last report.
    last_reports: BTreeSet<(Mono, Uid)>,
}

impl Zones {
    /// Handles an added or changed node; `last_report`: when its kubelet last reported.
    pub(super) fn update(&mut self, node: &Node, last_report: Mono) {
        let uid = &node.uid;
        let after = NodeEntry::new(node, last_report);
        let before = self.detach(uid);
        let zone = self.zones.entry(Arc::clone(&after.zone)).or_default();
        zone.add(&after, uid);
        if after.marked && !before.as_ref().is_some_and(|before| before.marked && before.zone == after.zone) {
            zone.record_mark(node);
        }
        if let Some(last_report) = after.last_report {
            self.last_reports.insert((last_report, uid.clone()));
        }
        self.entries.insert(uid.clone(), after);
        if let Some(before) = before {
            self.forget_if_empty(&before.zone);
        }
    }

    /// Handles a removed or unreadable node.
    pub(super) fn remove(&mut self, uid: &Uid) {
        if let Some(entry) = self.detach(uid) {
            self.forget_if_empty(&entry.zone);
        }
    }

    fn detach(&mut self, uid: &Uid) -> Option<NodeEntry> {
        let entry = self.entries.swap_remove(uid)?;
        if let Some(last_report) = entry.last_report {
            self.last_reports.remove(&(last_report, uid.clone()));
        }
        if let Some(zone) = self.zones.get_mut(&entry.zone) {
            zone.remove(&entry, uid);
        }
        Some(entry)
    }

    fn forget_if_empty(&mut self, zone: &str) {
        if self.zones.get(zone).is_some_and(|zone| zone.nodes.is_empty()) {
            self.zones.remove(zone);
        }
    }

    /// Records a report of its kubelet. Returns whether that can change a decision about the node.
    pub(super) fn record_report(&mut self, uid: &Uid, now: Mono) -> bool {
        let Some(entry) = self.entries.get_mut(uid) else { return false };
        if let Some(last_report) = &mut entry.last_report {
            self.last_reports.remove(&(*last_report, uid.clone()));
            *last_report = now;
            self.last_reports.insert((now, uid.clone()));
        }
        entry.suspect
    }

    pub(super) fn last_reports_of_ready_nodes(&self) -> impl ExactSizeIterator<Item = Mono> + use<'_> {
        self.last_reports.iter().map(|(last_report, _)| *last_report)
    }

    pub(super) fn counts(&self) -> impl Iterator<Item = (&Arc<str>, ZoneCount)> {
        self.zones.iter().map(|(name, zone)| (name, zone.count))
    }

    pub(super) fn count(&self, zone: &str) -> ZoneCount {
        self.zones.get(zone).map_or_else(ZoneCount::default, |zone| zone.count)
    }

    /// Only nodes that do not report are visited; they are few, or will be tainted as lost soon.
    pub(super) fn unreachable_in(&self, zone: &str, longer_than: Duration, now: Mono) -> usize {
        let unreachable = self.last_reports.iter().take_while(|(last_report, _)| now.since(*last_report) > longer_than);
        let entries = unreachable.filter_map(|(_, uid)| self.entries.get(uid));
        entries.filter(|entry| !entry.excluded && *entry.zone == *zone).count()
    }

    pub(super) fn nodes_ahead_of(&self, node: &Node) -> Option<usize> {
        let own = (not_ready_since(node), Arc::clone(&node.name), node.uid.clone());
        let waiting = &self.zones.get(&node.zone)?.waiting;
        waiting.contains(&own).then(|| waiting.range(..own).count())
    }

    pub(super) fn last_marked(&self, zone: &str) -> Option<&Taint> {
        self.zones.get(zone)?.last_marked.as_ref()
    }
}

#[cfg(test)]
mod tests;
