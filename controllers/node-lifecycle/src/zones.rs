//! How fast nodes of a zone may be tainted `NoExecute`: KCM's states and rates. Pure.
//!
//! Source of the rules: `pkg/controller/nodelifecycle`, `ComputeZoneState`, `setLimiterInZone`,
//! `ReducedQPSFunc` and `handleDisruption`, v1.37.2.

use std::time::Duration;

use pod_safety_shared::cache::{View, ZoneCount};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::Taint;

/// With fewer lost nodes a share of them is meaningless.
const MIN_LOST: usize = 3;

/// `timeAdded` of taints has whole seconds, rounded down.
const STAMP_PRECISION: Duration = Duration::from_secs(1);

/// The operator's rates.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates {
    /// Nodes of a zone per second, if the zone is healthy or lost as a whole.
    pub normal: f32,
    /// Nodes of a large zone per second while it is disrupted in part.
    pub disrupted: f32,
    /// A zone with more nodes than this is large.
    pub large: usize,
    /// A zone of which at least this share is not ready is disrupted.
    pub unhealthy: f32,
}

/// The state of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ZoneState {
    /// Some nodes may be lost, but not too many.
    Normal,
    /// Too many nodes are lost.
    Partial,
    /// All nodes are lost.
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

/// Calculated as KCM does, to the last bit: that matters at the threshold.
#[expect(clippy::cast_precision_loss, reason = "no zone has sixteen million nodes")]
fn share(lost: usize, all: usize) -> f32 {
    lost as f32 / all as f32
}

/// The time between two nodes; `None`: no further node is tainted.
pub(super) fn taint_interval(zone: ZoneCount, rates: &Rates) -> Option<Duration> {
    let rate = match zone_state(zone, rates) {
        ZoneState::Normal | ZoneState::Full => rates.normal,
        ZoneState::Partial if zone.counted() > rates.large => rates.disrupted,
        ZoneState::Partial => return None,
    };
    (rate > 0.0).then(|| Duration::try_from_secs_f32(1.0 / rate).unwrap_or(Duration::MAX))
}

/// The time between two nodes of a zone in its present state, and in the state if those nodes were lost, too, that
/// have not reported for longer than `missed`: the longer of both. Nodes that are lost together are found lost one
/// after the other, in the order of their last renewals, and the first must not be tainted if the whole zone is lost.
/// `Err`: no further node is tainted, because of this state of the zone.
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

/// If every zone is lost: how many nodes are not ready, and of how many that count.
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

/// When the next node may be tainted after this taint. If the taint's `timeAdded` is older than this process has seen
/// it, rounding may make it up to a second older than it is.
pub(super) fn next_taint_at(last: &Taint, interval: Duration) -> Mono {
    last.tolerated_until(interval.saturating_add(last.age.min(STAMP_PRECISION)))
}
