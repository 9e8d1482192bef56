//! Hollow workload controllers: a StatefulSet controller that recreates by name,
//! a scheduler, and the collector of what belonged to Nodes that are gone.
//!
//! They read the truth and write through the API: their own staleness is not what
//! is under test.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::fencing::HOSTNAME;
use super::guarded::{CLAIMS, claim, claims, volumes_of};
use super::host::Host;
use super::request::send_request;
use super::run::World;
use super::str_at;

/// How old a heartbeat may be for its node to get pods.
const READY: Duration = Duration::from_secs(40);
/// How often a pod is made that ends by itself.
const JOB_INTERVAL: u64 = 40;

/// The workload controllers of a world.
pub(crate) struct Workloads {
    world: Arc<World>,
    pods: usize,
    /// How long a Lease outlives its Node.
    collected_after: Duration,
    /// The last renewal of each Lease, and when it was seen.
    heartbeats: BTreeMap<String, (String, Duration)>,
    /// What is owned by a Node that is gone, and since when.
    ownerless: BTreeMap<String, Duration>,
    scheduled: u64,
    jobs: u64,
}

impl Workloads {
    pub(crate) fn start(world: &Arc<World>, host: &Arc<Host>, pods: usize, collected_after: Duration) {
        let (beats, ownerless) = (BTreeMap::new(), BTreeMap::new());
        let workloads = Self {
            world: Arc::clone(world),
            pods,
            collected_after,
            heartbeats: beats,
            ownerless,
            scheduled: 0,
            jobs: 0,
        };
        let env = host.env();
        host.start_task("workloads", async move {
            let mut workloads = workloads;
            loop {
                workloads.reconcile().await;
                env.sleep(Duration::from_secs(1)).await;
            }
        });
    }

    async fn request(&self, method: &str, path: &str, body: Option<Value>) -> u16 {
        let Some(server) = self.world.servers.get(0) else { return 0 };
        send_request(&server, "workloads", method, path, body).await.map_or(0, |(code, _)| code)
    }

    async fn reconcile(&mut self) {
        let now = self.world.checker.now();
        self.recreate().await;
        if !self.world.with.no_other_pods {
            self.create_others(now).await;
        }
        self.schedule(now).await;
        self.collect(now).await;
        if self.world.with.furnished {
            self.world.count_members().await;
        }
    }

    /// A pod that ends by itself now and then, and one that no scheduler takes.
    async fn create_others(&mut self, now: Duration) {
        if now.as_secs() / JOB_INTERVAL > self.jobs && now.as_secs() < 200 {
            self.jobs += 1;
            let name = format!("job-{}", self.jobs);
            self.create(&name, "Never", &[]).await;
        }
        if self.jobs == 0 && self.world.etcd.object("Pod", "default/stray").is_none() && now.as_secs() == 10 {
            self.create("stray", "Never", &["example.com/hook"]).await;
            self.request("DELETE", "/api/v1/namespaces/default/pods/stray", None).await;
        }
    }

