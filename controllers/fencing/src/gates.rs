//! The gates: what must not hold when a node is switched off. One function for each gate, each with its numbers.
//! Pure.
//!
//! Every gate is evaluated every time. The status of a NodeFence shows them; it is written when other gates are
//! closed than it shows, not when only a number changes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::holds::Hold;
use pod_safety_shared::api::{Gate, Phase, Trigger};
use pod_safety_shared::cache::Lookup;
use pod_safety_shared::clock::Mono;
use pod_safety_shared::controller_loop::HoldReason;
use pod_safety_shared::model::{Budget, FencePolicyObject, Kind, Node, NodeFenceObject, is_or_are};

use super::incident::{Incident, check_readable, is_dry_run, is_healthy, is_reporting};
use super::{collateral, control_plane, drain, levels, remediate};

/// With fewer lost nodes a percentage is meaningless: one of two is half of them.
const MIN_LOST: usize = 2;

/// At most this many budgets are named in a status.
const MAX_BUDGETS: usize = 5;

/// With fewer nodes of a zone not Ready a percentage is meaningless; kube-controller-manager uses the same limit.
const MIN_NOT_READY_IN_ZONE: usize = 3;

/// The names of the gates in statuses and metrics.
pub(super) const NAMES: [&str; 15] = [
    "FencingUnreadable",
    "Paused",
    "FencingSuspended",
    "RemediationTimedOut",
    "LargeOutage",
    "ZoneInTrouble",
    "ControlPlane",
    "EtcdQuorum",
    "Collateral",
    "Repeated",
    drain::GATE,
    "SelfNode",
    "NoDevices",
    "Concurrency",
    "Cooldown",
];

const COLLATERAL: &str = "Collateral";

/// For which attempt the gates are evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The first attempt.
    Begin,
    /// A further attempt: the incident already holds a place among those fenced at a time.
    Continue,
}

/// The gates that are closed.
pub(super) fn closed_gates(incident: &Incident<'_>, policy: &FencePolicyObject, purpose: Purpose) -> Vec<Hold> {
    let mut closed = own_gates(incident, policy, check_large_outage(incident, policy));
    match purpose {
        Purpose::Begin => {
            let others =
                [check_concurrency(incident, policy, drain::may_begin(&closed)), check_cooldown(incident, policy)];
            closed.extend(others.into_iter().flatten());
        }
        // Collateral damage was checked before the first attempt, and its time is counted from the beginning. While
        // this incident was held, another one may have begun.
        Purpose::Continue => {
            closed.retain(|hold| !is_start_only(hold));
            closed.extend(check_concurrency_to_continue(incident, policy));
        }
    }
    closed
}

/// Whether a further attempt ignores this hold: it was checked before the first attempt.
fn is_start_only(hold: &Hold) -> bool {
    [COLLATERAL, drain::GATE].contains(&hold.reason())
}

/// The gates that do not depend on the state of other incidents.
fn own_gates(incident: &Incident<'_>, policy: &FencePolicyObject, too_many_lost: Option<Hold>) -> Vec<Hold> {
    let gates = [
        check_readable(&incident.view, &[Kind::FencePolicies, Kind::NodeFences]),
        check_paused(policy),
        incident.node().and_then(check_suspended),
        remediate::check_timed_out(incident),
        too_many_lost,
        incident.node().and_then(|node| check_zone(node, policy, incident)),
        incident.node().and_then(|node| control_plane::check_control_plane(node, policy, incident)),
        incident.node().and_then(|node| control_plane::check_etcd(node, policy, incident)),
        incident.node().and_then(|node| collateral::check_collateral(node, policy, incident)),
        check_repeated(incident, policy),
        drain::check_drain(incident, policy),
        check_own_node(incident),
        check_devices(incident, policy),
    ];
    gates.into_iter().flatten().collect()
}

pub(super) fn check_paused(policy: &FencePolicyObject) -> Option<Hold> {
    let reason = policy.spec.paused.clone()?;
    Some(Hold::Paused { policy: Arc::clone(&policy.name), reason })
}

pub(super) fn check_suspended(node: &Node) -> Option<Hold> {
    let mark = node.details.as_ref()?.remediation_excluded_by?;
    Some(Hold::FencingSuspended { node: Arc::clone(&node.name), mark })
}

