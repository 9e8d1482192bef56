//! The limits that safety rests on, as numbers, each with its argument.

use super::*;

/// A ready pod of a custom controller, and a budget of which one pod may be missing.
fn custom() -> World {
    let world = World::listed();
    world.apply(Kind::Pods, &pod("p").owned_by("example.com/v1", "Db", "own"), at(0));
    world.apply(Kind::Budgets, &budget(&json!({ "maxUnavailable": 1 })), at(0));
    world
}

/// The pods of now may be there because a scale changed after it was asked for: an answer says nothing of them when it
/// is older than the two seconds that a controller takes.
#[test]
fn the_answer_about_a_scale_counts_for_two_seconds() {
    let world = custom();
    world.set_scale_at("uid-p", Ok(Scale::Replicas(3)), at(0), at(2));
    let status = ["at 7: 1 of 3 healthy, 2 wanted, 0 allowed, InsufficientPods"];
    assert_eq!(describe(&decide_at(&world, 4)), status);
    assert_eq!(describe(&decide_at(&world, 5)), ["ask Db own"]);
    // Unless it was asked for after the last change: then for as long as it takes to ask hundreds of others of the budget.
    world.set_scale("uid-p", Ok(Scale::Replicas(3)), at(2));
    assert_eq!(describe(&decide_at(&world, 32)), status);
    assert_eq!(describe(&decide_at(&world, 33)), ["ask Db own"]);
}

/// That a kind has no scale changes with its definition only.
#[test]
fn that_a_kind_has_no_scale_counts_for_a_minute() {
    let world = custom();
    world.set_scale("uid-p", Ok(Scale::None), at(2));
    assert_eq!(held(&decide_at(&world, 62)), ["PodsNotCounted", "DisruptionsNeverAllowed"]);
    assert_eq!(describe(&decide_at(&world, 63)), ["ask Db own"]);
}

/// A question that failed is put again in five seconds, and until then its budget lets nothing through.
#[test]
fn a_scale_that_could_not_be_asked_lets_nothing_through_for_five_seconds_and_is_asked_again() {
    let world = custom();
    world.set_scale("uid-p", Err("the API is gone"), at(2));
    let failed = decide_at(&world, 7);
    assert_eq!(describe(&failed), ["at 7: 0 of 0 healthy, 0 wanted, 0 allowed, SyncFailed"]);
    assert!(failed.requeue_at.is_some_and(|again| again > at(7) && again < at(8)), "{failed:?}");
    assert_eq!(describe(&decide_at(&world, 8)), ["ask Db own"]);
}

/// A controller whose scale is not found is as one that is not there: the answer is as old as any other.
#[test]
fn that_a_controller_is_absent_counts_for_two_seconds() {
    let world = custom();
    world.set_scale_at("uid-p", Ok(Scale::Absent), at(0), at(12));
    assert_eq!(held(&decide_at(&world, 14)), ["PodsNotCounted", "DisruptionsNeverAllowed"]);
    assert_eq!(describe(&decide_at(&world, 15)), ["ask Db own"]);
}

/// Kinds are not listed together: for a second a pod may have been seen before its controller. Then the controller is
/// read from the API server.
#[test]
fn the_controller_of_a_new_pod_may_come_for_a_second_and_is_then_asked() {
    let world = World::listed();
    world.apply(Kind::Pods, &pod("p").owned_by("apps/v1", "StatefulSet", "db"), at(10));
    world.apply(Kind::Budgets, &budget(&json!({ "maxUnavailable": 1 })), at(0));
    let first = decide_at(&world, 10);
    assert_eq!((describe(&first).len(), first.requeue_at), (0, Some(at(11))));
    assert_eq!(describe(&decide_at(&world, 11)), ["ask StatefulSet db"]);
}

/// B1: after each restart the budget of a pod without its controller said SyncFailed, and let nothing through, for ten
/// seconds.
#[test]
fn bug_the_budget_of_a_pod_whose_controller_is_gone_blinked_at_a_restart() {
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

/// B2: while the watch of a kind hangs, a workload that it has not brought counted as one that is not there.
#[test]
fn bug_pods_of_a_workload_that_a_hanging_watch_did_not_bring_were_not_counted() {
    let world = World::listed();
    world.apply(Kind::Pods, &pod("p").owned_by("apps/v1", "Deployment", "unseen"), at(0));
    world.apply(Kind::Budgets, &budget(&json!({ "maxUnavailable": 1 })), at(0));
    assert_eq!(describe(&decide_at(&world, 60)), ["ask Deployment unseen"]);
    world.set_scale("uid-p", Ok(Scale::Replicas(10)), at(60));
    assert_eq!(
        describe(&decide_at(&world, 61)),
        ["at 7: 1 of 10 healthy, 9 wanted, 0 allowed, InsufficientPods"]
    );
}

/// Nobody tells when a scale changes: once in a minute it is asked for.
#[test]
fn a_scale_is_asked_for_once_in_a_minute() {
    let world = custom();
    world.set_scale("uid-p", Ok(Scale::Replicas(3)), at(2));
    assert_eq!(decide_at(&world, 2).requeue_at, Some(at(62)));
}

/// As kube-controller-manager's `DeletionTimeout`: an eviction that was let through and came to nothing in two minutes
/// does not count any more.
#[test]
fn an_eviction_that_was_let_through_counts_for_120_seconds() {
    let world = stateful_set(3);
    world.apply(Kind::Budgets, &budget(&json!({ "maxUnavailable": 1 })), at(0));
    world.apply(Kind::Budgets, &evicted("db-1"), at(5));
    let allowed = |second: u64| describe(&decide_at(&world, second)).join(" ").contains("1 allowed");
    assert_eq!((allowed(5), allowed(125), allowed(126)), (false, false, true));
}
