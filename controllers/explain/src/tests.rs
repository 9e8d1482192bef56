//! Explanations of budgets; those of evidence are in `evidence`.

mod advice;
mod devices;
mod evidence;

use pod_safety_shared::cache::View;
use pod_safety_shared::model::{Budget, Kind, Phase, Scale};
use pod_safety_shared::testing::objects::{uid, workload};
use pod_safety_shared::testing::{World, at};
use serde_json::{Value, json};

use super::*;
use crate::fixture::{application, budget, failed, not_ready, pod, replica, stateful_set};

fn budget_of<'a>(view: &View<'a>, name: &str) -> &'a Budget {
    view.budget(&uid(&format!("uid-{name}"))).unwrap()
}

/// Verdict, arithmetic, what an eviction of each pod would do, remediations.
fn summarize(world: &World, name: &str) -> (String, String, Vec<String>, Vec<String>) {
    let guard = world.read();
    let explained = explain_budget(budget_of(&guard.view(), name), &guard.view(), at(60));
    let pods =
        explained.members.iter().map(|member| format!("{}: {}", member.pod.key.name, member.eviction.describe()));
    let remediations =
        explained.remediations.iter().map(|remediation| format!("{} => {}", remediation.change, remediation.effect));
    (format!("{:?}", explained.verdict), explained.arithmetic.describe(), pods.collect(), remediations.collect())
}

/// Three ready pods of a StatefulSet of three replicas, and this budget.
fn three(spec: &Value, status: [i64; 5]) -> World {
    let world = World::listed();
    application(&world, "db", 3);
    world.apply(Kind::Budgets, &budget("b", "db", spec, status), at(0));
    world
}

fn verdict(spec: &Value, status: [i64; 5]) -> (String, String) {
    let (verdict, sum, ..) = summarize(&three(spec, status), "b");
    (verdict, sum)
}

fn expected(verdict: &str, sum: &str) -> (String, String) {
    (verdict.to_owned(), sum.to_owned())
}

#[test]
fn each_budget_has_one_verdict() {
    let cases: [(Value, [i64; 5], &str, &str); 9] = [
        (json!({ "maxUnavailable": 1 }), [2, 3, 2, 3, 1], "Allows(1)", "3 healthy - 2 needed = 1"),
        (json!({ "maxUnavailable": 1 }), [2, 3, 2, 3, 0], "NoneNow", "3 healthy - 2 needed = 1, of which 0 left"),
        (json!({ "maxUnavailable": 1 }), [2, 2, 2, 3, 0], "NoneNow", "2 healthy - 2 needed = 0"),
        (json!({ "maxUnavailable": 1 }), [2, 1, 2, 3, 0], "NoneNow", "1 healthy of 2 needed"),
        (json!({ "minAvailable": 3 }), [2, 3, 3, 3, 0], "Never", "3 healthy - 3 needed = 0"),
        (json!({ "minAvailable": "67%" }), [2, 3, 3, 3, 0], "Never", "3 healthy - 3 needed = 0"),
        (json!({ "minAvailable": "66%" }), [2, 2, 2, 3, 0], "NoneNow", "2 healthy - 2 needed = 0"),
        (json!({ "maxUnavailable": 0 }), [2, 3, 3, 3, 0], "Never", "3 healthy - 3 needed = 0"),
        (json!({ "maxUnavailable": 1 }), [1, 3, 2, 3, 1], "Processing", "3 healthy - 2 needed = 1"),
    ];
    for (spec, status, verdict_name, sum) in cases {
        assert_eq!(verdict(&spec, status), expected(verdict_name, sum), "{spec} {status:?}");
    }
}

/// With a whole number kube-controller-manager expects as many pods as there are: while one is missing, "needs all of
/// them" is true for now only.
#[test]
fn a_missing_pod_does_not_give_the_verdict_never() {
    let world = World::listed();
    application(&world, "db", 2);
    stateful_set(&world, "db", 3);
    world.apply(Kind::Budgets, &budget("b", "db", &json!({ "minAvailable": 2 }), [2, 2, 2, 2, 0]), at(0));
    let (verdict, _, _, remediations) = summarize(&world, "b");
    assert_eq!(verdict, "NoneNow");
    assert_eq!(remediations[0], "wait until the missing pods exist and are Ready => 1 at a time with all healthy");
}