/// Whether this node counts against fencing another one. For a fence because of a condition, unhealthy nodes count:
/// if many show the condition, the condition is more likely wrong than every node broken. For a lost node, only nodes
/// that do not report count, whatever conditions others show.
fn counts_as_lost(node: &Node, incident: &Incident<'_>, policy: &FencePolicyObject) -> bool {
    match incident.fence.spec.trigger.kind {
        Trigger::Unhealthy => !is_healthy(node, policy, &incident.view, incident.now),
        Trigger::Detected | Trigger::Person | Trigger::External => {
            !is_reporting(node, &incident.view, incident.now, &policy.spec.unhealthy)
        }
    }
}

/// Holds if the node was fenced for an unhealthy condition a while ago, in another boot, and is unhealthy again.
fn check_repeated(incident: &Incident<'_>, policy: &FencePolicyObject) -> Option<Hold> {
    let unhealthy = |fence: &NodeFenceObject| fence.spec.trigger.kind == Trigger::Unhealthy;
    let before = |other: &&NodeFenceObject| {
        other.uid != incident.fence.uid && unhealthy(other) && !other.status.attempts.is_empty()
    };
    let fences = incident.view.node_fences_of(&incident.name).filter(|_| unhealthy(incident.fence));
    let last = fences.filter(before).filter_map(|other| other.status.last_change()).max()?;
    let ago = incident.view.age(last.as_second(), incident.now);
    let left = Duration::from_secs(policy.spec.brakes.repeat_seconds.into()).saturating_sub(ago);
    (!left.is_zero()).then(|| Hold::Repeated { node: Arc::clone(&incident.name), ago, left })
}

fn exceeds_percent(part: usize, total: usize, percent: u32) -> bool {
    part.saturating_mul(100) > total.saturating_mul(usize::try_from(percent).unwrap_or(usize::MAX))
}

/// Counts the lost nodes, and all nodes. A node that does not report counts even while it is still marked Ready: if
/// this process loses its connection, all nodes stop reporting at once.
fn count_lost(incident: &Incident<'_>, policy: &FencePolicyObject) -> (usize, usize) {
    let view = &incident.view;
    let (mut lost, mut of) = (0, 0);
    for node in view.nodes() {
        of += 1;
        lost += usize::from(counts_as_lost(node, incident, policy));
    }
    (lost, of)
}

fn check_large_outage(incident: &Incident<'_>, policy: &FencePolicyObject) -> Option<Hold> {
    let (lost, of) = count_lost(incident, policy);
    let percent = policy.spec.brakes.max_unhealthy_percent;
    let closed = lost >= MIN_LOST && exceeds_percent(lost, of, percent);
    closed.then_some(Hold::TooManyLost { lost, of, percent })
}

/// How many nodes of its zone are not Ready or count as lost, and of how many.
fn count_not_ready_in_zone(node: &Node, policy: &FencePolicyObject, incident: &Incident<'_>) -> (usize, usize) {
    let count = incident.view.zone(&node.zone);
    let (not_ready, of) = (count.not_ready, count.counted());
    if incident.fence.spec.trigger.kind != Trigger::Unhealthy {
        return (not_ready, of);
    }
    let in_zone = incident.view.nodes().filter(|other| other.zone == node.zone && !other.excluded);
    (in_zone.filter(|other| counts_as_lost(other, incident, policy)).count().max(not_ready), of)
}

fn check_zone(node: &Node, policy: &FencePolicyObject, incident: &Incident<'_>) -> Option<Hold> {
    let percent = policy.spec.brakes.max_unhealthy_zone_percent;
    let (not_ready, of) = count_not_ready_in_zone(node, policy, incident);
    let closed = not_ready >= MIN_NOT_READY_IN_ZONE && exceeds_percent(not_ready, of, percent);
    closed.then(|| Hold::ZoneInTrouble { zone: Arc::clone(&node.zone), not_ready, of, percent })
}

fn check_own_node(incident: &Incident<'_>) -> Option<Hold> {
    let own_node = incident.config.own_node.as_ref()?;
    (*own_node == incident.name).then(|| Hold::SelfNode { node: Arc::clone(own_node) })
}

fn check_devices(incident: &Incident<'_>, policy: &FencePolicyObject) -> Option<Hold> {
    let why = levels::why_none_usable(policy, incident)?;
    Some(Hold::NoDevices { policy: Arc::clone(&policy.name), why })
}

fn others<'a>(incident: &Incident<'a>) -> impl Iterator<Item = &'a NodeFenceObject> + use<'a> {
    let (view, uid) = (incident.view, &incident.fence.uid);
    view.node_fences().filter(move |other| other.uid != *uid && !other.deleting)
}

