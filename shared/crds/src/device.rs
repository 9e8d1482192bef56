//! `FenceDevice`: how to reach the devices that switch nodes.
#![expect(unreachable_pub, reason = "the derive makes such items inside functions")]

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use strum::{Display, EnumString, IntoStaticStr};

use pod_safety_transport::{Identity, Power};

use super::{Condition, DeviceDriver, NodeSelector};

/// The annotation by which an operator requests a status check of the device now: a value that was not there before,
/// and after a space the name of a node, if only that node is to be checked.
pub const TEST_ANNOTATION: &str = "pod-safety.dev/test";

/// A device that powers machines on and off, and reports their power state.
#[derive(kube::CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "pod-safety.dev",
    version = "v1alpha1",
    kind = "FenceDevice",
    doc = "A FenceDevice powers machines on and off, and reports their power state.",
    plural = "fencedevices",
    shortname = "fd",
    category = "pod-safety",
    namespaced,
    status = "FenceDeviceStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Driver","type":"string","jsonPath":".spec.driver"}"#,
    printcolumn = r#"{"name":"Agent","type":"string","jsonPath":".spec.agent"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Trusted","type":"string","jsonPath":".status.conditions[?(@.type==\"Trusted\")].status"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("(self.driver == 'Agent') == has(self.agent)", "agent is needed with driver Agent, and only there"),
    validation = ("(self.driver == 'NetworkFence') == has(self.networkFence)", "networkFence is needed with driver NetworkFence, and only there"),
    validation = ("(self.driver == 'External') == has(self.external)", "external is needed with driver External, and only there"),
    validation = ("(self.driver == 'WatchdogLease') == has(self.watchdogLease)", "watchdogLease is needed with driver WatchdogLease, and only there"),
    validation = ("self.driver in ['Machine', 'OpenShiftMachine', 'BareMetalHost'] || !has(self.namespaces)", "namespaces is for the drivers Machine, OpenShiftMachine and BareMetalHost"),
    validation = ("self.driver in ['Agent', 'Redfish'] || !(has(self.parameters) || has(self.nodeParameters) || has(self.secretParameters))", "parameters, nodeParameters and secretParameters are for the drivers Agent and Redfish"),
    validation = ("!has(self.parameters) || !('action' in self.parameters || 'option' in self.parameters || 'method' in self.parameters)", "action, option and method are chosen by pod-safety: it only asks for goals (off, on), never for a pulse (reboot, cycle)"),
    validation = ("!has(self.parameters) || !self.parameters.exists(name, name.matches('(?i)passw|secret|token|community|api[-_]?key|private[-_]key|[-_]kg'))", "a password, token or key must not be a parameter: every reader of FenceDevices would see it. Put it into a Secret, and name that in secretParameters"),
    validation = ("!has(self.nodeParameters) || !self.nodeParameters.exists(node, self.nodeParameters[node].exists(name, name.matches('(?i)passw|secret|token|community|api[-_]?key|private[-_]key|[-_]kg')))", "a password, token or key must not be a parameter: every reader of FenceDevices would see it. Put it into a Secret, and name that in secretParameters"),
)]
pub struct FenceDeviceSpec {
    /// How the device is reached.
    pub driver: DeviceDriver,
    /// The executable of the fence-agents project, such as `fence_ipmilan`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^fence_[a-z0-9_]{1,64}$"))]
    pub agent: Option<String>,
    /// The remediator that is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<External>,
    /// The storage that is fenced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_fence: Option<NetworkFence>,
    /// Which promises of node agents count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watchdog_lease: Option<WatchdogLease>,
    /// The namespaces whose Machines and BareMetalHosts count. If empty, only the Machine that the annotations of the Node name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(regex(pattern = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")))]
    pub namespaces: Vec<String>,
    /// The nodes that the device can switch. A kubelet may set most labels of its node. If the parameters are the same for
    /// every node, only labels that no kubelet may set are allowed, such as those below `node-restriction.kubernetes.io/`.
    #[serde(default)]
    pub node_selector: NodeSelector,
    /// Parameters of the driver. Values may contain `{{.Node.Name}}`, `{{.Node.ProviderID}}`, `{{.Node.SystemUUID}}`,
    /// `{{.Node.Label "key"}}`, with labels below `node-restriction.kubernetes.io/`, which no kubelet may set, and parts of the
    /// providerID: `{{.Instance.ID}}`, and `Zone`, `Region`, `Project`, `Subscription` and `ResourceGroup`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = MOST_PARAMETERS))]
    pub parameters: BTreeMap<String, String>,
    /// Parameters for single nodes, by node name. They override `parameters`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = MOST_NODES), transform = bound_each)]
    pub node_parameters: BTreeMap<String, BTreeMap<String, String>>,
    /// Parameters whose values come from Secrets of this namespace. The annotation `pod-safety.dev/fence-devices` of each
    /// Secret must list this FenceDevice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secret_parameters: Vec<SecretParameter>,
    /// Hosts that may get these Secrets if a parameter depends on a field of the node: names, `*.` and a domain, IP
    /// addresses, or networks (`10.7.0.0/16`). If empty, such a parameter can only name a machine at a host (`plug`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(min = 1, max = 253)))]
    pub allowed_hosts: Vec<String>,
    /// How long each order to the device may take before it is stopped.
    #[serde(default)]
    pub timeouts: Timeouts,
    /// How strictly the machine's identity is compared with the node's `status.nodeInfo.systemUUID`. Only the driver Redfish
    /// can compare it.
    #[serde(default)]
    pub identity_check: IdentityCheck,
    /// Interval of the status checks for each node in normal operation, in seconds. 0: no regular checks.
    #[serde(default = "monitor_seconds")]
    #[schemars(range(min = 0, max = 86_400))]
    pub monitor_seconds: u32,
}

