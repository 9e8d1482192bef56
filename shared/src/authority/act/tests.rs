//! The requests of a force deletion, byte by byte.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pod_safety_proof::{Claim, EvidenceKind};
use serde_json::json;

use super::*;
use crate::client::scripted::{Answer, Api, FAILURES, advance, env};
use crate::testing::Claimed as _;
use crate::testing::objects::pod;

struct Fixture {
    env: Env,
    api: Api,
    connection: Connection,
    leadership: Arc<Leadership>,
    evidence: Mutex<Option<Evidence<PodVersion>>>,
}

/// Answers the PATCH and the DELETE.
fn fixture(
    patch: impl Fn() -> Answer + Send + Sync + 'static,
    delete: impl Fn() -> Answer + Send + Sync + 'static,
) -> Fixture {
    let (env, _wall) = env();
    let api = Api::answering(&env, move |request| if request.method == "PATCH" { patch() } else { delete() });
    let connection = api.connection();
    let fixture = Fixture { env, api, connection, leadership: Leadership::always(), evidence: Mutex::new(None) };
    fixture.with(gone(), false)
}

fn well() -> Fixture {
    fixture(marked, removed)
}

fn marked() -> Answer {
    Answer::json(&pod("a").rv(77).phase("Failed").0)
}

fn removed() -> Answer {
    Answer::json(&pod("a").rv(78).0)
}

fn gone() -> EvidenceKind {
    EvidenceKind::NodeGone { node: "n".into(), apart: Duration::from_secs(40) }
}

impl Fixture {
    fn with(self, kind: EvidenceKind, terminal: bool) -> Self {
        let (force, expires) = (pod("a").force(Claim::NeverScheduled), self.env.now() + Duration::from_secs(2));
        let version = PodVersion { pod: force.pod, rv: force.rv, terminal, generation: 3 };
        let evidence = Evidence::for_act_tests(kind, version, expires);
        *self.evidence.lock() = Some(evidence);
        self
    }

    fn led_until(mut self, seconds: f64) -> Self {
        self.leadership = Leadership::for_tests(self.env.now() + Duration::from_secs_f64(seconds));
        self
    }

    async fn act(&self) -> ForceOutcome {
        let evidence = self.evidence.lock().take().unwrap();
        force_delete(&self.connection, &self.env, &self.leadership, evidence).await
    }

    async fn outcome(&self) -> &'static str {
        self.act().await.name()
    }
}

const PATCH: &str = "PATCH /api/v1/namespaces/ns/pods/a/status";
const DELETE: &str = "DELETE /api/v1/namespaces/ns/pods/a";

#[tokio::test(start_paused = true)]
async fn a_pod_of_a_gone_node_is_patched_and_deleted_at_the_version_of_the_answer() {
    let fixture = well();
    assert!(matches!(fixture.act().await, ForceOutcome::Released(EvidenceKind::NodeGone { .. })));
    let requests = fixture.api.requests();
    let [patch, delete] = requests.as_slice() else { panic!("{requests:?}") };
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
    assert!(requests.iter().all(|request| request.permitted && request.query.is_empty()));
}

#[tokio::test(start_paused = true)]
async fn a_terminal_pod_is_deleted_without_a_patch_at_the_version_of_the_evidence() {
    let fixture = well().with(EvidenceKind::KubeletTerminated, true);
    assert_eq!(fixture.outcome().await, "released");
    assert_eq!(fixture.api.lines(), [DELETE]);
    let preconditions = fixture.api.requests()[0].json()["preconditions"].clone();
    assert_eq!(preconditions, json!({ "uid": "uid-a", "resourceVersion": "10" }));
}

