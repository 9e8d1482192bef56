//! Which devices should be looked through. Pure.
//!
//! A wrong password shows itself then, and not in the night in which it counts.

use std::sync::Arc;
use std::time::Duration;

use pod_safety_shared::api::DeviceRef;
use pod_safety_shared::authority::{Intent, Monitor};
use pod_safety_shared::cache::View;
use pod_safety_shared::clock::Mono;
use pod_safety_shared::drive::Decision;
use pod_safety_shared::model::{Device, Uid};

/// Decides about one device.
pub(super) fn monitor(uid: &Uid, view: &View<'_>, now: Mono) -> Decision {
    let Some(device) = view.devices().find(|device| device.uid == *uid && !device.deleting) else {
        return Decision::default();
    };
    let every = Duration::from_secs(device.spec.monitor_seconds.into());
    let next = device.status_seen + every;
    let is_new = device.status.observed_generation != device.generation;
    let wish = look(device, view);
    // That it chooses nobody is written already, and saying so again would change nothing: no event would follow.
    let says_nothing = !is_new && wish.nodes.is_empty() && device.status.targets.is_empty();
    if !every.is_zero() && says_nothing {
        return Decision::default().and_recheck_at(now + every);
    }
    if is_new || (!every.is_zero() && next <= now) {
        return Decision { intents: vec![Intent::Monitor(Box::new(wish))], ..Decision::default() };
    }
    if every.is_zero() { Decision::default() } else { Decision::default().and_recheck_at(next) }
}

fn look(device: &Device, view: &View<'_>) -> Monitor {
    let chosen = view.nodes().filter(|node| {
        node.life.as_ref().is_some_and(|life| device.spec.node_selector.chooses(&life.labels))
    });
    let mut nodes: Vec<_> = chosen.map(|node| Arc::clone(&node.name)).collect();
    nodes.sort();
    let named = DeviceRef { namespace: device.namespace.to_string(), name: device.name.to_string() };
    Monitor { device: named, uid: device.uid.clone(), nodes }
}
