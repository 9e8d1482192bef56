//! Kueue and JobSet with Jobs on a lost node. Their controllers are scripted from their sources; the Job controller, the scheduler, the
//! admission policies and pod-safety are real.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use pod_safety_control_plane::{chart, helm, objects};

use super::kueue::{BY_TIME, Kueue, QUEUE};
use super::*;

const EARLY: &str = "early";
const LATE: &str = "late";
const TRAIN: &str = "train";
/// A JobSet as documented, and one whose Jobs count a disruption as a failure.
const GANG: &str = "gang";
const BARE: &str = "bare";
const PEER: &str = "spare-1";

/// A Job of a queue, whose pods Kueue force deletes after a timeout.
fn queued(name: &str) -> Value {
    let mut job = job(name, SWITCHED);
    job["metadata"]["labels"] = json!({ QUEUE: "default" });
    job["spec"]["suspend"] = json!(true);
    job["spec"]["template"]["metadata"] = json!({ "annotations": { BY_TIME: "true" } });
    job
}

async fn start_job_set(fixture: &Fixture, name: &str, recipe: bool) {
    let jobs = [("lead", SWITCHED), ("peer", PEER)].map(|(replicated, node)| {
        let mut job = job("", node);
        if !recipe {
            job["spec"].as_object_mut().unwrap().remove("podFailurePolicy");
        }
        (replicated, job)
    });
    job_sets::create(&fixture.plane, name, &jobs).await;
}

/// Enables one policy of the chart, and waits until the API server enforces it.
async fn denies(fixture: &Fixture, policy: &str, probe: impl AsyncFn() -> kube::Result<()>) {
    let chart = chart();
    let show = format!("--show-only=templates/admission/{policy}.yaml");
    let args = [
        "template",
        "pod-safety",
        chart.to_str().unwrap(),
        "--namespace=pod-safety",
        "--set=mode=replace,admissionPolicies.action=Deny",
        &show,
    ];
    let rendered = helm(&args).await.unwrap().text().unwrap();
    fixture.plane.kubectl_with(&["apply", "-f", "-"], &rendered).await.unwrap().text().unwrap();
    wait_until(&format!("{policy} holds"), async || {
        let answer = probe().await;
        check_that(answer.is_err(), format!("{answer:?}"))
    })
    .await;
}

