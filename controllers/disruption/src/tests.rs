//! Sentences about decisions: the objects in the API, and what is written.

use std::time::Duration;

use crate::holds::Decision;
use pod_safety_shared::authority::{BudgetUpdate, Intent, NotDisruptedUpdate, Update};
use pod_safety_shared::controller_loop::{HoldReason as _, Subject};
use pod_safety_shared::model::{Kind, Scale};
use pod_safety_shared::testing::objects::{self, Obj, uid, workload};
use pod_safety_shared::testing::{World, at, hold_reasons as held};
use serde_json::{Value, json};

use super::*;

mod edges;
mod events;
mod limits;

const CONFIG: Config = Config { stale_pod_timeout: Duration::from_secs(120) };

/// A ready pod `ns/NAME` of the application `db`, with the UID `uid-NAME`.
fn pod(name: &str) -> Obj {
    objects::pod(name).set("/metadata/generation", json!(4)).labels(json!({ "app": "db" })).ready("True")
}

/// The budget `ns/b` on the application `db`, which was never calculated.
fn budget(spec: &Value) -> Obj {
    objects::budget("b", "db", spec)
}

/// Three ready pods of the StatefulSet `db` with this many replicas.
fn stateful_set(replicas: i32) -> World {
    let world = World::listed();
    for name in ["db-0", "db-1", "db-2"] {
        world.apply(Kind::Pods, &pod(name).owned_by("apps/v1", "StatefulSet", "db"), at(0));
    }
    world.apply(Kind::StatefulSets, &workload("db", replicas), at(0));
    world
}

/// The same with a budget that allows one of them to be unavailable.
fn guarded() -> World {
    let world = stateful_set(3);
    world.apply(Kind::Budgets, &budget(&json!({ "maxUnavailable": 1 })), at(0));
    world
}

/// A pod `p` of a custom resource whose scale must be read, with the same budget.
fn scaled_by_a_db() -> World {
    let world = World::listed();
    world.apply(Kind::Pods, &pod("p").owned_by("example.com/v1", "Db", "own"), at(0));
    world.apply(Kind::Budgets, &budget(&json!({ "maxUnavailable": 1 })), at(0));
    world
}

fn decide_at(world: &World, seconds: u64) -> Decision {
    world.confirm_all(at(seconds));
    decide(&Key::Budget(uid("uid-b")), &world.read().view(), at(seconds), &CONFIG)
}

fn describe(decision: &Decision) -> Vec<String> {
    let word = |intent: &Intent| match intent {
        Intent::Update(Update::Budget(update)) => {
            let BudgetUpdate { rv, status, over, transition, .. } = &**update;
            let reason = status.allowed_condition.as_ref().map_or("nothing", |allowed| &*allowed.reason);
            let [expected, desired] = [status.expected_pods, status.desired_healthy];
            let [healthy, allowed] = [status.current_healthy, status.disruptions_allowed];
            let over = if over.is_empty() { String::new() } else { format!(", over: {}", over.join(" ")) };
            let transition = if *transition { "" } else { ", as before" };
            format!(
                "at {rv}: {healthy} of {expected} healthy, {desired} wanted, {allowed} allowed, {reason}{transition}{over}"
            )
        }
        Intent::Update(Update::NotDisrupted(NotDisruptedUpdate { pod, rv, generation })) => {
            format!("{pod} at {rv} of generation {generation} is not disrupted")
        }
        Intent::Scale { controller, .. } => format!("ask {} {}", controller.kind, controller.name),
        _ => "another's".to_owned(),
    };
    decision.intents.iter().map(word).collect()
}

/// Applies the writes of a decision to the world.
fn write_back(world: &World, seconds: u64) {
    let decision = decide_at(world, seconds);
    let Some(Intent::Update(Update::Budget(update))) = decision.intents.first() else {
        panic!("nothing to write: {decision:?}")
    };
    let status = &update.status;
    let allowed = status.allowed_condition.as_ref().unwrap();
    let mut object = budget(&json!({ "maxUnavailable": 1 }));
    object["metadata"]["resourceVersion"] = json!("8");
    object["status"] = json!({ "observedGeneration": status.observed_generation,
        "disruptionsAllowed": status.disruptions_allowed, "currentHealthy": status.current_healthy,
        "desiredHealthy": status.desired_healthy, "expectedPods": status.expected_pods,
        "conditions": [{ "type": "DisruptionAllowed", "status": allowed.status, "reason": allowed.reason,
            "observedGeneration": allowed.observed_generation }] });
    world.apply(Kind::Budgets, &object, at(seconds));
}