    async fn create(&self, name: &str, restart: &str, finalizers: &[&str]) {
        let grace = 5 + self.world.chance.below(26, name, "grace", 0);
        let scheduler = if finalizers.is_empty() { "default-scheduler" } else { "nobody" };
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": "default", "finalizers": finalizers },
            "spec": { "restartPolicy": restart, "terminationGracePeriodSeconds": grace, "schedulerName": scheduler,
                "tolerations": self.world.tolerations(name),
                "containers": [{ "name": "main", "image": "hollow" }] },
        });
        if self.world.with.slow_start.is_some() && name.starts_with("data-") {
            pod["spec"]["containers"] = super::kubelet::with_second();
        }
        if self.world.with.sidecars && name.starts_with("data-") {
            pod["spec"]["initContainers"] = super::kubelet::with_sidecar();
        }
        // Nodes are fenced for the sake of these.
        if self.world.with.fencing.is_some() && name.starts_with("data-") {
            super::initial_objects::own(&mut pod, "data");
        }
        if self.world.with.guarded_volumes.is_some() && name.starts_with("data-") {
            let volumes = self.world.member_volumes(name);
            pod["spec"]["volumes"] = claims(&volumes);
            // Of its templates; and no pod is made while a claim of it is deleted.
            for name in &volumes {
                match self.world.etcd.object("PersistentVolumeClaim", &format!("default/{name}")) {
                    None => drop(self.request("POST", CLAIMS, Some(claim(name, self.world.one_pod()))).await),
                    Some(claim) if claim.pointer("/metadata/deletionTimestamp").is_some() => return,
                    Some(_) => {}
                }
            }
        }
        if self.world.with.furnished && name.starts_with("data-") {
            self.world.make_member(&mut pod);
        }
        self.world.name_responders(&mut pod);
        self.request("POST", "/api/v1/namespaces/default/pods", Some(pod)).await;
    }

    /// The pod of a name is made when there is none; one that ended is deleted, by
    /// name as upstream does.
    async fn recreate(&self) {
        for ordinal in 0..self.pods {
            let name = format!("data-{ordinal}");
            match self.world.etcd.object("Pod", &format!("default/{name}")) {
                None => self.create(&name, "Always", &[]).await,
                Some(pod) if matches!(str_at(&pod, "/status/phase"), "Failed" | "Succeeded") => {
                    self.request("DELETE", &format!("/api/v1/namespaces/default/pods/{name}"), None).await;
                }
                Some(_) => {}
            }
        }
    }

    /// Binds what waits to a node whose heartbeat is fresh.
    async fn schedule(&mut self, now: Duration) {
        let nodes = self.world.etcd.objects("Node");
        super::kcm_nodes::note_heartbeats(&mut self.heartbeats, &self.world.etcd.objects("Lease"), &nodes, now);
        let ready = |node: &&Arc<Value>| {
            let beat = self.heartbeats.get(str_at(node, "/metadata/name"));
            // Node lifecycle would lift the taint of registration; here the heartbeat speaks for itself.
            let taints = node.pointer("/spec/taints").and_then(Value::as_array).into_iter().flatten();
            let avoided = taints.map(|taint| str_at(taint, "/key")).any(|key| key != "node.kubernetes.io/not-ready");
            let cordoned = node.pointer("/spec/unschedulable") == Some(&Value::Bool(true));
            // For it stands the taint `not-ready:NoSchedule`.
            let sick = super::kcm_nodes::ready(node) == "False";
            beat.is_some_and(|(_, at)| now.saturating_sub(*at) < READY) && !avoided && !cordoned && !sick
        };
        let names: Vec<String> =
            nodes.iter().filter(ready).map(|node| str_at(node, "/metadata/name").to_owned()).collect();
        let waits = |pod: &Value| {
            str_at(pod, "/spec/nodeName").is_empty()
                && str_at(pod, "/spec/schedulerName") == "default-scheduler"
                && pod.pointer("/spec/schedulingGates/0").is_none()
        };
        for pod in self.world.etcd.objects_that("Pod", waits) {
            let pin = pod.pointer("/spec/nodeSelector").and_then(|labels| labels.get(HOSTNAME)?.as_str());
            let names: Vec<&String> = names.iter().filter(|name| pin.is_none_or(|pin| pin == name.as_str())).collect();
            if names.is_empty() || pod.pointer("/metadata/deletionTimestamp").is_some() {
                continue;
            }
            if volumes_of(&pod).iter().any(|volume| !self.may_be_bound(volume)) {
                continue;
            }
            self.scheduled += 1;
            let at = self.world.chance.below(names.len() as u64, "scheduler", "node", self.scheduled);
            let Some(node) = usize::try_from(at).ok().and_then(|at| names.get(at)) else { continue };
            let name = str_at(&pod, "/metadata/name");
            let binding = json!({
                "apiVersion": "v1", "kind": "Binding", "metadata": { "name": name, "uid": str_at(&pod, "/metadata/uid") },
                "target": { "apiVersion": "v1", "kind": "Node", "name": node },
            });
            self.request("POST", &format!("/api/v1/namespaces/default/pods/{name}/binding"), Some(binding)).await;
        }
    }

    /// Whether its claim lets a pod be bound: it can be used, and nobody else has what is for one pod alone.
    fn may_be_bound(&self, volume: &str) -> bool {
        let has_it = |pod: &Value| {
            volumes_of(pod).iter().any(|one| one == volume)
                && !str_at(pod, "/spec/nodeName").is_empty()
                && !matches!(str_at(pod, "/status/phase"), "Failed" | "Succeeded")
        };
        let taken = self.world.one_pod() && !self.world.etcd.objects_that("Pod", has_it).is_empty();
        !taken && self.world.may_start_with(volume)
    }

    /// Deletes what is owned by a Node that is gone, as the garbage collector does:
    /// Leases, and mirror pods.
    async fn collect(&mut self, now: Duration) {
        let nodes = self.world.etcd.objects("Node");
        let of_a_node = |object: &Value| str_at(object, "/metadata/ownerReferences/0/kind") == "Node";
        let leases = self.world.etcd.objects_that("Lease", of_a_node);
        let pods = self.world.etcd.objects_that("Pod", of_a_node);
        for owned in leases.iter().chain(&pods) {
            let (name, owner) =
                (str_at(owned, "/metadata/name").to_owned(), str_at(owned, "/metadata/ownerReferences/0/uid"));
            if owner.is_empty() || nodes.iter().any(|node| str_at(node, "/metadata/uid") == owner) {
                self.ownerless.remove(&name);
                continue;
            }
            let since = *self.ownerless.entry(name.clone()).or_insert(now);
            if now.saturating_sub(since) >= self.collected_after {
                self.ownerless.remove(&name);
                let path = if str_at(owned, "/kind") == "Pod" {
                    format!("/api/v1/namespaces/default/pods/{name}")
                } else {
                    self.world.checker.note(format!("the Lease of {name} is collected"));
                    format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}")
                };
                let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": { "uid": str_at(owned, "/metadata/uid") } });
                self.request("DELETE", &path, Some(options)).await;
            }
        }
    }
}
