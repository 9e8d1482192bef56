//! Which devices should be looked through. Pure.
//!
//! A wrong password shows itself then, and not in the night in which it counts.

use std::sync::Arc;
use std::time::Duration;

use crate::holds::Decision;
use pod_safety_shared::api::{DeviceDriver, DeviceRef, TEST_ANNOTATION};
use pod_safety_shared::authority::{Intent, Monitor};
use pod_safety_shared::cache::View;
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{Device, Node, Uid};

use super::policy::NODES_FOUND_EACH;

/// Decides about one device.
pub(super) fn monitor(uid: &Uid, view: &View<'_>, now: Mono) -> Decision {
    let Some(device) = view.devices().find(|device| device.uid == *uid && !device.deleting) else {
        return Decision::default();
    };
    let decision = regular(device, view, now);
    if device.spec.driver == DeviceDriver::WatchdogLease {
        or_suspects(decision, device, view, now)
    } else {
        decision
    }
}

fn regular(device: &Device, view: &View<'_>, now: Mono) -> Decision {
    let every = Duration::from_secs(device.spec.monitor_seconds.into());
    let next = device.status_seen + every;
    let is_new = device.status.observed_generation != device.generation;
    let test = device.annotations.get(TEST_ANNOTATION);
    let test = test.filter(|test| device.status.tested.as_ref() != Some(*test));
    let whole = Monitor { test: test.cloned(), ..look(device, view, |_| true) };
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
    wished(wish)
}

fn wished(wish: Monitor) -> Decision {
    Decision { intents: vec![Intent::Monitor(Box::new(wish))], ..Decision::default() }
}

/// Those of its nodes that are meant.
fn look(device: &Device, view: &View<'_>, is_meant: impl Fn(&Node) -> bool) -> Monitor {
    let chosen = view.nodes().filter(|node| is_meant(node)).filter(|node| {
        node.life.as_ref().is_some_and(|life| device.spec.node_selector.chooses(&life.labels))
    });
    let mut nodes: Vec<_> = chosen.map(|node| Arc::clone(&node.name)).collect();
    nodes.sort();
    let named = DeviceRef { namespace: device.namespace.to_string(), name: device.name.to_string() };
    Monitor { device: named, uid: device.uid.clone(), nodes, whole: true, test: None }
}

/// A kubelet that runs renews its Lease each ten seconds: one that has not for so long may be lost.
const SUSPECT: Duration = Duration::from_secs(15);
/// How often it is checked which nodes are suspects. Each is one for two checks.
const SUSPECTS_EACH: Duration = Duration::from_secs(5);

/// The wait for the promise of an agent begins when its last grant is seen first. So the nodes that are about to count as lost are looked
/// at, where nothing else is looked at now.
fn or_suspects(decision: Decision, device: &Device, view: &View<'_>, now: Mono) -> Decision {
    let is_suspect = |node: &Node| {
        let silent = now.since(view.last_heard(node));
        (SUSPECT..SUSPECT + 2 * SUSPECTS_EACH).contains(&silent)
    };
    let next = now + SUSPECTS_EACH;
    if !decision.intents.is_empty() || now < device.status_seen + SUSPECTS_EACH {
        return decision.and_recheck_at(next);
    }
    let suspects = Monitor { whole: false, ..look(device, view, is_suspect) };
    if suspects.nodes.is_empty() { decision.and_recheck_at(next) } else { wished(suspects) }
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