#[test]
fn a_new_budget_gets_its_status() {
    let world = guarded();
    assert_eq!(describe(&decide_at(&world, 1)), ["at 7: 3 of 3 healthy, 2 wanted, 1 allowed, SufficientPods"]);
}

#[test]
fn a_correct_status_is_not_written_again() {
    let world = guarded();
    write_back(&world, 1);
    assert_eq!(decide_at(&world, 2), Decision::default());
}

#[test]
fn scaling_enqueues_the_budget() {
    let world = guarded();
    write_back(&world, 1);
    world.apply(Kind::StatefulSets, &workload("db", 5), at(2));
    assert_eq!(describe(&decide_at(&world, 2)), ["at 8: 3 of 5 healthy, 4 wanted, 0 allowed, InsufficientPods"]);
}

#[test]
fn a_pod_that_leaves_the_budget_does_not_count_any_more() {
    let world = stateful_set(3);
    world.apply(Kind::Budgets, &budget(&json!({ "minAvailable": 1 })), at(0));
    let relabelled = pod("db-0").set("/metadata/labels", json!({ "app": "other" }));
    world.apply(Kind::Pods, &relabelled, at(2));
    assert_eq!(describe(&decide_at(&world, 2)), ["at 7: 2 of 2 healthy, 1 wanted, 1 allowed, SufficientPods"]);
}

#[test]
fn a_deployment_counts_once_for_all_its_replica_sets() {
    let world = World::listed();
    for set in ["web-1", "web-2"] {
        let replica_set = workload(set, 2).owned_by("apps/v1", "Deployment", "web");
        world.apply(Kind::ReplicaSets, &replica_set, at(0));
        let name = format!("{set}-x");
        world.apply(Kind::Pods, &pod(&name).owned_by("apps/v1", "ReplicaSet", set), at(0));
    }
    world.apply(Kind::Budgets, &budget(&json!({ "maxUnavailable": "50%" })), at(0));
    let half = ["at 7: 2 of 4 healthy, 2 wanted, 0 allowed, InsufficientPods"];
    assert_eq!(describe(&decide_at(&world, 1)), half, "the Deployment is not there: the sets speak for themselves");
    world.apply(Kind::Deployments, &workload("web", 3), at(0));
    assert_eq!(describe(&decide_at(&world, 1)), ["at 7: 2 of 3 healthy, 1 wanted, 1 allowed, SufficientPods"]);
}

#[test]
fn scales_of_other_controllers_are_read_before_the_status_is_written() {
    let world = scaled_by_a_db();
    let first = decide_at(&world, 1);
    assert_eq!((describe(&first), held(&first)), (vec!["ask Db own".to_owned()], vec!["ScaleAsked"]));
    world.set_scale("uid-p", Ok(Scale::Replicas(3)), at(2));
    let second = decide_at(&world, 2);
    assert_eq!(describe(&second), ["at 7: 1 of 3 healthy, 2 wanted, 0 allowed, InsufficientPods"]);
    assert_eq!(second.requeue_at, Some(at(62)), "no watch shows when it is scaled");
    assert_eq!(describe(&decide_at(&world, 33)), ["ask Db own"], "an old answer is not used");
}

/// If one answer had expired before the last one came, the budget never had a status.
#[test]
fn answers_requested_after_the_last_change_are_awaited_together() {
    let world = World::listed();
    world.apply(Kind::Budgets, &budget(&json!({ "maxUnavailable": 1 })), at(0));
    for name in ["p", "q"] {
        world.apply(Kind::Pods, &pod(name).owned_by("example.com/v1", "Db", name), at(0));
    }
    world.set_scale_at("uid-p", Ok(Scale::Replicas(1)), at(1), at(2));
    world.set_scale_at("uid-q", Ok(Scale::Replicas(1)), at(15), at(16));
    let status = ["at 7: 2 of 2 healthy, 1 wanted, 1 allowed, SufficientPods"];
    assert_eq!(describe(&decide_at(&world, 16)), status, "slow, and asked after the last change");
    world.apply(Kind::Pods, &pod("q").owned_by("example.com/v1", "Db", "q").ready("False"), at(17));
    assert_eq!(describe(&decide_at(&world, 19)), ["ask Db p", "ask Db q"], "what was asked before a change is old");
}

