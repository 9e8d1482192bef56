//! Who uses the Eviction API: clients that request evictions and withdraw them, the responders of applications, and
//! kube-controller-manager's garbage collector, as far as it concerns Evictions.
//!
//! They read the truth and write through the API, as the other peers do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pod_safety_shared::model::LOST_NODE_RESPONDER;
use serde_json::{Value, json};

use super::host::{Host, stamp};
use super::request::send_request;
use super::run::World;
use super::{number_at, str_at};
use crate::campaign::{Behavior, Evictions, Fault, Withdrawal};
use crate::checker::Tone;

/// Where both kinds are.
pub(crate) const LIFECYCLE: &str = "/apis/lifecycle.k8s.io/v1alpha1/namespaces/default";

/// The responders of the application, with their priorities.
const FIRST: (&str, i64) = ("example.com/first", 10_000);
const SECOND: (&str, i64) = ("example.com/second", 5_000);
const LOST_NODE_PRIORITY: i64 = 20_000;

/// How often a responder that works reports.
const HEARTBEAT_EACH: Duration = Duration::from_secs(25);
/// Between two attempts of a responder to evict its pod.
const EVICT_EACH: Duration = Duration::from_secs(5);
/// The garbage collector deletes an Eviction so long after its last owner.
const COLLECTED_AFTER: Duration = Duration::from_secs(2);
/// A client deletes a request so long after it was final.
const KEPT_FOR: Duration = Duration::from_secs(20);
/// A client that withdraws waits so long until the request says `Failed`.
const WITHDRAWS_FOR: u64 = 30;
/// A UID that no pod has.
const STALE: &str = "00000000-0000-4000-8000-000000000000";

fn is_true(object: &Value, kind: &str) -> bool {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    conditions.into_iter().any(|one| str_at(one, "/type") == kind && str_at(one, "/status") == "True")
}

fn named<'a>(object: &'a Value, list: &str, name: &str) -> Option<&'a Value> {
    let all = object.pointer(&format!("/status/{list}")).and_then(Value::as_array)?;
    all.iter().find(|one| str_at(one, "/name") == name)
}

/// What a responder does about one Eviction.
#[derive(Clone, Debug, Default)]
struct Work {
    /// When it saw that it is its turn.
    since: Duration,
    /// For how long it works.
    lasts: Duration,
    heartbeat: Option<Duration>,
    attempt: Option<Duration>,
}

