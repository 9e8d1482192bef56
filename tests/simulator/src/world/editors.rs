//! Changes by people during a fault: tenants change their pods, operators the fencing of a node.

use std::time::Duration;

use pod_safety_shared::api::PAUSE_ANNOTATION;
use serde_json::{Value, json};

use super::run::World;
use super::{str_at, value_at};
use crate::campaign::Edit;

const PODS: &str = "/api/v1/namespaces/default/pods";
const POLICIES: &str = "/apis/pod-safety.dev/v1alpha1/fencepolicies";
/// The finalizer by which a tenant keeps its pod.
const FINALIZER: &str = "tenant.example/keep";
/// How often a tenant reports.
const REPORT_INTERVAL: u64 = 7;
/// The backoff of a request that no API server answered.
const RETRY_INTERVAL: u64 = 5;
/// A held step goes on within this many seconds after the last gate opens: the longest backoff.
const GOES_ON_WITHIN: u64 = 60;

impl World {
    /// A tenant changes one of its pods.
    pub(super) async fn edit_pod(&self, pod: usize, how: Edit) {
        let path = format!("/api/v1/namespaces/default/pods/data-{pod}");
        let finalizers = |change: Value| Some(json!({ "metadata": { "finalizers": change } }));
        match how {
            Edit::Image => {
                let image = format!("hollow:{}", self.checker.now().as_secs());
                let containers = json!([{ "op": "replace", "path": "/spec/containers/0/image", "value": image }]);
                self.person("PATCH", &path, Some(containers)).await;
            }
            Edit::Finalizer(seconds) => {
                self.person("PATCH", &path, finalizers(json!([FINALIZER]))).await;
                self.wait(seconds).await;
                self.retry("PATCH", &path, finalizers(Value::Null)).await;
            }
            Edit::ShortGrace => {
                let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 1 });
                self.person("DELETE", &path, Some(options)).await;
            }
            Edit::Report => self.report_in_place_of_a_kubelet(&path).await,
        }
    }

    /// A tenant who may write the status of its pods.
    async fn report_in_place_of_a_kubelet(&self, path: &str) {
        let path = format!("{path}/status");
        for status in ["False", "True"].into_iter().cycle() {
            let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": status }] } });
            let code = self.prepare("PATCH", &path, Some(ready)).await;
            self.checker.probe(if code == 403 { "a tenant's report was refused" } else { "a tenant reported" });
            self.wait(REPORT_INTERVAL).await;
        }
    }

    /// A tenant has a pod on this node at all times, and deletes it when it runs; it ignores SIGTERM.
    pub(super) async fn linger(&self, node: usize) {
        let (name, host) = (format!("linger-{node}"), self.node(node));
        let path = format!("{PODS}/{name}");
        loop {
            match self.etcd.object("Pod", &format!("default/{name}")) {
                None if self.etcd.object("Node", &host).is_some() => {
                    let pod = json!({ "apiVersion": "v1", "kind": "Pod",
                        "metadata": { "name": name, "namespace": "default" },
                        "spec": { "nodeName": host, "terminationGracePeriodSeconds": 2_000_000_000,
                            "tolerations": [{ "operator": "Exists" }],
                            "containers": [{ "name": "main", "image": "hollow" }] } });
                    self.prepare("POST", PODS, Some(pod)).await;
                }
                Some(pod) if value_at(&pod, "/metadata/deletionTimestamp").is_none() && self.runs(&pod) => {
                    self.prepare("DELETE", &path, None).await;
                }
                _ => {}
            }
            self.wait(1).await;
        }
    }

    fn runs(&self, pod: &Value) -> bool {
        let uid = str_at(pod, "/metadata/uid");
        self.checker.processes().iter().any(|process| process.uid == uid)
    }

    /// A person pauses fencing of a node for `seconds`.
    pub(super) async fn pause_fencing(&self, node: usize, seconds: u64) {
        let path = format!("/api/v1/nodes/{}", self.node(node));
        let annotate = |reason: Value| Some(json!({ "metadata": { "annotations": { PAUSE_ANNOTATION: reason } } }));
        self.grant_delay(node, seconds);
        self.person("PATCH", &path, annotate("rack b moves".into())).await;
        self.wait(seconds).await;
        self.retry("PATCH", &path, annotate(Value::Null)).await;
    }

    /// A person deletes the policy of a node, and creates it again.
    pub(super) async fn remove_policy(&self, node: usize, seconds: u64) {
        let name = self.node(node);
        let Some(policy) = self.etcd.object("FencePolicy", &name) else { return };
        self.grant_delay(node, seconds);
        self.person("DELETE", &format!("{POLICIES}/{name}"), None).await;
        self.wait(seconds).await;
        let again = json!({ "apiVersion": "pod-safety.dev/v1alpha1", "kind": "FencePolicy",
            "metadata": { "name": name }, "spec": policy["spec"] });
        self.retry("POST", POLICIES, Some(again)).await;
    }

    /// Sends a request until an API server answers.
    async fn retry(&self, method: &str, path: &str, body: Option<Value>) {
        while self.prepare(method, path, body.clone()).await == 0 {
            self.wait(RETRY_INTERVAL).await;
        }
    }

    /// Makes the checker accept that steps of fencing are late meanwhile.
    fn grant_delay(&self, node: usize, seconds: u64) {
        let until = self.checker.now() + Duration::from_secs(seconds + GOES_ON_WITHIN);
        self.checker.device_fails(&self.node(node), until);
    }
}
