//! What must not be in the way before a node is switched off: one function for each gate, each with its numbers. Pure.
//!
//! Every gate is asked every time. The status of a NodeFence shows them; it is written when others are closed than it
//! says, not when a number moves.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::holds::Hold;
use pod_safety_shared::api::{Gate, Phase, Trigger};
use pod_safety_shared::cache::Lookup;
use pod_safety_shared::clock::Mono;
use pod_safety_shared::drive::HoldReason;
use pod_safety_shared::model::{Budget, Fence, Kind, Node, Policy, are};

use super::incident::{Incident, is_dry, is_well, reports, unreadable};
use super::{collateral, drain, levels, quorum, remediate};

/// Of fewer lost nodes a share of all says nothing: one of two is half of them.
const FEWEST_LOST: usize = 2;

/// So many budgets are named in a status.
const BUDGETS_MOST: usize = 5;

/// Below three lost nodes of a zone a share of them says nothing, as for kube-controller-manager.
const FEWEST_LOST_IN_ZONE: usize = 3;

/// The gates by their names in statuses and metrics.
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
            let others =
                [concurrency(incident, policy, drain::may_begin(&closed)), cooldown(incident, policy)];
            closed.extend(others.into_iter().flatten());
        }
        // What it would cost was weighed, and its time is counted from the beginning. While it was held, another may have begun.
        For::GoOn => {
            closed.retain(|hold| !was_weighed(hold));
            closed.extend(concurrency_again(incident, policy));
        }
    }
    closed
}

/// Whether a further attempt goes on in spite of it: it was weighed before the first one.
fn was_weighed(hold: &Hold) -> bool {
    [COLLATERAL, drain::GATE].contains(&hold.reason())
}

/// Those that do not ask what other incidents do.
fn own(incident: &Incident<'_>, policy: &Policy, too_many_lost: Option<Hold>) -> Vec<Hold> {
    let gates = [
        unreadable(&incident.view, &[Kind::FencePolicies, Kind::NodeFences]),
        paused(policy),
        incident.node().and_then(left_alone),
        remediate::timed_out(incident),
        too_many_lost,
        incident.node().and_then(|node| zone_in_trouble(node, policy, incident)),
        incident.node().and_then(|node| quorum::control_plane(node, policy, incident)),
        incident.node().and_then(|node| quorum::etcd(node, policy, incident)),
        incident.node().and_then(|node| collateral::collateral(node, policy, incident)),
        repeated(incident, policy),
        drain::drains(incident, policy),
        our_node(incident),
        no_devices(incident, policy),
    ];
    gates.into_iter().flatten().collect()
}

pub(super) fn paused(policy: &Policy) -> Option<Hold> {
    let reason = policy.spec.paused.clone()?;
    Some(Hold::Paused { policy: Arc::clone(&policy.name), reason })
}

pub(super) fn left_alone(node: &Node) -> Option<Hold> {
    let mark = node.life.as_ref()?.left_alone?;
    Some(Hold::FencingSuspended { node: Arc::clone(&node.name), mark })
}

/// Whether it speaks against fencing another one for the same: where many show a condition, it is more likely wrong than
/// each of them is broken. Who is silent is fenced whatever others report.
fn counts_as_lost(node: &Node, incident: &Incident<'_>, policy: &Policy) -> bool {
    match incident.fence.spec.trigger.kind {
        Trigger::Unhealthy => !is_well(node, policy, &incident.view, incident.now),
        Trigger::Detected | Trigger::Person | Trigger::External => {
            !reports(node, &incident.view, incident.now, &policy.spec.unhealthy)
        }
    }
}

/// It was fenced for that a while ago, in another boot, and shows it again.
fn repeated(incident: &Incident<'_>, policy: &Policy) -> Option<Hold> {
    let unhealthy = |fence: &Fence| fence.spec.trigger.kind == Trigger::Unhealthy;
    let before = |other: &&Fence| {
        other.uid != incident.fence.uid && unhealthy(other) && !other.status.attempts.is_empty()
    };
    let fences = incident.view.fences_of(&incident.name).filter(|_| unhealthy(incident.fence));
    let last = fences.filter(before).filter_map(|other| other.status.last_change()).max()?;
    let ago = incident.view.age(last.as_second(), incident.now);
    let left = Duration::from_secs(policy.spec.brakes.repeat_seconds.into()).saturating_sub(ago);
    (!left.is_zero()).then(|| Hold::Repeated { node: Arc::clone(&incident.name), ago, left })
}

fn is_more_than(part: usize, of: usize, percent: u32) -> bool {
    part.saturating_mul(100) > of.saturating_mul(usize::try_from(percent).unwrap_or(usize::MAX))
}

/// Silent ones count, too, though they may still be called Ready: who is deaf hears it from all at once.
fn lost(incident: &Incident<'_>, policy: &Policy) -> (usize, usize) {
    let view = &incident.view;
    let (mut lost, mut of) = (0, 0);
    for node in view.nodes() {
        of += 1;
        lost += usize::from(counts_as_lost(node, incident, policy));
    }
    (lost, of)
}