/// No agent of the fence-agents project has this many. Without a bound the API server rejects the rules on parameter
/// names as too expensive.
const MOST_PARAMETERS: u32 = 64;

/// The number of nodes of the largest cluster that Kubernetes is tested with.
const MOST_NODES: u32 = 5_000;

/// Gives the parameters of each node the same bound as those of all nodes.
fn bound_each(schema: &mut schemars::Schema) {
    if let Some(each) = schema.get_mut("additionalProperties").and_then(serde_json::Value::as_object_mut) {
        each.insert("maxProperties".to_owned(), MOST_PARAMETERS.into());
    }
}

const fn monitor_seconds() -> u32 {
    300
}

/// The storage that is fenced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkFence {
    /// The NetworkFenceClass.
    #[schemars(regex(pattern = r"^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$"))]
    pub class_name: String,
    /// The namespace in which its driver runs. Client addresses are read from the CSIAddonsNodes of this namespace alone.
    #[schemars(regex(pattern = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"))]
    pub namespace: String,
}

/// Which promises of node agents count, and for how long they are waited for after a grant was last seen: three times the timeout
/// that the watchdog reports and `tick_seconds`, stretched by `drift_ppm`, and then `reset_seconds` and `pause_seconds`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("!('Virtual' in self.classes) || self.pauseSeconds > 0", "a watchdog stands still while its virtual machine is paused: pauseSeconds must say for how long the hypervisor may pause it"))]
pub struct WatchdogLease {
    /// The classes of watchdogs that are accepted: `Hardware`, `Software` (softdog), or `Virtual` (in a virtual machine, with
    /// `pauseSeconds`). A virtual machine of a public cloud is never accepted.
    #[serde(default = "hardware")]
    #[schemars(length(min = 1, max = 3))]
    pub classes: Vec<WatchdogClass>,
    /// The watchdogs that have reset a machine on time. `pod-safety drill --watchdog NODE` adds to them. No other is accepted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub drilled: Vec<DrilledWatchdog>,
    /// How much later than its timeout the watchdog may fire, in seconds.
    #[serde(default = "tick_seconds")]
    #[schemars(range(min = 1, max = 600))]
    pub tick_seconds: u32,
    /// How much slower than the controller's clock the watchdog may run, in millionths.
    #[serde(default = "drift_ppm")]
    #[schemars(range(min = 1_000, max = 500_000))]
    pub drift_ppm: u32,
    /// From the reset until no write is in flight to a disk any more, in seconds. Add the time of a crash dump, if there is one.
    #[serde(default = "reset_seconds")]
    #[schemars(range(min = 1, max = 3_600))]
    pub reset_seconds: u32,
    /// For how many seconds in total a hypervisor may pause the machine. Only for the class `Virtual`.
    #[serde(default)]
    #[schemars(range(min = 0, max = 3_600))]
    pub pause_seconds: u32,
}

fn hardware() -> Vec<WatchdogClass> {
    vec![WatchdogClass::Hardware]
}

const fn tick_seconds() -> u32 {
    1
}

