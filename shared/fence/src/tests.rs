//! The steps, against a scripted API server and scripted devices.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use pod_safety_cache::testing::World;
use pod_safety_cache::testing::objects::{lease, node};
use pod_safety_leader::lease::Leadership;
use pod_safety_leader::metrics::Metrics;
use serde_json::{Value, json};

mod corroborate;
mod drain;
mod instances;
mod limits;
mod objects;
mod order_effect;
mod selection;
mod status_check;
mod steps;
mod taint;

use super::*;
use crate::api::{
    Attempt, DeviceRef, FenceTrigger, Incarnation, NodeFenceSpec, NodeFenceStatus, Phase, Trigger, Verified,
};
use crate::client::Connection;
use crate::client::scripted::{Answer as ApiAnswer, Api, Received, advance, env};
use crate::clock::Env;
use crate::events::Recorder;
use crate::model::{Kind, OUT_OF_SERVICE_TAINT, Uid};
use crate::outcome::Outcome;
use crate::send::WriteContext;
use crate::transport::{Act, Answer, DeviceError, Driver, FenceTransport, Identity, Order, Power};

const BOOT: &str = "b0000000-0000-4000-8000-000000000001";
const NEXT_BOOT: &str = "b0000000-0000-4000-8000-000000000002";

/// What a device answers to the n-th order.
type Script = Box<dyn Fn(Act, usize) -> Option<Result<Answer, DeviceError>> + Send + Sync>;

/// Devices that record the orders. `None`: no answer, ever.
struct Devices {
    script: Script,
    orders: Mutex<Vec<Order>>,
    /// The addresses at which something answers; `None`: no packet leaves this host.
    open: Mutex<Option<Vec<&'static str>>>,
    log: Arc<Mutex<Vec<String>>>,
}

impl FenceTransport for Devices {
    fn check<'a>(
        &'a self,
        _driver: &'a Driver,
        _parameters: &'a BTreeMap<String, crate::transport::Value>,
    ) -> BoxFuture<'a, Result<(), DeviceError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn carry_out(&self, order: Order) -> BoxFuture<'_, Result<Answer, DeviceError>> {
        let (act, number) = (order.act, self.orders.lock().len());
        self.log.lock().push(format!("device {}", act.name()));
        self.orders.lock().push(order);
        match (self.script)(act, number) {
            Some(answer) => Box::pin(async move {
                // What an answer reports is no older than the time until the device was asked.
                tokio::time::sleep(answer.as_ref().map_or(Duration::ZERO, |answer| answer.asked_after)).await;
                answer
            }),
            None => Box::pin(std::future::pending()),
        }
    }

    fn probe_tcp(&self, address: SocketAddr, _within: Duration) -> BoxFuture<'_, Result<bool, DeviceError>> {
        let open = self.open.lock().as_ref().map(|open| open.contains(&&*address.to_string()));
        let unknown = || DeviceError::Unreachable { said: "permission denied".to_owned() };
        Box::pin(std::future::ready(open.ok_or_else(unknown)))
    }
}

fn answer_with(power: Power) -> Option<Result<Answer, DeviceError>> {
    Some(Ok(Answer::new(power, Identity::Match, "done".to_owned())))
}

#[derive(Clone)]
struct Fixture {
    node: Value,
    /// The second in which the Lease was renewed, at the n-th read.
    renewed: Arc<dyn Fn(usize) -> u8 + Send + Sync>,
    secret: Option<Value>,
    proof: Option<Value>,
    /// The device, if it is another one.
    device: Option<Value>,
    /// Answers that take precedence.
    first: First,
}

type First = Arc<dyn Fn(&Received) -> Option<ApiAnswer> + Send + Sync>;

fn machine() -> Value {
    let node = node("n").boot(BOOT).set("/status/nodeInfo/systemUUID", json!("uuid-1"));
    node.labels(json!({ "rack": "7" })).0
}

impl Default for Fixture {
    fn default() -> Self {
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": secret_metadata("bmc"),
            "data": { "password": "aHVudGVyMg==" } });
        Self {
            node: machine(),
            renewed: Arc::new(|_| 7),
            secret: Some(secret),
            proof: None,
            device: None,
            first: Arc::new(|_| None),
        }
    }
}

fn device() -> Value {
    json!({
        "metadata": { "name": "bmc", "namespace": "fencing", "uid": "uid-bmc", "resourceVersion": "3", "generation": 2 },
        "spec": {
            "driver": "Agent", "agent": "fence_ipmilan",
            "nodeSelector": { "matchLabels": { "rack": "7" } },
            "parameters": { "ip": "{{.Node.Name}}.bmc" },
            "allowedHosts": ["*.bmc"],
            "secretParameters": [{ "parameter": "password", "secret": "bmc", "key": "password" }],
        },
    })
}

