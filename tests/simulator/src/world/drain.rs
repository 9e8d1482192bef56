//! People who evict: `kubectl drain`, and clients that all want the same pods.
//!
//! A drain goes as kubectl's does (`k8s.io/kubectl/pkg/drain`): cordon, list the
//! pods of the node, evict all of them beside each other; what is refused with 429
//! is tried again every five seconds, and whether it is still the same pod is
//! looked up first; what is let through is waited for.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::ask::ask;
use super::kubelet::is_mirror;
use super::run::World;
use super::{shops, word};
use crate::campaign::Fault;

/// Between two tries of an eviction, and between two looks.
const RETRY_EACH: Duration = Duration::from_secs(5);
const LOOK_EACH: Duration = Duration::from_secs(1);
/// A UID that nobody has.
const NOBODY: &str = "00000000-0000-4000-8000-000000000000";

fn path(pod: &Value) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", word(pod, "/metadata/namespace"), word(pod, "/metadata/name"))
}

/// A pod that is to go, and who says so.
struct Doomed {
    world: Arc<World>,
    caller: String,
    pod: Arc<Value>,
    /// The UID that the eviction names.
    uid: Option<String>,
}

impl Doomed {
    /// Sends the eviction; 0: no answer came.
    async fn evict(&self) -> u16 {
        let Some(server) = self.world.servers.get(0) else { return 0 };
        let mut body = json!({ "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": { "name": word(&self.pod, "/metadata/name"), "namespace": word(&self.pod, "/metadata/namespace") } });
        if let Some(uid) = &self.uid {
            body["deleteOptions"] = json!({ "preconditions": { "uid": uid } });
        }
        let path = format!("{}/eviction", path(&self.pod));
        ask(&server, &self.caller, "POST", &path, Some(body)).await.map_or(0, |(code, _)| code)
    }

    /// Whether the pod that was meant is there still; without an answer: yes.
    async fn is_there(&self) -> bool {
        let Some(server) = self.world.servers.get(0) else { return true };
        match ask(&server, &self.caller, "GET", &path(&self.pod), None).await {
            Some((404, _)) => false,
            Some((200, pod)) => word(&pod, "/metadata/uid") == word(&self.pod, "/metadata/uid"),
            _ => true,
        }
    }

    /// Until it is gone, or somebody else's.
    async fn go(self) {
        loop {
            match self.evict().await {
                201 => break,
                404 | 409 => return,
                _ => tokio::time::sleep(RETRY_EACH).await,
            }
            if !self.is_there().await {
                return;
            }
        }
        while self.is_there().await {
            tokio::time::sleep(LOOK_EACH).await;
        }
    }
}

impl World {
    pub(super) async fn people_evict(self: &Arc<Self>, fault: &Fault) {
        match fault {
            Fault::Drain { node, careful, seconds } => {
                self.drain(*node, *careful, Duration::from_secs(*seconds)).await;
            }
            Fault::EvictAtOnce { workload, clients, stale } => {
                self.evict_at_once(*workload, *clients, *stale).await;
            }
            _ => {}
        }
    }

    async fn cordon(&self, node: &str, unschedulable: bool) {
        let patch = json!({ "spec": { "unschedulable": unschedulable } });
        self.person("PATCH", &format!("/api/v1/nodes/{node}"), Some(patch)).await;
    }

    async fn drain(self: &Arc<Self>, node: usize, careful: bool, at_most: Duration) {
        let node = self.node(node);
        self.cordon(&node, true).await;
        let scaled = |world: &Self| {
            let sets = ["StatefulSet", "ReplicaSet"].into_iter().flat_map(|kind| world.etcd.objects(kind));
            sets.map(|set| set.pointer("/spec/replicas").cloned().unwrap_or_default()).collect::<Vec<_>>()
        };
        let (replicas, leader) = (scaled(self), self.checker.leader());
        // Mirror pods stay, as kubectl has it: their kubelets would make them anew.
        let goes = |pod: &Value| word(pod, "/spec/nodeName") == node && !is_mirror(pod);
        let pods = self.etcd.objects_that("Pod", goes);
        let all = futures::future::join_all(pods.into_iter().map(|pod| {
            let uid = careful.then(|| word(&pod, "/metadata/uid").to_owned());
            Doomed { world: Arc::clone(self), caller: format!("drain.{node}"), pod, uid }.go()
        }));
        let done = tokio::time::timeout(at_most, all).await.is_ok();
        self.checker.probe(if done { "a drain came to its end" } else { "a drain was given up" });
        if scaled(self) != replicas {
            self.checker.probe("a workload was scaled during a drain");
        }
        if self.checker.leader() != leader {
            self.checker.probe("the leader changed during a drain");
        }
        self.cordon(&node, false).await;
    }

    /// Each client takes the next pod; with more clients than pods some take the same.
    async fn evict_at_once(self: &Arc<Self>, workload: usize, clients: usize, stale: bool) {
        let name = shops::name(workload);
        let pods = self.etcd.objects_that("Pod", |pod| word(pod, "/metadata/labels/app") == name);
        if pods.is_empty() {
            return;
        }
        let all = pods.iter().cycle().take(clients).enumerate().map(|(index, pod)| {
            let uid = if stale { NOBODY } else { word(pod, "/metadata/uid") }.to_owned();
            let caller = format!("client-{index}");
            let doomed = Doomed { world: Arc::clone(self), caller, pod: pod.clone(), uid: Some(uid) };
            async move {
                let _code = doomed.evict().await;
            }
        });
        futures::future::join_all(all).await;
    }
}
