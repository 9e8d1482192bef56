//! Which devices should be looked through. Pure.
//!
//! A wrong password shows itself then, and not in the night in which it counts.

use std::sync::Arc;
use std::time::Duration;

use pod_safety_shared::api::{DeviceDriver, DeviceRef, TEST_ANNOTATION};
use pod_safety_shared::authority::{Intent, Monitor};
use pod_safety_shared::cache::View;
use pod_safety_shared::clock::Mono;
use pod_safety_shared::drive::Decision;
use pod_safety_shared::model::{Device, Uid};

use super::decide::NODES_FOUND_EACH;

/// Decides about one device.
pub(super) fn monitor(uid: &Uid, view: &View<'_>, now: Mono) -> Decision {
    let Some(device) = view.devices().find(|device| device.uid == *uid && !device.deleting) else {
        return Decision::default();
    };
    let every = Duration::from_secs(device.spec.monitor_seconds.into());
    let next = device.status_seen + every;
    let is_new = device.status.observed_generation != device.generation;
    let test = device.annotations.get(TEST_ANNOTATION);
    let test = test.filter(|test| device.status.tested.as_ref() != Some(*test));
    let whole = look(device, view, test);
    // That it chooses nobody is written already, and saying so again would change nothing: no event would follow.
    let says_nothing = !is_new && whole.nodes.is_empty() && device.status.targets.is_empty();
    // What a person switches has no targets.
    let is_first = device.status.targets.is_empty()
        && !whole.nodes.is_empty()
        && device.spec.driver != DeviceDriver::Manual;
    let is_due = is_new || (!every.is_zero() && !says_nothing && (is_first || next <= now));
    let wish = match test {
        _ if is_due => whole,
        Some(test) => asked_for(whole, test),
        None if every.is_zero() => return Decision::default(),
        None if says_nothing => {
            return Decision::default().and_recheck_at(now + every.min(NODES_FOUND_EACH));
        }
        None => return Decision::default().and_recheck_at(next),
    };
    Decision { intents: vec![Intent::Monitor(Box::new(wish))], ..Decision::default() }
}

fn look(device: &Device, view: &View<'_>, test: Option<&String>) -> Monitor {
    let chosen = view.nodes().filter(|node| {
        node.life.as_ref().is_some_and(|life| device.spec.node_selector.chooses(&life.labels))
    });
    let mut nodes: Vec<_> = chosen.map(|node| Arc::clone(&node.name)).collect();
    nodes.sort();
    let named = DeviceRef { namespace: device.namespace.to_string(), name: device.name.to_string() };
    Monitor { device: named, uid: device.uid.clone(), nodes, whole: true, test: test.cloned() }
}

/// Of what a person asks for: perhaps one node alone.
fn asked_for(whole: Monitor, test: &str) -> Monitor {
    match test.split_once(' ') {
        Some((_, only)) => {
            let nodes = whole.nodes.into_iter().filter(|node| **node == *only).collect();
            Monitor { nodes, whole: false, ..whole }
        }
        None => whole,
    }
}
