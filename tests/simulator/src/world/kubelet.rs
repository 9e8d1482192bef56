//! A hollow kubelet: it registers its Node, renews its Lease, starts and stops the processes of its pods, and reports.
//!
//! It reads pods from the watch cache of its API server, however old that is (`LIST` with `resourceVersion=0`, then a
//! watch), and reads nothing while it is cut off. Processes belong to the machine: they outlive their kubelet, and the
//! next kubelet finds them.

mod mirror;
mod mounts;
mod report;
mod sidecar;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pod_safety_shared::clock::Env;
use serde_json::{Value, json};

use super::devices::address_of;
use super::host::Host;
use super::machines::number_of;
use super::request::{Answer, send_request};
use super::run::World;
use super::shops::{is_called_ready, readiness, start_up};
use super::{number_at, str_at};
use crate::campaign::Ailment;
use crate::chance::Chance;
use crate::checker::Tone;
pub(super) use mirror::is_mirror;
use report::Posted;
pub(super) use sidecar::with_sidecar;
use worker::ContainerState;
pub(super) use worker::with_second;

/// How often a kubelet renews its Lease: a quarter of the Lease duration of 40 s.
const RENEW_INTERVAL: Duration = Duration::from_secs(10);
/// How often it checks its pods.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long after its end a process counts as ended while the runtime hangs.
const UNSEEN_AFTER: Duration = Duration::from_secs(10);

/// One kubelet, from its start to its end.
pub(crate) struct Kubelet {
    world: Arc<World>,
    node: Arc<str>,
    boot: u32,
    server: usize,
    env: Env,
    chance: Chance,
    /// Its pods by UID, as it last received them; `None`: it has received none yet.
    pods: Mutex<Option<BTreeMap<String, Arc<Value>>>>,
    /// The pods that have a worker.
    workers: Mutex<BTreeMap<String, ()>>,
    /// The volumes that its Node lists in `volumesInUse`, once it does.
    reported: Mutex<Option<Vec<String>>>,
    /// The UID of its Node, as its informer has it.
    owner: Mutex<Option<String>>,
}

impl Kubelet {
    pub(crate) fn start(world: &Arc<World>, node: &Arc<str>, boot: u32, server: usize, host: &Arc<Host>) {
        let kubelet = Arc::new(Self {
            world: Arc::clone(world),
            node: Arc::clone(node),
            boot,
            server,
            env: host.env(),
            chance: world.chance.part(node, u64::from(boot)),
            pods: Mutex::default(),
            workers: Mutex::default(),
            reported: Mutex::default(),
            owner: Mutex::default(),
        });
        let env = host.env();
        env.spawner.spawn("heartbeat", Box::pin(Arc::clone(&kubelet).run_heartbeat()));
        if world.with.static_pods {
            env.spawner.spawn("mirror", Box::pin(Arc::clone(&kubelet).keep_mirror()));
        }
        env.spawner.spawn("pods", Box::pin(kubelet.sync_pods()));
    }

    async fn request(&self, method: &str, path: &str, body: Option<Value>) -> Option<Answer> {
        let server = self.world.servers.get(self.server)?;
        send_request(&server, &self.node, method, path, body).await
    }

    /// Registers, then renews the Lease in a loop.
    async fn run_heartbeat(self: Arc<Self>) {
        while !self.register().await {
            self.env.sleep(Duration::from_secs(2)).await;
        }
        let mut posted = Posted::default();
        loop {
            if self.renews_a_lease() {
                self.renew().await;
            }
            self.post(&mut posted).await;
            if self.world.with.attached_volumes {
                self.report_volumes().await;
            }
            self.env.sleep(RENEW_INTERVAL).await;
        }
    }

    /// Adds an address where the world needs one.
    fn addressed(&self, mut node: Value) -> Value {
        if self.world.with.fencing.is_some_and(|fencing| fencing.corroborated)
            && let Some(number) = number_of(&self.node)
        {
            let internal = json!({ "type": "InternalIP", "address": address_of(number) });
            node["status"]["addresses"] = json!([internal]);
        }
        node
    }