#[test]
fn verdict_never_lists_remediations_with_their_effects() {
    let (_, _, pods, remediations) = summarize(&three(&json!({ "minAvailable": 3 }), [2, 3, 3, 3, 0]), "b");
    assert_eq!(pods, ["db-0: be denied (429)", "db-1: be denied (429)", "db-2: be denied (429)"]);
    assert_eq!(
        remediations,
        [
            "maxUnavailable: 1 in place of minAvailable: 3 => 1 at a time",
            "scale StatefulSet/db to 4 => 1 at a time once they are Ready",
            "unhealthyPodEvictionPolicy: AlwaysAllow => nothing now: every pod that it blocks is healthy",
        ]
    );
    let (.., remediations) = summarize(&three(&json!({ "minAvailable": "100%" }), [2, 3, 3, 3, 0]), "b");
    assert!(!remediations.iter().any(|remediation| remediation.starts_with("scale")), "{remediations:?}");
}

#[test]
fn a_remediation_for_one_replica_says_that_none_runs_meanwhile() {
    let world = World::listed();
    application(&world, "db", 1);
    let one = budget("b", "db", &json!({ "minAvailable": 1 }), [2, 1, 1, 1, 0]);
    world.apply(Kind::Budgets, &one, at(0));
    assert_eq!(
        summarize(&world, "b").3[0],
        "maxUnavailable: 1 in place of minAvailable: 1 => 1 at a time, and none runs meanwhile"
    );
}

/// Pods that are not Ready.
#[test]
fn pods_that_are_not_ready_are_evicted_by_the_unhealthy_policy() {
    let cases: [(Option<&str>, [i64; 5], &str); 4] = [
        (None, [2, 2, 2, 3, 0], "be allowed: it is not Ready, and enough others are"),
        (None, [2, 1, 2, 3, 0], "be denied (429)"),
        (None, [2, 0, 0, 3, 0], "be denied (429)"),
        (Some("AlwaysAllow"), [2, 1, 2, 3, 0], "be allowed: it is not Ready (AlwaysAllow)"),
    ];
    for (policy, status, answer) in cases {
        let world = three(&json!({ "maxUnavailable": 1, "unhealthyPodEvictionPolicy": policy }), status);
        world.apply(Kind::Pods, &not_ready(replica("db", "db-0")), at(1));
        assert_eq!(summarize(&world, "b").2[0], format!("db-0: {answer}"), "{policy:?} {status:?}");
    }
    let world = three(&json!({ "maxUnavailable": 1 }), [2, 1, 2, 3, 0]);
    world.apply(Kind::Pods, &not_ready(replica("db", "db-0")), at(1));
    assert_eq!(
        summarize(&world, "b").3,
        [
            "wait until db-0 is Ready again => 1 at a time with all healthy",
            "unhealthyPodEvictionPolicy: AlwaysAllow => db-0 can go: not Ready"
        ]
    );
}

#[test]
fn the_eviction_of_a_pod_of_two_budgets_fails_and_names_both() {
    let world = three(&json!({ "maxUnavailable": 1 }), [2, 3, 2, 3, 1]);
    let other = budget("other", "db", &json!({ "maxUnavailable": 1 }), [2, 3, 2, 3, 1]);
    world.apply(Kind::Budgets, &other, at(0));
    let (verdict, _, pods, remediations) = summarize(&world, "b");
    assert_eq!(verdict, "Overlaps([\"other\"])");
    assert_eq!(pods[0], "db-0: fail (500): PodDisruptionBudgets b and other select it");
    assert_eq!(
        remediations,
        ["narrow or delete other or this one => the API server evicts pods that one PodDisruptionBudget selects"]
    );
}

#[test]
fn a_budget_that_failed_to_sync_or_is_invalid_has_its_own_verdict() {
    let failed = failed(budget("b", "db", &json!({ "maxUnavailable": 1 }), [2, 3, 2, 3, 0]))
        .set("/status/conditions/0/observedGeneration", json!(2));
    let world = three(&json!({}), [2, 0, 0, 0, 0]);
    world.apply(Kind::Budgets, &failed, at(1));
    let (verdict, _, pods, _) = summarize(&world, "b");
    assert_eq!(verdict, "SyncFailed(\"no scale\")");
    assert_eq!(pods[0], "db-0: be denied (429): the PodDisruptionBudget failed to sync");

    let like = json!({ "matchExpressions": [{ "key": "k", "operator": "Like" }] });
    let unreadable = budget("b", "db", &json!({}), [2, 0, 0, 0, 0]).set("/spec/selector", like);
    world.apply(Kind::Budgets, &unreadable, at(2));
    assert!(summarize(&world, "b").0.starts_with("Ignored"), "{:?}", summarize(&world, "b"));

    world.apply(Kind::Budgets, &budget("b", "nobody", &json!({ "maxUnavailable": 1 }), [2, 0, 0, 0, 0]), at(3));
    assert_eq!(summarize(&world, "b").0, "SelectsNothing");
}

