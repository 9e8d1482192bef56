//! Requested evictions, in the states in which operators ask what delays one. It is 10:23:05.

use pod_safety_explain::{RequestedEviction, find_abandoned};
use pod_safety_shared::authority::operator_requests::eviction_requests::{EvictionOfPod, EvictionRequest, NODE_LABEL};
use pod_safety_shared::model::IMPERATIVE_EVICTOR;
use pod_safety_shared::testing::objects::budget;
use serde_json::Value;

use super::*;

const MOVER: &str = "example.com/move";

fn request(requester: &str, change: Value) -> Value {
    let name = format!("{}-r", requester.replace('/', "-"));
    let mut request = json!({
        "metadata": { "namespace": "shop", "name": name, "uid": name, "generation": 1, "creationTimestamp": "2026-11-21T10:10:00Z",
            "labels": { NODE_LABEL: "worker-b1" } },
        "spec": { "target": { "pod": { "name": "orders-1", "uid": "uid-orders-1" } }, "requester": requester, "intent": "Eviction" },
        "status": { "observedGeneration": 1 },
    });
    merge(&mut request, change);
    request
}

fn drain() -> Value {
    request("pod-safety.dev/drain", json!({}))
}

/// An Eviction with these turns and the reports of their responders.
fn eviction(turns: &[(&str, i32, &str)], reports: Value, conditions: Value) -> Value {
    let turns: Vec<_> = turns
        .iter()
        .map(|(name, priority, state)| json!({ "name": name, "priority": priority, "state": state }))
        .collect();
    json!({
        "metadata": { "namespace": "shop", "name": "pod-1-orders-1", "creationTimestamp": "2026-11-21T10:10:01Z" },
        "spec": { "target": { "pod": { "name": "orders-1", "uid": "uid-orders-1" } } },
        "status": { "targetResponders": turns, "responders": reports, "conditions": conditions },
    })
}

fn condition(kind: &str, reason: &str, message: &str) -> Value {
    json!([{ "type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": "2026-11-21T10:20:00Z" }])
}

fn merge(object: &mut Value, change: Value) {
    match (object, change) {
        (Value::Object(fields), Value::Object(changes)) => {
            for (key, value) in changes {
                merge(fields.entry(key).or_insert(Value::Null), value);
            }
        }
        (object, change) => *object = change,
    }
}

fn explain_eviction(fixture: &Fixture, requests: &[Value], evictions: &[Value]) -> (Answer, Option<String>) {
    let read = |all: &[Value]| all.iter().map(|one| serde_json::from_value(one.clone()).unwrap()).collect();
    let (requests, evictions): (Vec<EvictionRequest>, _) = (read(requests), evictions.to_vec());
    let evictions: Vec<EvictionOfPod> = evictions.into_iter().map(|one| serde_json::from_value(one).unwrap()).collect();
    fixture.with_context(|ctx| {
        let eviction = RequestedEviction::find_by_name("shop", "pod-1-orders-1", &requests, &evictions, ctx);
        let eviction = eviction
            .or_else(|| RequestedEviction::find_by_name("shop", "orders-1", &requests, &evictions, ctx))
            .unwrap();
        (eviction.to_answer(ctx), eviction.describe_note(ctx))
    })
}

/// `orders-1` runs on a Ready node, and its budget is healthy.
fn healthy(allowed: i64) -> Fixture {
    let fixture = Fixture::healthy();
    fixture.pod_with("orders-1", "worker-a1", |pod| {
        fixture::ready(pod);
        pod["metadata"]["labels"] = json!({ "app": "orders" });
    });
    let status = json!({ "observedGeneration": 2, "currentHealthy": 1, "desiredHealthy": 1 - allowed, "expectedPods": 1, "disruptionsAllowed": allowed });
    let of_orders =
        budget("orders", "orders", &json!({ "minAvailable": 1 })).in_namespace("shop").set("/status", status);
    fixture.put(Kind::Budgets, of_orders);
    fixture.put(Kind::StatefulSets, fixture::set("orders", 1));
    fixture
}

