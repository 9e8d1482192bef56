//! The objects of a served world for the commands that people type: the StatefulSet behind its pods, its claims and
//! volumes, and the kinds of an installation. The run of the pods is the same without them.

use serde_json::{Value, json};

use super::guarded::{CLAIMS, VOLUMES, claim, claims, volume};
use super::replica::{Replica, Settings};
use super::request::send_request;
use super::run::World;
use super::{is_called_ready, number_at, str_at};
use crate::api::Kind;

/// The StatefulSet of the pods `data-0`, `data-1`, …
pub(super) const SET: &str = "data";
const SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The kinds that describe the setup of the cluster: there are definitions, and no objects of the other kinds.
pub(super) fn kinds() -> Vec<Kind> {
    let all = [
        ("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition"),
        ("admissionregistration.k8s.io", "validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
        ("admissionregistration.k8s.io", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"),
        ("apiregistration.k8s.io", "apiservices", "APIService"),
        ("rbac.authorization.k8s.io", "clusterrolebindings", "ClusterRoleBinding"),
    ];
    let kind = |(group, plural, kind): (&str, &str, &str)| Kind {
        group: group.to_owned(),
        version: "v1".to_owned(),
        ..Kind::custom(plural, kind, false)
    };
    all.into_iter().map(kind).collect()
}

/// Adds the owner reference of a pod.
pub(super) fn own(pod: &mut Value, uid: &str) {
    pod["metadata"]["ownerReferences"] = json!([{ "apiVersion": "apps/v1", "kind": "StatefulSet",
        "name": SET, "uid": uid, "controller": true }]);
}

impl World {
    async fn install(&self, method: &str, path: &str, body: Value) {
        if let Some(server) = self.servers.get(0) {
            let answer = send_request(&server, "installer", method, path, Some(body)).await;
            assert!(answer.as_ref().is_some_and(|(code, _)| *code < 300), "{method} {path}: {answer:?}");
        }
    }

    /// Creates the objects that exist before the first pod.
    pub(super) async fn create_objects(&self) {
        if !self.with.furnished {
            return;
        }
        for crd in pod_safety_shared::api::crds() {
            self.install("POST", CRDS, crd).await;
        }
        let labels = json!({ "app": SET });
        let set = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": SET, "labels": labels },
            "spec": { "replicas": self.members, "serviceName": SET, "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels },
                    "spec": { "containers": [{ "name": "main", "image": "hollow" }] } } },
        });
        self.install("POST", SETS, set).await;
        if self.with.guarded_volumes.is_some() {
            return;
        }
        let bound = json!({ "status": { "phase": "Bound" } });
        for member in 0..self.members {
            let (name, disk) = (format!("{SET}-{member}"), format!("pvc-{SET}-{member}"));
            let (mut volume, mut claim) = (volume(&name, false, None), claim(&name, false));
            volume["metadata"]["name"] = disk.as_str().into();
            claim["spec"]["volumeName"] = disk.as_str().into();
            for (path, name, object) in [(VOLUMES, &disk, volume), (CLAIMS, &name, claim)] {
                self.install("POST", path, object).await;
                self.install("PATCH", &format!("{path}/{name}/status"), bound.clone()).await;
            }
        }
    }

    /// Makes a pod part of the StatefulSet, with its claim.
    pub(super) fn make_member(&self, pod: &mut Value) {
        if let Some(set) = self.etcd.object("StatefulSet", &format!("default/{SET}")) {
            own(pod, str_at(&set, "/metadata/uid"));
        }
        pod["metadata"]["labels"] = json!({ "app": SET });
        if self.with.guarded_volumes.is_none() {
            let name = str_at(pod, "/metadata/name").to_owned();
            pod["spec"]["volumes"] = claims(&[name]);
        }
    }

    /// The processes under test as the pods of an installation.
    pub(super) fn our_pods(&self) -> Vec<Value> {
        let args = Settings::for_process(None, self, 0).arguments();
        let pod = |place: &Replica| {
            let name = place.caller()?;
            let is_ready = if place.host().is_some_and(|host| host.is_paused()) { "False" } else { "True" };
            Some(json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": { "namespace": "pod-safety", "name": name, "uid": name,
                    "labels": { "app.kubernetes.io/name": "pod-safety" } },
                "spec": { "serviceAccountName": "pod-safety",
                    "containers": [{ "name": "pod-safety", "image": "pod-safety", "args": args }] },
                "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": is_ready }] },
            }))
        };
        self.replicas.iter().filter_map(pod).collect()
    }

    /// Counts the StatefulSet's pods in its status, when their number has changed.
    pub(super) async fn count_members(&self) {
        let Some(set) = self.etcd.object("StatefulSet", &format!("default/{SET}")) else { return };
        let uid = str_at(&set, "/metadata/uid");
        let pods = self.etcd.objects_that("Pod", |pod| str_at(pod, "/metadata/ownerReferences/0/uid") == uid);
        let (all, ready) = (pods.len(), pods.iter().filter(|pod| is_ready(pod)).count());
        let status = json!({ "observedGeneration": 1, "replicas": all, "readyReplicas": ready,
            "availableReplicas": ready, "currentReplicas": all });
        // Zeros are left out.
        let count = |status: &Value, field: &str| number_at(status, &format!("/status/{field}")).unwrap_or(0);
        let new = json!({ "status": status });
        if ["replicas", "readyReplicas"].iter().any(|field| count(&set, field) != count(&new, field)) {
            self.install("PATCH", &format!("{SETS}/{SET}/status"), new).await;
        }
    }
}

/// By the Ready condition; where the kubelet wrote none, by the state of its container.
fn is_ready(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    match conditions.into_iter().find(|one| str_at(one, "/type") == "Ready") {
        Some(_) => is_called_ready(pod),
        None => pod.pointer("/status/containerStatuses/0/ready") == Some(&Value::Bool(true)),
    }
}
