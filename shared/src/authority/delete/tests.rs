//! The two requests, byte by byte.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::client::scripted::{Answer, Api, FAILURES, Received, advance, env};
use crate::clock::Mono;
use crate::testing::Claimed as _;
use crate::testing::objects::{Obj, pod};

const PATCH: &str = "PATCH /api/v1/namespaces/ns/pods/a/status";
const DELETE: &str = "DELETE /api/v1/namespaces/ns/pods/a";

fn wished() -> GracefulDeleteRequest {
    let force = pod("a").force(super::super::Claim::NeverScheduled);
    let cause = DeleteCause::Taint { node: "n".into(), taint: "k:NoExecute".into() };
    GracefulDeleteRequest {
        pod: force.pod,
        rv: force.rv,
        generation: 3,
        disrupted_since: None,
        cause,
        due: Mono::default(),
    }
}

/// The pod after the condition was written.
fn marked() -> Obj {
    pod("a").rv(77).on("n").set("/spec/terminationGracePeriodSeconds", json!(45))
}

async fn tried(
    wished: &GracefulDeleteRequest,
    leads_for: f64,
    script: impl Fn(&Received) -> Answer + Send + Sync + 'static,
) -> (&'static str, String, Vec<Received>) {
    let (env, _wall) = env();
    let api = Api::answering(&env, script);
    let leadership: Arc<Leadership> = Leadership::for_tests(env.now() + Duration::from_secs_f64(leads_for));
    let (outcome, rv) = delete(&api.connection(), &env, &leadership, wished).await;
    advance(0.0).await;
    (outcome.name(), rv.to_string(), api.requests())
}

fn well(request: &Received) -> Answer {
    match request.method.as_str() {
        "PATCH" => Answer::json(&marked().0),
        _ => Answer::json(&marked().rv(78).terminating().0),
    }
}

fn lines(requests: &[Received]) -> Vec<String> {
    requests.iter().map(Received::line).collect()
}

#[tokio::test(start_paused = true)]
async fn the_condition_is_written_and_the_pod_is_deleted_gracefully_at_that_version() {
    let (outcome, rv, requests) = tried(&wished(), 60.0, well).await;
    assert_eq!((outcome, rv.as_str()), ("ending", "77"));
    assert_eq!(lines(&requests), [PATCH, DELETE]);
    assert_eq!(requests[0].content_type, "application/strategic-merge-patch+json");
    assert_eq!(
        requests[0].body,
        concat!(
            r#"{"metadata":{"resourceVersion":"10","uid":"uid-a"},"status":{"conditions":[{"#,
            r#""lastTransitionTime":"2026-11-21T12:00:00Z","#,
            r#""message":"Taint manager: deleting due to NoExecute taint","#,
            r#""observedGeneration":3,"reason":"DeletionByTaintManager","status":"True","#,
            r#""type":"DisruptionTarget"}]}}"#
        )
    );
    assert_eq!(
        requests[1].body,
        concat!(
            r#"{"apiVersion":"v1","gracePeriodSeconds":45,"kind":"DeleteOptions","#,
            r#""preconditions":{"resourceVersion":"77","uid":"uid-a"}}"#
        )
    );
    assert!(requests.iter().all(|request| !request.permitted), "no permit is needed, and none is carried");
}

#[tokio::test(start_paused = true)]
async fn the_grace_period_is_explicit_and_never_zero() {
    for (given, sent) in [(json!(0), 1), (json!(-5), 1), (json!(1), 1), (json!(3_600), 3_600), (json!(null), 30)] {
        let object = marked().set("/spec/terminationGracePeriodSeconds", given.clone());
        let (outcome, _, requests) = tried(&wished(), 60.0, move |request| match request.method.as_str() {
            "PATCH" => Answer::json(&object.0),
            _ => well(request),
        })
        .await;
        assert_eq!((outcome, &requests[1].json()["gracePeriodSeconds"]), ("ending", &json!(sent)), "{given}");
    }
}

/// If an admission webhook denies the deletion, each retry would write the condition with another time, each write would
/// make another version, and each version would cause an immediate retry.
#[tokio::test(start_paused = true)]
async fn a_condition_that_is_true_already_keeps_its_time() {
    let wished = GracefulDeleteRequest { disrupted_since: Some(1_700_000_000), ..wished() };
    let (_, _, requests) = tried(&wished, 60.0, well).await;
    let condition = &requests[0].json()["status"]["conditions"][0];
    assert_eq!(condition["lastTransitionTime"], "2023-11-14T22:13:20Z");
    let (_, _, requests) = tried(&GracefulDeleteRequest { disrupted_since: Some(0), ..wished }, 60.0, well).await;
    let condition = &requests[0].json()["status"]["conditions"][0];
    assert_eq!(condition["lastTransitionTime"], "2026-11-21T12:00:00Z", "nobody said since when");
}

#[tokio::test(start_paused = true)]
async fn a_terminating_or_terminated_pod_is_not_deleted() {
    for answer in [marked().terminating(), marked().phase("Failed"), marked().phase("Succeeded")] {
        let (outcome, rv, requests) = tried(&wished(), 60.0, move |_| Answer::json(&answer.0)).await;
        assert_eq!((outcome, rv.as_str(), lines(&requests)), ("changed", "10", vec![PATCH.to_owned()]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_deletion_returns_its_version() {
    for (method, rv, count) in [("PATCH", "10", 1), ("DELETE", "77", 2)] {
        for (what, answer, outcome) in FAILURES {
            let script = move |request: &Received| if request.method == method { answer() } else { well(request) };
            // The content of the answer to a deletion is not used.
            let outcome = if (method, what) == ("DELETE", "an unreadable answer") { "ending" } else { outcome };
            let (ended, at, requests) = tried(&wished(), 60.0, script).await;
            assert_eq!((ended, at.as_str(), requests.len()), (outcome, rv, count), "{method}: {what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn both_requests_are_sent_within_the_term() {
    let (outcome, _, requests) = tried(&wished(), 0.0, well).await;
    assert_eq!((outcome, requests.len()), ("not_leader", 0));
    let late = |request: &Received| well(request).delayed(Duration::from_millis(600));
    let (outcome, rv, requests) = tried(&wished(), 1.0, late).await;
    assert_eq!((outcome, rv.as_str(), requests.len()), ("failed", "77", 2), "given up when the term ends");
}