/// 1 %: twenty times the drift of a crystal.
const fn drift_ppm() -> u32 {
    10_000
}

const fn reset_seconds() -> u32 {
    5
}

/// The kind of a watchdog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WatchdogClass {
    /// A circuit of a machine without a hypervisor.
    Hardware,
    /// A timer of the kernel (softdog), on such a machine.
    Software,
    /// Any watchdog in a virtual machine.
    Virtual,
}

/// A watchdog that has reset its machine on time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrilledWatchdog {
    /// The driver's name for it, such as `iTCO_wdt`.
    #[schemars(length(min = 1, max = 63))]
    pub identity: String,
    /// Its firmware version.
    #[serde(default)]
    pub firmware: u32,
    /// The release of the kernel.
    #[schemars(length(min = 1, max = 128))]
    pub kernel: String,
}

/// The remediator that is used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct External {
    /// Its template, in the namespace of the device.
    pub template_ref: TemplateRef,
    /// The condition that is `True` when the node is fenced. Default: `Succeeded`, `FenceAgentActionSucceeded` for a
    /// FenceAgentsRemediation, `FencingSucceeded` for a StorageBasedRemediation. A SelfNodeRemediation also has fenced it when its
    /// phase is `Reboot-Completed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub success_condition: Option<String>,
}

/// A template of a remediation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateRef {
    /// Group and version.
    #[schemars(regex(pattern = r"^[a-z0-9.-]{1,253}/v[a-z0-9]{1,62}$"))]
    pub api_version: String,
    /// The kind, which ends in `Template`.
    #[schemars(regex(pattern = r"^[A-Z][A-Za-z0-9]{0,54}Template$"))]
    pub kind: String,
    /// The name.
    #[schemars(regex(pattern = r"^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$"))]
    pub name: String,
}

/// A storage that accepts no writes from a node any more.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FencedStorage {
    /// The CSI driver of the volumes.
    #[schemars(length(min = 1, max = 253))]
    pub driver: String,
    /// The NetworkFenceClass.
    #[schemars(length(min = 1, max = 253))]
    pub class_name: String,
}

/// An object of the cluster that a device acts through, as it was found or named when the intent was recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetObject {
    /// The device.
    pub device: DeviceRef,
    /// The driver.
    pub driver: DeviceDriver,
    /// Its path on the API server.
    pub path: String,
    /// Its UID. For an object that is created for the incident: the UID of the NodeFence that owns it.
    pub uid: String,
    /// It reported that it is the node's machine.
    #[serde(default)]
    pub matched: bool,
    /// The addresses that are fenced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cidrs: Vec<String>,
    /// The storage that is fenced, if it is known and the addresses were recorded in this incarnation of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<FencedStorage>,
}

/// A parameter from a Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretParameter {
    /// The parameter.
    pub parameter: String,
    /// The Secret's name. It may contain the same placeholders as values.
    pub secret: String,
    /// The key in it.
    pub key: String,
}

/// From a second to `Order::LONGEST` of the devices. Patterns cost the API server less than rules.
const UP_TO_AN_HOUR: &str =
    r"^(([1-9]|[1-5][0-9])m([1-5]?[0-9]s)?|([1-9][0-9]{0,2}|[12][0-9]{3}|3[0-5][0-9]{2}|3600)s|60m|1h)$";

/// How long orders may take. YAML 1.1 reads `on` and `off` as booleans, so no key here has such a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Timeouts {
    /// Powering off, such as `60s` or `10m`; at most an hour.
    #[schemars(with = "String", regex(pattern = UP_TO_AN_HOUR))]
    pub power_off: ActTime,
    /// Powering on, such as `60s` or `10m`; at most an hour.
    #[schemars(with = "String", regex(pattern = UP_TO_AN_HOUR))]
    pub power_on: ActTime,
    /// A status check, such as `20s`; at most ten minutes.
    #[schemars(with = "String", regex(pattern = r"^([1-9]m([1-5]?[0-9]s)?|10m|([1-9][0-9]?|[1-5][0-9]{2}|600)s)$"))]
    pub status: ActTime,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { power_off: ActTime(60), power_on: ActTime(60), status: ActTime(20) }
    }
}

/// How many seconds an order may take, written as a Kubernetes duration: `60s`, `1m30s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ActTime(pub u32);

impl TryFrom<String> for ActTime {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let read = text.parse::<jiff::SignedDuration>().ok();
        let seconds = read.and_then(|read| u32::try_from(read.as_secs()).ok()).filter(|&seconds| seconds > 0);
        seconds.map(Self).ok_or_else(|| format!("{text:?} is no duration such as 60s or 10m"))
    }
}

