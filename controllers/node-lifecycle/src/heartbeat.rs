//! Whether a node is silent, or we are deaf. Pure. The page of the controller says the rules.

use std::time::Duration;

use crate::holds::Hold;
use pod_safety_shared::authority::NotReporting;
use pod_safety_shared::cache::{View, WATCH_GAP};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{Kind, Node, Readiness};

/// While most of the nodes seem lost, so long is waited, and this often it is looked again: what
/// a process that was stopped for a while has not read yet, it reads within less.
const SETTLE: Duration = Duration::from_secs(2);

/// Of fewer Ready nodes a majority says nothing.
const MIN_NODES: usize = 3;

/// What is thought of a node.
pub(super) enum HeartbeatState {
    /// It is heard; if it is not again, it is silent at this moment.
    Reporting(Mono),
    /// It has been silent for too long.
    NotReporting(NotReporting),
    /// It seems so, and so do too many others; to be asked again at this moment.
    Uncertain(Hold, Mono),
}

/// How long a node may be silent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grace {
    /// Since it was last heard.
    pub(super) unreachable_after: Duration,
    /// Since its birth, if it never said how it is.
    pub(super) startup: Duration,
    /// Since when this process leads: who does not reach the API server does not.
    pub(super) led_since: Option<Mono>,
}

/// For a kubelet's renewals that fit into the grace (five, by default) two are waited: fewer may be late by chance.
pub(super) fn two_renewals(unreachable_after: Duration) -> Duration {
    unreachable_after * 2 / 5
}

/// What is thought of this node now.
pub(super) fn check_heartbeat(node: &Node, view: &View<'_>, now: Mono, grace: Grace) -> HeartbeatState {
    let (last_heard, mut deadline) = deadline(node, view, grace);
    let uncertain = |again| HeartbeatState::Uncertain(large_outage(view, now, grace), again);
    // That it was listed is what this key needs.
    let state = view.state(Kind::NodeLeases);
    let (since, last) = (state.watched_since.unwrap_or(now), state.last_event.unwrap_or_default());
    // Whoever has spoken after it was due had nothing to say of it, however silent he is since.
    if deadline <= now && last < deadline && now.since(last) > WATCH_GAP {
        return uncertain(now + SETTLE);
    }
    let renewals = two_renewals(grace.unreachable_after);
    deadline = deadline.max(since + renewals);
    if now < deadline {
        return HeartbeatState::Reporting(deadline);
    }
    // It may have spoken in bookmarks alone, as an API server does that cannot take renewals: nobody leads then.
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

/// When it was last heard, and until when it may be silent.
fn deadline(node: &Node, view: &View<'_>, grace: Grace) -> (Mono, Mono) {
    let last_report = view.last_report(node);
    match node.readiness {
        Readiness::Ready | Readiness::NotReady | Readiness::Unknown => {
            (last_report, last_report + grace.unreachable_after)
        }
        // It has a Lease, or was seen to renew it or to lose its condition: not silent from birth.
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
    // The first with which it is more than half.
    reports.nth(of / 2).map(|heard| heard + grace.unreachable_after).filter(|deadline| *deadline <= now)
}

fn large_outage(view: &View<'_>, now: Mono, grace: Grace) -> Hold {
    let reports = view.last_reports_of_ready_nodes();
    let of = reports.len();
    let silent = reports.take_while(|heard| *heard + grace.unreachable_after <= now).count();
    Hold::LargeOutage { silent, of }
}
