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

    fn of(&mut self, node: &Filed) -> &mut usize {
        match (node.excluded, node.heard) {
            (true, _) => &mut self.excluded,
            (false, Some(_)) => &mut self.ready,
            (false, None) => &mut self.not_ready,
        }
    }
}

/// In which order nodes of a zone are marked as lost: who has been lost longest, then by name.
/// Nodes that do not say since when come last.
type Turn = (i64, Arc<str>, Uid);

#[derive(Debug, Default)]
struct Zone {
    nodes: BTreeSet<(Arc<str>, Uid)>,
    count: ZoneCount,
    waiting: BTreeSet<Turn>,
    /// The last taint by which a node was marked as lost, though it may be gone since: a node that
    /// comes back gives its turn to nobody.
    last_marked: Option<Taint>,
}

/// What a node was filed under.
#[derive(Debug)]
struct Filed {
    name: Arc<str>,
    zone: Arc<str>,
    excluded: bool,
    /// When it was last heard, if it is Ready.
    heard: Option<Mono>,
    turn: Option<i64>,
    marked: bool,
    /// A sign of life would change what is thought of it.
    doubted: bool,
}

impl Filed {
    fn new(node: &Node, heard: Mono) -> Self {
        let marked = node.lost_taints().next().is_some();
        let lost = matches!(node.readiness, Readiness::NotReady | Readiness::Unknown);
        Self {
            name: Arc::clone(&node.name),
            zone: Arc::clone(&node.zone),
            excluded: node.excluded,
            heard: (node.readiness == Readiness::Ready).then_some(heard),
            turn: (lost && !marked).then(|| turn(node)),
            marked,
            doubted: node.is_doubted(),
        }
    }

    fn turn(&self, uid: &Uid) -> Option<Turn> {
        Some((self.turn?, Arc::clone(&self.name), uid.clone()))
    }
}

fn turn(node: &Node) -> i64 {
    node.ready_since.unwrap_or(i64::MAX)
}

impl Zone {
    fn add(&mut self, filed: &Filed, uid: &Uid) {
        *self.count.of(filed) += 1;
        self.nodes.insert((Arc::clone(&filed.name), uid.clone()));
        self.waiting.extend(filed.turn(uid));
    }

    fn remove(&mut self, filed: &Filed, uid: &Uid) {
        *self.count.of(filed) -= 1;
        self.nodes.remove(&(Arc::clone(&filed.name), uid.clone()));
        if let Some(turn) = filed.turn(uid) {
            self.waiting.remove(&turn);
        }
    }

    /// A node was marked as lost. That it was not ready and is unreachable now is no second mark.
    fn marked(&mut self, node: &Node) {
        let last = node.lost_taints().chain(&self.last_marked).max_by_key(|taint| taint.since()).cloned();
        self.last_marked = last;
    }
}

/// The index.
#[derive(Debug, Default)]
pub(super) struct Zones {
    zones: BTreeMap<Arc<str>, Zone>,
    filed: IndexMap<Uid, Filed>,
    /// The Ready ones.
    heard: BTreeSet<(Mono, Uid)>,
}

impl Zones {
    /// A node appeared or changed; `heard`: when its kubelet last gave a sign of life.
    pub(super) fn file(&mut self, node: &Node, heard: Mono) {
        let uid = &node.uid;
        let after = Filed::new(node, heard);
        let before = self.take_out(uid);
        let zone = self.zones.entry(Arc::clone(&after.zone)).or_default();
        zone.add(&after, uid);
        if after.marked && !before.as_ref().is_some_and(|before| before.marked && before.zone == after.zone) {
            zone.marked(node);
        }
        if let Some(heard) = after.heard {
            self.heard.insert((heard, uid.clone()));
        }
        self.filed.insert(uid.clone(), after);
        if let Some(before) = before {
            self.forget_if_empty(&before.zone);
        }
    }

    /// It went, or cannot be read any more.
    pub(super) fn remove(&mut self, uid: &Uid) {
        if let Some(filed) = self.take_out(uid) {
            self.forget_if_empty(&filed.zone);
        }
    }

    fn take_out(&mut self, uid: &Uid) -> Option<Filed> {
        let filed = self.filed.swap_remove(uid)?;
        if let Some(heard) = filed.heard {
            self.heard.remove(&(heard, uid.clone()));
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
    pub(super) fn beat(&mut self, uid: &Uid, now: Mono) -> bool {
        let Some(filed) = self.filed.get_mut(uid) else { return false };
        if let Some(heard) = &mut filed.heard {
            self.heard.remove(&(*heard, uid.clone()));
            *heard = now;
            self.heard.insert((now, uid.clone()));
        }
        filed.doubted
    }

    pub(super) fn ready_nodes_heard(&self) -> impl ExactSizeIterator<Item = Mono> + use<'_> {
        self.heard.iter().map(|(heard, _)| *heard)
    }

    pub(super) fn counts(&self) -> impl Iterator<Item = (&Arc<str>, ZoneCount)> {
        self.zones.iter().map(|(name, zone)| (name, zone.count))
    }

    pub(super) fn count(&self, zone: &str) -> ZoneCount {
        self.zones.get(zone).map_or_else(ZoneCount::default, |zone| zone.count)
    }

    /// Only those that are silent are looked at, and they are few or found lost soon.
    pub(super) fn silent_in(&self, zone: &str, longer_than: Duration, now: Mono) -> usize {
        let silent = self.heard.iter().take_while(|(heard, _)| now.since(*heard) > longer_than);
        let filed = silent.filter_map(|(_, uid)| self.filed.get(uid));
        filed.filter(|filed| !filed.excluded && *filed.zone == *zone).count()
    }

    pub(super) fn waits_behind(&self, node: &Node) -> Option<usize> {
        let own = (turn(node), Arc::clone(&node.name), node.uid.clone());
        let waiting = &self.zones.get(&node.zone)?.waiting;
        waiting.contains(&own).then(|| waiting.range(..own).count())
    }

    pub(super) fn last_marked(&self, zone: &str) -> Option<&Taint> {
        self.zones.get(zone)?.last_marked.as_ref()
    }
}

#[cfg(test)]
mod tests;
