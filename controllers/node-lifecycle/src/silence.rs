//! Whether a node is silent, or we are deaf. Pure. The page of the controller says the rules.

use std::time::Duration;

use crate::holds::Hold;
use pod_safety_shared::authority::Silence;
use pod_safety_shared::cache::{BREAK, View};
use pod_safety_shared::clock::Mono;
use pod_safety_shared::model::{Kind, Node, Readiness};

/// While most of the nodes seem lost, so long is waited, and this often it is looked again: what
/// a process that was stopped for a while has not read yet, it reads within less.
const SETTLE: Duration = Duration::from_secs(2);

/// Of fewer Ready nodes a majority says nothing.
const FEWEST: usize = 3;

/// What is thought of a node.
pub(super) enum Heard {
    /// It is heard; if it is not again, it is silent at this moment.
    Until(Mono),
    /// It has been silent for too long.
    Not(Silence),
    /// It seems so, and so do too many others; to be asked again at this moment.
    Doubtful(Hold, Mono),
}

/// How long a node may be silent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grace {
    /// Since it was last heard.
    pub(super) silent: Duration,
    /// Since its birth, if it never said how it is.
    pub(super) startup: Duration,
    /// Since when this process leads: who does not reach the API server does not.
    pub(super) led_since: Option<Mono>,
}

/// For a kubelet's renewals that fit into the grace (five, by default) two are waited: fewer may be late by chance.
pub(super) fn two_renewals(silent: Duration) -> Duration {
    silent * 2 / 5
}

/// What is thought of this node now.
pub(super) fn listen(node: &Node, view: &View<'_>, now: Mono, grace: Grace) -> Heard {
    let (last_heard, mut deadline) = deadline(node, view, grace);
    let doubtful = |again| Heard::Doubtful(us(view, now, grace), again);
    // That it was listed is what this key needs.
    let state = view.state(Kind::NodeLeases);
    let (since, last) = (state.unbroken_since.unwrap_or(now), state.last_news.unwrap_or_default());
    // Whoever has spoken after it was due had nothing to say of it, however silent he is since.
    if deadline <= now && last < deadline && now.since(last) > BREAK {
        return doubtful(now + SETTLE);
    }
    let back = two_renewals(grace.silent);
    deadline = deadline.max(since + back);
    if now < deadline {
        return Heard::Until(deadline);
    }
    // It may have spoken in bookmarks alone, as an API server does that cannot take renewals: nobody leads then.
    let breaks = now.since(last) > BREAK;
    match grace.led_since {
        Some(led) if (breaks || led < since + back) && now < led + back => return Heard::Until(led + back),
        None if breaks => return doubtful(now + SETTLE),
        Some(_) | None => {}
    }
    if let Some(settled) = most_are_overdue_since(view, now, grace).map(|since| since + SETTLE)
        && now < settled
    {
        return doubtful(settled);
    }
    Heard::Not(Silence {
        last_heard,
        renewed: view.lease(&node.name).flatten(),
        heartbeat: node.heartbeat,
        never_posted: node.readiness == Readiness::Missing,
    })
}

/// When it was last heard, and until when it may be silent.
fn deadline(node: &Node, view: &View<'_>, grace: Grace) -> (Mono, Mono) {
    let heard = view.last_heard(node);
    match node.readiness {
        Readiness::Ready | Readiness::NotReady | Readiness::Unknown => (heard, heard + grace.silent),
        // It has a Lease, or was seen to renew it or to lose its condition: not silent from birth.
        Readiness::Missing if heard > node.first_seen || view.lease(&node.name).is_some() => {
            (heard, heard + grace.startup)
        }
        Readiness::Missing => {
            let born = node.first_seen.since_start().saturating_sub(node.age);
            (Mono::from_start(born), node.first_seen + grace.startup.saturating_sub(node.age))
        }
    }
}

/// If more than half of the Ready nodes are overdue: since when.
fn most_are_overdue_since(view: &View<'_>, now: Mono, grace: Grace) -> Option<Mono> {
    let mut heard = view.ready_nodes_heard();
    let of = heard.len();
    if of < FEWEST {
        return None;
    }
    // The first with which it is more than half.
    heard.nth(of / 2).map(|heard| heard + grace.silent).filter(|deadline| *deadline <= now)
}

fn us(view: &View<'_>, now: Mono, grace: Grace) -> Hold {
    let heard = view.ready_nodes_heard();
    let of = heard.len();
    let silent = heard.take_while(|heard| *heard + grace.silent <= now).count();
    Hold::LargeOutage { silent, of }
}