struct Harness {
    env: Env,
    api: Api,
    world: World,
    leadership: Arc<Leadership>,
    devices: Devices,
    events: Recorder,
    /// Write requests and orders to devices, in one order.
    log: Arc<Mutex<Vec<String>>>,
}

fn answer(fixture: &Fixture, request: &Received, leases: &Mutex<usize>) -> ApiAnswer {
    let last = request.path.rsplit('/').next().unwrap_or_default();
    let collection = request.path.contains("/kube-node-lease/leases/");
    if let Some(answer) = (fixture.first)(request) {
        return answer;
    }
    match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/api/v1/nodes/n") => ApiAnswer::json(&fixture.node),
        ("GET", _) if collection => {
            let mut count = leases.lock();
            *count += 1;
            ApiAnswer::json(&lease("n", (fixture.renewed)(*count - 1)).0)
        }
        ("GET", path) if path.contains("/fencedevices/") && last == "bmc" => {
            let mut device = device();
            if let Some(spec) = &fixture.device {
                device["spec"] = spec["spec"].clone();
                device["status"] = spec["status"].clone();
            }
            ApiAnswer::json(&device)
        }
        ("GET", path) if path.contains("/secrets/") => {
            fixture.secret.as_ref().map_or_else(ApiAnswer::not_found, ApiAnswer::json)
        }
        ("GET", path) if path.contains("/fenceevidences/") => {
            fixture.proof.as_ref().map_or_else(ApiAnswer::not_found, ApiAnswer::json)
        }
        ("GET", _) => ApiAnswer::not_found(),
        ("POST", _) => ApiAnswer::with_code(201, &json!({ "metadata": { "resourceVersion": "1" } })),
        ("PATCH", _) => {
            let rv = request.json()["metadata"]["resourceVersion"].as_str().and_then(|rv| rv.parse::<u64>().ok());
            ApiAnswer::json(&json!({ "metadata": { "resourceVersion": (rv.unwrap_or(0) + 1).to_string() } }))
        }
        _ => ApiAnswer::not_found(),
    }
}

fn harness(
    fixture: Fixture,
    script: impl Fn(Act, usize) -> Option<Result<Answer, DeviceError>> + Send + Sync + 'static,
) -> Harness {
    let (env, _wall) = env();
    let log = Arc::new(Mutex::new(Vec::new()));
    let (lines, leases) = (Arc::clone(&log), Arc::new(Mutex::new(0)));
    let api = Api::answering(&env, move |request| {
        // Reviews of permissions change nothing.
        if request.method != "GET" && !request.path.ends_with("selfsubjectaccessreviews") {
            lines.lock().push(request.line());
        }
        answer(&fixture, request, &leases)
    });
    let world = World::listed();
    world.apply(Kind::NodeLeases, &lease("n", 7).0, env.now());
    let (orders, open) = (Mutex::default(), Mutex::new(Some(Vec::new())));
    let devices = Devices { script: Box::new(script), orders, open, log: Arc::clone(&log) };
    let events = Recorder::new(env.clone(), Metrics::new().unwrap().authority);
    Harness { env, api, world, leadership: Leadership::always(), devices, events, log }
}

impl Harness {
    fn step_context<'a>(&'a self, connection: &'a Connection) -> StepContext<'a> {
        let (cache, env, leadership) = (self.world.cache(), &self.env, &self.leadership);
        let writer = WriteContext { connection, cache, env, leadership };
        StepContext::new(writer, &self.devices, "this-process", &self.events)
    }

    async fn run_step(&self, step: Step) -> Outcome {
        let connection = self.api.connection();
        execute_step(&self.step_context(&connection), &FenceStepRequest { node: "n".into(), step }).await
    }

    /// Executes the step, which must have this outcome.
    async fn assert_outcome(&self, step: Step, how: &str) {
        assert_eq!(self.run_step(step).await.name(), how);
    }

    /// No write and no order was sent.
    fn assert_no_requests(&self) {
        assert_eq!(self.log(), [""; 0]);
    }

    /// The samples of the first attempt, as they were written.
    fn verified(&self) -> Value {
        self.written("nodefences")["status"]["attempts"][0]["verified"].clone()
    }

    async fn run_monitor(&self, monitor_request: &MonitorRequest) -> Outcome {
        let connection = self.api.connection();
        monitor(&self.step_context(&connection), monitor_request).await
    }

    /// The recorded Events about devices: the device's UID, and the reason.
    async fn events(&self) -> Vec<(String, String)> {
        let write = self.events.clone().worker_loop(
            self.api.connection(),
            Arc::clone(&self.leadership),
            "pod-safety",
            "this-process".to_owned(),
        );
        let _until = tokio::time::timeout(Duration::from_secs(1), write).await;
        let events = self.api.requests().into_iter().filter(|request| request.path.ends_with("fencing/events"));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        events
            .map(|request| request.json())
            .map(|event| (text(&event["involvedObject"]["uid"]), text(&event["reason"])))
            .collect()
    }