    fn of_provider(&self, node: Value) -> Value {
        match number_of(&self.node) {
            Some(number) => self.world.of_provider(node, number),
            None => node,
        }
    }

    async fn register(&self) -> bool {
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": &*self.node, "labels": self.labels() },
            "status": {
                "volumesInUse": self.volumes(),
                "conditions": self.conditions(),
                "nodeInfo": {
                    "bootID": self.boot_id(), "architecture": "amd64", "containerRuntimeVersion": "hollow",
                    "kernelVersion": "6", "kubeProxyVersion": "v1.37.2", "kubeletVersion": "v1.37.2", "machineID": &*self.node,
                    "operatingSystem": "linux", "osImage": "hollow", "systemUUID": &*self.node,
                },
            },
        });
        let node = self.addressed(self.of_provider(node));
        if let Some(lacks) = self.lacks() {
            self.world.checker.probe(&format!("a kubelet lacks {lacks:?}"));
        }
        match self.request("POST", "/api/v1/nodes", Some(node)).await {
            Some((201, _)) => self.world.checker.announce(Tone::Other, format!("{} registers", self.node)),
            Some((409, _)) => {}
            _ => return false,
        }
        true
    }

    /// A kubelet whose Node is gone renews its Lease while that exists, and creates no new one: `SetNodeOwnerFunc` of
    /// 1.36 requests the Node first, which is the owner. Nor does it register again before it is restarted.
    async fn renew(&self) {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{}", self.node);
        for _ in 0..3 {
            let renewed = json!({ "spec": { "renewTime": format!("{:.6}", self.env.clock.wall()), "holderIdentity": &*self.node } });
            match self.request("PATCH", &path, Some(renewed.clone())).await {
                Some((200, _)) => return,
                Some((404, _)) => {
                    let node = match self.request("GET", &format!("/api/v1/nodes/{}", self.node), None).await {
                        Some((200, node)) => node,
                        Some((404, _)) => {
                            return self.world.checker.probe("a kubelet could make no Lease: its Node is gone");
                        }
                        _ => return,
                    };
                    let mut lease = json!({
                        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                        "metadata": { "name": &*self.node, "namespace": "kube-node-lease", "ownerReferences": [{
                            "apiVersion": "v1", "kind": "Node", "name": &*self.node, "uid": str_at(&node, "/metadata/uid") }] },
                    });
                    lease["spec"] = renewed["spec"].clone();
                    lease["spec"]["leaseDurationSeconds"] = 40.into();
                    let collection = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
                    if let Some((201, _)) = self.request("POST", collection, Some(lease)).await {
                        return;
                    }
                }
                _ => {}
            }
            self.env.sleep(Duration::from_secs(1)).await;
        }
    }

    /// Reads the watch cache of its API server.
    fn listen(&self) {
        let Some(server) = self.world.servers.get(self.server) else { return };
        if self.world.links.is_cut(&self.node, server.name()) {
            return;
        }
        let first = self.pods.lock().is_none();
        // Its watch hangs half open; its first request, a list, does not.
        if !first && self.world.lasts(&self.node, |machine| machine.deaf_until) {
            return;
        }
        // docs/assumptions.md: watches-once-registered
        if first && self.observe_node().is_none() {
            return self.world.checker.probe("a kubelet began without its Node");
        }
        if first && server.applied() < self.world.etcd.revision() {
            self.world.checker.probe("a kubelet began with the past");
        }
        let mine = server.cached_that("Pod", |pod| str_at(pod, "/spec/nodeName") == &*self.node).into_iter();
        *self.pods.lock() = Some(mine.map(|pod| (str_at(&pod, "/metadata/uid").to_owned(), pod)).collect());
    }

    async fn sync_pods(self: Arc<Self>) {
        loop {
            self.listen();
            let own = |(uid, pod): (&String, &Arc<Value>)| (!is_mirror(pod)).then(|| uid.clone());
            let cached = self.pods.lock().as_ref().map(|pods| pods.iter().filter_map(own).collect::<Vec<_>>());
            // Before it has received its pods it cannot tell which processes have no pod.
            if let Some(mut uids) = cached {
                uids.extend(self.world.checker.processes_on(&self.node).into_iter().map(|(_, process)| process.uid));
                for uid in uids {
                    if !self.workers.lock().contains_key(&uid) {
                        self.workers.lock().insert(uid.clone(), ());
                        self.env.spawner.spawn("pod", Box::pin(Arc::clone(&self).run_pod_worker(uid)));
                    }
                }
            }
            self.env.sleep(POLL_INTERVAL).await;
        }
    }

    fn pod(&self, uid: &str) -> Option<Arc<Value>> {
        self.pods.lock().as_ref()?.get(uid).cloned()
    }

    fn process(&self, uid: &str) -> Option<u64> {
        self.world.checker.process_of(&self.node, uid, self.boot)
    }

    /// The terminal state of the pod's containers: the runtime keeps it on its disk.
    fn ended_as(&self, uid: &str) -> Option<&'static str> {
        self.world.ended.lock().get(uid).copied()
    }

    fn draw_number(&self, uid: &str, purpose: &str, bound: u64) -> u64 {
        self.chance.below(bound, uid, purpose, 0)
    }

    /// Manages one pod until it is gone.
    async fn run_pod_worker(self: Arc<Self>, uid: String) {
        let began = self.env.now();
        let mut reported = false;
        let mut image: Option<String> = None;
        loop {
            let (pod, process) = (self.pod(&uid), self.process(&uid));
            let ending =
                pod.as_ref().is_none_or(|pod| pod.pointer("/metadata/deletionTimestamp").is_some() || is_ended(pod));
            let ailment = self.world.ailment_of(&self.node);
            match (pod, process) {
                (None, None) => break,
                // `syncLoop` skips pods while the runtime does not answer.
                (_, process) if ailment == Some(Ailment::Runtime) => {
                    if ending && process.is_some() {
                        self.world.checker.probe("a sick node did not end a pod");
                    }
                }
                (Some(_), None) if ailment.is_some() && !ending && self.ended_as(&uid).is_none() => {
                    self.world.checker.probe("a sick node did not start a pod");
                }
                (pod, Some(process)) if ending => self.stop(&uid, pod.as_deref(), process).await,
                (Some(pod), None) if pod.pointer("/metadata/deletionTimestamp").is_some() => {
                    self.finish(&uid, &pod).await
                }
                (Some(pod), None) if self.ended_as(&uid).is_some() => {
                    if !is_reported(&pod) {
                        self.report_end(&pod).await;
                    }
                }
                (Some(pod), None) if !is_ended(&pod) => {
                    self.begin(&uid, &pod).await;
                    continue;
                }
                (Some(pod), Some(process)) => {
                    if self.restarts_containers(&uid, &pod, &mut image).await {
                        reported = false;
                        continue;
                    }
                    let done = str_at(&pod, "/spec/restartPolicy") == "Never"
                        && self.env.now().since(began) > Duration::from_secs(10 + self.draw_number(&uid, "job", 30));
                    if done || self.world.evicted.lock().remove(&uid) {
                        self.world.checker.process_ends(process, if done { "it is done" } else { "evicted" });
                        self.world.ended.lock().insert(uid.clone(), if done { "Succeeded" } else { "Failed" });
                    } else if !reported {
                        reported = self.report(&pod, "Running", true).await;
                    } else {
                        self.report_readiness(&pod).await;
                    }
                }
                (_, None) | (None, Some(_)) => {}
            }
            self.env.sleep(POLL_INTERVAL).await;
        }
        self.workers.lock().remove(&uid);
        self.with_cgroups(|cgroups| cgroups.remove(&uid));
    }

    fn with_cgroups(&self, change: impl FnOnce(&mut BTreeSet<String>) -> bool) {
        if let Some(node) = number_of(&self.node) {
            self.world.with_machine(node, |machine| {
                let _was_there = change(&mut machine.cgroups);
            });
        }
    }

    /// Starts its process, if the pod still needs it when image and volumes are there.
    async fn begin(&self, uid: &str, pod: &Value) {
        self.with_cgroups(|cgroups| cgroups.insert(uid.to_owned()));
        self.env.sleep(Duration::from_millis(200 + self.draw_number(uid, "start", 2_000))).await;
        let mounted = self.is_mounted(pod).await;
        let is_needed =
            self.pod(uid).is_some_and(|pod| pod.pointer("/metadata/deletionTimestamp").is_none() && !is_ended(&pod));
        let well = self.world.ailment_of(&self.node).is_none();
        if mounted && is_needed && well && self.process(uid).is_none() {
            let identity = format!("{}/{}", str_at(pod, "/metadata/namespace"), str_at(pod, "/metadata/name"));
            self.report_starting(pod).await;
            self.world.checker.process_starts(&identity, uid, &self.node, self.boot);
            self.start_second(pod).await;
        }
    }

    /// SIGTERM, and SIGKILL when the grace period is over by this machine's own clock.
    async fn stop(&self, uid: &str, pod: Option<&Value>, process: u64) {
        if let Some(pod) = pod {
            self.acknowledge(pod).await;
        }
        let grace = pod.and_then(|pod| {
            number_at(pod, "/metadata/deletionGracePeriodSeconds")
                .or_else(|| number_at(pod, "/spec/terminationGracePeriodSeconds"))
        });
        let grace = u64::try_from(grace.unwrap_or(30)).unwrap_or(0);
        let message = format!("{} sends SIGTERM to {uid:.8}", self.node);
        match pod.map(|pod| str_at(pod, "/metadata/name")) {
            Some(name) => {
                self.world.checker.announce_with_detail(
                    Tone::Other,
                    message,
                    format!("the kubelet of {} stops {name}", self.node),
                );
            }
            None => self.world.checker.note(message),
        }
        self.env.sleep(Duration::from_secs(self.draw_number(uid, "end", grace + 1))).await;
        if let Some(pod) = pod {
            self.outlive(uid, pod, grace).await;
        }
        if self.hangs() {
            self.outlasts(uid, process).await;
        }
        self.world.checker.process_ends(process, "its kubelet stopped it");
        self.world.ended.lock().entry(uid.to_owned()).or_insert("Succeeded");
        if let Some(pod) = self.pod(uid) {
            self.finish(uid, &pod).await;
        }
    }

    fn hangs(&self) -> bool {
        self.world.lasts(&self.node, |machine| machine.stuck_until)
            || self.world.ailment_of(&self.node) == Some(Ailment::Runtime)
    }

    /// Returns when the process does not end, or its runtime does not report the end.
    async fn outlasts(&self, uid: &str, process: u64) {
        let (hangs, unseen) = (self.env.now(), self.world.has_agents() && self.draw_number(uid, "ends unseen", 2) > 0);
        while self.hangs() {
            self.env.sleep(POLL_INTERVAL).await;
            if unseen && self.env.now().since(hangs) > UNSEEN_AFTER && self.process(uid) == Some(process) {
                self.world.checker.probe("a process ended, and its kubelet could not say so");
                self.world.checker.process_ends(process, "it ended, and its runtime does not say so");
            }
        }
        self.world.checker.probe("a process outlived its SIGKILL");
    }

    /// Reports that it has seen the deletion, before its process has ended (`status_manager.go`, KEP-5067). Before 1.34
    /// it does not.
    async fn acknowledge(&self, pod: &Value) {
        let Some(observed) = self.observed(pod).filter(|_| !is_ended(pod)) else { return };
        if number_at(pod, "/status/observedGeneration").is_none_or(|known| known < observed) {
            let patch = json!({ "metadata": { "uid": str_at(pod, "/metadata/uid") },
                "status": { "observedGeneration": observed } });
            if let Some((200, _)) = self.request("PATCH", &format!("{}/status", path(pod)), Some(patch)).await {
                self.world.checker.probe("a kubelet said that it has seen a deletion");
            }
        }
    }

    /// The generation that it has seen, if this kubelet is new enough to report it: three of four are.
    fn observed(&self, pod: &Value) -> Option<i64> {
        let says = self.draw_number(&self.node, "says what it has seen", 4) > 0;
        number_at(pod, "/metadata/generation").filter(|_| says)
    }

    /// Reports that the process has ended, and completes the deletion.
    async fn finish(&self, uid: &str, pod: &Value) {
        if !is_reported(pod) && !self.report_end(pod).await {
            return;
        }
        if pod.pointer("/metadata/deletionTimestamp").is_some() {
            let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": { "uid": uid } });
            let done = self.request("DELETE", &path(pod), Some(options)).await;
            if done.is_some_and(|(code, _)| code == 200) {
                self.world.checker.probe("kubelet completed a deletion");
            }
        }
    }

    /// A terminal phase that another client wrote stays; the end of the containers is reported even then.
    async fn report_end(&self, pod: &Value) -> bool {
        let ended = self.ended_as(str_at(pod, "/metadata/uid")).unwrap_or("Succeeded");
        let phase = if is_ended(pod) { str_at(pod, "/status/phase") } else { ended };
        self.report(pod, phase, false).await
    }

    async fn report(&self, pod: &Value, phase: &str, running: bool) -> bool {
        let now = format!("{:.0}", self.env.clock.wall());
        let state = if running {
            json!({ "running": { "startedAt": now }, "terminated": null })
        } else {
            json!({ "terminated": { "exitCode": 0, "finishedAt": now }, "running": null })
        };
        let mut patch = json!({
            "metadata": { "uid": str_at(pod, "/metadata/uid") },
            "status": { "phase": phase, "observedGeneration": self.observed(pod), "startTime": now, "containerStatuses": [{
                "name": "main", "image": "hollow", "imageID": "hollow", "ready": running, "restartCount": 0, "state": state }] },
        });
        if worker::has_second(pod) {
            let state = if running { ContainerState::Running } else { ContainerState::Terminated };
            patch["status"]["containerStatuses"] = worker::statuses(state, state, &now);
        }
        if let Some(statuses) = sidecar::statuses(pod, running, &now) {
            patch["status"]["initContainerStatuses"] = statuses;
        }
        if !running && self.reports_readiness(pod) {
            patch["status"]["conditions"] = json!([readiness(false, &now)]);
        }
        matches!(
            self.request("PATCH", &format!("{}/status", path(pod)), Some(patch)).await,
            Some((200 | 404 | 409 | 422, _))
        )
    }

    /// Probes a process that can be ready, and reports changes.
    async fn report_readiness(&self, pod: &Value) {
        if !self.reports_readiness(pod) {
            return;
        }
        // It reads changes of its pods' status by other clients only now and then.
        let rereads = self.env.now().since_start().as_secs().is_multiple_of(RENEW_INTERVAL.as_secs());
        if start_up(pod).is_none() && !rereads {
            return;
        }
        let ready = start_up(pod).is_none() || self.world.checker.is_ready(str_at(pod, "/metadata/uid"));
        if ready != is_called_ready(pod) {
            let now = format!("{:.0}", self.env.clock.wall());
            let patch = json!({ "metadata": { "uid": str_at(pod, "/metadata/uid") },
                "status": { "conditions": [readiness(ready, &now)] } });
            self.request("PATCH", &format!("{}/status", path(pod)), Some(patch)).await;
        }
    }
}

fn is_ended(pod: &Value) -> bool {
    matches!(str_at(pod, "/status/phase"), "Failed" | "Succeeded")
}

/// Whether the API shows that the pod ended, and its container too.
fn is_reported(pod: &Value) -> bool {
    let main_ended = pod.pointer("/status/containerStatuses/0/state/terminated").is_some();
    is_ended(pod) && main_ended && !sidecar::is_shown_running(pod)
}

fn path(pod: &Value) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", str_at(pod, "/metadata/namespace"), str_at(pod, "/metadata/name"))
}
