//! Every shape of request that pod-safety sends is among those that the differential suite sends to the real API
//! server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::client::Body;
use pod_safety_shared::api::{
    Attempt, DesiredPower, DeviceRef, FencePolicyStatus, FenceTrigger, Incarnation, NodeFenceSpec, NodeFenceStatus,
    Phase, Power, Sample, Trigger, Verified,
};
use pod_safety_shared::authority::{
    Authority, Claim, CompletionHandler, Effect, FenceKey, FenceStepRequest, FinishedObject, ForceDeleteRequest,
    GracefulDeleteRequest, Intent, MonitorRequest, NodeUpdate, NotReporting, Outcome, Parts, PolicyStatusUpdate,
    RemediationRequest, RemediationUpdate, Step, Target, Update, VerifierConfig, incident_name,
};
use pod_safety_shared::cache::{Cache, View, start_feeds};
use pod_safety_shared::client::Connection;
use pod_safety_shared::clock::{Env, Mono};
use pod_safety_shared::events;
use pod_safety_shared::lease::{Elector, Leadership, LeaseConfig};
use pod_safety_shared::metrics::Metrics;
use pod_safety_shared::model::{Controller, Kind, NodeKey, UNREACHABLE_TAINT, Uid};
use pod_safety_shared::record::Journal;
use pod_safety_simulator::api::{self as served, ApiServer, Etcd, Prompt, Transport};
use pod_safety_simulator::chance::Chance;
use pod_safety_simulator::differential::{Generator, Operation, Recorder, shape, watch_targets};
use serde_json::{Value, json};

/// No completion of these requests is handled.
struct Nobody;

impl CompletionHandler for Nobody {
    fn controller(&self) -> &'static str {
        "test"
    }
    fn completed(&self, _force: &ForceDeleteRequest, _outcome: &Outcome) {}
    fn update_completed(&self, _update: &Update, _outcome: &Outcome) {}
    fn redecide(&self, delete: &GracefulDeleteRequest) -> Option<GracefulDeleteRequest> {
        Some(delete.clone())
    }
    fn delete_completed(&self, _delete: &GracefulDeleteRequest, _outcome: &Outcome, _at: Mono) {}
    fn wake_at(&self, _when: Mono) {}
}