    fn log(&self) -> Vec<String> {
        self.log.lock().clone()
    }

    /// The write requests, without the orders to devices.
    fn requests(&self) -> Vec<String> {
        self.log().into_iter().filter(|line| !line.starts_with("device ")).collect()
    }

    fn written(&self, path: &str) -> Value {
        self.api
            .requests()
            .iter()
            .rev()
            .find(|request| request.method != "GET" && request.path.contains(path))
            .unwrap()
            .json()
    }
}

fn incarnation() -> Incarnation {
    Incarnation { name: "n".to_owned(), uid: "uid-n".to_owned(), boot_id: BOOT.to_owned() }
}

fn spec() -> NodeFenceSpec {
    NodeFenceSpec {
        node: incarnation(),
        policy: "all".to_owned(),
        trigger: FenceTrigger {
            kind: Trigger::Detected,
            reason: "silent for 61s".to_owned(),
            by: None,
            condition: None,
        },
        dry_run: false,
        cancelled: false,
        keep_off: false,
    }
}

/// The metadata of the Secret, which allows these devices to use it.
fn secret_metadata(to: &str) -> Value {
    json!({ "name": "bmc", "annotations": { "pod-safety.dev/fence-devices": to } })
}

fn target(status: NodeFenceStatus) -> Target {
    let fence = FenceKey { name: "n-1".into(), uid: Uid::new("uid-nf").unwrap(), rv: "20".parse().unwrap() };
    Target { fence, spec: Box::new(spec()), status: Box::new(status) }
}

fn bmc() -> DeviceRef {
    DeviceRef { namespace: "fencing".to_owned(), name: "bmc".to_owned() }
}

fn tried(act: &str) -> NodeFenceStatus {
    let attempt =
        Attempt { id: 1, act: act.parse().unwrap(), devices: vec![bmc()], within_seconds: 60, ..Attempt::default() };
    NodeFenceStatus { phase: Phase::Fencing, attempts: vec![attempt], ..NodeFenceStatus::default() }
}

fn checked_status(power: &str) -> NodeFenceStatus {
    let mut status = tried("off");
    let sample = crate::api::Sample { device: bmc(), power: power.parse().unwrap(), ..Default::default() };
    let lease_renewed = Some("2026-01-01T00:00:07Z".to_owned());
    status.attempts[0].verified =
        Some(Verified { power: power.parse().unwrap(), samples: vec![sample], lease_renewed, ..Verified::default() });
    (status.phase, status.evidence) = (Phase::Fenced, Some("n-1".to_owned()));
    status
}

const STATUS: &str = "PATCH /apis/pod-safety.dev/v1alpha1/nodefences/n-1/status";
const NODE: &str = "PATCH /api/v1/nodes/n";
const EVIDENCE: &str = "POST /apis/pod-safety.dev/v1alpha1/fenceevidences";

#[tokio::test(start_paused = true)]
async fn an_incident_is_opened_under_the_name_of_the_incarnation() {
    let harness = harness(Fixture::default(), |_, _| None);
    harness.assert_outcome(Step::Open(Box::new(spec())), "written").await;
    let body = harness.written("nodefences");
    assert_eq!(body["metadata"]["name"], incident_name(&incarnation()));
    assert_eq!(body["spec"]["node"]["bootID"], BOOT);
    let other = Incarnation { boot_id: NEXT_BOOT.to_owned(), ..incarnation() };
    assert_ne!(incident_name(&incarnation()), incident_name(&other));
    let long = Incarnation { name: "a".repeat(253), ..incarnation() };
    assert_eq!(incident_name(&long).len(), 253);
}

