//! What shows that a node lives.

use pod_safety_shared::model::{Kind, Node, Readiness};

use super::answer::{Finding, finding, since, span};
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
        let looked: Option<jiff::Timestamp> = target.looked.parse().ok();
        let on = match target.power.as_str() {
            // That it was on before is no sign against the evidence.
            "On" if proved.is_some_and(|proved| looked.is_none_or(|looked| looked.as_second() <= proved)) => {
                None
            }
            "On" => Some(true),
            "Off" | "Gone" => Some(false),
            _ => None,
        };
        let ago = seen(looked);
        let message = if target.message.is_empty() { String::new() } else { format!(": {}", target.message) };
        let name = format!("device {}/{}", device.namespace, device.name);
        all.push(finding("Power", &name, on, format!("power {} {ago}{message}", target.power)));
    }
    all
}
