//! The requests that an operator's drain sends, and how EvictionRequests and Evictions are decoded.

use serde_json::{Value, json};

use super::*;
use crate::client::scripted::{Answer, Api, env};
use crate::model::{IMPERATIVE_EVICTOR, Uid};

const UID: &str = "11111111-2222-4333-8444-555555555555";

fn pod() -> PodKey {
    PodKey { namespace: "shop".into(), name: "db-0".into(), uid: Uid::new(UID).unwrap() }
}

fn there(requester: &str, uid: &str, intent: &str) -> Value {
    json!({ "metadata": { "namespace": "shop", "name": "x", "uid": "u" },
        "spec": { "target": { "pod": { "name": "db-0", "uid": uid } }, "requester": requester, "intent": intent } })
}

/// The name is the same at each try, so a second POST meets the first object.
#[tokio::test(start_paused = true)]
async fn an_own_request_is_reused_and_that_of_another_requester_is_not_changed() {
    let mut deleted = there(DRAIN, UID, "Eviction");
    deleted["metadata"]["deletionTimestamp"] = json!("2026-11-21T12:00:00Z");
    for (name, object, is_asked, writes) in [
        ("the same", there(DRAIN, UID, "Eviction"), true, 1),
        ("withdrawn", there(DRAIN, UID, "Withdrawn"), true, 2),
        ("for another pod", there(DRAIN, "another", "Eviction"), false, 1),
        ("by another requester", there("foo/bar", UID, "Eviction"), false, 1),
        ("deleted", deleted, false, 1),
    ] {
        let (env, _wall) = env();
        let api = Api::answering(&env, move |request| match request.method.as_str() {
            "POST" => Answer::status(409, "AlreadyExists", "there"),
            _ => Answer::json(&object),
        });
        let created = create_request(&api.connection(), DRAIN, "n", &pod()).await;
        assert_eq!((created.is_ok(), api.writes().len()), (is_asked, writes), "{name}: {created:?}");
        if writes == 2 {
            let body = api.requests().pop().unwrap().json();
            let expected = json!({ "metadata": { "uid": "u" }, "spec": { "intent": "Eviction" } });
            assert_eq!(body, expected, "no other object of that name");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_names_its_pod_by_uid_and_its_node_by_a_label() {
    let long = format!("{}.{}", "a".repeat(62), "b".repeat(62));
    for (node, label, annotation) in [("worker-1", "worker-1", None), (&*long, &long[..62], Some(long.as_str()))] {
        let (env, _wall) = env();
        let api = Api::answering(&env, |request| match request.method.as_str() {
            "POST" => Answer::json(&request.json()),
            _ => Answer::json(&json!({ "items": [] })),
        });
        let connection = api.connection();
        create_request(&connection, MAINTAIN, node, &pod()).await.unwrap();
        let body = api.requests().pop().unwrap().json();
        assert_eq!(body["metadata"]["name"], format!("pod-safety-maintain-{UID}"));
        assert_eq!(body["spec"]["target"]["pod"], json!({ "name": "db-0", "uid": UID }));
        let read: EvictionRequest = serde_json::from_value(body).unwrap();
        assert_eq!(read.metadata.labels.get(NODE_LABEL).map(String::as_str), Some(label));
        assert_eq!(read.metadata.annotations.get(NODE_LABEL).map(String::as_str), annotation);
        assert_eq!((read.node(), read.is_active(), read.is_observed()), (node, true, false));
        list_node_requests(&connection, node).await.unwrap();
        assert_eq!(api.requests().pop().unwrap().query, format!("labelSelector={NODE_LABEL}={label}"));
    }
}

/// A client without the permission is refused also if the kind does not exist.
#[tokio::test(start_paused = true)]
async fn without_the_kind_there_are_no_requests_and_a_refusal_is_an_error() {
    let group = |resources: Value| json!({ "kind": "APIResourceList", "resources": resources });
    for (name, discovery, listed, expected) in [
        ("without the group", 404, 404, Ok(false)),
        ("without the group, and without rights", 404, 403, Ok(false)),
        ("with the group, and without rights", 200, 403, Err(())),
        ("that fails", 200, 500, Err(())),
        ("with the group", 200, 200, Ok(true)),
    ] {
        let (env, _wall) = env();
        let api = Api::answering(&env, move |request| match (request.path == GROUP, discovery, listed) {
            (true, 200, _) => Answer::json(&group(json!([{ "name": "evictionrequests" }]))),
            (false, _, 200) => Answer::json(&json!({ "items": [there(DRAIN, UID, "Eviction"), { "spec": 1 }] })),
            (true, code, _) | (false, _, code) => Answer::status(code, "", "no"),
        });
        let read = list_requests(&api.connection(), None, "").await;
        assert_eq!(read.as_ref().map(Option::is_some).map_err(drop), expected, "{name}: {read:?}");
        if let Ok(Some(all)) = read {
            assert_eq!(all.len(), 1, "one that cannot be read hides no other");
        }
    }
}

/// `TestSortTargetResponders` (pkg/apis/lifecycle/validation, v1.37.2).
#[test]
fn responders_are_in_the_order_of_kubernetes() {
    let expected = [
        (20_000, "pod-safety.dev/lost-node"),
        (10_000, "com/a"),
        (10_000, "example.com/a"),
        (10_000, "example.com/b"),
        (10_000, "a.example.com/a"),
        (10_000, "fooexample.com/a"),
        (10_000, "io/a"),
        (1_000, "example.com/c"),
        (100, IMPERATIVE_EVICTOR),
    ];
    for turned in 0..expected.len() {
        let mut names = expected;
        names.rotate_left(turned);
        names.sort_by(|one, other| compare_turns((one.1, one.0), (other.1, other.0)));
        assert_eq!(names, expected);
    }
}

#[test]
fn an_active_responder_has_twenty_minutes_from_its_last_heartbeat() {
    let report = |start: &str, heartbeat: Option<&str>| ResponderStatus {
        start_time: start.parse().ok(),
        heartbeat_time: heartbeat.and_then(|at| at.parse().ok()),
        ..ResponderStatus::default()
    };
    for (start, heartbeat, deadline) in [
        ("2026-11-21T12:00:00Z", None, Some("2026-11-21T12:20:00Z")),
        ("2026-11-21T12:00:00Z", Some("2026-11-21T12:03:00Z"), Some("2026-11-21T12:23:00Z")),
        ("never", None, None),
    ] {
        let actual = report(start, heartbeat).deadline().map(|at| at.to_string());
        assert_eq!(actual.as_deref(), deadline);
    }
}

/// A request that was withdrawn and is sent again has the observed generation of an earlier change.
#[test]
fn a_request_is_observed_when_its_last_generation_is() {
    for (generation, observed, wanted) in [(1, None, false), (3, Some(2), false), (3, Some(3), true)] {
        let mut request = EvictionRequest::default();
        request.metadata.generation = generation;
        request.status.observed_generation = observed;
        assert_eq!(request.is_observed(), wanted, "{generation} {observed:?}");
    }
}

/// A label holds 63 characters: two long names of nodes may have the same label.
#[tokio::test(start_paused = true)]
async fn requests_of_another_node_with_the_same_label_are_not_read() {
    let node = |end: char| format!("{}.{end}", "a".repeat(MAX_LABEL_VALUE));
    let of_node = |end: char| {
        let mut one = there(DRAIN, UID, "Eviction");
        one["metadata"]["labels"] = json!({ NODE_LABEL: "a".repeat(MAX_LABEL_VALUE) });
        one["metadata"]["annotations"] = json!({ NODE_LABEL: node(end) });
        one
    };
    let items = json!({ "items": [of_node('b'), of_node('c')] });
    let (env, _wall) = env();
    let api = Api::answering(&env, move |_| Answer::json(&items));
    let read = list_node_requests(&api.connection(), &node('b')).await.unwrap();
    assert_eq!(read.iter().map(EvictionRequest::node).collect::<Vec<_>>(), [node('b')]);
}