impl From<ActTime> for String {
    fn from(ActTime(seconds): ActTime) -> Self {
        format!("{seconds}s")
    }
}

/// How strictly the identity of the machine is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum IdentityCheck {
    /// Rejects evidence unless the device and the Node report the same identity.
    Required,
    /// Rejects evidence if they report different identities.
    #[default]
    BestEffort,
}

/// A reference to a FenceDevice.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct DeviceRef {
    /// Its namespace.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

impl std::fmt::Display for DeviceRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The reason for a device that reports a node off whose kubelet reports.
pub const OFF_WHILE_REPORTING: &str = "SaysOff";

/// The reasons for a problem at a status check: of the transports (`transport::DeviceError`), of the preparation of
/// orders, and of the evaluation of samples.
pub const PROBLEM_REASONS: [&str; 27] = [
    "NoAgent",
    "AgentsUnavailable",
    "BadMetadata",
    "BadParameter",
    "LoginDenied",
    "CredentialsExpired",
    "Throttled",
    "RequestRefused",
    "Unreachable",
    "TlsNotTrusted",
    "TimedOut",
    "Failed",
    "Garbage",
    "NoDevice",
    "NotTrusted",
    "NotForNode",
    "NotFollowed",
    "LabelNotProtected",
    "BadTemplate",
    "HostNotAllowed",
    "IdentityChanged",
    "BadSecret",
    "NotRead",
    "AnotherMachine",
    "IdentityUnknown",
    "PowerUnknown",
    OFF_WHILE_REPORTING,
];

/// The observed state of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FenceDeviceStatus {
    /// The generation of the spec that this status is about.
    pub observed_generation: i64,
    /// `Ready`: every node answered at the last status check. `Trusted`: no evidence from it was contradicted.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// What it reported about its nodes, one entry for each.
    pub targets: Vec<TargetStatus>,
    /// The value of the annotation `pod-safety.dev/test` that was handled last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tested: Option<String>,
}

/// What a device reported about a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TargetStatus {
    /// The node's name.
    pub node: String,
    /// `On`, `Off`, `Gone` (its instance is terminated) or `Unknown`.
    #[schemars(with = "String")]
    pub power: Power,
    /// `Match`, `Mismatch` or `Unknown`.
    #[schemars(with = "String")]
    pub identity: IdentityMatch,
    /// The time of the status check.
    pub looked: String,
    /// The addresses by which the node reaches the storage, from when its kubelet last reported.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<String>,
    /// The boot ID of the incarnation in which they were found.
    #[serde(rename = "bootID", skip_serializing_if = "String::is_empty")]
    pub boot_id: String,
    /// The UID of the Node whose identity is recorded here.
    #[serde(rename = "nodeUID", skip_serializing_if = "String::is_empty")]
    pub node_uid: String,
    /// `status.nodeInfo.systemUUID` of that Node at the first status check, if a parameter contains it or the driver
    /// compares it.
    #[serde(rename = "systemUUID", skip_serializing_if = "String::is_empty")]
    pub system_uuid: String,
    /// `spec.providerID` of that Node at that time, if a parameter contains it.
    #[serde(rename = "providerID", skip_serializing_if = "String::is_empty")]
    pub provider_id: String,
    /// The problem in one word, such as `LoginDenied`, if there is one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub problem: String,
    /// The problem, for people, if there is one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Whether a device reaches the node's machine, as in statuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, Display, EnumString)]
pub enum IdentityMatch {
    /// It reaches the node's machine.
    Match,
    /// It reaches another machine.
    Mismatch,
    /// The device, or the Node, reports no identity. Also a value that this version does not know.
    #[default]
    #[serde(other)]
    Unknown,
}

impl IdentityMatch {
    /// The name in statuses.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl From<&Identity> for IdentityMatch {
    fn from(identity: &Identity) -> Self {
        match identity {
            Identity::Match => Self::Match,
            Identity::Mismatch { .. } => Self::Mismatch,
            Identity::Unknown => Self::Unknown,
        }
    }
}

impl FenceDeviceStatus {
    /// The status of a condition, if it is set.
    #[must_use]
    pub fn condition_status(&self, condition: &str) -> Option<&str> {
        self.conditions.iter().find(|one| one.r#type == condition).map(|one| one.status.as_str())
    }
}
