//! The shipped process in simulated clusters, by seeds.
//!
//! `POD_SAFETY_SEEDS=N` runs N seeds, `POD_SAFETY_SEED=S` shows one.

use std::io::Write as _;
use std::ops::Range;

use memory::{memory, memory_line};
use pod_safety_shared::clock::Env;
use pod_safety_simulator::campaign::{
    Extras, Fault, Lack, OddKubelet, Plan, campaign, draw, report, same_twice, threads,
};
use pod_safety_simulator::checker::unreached;
use pod_safety_simulator::world::run;

use crate::asked::number;
use crate::memory;
use crate::runs::{plan, well};
use crate::shipped::SHIPPED;

/// What `make test` runs: the same seeds each time, so that a change alone can break it.
const SEEDS: u64 = 300;
/// What `make test-all` adds: seeds that no other commit has run.
const SEEDS_OF_A_COMMIT: u64 = 3_000;

fn seeds() -> Range<u64> {
    0..number("POD_SAFETY_SEEDS").unwrap_or(SEEDS)
}

#[test]
fn an_orphan_of_a_dead_node_is_removed_and_its_successor_runs() {
    let faults = vec![
        (60, Fault::PowerOff { node: 0, back: None }),
        (61, Fault::PowerOff { node: 1, back: Some(10) }),
        (62, Fault::DeleteNode { node: 0 }),
    ];
    let small = Plan { servers: 1, nodes: 2, replicas: 1, pods: 2, ..plan(faults) };
    let outcome = well(&Plan { lease_collected_after: 5, heal_at: 150, ..small });
    assert!(outcome.probes.contains_key("removed on NodeGone"), "{:?}", outcome.probes);
}

#[test]
fn no_seed_breaks_a_rule() {
    if let Some(seed) = number("POD_SAFETY_SEED") {
        let plan = draw(seed);
        let outcome = run(&plan, SHIPPED);
        println!("{}", report(&plan, &outcome));
        assert!(outcome.violations.is_empty());
        return;
    }
    none_breaks_a_rule(seeds());
}

/// Each commit draws seeds of its own; the failure names them, and `POD_SAFETY_SEED` runs one again.
#[test]
fn no_seed_of_this_commit_breaks_a_rule_thorough() {
    let head = std::process::Command::new("git").args(["rev-parse", "HEAD"]).output().unwrap();
    let head = String::from_utf8(head.stdout).unwrap();
    let first = u64::from(u32::from_str_radix(&head[..8], 16).unwrap()) * 1_000;
    none_breaks_a_rule(first..first + SEEDS_OF_A_COMMIT);
}

fn none_breaks_a_rule(seeds: Range<u64>) {
    let (clock, before) = (Env::real(0), memory("VmRSS:"));
    let began = clock.now();
    let tally = campaign(seeds, SHIPPED);
    let pace = tally.pace(clock.now().since(began));
    // Past the capture of the test harness: these figures are shown in every run.
    let _written = write!(std::io::stderr(), "{tally}{pace}\n{}\n", memory_line(before, threads()));
    for (seed, outcome) in &tally.broken {
        println!("{}", report(&draw(*seed), outcome));
    }
    let broken: Vec<_> = tally.broken.keys().collect();
    assert!(broken.is_empty(), "seeds that broke a rule: {broken:?}");
    let unreached = unreached(&tally.probes, tally.seeds);
    assert!(unreached.is_empty(), "too rare, with how often and how often at least: {unreached:?}");
}

#[test]
fn a_seed_gives_the_same_run_each_time() {
    for seed in 0..5 {
        assert!(same_twice(&draw(seed), SHIPPED).is_ok(), "seed {seed}");
    }
}

/// A person who deleted the Node of a running machine, even a connected one, vouched for it once its Lease was garbage
/// collected.
#[test]
fn bug_pods_of_a_connected_kubelet_without_a_lease_were_not_deleted_gracefully() {
    let deleted =
        Plan { servers: 1, nodes: 2, pods: 3, heal_at: 150, ..plan(vec![(63, Fault::DeleteNode { node: 0 })]) };
    // While there is a Lease, its renewals hold the pods: for five minutes.
    for (collected, held) in [(1, false), (15, false), (3_600, true)] {
        let outcome = well(&Plan { lease_collected_after: collected, ..deleted.clone() });
        let seen = |probe: &str| outcome.probes.contains_key(probe);
        assert!(seen("a kubelet said that it has seen a deletion"), "{:?}", outcome.probes);
        assert_eq!(seen("an orphan is held: KubeletAlive"), held, "{:?}", outcome.probes);
    }
}

/// An unknown state is not the same as unreachable: where no Lease or no boot ID shows it, its pods are deleted
/// gracefully and the quarantine decides.
#[test]
fn pods_of_a_deleted_node_whose_kubelet_reports_less_are_released_with_evidence() {
    let deleted = (63, Fault::DeleteNode { node: 0 });
    let powered_off = (60, Fault::PowerOff { node: 0, back: None });
    for lacks in [Lack::BootUuid, Lack::BootId, Lack::Lease] {
        for (faults, ended) in [
            (vec![powered_off.clone(), deleted.clone()], "removed on NodeGone"),
            (vec![deleted.clone()], "kubelet completed a deletion"),
        ] {
            let with = Extras { odd_kubelet: Some(OddKubelet { node: 0, lacks }), ..Extras::default() };
            let outcome = well(&Plan { with, ..plan(faults) });
            assert!(outcome.probes.contains_key(ended), "{lacks:?}: {:?}", outcome.probes);
        }
    }
}

/// A mirror pod that a kubelet created while it had a Node is no sign that it runs: neither of a dead kubelet, nor of a
/// running one, which creates no other without its Node (`world.rs`).
#[test]
fn a_mirror_pod_of_a_deleted_node_holds_no_other_pod() {
    let lost = |how: Option<Fault>| {
        let faults = how.map(|how| (60, how)).into_iter().chain([(63, Fault::DeleteNode { node: 0 })]).collect();
        let with = Extras { static_pods: true, ..Extras::default() };
        Plan { servers: 1, nodes: 2, pods: 3, lease_collected_after: 5, heal_at: 200, with, ..plan(faults) }
    };
    for how in [None, Some(Fault::PowerOff { node: 0, back: None })] {
        let probes = run(&lost(how.clone()), SHIPPED).probes;
        assert_eq!(probes["a kubelet made a mirror pod"], 2, "{how:?}: {probes:?}");
        let ended = if how.is_some() { "removed on NodeGone" } else { "kubelet completed a deletion" };
        assert!(probes.contains_key(ended), "{how:?}: {probes:?}");
    }
}
