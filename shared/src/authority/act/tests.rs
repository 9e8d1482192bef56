//! The act, byte by byte.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::*;
use crate::client::scripted::{Answer, Api, env, pass};
use crate::testing::objects::pod;

/// What PATCH and DELETE are answered with.
type Script = fn(&str) -> Answer;

/// What every request is answered with.
type Says = fn() -> Answer;

struct Scene {
    env: Env,
    api: Api,
    connection: Connection,
    leadership: Arc<Leadership>,
    evidence: Mutex<Option<Evidence>>,
}

fn scene(script: Script) -> Scene {
    let (env, _wall) = env();
    let api = Api::new(&env, move |asked| async move { script(&asked.method) });
    let connection = api.connection();
    let expires = env.now() + Duration::from_secs(2);
    let evidence = Mutex::new(Some(evidence(gone(), false, expires)));
    Scene { env, api, connection, leadership: Leadership::alone(), evidence }
}

fn gone() -> EvidenceKind {
    EvidenceKind::NodeGone { node: "n".into(), apart: Duration::from_secs(40) }
}

fn evidence(kind: EvidenceKind, terminal: bool, expires: Mono) -> Evidence {
    let force = pod("a").force(super::super::Claim::NeverScheduled);
    Evidence { kind, pod: force.pod, rv: force.rv, terminal, generation: 3, expires }
}

impl Scene {
    fn with(self, kind: EvidenceKind, terminal: bool) -> Self {
        *self.evidence.lock() = Some(evidence(kind, terminal, self.env.now() + Duration::from_secs(2)));
        self
    }

    fn led_until(mut self, seconds: f64) -> Self {
        self.leadership = Leadership::for_tests(self.env.now() + Duration::from_secs_f64(seconds));
        self
    }

    async fn act(&self) -> Outcome {
        let evidence = self.evidence.lock().take().unwrap();
        force(&self.connection, &self.env, &self.leadership, evidence).await
    }

    async fn outcome(&self) -> &'static str {
        self.act().await.name()
    }
}

fn written(version: u64) -> Answer {
    Answer::json(&pod("a").rv(version).phase("Failed").0)
}

fn well(method: &str) -> Answer {
    match method {
        "PATCH" => written(77),
        _ => Answer::json(&pod("a").rv(78).0),
    }
}

const PATCH: &str = "PATCH /api/v1/namespaces/ns/pods/a/status";
const DELETE: &str = "DELETE /api/v1/namespaces/ns/pods/a";

