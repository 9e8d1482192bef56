//! The imperative evictor.

use super::*;
use crate::evictor::parse_attempts;

fn turn() -> Obj {
    active_eviction(&[(EVICTOR, 100, "Active")])
}

pub(super) fn with_message(message: &str, heartbeat: u64) -> Obj {
    let one = reports(turn(), 0, "heartbeatTime", &json!(timestamp(heartbeat)));
    reports(one, 0, "message", &json!(message))
}

pub(super) fn refused(reason: &str, count: u32, last: u64, pause: u64) -> String {
    format!("{reason}: no (attempts={count}, last={}, retryAfter={pause}s)", timestamp(last))
}

/// The evictor's actions, without the request's own status.
fn acts(pod: Obj, eviction: Obj, second: u64) -> Vec<String> {
    let all = describe(&decide_at(&world(&[(Kind::Pods, pod), request_object(), (Kind::Evictions, eviction)]), second));
    all.into_iter().filter(|word| !word.starts_with("r at ")).collect()
}

#[test]
fn the_evictor_evicts_only_pods_that_it_should() {
    let says = |message: &str, done: &str| vec![format!("pod-1-p: {EVICTOR} says {message:?}{done}")];
    let of_lost = |object: Obj| object.on("n").terminating();
    let cases: Vec<(&str, Obj, Vec<String>)> = vec![
        ("any pod", pod("p"), vec!["evict, attempt 1".to_owned()]),
        (
            "of a DaemonSet",
            pod("p").owned_by("apps/v1", "DaemonSet", "d"),
            says(
                "the pod belongs to a DaemonSet, which would replace it on the same node: it is not evicted",
                " and is done",
            ),
        ),
        (
            "a mirror pod",
            pod("p").mirror(),
            says(
                "the pod is the API's copy of a static pod, which only its kubelet can end: it is not evicted",
                " and is done",
            ),
        ),
        ("terminating", pod("p").terminating(), says("the pod is terminating", "")),
        (
            "on a node that is gone",
            of_lost(pod("p")),
            says(
                "the pod is terminating, and node n does not report: it is removed with evidence that its processes have ended",
                "",
            ),
        ),
    ];
    for (sentence, object, wanted) in cases {
        assert_eq!(acts(object, turn(), 1), wanted, "{sentence}");
    }
}

/// The responder counts as completed, not as interrupted.
#[test]
fn the_evictor_reports_that_the_pod_is_gone_before_the_eviction_ends() {
    let gone = world(&[request_object(), (Kind::Evictions, turn())]);
    let said = describe(&decide_at(&gone, 1));
    assert!(said.iter().any(|word| word.ends_with("says \"the pod does not exist any more\" and is done")), "{said:?}");
    gone.apply(Kind::Evictions, &reports(turn(), 0, "completionTime", &json!(timestamp(1))), at(2));
    let said = describe(&decide_at(&gone, 2));
    assert!(
        said.iter().any(|word| word.contains("evictor Completed; ") && word.contains("True/PodDeleted")),
        "{said:?}"
    );
    // A pod with a terminal phase may still run: no end is reported, and once what is missing.
    let may_run =
        "the pod's phase is terminal, but its last report shows a running container: evidence that it ended is missing";
    let called_ended = |eviction: Obj, second| acts(pod("p").phase("Failed").running(), eviction, second);
    for (before, second) in [(turn(), 1), (with_message("the pod is terminating", 60), 61)] {
        assert_eq!(called_ended(before, second), [format!("pod-1-p: {EVICTOR} says {may_run:?}")]);
    }
    assert_eq!(called_ended(with_message(may_run, 60), 61), Vec::<String>::new());
}

/// While a pod terminates for 25 minutes the evictor stays active, and evicts no second time.
#[test]
fn a_terminating_pod_is_reported_every_three_minutes() {
    let said = with_message("the pod is terminating", 60);
    for (second, reports) in [(61, 0), (239, 0), (240, 1), (1_259, 1)] {
        assert_eq!(acts(pod("p").terminating(), said.clone(), second).len(), reports, "{second}");
    }
}

#[test]
fn attempts_back_off_from_twenty_seconds_to_ten_minutes_and_respect_retry_after() {
    for (count, pause, apart) in [
        (1, 1, 20),
        (2, 1, 40),
        (3, 1, 80),
        (5, 1, 320),
        (6, 1, 600),
        (4_000_000_000, 1, 600),
        (1, 45, 45),
        (1, 99_999, 600),
    ] {
        let said = with_message(&refused("Failing", count, 60, pause), 60);
        let (before, after) = (acts(pod("p"), said.clone(), 59 + apart), acts(pod("p"), said, 60 + apart));
        assert_eq!((before.len(), after.len()), (0, 1), "{count} {pause}");
        assert_eq!(after, [format!("evict, attempt {}", count.saturating_add(1))]);
    }
    // The eviction was accepted, and the pod does not terminate: the disruption controller resets the condition.
    let accepted = with_message("the API server accepted the eviction: the pod has 30s to terminate", 60);
    assert_eq!((acts(pod("p"), accepted.clone(), 179).len(), acts(pod("p"), accepted, 180).len()), (0, 1));
}

