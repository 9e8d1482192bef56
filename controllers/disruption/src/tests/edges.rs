//! Rows for mutants of `decide` that other tests did not catch.

use super::*;

/// A pod that changed at the very moment of the request may be the first result of a scaling.
#[test]
fn an_answer_requested_at_the_moment_of_a_change_is_requested_again_at_once() {
    for (pod_came, next) in [(1, 64), (2, 6), (3, 6)] {
        let world = World::listed();
        world.apply(Kind::Budgets, &budget(&json!({ "maxUnavailable": 1 })), at(0));
        world.apply(Kind::Pods, &pod("p").owned_by("example.com/v1", "Db", "own"), at(pod_came));
        world.set_scale_at("uid-p", Ok(Scale::Replicas(3)), at(2), at(4));
        let again = decide_at(&world, 4).requeue_at.unwrap();
        assert!(again >= at(next) && again.since(at(next)) < Duration::from_millis(2), "{pod_came}: {again:?}");
    }
}

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
