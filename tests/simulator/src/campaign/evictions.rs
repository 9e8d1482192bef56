//! The part of a drawn plan that is about requests to evict pods: who requests, withdraws and requests again, how the
//! responders of applications behave, and the feature gate that is switched off meanwhile.

use serde::{Deserialize, Serialize};

use super::plan::{Fault, Keeper, Limit, Plan};
use crate::chance::{Chance, Draws};

/// How the responder of an application behaves when it is its turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Behavior {
    /// It moves its data, evicts the pod, and completes when that is gone.
    #[default]
    Moves,
    /// It works for a while and completes; the pod stays.
    HandsOver,
    /// It completes at once.
    Declines,
    /// It never reports.
    Stalls,
    /// It reports that the pod is gone, while that runs.
    Lies,
    /// It reports once, crashes, and goes on when it is back.
    Crashes,
}

/// The Eviction API of a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Evictions {
    /// The responder of the application that has the first turn.
    pub first: Behavior,
    /// Another one after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub second: Option<Behavior>,
    /// Pods also name the responder for lost nodes, whose turn is before theirs.
    pub lost_node: bool,
    /// So many seconds the clocks of responders are ahead.
    #[serde(skip_serializing_if = "is_zero")]
    pub skew: i64,
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// How a request is withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Withdrawal {
    /// By its intent; it is deleted when it says `Failed`, or half a minute later.
    Properly,
    /// It is deleted at once.
    Delete,
    /// By its intent, which changes back some seconds later.
    Again,
}

/// Of so many seeds the last one has requests.
const EACH: u64 = 4;
/// When the first request may be made: the pods run.
const BEGIN: u64 = 25;
/// So long before the healing the gate is on again: a process asks once in 90 s whether the API is served.
const GATE_SPARE: u64 = 20;
/// When people go on after the healing, and for how long.
const WELL_AFTER: u64 = 86;
const EXAM: u64 = 30;

/// Adds requests to the plan of some seeds. Drawn from a chance of their own: the rest of the plan is what it was.
pub(super) fn add(plan: &mut Plan) {
    if plan.seed % EACH < EACH - 1 {
        return;
    }
    let mut draws = Draws::new(Chance::new(plan.seed).part("eviction requests", 0));
    plan.with.evictions = Some(drawn(&mut draws));
    // Some worlds are calm where pods are evicted: there the rules are strictest. An upgrade has to come to its end.
    if draws.percent(40) && !plan.with.upgrade {
        plan.faults.retain(|(_, fault)| fault.troubles_control().is_none());
    }
    let deploys = plan.faults.iter().any(|(_, fault)| matches!(fault, Fault::Deploy { .. }));
    // Where kube-controller-manager keeps the nodes, it keeps the budgets, too.
    if draws.percent(40) && !deploys && plan.with.nodes != Keeper::Guarded {
        plan.faults.push((BEGIN - 8, deployed(&mut draws)));
    }
    let end = plan.heal_at - 10;
    for _ in 0..3 + draws.below(7) {
        let at = BEGIN + draws.below(end - BEGIN);
        let faults = requested(plan, at, &mut draws);
        plan.faults.extend(faults.into_iter().map(|(at, fault)| (at.min(end), fault)));
    }
    if draws.percent(12) {
        let seconds = 10 + draws.below(80);
        let at = BEGIN + draws.below(plan.heal_at - GATE_SPARE - BEGIN - seconds);
        plan.faults.push((at, Fault::SwitchGateOff { seconds }));
    }
    for _ in 0..1 + draws.below(3) {
        let at = plan.heal_at + WELL_AFTER + draws.below(EXAM);
        let pod = target(plan, &mut draws);
        let requester = draws.index(4);
        plan.faults.push((at, Fault::RequestEviction { pod, requester, stale: false }));
    }
    plan.faults.sort_by_key(|(at, _)| *at);
}

/// Mostly a pod of the StatefulSet; else any other, by its number among them.
fn target(plan: &Plan, draws: &mut Draws) -> usize {
    if draws.percent(65) { draws.index(plan.pods) } else { plan.pods + draws.index(8) }
}

fn behavior(draws: &mut Draws) -> Behavior {
    match draws.below(20) {
        0..=6 => Behavior::Moves,
        7..=10 => Behavior::HandsOver,
        11..=13 => Behavior::Declines,
        14..=15 => Behavior::Lies,
        16..=18 => Behavior::Crashes,
        // A turn of 20 minutes is a run of half an hour.
        _ => Behavior::Stalls,
    }
}

fn drawn(draws: &mut Draws) -> Evictions {
    Evictions {
        first: behavior(draws),
        second: draws.percent(35).then(|| behavior(draws)),
        lost_node: draws.percent(40),
        skew: draws.choose(&[0, 0, 0, 25, -25]).copied().unwrap_or(0),
    }
}

/// A workload whose budget lets one pod go at a time, or none.
fn deployed(draws: &mut Draws) -> Fault {
    Fault::Deploy {
        workload: 0,
        replicas: 2 + draws.below(3),
        keeps_names: draws.percent(50),
        start_up: draws.below(8),
        limit: Limit::MaxUnavailable(u64::from(!draws.percent(30))),
    }
}

/// A request, and what may follow.
fn requested(plan: &Plan, at: u64, draws: &mut Draws) -> Vec<(u64, Fault)> {
    let (pod, requester) = (target(plan, draws), draws.index(4));
    let mut faults = vec![(at, Fault::RequestEviction { pod, requester, stale: draws.percent(5) })];
    let again = |requester| Fault::RequestEviction { pod, requester, stale: false };
    if draws.percent(25) {
        let other = (requester + 1) % 4;
        faults.push((at + draws.below(10), again(other)));
    }
    if draws.percent(40) {
        let how = match draws.below(3) {
            0 => Withdrawal::Properly,
            1 => Withdrawal::Delete,
            _ => Withdrawal::Again,
        };
        let then = at + 1 + draws.below(40);
        faults.push((then, Fault::WithdrawRequest { requester, how }));
        if draws.percent(50) {
            // The same requester, or another one at the very moment.
            let requester = if draws.percent(50) { requester } else { (requester + 2) % 4 };
            faults.push((then + draws.below(2), again(requester)));
        }
    }
    if draws.percent(20) && plan.with.fencing.is_none() {
        // Its node is lost in the middle of it.
        let node = draws.index(plan.nodes);
        faults.push((at + draws.below(30), Fault::CutNode { node, seconds: 20 + draws.below(120) }));
    }
    if draws.percent(10) {
        faults.push((at + draws.below(20), Fault::DeletePod { pod: draws.index(plan.pods) }));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::draw;

    #[test]
    fn a_quarter_of_the_seeds_has_requests_and_the_others_are_as_before() {
        let of_evictions = |fault: &Fault| {
            matches!(fault, Fault::RequestEviction { .. } | Fault::WithdrawRequest { .. } | Fault::SwitchGateOff { .. })
        };
        for seed in 0..400 {
            let plan = draw(seed);
            let has = plan.faults.iter().any(|(_, fault)| of_evictions(fault));
            assert_eq!((has, plan.with.evictions.is_some()), (seed % 4 == 3, seed % 4 == 3), "{seed}");
        }
    }
}
