//! Which devices get a status check. Pure.
//!
//! A wrong password is found this way, and not only when a node must be fenced.

use std::sync::Arc;
use std::time::Duration;

use crate::holds::Decision;
use pod_safety_shared::api::{DeviceRef, FenceEvidenceKind, TEST_ANNOTATION};
use pod_safety_shared::authority::{Intent, MonitorRequest};
use pod_safety_shared::cache::View;
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{FenceDeviceObject, Node, Uid};

use super::policy::NODE_COUNT_INTERVAL;

/// Decides about one device.
pub(super) fn monitor(uid: &Uid, view: &View<'_>, now: Mono) -> Decision {
    let Some(device) = view.devices().find(|device| device.uid == *uid && !device.deleting) else {
        return Decision::default();
    };
    let decision = regular_check(device, view, now);
    if device.spec.driver.gives(FenceEvidenceKind::WatchdogLease) {
        or_check_suspects(decision, device, view, now)
    } else {
        decision
    }
}

fn regular_check(device: &FenceDeviceObject, view: &View<'_>, now: Mono) -> Decision {
    let every = Duration::from_secs(device.spec.monitor_seconds.into());
    let next = device.status_seen + every;
    let is_new = device.status.observed_generation != device.generation;
    let test = device.annotations.get(TEST_ANNOTATION);
    let test = test.filter(|test| device.status.tested.as_ref() != Some(*test));
    let full = MonitorRequest { test: test.cloned(), ..status_check(device, view, |_| true) };
    // That the device selects no node is in its status already; to write it again would change nothing, and no event
    // would follow.
    let is_noop = !is_new && full.nodes.is_empty() && device.status.targets.is_empty();
    // A device that a person operates has no targets.
    let is_first = device.status.targets.is_empty() && !full.nodes.is_empty() && !device.spec.driver.is_operator();
    let is_due = is_new || (!every.is_zero() && !is_noop && (is_first || next <= now));
    let request = match test {
        _ if is_due => full,
        Some(test) => requested_test(full, test),
        None if every.is_zero() => return Decision::default(),
        None if is_noop => {
            return Decision::default().and_requeue_at(now + every.min(NODE_COUNT_INTERVAL));
        }
        None => return Decision::default().and_requeue_at(next),
    };
    monitor_decision(request)
}

fn monitor_decision(request: MonitorRequest) -> Decision {
    Decision { intents: vec![Intent::Monitor(Box::new(request))], ..Decision::default() }
}

/// A status check of the device for its nodes that are selected.
fn status_check(device: &FenceDeviceObject, view: &View<'_>, is_selected: impl Fn(&Node) -> bool) -> MonitorRequest {
    let chosen = view
        .nodes()
        .filter(|node| is_selected(node))
        .filter(|node| node.details.as_ref().is_some_and(|details| device.spec.node_selector.matches(&details.labels)));
    let mut nodes: Vec<_> = chosen.map(|node| Arc::clone(&node.name)).collect();
    nodes.sort();
    let named = DeviceRef { namespace: device.namespace.to_string(), name: device.name.to_string() };
    MonitorRequest { device: named, uid: device.uid.clone(), nodes, is_complete: true, test: None }
}

/// A running kubelet renews its Lease every ten seconds: a node whose Lease is older than this may be lost.
const SUSPECT_AFTER: Duration = Duration::from_secs(15);
/// How often suspected nodes are looked for. Each is one for two checks.
const SUSPECT_INTERVAL: Duration = Duration::from_secs(5);

/// The wait for the expiry of a watchdog grant begins when the agent's last grant is first observed. So nodes that
/// are about to count as lost get a status check, if no other check is due.
fn or_check_suspects(decision: Decision, device: &FenceDeviceObject, view: &View<'_>, now: Mono) -> Decision {
    let is_suspect = |node: &Node| {
        let unreachable_for = now.since(view.last_report(node));
        (SUSPECT_AFTER..SUSPECT_AFTER + 2 * SUSPECT_INTERVAL).contains(&unreachable_for)
    };
    let next = now + SUSPECT_INTERVAL;
    if !decision.intents.is_empty() || now < device.status_seen + SUSPECT_INTERVAL {
        return decision.and_requeue_at(next);
    }
    let suspects = MonitorRequest { is_complete: false, ..status_check(device, view, is_suspect) };
    if suspects.nodes.is_empty() { decision.and_requeue_at(next) } else { monitor_decision(suspects) }
}

/// The status check that a person requested: of all nodes, or of one.
fn requested_test(whole: MonitorRequest, test: &str) -> MonitorRequest {
    match test.split_once(' ') {
        Some((_, only)) => {
            let nodes = whole.nodes.into_iter().filter(|node| **node == *only).collect();
            MonitorRequest { nodes, is_complete: false, ..whole }
        }
        None => whole,
    }
}
