//! How fast nodes of a zone may be given up: KCM's states and rates. Pure.
//!
//! Source of the rules: `pkg/controller/nodelifecycle`, `ComputeZoneState`, `setLimiterInZone`,
//! `ReducedQPSFunc` and `handleDisruption`, v1.37.2.

use std::time::Duration;

use pod_safety_shared::cache::{View, ZoneCount};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::Taint;

/// Below three nodes a share of them says nothing.
const MIN_LOST: usize = 3;

/// Taints are stamped in whole seconds, rounded down.
const STAMP_PRECISION: Duration = Duration::from_secs(1);

/// The pace at which an operator wants nodes to be given up.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates {
    /// Nodes of a zone in a second, in health and in total loss.
    pub normal: f32,
    /// Nodes of a large zone in a second while it is disrupted in part.
    pub disrupted: f32,
    /// A zone with more nodes than this is large.
    pub large: usize,
    /// A zone of which so large a share is not ready is disrupted.
    pub unhealthy: f32,
}

/// How well a zone is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ZoneState {
    /// Some may be lost, but not too many.
    Normal,
    /// Too many are.
    Partial,
    /// All are.
    Full,
}

pub(super) fn zone_state(zone: ZoneCount, rates: &Rates) -> ZoneState {
    let (lost, all) = (zone.not_ready, zone.counted());
    if zone.ready == 0 && lost > 0 {
        ZoneState::Full
    } else if lost >= MIN_LOST && share(lost, all) >= rates.unhealthy {
        ZoneState::Partial
    } else {
        ZoneState::Normal
    }
}

/// As KCM calculates it, to the last bit: on the threshold it matters.
#[expect(clippy::cast_precision_loss, reason = "no zone has sixteen million nodes")]
fn share(lost: usize, all: usize) -> f32 {
    lost as f32 / all as f32
}

/// The time between two nodes; `None`: no more are given up.
pub(super) fn taint_interval(zone: ZoneCount, rates: &Rates) -> Option<Duration> {
    let rate = match zone_state(zone, rates) {
        ZoneState::Normal | ZoneState::Full => rates.normal,
        ZoneState::Partial if zone.counted() > rates.large => rates.disrupted,
        ZoneState::Partial => return None,
    };
    (rate > 0.0).then(|| Duration::try_from_secs_f32(1.0 / rate).unwrap_or(Duration::MAX))
}

/// The time between two nodes of a zone as it is, and as it would be if those were lost, too, of
/// which nothing was heard for longer than `missed`: the slower of both. Nodes that go together are found lost
/// one after the other, as their last renewals were, and the first must not be given up for what
/// is a loss of the zone. `Err`: no more are given up, because the zone is like this.
pub(super) fn slower_interval(
    view: &View<'_>,
    zone: &str,
    now: Mono,
    missed: Duration,
    rates: &Rates,
) -> Result<Duration, ZoneCount> {
    let current = view.zone(zone);
    let unreachable = view.unreachable_in_zone(zone, missed, now);
    let projected = ZoneCount {
        ready: current.ready.saturating_sub(unreachable),
        not_ready: current.not_ready + unreachable,
        ..current
    };
    let interval = taint_interval(current, rates).ok_or(current)?;
    Ok(interval.max(taint_interval(projected, rates).ok_or(projected)?))
}

/// If every zone is lost: how many nodes are not ready, and how many count.
pub(super) fn count_if_all_lost(view: &View<'_>) -> Option<(usize, usize)> {
    let mut lost = 0;
    for (_, zone) in view.zones().filter(|(_, zone)| zone.counted() > 0) {
        if zone.ready > 0 {
            return None;
        }
        lost += zone.not_ready;
    }
    (lost > 0).then_some((lost, lost))
}

/// When the next node may be given up after this one was, by its taint. A stamp that says that it
/// is older than we have seen it may make it older than it is by what a stamp lacks.
pub(super) fn next_taint_at(last: &Taint, interval: Duration) -> Mono {
    last.tolerated_until(interval.saturating_add(last.age.min(STAMP_PRECISION)))
}
