//! The writes of JobSet v0.10.1 for a JobSet of two Jobs, with its own CRD.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};
use pod_safety_control_plane::ControlPlane;
use serde_json::{Value, json};

use super::super::foreign::published;
use super::{NAMESPACE, apply};

const KIND: &str = "jobsets.jobset.x-k8s.io";
const PREFIX: &str = "jobset.sigs.k8s.io";

pub(super) async fn install(plane: &ControlPlane) {
    published(plane, "jobset.x-k8s.io_jobsets.yaml").await;
}

/// A JobSet that fails with the first of its Jobs, and the Jobs, created like by its controller (`constructJob`).
pub(super) async fn create(plane: &ControlPlane, name: &str, jobs: &[(&str, Value)]) {
    let replicated: Vec<_> = jobs
        .iter()
        .map(|(job, body)| json!({ "name": job, "replicas": 1, "template": { "spec": body["spec"] } }))
        .collect();
    apply(plane, &json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": { "namespace": NAMESPACE, "name": name },
        "spec": { "failurePolicy": { "maxRestarts": 0 }, "replicatedJobs": replicated },
    }))
    .await;
    let uid = find(plane, name).await["metadata"]["uid"].clone();
    let owner = json!({ "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": name, "uid": uid, "controller": true, "blockOwnerDeletion": true });
    for (index, (replicated, body)) in jobs.iter().enumerate() {
        let labels = json!({
            format!("{PREFIX}/jobset-name"): name, format!("{PREFIX}/jobset-uid"): uid,
            format!("{PREFIX}/replicatedjob-name"): replicated, format!("{PREFIX}/replicatedjob-replicas"): "1",
            format!("{PREFIX}/global-replicas"): jobs.len().to_string(), format!("{PREFIX}/restart-attempt"): "0",
            format!("{PREFIX}/job-index"): "0", format!("{PREFIX}/job-global-index"): index.to_string(),
        });
        let mut job = body.clone();
        job["metadata"] = json!({ "namespace": NAMESPACE, "name": job_of(name, replicated), "labels": labels, "annotations": labels, "ownerReferences": [owner] });
        job["spec"]["template"]["metadata"] = json!({ "labels": labels, "annotations": labels });
        apply(plane, &job).await;
    }
}

pub(super) fn job_of(name: &str, replicated: &str) -> String {
    format!("{name}-{replicated}-0")
}

async fn find(plane: &ControlPlane, name: &str) -> Value {
    plane.find(KIND, NAMESPACE, name).await.unwrap().unwrap()
}

/// Its reconciler at each change of a Job: the failure policy (`executeFailurePolicy`), and the end of a JobSet.
pub(super) async fn reconcile(plane: &ControlPlane, name: &str) {
    let jobs = Api::<Job>::namespaced(plane.admin(), NAMESPACE);
    let owned = jobs.list(&ListParams::default().labels(&format!("{PREFIX}/jobset-name={name}"))).await.unwrap();
    let failed = |job: &&Job| {
        let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().any(|one| one.type_ == "Failed" && one.status == "True")
    };
    let Some(first) = owned.iter().find(failed) else { return };
    let object = find(plane, name).await;
    if object["status"]["terminalState"].is_string() {
        return;
    }
    assert_eq!(object["spec"]["failurePolicy"]["maxRestarts"], 0, "a restart is not played");
    let message =
        format!("jobset failed due to reaching max number of restarts (first failed job: {})", first.name_any());
    let condition = json!({ "type": "Failed", "status": "True", "reason": "ReachedMaxRestarts", "message": message,
        "lastTransitionTime": Timestamp::now().to_string() });
    let status = json!({ "status": { "terminalState": "Failed", "conditions": [condition] } }).to_string();
    plane
        .kubectl(&["patch", KIND, name, "-n", NAMESPACE, "--subresource=status", "--type=merge", "-p", &status])
        .await
        .unwrap()
        .text()
        .unwrap();
    for active in owned.iter().filter(|job| !failed(job)) {
        jobs.delete(&active.name_any(), &DeleteParams::foreground()).await.unwrap();
    }
}

/// Its terminal state, if it has one, and its number of restarts.
pub(super) async fn end_of(plane: &ControlPlane, name: &str) -> (Value, u64) {
    let status = find(plane, name).await["status"].clone();
    (status["terminalState"].clone(), status["restarts"].as_u64().unwrap_or(0))
}
