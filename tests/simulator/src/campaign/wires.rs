//! The part of a drawn plan that concerns what processes under test receive: one watch that hangs beside working ones,
//! answers of 403, of a timeout, or that break off, and different settings before an upgrade.

use super::plan::{Fault, Plan, Trouble};
use crate::chance::{Chance, Draws};

/// The share of seeds that have them, of those in which API servers are disturbed at all, in percent.
const TROUBLED: u64 = 40;
/// The share of those in which all processes are replaced by newer ones, one after the other, in percent.
const UPGRADED: u64 = 25;
/// From one replacement to the next: the grace of a pod, and a margin.
const APART: u64 = 35;
/// When the first of them may begin.
const BEGIN: u64 = 20;
/// The kinds that processes under test always watch.
const KINDS: [&str; 3] = ["Node", "Lease", "Pod"];
/// The other faults of requests.
const TROUBLES: [Trouble; 4] = [Trouble::Error(401), Trouble::Error(403), Trouble::Error(504), Trouble::CutAnswer];

/// Adds them to the plan of some seeds. Uses random numbers of its own: the rest of the plan stays as it was.
pub(super) fn add(plan: &mut Plan) {
    let mut draws = Draws::new(Chance::new(plan.seed).part("wires", 0));
    let troubled = plan.faults.iter().any(|(_, fault)| fault.troubles_control().is_some());
    // Worlds without disturbances, where the rules are strictest, stay so.
    if !troubled || !draws.percent(TROUBLED) {
        return;
    }
    for _ in 0..1 + draws.below(3) {
        let at = BEGIN + draws.below(plan.heal_at - BEGIN - 5);
        let replica = draws.index(plan.replicas);
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
        let replaced = |replica: usize| (at + APART * replica as u64, Fault::StopReplica { replica, seconds: 1 });
        plan.faults.extend((0..plan.replicas).map(replaced));
    }
    plan.faults.sort_by_key(|(at, _)| *at);
}