/// The order of fencing: higher priority first, then lost nodes before unhealthy nodes that report, then the older
/// incident, then by name.
fn fencing_order(fence: &NodeFenceObject, policy: &FencePolicyObject) -> (Reverse<i32>, bool, Mono, Arc<str>) {
    let reports = fence.spec.trigger.kind == Trigger::Unhealthy;
    (Reverse(policy.spec.priority), reports, fence.first_seen, Arc::clone(&fence.name))
}

/// How many others are being fenced. A node that drains already holds a place, against unhealthy nodes that have not
/// begun. A lost node does not wait for it.
fn count_being_fenced(incident: &Incident<'_>) -> usize {
    let soft = incident.fence.spec.trigger.kind == Trigger::Unhealthy && !drain::has_begun(incident);
    let drains = |other: &NodeFenceObject| soft && other.status.phase == Phase::Pending && other.status.drain.is_some();
    let mut lost = LostByPolicy::new();
    others(incident).filter(|other| occupies_slot(other, incident, &mut lost, |_| true) || drains(other)).count()
}

/// Whether an incident occupies one of `maxConcurrent` places: an attempt is in flight, or no gate holds its next one
/// and it `goes_first` by its policy. An incident that is held occupies no place: a paused node must not keep the
/// others from being fenced.
fn occupies_slot<'a>(
    other: &'a NodeFenceObject,
    incident: &Incident<'a>,
    lost: &mut LostByPolicy,
    goes_first: impl Fn(&FencePolicyObject) -> bool,
) -> bool {
    let may_go_on = |(policy, _, closed): (&FencePolicyObject, _, Vec<Hold>)| {
        goes_first(policy) && closed.iter().all(is_start_only)
    };
    other.status.phase == Phase::Fencing
        && (is_in_flight(other) || gates_of_other(other, incident, lost).is_some_and(may_go_on))
}

/// Its last attempt was sent, or may have been, and its outcome is not verified yet.
fn is_in_flight(fence: &NodeFenceObject) -> bool {
    fence.status.attempts.last().is_some_and(|last| last.verified.is_none())
}

/// Whether too many nodes are lost, by policy and kind of trigger. All nodes are scanned once for each policy, not
/// for each incident.
type LostByPolicy = BTreeMap<(Arc<str>, bool), Option<Hold>>;

/// The gates of another incident that do not depend on other incidents, and its policy. `None`: it is held for
/// another reason.
fn gates_of_other<'a>(
    fence: &'a NodeFenceObject,
    incident: &Incident<'a>,
    lost: &mut LostByPolicy,
) -> Option<(&'a FencePolicyObject, Incident<'a>, Vec<Hold>)> {
    let node = match incident.view.node(&fence.spec.node.name) {
        Lookup::Known(node) => Some(node),
        Lookup::Absent => None,
        Lookup::Unknown(_) => return None,
    };
    let other = Incident::new(fence, node, &incident.view, incident.now, incident.config);
    let policy = other.policy().filter(|policy| !is_dry_run(fence, policy))?;
    let kind = (Arc::clone(&policy.name), fence.spec.trigger.kind == Trigger::Unhealthy);
    let lost = lost.entry(kind).or_insert_with(|| check_large_outage(&other, policy)).clone();
    let closed = own_gates(&other, policy, lost);
    Some((policy, other, closed))
}

/// Its place may have gone to another incident while it was held. Of several that could continue, those first in the
/// fencing order continue.
fn check_concurrency_to_continue(incident: &Incident<'_>, policy: &FencePolicyObject) -> Option<Hold> {
    let most = policy.spec.brakes.max_concurrent;
    let (mine, mut lost) = (fencing_order(incident.fence, policy), LostByPolicy::new());
    let uses = |other: &&NodeFenceObject| {
        occupies_slot(other, incident, &mut lost, |theirs| fencing_order(other, theirs) < mine)
    };
    let fencing = others(incident).filter(uses).count();
    let limit = usize::try_from(most).unwrap_or(usize::MAX);
    (fencing >= limit).then_some(Hold::Concurrency { fencing, ahead: 0, most })
}

/// `is_next`: no other gate holds this incident, so the incidents ahead of it are counted.
fn check_concurrency(incident: &Incident<'_>, policy: &FencePolicyObject, is_next: bool) -> Option<Hold> {
    let most = policy.spec.brakes.max_concurrent;
    let limit = usize::try_from(most).unwrap_or(usize::MAX);
    let fencing = count_being_fenced(incident);
    let ahead = if is_next && fencing < limit { count_ahead(incident, policy) } else { 0 };
    (fencing + ahead >= limit).then_some(Hold::Concurrency { fencing, ahead, most })
}

