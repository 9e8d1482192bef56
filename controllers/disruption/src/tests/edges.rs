//! Rows that mutants of `decide` showed to be missing.

use super::*;

/// A pod that changed in the moment of the question may be the first of what follows a scaling.
#[test]
fn an_answer_to_a_question_of_the_moment_of_a_change_is_asked_for_again_at_once() {
    for (pod_came, next) in [(1, 64), (2, 6), (3, 6)] {
        let world = World::listed();
        world.apply(Kind::Budgets, &budget(&json!({ "maxUnavailable": 1 })), at(0));
        world.apply(Kind::Pods, &pod("p").owned_by("example.com/v1", "Db", "own"), at(pod_came));
        world.set_scale_at("uid-p", Ok(Scale::Replicas(3)), at(2), at(4));
        let again = decide_at(&world, 4).requeue_at.unwrap();
        assert!(
            again >= at(next) && again.since(at(next)) < Duration::from_millis(2),
            "{pod_came}: {again:?}"
        );
    }
}

#[test]
fn that_a_budget_never_allows_is_said_of_pods_that_nobody_manages_and_not_of_what_is_scaled_to_nothing() {
    let world = World::listed();
    world.apply(Kind::Pods, &pod("naked"), at(0));
    for (wanted, holds) in [(1, &["DisruptionsNeverAllowed"][..]), (0, &[])] {
        world.apply(Kind::Budgets, &budget(&json!({ "minAvailable": wanted })), at(0));
        assert_eq!(held(&decide_at(&world, 1)), holds, "{wanted} of one naked pod");
    }
    let world = stateful_set(0);
    world.apply(Kind::Budgets, &budget(&json!({ "minAvailable": 1 })), at(0));
    assert_eq!(held(&decide_at(&world, 1)), [""; 0], "its pods go, and nobody waits for an eviction");
}