fn too_many_lost(incident: &Incident<'_>, policy: &Policy) -> Option<Hold> {
    let (lost, of) = lost(incident, policy);
    let percent = policy.spec.brakes.max_unhealthy_percent;
    let closed = lost >= FEWEST_LOST && is_more_than(lost, of, percent);
    closed.then_some(Hold::TooManyLost { lost, of, percent })
}

/// How many nodes of its zone are not Ready, or show what it is fenced for, of how many.
fn of_zone(node: &Node, policy: &Policy, incident: &Incident<'_>) -> (usize, usize) {
    let count = incident.view.zone(&node.zone);
    let (not_ready, of) = (count.not_ready, count.counted());
    if incident.fence.spec.trigger.kind != Trigger::Unhealthy {
        return (not_ready, of);
    }
    let of_it = incident.view.nodes().filter(|other| other.zone == node.zone && !other.excluded);
    (of_it.filter(|other| counts_as_lost(other, incident, policy)).count().max(not_ready), of)
}

fn zone_in_trouble(node: &Node, policy: &Policy, incident: &Incident<'_>) -> Option<Hold> {
    let percent = policy.spec.brakes.max_unhealthy_zone_percent;
    let (not_ready, of) = of_zone(node, policy, incident);
    let closed = not_ready >= FEWEST_LOST_IN_ZONE && is_more_than(not_ready, of, percent);
    closed.then(|| Hold::ZoneInTrouble { zone: Arc::clone(&node.zone), not_ready, of, percent })
}

fn our_node(incident: &Incident<'_>) -> Option<Hold> {
    let ours = incident.config.our_node.as_ref()?;
    (*ours == incident.name).then(|| Hold::SelfNode { node: Arc::clone(ours) })
}

fn no_devices(incident: &Incident<'_>, policy: &Policy) -> Option<Hold> {
    let why = levels::none_usable(policy, incident)?;
    Some(Hold::NoDevices { policy: Arc::clone(&policy.name), why })
}

fn others<'a>(incident: &Incident<'a>) -> impl Iterator<Item = &'a Fence> + use<'a> {
    let (view, uid) = (incident.view, &incident.fence.uid);
    view.fences().filter(move |other| other.uid != *uid && !other.deleting)
}

/// In which order they go: the higher priority first, then who is lost before who is unhealthy and reports, then who came
/// first, then by name.
fn turn(fence: &Fence, policy: &Policy) -> (Reverse<i32>, bool, Mono, Arc<str>) {
    let reports = fence.spec.trigger.kind == Trigger::Unhealthy;
    (Reverse(policy.spec.priority), reports, fence.first_seen, Arc::clone(&fence.name))
}

/// A node that is drained has its turn already, among those that report and have not begun. Who is lost does not wait for it.
fn being_fenced(incident: &Incident<'_>) -> usize {
    let soft = incident.fence.spec.trigger.kind == Trigger::Unhealthy && !drain::has_begun(incident);
    let drains = |other: &Fence| soft && other.status.phase == Phase::Pending && other.status.drain.is_some();
    let mut lost = LostByPolicy::new();
    others(incident)
        .filter(|other| uses_a_place(other, incident, &mut lost, |_| true) || drains(other))
        .count()
}

/// Whether an order is under way, or no gate holds the next one and it `goes_first` by its policy. An incident that is held uses no
/// place: a paused node must not keep the others from being fenced.
fn uses_a_place<'a>(
    other: &'a Fence,
    incident: &Incident<'a>,
    lost: &mut LostByPolicy,
    goes_first: impl Fn(&Policy) -> bool,
) -> bool {
    let may_go_on =
        |(policy, _, closed): (&Policy, _, Vec<Hold>)| goes_first(policy) && closed.iter().all(was_weighed);
    other.status.phase == Phase::Fencing
        && (is_under_way(other) || own_gates_of(other, incident, lost).is_some_and(may_go_on))
}

/// Its last order was sent, or may have been, and its outcome was not verified yet.
fn is_under_way(fence: &Fence) -> bool {
    fence.status.attempts.last().is_some_and(|last| last.verified.is_none())
}

/// Whether too many nodes are lost, by policy and by what they are fenced for. A scan of all nodes is made once for each policy, not for each incident.
type LostByPolicy = BTreeMap<(Arc<str>, bool), Option<Hold>>;

/// The gates of another incident that do not ask what others do, and its policy. None: it is held without them.
fn own_gates_of<'a>(
    fence: &'a Fence,
    incident: &Incident<'a>,
    lost: &mut LostByPolicy,
) -> Option<(&'a Policy, Incident<'a>, Vec<Hold>)> {
    let node = match incident.view.node(&fence.spec.node.name) {
        Lookup::Known(node) => Some(node),
        Lookup::Absent => None,
        Lookup::Unknown(_) => return None,
    };
    let other = Incident::new(fence, node, &incident.view, incident.now, incident.config);
    let policy = other.policy().filter(|policy| !is_dry(fence, policy))?;
    let kind = (Arc::clone(&policy.name), fence.spec.trigger.kind == Trigger::Unhealthy);
    let lost = lost.entry(kind).or_insert_with(|| too_many_lost(&other, policy)).clone();
    let closed = own(&other, policy, lost);
    Some((policy, other, closed))
}