/// Found beside kube-controller-manager, which reads scales again for each event: a custom resource was scaled, a pod
/// changed a second after the last answer, and the budget kept the old number for a minute.
#[test]
fn bug_pods_that_changed_after_an_answer_waited_a_minute_for_the_next_read() {
    let world = scaled_by_a_db();
    world.set_scale("uid-p", Ok(Scale::Replicas(3)), at(2));
    assert_eq!(decide_at(&world, 3).requeue_at, Some(at(63)), "no pod changed since");
    world.apply(Kind::Pods, &pod("q").owned_by("example.com/v1", "Db", "own"), at(3));
    let later = decide_at(&world, 3);
    assert_eq!(describe(&later), ["at 7: 2 of 3 healthy, 2 wanted, 0 allowed, InsufficientPods"]);
    let again = later.requeue_at.unwrap();
    assert!(again > at(4) && again < at(5), "{again:?}");
}

/// Found beside kube-controller-manager as well: a read was in flight when a scaling and its first pod came, the
/// answer arrived some milliseconds later with the old number, and counted as requested after them.
#[test]
fn bug_an_answer_in_flight_counted_as_requested_after_a_change() {
    // A pod that changed at the very moment of the request may be the first result of a scaling.
    for (pod_came, next) in [(1, 64), (2, 6), (3, 6)] {
        let world = World::listed();
        world.apply(Kind::Budgets, &budget(&json!({ "maxUnavailable": 1 })), at(0));
        world.apply(Kind::Pods, &pod("p").owned_by("example.com/v1", "Db", "own"), at(pod_came));
        world.set_scale_at("uid-p", Ok(Scale::Replicas(3)), at(2), at(4));
        let again = decide_at(&world, 4).requeue_at.unwrap();
        assert!(again >= at(next) && again.since(at(next)) < Duration::from_millis(2), "{again:?}");
    }
}

#[test]
fn a_pod_without_a_scale_is_excluded_and_named() {
    let world = stateful_set(3);
    world.apply(Kind::Pods, &pod("agent").owned_by("apps/v1", "DaemonSet", "agent"), at(0));
    world.apply(Kind::Budgets, &budget(&json!({ "maxUnavailable": 1 })), at(0));
    world.set_scale("uid-agent", Ok(Scale::None), at(1));
    let decision = decide_at(&world, 1);
    assert_eq!(describe(&decision), ["at 7: 3 of 3 healthy, 2 wanted, 1 allowed, SufficientPods"]);
    let messages: Vec<_> = decision.holds.iter().map(|(_, hold)| hold.to_string()).collect();
    assert!(messages[0].ends_with("agent of DaemonSet/agent"), "{messages:?}");
}

#[test]
fn a_missing_controller_is_awaited_then_read_then_excluded() {
    let world = World::listed();
    world.apply(Kind::Pods, &pod("p").owned_by("apps/v1", "StatefulSet", "db"), at(10));
    world.apply(Kind::Pods, &pod("q").owned_by("apps/v1", "StatefulSet", "other"), at(0));
    world.apply(Kind::StatefulSets, &workload("other", 1), at(0));
    world.apply(Kind::Budgets, &budget(&json!({ "maxUnavailable": 1 })), at(0));
    let soon = decide_at(&world, 10);
    assert_eq!((describe(&soon).len(), soon.requeue_at), (0, Some(at(11))), "it may come with the next event");
    assert_eq!(describe(&decide_at(&world, 11)), ["ask StatefulSet db"]);
    world.set_scale("uid-p", Ok(Scale::Absent), at(13));
    let later = decide_at(&world, 13);
    assert_eq!(describe(&later), ["at 7: 1 of 1 healthy, 0 wanted, 1 allowed, SufficientPods"]);
    assert_eq!(held(&later), ["PodsNotCounted"]);
}

