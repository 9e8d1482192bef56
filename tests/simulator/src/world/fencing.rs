//! What a world has where nodes are fenced: our own kinds, a policy and devices for each node, and
//! the fault that makes a device fail or lie.

use std::sync::Arc;
use std::time::Duration;

use pod_safety_shared::transport::{FenceTransport, NoTransport};
use serde_json::{Value, json};

use super::devices::{Device, HOST, PLUG, Wire};
use super::provider::Provider;
use super::run::World;
use crate::api::Kind;
use crate::campaign::{Agents, Extras, Fencing, Malfunction, Objects, Plan, Plant};

/// Where the devices are.
pub(super) const NAMESPACE: &str = "kube-system";
/// The label by which a policy chooses its node.
pub(crate) const HOSTNAME: &str = "kubernetes.io/hostname";

/// The kinds that are served where nodes are fenced, or volumes guarded: by their evidence; and where people's commands ask
/// for them.
pub(super) fn kinds(plan: &Plan) -> Vec<Kind> {
    let Extras { fencing, guarded_volumes, furnished, evictions, .. } = plan.with;
    let own = match (furnished, fencing.is_some() || guarded_volumes.is_some()) {
        (true, _) => [Kind::custom_resources(), super::initial_objects::kinds()].concat(),
        (false, true) => Kind::custom_resources(),
        (false, false) => Vec::new(),
    };
    // Last: a kind's number is part of no key that others see.
    let of_others = fencing.and_then(|fencing| fencing.objects).map(super::projects::kinds).unwrap_or_default();
    let own = [own, of_others].concat();
    if evictions.is_some() { [own, Kind::lifecycle()].concat() } else { own }
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    let mut object = json!({ "apiVersion": "pod-safety.dev/v1alpha1", "kind": kind,
        "metadata": { "name": name }, "spec": spec });
    if kind == "FenceDevice" {
        object["metadata"]["namespace"] = NAMESPACE.into();
    }
    object
}

fn device(name: &str, node: &str, tells: bool, required: bool) -> Value {
    let mut spec = json!({
        "driver": if tells { "Redfish" } else { "Agent" },
        "nodeSelector": { "matchLabels": { HOSTNAME: node } },
        "nodeParameters": { node: { HOST: name } },
        "timeouts": { "powerOff": "20s", "powerOn": "20s", "status": "10s" },
        "identityCheck": if required { "Required" } else { "BestEffort" },
    });
    if !tells {
        spec["agent"] = "fence_ipmilan".into();
    }
    object("FenceDevice", name, spec)
}

/// The same for all instances of a provider, but for its node.
fn of_provider(name: &str, node: &str) -> Value {
    object(
        "FenceDevice",
        name,
        json!({
            "driver": "Agent", "agent": "fence_aws", "parameters": { PLUG: "{{.Instance.ID}}" },
            "nodeSelector": { "matchLabels": { HOSTNAME: node } },
            "timeouts": { "powerOff": "20s", "powerOn": "20s", "status": "10s" },
        }),
    )
}

/// An object of another project.
fn of_object(name: &str, node: &str, objects: Objects) -> Value {
    let mut spec = super::projects::driver(objects);
    spec["nodeSelector"] = json!({ "matchLabels": { HOSTNAME: node } });
    spec["timeouts"] = json!({ "powerOff": "60s", "powerOn": "20s", "status": "10s" });
    object("FenceDevice", name, spec)
}

/// The agent of a node.
fn agent(name: &str, node: &str) -> Value {
    object(
        "FenceDevice",
        name,
        json!({
            "driver": "WatchdogLease",
            "nodeSelector": { "matchLabels": { HOSTNAME: node } },
            "timeouts": { "powerOff": "60s", "powerOn": "20s", "status": "10s" },
            "watchdogLease": {
                "classes": ["Hardware"],
                "drilled": [{ "identity": super::agent::IDENTITY, "kernel": super::agent::KERNEL }],
            },
        }),
    )
}

fn policy(node: &str, levels: &[Vec<String>], fencing: Fencing) -> Value {
    let device = |name: &String| json!({ "namespace": NAMESPACE, "name": name });
    let level =
        |names: &Vec<String>| json!({ "name": names.first(), "devices": names.iter().map(device).collect::<Vec<_>>() });
    let mut spec = json!({
        "nodeSelector": { "matchLabels": { HOSTNAME: node } },
        "when": if fencing.always { "Always" } else { "WhenNeeded" },
        "levels": levels.iter().map(level).collect::<Vec<_>>(),
        "recovery": if fencing.power_on { "PowerOn" } else { "Hold" },
    });
    if fencing.corroborated {
        let levels = spec["levels"].as_array_mut().into_iter().flatten();
        levels.for_each(|level| level["corroborate"] = json!(["KubeletPort"]));
    }
    if let Some(seconds) = fencing.not_ready_seconds {
        // A plan that is minimised has smaller numbers than the API accepts.
        spec["unhealthy"] = json!({ "notReadySeconds": seconds.max(30) });
    }
    object("FencePolicy", node, spec)
}

