//! Which commands of operators are accepted and refused.

mod commands;
mod maintain;
mod watchdog;

use crate::testing::objects::{BOOT, NEXT_BOOT};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::*;
use crate::api::{PAUSE_ANNOTATION, Pause, RESUMED_ANNOTATION};
use crate::client::scripted::{Answer, Api, env};
use crate::testing::objects::{lease, node};

/// A node with this status of Ready at two reads, whose Lease is renewed between them, or is not.
async fn examined(ready: [&'static str; 2], moves: bool) -> (Result<(), OperatorError>, Api) {
    let (env, _wall) = env();
    let (reads, node_reads) = (Arc::new(AtomicU8::new(1)), AtomicU8::new(0));
    let api = Api::answering(&env, move |request| {
        if request.path.contains("/leases/") {
            let second = if moves { reads.fetch_add(1, Ordering::SeqCst) } else { 1 };
            Answer::json(&lease("n", second).0)
        } else {
            let read = usize::from(node_reads.fetch_add(1, Ordering::SeqCst));
            Answer::json(&node("n").boot(BOOT).ready(ready[read.min(1)]).0)
        }
    });
    let connection = api.connection();
    let examined = examine(&connection, &env, "n").await.unwrap();
    (confirm_not_reporting(&connection, &env, &examined, Duration::from_secs(12)).await, api)
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_kubelet_reports_cannot_be_confirmed() {
    assert!(examined(["Unknown"; 2], false).await.0.is_ok());
    assert!(matches!(examined(["True"; 2], false).await.0, Err(OperatorError::Ready(_))));
    assert!(matches!(examined(["Unknown", "True"], false).await.0, Err(OperatorError::Ready(_))));
    assert!(matches!(examined(["Unknown"; 2], true).await.0, Err(OperatorError::LeaseRenewed(_))));
}

/// The confirmation would be about a boot that has ended.
#[tokio::test(start_paused = true)]
async fn a_node_that_boots_during_the_watch_time_cannot_be_confirmed() {
    let (env, _wall) = env();
    let reads = AtomicU8::new(0);
    let api = Api::answering(&env, move |request| match request.path.contains("/leases/") {
        true => Answer::json(&lease("n", 1).0),
        false => {
            let boot = if reads.fetch_add(1, Ordering::SeqCst) == 0 { BOOT } else { NEXT_BOOT };
            Answer::json(&node("n").boot(boot).ready("Unknown").0)
        }
    });
    let connection = api.connection();
    let examined = examine(&connection, &env, "n").await.unwrap();
    let heard = confirm_not_reporting(&connection, &env, &examined, Duration::from_secs(12)).await;
    assert!(matches!(heard, Err(OperatorError::LeaseRenewed(_))));
}

/// An operator may confirm an incarnation that cannot be the present one, whatever the present kubelet reports.
#[tokio::test(start_paused = true)]
async fn attack_a_former_incarnation_that_may_be_the_present_one_is_refused() {
    let (former, present) = (BOOT, NEXT_BOOT);
    for (what, uid, boot, expected) in [
        ("replaced", "uid-o", former, Ok(())),
        ("the present UID", "uid-n", former, Err("has that UID")),
        ("the present life", "uid-n", present, Err("has that UID")),
        ("the present boot, registered anew", "uid-o", present, Err("may still run")),
        ("no boot", "uid-o", "5", Err("may still run")),
    ] {
        let (env, _wall) = env();
        let api = Api::answering(&env, move |request| match request.path.contains("/leases/") {
            true => Answer::json(&lease("n", 1).0),
            false => Answer::json(&node("n").boot(present).ready("True").0),
        });
        let incarnation = Incarnation { name: "n".to_owned(), uid: uid.to_owned(), boot_id: boot.to_owned() };
        let result = examine_former(&api.connection(), &env, incarnation.clone()).await;
        match (result, expected) {
            (Ok(result), Ok(())) => assert_eq!((result.node, result.renewed), (incarnation, None), "{what}"),
            (Err(error), Err(message)) => assert!(error.to_string().contains(message), "{what}: {error}"),
            (result, _) => panic!("{what}: {result:?}"),
        }
    }
}

/// An API server with one object whose pause is this text; it records the writes.
async fn pausing(text: Option<&str>, at: &str) -> (Api, Connection) {
    let (env, _wall) = env();
    let mut object = json!({ "metadata": { "name": "x", "uid": "u", "resourceVersion": "7" }, "spec": {} });
    if let Some(text) = text {
        object["metadata"]["annotations"] = json!({ PAUSE_ANNOTATION: text });
        object["spec"]["paused"] = json!(text);
    }
    let at = at.to_owned();
    let api =
        Api::answering(
            &env,
            move |request| {
                if request.path.starts_with(&at) { Answer::json(&object) } else { Answer::not_found() }
            },
        );
    let connection = api.connection();
    (api, connection)
}

fn by_anna(reason: &str) -> Pause {
    let since = "2026-11-21T10:23:05Z".parse().unwrap();
    Pause { reason: reason.to_owned(), by: Some(("anna".to_owned(), since)) }
}

#[tokio::test(start_paused = true)]
async fn a_pause_names_user_and_time_and_is_written_at_the_version_that_was_read() {
    let pause_text = "rack moves (by anna since 2026-11-21T10:23:05Z)";
    let node = (Scope::Node("x".to_owned()), "/api/v1/nodes/x");
    let policy = (Scope::Policy("x".to_owned()), "/apis/pod-safety.dev/v1alpha1/fencepolicies/x");
    let of_node = json!({ "metadata": { "resourceVersion": "7",
        "annotations": { PAUSE_ANNOTATION: pause_text, RESUMED_ANNOTATION: null } } });
    let of_policy = json!({ "metadata": { "resourceVersion": "7", "annotations": { RESUMED_ANNOTATION: null } },
        "spec": { "paused": pause_text } });
    for ((scope, path), expected) in [(node, of_node), (policy, of_policy)] {
        let (api, connection) = pausing(None, path).await;
        assert_eq!(read_pause(&connection, &scope).await.unwrap(), None);
        pause(&connection, &scope, &by_anna("rack moves")).await.unwrap();
        assert_eq!(api.requests().pop().unwrap().json(), expected);
        let none = resume(&connection, &scope, &by_anna("done")).await.unwrap_err();
        assert!(matches!(none, OperatorError::NotPaused { .. }), "{none}");
        let (api, connection) = pausing(Some(pause_text), path).await;
        assert_eq!(read_pause(&connection, &scope).await.unwrap().as_deref(), Some(pause_text));
        assert_eq!(resume(&connection, &scope, &by_anna("done")).await.unwrap(), by_anna("rack moves"));
        let written = api.requests().pop().unwrap().json();
        let resumed = written["metadata"]["annotations"][RESUMED_ANNOTATION].as_str().unwrap().to_owned();
        assert_eq!(Pause::parse(&resumed), by_anna("done"));
        let remaining = match scope {
            Scope::Node(_) => &written["metadata"]["annotations"][PAUSE_ANNOTATION],
            Scope::Policy(_) => &written["spec"]["paused"],
        };
        assert!(remaining.is_null() && written["metadata"]["resourceVersion"] == "7", "{written}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_existing_pause_is_not_replaced_and_a_long_reason_is_refused() {
    let node = Scope::Node("x".to_owned());
    let (api, connection) = pausing(Some("hands in it"), "/api/v1/nodes/x").await;
    let there = pause(&connection, &node, &by_anna("rack moves")).await.unwrap_err();
    assert!(there.to_string().contains("hands in it"), "{there}");
    let (other, connection) = pausing(None, "/api/v1/nodes/x").await;
    let signature = by_anna("").to_string().len();
    let longest = "x".repeat(Pause::MAX_LENGTH - signature);
    let error = pause(&connection, &node, &by_anna(&format!("{longest}xx"))).await.unwrap_err();
    assert!(matches!(error, OperatorError::TooLong { over: 2 }), "{error}");
    assert!(
        [api.requests(), other.requests()].iter().flatten().all(|request| request.body.is_empty()),
        "nothing was written"
    );
    pause(&connection, &node, &by_anna(&longest)).await.unwrap();
    let (_, connection) = pausing(None, "/nowhere").await;
    let gone = pause(&connection, &Scope::Policy("x".to_owned()), &by_anna("r")).await.unwrap_err();
    assert!(gone.to_string().contains("there is no FencePolicy x"), "{gone}");
}

#[tokio::test(start_paused = true)]
async fn a_confirmation_names_the_incarnation_and_the_user() {
    let (env, _wall) = env();
    let api = Api::answering(&env, |request| {
        if request.body.is_empty() {
            Answer::not_found()
        } else {
            Answer::with_code(201, &json!({ "metadata": { "name": "n-1-x" } }))
        }
    });
    let node = Incarnation { name: "n".to_owned(), uid: "u".to_owned(), boot_id: BOOT.to_owned() };
    let renewed = Some("2026-01-01T00:00:07Z".to_owned());
    let examined = Examined { node, labels: Default::default(), ready: false, cordoned: false, renewed };
    let valid_for = Duration::from_secs(3_600);
    let confirmation = Confirmation { by: "ada", reason: "I pulled the plug", valid_for, power_on: false };
    let name = confirm(&api.connection(), &examined, confirmation).await.unwrap();
    let body = api.requests().pop().unwrap().json();
    assert_eq!((name.as_str(), &body["metadata"]["name"]), ("n-1-x", &serde_json::Value::Null));
    assert_eq!(body["metadata"]["generateName"], format!("{}-", incident_name(&examined.node)));
    assert_eq!(
        body["spec"],
        json!({ "node": { "name": "n", "uid": "u", "bootID": BOOT }, "kind": "Asserted", "by": "ada",
            "reason": "I pulled the plug", "validSeconds": 3600, "leaseRenewed": "2026-01-01T00:00:07Z" })
    );
}