/// The responders of a world, and its garbage collector.
pub(super) struct Responders {
    world: Arc<World>,
    skew: i64,
    all: Vec<(&'static str, Behavior)>,
    /// By UID of the Eviction and responder.
    work: BTreeMap<(String, &'static str), Work>,
    /// Evictions without an owner, and requests that are final, by UID: since when.
    since: BTreeMap<String, Duration>,
}

/// What a responder writes.
enum Report<'a> {
    Heartbeat(&'a str),
    Complete(&'a str),
}

impl Responders {
    /// Starts them, if the world has the Eviction API.
    pub(super) fn start(world: &Arc<World>, host: &Arc<Host>) {
        let Some(Evictions { first, second, skew, .. }) = world.with.evictions else { return };
        let all = [Some((FIRST.0, first)), second.map(|second| (SECOND.0, second))];
        let mut responders = Self {
            world: Arc::clone(world),
            skew,
            all: all.into_iter().flatten().collect(),
            work: BTreeMap::new(),
            since: BTreeMap::new(),
        };
        let env = host.env();
        host.start_task("responders", async move {
            loop {
                if responders.world.etcd.serves_evictions() {
                    responders.respond().await;
                    responders.collect().await;
                }
                env.sleep(Duration::from_secs(1)).await;
            }
        });
    }

    async fn send(&self, caller: &str, method: &str, path: &str, body: Option<Value>) -> u16 {
        let Some(server) = self.world.servers.get(0) else { return 0 };
        send_request(&server, caller, method, path, body).await.map_or(0, |(code, _)| code)
    }

    /// Each responder whose turn it is does the next step of its work.
    async fn respond(&mut self) {
        for eviction in self.world.etcd.objects("Eviction") {
            for (name, behavior) in self.all.clone() {
                let active =
                    named(&eviction, "targetResponders", name).is_some_and(|one| str_at(one, "/state") == "Active");
                let completed =
                    named(&eviction, "responders", name).is_some_and(|one| one.get("completionTime").is_some());
                if active && !completed {
                    self.step(&eviction, name, behavior).await;
                }
            }
        }
    }

    fn work(&mut self, eviction: &Value, name: &'static str) -> Work {
        let now = self.world.checker.now();
        let uid = str_at(eviction, "/metadata/uid").to_owned();
        let chance = self.world.chance;
        let lasts = || Duration::from_secs(8 + chance.below(30, name, &uid, 0));
        let work = Work { since: now, lasts: lasts(), ..Work::default() };
        self.work.entry((uid, name)).or_insert(work).clone()
    }

    async fn step(&mut self, eviction: &Value, name: &'static str, behavior: Behavior) {
        let now = self.world.checker.now();
        let work = self.work(eviction, name);
        let worked = now.saturating_sub(work.since);
        let pod = self.pod(eviction);
        match (behavior, &pod) {
            (Behavior::Stalls, _) => {}
            (_, None) => self.report(eviction, name, Report::Complete("the pod is gone")).await,
            (Behavior::Declines, _) => {
                self.report(eviction, name, Report::Complete("nothing to move")).await;
            }
            (Behavior::Lies, _) => {
                self.world.checker.probe("a responder reported a pod gone that was there");
                self.report(eviction, name, Report::Complete("the pod is gone")).await;
            }
            // It is away after its first report.
            (Behavior::Crashes, _) if work.heartbeat.is_some() && worked < work.lasts * 2 => {}
            (Behavior::Crashes, _) if work.heartbeat.is_none() => {
                self.heartbeat(eviction, name, "begins", now).await;
            }
            (Behavior::HandsOver | Behavior::Crashes, _) if worked >= work.lasts => {
                self.report(eviction, name, Report::Complete("its data is moved")).await;
            }
            (Behavior::Moves, Some(pod)) if worked >= work.lasts => {
                self.evict(eviction, name, pod, &work, now).await;
            }
            _ if work.heartbeat.is_none_or(|at| now.saturating_sub(at) >= HEARTBEAT_EACH) => {
                self.heartbeat(eviction, name, "moves its data", now).await;
            }
            _ => {}
        }
    }

    /// The pod of an Eviction, if it is there.
    fn pod(&self, eviction: &Value) -> Option<Arc<Value>> {
        let [name, uid] = ["name", "uid"].map(|field| str_at(eviction, &format!("/spec/target/pod/{field}")));
        let pod = self.world.etcd.object("Pod", &format!("default/{name}"))?;
        (str_at(&pod, "/metadata/uid") == uid).then_some(pod)
    }

    /// It evicts the pod itself when its data is moved, and reports until that is gone.
    async fn evict(&mut self, eviction: &Value, name: &'static str, pod: &Value, work: &Work, now: Duration) {
        let terminates = pod.pointer("/metadata/deletionTimestamp").is_some();
        let due = work.attempt.is_none_or(|at| now.saturating_sub(at) >= EVICT_EACH);
        if !terminates && due {
            let pod_name = str_at(pod, "/metadata/name");
            let body = json!({ "apiVersion": "policy/v1", "kind": "Eviction",
                "metadata": { "name": pod_name, "namespace": "default" },
                "deleteOptions": { "preconditions": { "uid": str_at(pod, "/metadata/uid") } } });
            let path = format!("/api/v1/namespaces/default/pods/{pod_name}/eviction");
            if self.send(name, "POST", &path, Some(body)).await == 201 {
                self.world.checker.probe("a responder evicted its pod");
            }
            self.change(eviction, name, |work| work.attempt = Some(now));
        } else if work.heartbeat.is_none_or(|at| now.saturating_sub(at) >= HEARTBEAT_EACH) {
            self.heartbeat(eviction, name, "waits for the end of the pod", now).await;
        }
    }

    fn change(&mut self, eviction: &Value, name: &'static str, change: impl FnOnce(&mut Work)) {
        let key = (str_at(eviction, "/metadata/uid").to_owned(), name);
        if let Some(work) = self.work.get_mut(&key) {
            change(work);
        }
    }

    async fn heartbeat(&mut self, eviction: &Value, name: &'static str, message: &str, now: Duration) {
        self.report(eviction, name, Report::Heartbeat(message)).await;
        self.change(eviction, name, |work| work.heartbeat = Some(now));
    }

    /// Writes the responder's own entry, by its own clock, which never goes back behind what it wrote.
    async fn report(&self, eviction: &Value, name: &str, report: Report<'_>) {
        let now = i64::try_from(self.world.checker.now().as_secs()).unwrap_or(0) + self.skew;
        let own = stamp(Duration::from_secs(u64::try_from(now).unwrap_or(0)));
        let known = named(eviction, "responders", name).cloned().unwrap_or_default();
        let floor = ["/startTime", "/heartbeatTime"].map(|field| str_at(&known, field).to_owned());
        // Times of one format compare as text.
        let at = floor.into_iter().chain([own]).max().unwrap_or_default();
        let entry = match report {
            Report::Heartbeat(message) => json!({ "name": name, "heartbeatTime": at, "message": message }),
            Report::Complete(message) => json!({ "name": name, "completionTime": at, "message": message }),
        };
        let meta = |key: &str| str_at(eviction, &format!("/metadata/{key}"));
        let body = json!({ "metadata": { "uid": meta("uid"), "resourceVersion": meta("resourceVersion") },
            "status": { "responders": [entry] } });
        let path = format!("{LIFECYCLE}/evictions/{}/status", meta("name"));
        let code = self.send(name, "PATCH", &path, Some(body)).await;
        if matches!((code, &report), (200, Report::Complete(_))) {
            self.world.checker.probe("a responder of an application completed");
        }
    }

    /// An Eviction goes after its last owner. Half of the clients delete their requests when they are final.
    async fn collect(&mut self) {
        let now = self.world.checker.now();
        let requests = self.world.etcd.objects("EvictionRequest");
        let owned = |eviction: &Value| {
            let owners = eviction.pointer("/metadata/ownerReferences").and_then(Value::as_array);
            let is_there = |uid: &str| requests.iter().any(|request| str_at(request, "/metadata/uid") == uid);
            owners.is_none_or(|owners| owners.iter().any(|owner| is_there(str_at(owner, "/uid"))))
        };
        let evictions = self.world.etcd.objects("Eviction");
        let ownerless = evictions.iter().filter(|eviction| !owned(eviction));
        let chance = self.world.chance;
        let deletes = |request: &&Arc<Value>| {
            let uid = str_at(request, "/metadata/uid");
            is_true(request, "TargetEvicted") && chance.below(2, "client", uid, 0) == 0
        };
        let requests = requests.iter().filter(deletes);
        let doomed: Vec<(Arc<Value>, &str, Duration)> = ownerless
            .map(|eviction| (Arc::clone(eviction), "evictions", COLLECTED_AFTER))
            .chain(requests.map(|request| (Arc::clone(request), "evictionrequests", KEPT_FOR)))
            .collect();
        self.since.retain(|uid, _| doomed.iter().any(|(one, ..)| str_at(one, "/metadata/uid") == uid));
        for (object, plural, after) in doomed {
            let uid = str_at(&object, "/metadata/uid").to_owned();
            let since = *self.since.entry(uid.clone()).or_insert(now);
            if now.saturating_sub(since) >= after {
                let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions",
                    "preconditions": { "uid": uid } });
                let path = format!("{LIFECYCLE}/{plural}/{}", str_at(&object, "/metadata/name"));
                self.send("collector", "DELETE", &path, Some(options)).await;
            }
        }
    }
}

impl World {
    /// A pod of the world names its responders when it is created: those of workloads with a budget do not name the first, so
    /// that the evictor has its turn soon. Every other pod that ends by itself belongs to a gang.
    pub(super) fn name_responders(&self, pod: &mut Value) {
        let Some(Evictions { second, lost_node, .. }) = self.with.evictions else { return };
        let name = str_at(pod, "/metadata/name").to_owned();
        if let Some(number) = name.strip_prefix("job-").and_then(|number| number.parse::<u64>().ok()) {
            if number % 2 == 1 {
                pod["spec"]["schedulingGroup"] = json!({ "podGroupName": "gang" });
            }
            return;
        }
        let named = |(name, priority): (&str, i64)| json!({ "name": name, "priority": priority });
        let responders = [
            lost_node.then(|| named((LOST_NODE_RESPONDER, LOST_NODE_PRIORITY))),
            name.starts_with("data-").then(|| named(FIRST)),
            second.map(|_| named(SECOND)),
        ];
        pod["spec"]["evictionResponders"] = responders.into_iter().flatten().collect();
    }

