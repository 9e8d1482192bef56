//! Whether a node has stopped reporting, or this process is cut off. Pure. The page of the crate states the rules.

use std::time::Duration;

use crate::holds::Hold;
use pod_safety_shared::authority::NotReporting;
use pod_safety_shared::cache::{View, WATCH_GAP};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{Kind, Node, Readiness};

/// While most nodes seem lost, decisions wait this long and are made again this often: a process that was stopped for
/// a while reads its backlog in less.
const SETTLE: Duration = Duration::from_secs(2);

/// With fewer Ready nodes a majority is meaningless.
const MIN_NODES: usize = 3;

/// The heartbeat of a node as this process sees it.
pub(super) enum HeartbeatState {
    /// The node reports; without another report it counts as lost at this moment.
    Reporting(Mono),
    /// It has not reported for too long.
    NotReporting(NotReporting),
    /// It seems lost, and so do too many others; to be decided again at this moment.
    Uncertain(Hold, Mono),
}

/// The grace periods.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grace {
    /// Since its last report.
    pub(super) unreachable_after: Duration,
    /// Since its creation, if it never reported its conditions.
    pub(super) startup: Duration,
    /// Since when this process leads: a process that does not reach the API server does not lead.
    pub(super) led_since: Option<Mono>,
}

/// Two of the renewals that fit into the grace period (five, by default): a single one may be late by chance.
pub(super) fn two_renewals(unreachable_after: Duration) -> Duration {
    unreachable_after * 2 / 5
}

/// Checks the heartbeat of this node now.
pub(super) fn check_heartbeat(node: &Node, view: &View<'_>, now: Mono, grace: Grace) -> HeartbeatState {
    let (last_heard, mut deadline) = deadline(node, view, grace);
    let uncertain = |again| HeartbeatState::Uncertain(large_outage(node, view, now, grace), again);
    // `check_fresh` for this key has ensured that Leases were listed.
    let state = view.state(Kind::NodeLeases);
    let (since, last) = (state.watched_since.unwrap_or(now), state.last_event.unwrap_or_default());
    // If the watch had an event after the node was due, it would have had the node's renewal, however long it has
    // been quiet since. Otherwise it is uncertain.
    if deadline <= now && last < deadline && now.since(last) > WATCH_GAP {
        return uncertain(now + SETTLE);
    }
    let renewals = two_renewals(grace.unreachable_after);
    deadline = deadline.max(since + renewals);
    if now < deadline {
        return HeartbeatState::Reporting(deadline);
    }
    // The events may have been bookmarks only, which an API server sends that cannot write renewals: then no process
    // leads.
    let breaks = now.since(last) > WATCH_GAP;
    match grace.led_since {
        Some(led) if (breaks || led < since + renewals) && now < led + renewals => {
            return HeartbeatState::Reporting(led + renewals);
        }
        None if breaks => return uncertain(now + SETTLE),
        Some(_) | None => {}
    }
    if let Some(settled) = majority_overdue_since(view, now, grace).map(|since| since + SETTLE)
        && now < settled
    {
        return uncertain(settled);
    }
    HeartbeatState::NotReporting(NotReporting {
        last_report: last_heard,
        renewed: view.lease(&node.name).flatten(),
        heartbeat: node.heartbeat,
        never_posted: node.readiness == Readiness::Missing,
    })
}

/// The last report of the node, and its deadline.
fn deadline(node: &Node, view: &View<'_>, grace: Grace) -> (Mono, Mono) {
    let last_report = view.last_report(node);
    match node.readiness {
        Readiness::Ready | Readiness::NotReady | Readiness::Unknown => {
            (last_report, last_report + grace.unreachable_after)
        }
        // It has a Lease, or was seen to renew it or to lose its condition: the grace period counts from its last
        // report.
        Readiness::Missing if last_report > node.first_seen || view.lease(&node.name).is_some() => {
            (last_report, last_report + grace.startup)
        }
        Readiness::Missing => {
            let born = node.first_seen.since_start().saturating_sub(node.age);
            (Mono::from_start(born), node.first_seen + grace.startup.saturating_sub(node.age))
        }
    }
}

/// If more than half of the Ready nodes are overdue: since when.
fn majority_overdue_since(view: &View<'_>, now: Mono, grace: Grace) -> Option<Mono> {
    let mut reports = view.last_reports_of_ready_nodes();
    let of = reports.len();
    if of < MIN_NODES {
        return None;
    }
    // The first node with which it is more than half.
    reports.nth(of / 2).map(|reported_at| reported_at + grace.unreachable_after).filter(|deadline| *deadline <= now)
}

/// The Ready nodes, and `node`, which is overdue whether it is Ready or not.
fn large_outage(node: &Node, view: &View<'_>, now: Mono, grace: Grace) -> Hold {
    let reports = view.last_reports_of_ready_nodes();
    let itself = usize::from(node.readiness != Readiness::Ready);
    let of = reports.len() + itself;
    let lost = reports.take_while(|reported_at| *reported_at + grace.unreachable_after <= now).count() + itself;
    Hold::LargeOutage { lost, of }
}
