//! People who evict: `kubectl drain`, `pod-safety drain`, and clients that all want the same pods.
//!
//! A drain goes as kubectl's does (`k8s.io/kubectl/pkg/drain`): cordon, list the
//! pods of the node, evict all of them beside each other; what is refused with 429
//! is tried again every five seconds, and whether it is still the same pod is
//! looked up first; what is let through is waited for. A careful one evicts as
//! `pod-safety drain` does: with the code that is shipped.

use std::sync::Arc;
use std::time::Duration;

use pod_safety_shared::authority::{Eviction, NotEvicted, evict};
use pod_safety_shared::client::{Connection, NoAudit};
use pod_safety_shared::clock::Env;
use pod_safety_shared::metrics::Metrics;
use pod_safety_shared::model::{PodKey, Uid};
use serde_json::{Value, json};

use super::host::Host;
use super::kubelet::is_mirror;
use super::request::send_request;
use super::run::World;
use super::{DRAIN, shops, str_at};
use crate::api::Transport;
use crate::campaign::Fault;
use crate::checker::Invariant;

/// Between two tries of kubectl's, and between two looks.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// For how long the shipped code may try one eviction.
const TRY_FOR: Duration = Duration::from_secs(20);
/// A UID that nobody has.
const NO_CALLER: &str = "00000000-0000-4000-8000-000000000000";

fn path(pod: &Value) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", str_at(pod, "/metadata/namespace"), str_at(pod, "/metadata/name"))
}

/// Who evicts.
#[derive(Clone)]
enum Evictor {
    /// A client that names no UID, as kubectl.
    Kubectl,
    /// A client that names this one.
    WithUid(String),
    /// `pod-safety drain`.
    Shipped(Box<(Connection, Env)>),
}

/// A pod that is to go, and who says so.
struct EvictionTarget {
    world: Arc<World>,
    caller: String,
    pod: Arc<Value>,
    evictor: Evictor,
}

/// What came of one try.
enum Attempt {
    /// It ends, or it is gone, or somebody else's: wait until it is not there.
    Done,
    /// Nothing, and nothing will.
    GivenUp,
    /// Try again so much later.
    Again(Duration),
}

impl EvictionTarget {
    async fn evict(&self) -> Attempt {
        match &self.evictor {
            Evictor::Kubectl => self.post(None).await,
            Evictor::WithUid(uid) => self.post(Some(uid)).await,
            Evictor::Shipped(by) => self.evict_by_drain(&by.0, &by.1).await,
        }
    }

    async fn post(&self, uid: Option<&str>) -> Attempt {
        let Some(server) = self.world.servers.get(0) else { return Attempt::Again(RETRY_INTERVAL) };
        let mut body = json!({ "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": { "name": str_at(&self.pod, "/metadata/name"), "namespace": str_at(&self.pod, "/metadata/namespace") } });
        if let Some(uid) = uid {
            body["deleteOptions"] = json!({ "preconditions": { "uid": uid } });
        }
        let path = format!("{}/eviction", path(&self.pod));
        match send_request(&server, &self.caller, "POST", &path, Some(body)).await {
            Some((201, _)) => Attempt::Done,
            Some((404 | 409, _)) => Attempt::GivenUp,
            _ => Attempt::Again(RETRY_INTERVAL),
        }
    }

    async fn evict_by_drain(&self, connection: &Connection, env: &Env) -> Attempt {
        let Some(uid) = Uid::new(str_at(&self.pod, "/metadata/uid")) else { return Attempt::GivenUp };
        let part = |pointer| str_at(&self.pod, pointer).into();
        let pod = PodKey { namespace: part("/metadata/namespace"), name: part("/metadata/name"), uid };
        let tried = evict(connection, env, &Eviction { pod, dry_run: false }, env.now() + TRY_FOR).await;
        match tried.as_ref().map_err(NotEvicted::retry_delay) {
            Ok(_) => Attempt::Done,
            Err(Some(again)) => Attempt::Again(again),
            Err(None) => Attempt::GivenUp,
        }
    }

    /// Whether the pod that was meant is there still; without an answer: yes.
    async fn pod_exists(&self) -> bool {
        let Some(server) = self.world.servers.get(0) else { return true };
        match send_request(&server, &self.caller, "GET", &path(&self.pod), None).await {
            Some((404, _)) => false,
            Some((200, pod)) => str_at(&pod, "/metadata/uid") == str_at(&self.pod, "/metadata/uid"),
            _ => true,
        }
    }

    /// Until it is gone, or somebody else's.
    async fn go(self) {
        loop {
            match self.evict().await {
                Attempt::Done => break,
                Attempt::GivenUp => return,
                Attempt::Again(after) => tokio::time::sleep(after).await,
            }
            if !self.pod_exists().await {
                return;
            }
        }
        while self.pod_exists().await {
            tokio::time::sleep(POLL_INTERVAL).await;
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
            fault => self.request_evictions(fault).await,
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
        let goes = |pod: &Value| str_at(pod, "/spec/nodeName") == node && !is_mirror(pod);
        let pods = self.etcd.objects_that("Pod", goes);
        let caller = format!("{}{node}", if careful { DRAIN } else { "drain." });
        let Some(hand) = (if careful { self.drain_evictor(&caller) } else { Some(Evictor::Kubectl) }) else {
            return;
        };
        let all = futures::future::join_all(pods.into_iter().map(|pod| {
            EvictionTarget { world: Arc::clone(self), caller: caller.clone(), pod, evictor: hand.clone() }.go()
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

    /// The shipped way to evict.
    fn drain_evictor(&self, caller: &str) -> Option<Evictor> {
        self.shipped_connection(caller).map(|by| Evictor::Shipped(Box::new(by)))
    }

    /// The connection of a shipped command, from a machine that nothing happens to.
    pub(super) fn shipped_connection(&self, caller: &str) -> Option<(Connection, Env)> {
        let (Ok(metrics), Some(server)) = (Metrics::new(), self.servers.get(0)) else {
            self.checker.violated(Invariant::Simulator, "nothing to connect with");
            return None;
        };
        let env = Host::start(caller, self.chance.part(caller, 0), &self.checker).env();
        let door = Transport::new(&server, caller);
        Some((Connection::from_service(door, env.clone(), metrics.client, Arc::new(NoAudit)), env))
    }

    /// Each client takes the next pod; with more clients than pods some take the same.
    async fn evict_at_once(self: &Arc<Self>, workload: usize, clients: usize, stale: bool) {
        let name = shops::name(workload);
        let pods = self.etcd.objects_that("Pod", |pod| str_at(pod, "/metadata/labels/app") == name);
        if pods.is_empty() {
            return;
        }
        let all = pods.iter().cycle().take(clients).enumerate().map(|(index, pod)| {
            let uid = if stale { NO_CALLER } else { str_at(pod, "/metadata/uid") }.to_owned();
            let caller = format!("client-{index}");
            let doomed =
                EvictionTarget { world: Arc::clone(self), caller, pod: pod.clone(), evictor: Evictor::WithUid(uid) };
            async move {
                let _once = doomed.evict().await;
            }
        });
        futures::future::join_all(all).await;
    }
}