#[tokio::test(start_paused = true)]
async fn a_pod_of_a_gone_node_is_marked_and_then_removed_at_the_version_that_the_mark_gave() {
    let scene = scene(well);
    assert!(matches!(scene.act().await, Outcome::Released(EvidenceKind::NodeGone { .. })));
    let heard = scene.api.heard();
    let [patch, delete] = heard.as_slice() else { panic!("{heard:?}") };
    assert_eq!((patch.line().as_str(), delete.line().as_str()), (PATCH, DELETE));
    assert_eq!(patch.content_type, "application/strategic-merge-patch+json");
    assert_eq!(
        patch.body,
        concat!(
            r#"{"metadata":{"resourceVersion":"10","uid":"uid-a"},"status":{"conditions":[{"#,
            r#""lastTransitionTime":"2026-11-21T12:00:00Z","message":"PodGC: node no longer exists","#,
            r#""observedGeneration":3,"reason":"DeletionByPodGC","status":"True","type":"DisruptionTarget"}],"#,
            r#""observedGeneration":3,"phase":"Failed"}}"#
        )
    );
    assert_eq!(delete.content_type, "application/json");
    assert_eq!(
        delete.body,
        concat!(
            r#"{"apiVersion":"v1","gracePeriodSeconds":0,"kind":"DeleteOptions","#,
            r#""preconditions":{"resourceVersion":"77","uid":"uid-a"}}"#
        )
    );
    assert!(heard.iter().all(|asked| asked.permitted && asked.query.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn a_terminal_pod_is_removed_without_a_mark_at_the_version_of_the_evidence() {
    let scene = scene(well).with(EvidenceKind::KubeletTerminated, true);
    assert_eq!(scene.outcome().await, "released");
    assert_eq!(scene.api.lines(), [DELETE]);
    let preconditions = scene.api.heard()[0].json()["preconditions"].clone();
    assert_eq!(preconditions, json!({ "uid": "uid-a", "resourceVersion": "10" }));
}

#[tokio::test(start_paused = true)]
async fn only_a_gone_node_is_called_a_disruption() {
    for kind in [EvidenceKind::NeverScheduled, EvidenceKind::Asserted { node: "n".into() }] {
        let scene = scene(well).with(kind, false);
        assert_eq!(scene.outcome().await, "released");
        let body = scene.api.heard()[0].json();
        assert_eq!(body["status"], json!({ "phase": "Failed", "observedGeneration": 3 }));
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_with_finalizers_is_released_as_far_as_we_may() {
    let scene = scene(|method| match method {
        "PATCH" => written(77),
        _ => Answer::json(&pod("a").set("/metadata/finalizers", json!(["example.com/f"])).0),
    });
    assert_eq!(scene.outcome().await, "finalizers_remain");
}

fn immutable() -> Answer {
    Answer::status(422, "Invalid", "Pod \"a\" is invalid: metadata.uid: Invalid value: field is immutable")
}

#[tokio::test(start_paused = true)]
async fn how_the_mark_can_fail_and_no_deletion_follows() {
    let rows: [(&str, Says, &str); 12] = [
        ("404", Answer::not_found, "gone"),
        ("404 of a proxy", || Answer::plain(404, "404 page not found"), "failed"),
        ("409", || Answer::status(409, "Conflict", "the object has been modified"), "changed"),
        ("422 of the uid", immutable, "changed"),
        ("422 of something else", || Answer::status(422, "Invalid", "status.phase: no"), "failed"),
        ("403", || Answer::status(403, "Forbidden", "no"), "failed"),
        ("429", || Answer::plain(429, "slow down").retry_after(7), "failed"),
        ("500", || Answer::status(500, "InternalError", "etcd"), "failed"),
        ("no answer", Answer::never, "failed"),
        ("a broken connection", Answer::broken, "failed"),
        ("an unreadable answer", Answer::garbage, "failed"),
        (
            "an answer without a version",
            || Answer::json(&json!({ "kind": "Status", "status": "Success" })),
            "failed",
        ),
    ];
    for (what, answer, expected) in rows {
        let (env, _wall) = env();
        let api = Api::new(&env, move |_| async move { answer() });
        let made = scene(well);
        let scene = Scene { connection: api.connection(), api, env, ..made };
        assert_eq!(scene.outcome().await, expected, "{what}");
        assert_eq!(scene.api.lines(), [PATCH], "{what}: once, and no deletion");
    }
}

#[tokio::test(start_paused = true)]
async fn how_the_deletion_can_fail_after_the_mark() {
    let rows: [(&str, Script, &str); 6] = [
        ("404", |method| if method == "PATCH" { written(77) } else { Answer::not_found() }, "gone"),
        (
            "409",
            |method| {
                if method == "PATCH" {
                    written(77)
                } else {
                    Answer::status(409, "Conflict", "Precondition failed: UID")
                }
            },
            "changed",
        ),
        (
            "429",
            |method| if method == "PATCH" { written(77) } else { Answer::plain(429, "slow down") },
            "failed",
        ),
        (
            "500",
            |method| {
                if method == "PATCH" { written(77) } else { Answer::status(500, "InternalError", "etcd") }
            },
            "failed",
        ),
        ("no answer", |method| if method == "PATCH" { written(77) } else { Answer::never() }, "failed"),
        (
            "a broken connection",
            |method| if method == "PATCH" { written(77) } else { Answer::broken() },
            "failed",
        ),
    ];
    for (what, script, expected) in rows {
        let scene = scene(script);
        assert_eq!(scene.outcome().await, expected, "{what}");
        assert_eq!(scene.api.lines(), [PATCH, DELETE], "{what}: each once");
    }
}

#[tokio::test(start_paused = true)]
async fn the_api_servers_wish_for_a_pause_is_handed_on_from_header_and_status() {
    let header: Script = |_| Answer::plain(429, "Too many requests, please try again later.").retry_after(7);
    let status: Script = |_| {
        let mut body =
            json!({ "kind": "Status", "code": 429, "reason": "TooManyRequests", "message": "later" });
        body["details"] = json!({ "retryAfterSeconds": 7 });
        Answer::coded(429, &body)
    };
    for script in [header, status] {
        let scene = scene(script);
        let Outcome::Failed(ApiError::Refused { code: 429, retry_after, .. }) = scene.act().await else {
            panic!("429")
        };
        assert_eq!(retry_after, Some(Duration::from_secs(7)), "bug: the header went unread");
    }
}

#[tokio::test(start_paused = true)]
async fn evidence_that_expires_between_mark_and_deletion_deletes_nothing() {
    for (late, expected, lines) in [(1.9, "released", 2), (2.0, "expired", 1)] {
        let script: Script = if late < 2.0 {
            |method| {
                if method == "PATCH" { written(77).late(Duration::from_millis(1_900)) } else { well(method) }
            }
        } else {
            |method| if method == "PATCH" { written(77).late(Duration::from_secs(2)) } else { well(method) }
        };
        let scene = scene(script);
        assert_eq!(scene.outcome().await, expected, "{late}");
        assert_eq!(scene.api.lines().len(), lines);
    }
}

#[tokio::test(start_paused = true)]
async fn evidence_that_has_expired_sends_nothing() {
    let scene = scene(well);
    pass(2.0).await;
    assert_eq!(scene.outcome().await, "expired");
    assert_eq!(scene.api.lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_term_that_has_ended_sends_nothing() {
    let scene = scene(well).led_until(1.0);
    pass(1.0).await;
    assert_eq!(scene.outcome().await, "not_leader");
    assert_eq!(scene.api.lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_hangs_is_given_up_when_the_term_ends() {
    let scene = scene(|_| Answer::never()).led_until(1.5);
    let start = scene.env.now();
    let Outcome::Failed(ApiError::TimedOut { after }) = scene.act().await else { panic!("timeout") };
    assert_eq!(
        (after, scene.env.now().since(start)),
        (Duration::from_millis(1_500), Duration::from_millis(1_500))
    );
}

#[tokio::test(start_paused = true)]
async fn a_term_that_ends_with_the_mark_under_way_deletes_nothing() {
    let scene =
        scene(
            |method| if method == "PATCH" { written(77).late(Duration::from_secs(1)) } else { well(method) },
        )
        .led_until(1.0);
    scene.outcome().await;
    assert_eq!(scene.api.lines(), [PATCH]);
}

#[tokio::test(start_paused = true)]
async fn bug_leadership_that_was_lost_with_the_mark_under_way_still_deleted() {
    let scene =
        scene(
            |method| if method == "PATCH" { written(77).late(Duration::from_secs(1)) } else { well(method) },
        )
        .led_until(9.0);
    let lose = async {
        pass(0.5).await;
        scene.leadership.end_for_tests();
    };
    let (outcome, ()) = futures::future::join(scene.act(), lose).await;
    assert_eq!(outcome.name(), "not_leader");
    assert_eq!(scene.api.lines(), [PATCH]);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_no_part_of_a_url_sends_nothing() {
    let scene = scene(well);
    let mut odd = evidence(gone(), false, scene.env.now() + Duration::from_secs(2));
    odd.pod.name = "a b".into();
    *scene.evidence.lock() = Some(odd);
    assert_eq!(scene.outcome().await, "failed");
    assert_eq!(scene.api.lines(), [""; 0]);
}
