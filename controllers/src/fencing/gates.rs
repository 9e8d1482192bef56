//! What must not be in the way before a node is switched off: one function for each gate, each with its numbers. Pure.
//!
//! Every gate is asked every time. The status of a NodeFence shows them; it is written when others are closed than it
//! says, not when a number moves.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use pod_safety_shared::api::{ControlPlane, Gate, Phase, PolicyMode};
use pod_safety_shared::authority::Hold;
use pod_safety_shared::cache::{Lookup, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{Fence, Kind, Node, Policy, Readiness};

use super::incident::Incident;
use super::{levels, remediate};

/// The label of nodes on which the control plane runs.
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// Of fewer lost nodes a share of all says nothing: one of two is half of them.
const FEWEST_LOST: usize = 2;

/// Below three lost nodes of a zone a share of them says nothing, as for kube-controller-manager.
const FEWEST_LOST_IN_ZONE: usize = 3;

/// The gates by their names in statuses and metrics.
pub(super) const NAMES: [&str; 11] = [
    "FencingUnreadable",
    "Paused",
    "LeftAlone",
    "RemediationTimedOut",
    "MaybeItIsUs",
    "ZoneInTrouble",
    "ControlPlane",
    "OurNode",
    "NoDevices",
    "Concurrency",
    "Cooldown",
];

/// For what they are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// The first attempt.
    Begin,
    /// A further one: it has its turn already.
    GoOn,
}

/// The gates that are closed.
pub(super) fn closed(incident: &Incident<'_>, policy: &Policy, purpose: For) -> Vec<Hold> {
    let mut closed = own(incident, policy, too_many_lost(incident, policy));
    match purpose {
        For::Begin => {
            let others = [concurrency(incident, policy, closed.is_empty()), cooldown(incident, policy)];
            closed.extend(others.into_iter().flatten());
        }
        For::GoOn => {}
    }
    closed
}

/// Those that do not ask what other incidents do.
fn own(incident: &Incident<'_>, policy: &Policy, too_many_lost: Option<Hold>) -> Vec<Hold> {
    let gates = [
        unreadable(&incident.view, &[Kind::FencePolicies, Kind::NodeFences]),
        paused(policy),
        incident.node().and_then(left_alone),
        remediate::timed_out(incident),
        too_many_lost,
        incident.node().and_then(|node| zone_in_trouble(node, policy, &incident.view)),
        incident.node().and_then(|node| control_plane(node, policy, incident)),
        our_node(incident),
        no_devices(incident, policy),
    ];
    gates.into_iter().flatten().collect()
}

/// One that cannot be read may be the policy that pauses, or an incident that is under way.
pub(super) fn unreadable(view: &View<'_>, kinds: &[Kind]) -> Option<Hold> {
    let count = |kind: &Kind| (*kind, view.count(*kind).1);
    kinds
        .iter()
        .map(count)
        .find(|(_, count)| *count > 0)
        .map(|(kind, count)| Hold::FencingUnreadable { kind, count })
}

pub(super) fn paused(policy: &Policy) -> Option<Hold> {
    let reason = policy.spec.paused.clone()?;
    Some(Hold::Paused { policy: Arc::clone(&policy.name), reason })
}

fn left_alone(node: &Node) -> Option<Hold> {
    let mark = node.life.as_ref()?.left_alone?;
    Some(Hold::LeftAlone { node: Arc::clone(&node.name), mark })
}

fn is_well(node: &Node, policy: &Policy, view: &View<'_>, now: Mono) -> bool {
    let silent = Duration::from_secs(policy.spec.unhealthy.silent_seconds.into());
    node.readiness == Readiness::Ready && now.since(view.last_heard(node)) < silent
}

fn is_more_than(part: usize, of: usize, percent: u32) -> bool {
    part.saturating_mul(100) > of.saturating_mul(usize::try_from(percent).unwrap_or(usize::MAX))
}

/// Silent ones count, too, though they may still be called Ready: who is deaf hears it from all at once.
fn too_many_lost(incident: &Incident<'_>, policy: &Policy) -> Option<Hold> {
    let view = &incident.view;
    let (mut lost, mut of) = (0, 0);
    for node in view.nodes() {
        of += 1;
        lost += usize::from(!is_well(node, policy, view, incident.now));
    }
    let percent = policy.spec.brakes.max_unhealthy_percent;
    let closed = lost >= FEWEST_LOST && is_more_than(lost, of, percent);
    closed.then_some(Hold::TooManyLost { lost, of, percent })
}

fn zone_in_trouble(node: &Node, policy: &Policy, view: &View<'_>) -> Option<Hold> {
    let count = view.zone(&node.zone);
    let percent = policy.spec.brakes.max_unhealthy_zone_percent;
    let (not_ready, of) = (count.not_ready, count.counted());
    let closed = not_ready >= FEWEST_LOST_IN_ZONE && is_more_than(not_ready, of, percent);
    closed.then(|| Hold::ZoneInTrouble { zone: Arc::clone(&node.zone), not_ready, of, percent })
}

