//! The records of one loss of one incarnation of a node.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use pod_safety_otlp::TraceId;
use pod_safety_shared::api::Incarnation;
use pod_safety_shared::cache::{Lookup, View};
use pod_safety_shared::model::{FenceEvidenceObject, Node, NodeFenceObject, PodKey, Readiness};

use super::release::{Release, Successor};

/// One loss of one incarnation of a node.
#[derive(Clone, Debug)]
pub struct Incident<'a> {
    /// The incarnation.
    pub incarnation: &'a Incarnation,
    /// Its NodeFence; `None`: a person confirmed that it is off, and no FencePolicy applies to it.
    pub fence: Option<&'a NodeFenceObject>,
    /// The evidence about it, in the order of its creation.
    pub evidence: Vec<&'a FenceEvidenceObject>,
    /// The Node, while it is of this incarnation and not Ready, and when its kubelet last reported.
    pub lost: Option<(&'a Node, Option<Timestamp>)>,
    /// Since when the node is Ready in another incarnation.
    pub back_since: Option<Timestamp>,
    /// The pods that were force deleted because of it.
    pub releases: Vec<&'a Release>,
    /// Their successors that are Ready.
    pub successors: Vec<&'a Successor>,
}

impl<'a> Incident<'a> {
    /// All incidents with a record. Dry runs are excluded.
    #[must_use]
    pub fn collect(view: &View<'a>, releases: &'a [Release], successors: &'a [Successor]) -> Vec<Self> {
        let mut all: BTreeMap<&Incarnation, Self> = BTreeMap::new();
        for fence in view.node_fences().filter(|fence| !fence.spec.dry_run) {
            let incarnation = &fence.spec.node;
            all.entry(incarnation).or_insert_with(|| Self::new(incarnation, view)).fence = Some(fence);
        }
        for proof in view.fence_evidence() {
            let incarnation = &proof.spec.node;
            all.entry(incarnation).or_insert_with(|| Self::new(incarnation, view)).evidence.push(proof);
        }
        let mut all: Vec<Self> = all.into_values().collect();
        for incident in &mut all {
            incident.evidence.sort_by_key(|proof| (proof.created, proof.rv));
            let is_of_incident = |release: &&Release| incident.includes(release);
            incident.releases = releases.iter().filter(is_of_incident).collect();
            let released: BTreeSet<&PodKey> = incident.releases.iter().map(|release| &release.pod).collect();
            let follows = |successor: &&Successor| released.contains(&successor.predecessor);
            incident.successors = successors.iter().filter(follows).collect();
        }
        all
    }

    fn new(incarnation: &'a Incarnation, view: &View<'a>) -> Self {
        let node = match view.node(&incarnation.name) {
            Lookup::Known(node) => Some(node),
            Lookup::Unknown(_) | Lookup::Absent => None,
        };
        let now = node.and_then(|node| Some((node, node.incarnation()?)));
        let is_ready = |node: &Node| node.readiness == Readiness::Ready;
        let lost = now.as_ref().filter(|(node, now)| now == incarnation && !is_ready(node)).map(|(node, _)| *node);
        let other = now.as_ref().filter(|(node, now)| now != incarnation && is_ready(node)).map(|(node, _)| *node);
        Self {
            incarnation,
            fence: None,
            evidence: Vec::new(),
            lost: lost.map(|node| (node, view.last_report_timestamp(node))),
            back_since: other.and_then(|node| to_timestamp(node.ready_since?)),
            releases: Vec::new(),
            successors: Vec::new(),
        }
    }

    /// The trace id: the same in each process, and for a NodeFence that is created again.
    #[must_use]
    pub fn trace(&self) -> TraceId {
        TraceId::from_parts(&["incident", &self.incarnation.uid, &self.incarnation.boot_id])
    }

    /// When the first of its objects was created.
    #[must_use]
    pub fn opened_at(&self) -> Option<Timestamp> {
        let created = self.evidence.iter().map(|proof| proof.created);
        self.fence.map(|fence| fence.created).into_iter().chain(created).min().and_then(to_timestamp)
    }

    /// When it ended.
    #[must_use]
    pub fn ended_at(&self) -> Option<Timestamp> {
        match self.fence {
            Some(fence) if fence.status.phase.is_over() => fence.status.last_change(),
            Some(_) => None,
            None => self.back_since,
        }
    }

    /// Whether a pod was released during this incident: a node of that name may have been lost before.
    fn includes(&self, release: &Release) -> bool {
        let after = self.opened_at().is_some_and(|opened| opened <= release.at);
        *release.node == *self.incarnation.name && after && self.ended_at().is_none_or(|over| release.at <= over)
    }
}

/// Converts a timestamp of the API.
pub(super) fn to_timestamp(stamp: i64) -> Option<Timestamp> {
    Timestamp::from_second(stamp).ok().filter(|at| at.as_second() > 0)
}
