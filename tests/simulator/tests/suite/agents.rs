//! Agents with watchdogs: nodes that no device can switch off, and a second fact beside a switch that reports falsely.
//! Many seeds of them are in `campaign`.

use pod_safety_simulator::campaign::{Agents, Fault, Fencing, Malfunction, Plan, Plant};
use pod_safety_simulator::checker::Invariant;
use pod_safety_simulator::world::{Subject, run};

use crate::fencing::{BEGIN, BLIND, LONG, plan, seen};
use crate::runs::{seconds_of_lines, well};
use crate::shipped;

const ALONE: Fencing = Fencing { agents: Some(Agents::Alone), ..BLIND };
const SECOND: Fencing = Fencing { agents: Some(Agents::Second), ..BLIND };

const REVOKED: &str = "takes back the promise of the agent of node-0";
const PROVED: &str = "writes the evidence node-0";
const RESET: &str = "the watchdog resets node-0";

fn with(fencing: Fencing, faults: Vec<(u64, Fault)>) -> Plan {
    Plan { heal_at: 480, ..plan(fencing, faults) }
}

const fn cut(seconds: u64) -> (u64, Fault) {
    (BEGIN, Fault::CutNode { node: 0, seconds })
}

#[test]
fn a_node_without_a_power_switch_is_released_by_its_watchdog_lease() {
    let outcome = well(&with(ALONE, vec![cut(LONG)]));
    let [revoked, proved] = [REVOKED, PROVED].map(|words| seconds_of_lines(&outcome, &[words]));
    assert!(revoked.len() == 1 && proved.len() == 1 && revoked < proved, "{:#?}", outcome.timeline);
    assert!(seen(&outcome, "an agent ended a process") > 0);
    assert!(!seconds_of_lines(&outcome, &["marked terminated by replica"]).is_empty(), "{:#?}", outcome.timeline);
    // It reads that it was revoked when the cable is back, and the next boot reports.
    let reset = seconds_of_lines(&outcome, &[RESET]);
    assert!(reset.iter().all(|at| *at >= BEGIN + LONG) && reset.len() == 1, "{reset:?}");
    assert!(!seconds_of_lines(&outcome, &["is Done"]).is_empty(), "{:#?}", outcome.timeline);
}

/// The switch reports off from a cache. Without the agents that counts as evidence, and is counted as a limit.
#[test]
fn a_switch_that_lies_releases_nothing_that_an_agent_has_not_ended() {
    let lies = Fault::Malfunction { node: 0, how: Malfunction::StaleOff, seconds: LONG };
    let faults = vec![(BEGIN - 10, lies), cut(LONG)];
    let lied = "limit: a device lied of a machine that ran";
    assert_eq!(seen(&well(&plan(BLIND, faults.clone())), lied), 1, "it is not believed without agents");
    let outcome = well(&with(SECOND, faults));
    assert_eq!(seen(&outcome, lied), 0);
    let (revoked, proved) = (seconds_of_lines(&outcome, &[REVOKED]), seconds_of_lines(&outcome, &[PROVED]));
    assert!(revoked.len() == 1 && proved.len() == 1 && revoked < proved, "{:#?}", outcome.timeline);
}

#[test]
fn an_agent_that_stands_still_or_cannot_end_a_process_has_its_machine_reset() {
    let still = Fault::PauseAgent { node: 0, seconds: LONG };
    let stuck = Fault::StuckProcesses { node: 0, seconds: LONG };
    for fault in [still, stuck] {
        let outcome = well(&with(ALONE, vec![(BEGIN - 1, fault), cut(LONG)]));
        let reset = seconds_of_lines(&outcome, &[RESET]);
        assert!(reset.first().is_some_and(|at| (BEGIN..BEGIN + 25).contains(at)), "{reset:?}");
    }
}