    /// What clients do with requests.
    pub(super) async fn request_evictions(self: &Arc<Self>, fault: &Fault) {
        match fault {
            Fault::RequestEviction { pod, requester, stale } => {
                self.request_eviction(*pod, *requester, *stale).await;
            }
            Fault::WithdrawRequest { requester, how } => self.withdraw(*requester, *how).await,
            Fault::SwitchGateOff { seconds } => {
                self.switch_gate(false);
                self.wait(*seconds).await;
                self.switch_gate(true);
            }
            _ => {}
        }
    }

    /// The API servers are restarted with the feature gate, or without it.
    pub(super) fn switch_gate(self: &Arc<Self>, on: bool) {
        if self.with.evictions.is_none() || self.etcd.serves_evictions() == on {
            return;
        }
        self.etcd.switch_evictions(on);
        let how = if on { "on" } else { "off" };
        self.checker.announce(Tone::Other, format!("the feature gate of the Eviction API is {how}"));
        for server in 0..self.servers.all().len() {
            self.restart_server(server);
        }
        self.checker.gate_switched(on);
    }

    /// Of `data-N` by its number, or beyond these of any other pod.
    fn target(&self, pod: usize) -> Option<Arc<Value>> {
        if pod < self.members {
            return self.etcd.object("Pod", &format!("default/data-{pod}"));
        }
        let others = self.etcd.objects_that("Pod", |pod| {
            let name = str_at(pod, "/metadata/name");
            str_at(pod, "/metadata/namespace") == "default" && !name.starts_with("data-")
        });
        others.get((pod - self.members) % others.len().max(1)).cloned()
    }