#[test]
fn an_outdated_status_is_noted() {
    let world = three(&json!({ "maxUnavailable": 1 }), [2, 1, 2, 3, 0]);
    world.confirm_all(at(60));
    let guard = world.read();
    let notes = explain_budget(budget_of(&guard.view(), "b"), &guard.view(), at(60)).notes;
    assert_eq!(
        notes,
        [
            "With its current pods its status should be 3 healthy - 2 needed = 1: the disruption controller is behind, or does not run."
        ]
    );
}

#[test]
fn the_owner_is_the_deployment_and_not_its_replica_set() {
    let world = World::listed();
    let set = workload("web-5c", 1).owned_by("apps/v1", "Deployment", "web");
    world.apply(Kind::ReplicaSets, &set, at(0));
    world.apply(Kind::Pods, &pod("web", "web-x").owned_by("apps/v1", "ReplicaSet", "web-5c"), at(0));
    world.apply(Kind::Pods, &pod("web", "naked"), at(0));
    let guard = world.read();
    let owners: Vec<String> = guard.view().all_pods().map(|pod| owner_of(pod, &guard.view())).collect();
    assert_eq!(owners, ["no controller", "Deployment/web"]);
}

/// What the API server would answer an eviction of one pod.
#[test]
fn predicted_evictions_match_the_api_server() {
    let world = three(&json!({ "maxUnavailable": 1 }), [2, 3, 2, 3, 1]);
    let guard = world.read();
    let budget = budget_of(&guard.view(), "b").clone();
    let pod = guard.view().all_pods().next().unwrap().clone();
    let status = |change: fn(&mut pod_safety_shared::model::Budget)| {
        let mut changed = budget.clone();
        change(&mut changed);
        predict_eviction(&pod, [&changed]).reason()
    };
    assert_eq!(status(|_| {}), "BudgetAllows");
    assert_eq!(status(|budget| budget.status.disruptions_allowed = 0), "BudgetBlocks");
    assert_eq!(status(|budget| budget.status.disruptions_allowed = -1), "BudgetNegative");
    assert_eq!(status(|budget| budget.generation = 3), "BudgetBeingProcessed");
    assert_eq!(predict_eviction(&pod, []).reason(), "NoBudget");
    let mut pending = pod.clone();
    pending.phase = Phase::Pending;
    assert_eq!(predict_eviction(&pending, [&budget]).reason(), "Pending");
    let mut finished = pod;
    finished.phase = Phase::Failed;
    assert_eq!(predict_eviction(&finished, [&budget]).reason(), "Finished");
}

/// Two ready pods of a custom resource, and a budget that needs both.
fn fleet() -> World {
    let world = World::listed();
    for name in ["f-0", "f-1"] {
        world.apply(Kind::Pods, &pod("f", name).owned_by("example.com/v1", "Fleet", "f"), at(0));
    }
    world.apply(Kind::Budgets, &budget("b", "f", &json!({ "minAvailable": 2 }), [2, 2, 2, 2, 0]), at(0));
    world
}

fn scales_of(world: &World) -> Vec<String> {
    let guard = world.read();
    let view = guard.view();
    required_scales(budget_of(&view, "b"), &view, at(60)).map(|(_, of)| format!("{}/{}", of.kind, of.name)).collect()
}

fn notes_of(world: &World) -> Vec<String> {
    let guard = world.read();
    explain_budget(budget_of(&guard.view(), "b"), &guard.view(), at(60)).notes
}

#[test]
fn the_scale_of_a_custom_resource_counts() {
    let world = fleet();
    assert_eq!(scales_of(&world), ["Fleet/f", "Fleet/f"]);
    world.set_scale("uid-f-0", Ok(Scale::Replicas(2)), at(61));
    assert_eq!(scales_of(&world), Vec::<String>::new());
    let (verdict, _, _, remediations) = summarize(&world, "b");
    assert_eq!(verdict, "Never");
    assert_eq!(remediations[1], "scale Fleet/f to 3 => 1 at a time once they are Ready");
    world.set_scale("uid-f-0", Ok(Scale::Replicas(3)), at(61));
    assert_eq!(summarize(&world, "b").0, "NoneNow", "the third is missing");
    assert_eq!(notes_of(&world), Vec::<String>::new());
}

