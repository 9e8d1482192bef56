//! Rows for mutants of `decide` that other tests did not catch.

use pod_safety_shared::cache::Change;
use pod_safety_shared::controller_loop::{Controller as _, Mode};

use super::*;

#[test]
fn never_allowing_is_reported_for_unmanaged_pods_and_not_for_workloads_scaled_to_zero() {
    let world = World::listed();
    world.apply(Kind::Pods, &pod("naked"), at(0));
    for (minimum, holds) in [(1, &["DisruptionsNeverAllowed"][..]), (0, &[])] {
        world.apply(Kind::Budgets, &budget(&json!({ "minAvailable": minimum })), at(0));
        assert_eq!(held(&decide_at(&world, 1)), holds, "{minimum} of one naked pod");
    }
    let world = stateful_set(0);
    world.apply(Kind::Budgets, &budget(&json!({ "minAvailable": 1 })), at(0));
    assert_eq!(held(&decide_at(&world, 1)), [""; 0], "its pods are being deleted, and need no eviction");
}

#[test]
fn at_best_no_terminated_pod_is_healthy_and_no_unselected_pod_counts() {
    let world = stateful_set(3);
    let of_db = |name: &str| pod(name).owned_by("apps/v1", "StatefulSet", "db");
    world.apply(Kind::Pods, &of_db("db-0").labels(json!({ "role": "primary" })), at(0));
    let selector = json!({ "matchLabels": { "role": "primary" } });
    world.apply(Kind::Budgets, &budget(&json!({ "minAvailable": 1, "selector": selector })), at(0));
    assert_eq!(held(&decide_at(&world, 1)), ["DisruptionsNeverAllowed"], "the others do not replace db-0");
    world.apply(Kind::Pods, &of_db("db-2").phase("Failed"), at(1));
    assert_eq!(held(&decide_at(&world, 1)), [""; 0], "db-2 has terminated: its successor may be selected");
    let world = World::listed();
    world.apply(Kind::Pods, &pod("a"), at(0));
    world.apply(Kind::Pods, &pod("b").phase("Failed").ready("False"), at(0));
    world.apply(Kind::Budgets, &budget(&json!({ "minAvailable": 1 })), at(0));
    assert_eq!(held(&decide_at(&world, 1)), ["DisruptionsNeverAllowed"], "b has terminated");
}

#[test]
fn the_controller_acts_only_in_place_of_kcm_and_relevant_changes_enqueue_keys() {
    let controller = Disruption::new(CONFIG, &prometheus::Registry::new()).unwrap();
    let acts = [Mode::Observe, Mode::Guard, Mode::Replace].map(|mode| controller.acts_in(mode));
    assert_eq!(acts, [false, false, true]);
    let world = guarded();
    world.apply(Kind::Pods, &about_to_end("EvictionByEvictionAPI"), at(0));
    let guard = world.read();
    let (target, other) = (guard.view().pod(&uid("uid-p")).unwrap(), guard.view().pod(&uid("uid-db-0")).unwrap());
    let mut keys = Vec::new();
    for (before, after) in [(None, target), (Some(target), other)] {
        controller.keys_for(&Change::Pod { before, after: Some(after) }, &mut |key| keys.push(key));
    }
    assert_eq!(keys, [Key::StalePod(uid("uid-p"))]);
}
