//! Evidence PodsEnded: the report of a node's agent.

use pod_safety_watchdog::record::{Boot, Epoch, PodReport, Record, State};
use serde_json::json;

use super::*;

const UID: &str = "uid-a";

fn deleted() -> Obj {
    pod("a").uid(UID).on("n").running().terminating().observed(2).set("/metadata/generation", json!(2))
}

fn claim() -> ForceDeleteRequest {
    deleted().force(Claim::PodsEnded { node: "n".into() })
}

fn fixture() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.policy.agent_reports = Some("agents".into());
    fixture.apply(Kind::Pods, &deleted().0);
    fixture
}

/// The Lease of an agent in this round, with a report about pods from an earlier check.
fn lease(process: u64, round: u64, pods: Option<PodReport>) -> Responder {
    let boot = Boot { node: "uid-n".into(), id: "b0000000-0000-4000-8000-000000000001".into() };
    let epoch = Epoch { process, count: 1 };
    let mut annotations = Record { state: State::Armed, epoch, round, boot, device: None }.to_annotations();
    annotations.extend(pods.iter().flat_map(PodReport::to_annotations));
    let lease = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {},
        "metadata": { "name": "watchdog.n", "uid": "l", "resourceVersion": round.to_string(), "annotations": annotations } });
    answering(move || Answer::json(&lease))
}

fn ended_report(looked: u64) -> Option<PodReport> {
    Some(PodReport {
        checked_round: looked,
        terminated: vec!["uid-b".to_owned(), UID.to_owned()],
        leftover: Vec::new(),
    })
}