#[test]
fn a_terminating_pod_without_its_controller_does_not_fail_the_budget() {
    let world = stateful_set(3);
    let ends = pod("old").terminating();
    world.apply(Kind::Pods, &ends.owned_by("apps/v1", "ReplicaSet", "gone"), at(10));
    world.apply(Kind::Budgets, &budget(&json!({ "maxUnavailable": 1 })), at(0));
    assert_eq!(describe(&decide_at(&world, 10)), ["at 7: 3 of 3 healthy, 2 wanted, 1 allowed, SufficientPods"]);
}

fn evicted(name: &str) -> Obj {
    let mut object = budget(&json!({ "maxUnavailable": 1 }));
    object["status"] = json!({ "observedGeneration": 2, "disruptionsAllowed": 0, "currentHealthy": 3,
        "desiredHealthy": 2, "expectedPods": 3, "disruptedPods": { name: "2026-01-01T00:10:00Z" },
        "conditions": [{ "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods",
            "observedGeneration": 2 }] });
    object
}

#[test]
fn an_entry_is_about_the_pod_that_had_the_name_when_it_appeared() {
    let world = guarded();
    world.apply(Kind::Budgets, &evicted("db-1"), at(5));
    assert_eq!(
        describe(&decide_at(&world, 5)),
        ["at 7: 2 of 3 healthy, 2 wanted, 0 allowed, InsufficientPods, as before"]
    );
    world.remove(Kind::Pods, "uid-db-1", at(6));
    let successor = pod("db-1").owned_by("apps/v1", "StatefulSet", "db").uid("new");
    world.apply(Kind::Pods, &successor, at(7));
    assert_eq!(
        describe(&decide_at(&world, 7)),
        ["at 7: 3 of 3 healthy, 2 wanted, 1 allowed, SufficientPods, over: db-1"]
    );
}

/// If the pod cache was behind by a whole replacement, the predecessor had the name, and the evicted pod counted as
/// healthy.
#[test]
fn bug_an_entry_was_bound_to_a_pod_that_was_already_terminating() {
    let world = guarded();
    world.apply(Kind::Pods, &pod("db-1").owned_by("apps/v1", "StatefulSet", "db").terminating(), at(3));
    world.apply(Kind::Budgets, &evicted("db-1"), at(5));
    world.remove(Kind::Pods, "uid-db-1", at(6));
    let successor = pod("db-1").owned_by("apps/v1", "StatefulSet", "db").uid("new");
    world.apply(Kind::Pods, &successor.set("/metadata/creationTimestamp", json!("2026-01-01T00:09:00Z")), at(7));
    assert_eq!(
        describe(&decide_at(&world, 7)),
        ["at 7: 2 of 3 healthy, 2 wanted, 0 allowed, InsufficientPods, as before"]
    );
}

#[test]
fn an_eviction_that_did_not_happen_is_dropped_after_two_minutes_and_reported() {
    let world = guarded();
    world.apply(Kind::Budgets, &evicted("db-1"), at(5));
    assert!(decide_at(&world, 5).requeue_at.is_some_and(|again| again > at(125) && again < at(126)));
    assert!(describe(&decide_at(&world, 125)).join(" ").contains("0 allowed"), "as long as `DeletionTimeout` of KCM");
    let late = decide_at(&world, 126);
    assert_eq!(describe(&late), ["at 7: 3 of 3 healthy, 2 wanted, 1 allowed, SufficientPods, over: db-1"]);
    assert!(matches!(&late.holds[..], [(Subject::Pod(pod), hold)]
        if &*pod.name == "db-1" && hold.reason() == "EvictionNotCompleted"));
}