async fn send(client: &kube::Client, method: &str, path: &str, body: &Value) -> Value {
    let media = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = http::Request::builder().method(method).uri(path).header("content-type", media);
    let request = request.body(Body::from(body.to_string().into_bytes())).unwrap();
    client.request::<Value>(request.map(|_body| body.to_string().into_bytes())).await.unwrap()
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

fn lease() -> LeaseConfig {
    LeaseConfig {
        namespace: "kube-system".to_owned(),
        name: "pod-safety".to_owned(),
        identity: "us".to_owned(),
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
    }
}

/// Requests of a controller of budgets: a budget's numbers, a condition that is over, a scale.
fn keep_budgets(authority: &Authority, view: &View<'_>, owner: &Arc<dyn CompletionHandler>, set: &str) {
    let budget = view.budgets().next().unwrap();
    let mut status = budget.status.clone();
    status.observed_generation = budget.generation;
    let (key, rv) = (budget.key.clone(), budget.rv);
    let over = vec!["gone".into()];
    let update = Update::Budget { budget: key, rv, status: Box::new(status), over, transition: true };
    authority.submit(Intent::Update(update), owner);
    let pod = view.disruption_targets().next().unwrap();
    let update = Update::NotDisrupted { pod: pod.key.clone(), rv: pod.rv, generation: pod.generation };
    authority.submit(Intent::Update(update), owner);
    let controller = Controller {
        api_version: "apps/v1".into(),
        kind: "StatefulSet".into(),
        name: "s".into(),
        uid: Uid::new(set).unwrap(),
    };
    authority.submit(Intent::Scale { namespace: "default".into(), controller: Arc::new(controller) }, owner);
}

/// Requests of a controller of lost nodes: a node whose kubelet does not report, and a pod of it.
fn lose_nodes(authority: &Authority, view: &View<'_>, owner: &Arc<dyn CompletionHandler>) {
    let node = view.nodes().next().unwrap();
    let silence =
        NotReporting { last_report: node.last_report, renewed: None, heartbeat: node.heartbeat, never_posted: false };
    let update = NodeUpdate {
        node: NodeKey { name: Arc::clone(&node.name), uid: node.uid.clone() },
        rv: node.rv,
        not_reporting: Some(silence),
        unreachable: Some(true),
        add: vec![(UNREACHABLE_TAINT, Effect::NoSchedule), (UNREACHABLE_TAINT, Effect::NoExecute)],
        remove: Vec::new(),
        labels: vec![("beta.kubernetes.io/os", "linux".into())],
    };
    authority.submit(Intent::Update(Update::Node(Box::new(update))), owner);
    let pod = view.pods_on("n1").next().unwrap();
    let (rv, generation) = (pod.rv, pod.generation);
    let (pod, unreachable) = (pod.key.clone(), Some(true));
    let update = Update::PodOfLostNode { pod, rv, generation, not_ready: true, unreachable };
    authority.submit(Intent::Update(update), owner);
}

/// The objects for pod-safety's own kinds: an unreachable node, and an unreachable device.
async fn fill_ours(others: &kube::Client) -> Incarnation {
    let node = json!({ "metadata": { "name": "lost", "labels": { "rack": "7" } } });
    let node = send(others, "POST", "/api/v1/nodes", &node).await;
    let status = json!({ "nodeInfo": { "bootID": "b0000000-0000-4000-8000-000000000001" }, "conditions": [{ "type": "Ready", "status": "Unknown" }] });
    send(others, "PATCH", "/api/v1/nodes/lost/status", &json!({ "status": status })).await;
    let lease = json!({ "metadata": { "name": "lost" }, "spec": { "renewTime": "2026-01-01T00:00:00.000000Z" } });
    send(others, "POST", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", &lease).await;
    let group = "/apis/pod-safety.dev/v1alpha1";
    let device = json!({ "metadata": { "name": "bmc" }, "spec": { "driver": "Agent", "agent": "fence_dummy" } });
    send(others, "POST", &format!("{group}/namespaces/default/fencedevices"), &device).await;
    let level = json!({ "name": "bmc", "devices": [{ "namespace": "default", "name": "bmc" }] });
    let policy = json!({ "metadata": { "name": "all" }, "spec": { "levels": [level] } });
    send(others, "POST", &format!("{group}/fencepolicies"), &policy).await;
    let remediations = format!("{group}/namespaces/default/podsafetyremediations");
    send(others, "POST", &remediations, &json!({ "metadata": { "name": "lost" }, "spec": {} })).await;
    let uid = node["metadata"]["uid"].as_str().unwrap().to_owned();
    Incarnation { name: "lost".to_owned(), uid, boot_id: "b0000000-0000-4000-8000-000000000001".to_owned() }
}

/// An attempt whose device reported off.
fn looked() -> NodeFenceStatus {
    let device = DeviceRef { namespace: "default".to_owned(), name: "bmc".to_owned() };
    let sample = Sample { device: device.clone(), power: Power::Off, ..Sample::default() };
    let verified = Verified {
        power: Power::Off,
        samples: vec![sample],
        lease_renewed: Some("2026-01-01T00:00:00Z".to_owned()),
        ..Verified::default()
    };
    let attempt = Attempt {
        id: 1,
        act: DesiredPower::Off,
        devices: vec![device],
        within_seconds: 60,
        verified: Some(verified),
        ..Attempt::default()
    };
    NodeFenceStatus { phase: Phase::Fencing, attempts: vec![attempt], ..NodeFenceStatus::default() }
}

/// Requests every step of an incident, one after another, and the requests to devices and remediations.
async fn fence(authority: &Authority, cache: &Cache, owner: &Arc<dyn CompletionHandler>, node: Incarnation) {
    let trigger = FenceTrigger { kind: Trigger::Detected, reason: "silent".to_owned(), by: None, condition: None };
    let spec = NodeFenceSpec {
        node: node.clone(),
        policy: "all".to_owned(),
        trigger,
        dry_run: false,
        cancelled: false,
        keep_off: false,
    };
    let submit = async |step: Step| {
        let fencing = FenceStepRequest { node: "lost".into(), step };
        authority.submit(Intent::Fence(Box::new(fencing)), owner);
        pass(20).await;
    };
    let monitor = || {
        let guard = cache.read();
        let device = guard.view().devices().next().unwrap().uid.clone();
        let named = DeviceRef { namespace: "default".to_owned(), name: "bmc".to_owned() };
        let nodes = vec!["lost".into()];
        let request = MonitorRequest { device: named, uid: device, nodes, is_complete: true, test: None };
        authority.submit(Intent::Monitor(Box::new(request)), owner);
    };
    monitor();
    submit(Step::Open(Box::new(spec.clone()))).await;
    let target = |status: NodeFenceStatus| {
        let guard = cache.read();
        let fence = guard.view().node_fences().next().unwrap();
        let key = FenceKey { name: Arc::clone(&fence.name), uid: fence.uid.clone(), rv: fence.rv };
        Target { fence: key, spec: Box::new(spec.clone()), status: Box::new(status) }
    };
    let mut tried = looked();
    tried.attempts[0].verified = None;
    submit(Step::Attempt(target(tried.clone()))).await;
    submit(Step::Look(target(tried))).await;
    let proved = NodeFenceStatus { phase: Phase::Fenced, evidence: Some(incident_name(&node)), ..looked() };
    submit(Step::Prove(target(proved.clone()))).await;
    submit(Step::Taint(target(proved.clone()))).await;
    submit(Step::Contradict(target(proved))).await;
    review(authority, cache, owner).await;
    use RemediationUpdate::{AddFinalizer, RemoveFinalizer, WriteStatus};
    for update in [AddFinalizer, WriteStatus(Box::default()), RemoveFinalizer] {
        let guard = cache.read();
        let one = guard.view().remediations().next().unwrap();
        let request = RemediationRequest {
            namespace: Arc::clone(&one.namespace),
            name: Arc::clone(&one.name),
            uid: one.uid.clone(),
            rv: one.rv,
            node: None,
            update,
        };
        drop(guard);
        authority.submit(Intent::Remediate(Box::new(request)), owner);
        pass(2).await;
    }
}

/// Requests the status of the policy.
async fn review(authority: &Authority, cache: &Cache, owner: &Arc<dyn CompletionHandler>) {
    let review = {
        let guard = cache.read();
        let policy = guard.view().policies().next().unwrap();
        let (name, uid, status) = (Arc::clone(&policy.name), policy.uid.clone(), FencePolicyStatus::default());
        PolicyStatusUpdate { name, uid, rv: policy.rv, status }
    };
    authority.submit(Intent::Review(Box::new(review)), owner);
    pass(2).await;
}

/// Requests the deletion of what is over.
async fn forget(authority: &Authority, cache: &Cache, owner: &Arc<dyn CompletionHandler>) {
    let past = {
        let guard = cache.read();
        let (fence, node) = (guard.view().node_fences().next().unwrap().clone(), "lost".into());
        FinishedObject { kind: Kind::NodeFences, node, name: fence.name, uid: fence.uid, rv: fence.rv }
    };
    authority.submit(Intent::Update(Update::DeleteFinished(past)), owner);
    pass(2).await;
}

/// Requests an absence, and the force deletion of a pod.
async fn force(parts: Parts, uid: &str, set: &str, lost: Incarnation) {
    let cache = Arc::clone(&parts.cache);
    let authority = Authority::start(parts);
    let owner: Arc<dyn CompletionHandler> = Arc::new(Nobody);
    fence(&authority, &cache, &owner, lost).await;
    forget(&authority, &cache, &owner).await;
    authority.submit(Intent::ReadMissingNode { node: "gone".into() }, &owner);
    // The authority reads the cache, too.
    let held =
        ForceDeleteRequest::new(cache.read().view().pod(&Uid::new(uid).unwrap()).unwrap(), Claim::NeverScheduled);
    authority.submit(Intent::Force(held), &owner);
    let guard = cache.read();
    keep_budgets(&authority, &guard.view(), &owner, set);
    lose_nodes(&authority, &guard.view(), &owner);
}

/// Creates the objects: an unscheduled pod that terminates, a budget, a pod that a client was about to delete, a
/// workload. Returns the first and the last.
async fn fill(others: &kube::Client) -> (Value, Value) {
    let pods = "/api/v1/namespaces/default/pods";
    let spec = json!({ "containers": [{ "name": "c", "image": "i" }] });
    let held = json!({ "metadata": { "name": "a", "finalizers": ["example.com/hold"] }, "spec": spec });
    let held = send(others, "POST", pods, &held).await;
    send(others, "DELETE", &format!("{pods}/a"), &json!({})).await;

    let budget = json!({ "metadata": { "name": "b" }, "spec": { "minAvailable": 1, "selector": {} } });
    send(others, "POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", &budget).await;
    let pod = json!({ "metadata": { "name": "b" }, "spec": spec });
    send(others, "POST", pods, &pod).await;
    let target = json!([{ "type": "DisruptionTarget", "status": "True", "reason": "R" }]);
    send(others, "PATCH", &format!("{pods}/b/status"), &json!({ "status": { "conditions": target } })).await;
    let ready = json!([{ "type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z" }]);
    send(others, "POST", "/api/v1/nodes", &json!({ "metadata": { "name": "n1" } })).await;
    send(others, "PATCH", "/api/v1/nodes/n1/status", &json!({ "status": { "conditions": ready } })).await;
    let there = json!({ "containers": spec["containers"], "nodeName": "n1" });
    send(others, "POST", pods, &json!({ "metadata": { "name": "c" }, "spec": there })).await;
    let template = json!({ "metadata": { "labels": { "app": "x" } }, "spec": spec });
    let set = json!({ "metadata": { "name": "s" }, "spec": { "serviceName": "s", "template": template,
        "selector": { "matchLabels": { "app": "x" } } } });
    let set = send(others, "POST", "/apis/apps/v1/namespaces/default/statefulsets", &set).await;
    (held, set)
}

fn policy() -> VerifierConfig {
    let quarantine = Duration::from_secs(1);
    VerifierConfig {
        quarantine,
        trust_out_of_service_taint: false,
        agent_reports: None,
        exclusive_backends: BTreeSet::new(),
    }
}

/// Waits until everything is listed. Leases have a thread of their own, for which a paused clock does not wait:
/// milliseconds.
async fn leases_are_listed(cache: &Cache) {
    pass(5).await;
    for _ in 0..1_000 {
        if cache.read().view().lease("lost").is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
        tokio::task::yield_now().await;
    }
}

/// Runs the parts of shared that send requests, against a simulated cluster.
async fn sent() -> (BTreeSet<String>, Arc<Etcd>) {
    let env = Env::real(1);
    let etcd = Etcd::new(Chance::new(1), &served::Kind::custom_resources(), env.clock.wall());
    let server = ApiServer::start("api", &etcd, env.clone(), Arc::new(Prompt));
    let (recorder, metrics) = (Recorder::default(), Metrics::new().unwrap());
    let connection = Connection::from_service(
        Transport::new(&server, "us"),
        env.clone(),
        metrics.client.clone(),
        Arc::new(recorder.clone()),
    );

    let others = Transport::new(&server, "others").client();
    let (held, set) = fill(&others).await;
    let lost = fill_ours(&others).await;

    let cache: Arc<Cache> = Arc::default();
    start_feeds(Kind::ALL, &connection, &cache, &env, &metrics.cache);
    let leadership = Leadership::none();
    let mut elector =
        Elector::new(lease(), connection.clone(), env.clone(), metrics.lease.clone(), Arc::clone(&leadership));
    let events = events::Recorder::new(env.clone(), metrics.authority.clone());
    let writing =
        events.clone().worker_loop(connection.clone(), Arc::clone(&leadership), "pod-safety", "us".to_owned());
    env.spawner.spawn("events", Box::pin(writing));
    let (stop, mut stopped) = tokio::sync::watch::channel(false);
    let elect = async move {
        elector.run(&mut stopped).await;
        elector.resign();
        elector.release().await;
    };
    let electing = tokio::spawn(elect);
    leases_are_listed(&cache).await;

    let parts = Parts {
        connection,
        cache: Arc::clone(&cache),
        env,
        config: policy(),
        leadership,
        journal: Arc::new(Journal::default()),
        events,
        metrics: metrics.authority.clone(),
        transport: Arc::new(pod_safety_shared::transport::NoTransport),
        identity: "this-process".to_owned(),
    };
    let uid = |object: &Value| object["metadata"]["uid"].as_str().unwrap().to_owned();
    force(parts, &uid(&held), &uid(&set), lost).await;
    pass(5).await;
    stop.send(true).unwrap();
    electing.await.unwrap();
    // Watches end and are opened again.
    pass(700).await;
    (recorder.shapes(), etcd)
}

#[tokio::test(start_paused = true)]
async fn every_shape_that_our_code_sends_is_compared() {
    let (sent, etcd) = sent().await;
    let mut compared = BTreeSet::new();
    for number in 1..=1_000 {
        let mut generator = Generator::new(Chance::new(1), number);
        compared.extend(generator.operations().iter().map(Operation::shape));
    }
    for (target, _) in watch_targets("s1", &[1, 2, 3, 4, 5, 6]) {
        let (path, query) = target.split_once('?').unwrap();
        let query = format!("{query}&watch=true&timeoutSeconds=1&resourceVersion=1");
        compared.insert(shape("GET", path, Some(&query)));
    }
    let mut sent = sent;
    // The simulated server always answers no: the role that this request is about is not bound.
    assert!(sent.remove("POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews"), "nobody was polite");
    // Neither server serves this group: the real one needs a feature gate.
    sent.retain(|one| !one.contains("/apis/lifecycle.k8s.io/"));
    for one in &sent {
        println!("{} {one}", if compared.contains(one) { "compared" } else { "MISSING " });
    }
    assert!(sent.len() >= 12, "the parts of shared were not all driven: {sent:?}");
    let missing: Vec<_> = sent.difference(&compared).collect();
    assert!(missing.is_empty(), "never compared with the real server: {missing:?}");
    assert!(etcd.unimplemented().is_empty(), "{:?}", etcd.unimplemented());
    // The writes that matter most, and the requests for budgets, whichever code sends them.
    for wanted in [
        "PATCH /api/v1/namespaces/*/pods/*/status",
        "PATCH /api/v1/nodes/*/status",
        "PATCH /api/v1/nodes/*",
        "DELETE /api/v1/namespaces/*/pods/*",
        "PATCH /apis/policy/v1/namespaces/*/poddisruptionbudgets/*/status",
        "GET /apis/apps/v1",
        "POST /apis/pod-safety.dev/v1alpha1/nodefences",
        "PATCH /apis/pod-safety.dev/v1alpha1/nodefences/*/status",
        "POST /apis/pod-safety.dev/v1alpha1/fenceevidences",
        "PATCH /apis/pod-safety.dev/v1alpha1/fenceevidences/*/status",
        "PATCH /apis/pod-safety.dev/v1alpha1/namespaces/*/fencedevices/*/status",
        "PATCH /apis/pod-safety.dev/v1alpha1/fencepolicies/*/status",
        "PATCH /apis/pod-safety.dev/v1alpha1/namespaces/*/podsafetyremediations/*",
        "PATCH /apis/pod-safety.dev/v1alpha1/namespaces/*/podsafetyremediations/*/status",
        "DELETE /apis/pod-safety.dev/v1alpha1/nodefences/*",
        "GET /apis/apps/v1/namespaces/*/statefulsets/*/scale",
    ] {
        assert!(sent.contains(wanted), "{wanted} was not sent: {sent:?}");
    }
}
