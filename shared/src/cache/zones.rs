//! Nodes by zone, how many of each are well, which were marked as lost last, and which wait for it;
//! and when each Ready node was last heard. Kept up with every change, for these are questions that
//! a thousand nodes ask at once when a zone is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::SignedDuration;

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
    marked: BTreeSet<(SignedDuration, Uid)>,
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
    marked: Option<SignedDuration>,
}

impl Filed {
    fn new(node: &Node, heard: Mono) -> Self {
        let marked = node.lost_taints().map(Taint::since).max();
        let lost = matches!(node.readiness, Readiness::NotReady | Readiness::Unknown);
        Self {
            name: Arc::clone(&node.name),
            zone: Arc::clone(&node.zone),
            excluded: node.excluded,
            heard: (node.readiness == Readiness::Ready).then_some(heard),
            turn: (lost && marked.is_none()).then(|| turn(node)),
            marked,
        }
    }
}

fn turn(node: &Node) -> i64 {
    node.ready_since.unwrap_or(i64::MAX)
}

/// The index.
#[derive(Debug, Default)]
pub(super) struct Zones {
    zones: BTreeMap<Arc<str>, Zone>,
    filed: BTreeMap<Uid, Filed>,
    /// The Ready ones.
    heard: BTreeSet<(Mono, Uid)>,
}

impl Zones {
    /// A node appeared or changed; `heard`: when its kubelet last gave a sign of life.
    pub(super) fn file(&mut self, node: &Node, heard: Mono) {
        let uid = &node.uid;
        self.remove(uid);
        let filed = Filed::new(node, heard);
        let zone = self.zones.entry(Arc::clone(&filed.zone)).or_default();
        zone.nodes.insert((Arc::clone(&filed.name), uid.clone()));
        *zone.count.of(&filed) += 1;
        if let Some(turn) = filed.turn {
            zone.waiting.insert((turn, Arc::clone(&filed.name), uid.clone()));
        }
        if let Some(since) = filed.marked {
            zone.marked.insert((since, uid.clone()));
        }
        if let Some(heard) = filed.heard {
            self.heard.insert((heard, uid.clone()));
        }
        self.filed.insert(uid.clone(), filed);
    }

    /// It went, or cannot be read any more.
    pub(super) fn remove(&mut self, uid: &Uid) {
        let Some(filed) = self.filed.remove(uid) else { return };
        if let Some(heard) = filed.heard {
            self.heard.remove(&(heard, uid.clone()));
        }
        let Some(zone) = self.zones.get_mut(&filed.zone) else { return };
        *zone.count.of(&filed) -= 1;
        zone.nodes.remove(&(Arc::clone(&filed.name), uid.clone()));
        if let Some(turn) = filed.turn {
            zone.waiting.remove(&(turn, Arc::clone(&filed.name), uid.clone()));
        }
        if let Some(since) = filed.marked {
            zone.marked.remove(&(since, uid.clone()));
        }
        if zone.nodes.is_empty() {
            self.zones.remove(&filed.zone);
        }
    }

    /// Its kubelet gave a sign of life.
    pub(super) fn beat(&mut self, uid: &Uid, now: Mono) {
        if let Some(heard) = self.filed.get_mut(uid).and_then(|filed| filed.heard.as_mut()) {
            self.heard.remove(&(*heard, uid.clone()));
            *heard = now;
            self.heard.insert((now, uid.clone()));
        }
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

    pub(super) fn nodes_in<'a>(&'a self, zone: &str) -> impl Iterator<Item = &'a Uid> + use<'a> {
        self.zones.get(zone).into_iter().flat_map(|zone| &zone.nodes).map(|(_, uid)| uid)
    }

    pub(super) fn waits_behind(&self, node: &Node) -> Option<usize> {
        let own = (turn(node), Arc::clone(&node.name), node.uid.clone());
        let waiting = &self.zones.get(&node.zone)?.waiting;
        waiting.contains(&own).then(|| waiting.range(..own).count())
    }

    pub(super) fn last_marked(&self, zone: &str) -> Option<&Uid> {
        self.zones.get(zone)?.marked.last().map(|(_, uid)| uid)
    }
}