    async fn request_eviction(&self, pod: usize, requester: usize, stale: bool) {
        let Some(pod) = self.target(pod).filter(|_| self.with.evictions.is_some()) else { return };
        let (name, uid) = (str_at(&pod, "/metadata/name"), str_at(&pod, "/metadata/uid"));
        let uid = if stale { STALE } else { uid };
        if pod.pointer("/metadata/deletionTimestamp").is_some() {
            self.checker.probe("the eviction of a terminating pod was requested");
        }
        let request = format!("client-{requester}-{name}-{uid:.8}");
        let body = json!({ "apiVersion": "lifecycle.k8s.io/v1alpha1", "kind": "EvictionRequest",
            "metadata": { "name": request, "namespace": "default" },
            "spec": { "requester": format!("example.com/client-{requester}"), "intent": "Eviction",
                "target": { "pod": { "name": name, "uid": uid } } } });
        let code = self.prepare("POST", &format!("{LIFECYCLE}/evictionrequests"), Some(body)).await;
        if code == 409 {
            self.intend(&request, "Eviction").await;
        }
        self.checker.note(format!("client-{requester} requests the eviction of {name} ({uid:.8}): {code}"));
        self.requested.lock().insert(requester, request);
    }

    async fn intend(&self, request: &str, intent: &str) -> u16 {
        let patch = json!({ "spec": { "intent": intent } });
        self.prepare("PATCH", &format!("{LIFECYCLE}/evictionrequests/{request}"), Some(patch)).await
    }

    async fn withdraw(&self, requester: usize, how: Withdrawal) {
        let Some(request) = self.requested.lock().get(&requester).cloned() else { return };
        let path = format!("{LIFECYCLE}/evictionrequests/{request}");
        if how != Withdrawal::Delete {
            let code = self.intend(&request, "Withdrawn").await;
            self.checker.note(format!("client-{requester} withdraws {request}: {code}"));
        }
        let before = self.etcd.object("EvictionRequest", &format!("default/{request}"));
        match how {
            Withdrawal::Again => {
                self.wait(self.chance.below(7, "client", "again", number_of(before.as_deref()))).await;
                self.intend(&request, "Eviction").await;
                return;
            }
            Withdrawal::Properly => {
                for _ in 0..WITHDRAWS_FOR {
                    let request = self.etcd.object("EvictionRequest", &format!("default/{request}"));
                    if request.is_none_or(|request| is_true(&request, "Failed")) {
                        break;
                    }
                    self.wait(1).await;
                }
            }
            Withdrawal::Delete => {}
        }
        let code = self.prepare("DELETE", &path, None).await;
        self.checker.note(format!("client-{requester} deletes {request}: {code}"));
    }

    /// Until when a responder that never reports keeps its turn; `None`: none does.
    pub(super) fn turns_end_by(&self) -> Option<Duration> {
        let evictions = self.with.evictions?;
        let stalls = [Some(evictions.first), evictions.second].contains(&Some(Behavior::Stalls));
        let open = |eviction: &&Arc<Value>| !is_true(eviction, "Failed") && !is_true(eviction, "TargetEvicted");
        let all = self.etcd.objects("Eviction");
        let mut open = all.iter().filter(open);
        (stalls && open.next().is_some()).then(|| self.checker.now() + STALLS_FOR)
    }
}

/// 20 minutes, and what a process may be late.
const STALLS_FOR: Duration = Duration::from_secs(1_260);

fn number_of(object: Option<&Value>) -> u64 {
    let generation = object.and_then(|object| number_at(object, "/metadata/generation")).unwrap_or(0);
    u64::try_from(generation).unwrap_or(0)
}
