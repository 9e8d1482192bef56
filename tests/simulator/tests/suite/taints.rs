//! Taints in the simulated cluster: when the pods of a node are evicted, under faults while their toleration times run.
//! Many seeds of them are in `campaign`.

use std::collections::BTreeMap;

use pod_safety_simulator::campaign::{Extras, Fault, Plan};
use pod_safety_simulator::checker::Invariant;
use pod_safety_simulator::world::{Outcome, run};

use crate::runs::{self, KCM, well};

/// When the node is tainted, in seconds.
const TAINTED: u64 = 40;
/// A pod must be deleted within so many seconds after its time is over.
const SOON: u64 = 3;
/// A new leader needs so many seconds.
const FAILOVER: u64 = 30;

/// All pods are on one node, and tolerate its first taint as `MEMBERS` of the world defines it: `data-0` for 20 s,
/// `data-1` for no time, `data-2` without limit, `data-3` for 150 s, and `data-4` has no toleration of its own.
fn plan(faults: Vec<(u64, Fault)>) -> Plan {
    Plan { nodes: 1, pods: 5, with: Extras { taints: true, ..Extras::default() }, ..runs::plan(faults) }
}

const fn added(key: usize) -> Fault {
    Fault::AddTaint { node: 0, key, stamped: true }
}

fn tainted(faults: Vec<(u64, Fault)>) -> Plan {
    plan([(TAINTED, added(0))].into_iter().chain(faults).collect())
}

/// The seconds in which pods were deleted, by name, in a run that breaks no rule.
fn ends(plan: &Plan) -> BTreeMap<String, Vec<u64>> {
    asked(&well(plan))
}

fn asked(outcome: &Outcome) -> BTreeMap<String, Vec<u64>> {
    let mut ends: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (at, what) in &outcome.timeline {
        let pod = what.strip_suffix(" is deleted because of a taint");
        if let Some(pod) = pod.and_then(|pod| pod.strip_prefix("default/data-")) {
            ends.entry(format!("data-{pod}")).or_default().push(at.as_secs());
        }
    }
    ends
}

/// Each of them was deleted once, within `late` seconds of its time, and no other pod was.
#[track_caller]
fn assert_deletions(plan: &Plan, late: u64, expected: &[(&str, u64)]) {
    let ends = ends(plan);
    let names: Vec<&str> = ends.keys().map(String::as_str).collect();
    let mut due: Vec<&str> = expected.iter().map(|(name, _)| *name).collect();
    due.sort_unstable();
    assert_eq!(names, due, "{ends:?}");
    for (name, due) in expected {
        let deleted_at = &ends[*name];
        let soon = deleted_at.iter().all(|at| (*due..=due + late).contains(at));
        assert!(deleted_at.len() == 1 && soon, "{name} at {deleted_at:?}, due at {due}: {ends:?}");
    }
}

#[test]
fn each_pod_is_deleted_when_its_toleration_expires() {
    let expected = [("data-0", 60), ("data-1", 40), ("data-3", 190), ("data-4", 40)];
    assert_deletions(&tainted(Vec::new()), SOON, &expected);
    let unstamped = Fault::AddTaint { node: 0, key: 0, stamped: false };
    assert_deletions(&plan(vec![(TAINTED, unstamped)]), SOON, &expected);
}

#[test]
fn a_node_that_is_cut_off_is_tainted_and_its_pods_are_deleted_at_their_times() {
    let cut = Plan { heal_at: 500, ..plan(vec![(40, Fault::CutNode { node: 0, seconds: 500 })]) };
    let outcome = well(&cut);
    // Its first try meets a node that has changed.
    let at = outcome.timeline.iter().rfind(|(_, what)| what == "node-lifecycle taints node-0");
    let at = at.map_or(0, |(at, _)| at.as_secs());
    assert!((85..=105).contains(&at), "silent for 50 s and a tick: {at}");
    let ends = asked(&outcome);
    for (pod, bears) in [("data-0", 20), ("data-1", 0), ("data-3", 300), ("data-4", 300)] {
        let when = ends.get(pod).and_then(|all| all.first()).copied().unwrap_or_default();
        // The taint has a time in whole seconds, and is recorded when its request is answered.
        assert!((at + bears - 1..=at + bears + SOON).contains(&when), "{pod}, tainted at {at}: {ends:?}");
    }
    assert!(!ends.contains_key("data-2"), "it bears it for ever: {ends:?}");
}

#[test]
fn the_shortest_toleration_counts_whichever_taint_came_first() {
    // The second taint: `data-0` and `data-1` tolerate it without limit, `data-2` for 30 s.
    let two = tainted(vec![(TAINTED, added(1))]);
    let expected = [("data-0", 60), ("data-1", 40), ("data-2", 70), ("data-3", 190), ("data-4", 40)];
    assert_deletions(&two, SOON, &expected);
    let second = tainted(vec![(50, added(1))]);
    let expected = [("data-0", 60), ("data-1", 40), ("data-2", 80), ("data-3", 190), ("data-4", 40)];
    assert_deletions(&second, SOON, &expected);
}

