//! The checker has teeth: each planted bug is caught by the invariant that names
//! it, and kube-controller-manager's own rules are found guilty.

mod shipped;

use pod_safety_simulator::campaign::{Fault, Plan, Plant, campaign, draw, first_seed_that_breaks, tell};
use pod_safety_simulator::checker::Invariant;
use pod_safety_simulator::world::{Baseline, Subject, run};

const KCM: Subject = Subject::Baseline(Baseline::KubeControllerManager);

/// A bug that is not found within so many seeds is not found.
const SEEDS: u64 = 400;

const PLANTED: [(Plant, Invariant); 12] = [
    (Plant::NoUid, Invariant::Hygiene),
    (Plant::NoVersion, Invariant::Hygiene),
    (Plant::NoQuarantine, Invariant::Evidence),
    (Plant::FastClock, Invariant::Evidence),
    (Plant::NoElection, Invariant::Term),
    (Plant::LongTerm, Invariant::Term),
    (Plant::CachedReads, Invariant::Hygiene),
    (Plant::BlindToLeases, Invariant::Evidence),
    (Plant::RememberedReads, Invariant::Evidence),
    (Plant::DeafToNodes, Invariant::Liveness),
    (Plant::Hammer, Invariant::HotLoop),
    (Plant::ErrorsMeanAbsent, Invariant::Evidence),
];

#[test]
fn every_planted_bug_is_caught_by_the_invariant_that_names_it() {
    let mut missed = Vec::new();
    for (plant, invariant) in PLANTED {
        match first_seed_that_breaks(invariant, 0..SEEDS, Subject::Shipped(shipped::launch, Some(plant))) {
            Some((seed, _)) => println!("{plant:?}: {invariant} after {} seeds", seed + 1),
            None => missed.push(plant),
        }
    }
    assert!(missed.is_empty(), "not caught within {SEEDS} seeds: {missed:?}");
}

#[test]
fn two_bugs_let_two_processes_run() {
    for plant in [Plant::BlindToLeases, Plant::RememberedReads] {
        let subject = Subject::Shipped(shipped::launch, Some(plant));
        let found = first_seed_that_breaks(Invariant::AtMostOne, 0..SEEDS, subject);
        println!("{plant:?}: {:?}", found.as_ref().map(|(seed, _)| seed + 1));
        assert!(found.is_some(), "{plant:?}");
    }
}

#[test]
fn the_rules_of_kube_controller_manager_are_found_guilty_by_chance() {
    let tally = campaign(0..60, KCM);
    println!("{} of {} seeds broke a rule", tally.broken_seeds, tally.seeds);
    assert!(tally.broken_seeds > 0);
}

#[test]
fn the_script_of_people_lets_two_processes_run_when_a_node_is_cut_off() {
    let cut = plan(vec![(60, Fault::CutNode { node: 0, seconds: 120 })]);
    let outcome = run(&cut, Subject::Baseline(Baseline::Script));
    println!("{}", tell(&cut, &outcome));
    assert!(outcome.violations.iter().any(|violation| violation.invariant == Invariant::AtMostOne));
    let well = run(&plan(Vec::new()), Subject::Baseline(Baseline::Script));
    assert!(well.violations.is_empty(), "nothing is to be seen without a fault: {}", tell(&cut, &well));
}

fn plan(faults: Vec<(u64, Fault)>) -> Plan {
    Plan {
        seed: 3,
        servers: 1,
        nodes: 2,
        replicas: 2,
        pods: 3,
        lease_collected_after: 120,
        heal_at: 200,
        faults,
    }
}

#[test]
fn hole_h3_kcm_removes_the_pods_of_a_living_kubelet_and_ours_holds_them() {
    let plan = plan(vec![(60, Fault::DeleteNode { node: 0 })]);
    let kcm = run(&plan, KCM);
    println!("{}", tell(&plan, &kcm));
    assert!(kcm.violations.iter().any(|violation| violation.invariant == Invariant::AtMostOne));
    let ours = run(&plan, Subject::Shipped(shipped::launch, None));
    assert!(ours.violations.is_empty(), "{}", tell(&plan, &ours));
}

#[test]
fn hole_h1_kcm_removes_the_successor_by_name_and_ours_does_not() {
    // The API server shows the past while the pod that it shows as Failed is
    // replaced under its name.
    let faults = (0..3)
        .flat_map(|pod| [(60, Fault::Evict { pod })])
        .chain([(62, Fault::LagServer { server: 0, seconds: 60 })]);
    let plans: Vec<Plan> = (0..20).map(|seed| Plan { seed, ..plan(faults.clone().collect()) }).collect();
    let of = |invariant: Invariant, plan: &&Plan| {
        run(plan, KCM).violations.iter().any(|violation| violation.invariant == invariant)
    };
    let guilty = plans.iter().filter(|plan| of(Invariant::Identity, plan)).count();
    println!("the successor was hit in {guilty} of {} runs", plans.len());
    assert!(guilty > 0);
    for plan in &plans {
        let ours = run(plan, Subject::Shipped(shipped::launch, None));
        assert!(ours.violations.is_empty(), "{}", tell(plan, &ours));
    }
}

#[test]
fn the_list_of_bugs_is_whole() {
    assert_eq!(PLANTED.map(|(plant, _)| plant), Plant::ALL);
    assert!(draw(0).faults.len() > 1);
}