#[test]
fn a_message_of_another_client_counts_no_attempts() {
    for message in [
        "",
        "(attempts=1)",
        "x (attempts=1, last=never, retryAfter=1s)",
        "x (attempts=-1, last=2026-01-01T00:00:00Z, retryAfter=1s)",
    ] {
        assert_eq!(parse_attempts(message), None, "{message}");
    }
    let made = parse_attempts(&refused("BudgetBlocks", 7, 60, 10)).unwrap();
    assert_eq!((made.count, made.last, made.retry_after.as_secs(), made.by_budget), (7, START_SECONDS + 60, 10, true));
}

/// A budget `ns/b` on these pods that allows this many disruptions.
fn allows(count: i32) -> (Kind, Obj) {
    let status = json!({ "disruptionsAllowed": count, "observedGeneration": 2 });
    (Kind::Budgets, budget("b", "db", &json!({ "maxUnavailable": 1 })).set("/status", status))
}

fn member(name: &str) -> (Kind, Obj) {
    (Kind::Pods, pod(name).labels(json!({ "app": "db" })))
}

fn of_pod(name: &str, began: u64) -> (Kind, Obj) {
    let target = json!({ "pod": { "name": name, "uid": format!("uid-{name}") } });
    let one = turn()
        .set("/spec/target", target)
        .set("/metadata/name", json!(format!("pod-1-{name}")))
        .uid(&format!("uid-e-{name}"));
    let one = one.set("/metadata/ownerReferences/0/uid", json!(format!("uid-r-{name}")));
    (Kind::Evictions, reports(one, 0, "startTime", &json!(timestamp(began))))
}

fn asks_for(name: &str) -> (Kind, Obj) {
    (
        Kind::EvictionRequests,
        eviction_request("r", name, "example.com/asks")
            .set("/metadata/name", json!(format!("r-{name}")))
            .uid(&format!("uid-r-{name}")),
    )
}

/// After a budget allows a disruption, an eviction is tried at once, at most every five seconds.
#[test]
fn an_eviction_is_tried_at_once_when_a_budget_allows_it_again() {
    for (reason, allowed, soon) in [("BudgetBlocks", 1, true), ("BudgetBlocks", 0, false), ("WebhookFails", 1, false)] {
        let waiting = with_message(&refused(reason, 5, 60, 1), 60);
        let objects = [member("p"), allows(allowed), request_object(), (Kind::Evictions, waiting)];
        let evicts =
            |second| describe(&decide_at(&world(&objects), second)).iter().any(|word| word.starts_with("evict"));
        assert_eq!((evicts(64), evicts(65)), (false, soon), "{reason} {allowed}");
    }
}

#[test]
fn pods_of_one_budget_are_evicted_one_after_another() {
    let others = |allowed| {
        [
            member("p"),
            member("a"),
            member("b"),
            allows(allowed),
            asks_for("p"),
            asks_for("a"),
            asks_for("b"),
            of_pod("a", 1),
            of_pod("b", 2),
            of_pod("p", 3),
        ]
    };
    let waits = "other pods of PodDisruptionBudget b are evicted first";
    for (allowed, evicted) in [(0, false), (1, false), (2, false), (3, true)] {
        let said = describe(&decide_at(&world(&others(allowed)), 9));
        assert_eq!(said.iter().any(|word| word.starts_with("evict")), evicted, "{allowed}: {said:?}");
        assert_eq!(said.iter().any(|word| word.contains(waits)), !evicted, "{allowed}: {said:?}");
    }
    // Pods that were refused just now are passed over.
    let world = world(&others(1));
    for name in ["a", "b"] {
        let (_, one) = of_pod(name, 1);
        world.apply(Kind::Evictions, &reports(one, 0, "message", &json!(refused("Failed", 1, 8, 0))), at(8));
    }
    assert!(describe(&decide_at(&world, 9)).iter().any(|word| word.starts_with("evict")));
}

/// Turns begin at different times, which say more than UIDs. A pod that terminates is no longer waited for.
#[test]
fn pods_of_one_budget_go_in_the_order_of_their_turns_without_terminating_pods() {
    let objects = |began| {
        vec![member("p"), member("a"), allows(1), asks_for("p"), asks_for("a"), of_pod("p", began), of_pod("a", 9)]
    };
    let evicts = |objects: &[(Kind, Obj)]| {
        describe(&decide_at(&world(objects), 20)).iter().any(|word| word.starts_with("evict"))
    };
    assert!(evicts(&objects(1)), "it began before the other one");
    assert!(!evicts(&objects(10)), "the other one began before it");
    let mut terminating = objects(10);
    terminating[1].1 = member("a").1.terminating();
    assert!(evicts(&terminating), "the other one terminates");
}

/// The API server evicts pods that are not Ready although their budget allows no disruption.
#[test]
fn an_eviction_is_tried_although_its_budget_allows_no_disruption() {
    let objects = [member("p"), allows(0), request_object(), (Kind::Evictions, turn())];
    assert!(describe(&decide_at(&world(&objects), 1)).contains(&"evict, attempt 1".to_owned()));
}

#[test]
fn a_new_message_is_reported_after_twenty_seconds() {
    let before = with_message("the API server accepted the eviction: the pod has 30s to terminate", 60);
    for (second, reports) in [(79, 0), (80, 1)] {
        assert_eq!(acts(pod("p").terminating(), before.clone(), second).len(), reports, "{second}");
    }
}
