//! What is recorded of one loss of one incarnation of a node.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use pod_safety_otlp::TraceId;
use pod_safety_shared::api::Incarnation;
use pod_safety_shared::cache::{Lookup, View};
use pod_safety_shared::model::{Fence, Node, PodKey, Proof, Readiness};

use super::release::{Release, Successor};

/// One loss of one incarnation of a node.
#[derive(Clone, Debug)]
pub struct Incident<'a> {
    /// The incarnation.
    pub life: &'a Incarnation,
    /// Its NodeFence; none: a person confirmed that it is off, and no FencePolicy applies to it.
    pub fence: Option<&'a Fence>,
    /// The evidence about it, in the order of its creation.
    pub proofs: Vec<&'a Proof>,
    /// The Node, while it is of this incarnation and not Ready, and when its kubelet last reported.
    pub lost: Option<(&'a Node, Option<Timestamp>)>,
    /// Since when the node is Ready in another incarnation.
    pub back: Option<Timestamp>,
    /// The pods that were force deleted because of it.
    pub releases: Vec<&'a Release>,
    /// Their successors that are Ready.
    pub successors: Vec<&'a Successor>,
}

impl<'a> Incident<'a> {
    /// All of which something is recorded. Rehearsals are none.
    #[must_use]
    pub fn all(view: &View<'a>, releases: &'a [Release], successors: &'a [Successor]) -> Vec<Self> {
        let mut all: BTreeMap<&Incarnation, Self> = BTreeMap::new();
        for fence in view.fences().filter(|fence| !fence.spec.dry_run) {
            let life = &fence.spec.node;
            all.entry(life).or_insert_with(|| Self::new(life, view)).fence = Some(fence);
        }
        for proof in view.proofs() {
            let life = &proof.spec.node;
            all.entry(life).or_insert_with(|| Self::new(life, view)).proofs.push(proof);
        }
        let mut all: Vec<Self> = all.into_values().collect();
        for incident in &mut all {
            incident.proofs.sort_by_key(|proof| (proof.created, proof.rv));
            let ours = |release: &&Release| incident.has(release);
            incident.releases = releases.iter().filter(ours).collect();
            let released: BTreeSet<&PodKey> = incident.releases.iter().map(|release| &release.pod).collect();
            let follows = |successor: &&Successor| released.contains(&successor.of);
            incident.successors = successors.iter().filter(follows).collect();
        }
        all
    }

    fn new(life: &'a Incarnation, view: &View<'a>) -> Self {
        let node = match view.node(&life.name) {
            Lookup::Known(node) => Some(node),
            Lookup::Unknown(_) | Lookup::Absent => None,
        };
        let now = node.and_then(|node| Some((node, node.incarnation()?)));
        let is_ready = |node: &Node| node.readiness == Readiness::Ready;
        let lost = now.as_ref().filter(|(node, now)| now == life && !is_ready(node)).map(|(node, _)| *node);
        let other = now.as_ref().filter(|(node, now)| now != life && is_ready(node)).map(|(node, _)| *node);
        Self {
            life,
            fence: None,
            proofs: Vec::new(),
            lost: lost.map(|node| (node, view.last_beat(node))),
            back: other.and_then(|node| seconds(node.ready_since?)),
            releases: Vec::new(),
            successors: Vec::new(),
        }
    }

    /// The trace: the same for each process, and for a NodeFence that is created again.
    #[must_use]
    pub fn trace(&self) -> TraceId {
        TraceId::of(&["incident", &self.life.uid, &self.life.boot_id])
    }

    /// When the first of its objects was created.
    #[must_use]
    pub fn opened(&self) -> Option<Timestamp> {
        let created = self.proofs.iter().map(|proof| proof.created);
        self.fence.map(|fence| fence.created).into_iter().chain(created).min().and_then(seconds)
    }

    /// When it was over.
    #[must_use]
    pub fn over(&self) -> Option<Timestamp> {
        match self.fence {
            Some(fence) if fence.status.phase.is_over() => fence.status.last_change(),
            Some(_) => None,
            None => self.back,
        }
    }

    /// Whether a pod was released in its time: a node of that name may have been lost before.
    fn has(&self, release: &Release) -> bool {
        let after = self.opened().is_some_and(|opened| opened <= release.at);
        *release.node == *self.life.name && after && self.over().is_none_or(|over| release.at <= over)
    }
}

/// A time stamp of the API.
pub(super) fn seconds(stamp: i64) -> Option<Timestamp> {
    Timestamp::from_second(stamp).ok().filter(|at| at.as_second() > 0)
}
