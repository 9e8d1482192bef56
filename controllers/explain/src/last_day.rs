//! The last 24 hours, by evidence and incidents, which are kept for months. Events are not read, because they are kept
//! for an hour only. The counts are of nodes, one incarnation each.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use pod_safety_shared::api::{FenceEvidenceKind, Incarnation};
use pod_safety_shared::cache::Lookup;
use pod_safety_shared::model::{FenceEvidenceObject, Kind, NodeFenceObject, Readiness};
use serde::Serialize;

use super::answer::{elapsed, format_duration, pluralize, timestamp_from};
use super::context::ExplainContext;

/// The period.
const DAY: Duration = Duration::from_secs(86_400);

/// The results of incidents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LastDay {
    /// How many nodes were proved off.
    pub proved_off: usize,
    /// How many of those by an operator's confirmation.
    pub by_word: usize,
    /// How many are Ready again, with another boot.
    pub back: usize,
    /// How many came to wait for an operator, and still do.
    pub stuck: usize,
    /// The median time from the beginning of an incident to evidence, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub median_seconds: Option<u64>,
    /// The longest of those times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slowest_seconds: Option<u64>,
}

/// The result for one incarnation of a node.
#[derive(Default)]
struct NodeOutcome {
    proved: bool,
    by_confirmation: bool,
    back: bool,
    stuck: bool,
    seconds: Option<u64>,
}

impl LastDay {
    /// The results by what was read; `None`: incidents or evidence were not read.
    #[must_use]
    pub fn from_context(ctx: &ExplainContext<'_>) -> Option<Self> {
        if !ctx.has_read(Kind::NodeFences) || !ctx.has_read(Kind::FenceEvidences) {
            return None;
        }
        let mut nodes: BTreeMap<&Incarnation, NodeOutcome> = BTreeMap::new();
        for fence in ctx.view.node_fences().filter(|fence| !fence.spec.dry_run) {
            let since = |condition: &str| true_since(fence, condition).filter(|at| is_within_last_day(*at, ctx));
            let node = nodes.entry(&fence.spec.node).or_default();
            node.back |= since("Recovered").is_some();
            node.stuck |= since("Stalled").is_some();
            if let Some(proved) = since("Fenced") {
                node.proved = true;
                node.seconds = timestamp_from(fence.created).map(|began| super::elapsed(began, proved).as_secs());
            }
        }
        for proof in ctx.view.fence_evidence().filter(|proof| releases_pods(proof)) {
            if timestamp_from(proof.created).is_some_and(|at| is_within_last_day(at, ctx)) {
                let node = nodes.entry(&proof.spec.node).or_default();
                node.proved = true;
                node.back |= is_ready_again(&proof.spec.node, ctx);
            }
        }
        for (incarnation, node) in &mut nodes {
            let is_confirmation = |proof: &FenceEvidenceObject| {
                releases_pods(proof) && proof.spec.kind == FenceEvidenceKind::OperatorConfirmed
            };
            node.by_confirmation = ctx
                .view
                .fence_evidence_of(&incarnation.name)
                .any(|proof| proof.spec.node == **incarnation && is_confirmation(proof));
        }
        Some(Self::summarize(&nodes.into_values().collect::<Vec<_>>()))
    }

    fn summarize(nodes: &[NodeOutcome]) -> Self {
        let of = |is: fn(&NodeOutcome) -> bool| nodes.iter().filter(|node| is(node)).count();
        let mut took: Vec<u64> = nodes.iter().filter_map(|node| node.seconds).collect();
        took.sort_unstable();
        Self {
            proved_off: of(|node| node.proved),
            by_word: of(|node| node.proved && node.by_confirmation),
            back: of(|node| node.back),
            stuck: of(|node| node.stuck),
            median_seconds: took.get(took.len().saturating_sub(1) / 2).copied(),
            slowest_seconds: took.last().copied(),
        }
    }

    /// The results in one line.
    #[must_use]
    pub fn describe(&self) -> String {
        let proved = match (self.proved_off, self.by_word) {
            (0, _) => "no node was proved off".to_owned(),
            (count, 0) => format!("{} proved off", pluralize(count, "node")),
            (count, by_word) => {
                format!("{} proved off, {by_word} of them by a person", pluralize(count, "node"))
            }
        };
        let seconds = |seconds| format_duration(Duration::from_secs(seconds));
        let took = match (self.median_seconds, self.slowest_seconds) {
            (Some(median), Some(slowest)) if median != slowest => {
                format!(" (within {} in the median, {} at most)", seconds(median), seconds(slowest))
            }
            (Some(median), _) => format!(" (within {})", seconds(median)),
            _ => String::new(),
        };
        let back = if self.back == 0 { String::new() } else { format!("; {} back", pluralize(self.back, "node")) };
        let stuck = match self.stuck {
            0 => String::new(),
            1 => "; 1 node waits for a person".to_owned(),
            count => format!("; {count} nodes wait for a person"),
        };
        format!("Last 24 h: {proved}{took}{back}{stuck}.")
    }
}

fn is_within_last_day(at: Timestamp, ctx: &ExplainContext<'_>) -> bool {
    at <= ctx.wall && elapsed(at, ctx.wall) <= DAY
}

/// Since when a condition is true.
fn true_since(fence: &NodeFenceObject, condition: &str) -> Option<Timestamp> {
    let all = &fence.status.conditions;
    let is_true = all.iter().find(|one| one.r#type == condition && one.status == "True")?;
    is_true.last_transition()
}

/// Whether this evidence proves that the incarnation has ended, and was not withdrawn.
fn releases_pods(proof: &FenceEvidenceObject) -> bool {
    proof.spec.kind != FenceEvidenceKind::StorageFenced && proof.status.invalidated.is_none()
}

/// Whether the node is Ready in another incarnation.
fn is_ready_again(incarnation: &Incarnation, ctx: &ExplainContext<'_>) -> bool {
    match ctx.view.node(&incarnation.name) {
        Lookup::Known(node) => {
            node.readiness == Readiness::Ready && node.incarnation().is_some_and(|now| now != *incarnation)
        }
        Lookup::Unknown(_) | Lookup::Absent => false,
    }
}