/// Denied by this policy, with a message that names the remedy.
fn refused(answer: kube::Result<()>, policy: &str) {
    let error = answer.unwrap_err().to_string();
    for part in [policy, "may still run", "pod-safety confirm-down switched"] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

impl Fixture {
    /// The name of the first pod, once its kubelet has reported a running container.
    async fn runs_first(&self, job: &str) -> String {
        self.until_runs(job, |node| node == SWITCHED).await;
        let pod = self.pods(job).await.remove(0);
        let name = pod.metadata.name.unwrap();
        let mut status = pod.status.unwrap();
        let main = json!({ "name": "main", "image": "main", "imageID": "", "ready": true, "restartCount": 0,
            "state": { "running": { "startedAt": Timestamp::now().to_string() } } });
        status.container_statuses = Some(vec![serde_json::from_value(main).unwrap()]);
        objects::set_pod_status(&self.plane.admin(), NAMESPACE, &name, &status).await.unwrap();
        name
    }

    /// Its only pod is this one, which is terminating.
    async fn still_waits_for(&self, job: &str, pod: &str) {
        let pods = self.pods(job).await;
        let names: Vec<_> = pods.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect();
        assert_eq!(names, [pod]);
        let status = self.job(job).await.status.unwrap();
        assert_eq!((status.active.unwrap_or(0), status.terminating), (0, Some(1)), "{status:?}");
    }

    async fn until_suspended(&self, status: &str) {
        wait_until(&format!("the condition Suspended is {status}"), async || {
            let conditions = self.job(TRAIN).await.status.unwrap().conditions.unwrap_or_default();
            let has_status = conditions.iter().any(|one| one.type_ == "Suspended" && one.status == status);
            check_that(has_status, format!("{conditions:?}"))
        })
        .await;
    }
}

/// Kueue's first request is enough: for the Job a pod with phase Failed has terminated, while its machine still runs.
async fn attack_a_timer_calls_a_pod_failed_and_its_job_starts_another(
    fixture: &Fixture,
    kueue: &Kueue,
    job: &str,
    pod: &str,
) {
    kueue.calls_failed(pod, false).await.unwrap();
    fixture.until_runs(job, |node| node != SWITCHED).await;
    let names: BTreeSet<_> = fixture.pods(job).await.into_iter().filter_map(|pod| pod.metadata.name).collect();
    assert!(names.len() == 2 && names.contains(pod), "the second one beside the first: {names:?}");
    assert!(fixture.switched.has_power(), "whose containers run");
}

/// The policy on phases protects the Job: it denies the request that would make it start another pod.
async fn both_requests_are_denied_and_the_job_keeps_its_quota(fixture: &Fixture, kueue: &Kueue, pod: &str) {
    refused(kueue.calls_failed(pod, false).await.map(drop), "pod-safety-terminal-phase");
    refused(kueue.deletes(pod, false).await, "pod-safety-force-delete");
    assert!(kueue.takes_quota(TRAIN).await);
    fixture.still_waits_for(TRAIN, pod).await;
}

/// Kueue counts only active pods of a Job, so an evicted Workload releases its quota while its pod terminates. The Job is admitted again,
/// and still waits.
async fn an_evicted_workload_gives_its_quota_back_and_its_job_starts_no_second_pod(
    fixture: &Fixture,
    kueue: &Kueue,
    pod: &str,
) {
    kueue.evicts(TRAIN).await;
    wait_until("its quota is free", async || check_that(!kueue.takes_quota(TRAIN).await, "not yet".to_owned())).await;
    fixture.until_suspended("True").await;
    fixture.still_waits_for(TRAIN, pod).await;
    kueue.reserves(TRAIN).await;
    kueue.starts(TRAIN).await;
    // The Job controller sets the condition after it has counted the pods.
    fixture.until_suspended("False").await;
    fixture.still_waits_for(TRAIN, pod).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_kueue_and_job_set_do_on_a_lost_node_waits_for_evidence_and_no_timer_starts_a_second_pod() {
    let fixture = fixture().await;
    let kueue = Kueue::install(&fixture.plane).await;
    job_sets::install(&fixture.plane).await;
    let mut first = Vec::new();
    for name in [EARLY, LATE, TRAIN] {
        apply(&fixture.plane, &queued(name)).await;
        kueue.admits(name).await;
        first.push(fixture.runs_first(name).await);
    }
    start_job_set(&fixture, GANG, true).await;
    start_job_set(&fixture, BARE, false).await;
    for name in [GANG, BARE] {
        fixture.until_runs(&job_sets::job_of(name, "lead"), |node| node == SWITCHED).await;
    }
    let peer = fixture.until_runs(&job_sets::job_of(GANG, "peer"), |node| node == PEER).await;
    let first = first.try_into().unwrap();
    tokio::select! {
        biased;
        () = reconcile(&fixture, &kueue) => {}
        () = a_node_is_lost(&fixture, &kueue, first, &peer) => {}
    }
}

/// Both controllers reconcile repeatedly.
async fn reconcile(fixture: &Fixture, kueue: &Kueue) {
    loop {
        kueue.reconciles(TRAIN).await;
        for name in [GANG, BARE] {
            job_sets::reconcile(&fixture.plane, name).await;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn a_node_is_lost(fixture: &Fixture, kueue: &Kueue, first: [String; 3], peer: &str) {
    let [early, late, train] = first;
    fixture.switched.cut_off().await;
    for name in [EARLY, LATE, TRAIN] {
        fixture.until_terminates(name).await;
    }
    attack_a_timer_calls_a_pod_failed_and_its_job_starts_another(fixture, kueue, EARLY, &early).await;
    kueue.deletes(&early, false).await.unwrap();
    // Alone, the policy on deletions would be too late.
    denies(fixture, "force-delete", async || kueue.deletes(&late, true).await).await;
    attack_a_timer_calls_a_pod_failed_and_its_job_starts_another(fixture, kueue, LATE, &late).await;
    refused(kueue.deletes(&late, false).await, "pod-safety-force-delete");
    denies(fixture, "terminal-phase", async || kueue.calls_failed(&train, true).await.map(drop)).await;
    both_requests_are_denied_and_the_job_keeps_its_quota(fixture, kueue, &train).await;
    an_evicted_workload_gives_its_quota_back_and_its_job_starts_no_second_pod(fixture, kueue, &train).await;
    assert_eq!(job_sets::end_of(&fixture.plane, GANG).await, (Value::Null, 0));

    fixture.fences().await;
    fixture.until_runs(TRAIN, |node| node != SWITCHED).await;
    let status = fixture.job(TRAIN).await.status.unwrap();
    assert_eq!((status.failed.unwrap_or(0), status.active), (0, Some(1)), "{status:?}");
    assert!(kueue.takes_quota(TRAIN).await, "still, for the next pod");
    fixture.until_runs(&job_sets::job_of(GANG, "lead"), |node| node != SWITCHED).await;
    wait_until("the JobSet without the rule has failed", async || {
        let end = job_sets::end_of(&fixture.plane, BARE).await;
        check_that(end.0 == "Failed", format!("{end:?}"))
    })
    .await;
    assert_eq!(job_sets::end_of(&fixture.plane, GANG).await, (Value::Null, 0), "no Job of it failed");
    let same = fixture.until_runs(&job_sets::job_of(GANG, "peer"), |node| node == PEER).await;
    assert_eq!(peer, same, "and the other Job was left alone");
}