/// Of a node whose Node is gone nobody knows whether it was of the control plane: whoever deleted it took it out.
fn control_plane(node: &Node, policy: &Policy, incident: &Incident<'_>) -> Option<Hold> {
    let is_of_it =
        |node: &Node| node.life.as_ref().is_some_and(|life| life.labels.contains_key(CONTROL_PLANE));
    if !is_of_it(node) {
        return None;
    }
    let name = || Arc::clone(&node.name);
    match policy.spec.brakes.control_plane {
        ControlPlane::Never => Some(Hold::ControlPlane { node: name(), policy: Arc::clone(&policy.name) }),
        ControlPlane::KeepQuorum => {
            let (mut ready, mut of) = (0, 0);
            for other in incident.view.nodes().filter(|other| is_of_it(other)) {
                of += 1;
                let counts = other.uid != node.uid && is_well(other, policy, &incident.view, incident.now);
                ready += usize::from(counts);
            }
            (ready * 2 <= of).then(|| Hold::ControlPlaneQuorum { node: name(), ready, of })
        }
    }
}

fn our_node(incident: &Incident<'_>) -> Option<Hold> {
    let ours = incident.config.our_node.as_ref()?;
    (*ours == incident.name).then(|| Hold::OurNode { node: Arc::clone(ours) })
}

fn no_devices(incident: &Incident<'_>, policy: &Policy) -> Option<Hold> {
    let why = levels::none_usable(policy, incident)?;
    Some(Hold::NoDevices { policy: Arc::clone(&policy.name), why })
}

/// Whether it only writes down what it would do.
pub(super) fn is_dry(fence: &Fence, policy: &Policy) -> bool {
    fence.spec.dry_run || policy.spec.mode == PolicyMode::DryRun
}

fn others<'a>(incident: &Incident<'a>) -> impl Iterator<Item = &'a Fence> + use<'a> {
    let (view, uid) = (incident.view, &incident.fence.uid);
    view.fences().filter(move |other| other.uid != *uid && !other.deleting)
}

/// In which order they go: the higher priority first, then who came first, then by name.
fn turn(fence: &Fence, policy: &Policy) -> (Reverse<i32>, Mono, Arc<str>) {
    (Reverse(policy.spec.priority), fence.first_seen, Arc::clone(&fence.name))
}

/// `is_next`: nothing else holds it back, so that it is of interest who goes before it.
fn concurrency(incident: &Incident<'_>, policy: &Policy, is_next: bool) -> Option<Hold> {
    let most = policy.spec.brakes.max_concurrent;
    let limit = usize::try_from(most).unwrap_or(usize::MAX);
    let fencing = others(incident).filter(|other| other.status.phase == Phase::Fencing).count();
    let ahead = if is_next && fencing < limit { ahead(incident, policy) } else { 0 };
    (fencing + ahead >= limit).then_some(Hold::Concurrency { fencing, ahead, most })
}

/// How many others that could begin now go before it. Those that are held back themselves keep nobody waiting.
fn ahead(incident: &Incident<'_>, policy: &Policy) -> usize {
    let mine = turn(incident.fence, policy);
    // A scan of all nodes is made once for each policy, not for each incident.
    let mut lost: BTreeMap<Arc<str>, Option<Hold>> = BTreeMap::new();
    let mut goes_first = |other: &&Fence| {
        if other.status.phase != Phase::Pending || other.spec.cancelled {
            return false;
        }
        let node = match incident.view.node(&other.spec.node.name) {
            Lookup::Known(node) => Some(node),
            Lookup::Absent => None,
            Lookup::Unknown(_) => return false,
        };
        let other = Incident::new(other, node, &incident.view, incident.now, incident.config);
        let Some(policy) = other.policy().filter(|policy| !is_dry(other.fence, policy)) else { return false };
        if turn(other.fence, policy) > mine || other.is_heard_again() {
            return false;
        }
        let lost = lost.entry(Arc::clone(&policy.name)).or_insert_with(|| too_many_lost(&other, policy));
        own(&other, policy, lost.clone()).is_empty()
    };
    others(incident).filter(|other| goes_first(other)).count()
}

/// After a restart every fence seems young: it waits once more, which is the safe side.
fn cooldown(incident: &Incident<'_>, policy: &Policy) -> Option<Hold> {
    let cooldown = Duration::from_secs(policy.spec.brakes.cooldown_seconds.into());
    let shot = |other: &&Fence| other.status.phase != Phase::Pending && !other.status.attempts.is_empty();
    let last = others(incident).filter(shot).max_by_key(|other| other.status_seen)?;
    let ends = last.status_seen + cooldown;
    let other: Arc<str> = last.spec.node.name.as_str().into();
    (incident.now < ends).then(|| Hold::Cooldown { other, left: ends.since(incident.now) })
}

/// All gates as a status shows them.
pub(super) fn record(closed: &[Hold]) -> Vec<Gate> {
    let of = |name: &&str| {
        let hold = closed.iter().find(|hold| *hold.reason() == **name);
        Gate {
            name: (*name).to_owned(),
            holds: hold.is_some(),
            message: hold.map(ToString::to_string).unwrap_or_default(),
        }
    };
    NAMES.iter().map(of).collect()
}

/// Whether others are closed than a status shows, or it shows none.
pub(super) fn differ(shown: &[Gate], closed: &[Hold]) -> bool {
    let before: BTreeSet<&str> =
        shown.iter().filter(|gate| gate.holds).map(|gate| gate.name.as_str()).collect();
    let after: BTreeSet<&str> = closed.iter().map(Hold::reason).collect();
    shown.is_empty() || before != after
}