#[test]
fn problems_of_a_budget_are_reported() {
    let world = stateful_set(3);
    let bare = |name: &str| world.apply(Kind::Pods, &pod(name), at(0));
    let cases: [(&str, Value, &[&str]); 4] = [
        ("it can never allow", json!({ "minAvailable": 3 }), &["DisruptionsNeverAllowed"]),
        ("it could allow", json!({ "minAvailable": 2 }), &[]),
        ("percentages above all", json!({ "minAvailable": "200%" }), &["DisruptionsNeverAllowed"]),
        (
            "it chooses nothing",
            json!({ "maxUnavailable": 1, "selector": { "matchLabels": { "app": "x" } } }),
            &["NoPods"],
        ),
    ];
    for (sentence, spec, holds) in cases {
        world.apply(Kind::Budgets, &budget(&spec), at(0));
        assert_eq!(held(&decide_at(&world, 1)), holds, "{sentence}");
    }
    world.remove(Kind::Pods, "uid-db-2", at(1));
    world.apply(Kind::Budgets, &budget(&json!({ "minAvailable": 2 })), at(0));
    assert!(held(&decide_at(&world, 1)).is_empty(), "a pod that is missing now is no reason");
    bare("naked");
    world.apply(Kind::Budgets, &budget(&json!({ "maxUnavailable": 1 })), at(0));
    assert_eq!(held(&decide_at(&world, 1)), ["UnmanagedPods"]);
    world.apply(Kind::Budgets, &budget(&json!({ "minAvailable": 1 })), at(0));
    assert!(held(&decide_at(&world, 1)).is_empty(), "a whole number counts naked pods");
}

#[test]
fn a_pod_of_two_budgets_is_reported_once() {
    let world = guarded();
    let mut other = budget(&json!({ "maxUnavailable": 1 }));
    (other["metadata"]["name"], other["metadata"]["uid"]) = (json!("c"), json!("uid-c"));
    world.apply(Kind::Budgets, &other, at(0));
    let of = |key: &str| decide(&Key::Budget(uid(key)), &world.read().view(), at(1), &CONFIG);
    let first = of("uid-b");
    assert_eq!(held(&first), ["MultipleBudgets"; 3]);
    assert!(first.holds[0].1.to_string().contains("b, c"));
    assert!(held(&of("uid-c")).is_empty());
}

/// A tenant kept a process busy: a budget for each of its pods, all of which select all pods.
#[test]
fn attack_budgets_that_all_select_all_pods_are_each_decided_by_their_own_pods() {
    let world = World::listed();
    let many = 400;
    for number in 0..many {
        let labels = json!({ "number": number.to_string() });
        world.apply(Kind::Pods, &pod(&format!("p{number}")).set("/metadata/labels", labels), at(0));
        let mut all = budget(&json!({ "minAvailable": 1, "selector": {} }));
        let name = format!("b{number:0>3}");
        (all["metadata"]["uid"], all["metadata"]["name"]) = (json!(format!("uid-{name}")), json!(name));
        world.apply(Kind::Budgets, &all, at(0));
    }
    let guard = world.read();
    let held: Vec<_> = (0..many)
        .map(|number| decide(&Key::Budget(uid(&format!("uid-b{number:0>3}"))), &guard.view(), at(1), &CONFIG))
        .map(|decision| decision.holds.into_iter().map(|(_, hold)| hold.to_string()).collect::<Vec<_>>())
        .filter(|holds| !holds.is_empty())
        .collect();
    assert_eq!(held.iter().map(Vec::len).collect::<Vec<_>>(), [10], "one budget reports ten pods: {held:?}");
    assert!(held[0][0].len() < 300, "and names ten budgets: {}", held[0][0]);
}

/// Whether a budget selects a pod with too many labels is unknown. The pod counts in none, so that no additional
/// eviction is allowed.
#[test]
fn attack_a_pod_with_more_labels_than_are_kept_counts_in_no_budget_and_is_named() {
    let world = guarded();
    world.apply(Kind::Budgets, &budget(&json!({ "maxUnavailable": 1 })), at(0));
    let before = describe(&decide_at(&world, 1));
    let mut labels: serde_json::Map<_, _> = (0..200).map(|number| (format!("l{number}"), json!(""))).collect();
    labels.insert("app".to_owned(), json!("db"));
    world.apply(Kind::Pods, &pod("fat").set("/metadata/labels", json!(labels)), at(0));
    let decision = decide_at(&world, 1);
    assert_eq!((held(&decision), describe(&decision)), (vec!["TooManyLabels"], before));
    assert!(decision.holds[0].1.to_string().ends_with(": fat"));
}

