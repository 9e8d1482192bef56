//! NoExecute taints: how old they are, and which changes notify.

use crate::model::{NO_EXECUTE, Taint, Tolerations};

use super::*;

fn wall(cache: &Cache, mono: u64, seconds: i64) {
    cache.record_wall_time(at(mono), jiff::Timestamp::from_second(NEW_YEAR + seconds).unwrap());
}

/// The node `n` at this version with a taint that was added at a second of the new year.
fn tainted(rv: u64, value: &str, added: Option<u8>) -> Obj {
    let added = added.map(|second| format!("2026-01-01T00:00:{second:02}Z"));
    let taint = json!({ "key": "k", "value": value, "effect": NO_EXECUTE, "timeAdded": added });
    node("n").rv(rv).set("/spec/taints", json!([taint]))
}

fn taints(cache: &Cache) -> Vec<Taint> {
    match cache.read().view().node("n") {
        Lookup::Known(node) => node.no_execute.to_vec(),
        other => panic!("{other:?}"),
    }
}

fn since(cache: &Cache) -> (Mono, u64) {
    let taints = taints(cache);
    let [taint] = taints.as_slice() else { panic!("{taints:?}") };
    (taint.first_seen, taint.age.as_secs())
}

#[test]
fn only_no_execute_taints_are_kept_and_notified_as_taint_changes() {
    struct TaintChanges(Mutex<Vec<(bool, bool)>>);
    impl Subscriber for TaintChanges {
        fn on_change(&self, change: Change<'_>) {
            if let Change::Node { taints, readiness, .. } = change {
                self.0.lock().push((taints, readiness));
            }
        }
    }
    let (cache, changes) = (listed(), Arc::new(TaintChanges(Mutex::default())));
    cache.subscribe(Arc::<TaintChanges>::clone(&changes));
    let seen = |object: &Obj, now| {
        apply::<Node>(&cache, object, at(now));
        std::mem::take(&mut *changes.0.lock())
    };
    let no_schedule = json!([{ "key": "k", "effect": "NoSchedule" }]);
    assert_eq!(seen(&node("n").set("/spec/taints", no_schedule), 0), [(true, true)], "a new node");
    assert_eq!(seen(&tainted(6, "", None), 1), [(true, false)]);
    assert_eq!(seen(&tainted(7, "", None), 2), [], "noise");
    assert_eq!(seen(&tainted(8, "", None).ready("True"), 3), [(false, true)], "something else of it");
    assert_eq!(seen(&tainted(9, "v", None).ready("True"), 4), [(true, false)]);
    assert_eq!(seen(&node("n").rv(10).ready("True"), 5), [(true, false)]);
    assert!(taints(&cache).is_empty());
}

#[test]
fn an_unchanged_taint_keeps_its_first_seen_time_and_age() {
    let cache = listed();
    wall(&cache, 0, 0);
    wall(&cache, 50, 50);
    apply::<Node>(&cache, &tainted(6, "", Some(20)), at(50));
    assert_eq!(since(&cache), (at(50), 30));
    // The clock jumps, the value changes, the node is listed again: none of that changes the age.
    wall(&cache, 60, 9_000);
    apply::<Node>(&cache, &tainted(7, "v", Some(20)), at(60));
    list::<Node>(&cache, &[tainted(8, "v", Some(20)).ready("True")], at(70));
    assert_eq!(since(&cache), (at(50), 30));
    apply::<Node>(&cache, &tainted(9, "v", Some(55)), at(80));
    assert_eq!(since(&cache), (at(80), 25), "taken away and added again; the clock that jumped is not believed");
}

#[test]
fn a_taint_with_no_or_a_future_time_added_has_age_zero() {
    for added in [None, Some(59)] {
        let cache = listed();
        wall(&cache, 0, 0);
        apply::<Node>(&cache, &tainted(6, "", added), at(30));
        apply::<Node>(&cache, &tainted(7, "", added), at(40));
        assert_eq!(since(&cache), (at(30), 0), "{added:?}");
    }
    let cache = listed();
    wall(&cache, 0, 0);
    let ancient = json!([{ "key": "k", "effect": NO_EXECUTE, "timeAdded": "0001-01-01T00:00:00Z" }]);
    apply::<Node>(&cache, &node("n").set("/spec/taints", ancient), at(30));
    assert_eq!(since(&cache), (at(30), 0), "Go's zero");
}

#[test]
fn only_tolerations_of_no_execute_taints_are_kept_and_equal_ones_are_shared() {
    let cache = listed();
    let of = |effects: [&str; 2]| {
        json!([{ "key": "a", "operator": "Exists", "effect": effects[0], "tolerationSeconds": 300 },
            { "key": "b", "operator": "Exists", "effect": effects[1] }])
    };
    for (name, effects) in [("p", ["NoExecute", ""]), ("q", ["NoExecute", ""]), ("r", ["NoSchedule", "NoSchedule"])] {
        apply::<Pod>(&cache, &pod(name).on("n").set("/spec/tolerations", of(effects)), at(0));
    }
    apply::<Pod>(&cache, &pod("s").on("n"), at(0));
    let guard = cache.read();
    let of = |name: &str| guard.view().pod(&uid(&format!("uid-{name}"))).unwrap().tolerations.clone();
    assert!(of("p").shares_with(&of("q")));
    assert_ne!(of("p"), Tolerations::default());
    assert_eq!((of("r"), of("s")), (Tolerations::default(), Tolerations::default()));
}

#[test]
fn a_pod_is_placed_when_its_node_is_first_seen_and_bound_at_its_condition_time() {
    let cache = listed();
    apply::<Pod>(&cache, &pod("p"), at(5));
    let bound = json!([{ "type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:40Z" }]);
    let arrived = pod("p").rv(11).on("n").set("/status/conditions", bound);
    apply::<Pod>(&cache, &arrived, at(45));
    apply::<Pod>(&cache, &arrived.rv(12), at(60));
    let guard = cache.read();
    let pod = guard.view().pod(&uid("uid-p")).unwrap();
    assert_eq!((pod.first_seen, pod.placed_at, pod.bound_at), (at(5), at(45), NEW_YEAR + 40));
}

/// A timestamp of zero is not a time.
#[test]
fn a_time_added_of_zero_counts_as_missing() {
    let cache = listed();
    let taint = json!({ "key": "k", "effect": NO_EXECUTE, "timeAdded": "1970-01-01T00:00:00Z" });
    apply::<Node>(&cache, &node("n").set("/spec/taints", json!([taint])), at(1));
    assert_eq!(taints(&cache).iter().map(|taint| taint.time_added).collect::<Vec<_>>(), [None]);
}