#[test]
fn without_a_scale_that_was_read_replicas_are_unknown() {
    let world = fleet();
    let note = |why: &str| {
        vec![format!(
            "It is not known how many pods there should be, nor how many evictions it allows when all of them are healthy: {why}"
        )]
    };
    assert_eq!(notes_of(&world), note("Fleet/f was not asked"));
    world.set_scale("uid-f-0", Err("asking for the scale of Fleet f: no"), at(61));
    assert_eq!(summarize(&world, "b").0, "NoneNow", "whether it ever allows one is not known");
    assert_eq!(notes_of(&world), note("asking for the scale of Fleet f: no"));
    let guard = world.read();
    let numbers = explain_budget(budget_of(&guard.view(), "b"), &guard.view(), at(60)).arithmetic;
    assert_eq!((numbers.replicas, numbers.ceiling), (None, None));
}

/// As a command that has just read everything: the pods were first seen after the time for which a controller waits.
#[test]
fn pods_of_a_controller_without_a_scale_count_themselves() {
    for scale in [Scale::None, Scale::Absent] {
        let world = World::listed();
        world.apply(Kind::Pods, &pod("f", "f-0").owned_by("example.com/v1", "Fleet", "f"), at(60));
        let spec = json!({ "maxUnavailable": 1 });
        world.apply(Kind::Budgets, &budget("b", "f", &spec, [2, 0, 0, 0, 0]), at(60));
        world.set_scale("uid-f-0", Ok(scale), at(60));
        let (verdict, _, _, remediations) = summarize(&world, "b");
        assert_eq!(verdict, "Never", "{scale:?}");
        assert_eq!(
            remediations[0],
            "minAvailable: 0 in place of maxUnavailable: 1 => 1 at a time, and none runs meanwhile"
        );
    }
}

/// kube-controller-manager does not update the observed generation when it fails: the advice to check that it runs did
/// not help.
#[test]
fn bug_a_new_budget_that_failed_to_sync_was_reported_as_processing() {
    let failed = failed(budget("b", "db", &json!({ "maxUnavailable": 1 }), [0, 0, 0, 0, 0]));
    let world = three(&json!({}), [2, 0, 0, 0, 0]);
    world.apply(Kind::Budgets, &failed, at(1));
    let (verdict, _, pods, remediations) = summarize(&world, "b");
    assert_eq!(verdict, "SyncFailed(\"no scale\")");
    assert_eq!(pods[0], "db-0: be denied (429): the PodDisruptionBudget is still being processed");
    assert_eq!(remediations, ["fix what the message names => the numbers are calculated again"]);
}

/// A Job `job` with this pod beside the three of `db`, and the status that kube-controller-manager leaves when it fails:
/// it counts a pod that has terminated, too.
#[test]
fn bug_a_budget_with_pods_of_a_job_was_reported_as_behind() {
    for phase in ["Running", "Succeeded"] {
        let world = three(&json!({}), [2, 0, 0, 0, 0]);
        let failed = failed(budget("b", "db", &json!({ "maxUnavailable": 1 }), [2, 3, 2, 3, 0]));
        world.apply(Kind::Budgets, &failed, at(1));
        let job = pod("db", "job-x").owned_by("batch/v1", "Job", "job").set("/status/phase", json!(phase));
        world.apply(Kind::Pods, &job, at(1));
        world.set_scale("uid-job-x", Ok(Scale::None), at(60));
        world.confirm_all(at(60));
        let (verdict, sum, _, remediations) = summarize(&world, "b");
        assert_eq!((&*verdict, &*sum), ("SyncFailed(\"no scale\")", "3 healthy - 2 needed = 1, of which 0 left"));
        assert_eq!(
            notes_of(&world),
            [
                "It selects pods of owners without a scale (Job/job): kube-controller-manager then calculates only a minAvailable that is a whole number."
            ]
        );
        let least = if phase == "Running" { 3 } else { 2 };
        let amount = format!("minAvailable: {least} in place of maxUnavailable: 1 => 1 at a time");
        let narrow = "have spec.selector leave out the pods of Job/job => the numbers are calculated again";
        assert_eq!(remediations, [narrow, &*amount]);
    }
}

