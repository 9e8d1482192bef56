//! Nodes by zone, how many of each are well, which were marked as lost last, and which wait for it;
//! and when each Ready node was last heard. Kept up with every change, for these are questions that
//! a thousand nodes ask at once when a zone is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;

use crate::clock::Mono;
use crate::model::{Node, Readiness, Taint, Uid};

/// How many nodes of a zone are well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneCount {
    /// Those that are Ready.
    pub ready: usize,
    /// Those that are not, or do not say.
    pub not_ready: usize,
    /// Those that ask not to be counted.
    pub excluded: usize,
}

impl ZoneCount {
    /// How many count.
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

/// In which order nodes of a zone are marked as lost: who has been lost longest, then by name.
/// Nodes that do not say since when come last.
type MarkOrder = (i64, Arc<str>, Uid);

#[derive(Debug, Default)]
struct Zone {
    nodes: BTreeSet<(Arc<str>, Uid)>,
    count: ZoneCount,
    waiting: BTreeSet<MarkOrder>,
    /// The last taint by which a node was marked as lost, though it may be gone since: a node that
    /// comes back gives its turn to nobody.
    last_marked: Option<Taint>,
}

/// What a node was filed under.
#[derive(Debug)]
struct NodeEntry {
    name: Arc<str>,
    zone: Arc<str>,
    excluded: bool,
    /// When it was last heard, if it is Ready.
    last_report: Option<Mono>,
    not_ready_since: Option<i64>,
    marked: bool,
    /// A sign of life would change what is thought of it.
    suspect: bool,
}

impl NodeEntry {
    fn new(node: &Node, heard: Mono) -> Self {
        let marked = node.lost_taints().next().is_some();
        let lost = matches!(node.readiness, Readiness::NotReady | Readiness::Unknown);
        Self {
            name: Arc::clone(&node.name),
            zone: Arc::clone(&node.zone),
            excluded: node.excluded,
            last_report: (node.readiness == Readiness::Ready).then_some(heard),
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
    fn add(&mut self, filed: &NodeEntry, uid: &Uid) {
        *self.count.counter_for(filed) += 1;
        self.nodes.insert((Arc::clone(&filed.name), uid.clone()));
        self.waiting.extend(filed.mark_order(uid));
    }

    fn remove(&mut self, filed: &NodeEntry, uid: &Uid) {
        *self.count.counter_for(filed) -= 1;
        self.nodes.remove(&(Arc::clone(&filed.name), uid.clone()));
        if let Some(turn) = filed.mark_order(uid) {
            self.waiting.remove(&turn);
        }
    }

    /// A node was marked as lost. That it was not ready and is unreachable now is no second mark.
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
    /// The Ready ones.
    last_reports: BTreeSet<(Mono, Uid)>,
}

impl Zones {
    /// A node appeared or changed; `heard`: when its kubelet last gave a sign of life.
    pub(super) fn update(&mut self, node: &Node, last_report: Mono) {
        let uid = &node.uid;
        let after = NodeEntry::new(node, last_report);
        let before = self.detach(uid);
        let zone = self.zones.entry(Arc::clone(&after.zone)).or_default();
        zone.add(&after, uid);
        if after.marked && !before.as_ref().is_some_and(|before| before.marked && before.zone == after.zone) {
            zone.record_mark(node);
        }
        if let Some(heard) = after.last_report {
            self.last_reports.insert((heard, uid.clone()));
        }
        self.entries.insert(uid.clone(), after);
        if let Some(before) = before {
            self.forget_if_empty(&before.zone);
        }
    }

    /// It went, or cannot be read any more.
    pub(super) fn remove(&mut self, uid: &Uid) {
        if let Some(filed) = self.detach(uid) {
            self.forget_if_empty(&filed.zone);
        }
    }

    fn detach(&mut self, uid: &Uid) -> Option<NodeEntry> {
        let filed = self.entries.swap_remove(uid)?;
        if let Some(heard) = filed.last_report {
            self.last_reports.remove(&(heard, uid.clone()));
        }
        if let Some(zone) = self.zones.get_mut(&filed.zone) {
            zone.remove(&filed, uid);
        }
        Some(filed)
    }

    fn forget_if_empty(&mut self, zone: &str) {
        if self.zones.get(zone).is_some_and(|zone| zone.nodes.is_empty()) {
            self.zones.remove(zone);
        }
    }

    /// Its kubelet gave a sign of life. Gives back whether that changes what is thought of it.
    pub(super) fn record_report(&mut self, uid: &Uid, now: Mono) -> bool {
        let Some(filed) = self.entries.get_mut(uid) else { return false };
        if let Some(heard) = &mut filed.last_report {
            self.last_reports.remove(&(*heard, uid.clone()));
            *heard = now;
            self.last_reports.insert((now, uid.clone()));
        }
        filed.suspect
    }

    pub(super) fn last_reports_of_ready_nodes(&self) -> impl ExactSizeIterator<Item = Mono> + use<'_> {
        self.last_reports.iter().map(|(heard, _)| *heard)
    }

    pub(super) fn counts(&self) -> impl Iterator<Item = (&Arc<str>, ZoneCount)> {
        self.zones.iter().map(|(name, zone)| (name, zone.count))
    }

    pub(super) fn count(&self, zone: &str) -> ZoneCount {
        self.zones.get(zone).map_or_else(ZoneCount::default, |zone| zone.count)
    }

    /// Only those that are silent are looked at, and they are few or found lost soon.
    pub(super) fn unreachable_in(&self, zone: &str, longer_than: Duration, now: Mono) -> usize {
        let unreachable = self.last_reports.iter().take_while(|(heard, _)| now.since(*heard) > longer_than);
        let filed = unreachable.filter_map(|(_, uid)| self.entries.get(uid));
        filed.filter(|filed| !filed.excluded && *filed.zone == *zone).count()
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
