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

use super::ask::ask;
use super::host::Host;
use super::kubelet::is_mirror;
use super::run::World;
use super::{DRAIN, shops, word};
use crate::api::Door;
use crate::campaign::Fault;
use crate::checker::Invariant;

/// Between two tries of kubectl's, and between two looks.
const RETRY_EACH: Duration = Duration::from_secs(5);
const LOOK_EACH: Duration = Duration::from_secs(1);
/// For how long the shipped code may try one eviction.
const TRY_FOR: Duration = Duration::from_secs(20);
/// A UID that nobody has.
const NOBODY: &str = "00000000-0000-4000-8000-000000000000";

fn path(pod: &Value) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", word(pod, "/metadata/namespace"), word(pod, "/metadata/name"))
}

/// Who evicts.
#[derive(Clone)]
enum Hand {
    /// A client that names no UID, as kubectl.
    Kubectl,
    /// A client that names this one.
    Named(String),
    /// `pod-safety drain`.
    Shipped(Box<(Connection, Env)>),
}

/// A pod that is to go, and who says so.
struct Doomed {
    world: Arc<World>,
    caller: String,
    pod: Arc<Value>,
    hand: Hand,
}

/// What came of one try.
enum Tried {
    /// It ends, or it is gone, or somebody else's: wait until it is not there.
    Done,
    /// Nothing, and nothing will.
    GivenUp,
    /// Try again so much later.
    Again(Duration),
}

impl Doomed {
    async fn evict(&self) -> Tried {
        match &self.hand {
            Hand::Kubectl => self.post(None).await,
            Hand::Named(uid) => self.post(Some(uid)).await,
            Hand::Shipped(by) => self.as_shipped(&by.0, &by.1).await,
        }
    }

    async fn post(&self, uid: Option<&str>) -> Tried {
        let Some(server) = self.world.servers.get(0) else { return Tried::Again(RETRY_EACH) };
        let mut body = json!({ "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": { "name": word(&self.pod, "/metadata/name"), "namespace": word(&self.pod, "/metadata/namespace") } });
        if let Some(uid) = uid {
            body["deleteOptions"] = json!({ "preconditions": { "uid": uid } });
        }
        let path = format!("{}/eviction", path(&self.pod));
        match ask(&server, &self.caller, "POST", &path, Some(body)).await {
            Some((201, _)) => Tried::Done,
            Some((404 | 409, _)) => Tried::GivenUp,
            _ => Tried::Again(RETRY_EACH),
        }
    }

    async fn as_shipped(&self, connection: &Connection, env: &Env) -> Tried {
        let Some(uid) = Uid::new(word(&self.pod, "/metadata/uid")) else { return Tried::GivenUp };
        let part = |pointer| word(&self.pod, pointer).into();
        let pod = PodKey { namespace: part("/metadata/namespace"), name: part("/metadata/name"), uid };
        let tried = evict(connection, env, &Eviction { pod, dry_run: false }, env.now() + TRY_FOR).await;
        match tried.as_ref().map_err(NotEvicted::retry_delay) {
            Ok(_) => Tried::Done,
            Err(Some(again)) => Tried::Again(again),
            Err(None) => Tried::GivenUp,
        }
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
                Tried::Done => break,
                Tried::GivenUp => return,
                Tried::Again(after) => tokio::time::sleep(after).await,
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
        let caller = format!("{}{node}", if careful { DRAIN } else { "drain." });
        let Some(hand) = (if careful { self.shipped_hand(&caller) } else { Some(Hand::Kubectl) }) else {
            return;
        };
        let all = futures::future::join_all(pods.into_iter().map(|pod| {
            Doomed { world: Arc::clone(self), caller: caller.clone(), pod, hand: hand.clone() }.go()
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
    fn shipped_hand(&self, caller: &str) -> Option<Hand> {
        self.shipped_connection(caller).map(|by| Hand::Shipped(Box::new(by)))
    }

    /// The connection of a shipped command, from a machine that nothing happens to.
    pub(super) fn shipped_connection(&self, caller: &str) -> Option<(Connection, Env)> {
        let (Ok(metrics), Some(server)) = (Metrics::new(), self.servers.get(0)) else {
            self.checker.violated(Invariant::Simulator, "nothing to connect with");
            return None;
        };
        let env = Host::start(caller, self.chance.part(caller, 0), &self.checker).env();
        let door = Door::new(&server, caller);
        Some((Connection::from_service(door, env.clone(), metrics.client, Arc::new(NoAudit)), env))
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
            let doomed = Doomed { world: Arc::clone(self), caller, pod: pod.clone(), hand: Hand::Named(uid) };
            async move {
                let _once = doomed.evict().await;
            }
        });
        futures::future::join_all(all).await;
    }
}