#[test]
fn changed_tolerations_count_from_the_change_on() {
    let tolerate = |pod, seconds| Fault::Tolerate { pod, key: 0, seconds };
    let longer = tolerate(0, Some(60));
    let changed = tainted(vec![(45, longer), (46, tolerate(3, Some(15))), (50, tolerate(2, Some(30)))]);
    assert_deletions(
        &changed,
        SOON,
        &[("data-0", 100), ("data-1", 40), ("data-2", 70), ("data-3", 55), ("data-4", 40)],
    );
    // A time that has passed already ends at once; a toleration without limit never ends.
    let changed = tainted(vec![(70, tolerate(3, Some(5))), (50, tolerate(0, None))]);
    let mut sorted = changed.clone();
    sorted.faults.sort_by_key(|(at, _)| *at);
    assert_deletions(&sorted, SOON, &[("data-1", 40), ("data-3", 70), ("data-4", 40)]);
}

#[test]
fn a_taint_removed_in_time_deletes_no_pod() {
    let lifted = tainted(vec![(55, Fault::LiftTaint { node: 0, key: 0 })]);
    assert_deletions(&lifted, SOON, &[("data-1", 40), ("data-4", 40)]);
    // The next taint starts the times again.
    let again = tainted(vec![(55, Fault::LiftTaint { node: 0, key: 0 }), (100, added(0))]);
    let ends = ends(&again);
    assert_eq!(ends["data-0"].len(), 1, "{ends:?}");
    assert!((120..=120 + SOON).contains(&ends["data-0"][0]), "{ends:?}");
    assert!((250..=250 + SOON).contains(&ends["data-3"][0]), "{ends:?}");
}

#[test]
fn a_change_of_the_leader_keeps_the_deadlines() {
    let expected = [("data-0", 60), ("data-1", 40), ("data-3", 190), ("data-4", 40)];
    let crash = |at, replica, seconds| (at, Fault::CrashReplica { replica, seconds });
    // The leader dies, and then its successor: none of them has seen the taint arrive.
    let all_anew = vec![crash(80, 0, 5), crash(80, 1, 5), crash(140, 0, 5), crash(140, 1, 5)];
    assert_deletions(&tainted(all_anew), SOON, &expected);
    // At the very moment of the deadline a new leader must be elected first.
    let ends = ends(&tainted(vec![crash(58, 0, 60)]));
    assert!((60..=60 + FAILOVER).contains(&ends["data-0"][0]), "{ends:?}");
    assert!((190..=190 + SOON).contains(&ends["data-3"][0]), "{ends:?}");
}

#[test]
fn jumps_of_the_wall_clock_keep_the_deadlines() {
    let expected = [("data-0", 60), ("data-1", 40), ("data-3", 190), ("data-4", 40)];
    for seconds in [3_600, -3_600, 100, -100] {
        for at in [30, 45] {
            let mut faults: Vec<_> = (0..2).map(|replica| (at, Fault::JumpReplica { replica, seconds })).collect();
            faults.push((TAINTED, added(0)));
            faults.sort_by_key(|(at, _)| *at);
            assert_deletions(&plan(faults), SOON, &expected);
        }
    }
}

#[test]
fn a_flapping_node_deletes_only_pods_whose_toleration_expired() {
    let cut = |at| (at, Fault::CutNode { node: 0, seconds: 70 });
    let flaps = Plan { heal_at: 400, ..plan(vec![cut(40), cut(150), cut(260)]) };
    let outcome = well(&flaps);
    let ends = asked(&outcome);
    assert!(!ends.contains_key("data-3") && !ends.contains_key("data-2"), "they bear it longer: {ends:?}");
    assert!(ends.contains_key("data-1"), "it bears it for no time: {ends:?}");
    assert!(outcome.probes.contains_key("a taint was lifted while a pod's time ran"), "{:?}", outcome.probes);
}

#[test]
fn a_new_leader_with_a_stale_cache_deletes_no_pod_for_a_removed_taint() {
    let behind = tainted(vec![
        // Both API servers show the past, in which the taint is there.
        (45, Fault::LagServer { server: 0, seconds: 60 }),
        (45, Fault::LagServer { server: 1, seconds: 60 }),
        (47, Fault::LiftTaint { node: 0, key: 0 }),
        (48, Fault::CrashReplica { replica: 0, seconds: 60 }),
    ]);
    assert_deletions(&behind, SOON, &[("data-1", 40), ("data-4", 40)]);
}

#[test]
fn a_successor_with_the_same_name_is_not_deleted_instead() {
    for seed in 0..8 {
        let replaced = Plan {
            seed,
            nodes: 2,
            ..tainted(vec![(44, Fault::DeletePod { pod: 0 }), (44, Fault::DeletePod { pod: 3 })])
        };
        let ends = ends(&replaced);
        for pod in ["data-0", "data-3"] {
            assert!(!ends.contains_key(pod), "its time went with it: {ends:?}");
        }
    }
}

#[test]
fn a_refused_deletion_is_retried_and_no_pod_is_deleted_too_early() {
    use pod_safety_simulator::campaign::Trouble;
    for trouble in [Trouble::Error(500), Trouble::Error(409), Trouble::LoseAnswer, Trouble::DropRequest] {
        let troubled = |replica| Fault::TroubleReplica { replica, trouble, percent: 60, seconds: 40 };
        let plan = tainted(vec![(50, troubled(0)), (50, troubled(1))]);
        let ends = ends(&plan);
        assert!(ends["data-0"][0] >= 60 && ends["data-3"][0] >= 190, "{trouble:?}: {ends:?}");
    }
}

#[test]
fn kcms_rules_are_checked_by_the_same_checker() {
    let outcome = run(&tainted(Vec::new()), KCM);
    assert!(outcome.probes.contains_key("kcm evicted a pod by its taint"), "{:?}", outcome.probes);
    assert!(!outcome.broke(Invariant::AtMostOne), "graceful deletions let nobody run twice");
}
