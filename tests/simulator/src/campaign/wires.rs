//! The part of a drawn plan that is about what processes under test hear: one watch that falls silent beside live ones,
//! answers that say that they may not, that it took too long, or that break off, and other terms before an upgrade.

use super::plan::{Fault, Plan, Trouble};
use crate::chance::{Chance, Draws};

/// So many of a hundred seeds have them, of those in which API servers are troubled at all.
const TROUBLED: u64 = 40;
/// In so many of a hundred of those all processes are replaced by newer ones, one after the other.
const UPGRADED: u64 = 25;
/// From one replacement to the next: the grace of a pod, and then some.
const APART: u64 = 35;
/// When the first of them may begin.
const BEGIN: u64 = 20;
/// What processes under test watch everywhere.
const KINDS: [&str; 3] = ["Node", "Lease", "Pod"];
/// What else may become of requests.
const TROUBLES: [Trouble; 4] =
    [Trouble::Error(401), Trouble::Error(403), Trouble::Error(504), Trouble::CutAnswer];

/// Adds them to the plan of some seeds. Drawn from a chance of their own: the rest of the plan is what it was.
pub(super) fn add(plan: &mut Plan) {
    let mut draws = Draws::new(Chance::new(plan.seed).part("wires", 0));
    let troubled = plan.faults.iter().any(|(_, fault)| fault.troubles_control().is_some());
    // Some worlds are calm where the rules are strictest, and stay so.
    if !troubled || !draws.percent(TROUBLED) {
        return;
    }
    for _ in 0..1 + draws.below(3) {
        let at = BEGIN + draws.below(plan.heal_at - BEGIN - 5);
        let replica = usize::try_from(draws.below(plan.replicas as u64)).unwrap_or(0);
        let seconds = 5 + draws.below(60);
        let fault = if draws.percent(50) {
            let kind = draws.choose(&KINDS).copied().unwrap_or("Node").to_owned();
            Fault::SilenceWatch { replica, kind, seconds }
        } else {
            let trouble = draws.choose(&TROUBLES).copied().unwrap_or(Trouble::CutAnswer);
            Fault::TroubleReplica { replica, trouble, percent: 20 + draws.below(81), seconds }
        };
        plan.faults.push((at, fault));
    }
    if draws.percent(UPGRADED) {
        plan.with.upgrade = true;
        let at = BEGIN + draws.below(80);
        let replaced =
            |replica: usize| (at + APART * replica as u64, Fault::StopReplica { replica, seconds: 1 });
        plan.faults.extend((0..plan.replicas).map(replaced));
    }
    plan.faults.sort_by_key(|(at, _)| *at);
}
