//! The writes of Kueue v0.17.0 for a Job in one of its queues, with its own account and CRDs. Its minute after the grace period is
//! skipped: the requests are the same.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use pod_safety_control_plane::ControlPlane;
use serde_json::{Value, json};

use super::super::foreign::published;
use super::{NAMESPACE, apply};

/// Kueue force deletes a pod with this annotation after a timeout (`SafeToForcefullyDeleteAnnotationKey`).
pub(super) const BY_TIME: &str = "kueue.x-k8s.io/safe-to-forcefully-delete";
pub(super) const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const STOPPING: &str = "kueue.x-k8s.io/stopping";
const VERSION: &str = "kueue.x-k8s.io/v1beta2";
/// The CPU request of each Job's pod, and the quota of the queue.
const CPU: &str = "1";

pub(super) struct Kueue {
    api: Client,
}

impl Kueue {
    /// Its CRDs, its account with the rights of its role (`config/components/rbac/role.yaml`), and a queue.
    pub(super) async fn install(plane: &ControlPlane) -> Self {
        for kind in ["resourceflavors", "clusterqueues", "localqueues", "workloads"] {
            published(plane, &format!("kueue.x-k8s.io_{kind}.yaml")).await;
        }
        let all = ["create", "delete", "get", "list", "patch", "update", "watch"];
        let rule = |group: &str, resources: Value, verbs: &[&str]| json!({ "apiGroups": [group], "resources": resources, "verbs": verbs });
        let rules = json!([
            rule("", json!(["nodes"]), &["get", "list", "watch"]),
            rule("", json!(["pods"]), &["delete", "get", "list", "patch", "update", "watch"]),
            rule("", json!(["pods/status"]), &["get", "patch"]),
            rule("batch", json!(["jobs"]), &["delete", "get", "list", "patch", "update", "watch"]),
            rule("batch", json!(["jobs/finalizers", "jobs/status"]), &["get", "patch", "update"]),
            rule("kueue.x-k8s.io", json!(["workloads"]), &all),
            rule("kueue.x-k8s.io", json!(["workloads/status"]), &["get", "patch", "update"]),
        ]);
        let kubeconfig = plane.service_account("kueue-system", "kueue-controller-manager").await.unwrap();
        let (name, group) = ("kueue-manager-role", "rbac.authorization.k8s.io");
        let of_it = |kind: &str, with: &Value| {
            let mut object = json!({ "apiVersion": format!("{group}/v1"), "kind": kind, "metadata": { "name": name } });
            object.as_object_mut().unwrap().extend(with.as_object().unwrap().clone());
            object
        };
        apply(plane, &of_it("ClusterRole", &json!({ "rules": rules }))).await;
        let who =
            json!([{ "kind": "ServiceAccount", "name": "kueue-controller-manager", "namespace": "kueue-system" }]);
        let role = json!({ "apiGroup": group, "kind": "ClusterRole", "name": name });
        apply(plane, &of_it("ClusterRoleBinding", &json!({ "roleRef": role, "subjects": who }))).await;
        let flavor = json!({ "name": "default", "resources": [{ "name": "cpu", "nominalQuota": "9" }] });
        let groups = json!([{ "coveredResources": ["cpu"], "flavors": [flavor] }]);
        for (kind, namespace, spec) in [
            ("ResourceFlavor", None, json!({})),
            ("ClusterQueue", None, json!({ "namespaceSelector": {}, "resourceGroups": groups })),
            ("LocalQueue", Some(NAMESPACE), json!({ "clusterQueue": "default" })),
        ] {
            let metadata = json!({ "name": "default", "namespace": namespace });
            apply(plane, &json!({ "apiVersion": VERSION, "kind": kind, "metadata": metadata, "spec": spec })).await;
        }
        Self { api: plane.client(&kubeconfig).await.unwrap() }
    }

