//! Signs that a node runs.

use std::time::Duration;

use pod_safety_shared::api::{Attempt, Power, Verified};
use pod_safety_shared::model::{FenceDeviceObject, Kind, Node, Readiness};

use super::answer::{Finding, elapsed, finding, format_duration};
use super::context::ExplainContext;
use super::evidence;

/// A kubelet renews its Lease every ten seconds: after this time it has missed two renewals.
const LATE_AFTER: Duration = Duration::from_secs(20);

/// How long ago the kubelet of a node that does not count as lost yet reported, if it has missed renewals of its Lease.
pub(super) fn missed_reports(node: &Node, ctx: &ExplainContext<'_>) -> Option<Duration> {
    let counts_as_lost = node.readiness == Readiness::Unknown;
    if counts_as_lost || !ctx.has_read(Kind::NodeLeases) || ctx.view.lease(&node.name).flatten().is_none() {
        return None;
    }
    let age = elapsed(ctx.view.last_report_timestamp(node)?, ctx.wall);
    (age > LATE_AFTER).then_some(age)
}

/// The sources of heartbeats, and when each last reported.
pub(super) fn heartbeat_signals(node: &Node, ctx: &ExplainContext<'_>) -> Vec<Finding> {
    let unreachable = node.readiness == Readiness::Unknown;
    let seen = |at: Option<jiff::Timestamp>| {
        at.map_or("never".to_owned(), |at| format!("{} ago", format_duration(elapsed(at, ctx.wall))))
    };
    let late = missed_reports(node, ctx).is_some();
    let lease = if ctx.has_read(Kind::NodeLeases) {
        let renewed = ctx.view.lease(&node.name);
        let detail = renewed.map_or("there is none".to_owned(), |at| format!("renewed {}", seen(at)));
        Finding { late, ..finding("Lease", "Lease", (!late).then_some(!unreachable && renewed.is_some()), detail) }
    } else {
        finding("Lease", "Lease", None, "not read")
    };
    let detail = format!("reported {}", seen(node.heartbeat));
    let status = Finding { late, ..finding("NodeStatus", "node status", (!late).then_some(!unreachable), detail) };
    let mut all = vec![lease, status];
    let proved = ctx.view.evidence_for(node, ctx.now).map(|proof| proof.created);
    for device in ctx.view.devices() {
        let Some(target) = device.status.targets.iter().find(|target| target.node == *node.name) else {
            continue;
        };
        let checked: Option<jiff::Timestamp> = target.looked.parse().ok();
        // The power state that an attempt to switch the machine read is newer than the last status check.
        let verification =
            last_verification(device, node, ctx).filter(|(at, _)| checked.is_none_or(|checked| checked < *at));
        let (checked_at, power, message) = match &verification {
            Some((at, seen)) => (Some(*at), seen.power, &seen.message),
            None => (checked, target.power, &target.message),
        };
        let on = match power {
            // That the machine was on before does not contradict the evidence.
            Power::On
                if proved
                    .is_some_and(|proved| checked_at.is_none_or(|checked_at| checked_at.as_second() <= proved)) =>
            {
                None
            }
            Power::On => Some(true),
            Power::Off | Power::Gone => Some(false),
            Power::Unknown => None,
        };
        let ago = seen(checked_at);
        let message = if message.is_empty() { String::new() } else { format!(": {message}") };
        let name = format!("device {}/{}", device.namespace, device.name);
        all.push(finding("Power", &name, on, format!("power {power} {ago}{message}")));
    }
    all
}

/// What this device reported at the last attempt of the node's incident, and when.
fn last_verification<'a>(
    device: &FenceDeviceObject,
    node: &Node,
    ctx: &ExplainContext<'a>,
) -> Option<(jiff::Timestamp, &'a Verified)> {
    let was_checked = |attempt: &&Attempt| {
        attempt.devices.iter().any(|one| *one.namespace == *device.namespace && *one.name == *device.name)
    };
    let attempts = &evidence::current_incident(node, ctx)?.status.attempts;
    let last = attempts.iter().rev().filter(was_checked).find(|attempt| attempt.verified.is_some())?;
    Some((last.last_checked_at()?, last.verified.as_ref()?))
}