#[test]
fn the_active_responder_its_deadline_and_the_next_one_are_shown() {
    let turns =
        |mover: &'static str, evictor: &'static str| [(IMPERATIVE_EVICTOR, 100, evictor), (MOVER, 10_000, mover)];
    let moves = || {
        json!([{ "name": MOVER, "startTime": "2026-11-21T10:10:01Z", "heartbeatTime": "2026-11-21T10:21:05Z",
        "expectedCompletionTime": "2026-11-21T10:40:00Z", "message": "moved 3 of 9 shards" }, { "name": IMPERATIVE_EVICTOR }])
    };
    let not_reporting = |at: &str| json!([{ "name": MOVER, "startTime": at }, { "name": IMPERATIVE_EVICTOR }]);
    let done = json!({ "name": MOVER, "startTime": "2026-11-21T10:10:01Z", "completionTime": "2026-11-21T10:15:00Z", "message": "moved all" });
    let evicts = |message: &str| {
        json!([done, { "name": IMPERATIVE_EVICTOR, "startTime": "2026-11-21T10:15:01Z",
        "heartbeatTime": "2026-11-21T10:21:05Z", "message": message }])
    };
    let none = || json!([]);
    let withdrawn = json!({ "spec": { "intent": "Withdrawn" }, "metadata": { "deletionTimestamp": "2026-11-21T10:20:00Z", "finalizers": ["a/b"] } });
    let active = &[eviction(&turns("Active", "Inactive"), moves(), none())];
    let budget = "BudgetBlocks: the budget orders needs 1 healthy pods and has 1 currently (attempts=3)";
    let evictor = &[eviction(&turns("Completed", "Active"), evicts(budget), none())];
    let lost = Fixture::with_lost_node();
    lost.policy("Asserted");
    for (name, fixture, requests, evictions) in [
        ("eviction-responder-works", healthy(1), vec![drain(), request("foo/bar", withdrawn)], &active[..]),
        (
            "eviction-responder-silent",
            healthy(1),
            vec![drain()],
            &[eviction(&turns("Active", "Inactive"), not_reporting("2026-11-21T10:10:01Z"), none())],
        ),
        (
            "eviction-no-controller-any-more",
            healthy(1),
            vec![drain()],
            &[eviction(&turns("Active", "Inactive"), not_reporting("2026-11-21T10:00:00Z"), none())],
        ),
        ("eviction-budget", healthy(0), vec![drain()], evictor),
        (
            "eviction-lost-node",
            lost,
            vec![drain()],
            &[eviction(&turns("Completed", "Active"), evicts("the pod is terminating"), none())],
        ),
        (
            "eviction-evicted",
            Fixture::healthy(),
            vec![drain()],
            &[eviction(&turns("Completed", "Completed"), evicts("gone"), condition("TargetEvicted", "PodDeleted", ""))],
        ),
    ] {
        let (answer, _) = explain_eviction(&fixture, &requests, evictions);
        reads(name, &answer);
    }
}

fn ended_eviction(kind: &str, reason: &str) -> Value {
    eviction(&[(IMPERATIVE_EVICTOR, 100, "Completed")], json!([]), condition(kind, reason, ""))
}

/// An Eviction that failed, and the next one.
fn gone_on() -> [Value; 2] {
    let begun = json!([{ "name": IMPERATIVE_EVICTOR, "startTime": "2026-11-21T10:23:00Z" }]);
    [ended_eviction("Failed", "NoFurtherResponder"), eviction(&[(IMPERATIVE_EVICTOR, 100, "Active")], begun, json!([]))]
}