impl Fixture {
    async fn reports(&self, answering: Responder) -> Result<Evidence<PodVersion>, VerifyError> {
        *self.agent.lock() = answering;
        self.verify(&claim()).await
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_check_after_the_kubelet_observed_the_deletion_is_evidence() {
    let fixture = fixture();
    assert_eq!(reason(fixture.reports(lease(1, 10, ended_report(9))).await), "AgentMustLookAgain", "the mark is at 10");
    assert_eq!(
        reason(fixture.reports(lease(1, 11, ended_report(11))).await),
        "AgentMustLookAgain",
        "round 11 may have been sent"
    );
    let proved = fixture.reports(lease(1, 14, ended_report(12))).await.unwrap();
    assert_eq!(*proved.kind(), EvidenceKind::PodsEnded { node: "n".into() });
    assert_eq!(proved.expires(), fixture.env.now() + VALID_FOR);
    assert_eq!(fixture.api.lines().len(), 3, "one read for each");
}

#[tokio::test(start_paused = true)]
async fn bug_an_agent_check_that_came_too_early_moved_the_mark() {
    let fixture = fixture();
    for round in 10..100 {
        let judged = fixture.reports(lease(1, round, ended_report(round.min(11)))).await;
        assert_eq!(reason(judged), "AgentMustLookAgain", "round {round}");
    }
    assert!(fixture.reports(lease(1, 100, ended_report(12))).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn attack_rounds_of_another_epoch_or_another_deletion_do_not_count() {
    let fixture = fixture();
    assert_eq!(reason(fixture.reports(lease(1, 10, ended_report(9))).await), "AgentMustLookAgain");
    assert_eq!(reason(fixture.reports(lease(2, 50, ended_report(50))).await), "AgentMustLookAgain", "another process");
    // The grace period was shortened: that is another generation.
    let again = deleted().observed(3).set("/metadata/generation", json!(3)).rv(77);
    fixture.apply(Kind::Pods, &again.0);
    *fixture.agent.lock() = lease(2, 60, ended_report(60));
    let force = again.force(Claim::PodsEnded { node: "n".into() });
    assert_eq!(reason(fixture.verify(&force).await), "AgentMustLookAgain");
    *fixture.agent.lock() = lease(2, 62, ended_report(62));
    assert!(fixture.verify(&force).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_names_what_remains_of_the_pod() {
    let left = |of: &str, what: &str| (of.to_owned(), what.to_owned());
    let left = vec![left("uid-other", "a mount"), left(UID, "process 7 (mysqld) in state D")];
    let stuck = Some(PodReport { checked_round: 9, terminated: Vec::new(), leftover: left });
    let empty_report = || Some(PodReport { checked_round: 9, ..PodReport::default() });
    let another = Some(PodReport { checked_round: 9, terminated: vec![format!("{UID}2")], leftover: Vec::new() });
    for (what, answering, words) in [
        ("a process", lease(1, 10, stuck), "process 7 (mysqld) in state D"),
        ("it says nothing about the pod", lease(1, 10, empty_report()), "is left: "),
        ("another pod has ended, whose UID begins so", lease(1, 10, another), "is left: "),
        ("it is older than its reports", lease(1, 10, None), "it has not looked at its pods"),
        ("no agent", absent(), "it has no Lease"),
    ] {
        let refusal = fixture().reports(answering).await.unwrap_err();
        assert!(refusal.to_string().ends_with(words), "{what}: {refusal}");
        assert_eq!(refusal.reason(), "PodsNotEnded", "{what}");
    }
    let unread = fixture().reports(answering(|| Answer::plain(502, "bad gateway"))).await;
    assert_eq!(reason(unread), "ReadFailed");
}

#[tokio::test(start_paused = true)]
async fn attack_a_pod_whose_kubelet_has_not_seen_the_deletion_is_not_released() {
    let failed = deleted().phase("Failed");
    for (what, object, expected) in [
        ("its kubelet reported about an older generation", deleted().observed(1), "ClaimMismatch"),
        ("its kubelet reports no generations", deleted().observed(0), "ClaimMismatch"),
        ("no generation", deleted().observed(0).set("/metadata/generation", json!(0)), "ClaimMismatch"),
        ("another controller wrote its phase, and what was observed", failed, "ClaimMismatch"),
        ("it is not terminating", pod("a").uid(UID).on("n").running().observed(1), "ClaimMismatch"),
        ("it runs on another node", deleted().on("m"), "ClaimMismatch"),
    ] {
        let fixture = fixture();
        fixture.apply(Kind::Pods, &object.0);
        let force = object.force(Claim::PodsEnded { node: "n".into() });
        assert_eq!(reason(fixture.verify(&force).await), expected, "{what}");
        assert!(fixture.api.lines().is_empty(), "{what}: nothing is read");
    }
}

#[tokio::test(start_paused = true)]
async fn reports_that_are_not_accepted_are_not_read() {
    let mut fixture = fixture();
    fixture.policy.agent_reports = None;
    let refusal = fixture.reports(lease(1, 10, ended_report(9))).await.unwrap_err();
    assert!(refusal.to_string().contains("--agent-reports-from"), "{refusal}");
    assert!(fixture.api.lines().is_empty());
}

/// Other clients also write the phase Failed, with observedGeneration. If no container runs, it makes no difference.
#[tokio::test(start_paused = true)]
async fn a_pod_whose_phase_another_client_set_to_failed_is_released_only_if_no_container_runs() {
    let failed = || deleted().phase("Failed");
    for (object, expected) in
        [(failed(), "ClaimMismatch"), (failed().set("/status/containerStatuses", json!([])), "AgentMustLookAgain")]
    {
        let mut fixture = Fixture::new();
        fixture.policy.agent_reports = Some("agents".into());
        fixture.apply(Kind::Pods, &object.0);
        *fixture.agent.lock() = lease(1, 10, ended_report(9));
        let judged = fixture.verify(&object.force(Claim::PodsEnded { node: "n".into() })).await;
        assert_eq!(reason(judged), expected);
    }
}

/// Once, a second pod of the node was marked, and the first pod lost its mark.
#[tokio::test(start_paused = true)]
async fn marks_of_several_pods_are_kept() {
    let fixture = fixture();
    let other = deleted().uid("uid-b").set("/metadata/name", json!("b"));
    fixture.apply(Kind::Pods, &other.0);
    assert_eq!(reason(fixture.reports(lease(1, 10, ended_report(9))).await), "AgentMustLookAgain");
    let second = fixture.verify(&other.force(Claim::PodsEnded { node: "n".into() })).await;
    assert_eq!(reason(second), "AgentMustLookAgain");
    assert!(fixture.reports(lease(1, 14, ended_report(12))).await.is_ok());
}