#[tokio::test(start_paused = true)]
async fn only_a_gone_node_has_the_disruption_reason_of_pod_gc() {
    for kind in [EvidenceKind::NeverScheduled, EvidenceKind::TrustedTaint { node: "n".into() }] {
        let fixture = well().with(kind, false);
        assert_eq!(fixture.outcome().await, "released");
        let body = fixture.api.requests()[0].json();
        assert_eq!(body["status"], json!({ "phase": "Failed", "observedGeneration": 3 }));
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_a_fenced_node_has_the_disruption_reason_of_pod_safety() {
    let (node, proof) = (|| "n".into(), || "e".into());
    for kind in [
        EvidenceKind::Fenced { node: node(), proof: proof(), kind: crate::model::FenceEvidenceKind::PowerOff },
        EvidenceKind::Confirmed { node: node(), proof: proof(), by: "ada".into() },
    ] {
        let fixture = well().with(kind, false);
        assert_eq!(fixture.outcome().await, "released");
        let condition = fixture.api.requests()[0].json()["status"]["conditions"][0].clone();
        assert_eq!(
            (&condition["type"], &condition["reason"]),
            (&json!("DisruptionTarget"), &json!("FencedByPodSafety"))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_with_finalizers_is_deleted_and_its_object_remains() {
    let kept = || Answer::json(&pod("a").set("/metadata/finalizers", json!(["example.com/f"])).0);
    let fixture = fixture(marked, kept);
    assert_eq!(fixture.outcome().await, "finalizers_remain");
}

#[tokio::test(start_paused = true)]
async fn each_failure_of_the_patch_has_its_outcome_and_no_delete_follows() {
    let no_version: fn() -> Answer = || Answer::json(&json!({ "kind": "Status", "status": "Success" }));
    for (what, answer, expected) in FAILURES.into_iter().chain([("an answer without a version", no_version, "failed")])
    {
        let fixture = fixture(answer, removed);
        assert_eq!(fixture.outcome().await, expected, "{what}");
        assert_eq!(fixture.api.lines(), [PATCH], "{what}: once, and no deletion");
    }
}

#[tokio::test(start_paused = true)]
async fn each_failure_of_the_delete_after_the_patch_has_its_outcome() {
    for (what, answer, expected) in FAILURES {
        let fixture = fixture(marked, answer);
        assert_eq!(fixture.outcome().await, expected, "{what}");
        assert_eq!(fixture.api.lines(), [PATCH, DELETE], "{what}: each once");
    }
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_taken_from_header_and_status() {
    let header: fn() -> Answer =
        || Answer::plain(429, "Too many requests, please try again later.").with_retry_after(7);
    let status: fn() -> Answer = || {
        let details = json!({ "retryAfterSeconds": 7 });
        let body = json!({ "kind": "Status", "code": 429, "reason": "TooManyRequests", "message": "later", "details": details });
        Answer::with_code(429, &body)
    };
    for answer in [header, status] {
        let fixture = fixture(answer, answer);
        let ForceOutcome::Error(RequestError::Failed(ApiError::Refused { code: 429, retry_after, .. })) =
            fixture.act().await
        else {
            panic!("429")
        };
        assert_eq!(retry_after, Some(Duration::from_secs(7)), "bug: the header went unread");
    }
}

#[tokio::test(start_paused = true)]
async fn evidence_that_expires_between_patch_and_delete_sends_no_delete() {
    for (late, expected, lines) in [(1.9, "released", 2), (2.0, "failed", 1)] {
        let fixture = fixture(move || marked().delayed(Duration::from_secs_f64(late)), removed);
        assert_eq!(fixture.outcome().await, expected, "{late}");
        assert_eq!(fixture.api.lines().len(), lines);
    }
}

#[tokio::test(start_paused = true)]
async fn evidence_that_has_expired_sends_nothing() {
    let fixture = well();
    advance(2.0).await;
    assert_eq!(fixture.outcome().await, "expired");
    assert_eq!(fixture.api.lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_term_that_has_ended_sends_nothing() {
    let fixture = well().led_until(1.0);
    advance(1.0).await;
    assert_eq!(fixture.outcome().await, "not_leader");
    assert_eq!(fixture.api.lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_hangs_times_out_when_the_term_ends() {
    let fixture = fixture(Answer::never, Answer::never).led_until(1.5);
    let start = fixture.env.now();
    let ForceOutcome::Error(RequestError::Failed(ApiError::TimedOut { after })) = fixture.act().await else {
        panic!("timeout")
    };
    assert_eq!((after, fixture.env.now().since(start)), (Duration::from_millis(1_500), Duration::from_millis(1_500)));
}

#[tokio::test(start_paused = true)]
async fn a_term_that_ends_during_the_patch_sends_no_delete() {
    let fixture = fixture(|| marked().delayed(Duration::from_secs(1)), removed).led_until(1.0);
    fixture.outcome().await;
    assert_eq!(fixture.api.lines(), [PATCH]);
}

#[tokio::test(start_paused = true)]
async fn bug_a_delete_was_sent_after_leadership_was_lost_during_the_patch() {
    let fixture = fixture(|| marked().delayed(Duration::from_secs(1)), removed).led_until(9.0);
    let lose = async {
        advance(0.5).await;
        fixture.leadership.end_for_tests();
    };
    let (outcome, ()) = futures::future::join(fixture.act(), lose).await;
    assert_eq!(outcome.name(), "not_leader");
    assert_eq!(fixture.api.lines(), [PATCH]);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_invalid_in_a_url_sends_nothing() {
    let fixture = well();
    let mut version = fixture.evidence.lock().take().unwrap().subject().clone();
    version.pod.name = "a b".into();
    let expires = fixture.env.now() + Duration::from_secs(2);
    *fixture.evidence.lock() = Some(Evidence::for_act_tests(gone(), version, expires));
    assert_eq!(fixture.outcome().await, "failed");
    assert_eq!(fixture.api.lines(), [""; 0]);
}

/// Once, the evidence was compared only before the request was sent, and the request could then wait until the end of the term.
#[tokio::test(start_paused = true)]
async fn a_request_without_an_answer_times_out_when_its_evidence_expires() {
    let (env, _wall) = env();
    let slow = env.clone();
    let api = Api::new(&env, move |_| {
        let env = slow.clone();
        async move {
            env.sleep(Duration::from_secs(3)).await;
            marked()
        }
    });
    let connection = api.connection();
    let fixture = Fixture { env, api, connection, leadership: Leadership::always(), evidence: Mutex::new(None) };
    let fixture = fixture.with(gone(), false);
    let began = fixture.env.now();
    assert_eq!(fixture.outcome().await, "failed");
    assert_eq!(fixture.env.now().since(began), Duration::from_secs(2));
}
