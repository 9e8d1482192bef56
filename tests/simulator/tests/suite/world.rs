//! The parts of the world behave like the real ones, each shown by a plan of its own.

use pod_safety_simulator::campaign::{Ailment, Extras, Fault, Fencing, Keeper, Malfunction, Plan, draw, report};
use pod_safety_simulator::world::{Outcome, run};

use crate::fencing::BLIND;
use crate::runs::{self, seconds_of_lines, seen, well};
use crate::shipped::SHIPPED;

/// When faults begin, in seconds.
const BEGIN: u64 = 40;

fn plan(faults: Vec<(u64, Fault)>) -> Plan {
    let with = Extras { taints: true, nodes: Keeper::Ours, ..Extras::default() };
    Plan { lease_collected_after: 2, with, ..runs::plan(faults) }
}

/// All pods of the StatefulSet are deleted while `node-0` is ill.
fn sick(ailment: Ailment, until: Option<u64>) -> Outcome {
    let ill = (BEGIN, Fault::SickenNode { node: 0, ailment, seconds: 150 });
    let deleted = (0..4).map(|pod| (BEGIN + 15, Fault::DeletePod { pod }));
    let heals = until.map(|at| (at, Fault::HealNode { node: 0 }));
    well(&plan([ill].into_iter().chain(deleted).chain(heals).collect()))
}

/// Processes that ended on `node-0`, by the second.
fn ends(outcome: &Outcome) -> Vec<u64> {
    seconds_of_lines(outcome, &["process of default/data-", "on node-0 ends"])
}

#[test]
fn a_node_without_a_runtime_reports_not_ready_renews_and_keeps_its_processes() {
    let outcome = sick(Ailment::Runtime, None);
    let reported = seconds_of_lines(&outcome, &["node-0 says that it is not ready"]);
    assert!(reported.len() == 1 && reported[0] <= BEGIN + 11, "{reported:?}");
    assert_eq!(seconds_of_lines(&outcome, &["node-0 is marked Unknown"]), [0_u64; 0], "its Lease is renewed");
    assert!(!seconds_of_lines(&outcome, &["taints node-0 with not-ready"]).is_empty(), "{:#?}", outcome.timeline);
    let over = BEGIN + 150;
    let ends = ends(&outcome);
    assert!(!ends.is_empty() && ends.iter().all(|at| *at >= over), "{ends:?}: {:#?}", outcome.timeline);
    assert!(seen(&outcome, "a sick node did not end a pod") > 0);
    let starts = seconds_of_lines(&outcome, &["process of", "starts on node-0"]);
    assert!(starts.iter().all(|at| !(BEGIN + 1..over).contains(at)), "{starts:?}");
}

#[test]
fn a_node_without_a_network_for_pods_ends_them_and_starts_none() {
    let outcome = sick(Ailment::Network, None);
    let ends = ends(&outcome);
    assert!(ends.iter().any(|at| *at < BEGIN + 15 + 40), "{ends:?}");
    let starts = seconds_of_lines(&outcome, &["process of", "starts on node-0"]);
    assert!(starts.iter().all(|at| !(BEGIN + 1..BEGIN + 150).contains(at)), "{starts:?}");
}

#[test]
fn a_node_that_recovers_early_is_ready_again() {
    let healed = BEGIN + 60;
    let outcome = sick(Ailment::Runtime, Some(healed));
    let ends = ends(&outcome);
    assert!(ends.iter().all(|at| (healed..healed + 35).contains(at)), "{ends:?}");
    // Once when it registers.
    let mut freed = seconds_of_lines(&outcome, &["removes not-ready", "from node-0"]);
    freed.retain(|at| *at > BEGIN);
    assert!(freed.iter().all(|at| (healed..healed + 15).contains(at)) && !freed.is_empty(), "{freed:?}");
}

#[test]
fn kube_controller_manager_taints_a_not_ready_node_and_untaints_it() {
    let with = Extras { taints: true, ..Extras::default() };
    let ill = (BEGIN, Fault::SickenNode { node: 0, ailment: Ailment::Network, seconds: 100 });
    let outcome = well(&Plan { with, ..plan(vec![ill]) });
    let tainted = seconds_of_lines(&outcome, &["node-lifecycle taints node-0"]);
    assert!(tainted.len() == 1 && tainted[0] <= BEGIN + 20, "{tainted:?}");
}