/// The old pod of a Deployment of one replica terminates on a lost node. The advice was to wait until it is Ready again.
#[test]
fn bug_a_terminating_pod_counted_as_one_that_can_become_healthy() {
    let world = World::listed();
    world.apply(Kind::ReplicaSets, &workload("web-5c", 1), at(0));
    for (name, ends) in [("web-old", true), ("web-new", false)] {
        let of_set = pod("web", name).owned_by("apps/v1", "ReplicaSet", "web-5c");
        let of_set = if ends { of_set.terminating() } else { of_set };
        world.apply(Kind::Pods, &of_set, at(0));
    }
    world.apply(Kind::Budgets, &budget("b", "web", &json!({ "minAvailable": 1 }), [2, 1, 1, 1, 0]), at(0));
    let (verdict, _, _, remediations) = summarize(&world, "b");
    assert_eq!(verdict, "Never", "{remediations:?}");
    assert_eq!(remediations[1], "scale ReplicaSet/web-5c to 2 => 1 at a time once they are Ready");
}

/// kube-controller-manager counts an eviction by the name of the pod, for two minutes: a successor is Ready before that. It was
/// reported as behind.
#[test]
fn bug_a_successor_of_an_evicted_pod_was_reported_as_not_counted() {
    let evicted = json!({ "db-1": "2026-01-01T00:00:00Z" });
    let status = |numbers| {
        budget("b", "db", &json!({ "maxUnavailable": 1 }), numbers).set("/status/disruptedPods", evicted.clone())
    };
    for (numbers, notes) in [([2, 2, 2, 3, 0], 0), ([2, 1, 2, 3, 0], 1)] {
        let world = three(&json!({}), [2, 0, 0, 0, 0]);
        let successor = replica("db", "db-1").set("/metadata/creationTimestamp", json!("2026-01-01T00:00:30Z"));
        world.apply(Kind::Pods, &successor, at(30));
        world.apply(Kind::Budgets, &status(numbers), at(30));
        world.confirm_all(at(60));
        assert_eq!(notes_of(&world).len(), notes, "{numbers:?}: {:?}", notes_of(&world));
        assert_eq!(
            summarize(&world, "b").3[0],
            "wait until the eviction of db-1 counts no more, two minutes at most => 1 at a time with all healthy"
        );
    }
}

/// After `kubectl delete deployment`. It was called an owner without a scale, and the advice was to change the selector.
#[test]
fn bug_the_pods_of_a_deleted_owner_were_reported_without_a_scale() {
    let world = three(&json!({}), [2, 0, 0, 0, 0]);
    let failed = failed(budget("b", "db", &json!({ "maxUnavailable": 1 }), [2, 3, 2, 3, 0]));
    world.apply(Kind::Budgets, &failed, at(1));
    let orphan = pod("db", "old").owned_by("apps/v1", "ReplicaSet", "deleted").terminating();
    world.apply(Kind::Pods, &orphan, at(1));
    world.confirm_all(at(60));
    assert_eq!(
        notes_of(&world),
        [
            "It selects pods whose owners were deleted (old): kube-controller-manager calculates a minAvailable that is a whole number only, until they are gone."
        ]
    );
    assert_eq!(summarize(&world, "b").3, ["wait until old is gone => the numbers are calculated again"]);
}

/// Such pods need no eviction: the verdict was that drains wait until they are Ready.
#[test]
fn bug_a_budget_of_terminated_pods_was_reported_to_block() {
    let world = World::listed();
    for (name, phase) in [("f-0", "Succeeded"), ("f-1", "Failed")] {
        world.apply(Kind::Pods, &not_ready(pod("f", name)).set("/status/phase", json!(phase)), at(0));
    }
    world.apply(Kind::Budgets, &budget("b", "f", &json!({ "minAvailable": 1 }), [2, 0, 1, 2, 0]), at(0));
    world.confirm_all(at(60));
    let (verdict, _, pods, remediations) = summarize(&world, "b");
    assert_eq!((&*verdict, remediations.len()), ("AllTerminated", 0));
    assert_eq!(pods, ["f-0: remove it: it has terminated", "f-1: remove it: it has terminated"]);
    assert_eq!(notes_of(&world), Vec::<String>::new());
}
