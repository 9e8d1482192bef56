//! The part of a drawn plan that concerns a provider: in some of the worlds in which nodes are fenced, machines are
//! instances of a cloud whose answers are stale, slow, or lost, and which other clients use too.

use super::fencing::{Fencing, Malfunction};
use super::plan::{Fault, Plan};
use crate::chance::{Chance, Draws};

/// The share of fenced worlds, in percent.
const SHARE: u64 = 30;
/// How stale answers may be, in seconds. Amazon advises to ask again for up to five minutes.
const BEHIND: [u32; 3] = [5, 60, 300];
/// Evidence about a boot that this process has observed for a shorter time has to wait.
const HEAL: u64 = 660;
/// Machines boot within fifteen seconds, so no machine had another incarnation before this.
const FIRST_STOP: u64 = 20;

/// Changes how nodes are fenced, and which faults happen. Uses random numbers of its own.
pub(super) fn add(plan: &mut Plan) {
    let mut draws = Draws::new(Chance::new(plan.seed).part("provider", 0));
    let Some(fencing) = plan.with.fencing.filter(|_| draws.percent(SHARE)) else { return };
    let behind = usize::try_from(draws.below(3)).ok().and_then(|one| BEHIND.get(one).copied());
    plan.with.fencing = Some(Fencing { behind_seconds: behind, tells: false, required: false, pair: false, ..fencing });
    plan.heal_at = HEAL;
    for (_, fault) in &mut plan.faults {
        if let Fault::Malfunction { how, .. } = fault
            && !matches!(how, Malfunction::LateAfterFailure(_))
        {
            *how = malfunction(&mut draws);
        }
    }
    let losses: Vec<_> = plan.faults.iter().filter_map(loss).collect();
    for (at, node) in losses {
        // A stop that a stale answer may show when the node is lost.
        if draws.percent(35) {
            let before = at.saturating_sub(40 + draws.below(80)).max(FIRST_STOP);
            plan.faults.push((before, Fault::PowerOff { node, back: Some(1 + draws.below(40)) }));
        }
        if draws.percent(25) {
            let gone = at + draws.below(150);
            plan.faults.push((gone, Fault::Terminate { node }));
            if draws.percent(50) {
                plan.faults.push((gone + 30 + draws.below(90), Fault::DeleteNode { node }));
            }
        }
        if draws.percent(30) {
            plan.faults.push((at + 60 + draws.below(150), Fault::StartAgain { node }));
        }
    }
}

fn malfunction(draws: &mut Draws) -> Malfunction {
    match draws.below(6) {
        0 => Malfunction::DoneButSilent,
        1 => Malfunction::Throttles,
        2 => Malfunction::RegionLost,
        3 => Malfunction::Unreachable,
        _ => Malfunction::StopsSlowly(5 + draws.below(240)),
    }
}

/// The loss of a node that other clients still treat as lost later.
fn loss((at, fault): &(u64, Fault)) -> Option<(u64, usize)> {
    match fault {
        Fault::CutNode { node, seconds } | Fault::Freeze { node, seconds } if *seconds > 90 => Some((*at, *node)),
        _ => None,
    }
}
