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
use crate::client::scripted::{Answer as Says, Api, Received, advance, env};
use crate::clock::Env;
use crate::events::Recorder;
use crate::model::{Kind, OUT_OF_SERVICE_TAINT, Uid};
use crate::outcome::Outcome;
use crate::send::WriteContext;
use crate::transport::{Act, Answer, DeviceError, Driver, FenceTransport, Identity, Order, Power};

const BOOT: &str = "b0000000-0000-4000-8000-000000000001";
const NEXT_BOOT: &str = "b0000000-0000-4000-8000-000000000002";

/// What a device does when it is asked for the n-th time.
type Script = Box<dyn Fn(Act, usize) -> Option<Result<Answer, DeviceError>> + Send + Sync>;

/// Devices that write down what they are asked. `None`: no answer, ever.
struct Devices {
    script: Script,
    asked: Mutex<Vec<Order>>,
    /// Where something answers; `None`: no packet leaves this host.
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
        let (act, number) = (order.act, self.asked.lock().len());
        self.log.lock().push(format!("device {}", act.name()));
        self.asked.lock().push(order);
        match (self.script)(act, number) {
            Some(answer) => Box::pin(std::future::ready(answer)),
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
struct There {
    node: Value,
    /// In which second the Lease was renewed, as it is asked for the n-th time.
    renewed: Arc<dyn Fn(usize) -> u8 + Send + Sync>,
    secret: Option<Value>,
    proof: Option<Value>,
    /// The device's spec, if it is another one.
    device: Option<Value>,
    /// What is answered before all that.
    first: First,
}

type First = Arc<dyn Fn(&Received) -> Option<Says> + Send + Sync>;

fn machine() -> Value {
    let node = node("n").boot(BOOT).set("/status/nodeInfo/systemUUID", json!("uuid-1"));
    node.labels(json!({ "rack": "7" })).0
}

impl Default for There {
    fn default() -> Self {
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": lent("bmc"),
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

struct Scene {
    env: Env,
    api: Api,
    world: World,
    leadership: Arc<Leadership>,
    devices: Devices,
    events: Recorder,
    /// Requests that write, and what devices were asked, in one order.
    log: Arc<Mutex<Vec<String>>>,
}

fn answer(there: &There, asked: &Received, leases: &Mutex<usize>) -> Says {
    let last = asked.path.rsplit('/').next().unwrap_or_default();
    let collection = asked.path.contains("/kube-node-lease/leases/");
    if let Some(answer) = (there.first)(asked) {
        return answer;
    }
    match (asked.method.as_str(), asked.path.as_str()) {
        ("GET", "/api/v1/nodes/n") => Says::json(&there.node),
        ("GET", _) if collection => {
            let mut count = leases.lock();
            *count += 1;
            Says::json(&lease("n", (there.renewed)(*count - 1)).0)
        }
        ("GET", path) if path.contains("/fencedevices/") && last == "bmc" => {
            let mut device = device();
            if let Some(spec) = &there.device {
                device["spec"] = spec["spec"].clone();
                device["status"] = spec["status"].clone();
            }
            Says::json(&device)
        }
        ("GET", path) if path.contains("/secrets/") => {
            there.secret.as_ref().map_or_else(Says::not_found, Says::json)
        }
        ("GET", path) if path.contains("/fenceevidences/") => {
            there.proof.as_ref().map_or_else(Says::not_found, Says::json)
        }
        ("GET", _) => Says::not_found(),
        ("POST", _) => Says::with_code(201, &json!({ "metadata": { "resourceVersion": "1" } })),
        ("PATCH", _) => {
            let rv =
                asked.json()["metadata"]["resourceVersion"].as_str().and_then(|rv| rv.parse::<u64>().ok());
            Says::json(&json!({ "metadata": { "resourceVersion": (rv.unwrap_or(0) + 1).to_string() } }))
        }
        _ => Says::not_found(),
    }
}

fn scene(
    there: There,
    script: impl Fn(Act, usize) -> Option<Result<Answer, DeviceError>> + Send + Sync + 'static,
) -> Scene {
    let (env, _wall) = env();
    let log = Arc::new(Mutex::new(Vec::new()));
    let (lines, leases) = (Arc::clone(&log), Arc::new(Mutex::new(0)));
    let api = Api::answering(&env, move |asked| {
        // Whether there is anybody to be polite to.
        if asked.method != "GET" && !asked.path.ends_with("selfsubjectaccessreviews") {
            lines.lock().push(asked.line());
        }
        answer(&there, asked, &leases)
    });
    let world = World::listed();
    world.apply(Kind::NodeLeases, &lease("n", 7).0, env.now());
    let (asked, open) = (Mutex::default(), Mutex::new(Some(Vec::new())));
    let devices = Devices { script: Box::new(script), asked, open, log: Arc::clone(&log) };
    let events = Recorder::new(env.clone(), Metrics::new().unwrap().authority);
    Scene { env, api, world, leadership: Leadership::always(), devices, events, log }
}

impl Scene {
    fn acting<'a>(&'a self, connection: &'a Connection) -> StepContext<'a> {
        let (cache, env, leadership) = (self.world.cache(), &self.env, &self.leadership);
        let means = WriteContext { connection, cache, env, leadership };
        StepContext::new(means, &self.devices, "this-process", &self.events)
    }

    async fn run_step(&self, step: Step) -> Outcome {
        let connection = self.api.connection();
        execute_step(&self.acting(&connection), &FenceStepRequest { node: "n".into(), step }).await
    }

    /// Takes the step, which must end so.
    async fn ends(&self, step: Step, how: &str) {
        assert_eq!(self.run_step(step).await.name(), how);
    }

    /// Nothing was written, and no device asked.
    fn silent(&self) {
        assert_eq!(self.log(), [""; 0]);
    }

    /// What the looks of the first attempt showed, as it was written.
    fn verified(&self) -> Value {
        self.written("nodefences")["status"]["attempts"][0]["verified"].clone()
    }

    async fn run_monitor(&self, wish: &MonitorRequest) -> Outcome {
        let connection = self.api.connection();
        monitor(&self.acting(&connection), wish).await
    }

    /// The Events about devices that were to be written: of whom, and which word.
    async fn events(&self) -> Vec<(String, String)> {
        let write = self.events.clone().worker_loop(
            self.api.connection(),
            Arc::clone(&self.leadership),
            "pod-safety",
            "this-process".to_owned(),
        );
        let _until = tokio::time::timeout(Duration::from_secs(1), write).await;
        let heard = self.api.requests().into_iter().filter(|asked| asked.path.ends_with("fencing/events"));
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        heard
            .map(|asked| asked.json())
            .map(|event| (word(&event["involvedObject"]["uid"]), word(&event["reason"])))
            .collect()
    }

    fn log(&self) -> Vec<String> {
        self.log.lock().clone()
    }

    /// What was written, without what devices were asked.
    fn requests(&self) -> Vec<String> {
        self.log().into_iter().filter(|line| !line.starts_with("device ")).collect()
    }

    fn written(&self, path: &str) -> Value {
        self.api
            .requests()
            .iter()
            .rev()
            .find(|asked| asked.method != "GET" && asked.path.contains(path))
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
fn lent(to: &str) -> Value {
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
    let attempt = Attempt {
        id: 1,
        act: act.parse().unwrap(),
        devices: vec![bmc()],
        within_seconds: 60,
        ..Attempt::default()
    };
    NodeFenceStatus { phase: Phase::Fencing, attempts: vec![attempt], ..NodeFenceStatus::default() }
}

fn checked_status(power: &str) -> NodeFenceStatus {
    let mut status = tried("off");
    let sample = crate::api::Sample { device: bmc(), power: power.parse().unwrap(), ..Default::default() };
    let lease_renewed = Some("2026-01-01T00:00:07Z".to_owned());
    status.attempts[0].verified = Some(Verified {
        power: power.parse().unwrap(),
        samples: vec![sample],
        lease_renewed,
        ..Verified::default()
    });
    (status.phase, status.evidence) = (Phase::Fenced, Some("n-1".to_owned()));
    status
}

const STATUS: &str = "PATCH /apis/pod-safety.dev/v1alpha1/nodefences/n-1/status";
const NODE: &str = "PATCH /api/v1/nodes/n";
const EVIDENCE: &str = "POST /apis/pod-safety.dev/v1alpha1/fenceevidences";

#[tokio::test(start_paused = true)]
async fn an_incident_is_opened_under_the_name_of_the_incarnation() {
    let scene = scene(There::default(), |_, _| None);
    scene.ends(Step::Open(Box::new(spec())), "written").await;
    let body = scene.written("nodefences");
    assert_eq!(body["metadata"]["name"], incident_name(&incarnation()));
    assert_eq!(body["spec"]["node"]["bootID"], BOOT);
    let other = Incarnation { boot_id: NEXT_BOOT.to_owned(), ..incarnation() };
    assert_ne!(incident_name(&incarnation()), incident_name(&other));
    let long = Incarnation { name: "a".repeat(253), ..incarnation() };
    assert_eq!(incident_name(&long).len(), 253);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_begun_against_a_node_that_was_heard_or_began_another_life() {
    let heard = There { renewed: Arc::new(|_| 9), ..There::default() };
    let mut ready = There::default();
    ready.node["status"]["conditions"][0]["status"] = json!("True");
    let mut booted = There::default();
    booted.node["status"]["nodeInfo"]["bootID"] = json!(NEXT_BOOT);
    for (there, wanted) in [(heard, "heard"), (ready, "heard"), (booted, "changed")] {
        for step in [Step::Open(Box::new(spec())), Step::Attempt(target(tried("off")))] {
            let scene = scene(there.clone(), |_, _| answer_with(Power::Off));
            scene.ends(step, wanted).await;
            assert_eq!(scene.log(), [""; 0], "{wanted}: nothing written, no device asked");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_intent_is_written_before_the_device_is_asked_and_its_answer_after() {
    let scene = scene(There::default(), |_, _| answer_with(Power::Off));
    scene.ends(Step::Attempt(target(tried("off"))), "written").await;
    assert_eq!(scene.log(), [STATUS, "device off", STATUS]);
    let writes: Vec<_> = scene.api.requests().into_iter().filter(|asked| asked.method == "PATCH").collect();
    assert_eq!(writes[0].json()["metadata"]["resourceVersion"], "20");
    assert_eq!(writes[1].json()["metadata"]["resourceVersion"], "21", "at the version that the intent made");
    assert_eq!(writes[0].json()["status"]["attempts"][0].get("outcome"), None);
    assert_eq!(writes[1].json()["status"]["attempts"][0]["outcome"], "fencing/bmc: done");
    assert_eq!(writes[0].json()["status"]["attempts"][0]["by"], "this-process");
    let order = scene.devices.asked.lock()[0].clone();
    assert_eq!(order.parameters["ip"].reveal(), "n.bmc");
    assert_eq!(order.parameters["password"].reveal(), "hunter2");
    assert!(!format!("{order:?}").contains("hunter2"), "secrets have no readable form: {order:?}");
    assert_eq!(&*order.machine.system_uuid, "uuid-1");
}

#[tokio::test(start_paused = true)]
async fn a_device_that_cannot_be_asked_costs_an_attempt_and_says_why() {
    let no_secret = There { secret: None, ..There::default() };
    let mut no_key = There::default();
    no_key.secret.as_mut().unwrap()["data"] = json!({ "passwort": "aHVudGVyMg==" });
    let mut elsewhere = There::default();
    elsewhere.node["metadata"]["labels"]["rack"] = json!("8");
    for (there, words) in [
        (no_secret, "Secret fencing/bmc does not exist"),
        (no_key, "has no key \"password\""),
        (elsewhere, "its nodeSelector does not select it"),
    ] {
        let scene = scene(there, |_, _| answer_with(Power::Off));
        scene.ends(Step::Attempt(target(tried("off"))), "written").await;
        assert_eq!(scene.log(), [STATUS], "{words}: no device is asked");
        let attempt = scene.written("nodefences")["status"]["attempts"][0].clone();
        assert!(attempt["outcome"].as_str().unwrap().contains(words), "{attempt}");
        assert_eq!(attempt["verified"]["power"], "Unknown");
        assert!(!attempt.to_string().contains("hunter2"), "{attempt}");
    }
}

/// Finding 2 of the security review: whoever might write a FenceDevice could have any Secret of its namespace sent to an
/// address of their own.
#[tokio::test(start_paused = true)]
async fn attack_a_secret_that_is_not_for_this_device_reaches_no_device() {
    let other = json!({ "name": "sh.helm.release.v1.pod-safety.v1" });
    for (what, metadata, sent) in [
        ("of something else", other, false),
        ("of another device", lent("psu"), false),
        ("of a device whose name begins alike", lent("bmc-2, xbmc"), false),
        ("of several devices", lent("psu, bmc"), true),
        ("of all devices beside it", lent("*"), true),
    ] {
        let mut there = There::default();
        there.secret.as_mut().unwrap()["metadata"] = metadata;
        let scene = scene(there, |_, _| answer_with(Power::Off));
        scene.ends(Step::Attempt(target(tried("off"))), "written").await;
        assert_eq!(scene.devices.asked.lock().len(), usize::from(sent), "a Secret {what}");
        let attempt = scene.written("nodefences")["status"]["attempts"][0].clone();
        let way_out = "kubectl annotate secret bmc -n fencing --overwrite pod-safety.dev/fence-devices=bmc";
        assert_eq!(attempt["outcome"].as_str().unwrap().contains(way_out), !sent, "{attempt}");
        assert!(!attempt.to_string().contains("hunter2"), "{attempt}");
    }
}

/// Finding 4 of the security review, where the policy names such a device.
#[tokio::test(start_paused = true)]
async fn attack_a_device_of_a_namespace_that_is_not_followed_is_not_read() {
    let scene = scene(There::default(), |_, _| answer_with(Power::Off));
    scene.world.cache().restrict_fencing_to(["pod-safety".to_owned()].into());
    scene.ends(Step::Attempt(target(tried("off"))), "written").await;
    assert_eq!(scene.log(), [STATUS], "no device is asked");
    let outcome = scene.written("nodefences")["status"]["attempts"][0]["outcome"].clone();
    let way_out = "add it to --fencing-namespaces (chart: controllers.fencing.namespaces)";
    assert!(outcome.as_str().unwrap().contains(way_out), "{outcome}");
    let read = scene.api.requests().into_iter().find(|asked| asked.path.contains("/namespaces/fencing/"));
    assert!(read.is_none(), "{read:?}");
}

/// Finding 15 of the security review: everybody with the role `view` reads the parameters of a FenceDevice.
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
        let scene = scene(There { device: Some(spec), ..There::default() }, |_, _| answer_with(Power::Off));
        scene.ends(Step::Attempt(target(tried("off"))), "written").await;
        assert_eq!(scene.devices.asked.lock().len(), usize::from(used), "{parameter}");
        let attempt = scene.written("nodefences")["status"]["attempts"][0].to_string();
        assert_eq!(attempt.contains("in secretParameters"), !used, "{attempt}");
        assert!(!attempt.contains("hunter3"), "{attempt}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_looks_five_seconds_apart_and_a_silent_kubelet_show_that_it_is_off() {
    let scene = scene(There::default(), |_, _| answer_with(Power::Off));
    let began = scene.env.now();
    scene.ends(Step::Look(target(tried("off"))), "written").await;
    assert!(scene.env.now().since(began) >= Verified::MIN_INTERVAL);
    assert_eq!(scene.log(), ["device look", "device look", STATUS]);
    let verified = scene.verified();
    assert_eq!(
        (&verified["power"], &verified["leaseRenewed"]),
        (&json!("Off"), &json!("2026-01-01T00:00:07Z"))
    );
    assert_eq!(verified["samples"].as_array().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_speaks_between_the_looks_convicts_the_device() {
    let there = There { renewed: Arc::new(|number| if number == 0 { 7 } else { 17 }), ..There::default() };
    let scene = scene(there, |_, _| answer_with(Power::Off));
    scene.ends(Step::Look(target(tried("off"))), "written").await;
    let verified = scene.verified();
    assert_eq!(verified["power"], "Unknown");
    assert!(verified["message"].as_str().unwrap().contains("another machine"), "{verified}");
}

/// Its Node is deleted when the machine is gone, and the Lease is collected with it. A renewal that only the watch has brought
/// convicts all the same.
#[tokio::test(start_paused = true)]
async fn bug_a_lease_that_was_collected_between_the_looks_counted_as_renewed() {
    for (renewed_meanwhile, power) in [(false, "Off"), (true, "Unknown")] {
        let reads = Mutex::new(0);
        let collected = move |asked: &Received| {
            let mut reads = reads.lock();
            *reads += usize::from(asked.path.contains("/kube-node-lease/leases/"));
            (*reads > 1 && asked.path.contains("/kube-node-lease/leases/")).then(Says::not_found)
        };
        let there = There { first: Arc::new(collected), ..There::default() };
        let scene = scene(there, |_, _| answer_with(Power::Off));
        let watch = async {
            advance(2.0).await;
            let second = if renewed_meanwhile { 17 } else { 7 };
            scene.world.apply(Kind::NodeLeases, &lease("n", second).rv(4).0, scene.env.now());
            scene.world.remove(Kind::NodeLeases, "lease-n", scene.env.now());
        };
        futures::join!(scene.ends(Step::Look(target(tried("off"))), "written"), watch);
        assert_eq!(scene.verified()["power"], power, "renewed meanwhile: {renewed_meanwhile}");
    }
    let there = There {
        first: Arc::new(|asked| asked.path.contains("/kube-node-lease/leases/").then(Says::not_found)),
        ..There::default()
    };
    let scene = scene(there, |_, _| None);
    scene.ends(Step::Prove(target(checked_status("Off"))), "changed").await;
    assert!(scene.log().is_empty(), "the watch may have brought less than the read");
    scene.world.remove(Kind::NodeLeases, "lease-n", scene.env.now());
    scene.ends(Step::Prove(target(checked_status("Off"))), "written").await;
    assert_eq!(scene.log(), [EVIDENCE, STATUS]);
}

/// A2: whatever the phase of its renewals, a kubelet that lives convicts the device that says off.
#[tokio::test(start_paused = true)]
async fn a_kubelet_that_renews_each_ten_seconds_is_heard_between_the_looks_in_any_phase() {
    for tenths in 0..104 {
        let (clock, _wall) = env();
        let began = clock.now();
        let phase = Duration::from_millis(tenths * 100);
        let renewed = move |_| {
            let renewals = (clock.now().since(began) + phase).as_millis() / 10_400;
            7 + u8::try_from(renewals).unwrap()
        };
        let there = There { renewed: Arc::new(renewed), ..There::default() };
        let scene = scene(there, |_, _| answer_with(Power::Off));
        scene.ends(Step::Look(target(tried("off"))), "written").await;
        assert_eq!(scene.verified()["power"], "Unknown", "renewed {phase:?} before the first look");
    }
}

/// The other half of it: to be silent for long already costs nothing.
#[tokio::test(start_paused = true)]
async fn a_node_that_was_silent_for_the_duration_of_its_lease_is_looked_at_five_seconds_apart() {
    for (silent, apart) in [(0, 15), (20, 15), (30, 10), (40, 5), (600, 5)] {
        let scene = scene(There::default(), |_, _| answer_with(Power::Off));
        advance(Duration::from_secs(silent).as_secs_f64()).await;
        let began = scene.env.now();
        scene.ends(Step::Look(target(tried("off"))), "written").await;
        assert_eq!(scene.env.now().since(began).as_secs(), apart, "silent for {silent}s");
        assert_eq!(scene.verified()["power"], "Off");
    }
}

#[tokio::test(start_paused = true)]
async fn a_supply_that_flaps_proves_nothing() {
    let scene =
        scene(There::default(), |_, number| answer_with(if number == 0 { Power::Off } else { Power::On }));
    scene.run_step(Step::Look(target(tried("off")))).await;
    let verified = scene.verified();
    assert_eq!(verified["power"], "On");
}

#[tokio::test(start_paused = true)]
async fn evidence_is_written_before_anything_relies_on_it() {
    let scene = scene(There::default(), |_, _| None);
    scene.ends(Step::Prove(target(checked_status("Off"))), "written").await;
    assert_eq!(scene.log(), [EVIDENCE, STATUS]);
    let evidence = scene.written("fenceevidences");
    assert_eq!(evidence["spec"]["kind"], "PowerOff");
    assert_eq!(evidence["spec"]["leaseRenewed"], "2026-01-01T00:00:07Z");
    assert_eq!(scene.written("nodefences")["status"]["conditions"][0]["status"], "True");
}

/// What its devices showed off is over, and this boot is not.
#[tokio::test(start_paused = true)]
async fn there_is_no_evidence_about_a_node_that_has_booted_since() {
    let mut node = machine();
    node["status"]["nodeInfo"]["bootID"] = json!(NEXT_BOOT);
    let scene = scene(There { node, ..There::default() }, |_, _| None);
    scene.ends(Step::Prove(target(checked_status("Off"))), "changed").await;
    assert!(scene.log().is_empty());
}

#[tokio::test(start_paused = true)]
async fn there_is_no_evidence_if_the_kubelet_spoke_since_or_nothing_said_off() {
    let spoke = There { renewed: Arc::new(|_| 9), ..There::default() };
    let scene_spoke = scene(spoke, |_, _| None);
    scene_spoke.run_step(Step::Prove(target(checked_status("Off")))).await;
    assert_eq!(scene_spoke.log(), [STATUS]);
    let status = scene_spoke.written("nodefences")["status"].clone();
    assert_eq!((&status["phase"], status.get("evidence")), (&json!("Fencing"), None));
    for power in ["On", "Unknown"] {
        let scene = scene(There::default(), |_, _| None);
        scene.ends(Step::Prove(target(checked_status(power))), "changed").await;
        scene.silent();
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
async fn the_taint_needs_evidence_that_holds_and_keeps_what_others_put_there() {
    let theirs = json!([{ "key": "k", "value": "v", "effect": "NoSchedule", "unknownField": 1 }]);
    let mut there = There { proof: Some(proof(false)), ..There::default() };
    there.node["spec"]["taints"] = theirs.clone();
    let (held, outcome) = taint::tainted(there.clone(), target(checked_status("Off"))).await;
    assert_eq!((outcome, held.requests()), ("written", vec![NODE.to_owned(), STATUS.to_owned()]));
    let taints = held.written("/nodes/")["spec"]["taints"].clone();
    assert_eq!(taints[0], theirs[0]);
    assert_eq!((&taints[1]["key"], &taints[1]["value"]), (&json!(OUT_OF_SERVICE_TAINT), &json!("n-1")));
    let mut ready = there.clone();
    ready.node["status"]["conditions"][0]["status"] = json!("True");
    let mut booted = there.clone();
    booted.node["status"]["nodeInfo"]["bootID"] = json!(NEXT_BOOT);
    let invalid = There { proof: Some(proof(true)), ..there.clone() };
    let none = There { proof: None, ..there };
    for (there, wanted) in [(ready, "heard"), (booted, "refused"), (invalid, "refused"), (none, "gone")] {
        let (scene, outcome) = taint::tainted(there, target(checked_status("Off"))).await;
        assert_eq!((outcome, scene.requests()), (wanted, Vec::new()));
    }
}

#[tokio::test(start_paused = true)]
async fn only_our_own_taint_is_taken_away_and_only_from_another_life() {
    let ours = json!({ "key": OUT_OF_SERVICE_TAINT, "value": "n-1", "effect": "NoExecute" });
    let theirs = json!({ "key": OUT_OF_SERVICE_TAINT, "value": "nodeshutdown", "effect": "NoExecute" });
    let mut back = There::default();
    back.node["spec"]["taints"] = json!([ours]);
    back.node["status"]["nodeInfo"]["bootID"] = json!(NEXT_BOOT);
    back.node["status"]["conditions"][0]["status"] = json!("True");
    let scene_back = scene(back.clone(), |_, _| None);
    scene_back.ends(Step::Untaint(target(checked_status("Off"))), "written").await;
    assert_eq!(scene_back.log(), [NODE, STATUS]);
    assert_eq!(scene_back.written("/nodes/")["spec"]["taints"], json!([]));
    let mut same = back.clone();
    same.node["status"]["nodeInfo"]["bootID"] = json!(BOOT);
    let scene_same = scene(same, |_, _| None);
    scene_same.ends(Step::Untaint(target(checked_status("Off"))), "changed").await;
    scene_same.silent();
    back.node["spec"]["taints"] = json!([theirs]);
    let foreign = scene(back, |_, _| None);
    foreign.ends(Step::Untaint(target(checked_status("Off"))), "written").await;
    assert_eq!(foreign.log(), [STATUS], "somebody else's taint stays");
}

#[tokio::test(start_paused = true)]
async fn a_contradiction_first_invalidates_the_evidence_then_distrusts_the_device() {
    let others = json!([{ "type": "Trusted", "status": "True", "reason": "r", "message": "m", "lastTransitionTime": "t" },
        { "type": "Answers", "status": "True", "reason": "r", "message": "m", "lastTransitionTime": "t" }]);
    let mut known = device();
    known["status"] = json!({ "conditions": others });
    let there = There { proof: Some(proof(false)), device: Some(known), ..There::default() };
    let scene = scene(there, |_, _| None);
    // What another level tried before, and nobody saw off, said nothing that is untrue.
    let mut status = checked_status("Off");
    let pdu = DeviceRef { name: "pdu".to_owned(), ..bmc() };
    let tried = Attempt { verified: None, devices: vec![pdu], ..status.attempts[0].clone() };
    status.attempts.insert(0, tried);
    scene.ends(Step::Contradict(target(status)), "written").await;
    assert!(scene.api.requests().iter().all(|asked| !asked.path.contains("pdu")));
    assert_eq!(
        scene.log(),
        [
            "PATCH /apis/pod-safety.dev/v1alpha1/fenceevidences/n-1/status",
            "PATCH /apis/pod-safety.dev/v1alpha1/namespaces/fencing/fencedevices/bmc/status",
            STATUS
        ]
    );
    let conditions = scene.written("fencedevices")["status"]["conditions"].clone();
    let said = |at: usize| (conditions[at]["type"].clone(), conditions[at]["status"].clone());
    assert_eq!(conditions.as_array().unwrap().len(), 2, "{conditions}");
    assert_eq!((said(0), said(1)), ((json!("Answers"), json!("True")), (json!("Trusted"), json!("False"))));
    let meant = scene.written("fenceevidences")["metadata"].clone();
    let read = &proof(false)["metadata"];
    assert_eq!((&meant["uid"], &meant["resourceVersion"]), (&read["uid"], &read["resourceVersion"]));
    assert_eq!(scene.events().await, [("uid-bmc".to_owned(), "EvidenceContradicted".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_device_that_is_being_asked_is_left_when_the_term_ends() {
    let mut scene = scene(There::default(), |_, _| None);
    scene.leadership = Leadership::for_tests(scene.env.now() + Duration::from_secs(10));
    let began = scene.env.now();
    scene.ends(Step::Attempt(target(tried("off"))), "not_leader").await;
    assert_eq!(scene.env.now().since(began), Duration::from_secs(10));
    assert_eq!(scene.log(), [STATUS, "device off"], "the intent is there for whoever leads next");
    advance(60.0).await;
    assert_eq!(scene.log().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_device_that_does_not_keep_to_its_time_is_left() {
    // The shorter of what the attempt says and of what the device has.
    for (within_seconds, within) in [(60, 60), (5, 5), (90, 60)] {
        let scene = scene(There::default(), |_, _| None);
        let mut wanted = tried("off");
        wanted.attempts[0].within_seconds = within_seconds;
        scene.ends(Step::Attempt(target(wanted)), "written").await;
        let outcome = scene.written("nodefences")["status"]["attempts"][0]["outcome"].clone();
        assert!(outcome.as_str().unwrap().contains(&format!("no answer within {within}s")), "{outcome}");
    }
}

fn wish(nodes: &[&str], whole: bool) -> MonitorRequest {
    let nodes = nodes.iter().map(|node| Arc::from(*node)).collect();
    let uid = Uid::new("uid-bmc").unwrap();
    MonitorRequest { device: bmc(), uid, nodes, is_complete: whole, test: Some("now".to_owned()) }
}

#[tokio::test(start_paused = true)]
async fn a_look_through_names_what_is_wrong_in_a_word_and_answers_who_asked() {
    let login = |_, _| Some(Err(DeviceError::Login { said: "401".to_owned() }));
    let held = scene(There::default(), login);
    assert_eq!(held.run_monitor(&wish(&["n"], true)).await.name(), "written");
    let status = held.written("/fencedevices/bmc/status")["status"].clone();
    assert_eq!((&status["tested"], &status["observedGeneration"]), (&json!("now"), &json!(2)));
    assert_eq!(status["targets"][0]["problem"], "LoginDenied");
    assert_eq!(status["conditions"][0]["reason"], "LoginDenied", "{status}");
    assert_eq!(held.events().await, [("uid-bmc".to_owned(), "LoginDenied".to_owned())]);
    for (secret, word) in [
        (None, "Secret fencing/bmc does not exist"),
        (Some(json!({ "metadata": lent("bmc"), "data": {} })), "has no key"),
    ] {
        let scene = scene(There { secret, ..There::default() }, |_, _| None);
        assert_eq!(scene.run_monitor(&wish(&["n"], true)).await.name(), "written");
        let target = scene.written("/fencedevices/bmc/status")["status"]["targets"][0].clone();
        assert_eq!(target["problem"], "BadSecret");
        let message = target["message"].as_str().unwrap();
        assert!(message.contains(word) && message.contains("password"), "{message}");
    }
    let stranger = |_, _| {
        let identity = Identity::Mismatch { found: "uuid-2".to_owned() };
        Some(Ok(Answer::new(Power::On, identity, String::new())))
    };
    let scene = scene(There::default(), stranger);
    assert_eq!(scene.run_monitor(&wish(&["n"], true)).await.name(), "written");
    let target = scene.written("/fencedevices/bmc/status")["status"]["targets"][0].clone();
    assert_eq!((&target["problem"], &target["identity"]), (&json!("AnotherMachine"), &json!("Mismatch")));
}

#[tokio::test(start_paused = true)]
async fn a_look_at_one_node_leaves_what_is_known_of_the_others() {
    let mut there = There::default();
    let mut device = device();
    device["status"] = json!({
        "observedGeneration": 1,
        "conditions": [],
        "targets": [{ "node": "m", "power": "Unknown", "message": "no answer", "problem": "TimedOut" },
            { "node": "n", "power": "Unknown", "message": "no answer", "problem": "TimedOut" }],
    });
    there.device = Some(device["spec"].clone());
    there.first = Arc::new(move |asked: &Received| {
        let is_it = asked.method == "GET" && asked.path.ends_with("/fencedevices/bmc");
        is_it.then(|| Says::json(&device))
    });
    let scene = scene(there, |_, _| answer_with(Power::On));
    assert_eq!(scene.run_monitor(&wish(&["n"], false)).await.name(), "written");
    let status = scene.written("/fencedevices/bmc/status")["status"].clone();
    assert_eq!(status["observedGeneration"], 1, "the others were not looked at since it changed");
    let powers: Vec<_> = status["targets"].as_array().unwrap().iter().map(|one| &one["power"]).collect();
    assert_eq!(powers, ["Unknown", "On"]);
    assert_eq!(status["conditions"][0]["reason"], "TimedOut", "the other one is silent still");
}

#[tokio::test(start_paused = true)]
async fn what_changed_with_a_device_is_said_once_it_is_written_and_what_stays_is_not() {
    let told = async |reason: &str, power: Power| {
        let ready = if reason == "AllTargetsReachable" { "True" } else { "False" };
        let condition = json!({ "type": "Ready", "status": ready, "reason": reason, "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z" });
        let spec = json!({ "spec": device()["spec"], "status": { "conditions": [condition] } });
        let scene = scene(There { device: Some(spec), ..There::default() }, move |_, _| answer_with(power));
        assert_eq!(scene.run_monitor(&wish(&["n"], true)).await.name(), "written");
        scene.events().await.into_iter().map(|(_, word)| word).collect::<Vec<_>>()
    };
    assert_eq!(told("AllTargetsReachable", Power::On).await, [""; 0]);
    assert_eq!(told("LoginDenied", Power::On).await, ["DeviceReachable"]);
    assert_eq!(told("AllTargetsReachable", Power::Unknown).await, ["PowerUnknown"]);
    assert_eq!(told("LoginDenied", Power::Unknown).await, ["PowerUnknown"], "another thing is wrong");
    assert_eq!(told("PowerUnknown", Power::Unknown).await, [""; 0]);
    // What could not be written is said when it is.
    let refused: First =
        Arc::new(|asked| (asked.method == "PATCH").then(|| Says::with_code(409, &json!({ "code": 409 }))));
    let scene = scene(There { first: refused, ..There::default() }, |_, _| answer_with(Power::On));
    assert_ne!(scene.run_monitor(&wish(&["n"], true)).await.name(), "written");
    assert_eq!(scene.events().await, []);
}

#[tokio::test(start_paused = true)]
async fn our_taint_goes_with_evidence_that_was_withdrawn_and_stays_while_it_holds() {
    let ours = json!({ "key": OUT_OF_SERVICE_TAINT, "value": "n-1", "effect": "NoExecute" });
    let mut there = There { proof: Some(proof(true)), ..There::default() };
    there.node["spec"]["taints"] = json!([ours]);
    let withdrawn = scene(there.clone(), |_, _| None);
    withdrawn.ends(Step::Withdraw(target(checked_status("Off"))), "written").await;
    assert_eq!(withdrawn.log(), [NODE, STATUS]);
    assert_eq!(withdrawn.written("/nodes/")["spec"]["taints"], json!([]));
    there.proof = Some(proof(false));
    let holds = scene(there, |_, _| None);
    holds.ends(Step::Withdraw(target(checked_status("Off"))), "changed").await;
    holds.silent();
}

/// Seed 22210: a second confirmation held.
#[tokio::test(start_paused = true)]
async fn bug_a_contradiction_took_away_the_taint_that_other_evidence_bears_out() {
    let ours = json!({ "key": OUT_OF_SERVICE_TAINT, "value": "n-1", "effect": "NoExecute" });
    for (tainted, written) in [(false, &[NODE, STATUS][..]), (true, &[STATUS])] {
        let mut there = There::default();
        there.node["spec"]["taints"] = json!([ours]);
        let scene = scene(there, |_, _| None);
        let status = NodeFenceStatus { tainted, ..NodeFenceStatus::default() };
        scene.ends(Step::Contradict(target(status)), "written").await;
        assert_eq!(scene.log(), written);
    }
}

#[test]
fn a_step_says_whom_it_is_about_if_that_is_there() {
    assert_eq!(Step::Open(Box::new(spec())).target(), None);
    let target = target(tried("off"));
    for step in
        [Step::Write, Step::Attempt, Step::Look, Step::Prove, Step::Taint, Step::Untaint, Step::Contradict]
    {
        assert_eq!(step(target.clone()).target(), Some(&target));
    }
}