fn about_to_end(reason: &str) -> Obj {
    pod("p").set(
        "/status/conditions",
        json!([{ "type": "DisruptionTarget", "status": "True", "reason": reason,
        "lastTransitionTime": "2026-01-01T00:00:00Z" }]),
    )
}

#[test]
fn a_stale_disruption_target_condition_is_set_to_false() {
    let world = World::listed();
    let decided = |seconds| {
        world.confirm_all(at(seconds));
        decide(&Key::StalePod(uid("uid-p")), &world.read().view(), at(seconds), &CONFIG)
    };
    world.apply(Kind::Pods, &pod("p"), at(0));
    world.apply(Kind::Pods, &about_to_end("EvictionByEvictionAPI"), at(10));
    assert_eq!(decided(11), Decision::default().and_requeue_at(at(130)));
    let noise = about_to_end("EvictionByEvictionAPI").rv(11);
    world.apply(Kind::Pods, &noise, at(100));
    assert_eq!(describe(&decided(130)), ["ns/p at 11 of generation 4 is not disrupted"]);
    let untouched = [
        ("a reason of the kubelet", about_to_end("TerminationByKubelet")),
        ("it ends", about_to_end("X").terminating()),
        ("it ended", about_to_end("X").phase("Failed")),
    ];
    for (sentence, pod) in untouched {
        world.apply(Kind::Pods, &pod, at(131));
        assert_eq!(decided(1_000), Decision::default(), "{sentence}");
    }
}

#[test]
fn a_stale_cache_holds_every_decision() {
    let world = guarded();
    let decision = decide(&Key::Budget(uid("uid-b")), &world.read().view(), at(151), &CONFIG);
    assert_eq!((describe(&decision).len(), held(&decision)), (0, vec!["Stale"]));
}

#[test]
fn fields_that_cannot_be_parsed_are_named() {
    let world = stateful_set(3);
    let cases = [
        (json!({ "maxUnavailable": "many" }), "spec.maxUnavailable: \"many\""),
        (
            json!({ "maxUnavailable": 1, "selector": { "matchExpressions": [{ "key": "k", "operator": "Near" }] } }),
            "spec.selector: matchExpressions of key \"k\": operator \"Near\"",
        ),
    ];
    for (spec, says) in cases {
        world.apply(Kind::Budgets, &budget(&spec), at(0));
        let decision = decide_at(&world, 1);
        assert_eq!(describe(&decision), ["at 7: 0 of 0 healthy, 0 wanted, 0 allowed, SyncFailed"]);
        let message = decision.holds[0].1.to_string();
        assert!(message.contains(says), "{message}");
    }
}

/// Found on the real API server: two budgets in two namespaces, and an owner reference with the other's UID.
#[test]
fn an_owner_reference_with_a_foreign_uid_has_an_answer_of_its_own() {
    let world = World::listed();
    world.apply(Kind::Pods, &pod("p").owned_by("example.com/v1", "Db", "own"), at(0));
    let other = pod("q").owned_by("example.com/v1", "Phantom", "own").in_namespace("elsewhere");
    world.apply(Kind::Pods, &other, at(0));
    world.apply(Kind::Budgets, &budget(&json!({ "maxUnavailable": 1 })), at(0));
    world.set_scale("uid-p", Ok(Scale::Replicas(3)), at(1));
    world.set_scale("uid-q", Err("there is no kind Phantom"), at(1));
    assert_eq!(describe(&decide_at(&world, 1)), ["at 7: 1 of 3 healthy, 2 wanted, 0 allowed, InsufficientPods"]);
}

/// A budget that was deleted after the decision needs nothing.
#[test]
fn a_deleted_budget_needs_nothing() {
    let world = guarded();
    world.remove(Kind::Budgets, "uid-b", at(1));
    assert_eq!(decide_at(&world, 1), Decision::default());
    assert_eq!(world.read().view().pods_of_budget(&uid("uid-b")).count(), 0);
    assert!(world.read().view().budget(&uid("uid-b")).is_none());
}