/// Its place may have gone to another while it was held. Of several that could go on, those go first whose turn it is.
fn concurrency_again(incident: &Incident<'_>, policy: &Policy) -> Option<Hold> {
    let most = policy.spec.brakes.max_concurrent;
    let (mine, mut lost) = (turn(incident.fence, policy), LostByPolicy::new());
    let uses = |other: &&Fence| uses_a_place(other, incident, &mut lost, |theirs| turn(other, theirs) < mine);
    let fencing = others(incident).filter(uses).count();
    let limit = usize::try_from(most).unwrap_or(usize::MAX);
    (fencing >= limit).then_some(Hold::Concurrency { fencing, ahead: 0, most })
}

/// `is_next`: nothing else holds it back, so that it is of interest who goes before it.
fn concurrency(incident: &Incident<'_>, policy: &Policy, is_next: bool) -> Option<Hold> {
    let most = policy.spec.brakes.max_concurrent;
    let limit = usize::try_from(most).unwrap_or(usize::MAX);
    let fencing = being_fenced(incident);
    let ahead = if is_next && fencing < limit { ahead(incident, policy) } else { 0 };
    (fencing + ahead >= limit).then_some(Hold::Concurrency { fencing, ahead, most })
}

/// How many others that could begin now go before it. Those that are held back themselves keep nobody waiting.
fn ahead(incident: &Incident<'_>, policy: &Policy) -> usize {
    let (mine, mut lost) = (turn(incident.fence, policy), LostByPolicy::new());
    let goes_first = |other: &&Fence| {
        other.status.phase == Phase::Pending
            && !other.spec.cancelled
            && own_gates_of(other, incident, &mut lost).is_some_and(|(policy, other, closed)| {
                turn(other.fence, policy) <= mine
                    && other.is_well_again().is_none()
                    && drain::may_begin(&closed)
            })
    };
    others(incident).filter(goes_first).count()
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

/// All gates as a status shows them: those that are open, too, with what they come to.
pub(super) fn record(incident: &Incident<'_>, policy: &Policy, closed: &[Hold]) -> Vec<Gate> {
    let of = |name: &&str| {
        let hold = closed.iter().find(|hold| *hold.reason() == **name);
        let message = hold.map_or_else(|| numbers(name, incident, policy), ToString::to_string);
        Gate { name: (*name).to_owned(), holds: hold.is_some(), message }
    };
    NAMES.iter().map(of).collect()
}

/// What a gate that is open comes to, if it counts something.
fn numbers(gate: &str, incident: &Incident<'_>, policy: &Policy) -> String {
    let brakes = &policy.spec.brakes;
    let left = |what: &str, left: Option<quorum::Left>| {
        left.map(|left| format!("without it {} of {} {what} are Ready", left.well, left.of))
    };
    let words = match (gate, incident.node()) {
        ("LargeOutage", _) => {
            let ((lost, of), percent) = (lost(incident, policy), brakes.max_unhealthy_percent);
            Some(format!("{lost} of {of} nodes {} lost; the limit is {percent} %", are(lost)))
        }
        ("ZoneInTrouble", Some(node)) => {
            let percent = brakes.max_unhealthy_zone_percent;
            let (not_ready, of) = of_zone(node, policy, incident);
            let are = are(not_ready);
            Some(format!("{not_ready} of {of} nodes of its zone {are} not ready; the limit is {percent} %"))
        }
        ("ControlPlane", Some(node)) => left("such nodes", quorum::nodes_left(node, policy, incident)),
        ("EtcdQuorum", Some(node)) => left("etcd members", quorum::members_left(node, policy, incident)),
        (COLLATERAL, Some(node)) => {
            let chosen = collateral::chosen(node, incident);
            let of = |(budget, here): &(&Budget, usize)| {
                let (healthy, needed) = (budget.status.current_healthy, budget.status.desired_healthy);
                format!("{}: {healthy} healthy, {here} of them here, {needed} needed", budget.key)
            };
            Some(chosen.iter().take(BUDGETS_MOST).map(of).collect::<Vec<_>>().join("; "))
        }
        ("Concurrency", _) => {
            let (fencing, most) = (being_fenced(incident), brakes.max_concurrent);
            Some(format!("{fencing} others are being fenced; at most {most} at a time"))
        }
        ("Cooldown", _) => Some(format!("no other node was fenced in the last {}s", brakes.cooldown_seconds)),
        _ => None,
    };
    words.unwrap_or_default()
}

/// Whether others are closed than a status shows, or it shows none.
pub(super) fn differ(shown: &[Gate], closed: &[Hold]) -> bool {
    let before: BTreeSet<&str> =
        shown.iter().filter(|gate| gate.holds).map(|gate| gate.name.as_str()).collect();
    let after: BTreeSet<&str> = closed.iter().map(HoldReason::reason).collect();
    shown.is_empty() || before != after
}