/// Garbage collection follows the owner. With the Lease, the only sign of the running kubelet disappears: it creates no
/// other, nor a mirror pod, because both need its Node.
#[test]
fn a_running_kubelet_without_its_node_creates_neither_a_lease_nor_a_mirror_pod() {
    let with = Extras { static_pods: true, ..Extras::default() };
    let outcome = run(&Plan { with, ..plan(vec![(63, Fault::DeleteNode { node: 0 })]) }, SHIPPED);
    let collected = seconds_of_lines(&outcome, &["the Lease of node-0 is collected"]);
    assert!(collected.len() == 1 && (65..=68).contains(&collected[0]), "{collected:?}");
    assert!(seen(&outcome, "a kubelet could make no Lease: its Node is gone") > 1, "{:?}", outcome.probes);
    assert!(seen(&outcome, "a kubelet could make no mirror pod: its Node is gone") > 1, "{:?}", outcome.probes);
    assert_eq!(seen(&outcome, "a kubelet made a mirror pod"), 3, "one on each node, when it began");
    // Its pods are deleted gracefully, and it ends them.
    assert!(seen(&outcome, "kubelet completed a deletion") > 0, "{:?}", outcome.probes);
}

/// A kubelet that is restarted registers, and everything that needs a Node is possible again.
#[test]
fn a_restarted_kubelet_registers_and_has_a_lease_and_a_mirror_pod_again() {
    let with = Extras { static_pods: true, ..Extras::default() };
    let faults = vec![(63, Fault::DeleteNode { node: 0 }), (80, Fault::KillKubelet { node: 0, seconds: 1 })];
    let outcome = well(&Plan { with, ..plan(faults) });
    assert_eq!(seconds_of_lines(&outcome, &["node-0 registers"]).len(), 2);
    assert_eq!(seen(&outcome, "a kubelet made a mirror pod"), 4, "{:?}", outcome.probes);
    assert!(seconds_of_lines(&outcome, &["the Lease of node-0 is collected"]).len() == 1);
}

/// Each machine has two power supplies, and an outlet for each.
const PAIR: Fencing = Fencing { pair: true, ..BLIND };

fn paired(faults: Vec<(u64, Fault)>) -> Plan {
    let with = Extras { taints: true, nodes: Keeper::Ours, fencing: Some(PAIR), ..Extras::default() };
    Plan { with, heal_at: 400, ..plan(faults) }
}

#[test]
fn a_machine_with_two_supplies_is_off_when_both_are_and_on_again_when_one_is() {
    let outcome = well(&paired(vec![(BEGIN, Fault::CutNode { node: 0, seconds: 340 })]));
    assert!(seen(&outcome, "one of two supplies was switched off, and the machine ran on") > 0);
    assert_eq!(seen(&outcome, "a machine lost both of its supplies"), 1, "{:#?}", outcome.timeline);
    assert!(!seconds_of_lines(&outcome, &["writes the evidence node-0"]).is_empty(), "{:#?}", outcome.timeline);
    assert!(seen(&outcome, "an incident became Done") > 0, "{:?}", outcome.probes);
}

/// All devices of a level must report off. One that does not answer prevents the evidence, whatever the other reports.
#[test]
fn a_level_of_two_devices_gives_no_evidence_if_one_does_not_answer() {
    for how in [Malfunction::Unreachable, Malfunction::Silent, Malfunction::AcksOnly] {
        let fails = (BEGIN - 10, Fault::Malfunction { node: 0, how, seconds: 350 });
        let outcome = well(&paired(vec![fails, (BEGIN, Fault::CutNode { node: 0, seconds: 340 })]));
        assert_eq!(seen(&outcome, "evidence was written by two looks"), 0, "{how:?}: {:#?}", outcome.timeline);
        assert_eq!(seen(&outcome, "a machine lost both of its supplies"), 0, "{how:?}");
    }
}

/// One outlet belongs to another machine: that one runs on by its second supply, and so does the node, by its first.
#[test]
fn a_level_of_two_devices_switches_no_machine_off_if_one_is_wired_wrong() {
    let fails = (BEGIN - 10, Fault::Malfunction { node: 0, how: Malfunction::WrongMachine(1), seconds: 350 });
    let wrong = paired(vec![fails, (BEGIN, Fault::CutNode { node: 0, seconds: 340 })]);
    let outcome = run(&wrong, SHIPPED);
    assert_eq!(seen(&outcome, "a machine lost both of its supplies"), 0, "{}", report(&wrong, &outcome));
    assert!(seen(&outcome, "one of two supplies was switched off, and the machine ran on") > 1);
}