/// The API server is away: pods end everywhere, and no machine is reset.
#[test]
fn an_outage_of_the_api_server_resets_no_machine() {
    let away = |server| (BEGIN, Fault::CutServer { server, answers_lost: false, seconds: 120 });
    let outcome = well(&with(ALONE, vec![away(0), away(1)]));
    assert_eq!(seen(&outcome, "a watchdog reset a machine"), 0, "{:#?}", outcome.timeline);
    assert_eq!(seen(&outcome, "evidence was written"), 0);
    assert!(seen(&outcome, "an agent ended a process") > 2);
    assert!(seen(&outcome, "an agent let a kubelet start again") > 2);
}

/// Lost answers, requests that arrive late, and an agent that is killed again and again.
#[test]
fn a_grant_with_a_lost_answer_still_counts() {
    use pod_safety_simulator::campaign::Trouble;
    let mut faults: Vec<_> = [Trouble::LoseAnswer, Trouble::Delay(2_000)]
        .into_iter()
        .map(|trouble| (BEGIN, Fault::TroubleNode { node: 0, trouble, percent: 25, seconds: 100 }))
        .collect();
    faults.push((BEGIN + 150, Fault::KillAgent { node: 0, seconds: 3 }));
    faults.push((BEGIN + 170, Fault::KillAgent { node: 0, seconds: 4 }));
    let outcome = well(&with(ALONE, faults));
    assert_eq!(seen(&outcome, "evidence was written"), 0, "{:#?}", outcome.timeline);
}

/// Every process hangs, and a pod is deleted: in half of the seeds its process ends without a report of the runtime.
fn overdue(seed: u64) -> Plan {
    let stuck = (0..3).map(|node| (BEGIN, Fault::StuckProcesses { node, seconds: LONG }));
    let faults = stuck.chain([(BEGIN + 5, Fault::DeletePod { pod: 0 })]).collect();
    Plan { seed, ..with(ALONE, faults) }
}

/// Its node is healthy, so nothing is fenced. Only ended processes are released.
#[test]
fn a_pod_that_its_kubelet_does_not_end_is_released_when_its_agent_reports_its_end() {
    let (mut released, mut held) = (0, 0);
    for seed in 1..13 {
        let outcome = well(&overdue(seed));
        let ended = seen(&outcome, "a process ended, and its kubelet could not say so");
        let removed = seen(&outcome, "marked terminated on PodsEnded");
        assert!(removed <= ended, "seed {seed}: {:#?}", outcome.timeline);
        released += removed;
        held += u64::from(removed == 0);
    }
    assert!(released > 0 && held > 0, "{released} {held}");
}

#[test]
fn bug_an_agent_that_reports_running_pods_as_ended_is_caught() {
    assert!(guilty(Plant::ReportsAll, (1..13).map(overdue)) > 0);
}

fn guilty(plant: Plant, plans: impl Iterator<Item = Plan>) -> usize {
    let subject = Subject::Shipped(shipped::launch, Some(plant));
    let rules = [Invariant::Fence, Invariant::AtMostOne, Invariant::Evidence];
    plans.filter(|plan| rules.iter().any(|rule| run(plan, subject).broke(*rule))).count()
}

/// On real nodes: a kubelet that was only stopped was continued by another actor, and started from its memory the pods
/// that the agent had ended.
#[test]
fn bug_a_kubelet_that_was_stopped_and_not_ended_was_continued_by_others() {
    let plans = (1..9).map(|seed| Plan { seed, ..with(ALONE, vec![cut(LONG)]) });
    assert!(guilty(Plant::StopsKubelets, plans.clone()) > 0);
    plans.for_each(|plan| drop(well(&plan)));
}

#[test]
fn bug_a_feeder_that_outlives_the_agents_decision_is_caught() {
    let plan = with(ALONE, vec![(BEGIN - 1, Fault::PauseAgent { node: 0, seconds: LONG }), cut(LONG)]);
    assert_eq!(guilty(Plant::FeedsApart, [plan].into_iter()), 1);
}