#[test]
fn each_state_of_an_eviction_has_one_verdict() {
    let fresh = request(
        "pod-safety.dev/drain",
        json!({ "metadata": { "creationTimestamp": "2026-11-21T10:23:00Z" }, "status": { "observedGeneration": null } }),
    );
    let unseen = request("pod-safety.dev/drain", json!({ "status": { "observedGeneration": null } }));
    let invalid = request(
        "foo/bar",
        json!({ "status": { "conditions": condition("Failed", "EvictionInvalid", "Target pod not found.") } }),
    );
    let withdrawn = request("foo/bar", json!({ "spec": { "intent": "Withdrawn" } }));
    for (requests, evictions, verdict, reason, is_noted) in [
        (vec![fresh], vec![], Verdict::Waiting, "Pending", true),
        (vec![unseen], vec![], Verdict::Blocked, "NoController", true),
        (vec![invalid], vec![], Verdict::Blocked, "EvictionInvalid", true),
        (vec![withdrawn.clone()], vec![], Verdict::Free, "Withdrawn", false),
        (
            vec![withdrawn.clone()],
            vec![ended_eviction("Failed", "CanceledDueToNoRequesters")],
            Verdict::Free,
            "Withdrawn",
            false,
        ),
        (
            vec![withdrawn],
            vec![ended_eviction("Failed", "NoFurtherResponder")],
            Verdict::Free,
            "NoFurtherResponder",
            false,
        ),
        (
            vec![drain()],
            vec![ended_eviction("Failed", "NoFurtherResponder")],
            Verdict::Waiting,
            "NoFurtherResponder",
            true,
        ),
        (vec![drain()], gone_on().to_vec(), Verdict::Waiting, "ResponderActive", true),
        (vec![drain()], vec![ended_eviction("TargetEvicted", "PodTerminal")], Verdict::Free, "Evicted", false),
    ] {
        let (answer, note) = explain_eviction(&healthy(1), &requests, &evictions);
        let actual = (answer.judgement.verdict, answer.judgement.reason, note.is_some());
        assert_eq!(actual, (verdict, reason, is_noted), "{}: {note:?}", answer.judgement.message);
    }
}

#[test]
fn the_oldest_of_two_active_evictions_counts() {
    let [_, older] = gone_on();
    let mut newer = older.clone();
    merge(&mut newer, json!({ "metadata": { "name": "pod-1-again", "creationTimestamp": "2026-11-21T10:22:00Z" } }));
    let (answer, _) = explain_eviction(&healthy(1), &[drain()], &[newer, older]);
    assert_eq!(answer.object, "eviction/shop/pod-1-orders-1");
}

#[test]
fn a_terminal_phase_is_no_proof_and_a_pod_notes_its_requested_eviction() {
    let (terminal, _) = explain_eviction(&healthy(1), &[drain()], &[ended_eviction("TargetEvicted", "PodTerminal")]);
    assert!(terminal.judgement.message.contains("does not prove"), "{}", terminal.judgement.message);
    let (_, note) = explain_eviction(&healthy(1), &[drain()], &gone_on());
    let note = note.unwrap();
    assert!(
        note.starts_with("Its eviction is requested by pod-safety.dev/drain: It is the turn of the evictor"),
        "{note}"
    );
    assert!(note.ends_with("(pod-safety explain eviction -n shop pod-1-orders-1)"), "{note}");
}

#[test]
fn only_own_requests_older_than_a_day_are_abandoned() {
    let wall = "2026-11-21T10:23:05Z".parse().unwrap();
    for (requester, at, is_abandoned) in [
        ("pod-safety.dev/drain", "2026-11-20T10:23:05Z", true),
        ("pod-safety.dev/maintain", "2026-11-20T10:23:05Z", true),
        ("pod-safety.dev/drain", "2026-11-20T10:23:06Z", false),
        ("foo/bar", "2026-11-01T00:00:00Z", false),
    ] {
        let one = request(requester, json!({ "metadata": { "creationTimestamp": at } }));
        let one: EvictionRequest = serde_json::from_value(one).unwrap();
        assert_eq!(find_abandoned(&[one], wall).len() == 1, is_abandoned, "{requester} {at}");
    }
}
