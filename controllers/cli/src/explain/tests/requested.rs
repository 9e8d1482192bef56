//! Requested evictions, in the states in which operators ask what delays one. It is 10:23:05.

use pod_safety_explain::{Overview, RequestedEviction, find_abandoned};
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
    let not_reporting = |at: &str| {
        let reports = json!([{ "name": MOVER, "startTime": at }, { "name": IMPERATIVE_EVICTOR }]);
        eviction(&turns("Active", "Inactive"), reports, json!([]))
    };
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
    let terminating = [eviction(&turns("Completed", "Active"), evicts("the pod is terminating"), none())];
    let gone = condition("TargetEvicted", "PodDeleted", "");
    let evicted = [eviction(&turns("Completed", "Completed"), evicts("gone"), gone)];
    let lost = Fixture::with_lost_node();
    lost.policy("Asserted");
    for (name, fixture, requests, evictions) in [
        ("eviction-responder-works", healthy(1), vec![drain(), request("foo/bar", withdrawn)], &active[..]),
        ("eviction-responder-silent", healthy(1), vec![drain()], &[not_reporting("2026-11-21T10:10:01Z")]),
        ("eviction-no-controller-any-more", healthy(1), vec![drain()], &[not_reporting("2026-11-21T10:00:00Z")]),
        ("eviction-budget", healthy(0), vec![drain()], evictor),
        ("eviction-lost-node", lost, vec![drain()], &terminating),
        ("eviction-evicted", Fixture::healthy(), vec![drain()], &evicted),
    ] {
        let (answer, _) = explain_eviction(&fixture, &requests, evictions);
        reads(name, &answer);
    }
}

fn ended_eviction(kind: &str, reason: &str) -> Value {
    eviction(&[(IMPERATIVE_EVICTOR, 100, "Completed")], json!([]), condition(kind, reason, ""))
}

fn failed() -> Value {
    ended_eviction("Failed", "NoFurtherResponder")
}

/// An Eviction that failed, and the next one.
fn gone_on() -> [Value; 2] {
    let begun = json!([{ "name": IMPERATIVE_EVICTOR, "startTime": "2026-11-21T10:23:00Z" }]);
    [failed(), eviction(&[(IMPERATIVE_EVICTOR, 100, "Active")], begun, json!([]))]
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
    let in_gang = "Target pod references a SchedulingGroup. Eviction is currently not supported.";
    let of_gang = json!({ "status": { "conditions": condition("Failed", "EvictionInvalid", in_gang) } });
    let of_gang = request("foo/bar", of_gang);
    let withdrawn = request("foo/bar", json!({ "spec": { "intent": "Withdrawn" } }));
    let canceled = || ended_eviction("Failed", "CanceledDueToNoRequesters");
    for (requests, evictions, verdict, reason, is_noted) in [
        (vec![fresh], vec![], Verdict::Waiting, "Pending", true),
        (vec![unseen], vec![], Verdict::Blocked, "NoController", true),
        (vec![invalid], vec![], Verdict::Blocked, "EvictionInvalid", true),
        (vec![of_gang.clone()], vec![], Verdict::Blocked, "EvictionInvalid", true),
        (vec![of_gang], vec![canceled()], Verdict::Blocked, "EvictionInvalid", true),
        (vec![withdrawn.clone()], vec![], Verdict::Free, "Withdrawn", false),
        (vec![withdrawn.clone()], vec![canceled()], Verdict::Free, "Withdrawn", false),
        (vec![withdrawn], vec![failed()], Verdict::Free, "NoFurtherResponder", false),
        (vec![drain()], vec![failed()], Verdict::Waiting, "NoFurtherResponder", true),
        (vec![drain()], gone_on().to_vec(), Verdict::Waiting, "ResponderActive", true),
        (vec![drain()], vec![ended_eviction("TargetEvicted", "PodTerminal")], Verdict::Free, "Evicted", false),
    ] {
        let (answer, note) = explain_eviction(&healthy(1), &requests, &evictions);
        let actual = (answer.judgement.verdict, answer.judgement.reason, note.is_some());
        let message = answer.judgement.message;
        assert_eq!(actual, (verdict, reason, is_noted), "{message}: {note:?}");
        let is_of_gang = requests.iter().any(|one| one["status"]["conditions"][0]["message"] == in_gang);
        assert_eq!(message == format!("The request is invalid and stays so: {in_gang}"), is_of_gang, "{message}");
    }
}

