//! The limits that safety depends on, as numbers, each with its reason.

use super::*;

/// The present pods may exist because a scale changed after it was read: an answer is not used for them when it is
/// older than the two seconds that a controller takes.
#[test]
fn an_answer_about_a_scale_is_fresh_for_two_seconds() {
    let world = scaled_by_a_db();
    world.set_scale_at("uid-p", Ok(Scale::Replicas(3)), at(0), at(2));
    let status = ["at 7: 1 of 3 healthy, 2 wanted, 0 allowed, InsufficientPods"];
    assert_eq!(describe(&decide_at(&world, 4)), status);
    assert_eq!(describe(&decide_at(&world, 5)), ["ask Db own"]);
    // Unless it was requested after the last change: then it counts for as long as it takes to read hundreds of
    // others of the budget.
    world.set_scale("uid-p", Ok(Scale::Replicas(3)), at(2));
    assert_eq!(describe(&decide_at(&world, 32)), status);
    assert_eq!(describe(&decide_at(&world, 33)), ["ask Db own"]);
}

/// That a kind has no scale changes only with its definition. A controller whose scale is not found counts as deleted.
#[test]
fn the_answer_that_a_kind_has_no_scale_is_fresh_for_a_minute_and_that_a_controller_is_absent_for_two_seconds() {
    for (answer, answered, fresh_until) in [(Scale::None, 2, 62), (Scale::Absent, 12, 14)] {
        let world = scaled_by_a_db();
        world.set_scale_at("uid-p", Ok(answer), at(0), at(answered));
        let excluded = ["PodsNotCounted", "DisruptionsNeverAllowed"];
        assert_eq!(held(&decide_at(&world, fresh_until)), excluded, "{answer:?}");
        assert_eq!(describe(&decide_at(&world, fresh_until + 1)), ["ask Db own"], "{answer:?}");
    }
}

/// A failed read is repeated in five seconds, and until then its budget allows nothing.
#[test]
fn a_failed_scale_read_allows_nothing_for_five_seconds_and_is_repeated() {
    let world = scaled_by_a_db();
    world.set_scale("uid-p", Err("the API is gone"), at(2));
    let failed = decide_at(&world, 7);
    assert_eq!(describe(&failed), ["at 7: 0 of 0 healthy, 0 wanted, 0 allowed, SyncFailed"]);
    assert_eq!(held(&failed), ["BudgetFailed"]);
    assert!(failed.requeue_at.is_some_and(|again| again > at(7) && again < at(8)), "{failed:?}");
    assert_eq!(describe(&decide_at(&world, 8)), ["ask Db own"]);
}

/// After each restart the budget of a pod without its controller showed SyncFailed, and allowed nothing, for ten
/// seconds.
#[test]
fn bug_the_budget_of_a_pod_whose_controller_was_deleted_failed_briefly_after_a_restart() {
    let world = World::listed();
    world.apply(Kind::Pods, &pod("p").owned_by("apps/v1", "ReplicaSet", "gone"), at(0));
    world.apply(Kind::Pods, &pod("q").owned_by("apps/v1", "StatefulSet", "db"), at(0));
    world.apply(Kind::StatefulSets, &workload("db", 1), at(0));
    world.apply(Kind::Budgets, &budget(&json!({ "maxUnavailable": 1 })), at(0));
    assert_eq!(describe(&decide_at(&world, 1)), ["ask ReplicaSet gone"]);
    world.set_scale("uid-p", Ok(Scale::Absent), at(2));
    let status = ["at 7: 1 of 1 healthy, 0 wanted, 1 allowed, SufficientPods"];
    assert_eq!(describe(&decide_at(&world, 2)), status);
    assert_eq!(describe(&decide_at(&world, 30)), status);
}

/// While the watch of a kind hangs, a workload that it has not delivered counted as deleted.
#[test]
fn bug_pods_of_a_workload_that_a_hanging_watch_did_not_deliver_were_not_counted() {
    let world = World::listed();
    world.apply(Kind::Pods, &pod("p").owned_by("apps/v1", "Deployment", "unseen"), at(0));
    world.apply(Kind::Budgets, &budget(&json!({ "maxUnavailable": 1 })), at(0));
    assert_eq!(describe(&decide_at(&world, 60)), ["ask Deployment unseen"]);
    world.set_scale("uid-p", Ok(Scale::Replicas(10)), at(60));
    assert_eq!(describe(&decide_at(&world, 61)), ["at 7: 1 of 10 healthy, 9 wanted, 0 allowed, InsufficientPods"]);
}
