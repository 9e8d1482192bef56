//! The last 24 hours, by what the objects of incidents say. Events are kept for an hour only, so they are not asked.

use std::time::Duration;

use jiff::Timestamp;
use pod_safety_shared::api::KindOfEvidence;
use pod_safety_shared::model::{Fence, Kind};
use serde::Serialize;

use super::answer::{moment, since, span};
use super::scene::Scene;

/// So far it is looked back.
const DAY: Duration = Duration::from_secs(86_400);

/// What came of incidents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LastDay {
    /// How many nodes were proved off.
    pub proved_off: usize,
    /// How many of those by a person's word.
    pub by_word: usize,
    /// How many are back with another boot.
    pub back: usize,
    /// How many came to wait for a person, and still do.
    pub stuck: usize,
    /// From the beginning of an incident to proof, in seconds: of half of them it took no longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub median_seconds: Option<u64>,
    /// The longest of those times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slowest_seconds: Option<u64>,
}

impl LastDay {
    /// By what was read; none: incidents were not.
    #[must_use]
    pub fn of(scene: &Scene<'_>) -> Option<Self> {
        if !scene.has(Kind::NodeFences) {
            return None;
        }
        let mut day = Self::default();
        let mut took: Vec<u64> = Vec::new();
        for fence in scene.view.fences().filter(|fence| !fence.spec.dry_run) {
            let since = |condition: &str| {
                became(fence, condition).filter(|at| *at <= scene.wall && since(*at, scene.wall) <= DAY)
            };
            day.back += usize::from(since("Recovered").is_some());
            day.stuck += usize::from(since("Stalled").is_some());
            let Some(proved) = since("Fenced") else { continue };
            day.proved_off += 1;
            day.by_word += usize::from(is_word(fence, scene));
            took.extend(moment(fence.created).map(|began| super::since(began, proved).as_secs()));
        }
        took.sort_unstable();
        day.median_seconds = took.get(took.len().saturating_sub(1) / 2).copied();
        day.slowest_seconds = took.last().copied();
        Some(day)
    }

    /// In one line.
    #[must_use]
    pub fn words(&self) -> String {
        let by_word = match self.by_word {
            0 => String::new(),
            count => format!(" ({count} by confirmation)"),
        };
        let seconds = |seconds| span(Duration::from_secs(seconds));
        let took = match (self.median_seconds, self.slowest_seconds) {
            (Some(median), Some(slowest)) => {
                format!(", median {}, slowest {}", seconds(median), seconds(slowest))
            }
            _ => String::new(),
        };
        format!(
            "24 h   {} proved off{by_word}{took}   {} back   {} for a person",
            self.proved_off, self.back, self.stuck
        )
    }
}

/// Since when a condition is true.
fn became(fence: &Fence, condition: &str) -> Option<Timestamp> {
    let all = &fence.status.conditions;
    let is_true = all.iter().find(|one| one.r#type == condition && one.status == "True")?;
    is_true.since()
}

fn is_word(fence: &Fence, scene: &Scene<'_>) -> bool {
    let Some(evidence) = &fence.status.evidence else { return false };
    let mut proofs = scene.view.proofs_of(&fence.spec.node.name);
    proofs.any(|proof| *proof.name == **evidence && proof.spec.kind == KindOfEvidence::Asserted)
}