#[test]
fn bug_an_eviction_that_is_held_was_shown_with_the_next_turn() {
    let prefilled = json!([{ "name": MOVER, "startTime": "2026-11-21T10:10:01Z" },
        { "name": IMPERATIVE_EVICTOR, "startTime": "2026-11-21T10:10:01Z", "completionTime": "2026-11-21T10:10:01Z" }]);
    let reports = json!([{ "name": MOVER, "startTime": "2026-11-21T10:10:01Z" }, { "name": IMPERATIVE_EVICTOR }]);
    let turns = |state| [(IMPERATIVE_EVICTOR, 100, "Inactive"), (MOVER, 10_000, state)];
    for (state, reports, reason, held) in [
        ("Active", prefilled, "ResponderPrefilled", "The evictor has a report before its turn"),
        ("Paused", reports, "UnknownState", "The Eviction has states that this version of pod-safety does not know"),
    ] {
        let evictions = [eviction(&turns(state), reports, json!([]))];
        let (answer, note) = explain_eviction(&healthy(1), &[drain()], &evictions);
        let message = answer.judgement.message;
        assert_eq!((answer.judgement.verdict, answer.judgement.reason), (Verdict::Blocked, reason), "{message}");
        assert!(message.starts_with(held) && note.is_some_and(|note| note.contains(held)), "{message}");
        assert!(!answer.notes.iter().any(|note| note.contains("turn comes within")), "{:?}", answer.notes);
    }
}

#[test]
fn the_oldest_of_two_active_evictions_counts() {
    let [_, older] = gone_on();
    let mut newer = older.clone();
    merge(&mut newer, json!({ "metadata": { "name": "pod-1-again", "creationTimestamp": "2026-11-21T10:22:00Z" } }));
    let (answer, _) = explain_eviction(&healthy(1), &[drain()], &[newer, older]);
    assert_eq!(answer.object, "eviction/shop/pod-1-orders-1");
    let twice = "2 Evictions for the same pod: the oldest counts.".to_owned();
    assert!(answer.notes.contains(&twice), "{:?}", answer.notes);
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

#[test]
fn status_and_doctor_list_abandoned_requests_with_the_command_that_withdraws_them() {
    let wall = "2026-11-21T10:23:05Z".parse().unwrap();
    let left = request("pod-safety.dev/drain", json!({ "metadata": { "creationTimestamp": "2026-11-19T08:23:05Z" } }));
    let troubles = evictions::list_abandoned(&[serde_json::from_value(left).unwrap()], wall);
    let (object, what) = (
        "evictionrequest/shop/pod-safety.dev-drain-r",
        "asks for the eviction of pod orders-1 since 2d2h, by pod-safety.dev/drain",
    );
    let withdraw = "pod-safety drain worker-b1 --withdraw\n";
    let symptoms: Vec<_> = troubles.iter().map(pod_safety_doctor::abandoned_request).collect();
    let doctor = crate::doctor::page(&symptoms, Paint::plain());
    let why = "    why   while it asks, its pod is evicted, also if nobody drains the node any more\n";
    let expected = format!("! EvictionRequests: {object} {what}\n{why}    do    {withdraw}");
    assert!(doctor.starts_with(&expected), "{doctor}");
    let fixture = Fixture::healthy();
    let mut overview = fixture.with_context(Overview::from_context);
    overview.troubles.extend(troubles);
    let status = pod_safety_print::status::page(&overview, &fixture.running, "v1.37.2", wall, Paint::plain());
    assert!(status.contains(&format!("\nTO KNOW\n! {object}   {what}\n    {withdraw}")), "{status}");
    assert!(!status.contains("NEEDS A PERSON"), "{status}");
}
