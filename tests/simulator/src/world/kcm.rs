//! The baseline: the rules of kube-controller-manager 1.37's PodGC, with their gaps, read from
//! `pkg/controller/podgc/gc_controller.go`. The checker must find violations of the baseline.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::host::Host;
use super::request::send_request;
use super::run::World;
use super::str_at;

/// Its name as a caller.
pub(super) const CALLER: &str = "kcm";
/// `gcCheckPeriod`.
const CHECK_INTERVAL: Duration = Duration::from_secs(20);
/// `quarantineTime`.
const QUARANTINE: Duration = Duration::from_secs(40);

/// Sends a request of kube-controller-manager; code 0: no answer came.
pub(super) async fn request_as_kcm(world: &World, method: &str, path: &str, body: Option<Value>) -> u16 {
    request_as(world, CALLER, method, path, body).await
}

/// Sends a request of a part of it that runs beside others.
pub(super) async fn request_as(world: &World, caller: &str, method: &str, path: &str, body: Option<Value>) -> u16 {
    let Some(server) = world.servers.get(0) else { return 0 };
    send_request(&server, caller, method, path, body).await.map_or(0, |(code, _)| code)
}

/// PodGC with its informer, which is the watch cache of its API server.
pub(crate) struct PodGc {
    world: Arc<World>,
    threshold: usize,
    /// Nodes that the informer misses, and since when.
    quarantined: BTreeMap<String, Duration>,
}

impl PodGc {
    pub(crate) fn start(world: &Arc<World>, host: &Arc<Host>, threshold: usize) {
        let mut collector = Self { world: Arc::clone(world), threshold, quarantined: BTreeMap::new() };
        let env = host.env();
        host.start_task("kcm", async move {
            loop {
                collector.gc().await;
                env.sleep(CHECK_INTERVAL).await;
            }
        });
    }

    async fn request(&self, method: &str, path: &str, body: Option<Value>) -> u16 {
        request_as_kcm(&self.world, method, path, body).await
    }

    async fn gc(&mut self) {
        let Some(server) = self.world.servers.get(0) else { return };
        let (pods, nodes) = (server.cached("Pod"), server.cached("Node"));
        let ended = |pod: &&Value| matches!(str_at(pod, "/status/phase"), "Failed" | "Succeeded");
        let mut terminated: Vec<&Value> = pods.iter().map(Arc::as_ref).filter(ended).collect();
        terminated.sort_by_key(|pod| str_at(pod, "/metadata/creationTimestamp").to_owned());
        let many = terminated.len().saturating_sub(self.threshold);
        for pod in terminated.into_iter().take(many) {
            self.delete(pod).await;
        }
        let exists = |name: &str| nodes.iter().any(|node| str_at(node, "/metadata/name") == name);
        let now = self.world.checker.now();
        for pod in &pods {
            let node = str_at(pod, "/spec/nodeName");
            if !node.is_empty() && !exists(node) {
                self.quarantined.entry(node.to_owned()).or_insert(now);
            }
        }
        self.quarantined.retain(|name, _| !exists(name));
        let due = self.quarantined.iter().filter(|(_, since)| now.saturating_sub(**since) >= QUARANTINE);
        let due: Vec<String> = due.map(|(name, _)| name.clone()).collect();
        for name in due {
            self.quarantined.remove(&name);
            if self.request("GET", &format!("/api/v1/nodes/{name}"), None).await != 404 {
                continue;
            }
            for pod in pods.iter().filter(|pod| str_at(pod, "/spec/nodeName") == name) {
                self.delete(pod).await;
            }
        }
        for pod in &pods {
            if str_at(pod, "/spec/nodeName").is_empty() && pod.pointer("/metadata/deletionTimestamp").is_some() {
                self.delete(pod).await;
            }
        }
    }

    /// `markFailedAndDeletePodWithCondition`: the patch names the UID, the deletion
    /// only the name.
    async fn delete(&self, pod: &Value) {
        let uid = str_at(pod, "/metadata/uid");
        let path =
            format!("/api/v1/namespaces/{}/pods/{}", str_at(pod, "/metadata/namespace"), str_at(pod, "/metadata/name"));
        for target in [format!("{path}/status"), path.clone()] {
            self.world.checker.intends(CALLER, &target, uid);
        }
        if !matches!(str_at(pod, "/status/phase"), "Failed" | "Succeeded") {
            let patch = json!({ "metadata": { "uid": uid }, "status": { "phase": "Failed" } });
            if self.request("PATCH", &format!("{path}/status"), Some(patch)).await != 200 {
                return;
            }
        }
        let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0 });
        self.request("DELETE", &path, Some(options)).await;
    }
}
