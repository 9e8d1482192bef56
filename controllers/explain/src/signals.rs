//! What shows that a node lives.

use pod_safety_shared::api::{Attempt, Power, Verified};
use pod_safety_shared::model::{Device, Kind, Node, Readiness};

use super::answer::{Finding, finding, since, span};
use super::proof;
use super::scene::Scene;

/// Where signs of life come from, and when each was last seen.
pub(super) fn signals(node: &Node, scene: &Scene<'_>) -> Vec<Finding> {
    let silent = node.readiness == Readiness::Unknown;
    let seen = |at: Option<jiff::Timestamp>| {
        at.map_or("never".to_owned(), |at| format!("{} ago", span(since(at, scene.wall))))
    };
    let lease = if scene.has(Kind::NodeLeases) {
        let renewed = scene.view.lease(&node.name);
        let words = renewed.map_or("there is none".to_owned(), |at| format!("renewed {}", seen(at)));
        finding("Lease", "Lease", Some(!silent && renewed.is_some()), words)
    } else {
        finding("Lease", "Lease", None, "not read")
    };
    let status =
        finding("NodeStatus", "node status", Some(!silent), format!("reported {}", seen(node.heartbeat)));
    let mut all = vec![lease, status];
    let proved = scene.view.proof_of(node, scene.now).map(|proof| proof.created);
    for device in scene.view.devices() {
        let Some(target) = device.status.targets.iter().find(|target| target.node == *node.name) else {
            continue;
        };
        let checked: Option<jiff::Timestamp> = target.looked.parse().ok();
        // What an attempt to switch it found since the last status check is newer.
        let found =
            of_incident(device, node, scene).filter(|(at, _)| checked.is_none_or(|checked| checked < *at));
        let (looked, power, message) = match &found {
            Some((at, seen)) => (Some(*at), seen.power, &seen.message),
            None => (checked, target.power, &target.message),
        };
        let on = match power {
            // That it was on before is no sign against the evidence.
            Power::On
                if proved.is_some_and(|proved| looked.is_none_or(|looked| looked.as_second() <= proved)) =>
            {
                None
            }
            Power::On => Some(true),
            Power::Off | Power::Gone => Some(false),
            Power::Unknown => None,
        };
        let ago = seen(looked);
        let message = if message.is_empty() { String::new() } else { format!(": {message}") };
        let name = format!("device {}/{}", device.namespace, device.name);
        all.push(finding("Power", &name, on, format!("power {power} {ago}{message}")));
    }
    all
}

/// What this device showed at the last attempt of the node's incident, and when.
fn of_incident<'a>(
    device: &Device,
    node: &Node,
    scene: &Scene<'a>,
) -> Option<(jiff::Timestamp, &'a Verified)> {
    let asked = |attempt: &&Attempt| {
        attempt.devices.iter().any(|one| *one.namespace == *device.namespace && *one.name == *device.name)
    };
    let attempts = &proof::incident(node, scene)?.status.attempts;
    let last = attempts.iter().rev().filter(asked).find(|attempt| attempt.verified.is_some())?;
    Some((last.checked()?, last.verified.as_ref()?))
}
