//! Which devices should be looked through. Pure.
//!
//! A wrong password shows itself then, and not in the night in which it counts.

use std::sync::Arc;
use std::time::Duration;

use pod_safety_shared::api::{DeviceDriver, DeviceRef, TEST_ANNOTATION};
use pod_safety_shared::authority::{Intent, Monitor};
use pod_safety_shared::cache::{Lookup, View};
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
    let suspects = suspects(device, &whole, view, now);
    let wish = match test {
        _ if is_due => whole,
        Some(test) => asked_for(whole, test),
        None if suspects.due && !suspects.nodes.is_empty() => {
            Monitor { nodes: suspects.nodes, whole: false, ..whole }
        }
        None if every.is_zero() => return suspects.next(Decision::default(), now),
        None if says_nothing => {
            return suspects.next(Decision::default().and_recheck_at(now + every.min(NODES_FOUND_EACH)), now);
        }
        None => return suspects.next(Decision::default().and_recheck_at(next), now),
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

/// A kubelet that runs renews its Lease each ten seconds: one that has not for so long may be lost.
const SUSPECT: Duration = Duration::from_secs(15);
/// How often it is checked which nodes are suspects. Each is one for two checks.
const SUSPECTS_EACH: Duration = Duration::from_secs(5);

/// The nodes of a device of agents that are about to count as lost. The wait for the promise of an agent begins when its last grant
/// is seen first: so it is looked at before it is revoked.
struct Suspects {
    of_agents: bool,
    due: bool,
    nodes: Vec<Arc<str>>,
}

fn suspects(device: &Device, whole: &Monitor, view: &View<'_>, now: Mono) -> Suspects {
    let of_agents = device.spec.driver == DeviceDriver::WatchdogLease;
    let silent = |name: &&Arc<str>| {
        let Lookup::Known(node) = view.node(name) else { return false };
        let silent = now.since(view.last_heard(node));
        (SUSPECT..SUSPECT + 2 * SUSPECTS_EACH).contains(&silent)
    };
    let nodes = whole.nodes.iter().filter(|_| of_agents).filter(silent).cloned().collect();
    Suspects { of_agents, due: device.status_seen + SUSPECTS_EACH <= now, nodes }
}

impl Suspects {
    /// When they are checked again.
    fn next(&self, decision: Decision, now: Mono) -> Decision {
        if self.of_agents { decision.and_recheck_at(now + SUSPECTS_EACH) } else { decision }
    }
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