/// The kubelet reports Running until the sidecar has ended, and the volume is in use until then.
#[test]
fn a_sidecar_that_outlives_the_main_container_keeps_its_pod() {
    let with = Extras { sidecars: true, ..Extras::default() };
    let deleted = (0..4).map(|pod| (BEGIN, Fault::DeletePod { pod }));
    let lost = (BEGIN + 40, Fault::DeleteNode { node: 0 });
    let dies = (BEGIN + 39, Fault::PowerOff { node: 0, back: None });
    let with_sidecars = Plan { with, ..plan(deleted.chain([dies, lost]).collect()) };
    let outcome = well(&with_sidecars);
    assert!(seen(&outcome, "a sidecar outlived the main container") >= 4, "{:?}", outcome.probes);
    let mut removed = 0;
    for (at, line) in &outcome.timeline {
        let Some((pod, _)) = line.split_once(" removed by replica") else { continue };
        let Some(of_pod) = pod.strip_prefix("default/data-") else { continue };
        let end = outcome
            .timeline
            .iter()
            .find(|(_, line)| line.starts_with(&format!("process of default/data-{of_pod}")) && line.contains(" ends"));
        assert!(end.is_some_and(|(end, _)| end <= at), "{pod}: {}", report(&with_sidecars, &outcome));
        removed += 1;
    }
    assert!(removed > 0, "{}", report(&with_sidecars, &outcome));
}

#[test]
fn one_watch_may_hang_while_the_others_work() {
    for kind in ["Node", "Lease", "Pod"] {
        let hang = |replica| (BEGIN, Fault::SilenceWatch { replica, kind: kind.to_owned(), seconds: 100 });
        let lost = (BEGIN + 10, Fault::CutNode { node: 0, seconds: 60 });
        let outcome = well(&plan(vec![hang(0), hang(1), lost]));
        assert_eq!(seen(&outcome, &format!("one watch fell silent beside live ones: {kind}")), 2);
    }
}

/// Older and newer processes lead in turn, and each honours the terms of the other's Lease.
#[test]
fn an_upgrade_with_other_lease_durations_has_one_leader_at_a_time() {
    let with = Extras { upgrade: true, taints: true, nodes: Keeper::Ours, ..Extras::default() };
    for seed in 0..6 {
        let replaced = |replica: usize| (50 + seed + 35 * replica as u64, Fault::StopReplica { replica, seconds: 1 });
        let crash = (70 + seed, Fault::CrashReplica { replica: 1, seconds: 3 });
        let lost = (BEGIN, Fault::CutNode { node: 0, seconds: 150 });
        let outcome = well(&Plan { seed, with, ..plan((0..2).map(replaced).chain([crash, lost]).collect()) });
        assert_eq!(seen(&outcome, "a newer process took the place of an older one"), 2, "{seed}");
    }
}

/// Clocks that drift change nothing that is visible from outside.
#[test]
fn drifting_clocks_mark_no_node_lost_and_release_no_pod_early() {
    for seed in 0..4 {
        let with = Extras { drift: true, ..Extras::default() };
        let dies = vec![(60, Fault::PowerOff { node: 0, back: None }), (62, Fault::DeleteNode { node: 0 })];
        let outcome = well(&Plan { seed, with, ..plan(dies) });
        assert!(seen(&outcome, "a clock ran too fast or too slow") >= 5, "{:?}", outcome.probes);
        assert!(seen(&outcome, "removed on NodeGone") > 0, "{:?}", outcome.probes);
    }
}

#[test]
fn of_all_seeds_a_third_fences_and_a_quarter_guards_volumes() {
    let plans: Vec<Plan> = (0..2_000).map(draw).collect();
    let share = |of: fn(&Extras) -> bool| plans.iter().filter(|plan| of(&plan.with)).count();
    let fenced = share(|with| with.fencing.is_some());
    let guarded = share(|with| with.guarded_volumes.is_some());
    assert!(fenced * 3 >= plans.len(), "{fenced} of {}", plans.len());
    assert!(guarded * 4 >= plans.len(), "{guarded} of {}", plans.len());
    let large = plans.iter().filter(|plan| plan.nodes >= 6).count();
    assert!(large * 20 >= plans.len(), "{large} of {}", plans.len());
}