/// A device as it is fitted to a machine.
#[derive(Clone, Copy)]
struct Fitted {
    kind: &'static str,
    tells: bool,
    required: bool,
    /// Which of its two power supplies it switches; `None`: all of it.
    outlet: Option<usize>,
    /// It is a provider's, whose copies may be behind by this.
    behind: Option<Duration>,
}

impl World {
    /// Makes the devices of every node, and the objects that tell of them.
    pub(super) async fn install_devices(self: &Arc<Self>, plan: &Plan) {
        let Some(fencing) = self.with.fencing else { return };
        let nodes = self.machines.lock().len();
        self.install_objects(nodes).await;
        if fencing.behind_seconds.is_some() {
            self.checker.machines_are_instances();
        }
        let group = "/apis/pod-safety.dev/v1alpha1";
        let devices = format!("{group}/namespaces/{NAMESPACE}/fencedevices");
        for node in 0..nodes {
            let mut levels: Vec<Vec<String>> = Vec::new();
            let behind = fencing.behind_seconds.map(|seconds| Duration::from_secs(seconds.into()));
            let tells = fencing.tells && !fencing.pair && behind.is_none();
            // What cannot say which machine it is would prove nothing.
            let outlet = fencing.pair.then_some(0);
            let kind = if behind.is_some() { "ec2" } else { "bmc" };
            let first = Fitted { kind, tells, required: fencing.required, outlet, behind };
            let second = Fitted { kind: "psu", outlet: Some(1), ..first };
            let backup = Fitted { kind: "pdu", tells: false, required: false, outlet: None, behind: None };
            for fitted in [Some(first), fencing.pair.then_some(second), fencing.backup.then_some(backup)] {
                let Some(Fitted { kind, tells, required, outlet, behind }) = fitted else { continue };
                let (name, host) = (format!("{kind}-{node}"), self.node(node));
                let provider = behind.map(Provider::new);
                if provider.is_some() {
                    // Whatever it shows, no deadline is missed by it.
                    self.checker.device_fails(&host, Duration::from_secs(plan.heal_at));
                }
                self.devices.lock().push(Device::new(self, &name, (node, outlet), tells, provider));
                let body = match behind {
                    Some(_) => of_provider(&name, &host),
                    None => device(&name, &host, tells, required),
                };
                self.fit(&devices, body).await;
                match levels.last_mut().filter(|_| kind == "psu") {
                    Some(level) => level.push(name),
                    None => levels.push(vec![name]),
                }
            }
            if let Some(agents) = fencing.agents {
                let (name, host) = (format!("agent-{node}"), self.node(node));
                self.fit(&devices, agent(&name, &host)).await;
                match (agents, levels.first_mut()) {
                    (Agents::Second, Some(first)) => first.push(name),
                    (Agents::Alone, Some(first)) => *first = vec![name],
                    (_, None) => levels.push(vec![name]),
                }
            }
            if let Some(objects) = fencing.objects {
                let (name, host) = (format!("object-{node}"), self.node(node));
                self.checker.device_fails(&host, Duration::from_secs(plan.heal_at));
                self.fit(&devices, of_object(&name, &host, objects)).await;
                levels = vec![vec![name]];
            }
            let body = policy(&self.node(node), &levels, fencing);
            self.fit(&format!("{group}/fencepolicies"), body).await;
        }
    }

    /// A world whose devices the API server refuses would show nothing.
    async fn fit(&self, path: &str, body: Value) {
        let code = self.prepare("POST", path, Some(body.clone())).await;
        assert_eq!(code, 201, "{path}: {body}");
    }

    /// The first device of a node fails or lies for so long.
    pub(super) fn malfunction(&self, node: usize, how: Malfunction, seconds: u64) {
        let until = self.checker.now() + Duration::from_secs(seconds);
        let devices = self.devices.lock();
        let first = devices.iter().filter(|device| device.is_first_of(node));
        first.for_each(|device| device.malfunctions(how, until));
        drop(devices);
        self.checker.device_fails(&self.node(node), until);
    }

    /// All devices are well.
    pub(super) fn heal_devices(&self) {
        self.devices.lock().iter().for_each(|device| device.heal());
    }

    /// How a process under test reaches devices.
    pub(super) fn wire(self: &Arc<Self>, caller: &str, plant: Option<Plant>) -> Arc<dyn FenceTransport> {
        if self.with.fencing.is_none() {
            return Arc::new(NoTransport);
        }
        Arc::new(Wire { world: Arc::clone(self), caller: caller.to_owned(), plant, memory: Arc::default() })
    }
}