/// How many other incidents that could begin now go before it. Incidents that are held themselves are not counted.
fn count_ahead(incident: &Incident<'_>, policy: &FencePolicyObject) -> usize {
    let (mine, mut lost) = (fencing_order(incident.fence, policy), LostByPolicy::new());
    let goes_first = |other: &&NodeFenceObject| {
        other.status.phase == Phase::Pending
            && !other.spec.cancelled
            && gates_of_other(other, incident, &mut lost).is_some_and(|(policy, other, closed)| {
                fencing_order(other.fence, policy) <= mine
                    && other.recovery_message().is_none()
                    && drain::may_begin(&closed)
            })
    };
    others(incident).filter(goes_first).count()
}

/// After a restart every status seems just changed: the whole cooldown is waited for again, which is the safe side.
fn check_cooldown(incident: &Incident<'_>, policy: &FencePolicyObject) -> Option<Hold> {
    let cooldown = Duration::from_secs(policy.spec.brakes.cooldown_seconds.into());
    let was_fenced =
        |other: &&NodeFenceObject| other.status.phase != Phase::Pending && !other.status.attempts.is_empty();
    let last = others(incident).filter(was_fenced).max_by_key(|other| other.status_seen)?;
    let ends = last.status_seen + cooldown;
    let other: Arc<str> = last.spec.node.name.as_str().into();
    (incident.now < ends).then(|| Hold::Cooldown { other, left: ends.since(incident.now) })
}

/// All gates for a status: the closed ones, and the open ones with their numbers.
pub(super) fn gate_records(incident: &Incident<'_>, policy: &FencePolicyObject, closed: &[Hold]) -> Vec<Gate> {
    let to_gate = |name: &&str| {
        let hold = closed.iter().find(|hold| *hold.reason() == **name);
        let message = hold.map_or_else(|| describe_open_gate(name, incident, policy), ToString::to_string);
        Gate { name: (*name).to_owned(), holds: hold.is_some(), message }
    };
    NAMES.iter().map(to_gate).collect()
}

/// The message of an open gate, if it counts something.
fn describe_open_gate(gate: &str, incident: &Incident<'_>, policy: &FencePolicyObject) -> String {
    let brakes = &policy.spec.brakes;
    let describe_quorum = |what: &str, left: Option<control_plane::Remaining>| {
        left.map(|left| format!("without it {} of {} {what} are Ready", left.healthy, left.total))
    };
    let message = match (gate, incident.node()) {
        ("LargeOutage", _) => {
            let ((lost, of), percent) = (count_lost(incident, policy), brakes.max_unhealthy_percent);
            Some(format!("{lost} of {of} nodes {} lost; the limit is {percent} %", is_or_are(lost)))
        }
        ("ZoneInTrouble", Some(node)) => {
            let percent = brakes.max_unhealthy_zone_percent;
            let (not_ready, of) = count_not_ready_in_zone(node, policy, incident);
            let are = is_or_are(not_ready);
            Some(format!("{not_ready} of {of} nodes of its zone {are} not ready; the limit is {percent} %"))
        }
        ("ControlPlane", Some(node)) => {
            describe_quorum("such nodes", control_plane::remaining_nodes(node, policy, incident))
        }
        ("EtcdQuorum", Some(node)) => {
            describe_quorum("etcd members", control_plane::remaining_members(node, policy, incident))
        }
        (COLLATERAL, Some(node)) => {
            let chosen = collateral::affected_budgets(node, incident);
            let describe_budget = |(budget, here): &(&Budget, usize)| {
                let (healthy, needed) = (budget.status.current_healthy, budget.status.desired_healthy);
                format!("{}: {healthy} healthy, {here} of them here, {needed} needed", budget.key)
            };
            Some(chosen.iter().take(MAX_BUDGETS).map(describe_budget).collect::<Vec<_>>().join("; "))
        }
        ("Concurrency", _) => {
            let (fencing, most) = (count_being_fenced(incident), brakes.max_concurrent);
            Some(format!("{fencing} others are being fenced; at most {most} at a time"))
        }
        ("Cooldown", _) => Some(format!("no other node was fenced in the last {}s", brakes.cooldown_seconds)),
        _ => None,
    };
    message.unwrap_or_default()
}

/// Whether other gates are closed than the status shows, or it shows none.
pub(super) fn have_changed(recorded: &[Gate], closed: &[Hold]) -> bool {
    let before: BTreeSet<&str> = recorded.iter().filter(|gate| gate.holds).map(|gate| gate.name.as_str()).collect();
    let after: BTreeSet<&str> = closed.iter().map(HoldReason::reason).collect();
    recorded.is_empty() || before != after
}