    fn workloads(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.api.clone(), NAMESPACE, &kind())
    }

    fn jobs(&self) -> Api<Job> {
        Api::namespaced(self.api.clone(), NAMESPACE)
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.api.clone(), NAMESPACE)
    }

    /// Creates the Workload of a suspended Job, reserves its quota, and starts the Job.
    pub(super) async fn admits(&self, name: &str) {
        let job = self.jobs().get(name).await.unwrap();
        let uid = job.metadata.uid.unwrap();
        let owner = json!({ "apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": true, "blockOwnerDeletion": true });
        let mut workload = DynamicObject::new(&workload(name), &kind());
        workload.metadata.labels = Some([("kueue.x-k8s.io/job-uid".to_owned(), uid)].into());
        workload.metadata.finalizers = Some(vec!["kueue.x-k8s.io/resource-in-use".to_owned()]);
        workload.metadata.owner_references = Some(vec![serde_json::from_value(owner).unwrap()]);
        let set = json!({ "name": "main", "count": 1, "template": { "spec": job.spec.unwrap().template.spec } });
        workload.data = json!({ "spec": { "queueName": "default", "active": true, "podSets": [set] } });
        self.workloads().create(&PostParams::default(), &workload).await.unwrap();
        self.reserves(name).await;
        self.starts(name).await;
    }

    /// Its scheduler reserves quota.
    pub(super) async fn reserves(&self, name: &str) {
        let assigned =
            json!({ "name": "main", "count": 1, "flavors": { "cpu": "default" }, "resourceUsage": { "cpu": CPU } });
        let admission = json!({ "clusterQueue": "default", "podSetAssignments": [assigned] });
        let reserved = [("QuotaReserved", true), ("Admitted", true), ("Evicted", false)];
        self.set_conditions(name, &reserved, &admission).await;
    }

    /// `RunWithPodSetsInfo`.
    pub(super) async fn starts(&self, name: &str) {
        self.change(name, &json!({ "spec": { "suspend": false } })).await;
    }

    /// A Workload that is evicted: preempted, or because its pods are not ready for too long.
    pub(super) async fn evicts(&self, name: &str) {
        let evicted = [("QuotaReserved", true), ("Admitted", true), ("Evicted", true)];
        self.set_conditions(name, &evicted, &self.status(name).await["admission"]).await;
    }

    /// Its reconciler at each change of the Job: steps 2 and 6 of `reconciler.go`.
    pub(super) async fn reconciles(&self, name: &str) {
        let workload = self.status(name).await;
        let job = self.jobs().get(name).await.unwrap();
        let status = job.status.unwrap_or_default();
        let is = |kind: &str| status.conditions.iter().flatten().any(|one| one.type_ == kind && one.status == "True");
        if is("Complete") || is("Failed") {
            self.set_conditions(name, &[("Finished", true)], &workload["admission"]).await;
        } else if holds(&workload, "Evicted") {
            if job.spec.unwrap().suspend != Some(true) {
                self.stops(name).await;
            }
            if holds(&workload, "QuotaReserved") && status.active.unwrap_or(0) == 0 {
                let pending = [("QuotaReserved", false), ("Admitted", false), ("Evicted", true)];
                self.set_conditions(name, &pending, &Value::Null).await;
            }
        }
    }

    /// `Stop`
    async fn stops(&self, name: &str) {
        let suspend = json!({ "spec": { "suspend": true }, "metadata": { "annotations": { STOPPING: "true" } } });
        self.change(name, &suspend).await;
        let start = Patch::Merge(json!({ "status": { "startTime": null } }));
        self.jobs().patch_status(name, &PatchParams::default(), &start).await.unwrap();
        self.change(name, &json!({ "metadata": { "annotations": { STOPPING: null } } })).await;
    }

    /// Whether its Workload uses quota, as counted by its cache.
    pub(super) async fn takes_quota(&self, name: &str) -> bool {
        let status = self.status(name).await;
        holds(&status, "QuotaReserved") && !holds(&status, "Finished")
    }

    async fn status(&self, name: &str) -> Value {
        self.workloads().get(&workload(name)).await.unwrap().data["status"].clone()
    }

    async fn set_conditions(&self, name: &str, conditions: &[(&str, bool)], admission: &Value) {
        let now = Timestamp::now().to_string();
        let condition = |&(kind, holds): &(&str, bool)| json!({ "type": kind, "status": if holds { "True" } else { "False" }, "reason": kind, "message": kind, "lastTransitionTime": now });
        let conditions: Vec<_> = conditions.iter().map(condition).collect();
        let patch = Patch::Merge(json!({ "status": { "conditions": conditions, "admission": admission } }));
        self.workloads().patch_status(&workload(name), &PatchParams::default(), &patch).await.unwrap();
    }

    async fn change(&self, job: &str, patch: &Value) {
        self.jobs().patch(job, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// The first request of `TerminatingPodReconciler`: the pod's status becomes Failed.
    pub(super) async fn calls_failed(&self, pod: &str, dry_run: bool) -> kube::Result<Pod> {
        let current = self.pods().get(pod).await?;
        let annotations = current.metadata.annotations.unwrap_or_default();
        assert_eq!(annotations.get(BY_TIME).map(String::as_str), Some("true"), "it removes no other pod");
        assert!(current.metadata.deletion_timestamp.is_some(), "{pod} does not terminate");
        let node = Api::<Node>::all(self.api.clone()).get(&current.spec.unwrap().node_name.unwrap()).await?;
        let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
        assert!(taints.iter().any(|taint| taint.key == "node.kubernetes.io/unreachable"), "{taints:?}");
        let mut conditions = json!(current.status.unwrap().conditions);
        conditions.as_array_mut().unwrap().push(json!({
            "type": "KueueFailureRecovery", "status": "True", "reason": "KueueForcefullyDeleted",
            "message": "Pod forcefully terminated after 1m0s grace period due to unreachable node",
        }));
        let patch = json!({ "metadata": { "resourceVersion": current.metadata.resource_version },
            "status": { "phase": "Failed", "conditions": conditions } });
        self.pods().patch_status(pod, &PatchParams { dry_run, ..PatchParams::default() }, &Patch::Merge(patch)).await
    }

    /// Its second request, which it sends when the first one succeeded.
    pub(super) async fn deletes(&self, pod: &str, dry_run: bool) -> kube::Result<()> {
        let at_once = DeleteParams { grace_period_seconds: Some(0), dry_run, ..DeleteParams::default() };
        self.pods().delete(pod, &at_once).await.map(drop)
    }
}

fn kind() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("kueue.x-k8s.io", "v1beta2", "Workload"))
}

fn holds(status: &Value, condition: &str) -> bool {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.any(|one| one["type"] == condition && one["status"] == "True")
}

/// Without the hash suffix of the real name.
fn workload(job: &str) -> String {
    format!("job-{job}")
}