#[tokio::test(start_paused = true)]
async fn no_attempt_starts_if_the_node_reports_or_has_another_incarnation() {
    let reporting = Fixture { renewed: Arc::new(|_| 9), ..Fixture::default() };
    let mut ready = Fixture::default();
    ready.node["status"]["conditions"][0]["status"] = json!("True");
    let mut booted = Fixture::default();
    booted.node["status"]["nodeInfo"]["bootID"] = json!(NEXT_BOOT);
    for (fixture, expected) in [(reporting, "heard"), (ready, "heard"), (booted, "changed")] {
        for step in [Step::Open(Box::new(spec())), Step::Attempt(target(tried("off")))] {
            let harness = harness(fixture.clone(), |_, _| answer_with(Power::Off));
            harness.assert_outcome(step, expected).await;
            assert_eq!(harness.log(), [""; 0], "{expected}: nothing written, no order sent");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_intent_is_written_before_the_order_is_sent_and_the_answer_after_it() {
    let harness = harness(Fixture::default(), |_, _| answer_with(Power::Off));
    harness.assert_outcome(Step::Attempt(target(tried("off"))), "written").await;
    assert_eq!(harness.log(), [STATUS, "device off", STATUS]);
    let writes: Vec<_> = harness.api.requests().into_iter().filter(|request| request.method == "PATCH").collect();
    assert_eq!(writes[0].json()["metadata"]["resourceVersion"], "20");
    assert_eq!(writes[1].json()["metadata"]["resourceVersion"], "21", "at the version that the intent made");
    assert_eq!(writes[0].json()["status"]["attempts"][0].get("outcome"), None);
    assert_eq!(writes[1].json()["status"]["attempts"][0]["outcome"], "fencing/bmc: done");
    assert_eq!(writes[0].json()["status"]["attempts"][0]["by"], "this-process");
    let order = harness.devices.orders.lock()[0].clone();
    assert_eq!(order.parameters["ip"].reveal(), "n.bmc");
    assert_eq!(order.parameters["password"].reveal(), "hunter2");
    assert!(!format!("{order:?}").contains("hunter2"), "secrets have no readable form: {order:?}");
    assert_eq!(&*order.machine.system_uuid, "uuid-1");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_with_an_unusable_device_is_recorded_with_the_reason() {
    let no_secret = Fixture { secret: None, ..Fixture::default() };
    let mut no_key = Fixture::default();
    no_key.secret.as_mut().unwrap()["data"] = json!({ "passwort": "aHVudGVyMg==" });
    let mut elsewhere = Fixture::default();
    elsewhere.node["metadata"]["labels"]["rack"] = json!("8");
    for (fixture, expected) in [
        (no_secret, "Secret fencing/bmc does not exist"),
        (no_key, "has no key \"password\""),
        (elsewhere, "its nodeSelector does not select it"),
    ] {
        let harness = harness(fixture, |_, _| answer_with(Power::Off));
        harness.assert_outcome(Step::Attempt(target(tried("off"))), "written").await;
        assert_eq!(harness.log(), [STATUS], "{expected}: no order is sent");
        let attempt = harness.written("nodefences")["status"]["attempts"][0].clone();
        assert!(attempt["outcome"].as_str().unwrap().contains(expected), "{attempt}");
        assert_eq!(attempt["verified"]["power"], "Unknown");
        assert!(!attempt.to_string().contains("hunter2"), "{attempt}");
    }
}

/// A client that could write a FenceDevice could have any Secret of its namespace sent to an address of its own.
#[tokio::test(start_paused = true)]
async fn attack_a_secret_without_an_annotation_for_the_device_is_not_used() {
    let other = json!({ "name": "sh.helm.release.v1.pod-safety.v1" });
    for (what, metadata, sent) in [
        ("of something else", other, false),
        ("of another device", secret_metadata("psu"), false),
        ("of a device whose name begins alike", secret_metadata("bmc-2, xbmc"), false),
        ("of several devices", secret_metadata("psu, bmc"), true),
        ("of all devices beside it", secret_metadata("*"), true),
    ] {
        let mut fixture = Fixture::default();
        fixture.secret.as_mut().unwrap()["metadata"] = metadata;
        let harness = harness(fixture, |_, _| answer_with(Power::Off));
        harness.assert_outcome(Step::Attempt(target(tried("off"))), "written").await;
        assert_eq!(harness.devices.orders.lock().len(), usize::from(sent), "a Secret {what}");
        let attempt = harness.written("nodefences")["status"]["attempts"][0].clone();
        let way_out = "kubectl annotate secret bmc -n fencing --overwrite pod-safety.dev/fence-devices=bmc";
        assert_eq!(attempt["outcome"].as_str().unwrap().contains(way_out), !sent, "{attempt}");
        assert!(!attempt.to_string().contains("hunter2"), "{attempt}");
    }
}

/// The policy names a device in such a namespace.
#[tokio::test(start_paused = true)]
async fn attack_a_device_outside_the_fencing_namespaces_is_not_read() {
    let harness = harness(Fixture::default(), |_, _| answer_with(Power::Off));
    harness.world.cache().restrict_fencing_to(["pod-safety".to_owned()].into());
    harness.assert_outcome(Step::Attempt(target(tried("off"))), "written").await;
    assert_eq!(harness.log(), [STATUS], "no order is sent");
    let outcome = harness.written("nodefences")["status"]["attempts"][0]["outcome"].clone();
    let way_out = "add it to --fencing-namespaces (chart: controllers.fencing.namespaces)";
    assert!(outcome.as_str().unwrap().contains(way_out), "{outcome}");
    let read = harness.api.requests().into_iter().find(|request| request.path.contains("/namespaces/fencing/"));
    assert!(read.is_none(), "{read:?}");
}

/// Any user with the role `view` reads the parameters of a FenceDevice.
#[tokio::test(start_paused = true)]
async fn attack_a_password_among_the_parameters_is_not_used() {
    for (parameter, used) in [
        ("password", false),
        ("passwd", false),
        ("AUTH_TOKEN", false),
        ("hexadecimal_kg", false),
        ("api-key", false),
        ("snmp_community", false),
        ("plug", true),
    ] {
        let mut spec = device();
        spec["spec"]["parameters"][parameter] = json!("hunter3");
        let harness = harness(Fixture { device: Some(spec), ..Fixture::default() }, |_, _| answer_with(Power::Off));
        harness.assert_outcome(Step::Attempt(target(tried("off"))), "written").await;
        assert_eq!(harness.devices.orders.lock().len(), usize::from(used), "{parameter}");
        let attempt = harness.written("nodefences")["status"]["attempts"][0].to_string();
        assert_eq!(attempt.contains("in secretParameters"), !used, "{attempt}");
        assert!(!attempt.contains("hunter3"), "{attempt}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_checks_five_seconds_apart_without_a_lease_renewal_verify_off() {
    let harness = harness(Fixture::default(), |_, _| answer_with(Power::Off));
    let began = harness.env.now();
    harness.assert_outcome(Step::Look(target(tried("off"))), "written").await;
    assert!(harness.env.now().since(began) >= Verified::MIN_INTERVAL);
    assert_eq!(harness.log(), ["device look", "device look", STATUS]);
    let verified = harness.verified();
    assert_eq!((&verified["power"], &verified["leaseRenewed"]), (&json!("Off"), &json!("2026-01-01T00:00:07Z")));
    assert_eq!(verified["samples"].as_array().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_lease_renewal_between_the_checks_marks_the_device_as_a_mismatch() {
    let fixture = Fixture { renewed: Arc::new(|number| if number == 0 { 7 } else { 17 }), ..Fixture::default() };
    let harness = harness(fixture, |_, _| answer_with(Power::Off));
    harness.assert_outcome(Step::Look(target(tried("off"))), "written").await;
    let verified = harness.verified();
    assert_eq!(verified["power"], "Unknown");
    assert!(verified["message"].as_str().unwrap().contains("another machine"), "{verified}");
}

/// The Node is deleted when the machine is gone, and the Lease is garbage collected with it. A renewal that only the
/// watch delivered contradicts the device all the same.
#[tokio::test(start_paused = true)]
async fn bug_a_lease_garbage_collected_between_the_checks_counted_as_renewed() {
    for (renewed_meanwhile, power) in [(false, "Off"), (true, "Unknown")] {
        let reads = Mutex::new(0);
        let collected = move |request: &Received| {
            let mut reads = reads.lock();
            *reads += usize::from(request.path.contains("/kube-node-lease/leases/"));
            (*reads > 1 && request.path.contains("/kube-node-lease/leases/")).then(ApiAnswer::not_found)
        };
        let fixture = Fixture { first: Arc::new(collected), ..Fixture::default() };
        let harness = harness(fixture, |_, _| answer_with(Power::Off));
        let watch = async {
            advance(2.0).await;
            let second = if renewed_meanwhile { 17 } else { 7 };
            harness.world.apply(Kind::NodeLeases, &lease("n", second).rv(4).0, harness.env.now());
            harness.world.remove(Kind::NodeLeases, "lease-n", harness.env.now());
        };
        futures::join!(harness.assert_outcome(Step::Look(target(tried("off"))), "written"), watch);
        assert_eq!(harness.verified()["power"], power, "renewed meanwhile: {renewed_meanwhile}");
    }
    let fixture = Fixture {
        first: Arc::new(|request| request.path.contains("/kube-node-lease/leases/").then(ApiAnswer::not_found)),
        ..Fixture::default()
    };
    let harness = harness(fixture, |_, _| None);
    harness.assert_outcome(Step::Prove(target(checked_status("Off"))), "changed").await;
    assert!(harness.log().is_empty(), "the watch may have brought less than the read");
    harness.world.remove(Kind::NodeLeases, "lease-n", harness.env.now());
    harness.assert_outcome(Step::Prove(target(checked_status("Off"))), "written").await;
    assert_eq!(harness.log(), [EVIDENCE, STATUS]);
}

/// Whatever the phase of its renewals, a running kubelet contradicts a device that reports off.
#[tokio::test(start_paused = true)]
async fn the_interval_contains_a_renewal_of_a_kubelet_that_renews_every_ten_seconds() {
    for tenths in 0..104 {
        let (clock, _wall) = env();
        let began = clock.now();
        let phase = Duration::from_millis(tenths * 100);
        let renewed = move |_| {
            let renewals = (clock.now().since(began) + phase).as_millis() / 10_400;
            7 + u8::try_from(renewals).unwrap()
        };
        let fixture = Fixture { renewed: Arc::new(renewed), ..Fixture::default() };
        let harness = harness(fixture, |_, _| answer_with(Power::Off));
        harness.assert_outcome(Step::Look(target(tried("off"))), "written").await;
        assert_eq!(harness.verified()["power"], "Unknown", "renewed {phase:?} before the first look");
    }
}

/// The time for which the kubelet has not reported already shortens the interval.
#[tokio::test(start_paused = true)]
async fn the_interval_is_five_seconds_if_the_lease_expired_before() {
    for (silent, apart) in [(0, 15), (20, 15), (30, 10), (40, 5), (600, 5)] {
        let harness = harness(Fixture::default(), |_, _| answer_with(Power::Off));
        advance(Duration::from_secs(silent).as_secs_f64()).await;
        let began = harness.env.now();
        harness.assert_outcome(Step::Look(target(tried("off"))), "written").await;
        assert_eq!(harness.env.now().since(began).as_secs(), apart, "silent for {silent}s");
        assert_eq!(harness.verified()["power"], "Off");
    }
}

#[tokio::test(start_paused = true)]
async fn a_power_supply_that_flaps_does_not_verify_off() {
    let harness =
        harness(Fixture::default(), |_, number| answer_with(if number == 0 { Power::Off } else { Power::On }));
    harness.run_step(Step::Look(target(tried("off")))).await;
    let verified = harness.verified();
    assert_eq!(verified["power"], "On");
}

#[tokio::test(start_paused = true)]
async fn evidence_is_created_before_the_status_names_it() {
    let harness = harness(Fixture::default(), |_, _| None);
    harness.assert_outcome(Step::Prove(target(checked_status("Off"))), "written").await;
    assert_eq!(harness.log(), [EVIDENCE, STATUS]);
    let evidence = harness.written("fenceevidences");
    assert_eq!(evidence["spec"]["kind"], "PowerOff");
    assert_eq!(evidence["spec"]["leaseRenewed"], "2026-01-01T00:00:07Z");
    assert_eq!(harness.written("nodefences")["status"]["conditions"][0]["status"], "True");
}

/// The devices powered off the earlier boot; the current one runs.
#[tokio::test(start_paused = true)]
async fn no_evidence_is_created_for_a_node_that_has_rebooted_since() {
    let mut node = machine();
    node["status"]["nodeInfo"]["bootID"] = json!(NEXT_BOOT);
    let harness = harness(Fixture { node, ..Fixture::default() }, |_, _| None);
    harness.assert_outcome(Step::Prove(target(checked_status("Off"))), "changed").await;
    assert!(harness.log().is_empty());
}

#[tokio::test(start_paused = true)]
async fn no_evidence_is_created_if_the_lease_was_renewed_or_no_device_reported_off() {
    let spoke = Fixture { renewed: Arc::new(|_| 9), ..Fixture::default() };
    let renewed = harness(spoke, |_, _| None);
    renewed.run_step(Step::Prove(target(checked_status("Off")))).await;
    assert_eq!(renewed.log(), [STATUS]);
    let status = renewed.written("nodefences")["status"].clone();
    assert_eq!((&status["phase"], status.get("evidence")), (&json!("Fencing"), None));
    for power in ["On", "Unknown"] {
        let harness = harness(Fixture::default(), |_, _| None);
        harness.assert_outcome(Step::Prove(target(checked_status(power))), "changed").await;
        harness.assert_no_requests();
    }
}

fn proof(invalidated: bool) -> Value {
    let mut proof = json!({
        "metadata": { "name": "n-1", "uid": "uid-fe", "resourceVersion": "2", "creationTimestamp": "2026-11-21T11:45:00Z" },
        "spec": {
            "node": incarnation(), "kind": "PowerOff", "fence": "n-1", "by": "p", "leaseRenewed": "2026-01-01T00:00:07Z",
            "samples": [{ "device": bmc(), "driver": "Agent", "at": "t", "power": "Off", "identity": "Match" }],
        },
    });
    if invalidated {
        proof["status"] = json!({ "invalidated": { "at": "", "reason": "heard" } });
    }
    proof
}

#[tokio::test(start_paused = true)]
async fn a_contradiction_invalidates_the_evidence_before_it_marks_the_devices() {
    let others = json!([{ "type": "Trusted", "status": "True", "reason": "r", "message": "m", "lastTransitionTime": "t" },
        { "type": "Answers", "status": "True", "reason": "r", "message": "m", "lastTransitionTime": "t" }]);
    let mut device_object = device();
    device_object["status"] = json!({ "conditions": others });
    let fixture = Fixture { proof: Some(proof(false)), device: Some(device_object), ..Fixture::default() };
    let harness = harness(fixture, |_, _| None);
    // A device of another level that did not report off is not contradicted.
    let mut status = checked_status("Off");
    let pdu = DeviceRef { name: "pdu".to_owned(), ..bmc() };
    let tried = Attempt { verified: None, devices: vec![pdu], ..status.attempts[0].clone() };
    status.attempts.insert(0, tried);
    harness.assert_outcome(Step::Contradict(target(status)), "written").await;
    assert!(harness.api.requests().iter().all(|request| !request.path.contains("pdu")));
    assert_eq!(
        harness.log(),
        [
            "PATCH /apis/pod-safety.dev/v1alpha1/fenceevidences/n-1/status",
            "PATCH /apis/pod-safety.dev/v1alpha1/namespaces/fencing/fencedevices/bmc/status",
            STATUS
        ]
    );
    let conditions = harness.written("fencedevices")["status"]["conditions"].clone();
    let condition = |at: usize| (conditions[at]["type"].clone(), conditions[at]["status"].clone());
    assert_eq!(conditions.as_array().unwrap().len(), 2, "{conditions}");
    assert_eq!((condition(0), condition(1)), ((json!("Answers"), json!("True")), (json!("Trusted"), json!("False"))));
    let meant = harness.written("fenceevidences")["metadata"].clone();
    let read = &proof(false)["metadata"];
    assert_eq!((&meant["uid"], &meant["resourceVersion"]), (&read["uid"], &read["resourceVersion"]));
    assert_eq!(harness.events().await, [("uid-bmc".to_owned(), "EvidenceContradicted".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn an_order_in_progress_is_abandoned_when_the_term_ends() {
    let mut harness = harness(Fixture::default(), |_, _| None);
    harness.leadership = Leadership::for_tests(harness.env.now() + Duration::from_secs(10));
    let began = harness.env.now();
    harness.assert_outcome(Step::Attempt(target(tried("off"))), "not_leader").await;
    assert_eq!(harness.env.now().since(began), Duration::from_secs(10));
    assert_eq!(harness.log(), [STATUS, "device off"], "the intent is there for whoever leads next");
    advance(60.0).await;
    assert_eq!(harness.log().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_order_is_abandoned_after_its_timeout() {
    // The shorter of the attempt's timeout and of the device's.
    for (within_seconds, within) in [(60, 60), (5, 5), (90, 60)] {
        let harness = harness(Fixture::default(), |_, _| None);
        let mut attempted = tried("off");
        attempted.attempts[0].within_seconds = within_seconds;
        harness.assert_outcome(Step::Attempt(target(attempted)), "written").await;
        let outcome = harness.written("nodefences")["status"]["attempts"][0]["outcome"].clone();
        assert!(outcome.as_str().unwrap().contains(&format!("no answer within {within}s")), "{outcome}");
    }
}

fn monitor_request(nodes: &[&str], whole: bool) -> MonitorRequest {
    let nodes = nodes.iter().map(|node| Arc::from(*node)).collect();
    let uid = Uid::new("uid-bmc").unwrap();
    MonitorRequest { device: bmc(), uid, nodes, is_complete: whole, test: Some("now".to_owned()) }
}

#[tokio::test(start_paused = true)]
async fn a_check_of_all_nodes_records_the_problem_and_answers_the_test_annotation() {
    let login = |_, _| Some(Err(DeviceError::Login { said: "401".to_owned() }));
    let held = harness(Fixture::default(), login);
    assert_eq!(held.run_monitor(&monitor_request(&["n"], true)).await.name(), "written");
    let status = held.written("/fencedevices/bmc/status")["status"].clone();
    assert_eq!((&status["tested"], &status["observedGeneration"]), (&json!("now"), &json!(2)));
    assert_eq!(status["targets"][0]["problem"], "LoginDenied");
    assert_eq!(status["conditions"][0]["reason"], "LoginDenied", "{status}");
    assert_eq!(held.events().await, [("uid-bmc".to_owned(), "LoginDenied".to_owned())]);
    for (secret, expected) in [
        (None, "Secret fencing/bmc does not exist"),
        (Some(json!({ "metadata": secret_metadata("bmc"), "data": {} })), "has no key"),
    ] {
        let harness = harness(Fixture { secret, ..Fixture::default() }, |_, _| None);
        assert_eq!(harness.run_monitor(&monitor_request(&["n"], true)).await.name(), "written");
        let target = harness.written("/fencedevices/bmc/status")["status"]["targets"][0].clone();
        assert_eq!(target["problem"], "BadSecret");
        let message = target["message"].as_str().unwrap();
        assert!(message.contains(expected) && message.contains("password"), "{message}");
    }
    let stranger = |_, _| {
        let identity = Identity::Mismatch { found: "uuid-2".to_owned() };
        Some(Ok(Answer::new(Power::On, identity, String::new())))
    };
    let harness = harness(Fixture::default(), stranger);
    assert_eq!(harness.run_monitor(&monitor_request(&["n"], true)).await.name(), "written");
    let target = harness.written("/fencedevices/bmc/status")["status"]["targets"][0].clone();
    assert_eq!((&target["problem"], &target["identity"]), (&json!("AnotherMachine"), &json!("Mismatch")));
}

#[tokio::test(start_paused = true)]
async fn a_check_of_one_node_keeps_the_recorded_targets_of_others() {
    let mut fixture = Fixture::default();
    let mut device = device();
    device["status"] = json!({
        "observedGeneration": 1,
        "conditions": [],
        "targets": [{ "node": "m", "power": "Unknown", "message": "no answer", "problem": "TimedOut" },
            { "node": "n", "power": "Unknown", "message": "no answer", "problem": "TimedOut" }],
    });
    fixture.device = Some(device["spec"].clone());
    fixture.first = Arc::new(move |request: &Received| {
        let is_it = request.method == "GET" && request.path.ends_with("/fencedevices/bmc");
        is_it.then(|| ApiAnswer::json(&device))
    });
    let harness = harness(fixture, |_, _| answer_with(Power::On));
    assert_eq!(harness.run_monitor(&monitor_request(&["n"], false)).await.name(), "written");
    let status = harness.written("/fencedevices/bmc/status")["status"].clone();
    assert_eq!(status["observedGeneration"], 1, "the others were not looked at since it changed");
    let powers: Vec<_> = status["targets"].as_array().unwrap().iter().map(|one| &one["power"]).collect();
    assert_eq!(powers, ["Unknown", "On"]);
    assert_eq!(status["conditions"][0]["reason"], "TimedOut", "the other one is silent still");
}

#[tokio::test(start_paused = true)]
async fn an_event_follows_the_write_of_a_changed_condition_and_no_other() {
    let events_after = async |reason: &str, power: Power| {
        let ready = if reason == "AllTargetsReachable" { "True" } else { "False" };
        let condition = json!({ "type": "Ready", "status": ready, "reason": reason, "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z" });
        let spec = json!({ "spec": device()["spec"], "status": { "conditions": [condition] } });
        let harness = harness(Fixture { device: Some(spec), ..Fixture::default() }, move |_, _| answer_with(power));
        assert_eq!(harness.run_monitor(&monitor_request(&["n"], true)).await.name(), "written");
        harness.events().await.into_iter().map(|(_, reason)| reason).collect::<Vec<_>>()
    };
    assert_eq!(events_after("AllTargetsReachable", Power::On).await, [""; 0]);
    assert_eq!(events_after("LoginDenied", Power::On).await, ["DeviceReachable"]);
    assert_eq!(events_after("AllTargetsReachable", Power::Unknown).await, ["PowerUnknown"]);
    assert_eq!(events_after("LoginDenied", Power::Unknown).await, ["PowerUnknown"], "another thing is wrong");
    assert_eq!(events_after("PowerUnknown", Power::Unknown).await, [""; 0]);
    // A change that could not be written is recorded when it is.
    let refused: First =
        Arc::new(|request| (request.method == "PATCH").then(|| ApiAnswer::with_code(409, &json!({ "code": 409 }))));
    let harness = harness(Fixture { first: refused, ..Fixture::default() }, |_, _| answer_with(Power::On));
    assert_ne!(harness.run_monitor(&monitor_request(&["n"], true)).await.name(), "written");
    assert_eq!(harness.events().await, []);
}

/// A second confirmation held.
#[tokio::test(start_paused = true)]
async fn bug_a_contradiction_removed_the_taint_although_other_evidence_held() {
    let ours = json!({ "key": OUT_OF_SERVICE_TAINT, "value": "n-1", "effect": "NoExecute" });
    for (tainted, written) in [(false, &[NODE, STATUS][..]), (true, &[STATUS])] {
        let mut fixture = Fixture::default();
        fixture.node["spec"]["taints"] = json!([ours]);
        let harness = harness(fixture, |_, _| None);
        let status = NodeFenceStatus { tainted, ..NodeFenceStatus::default() };
        harness.assert_outcome(Step::Contradict(target(status)), "written").await;
        assert_eq!(harness.log(), written);
    }
}

#[test]
fn a_step_has_a_target_except_open() {
    assert_eq!(Step::Open(Box::new(spec())).target(), None);
    let target = target(tried("off"));
    for step in [Step::Write, Step::Attempt, Step::Look, Step::Prove, Step::Taint, Step::Untaint, Step::Contradict] {
        assert_eq!(step(target.clone()).target(), Some(&target));
    }
}
