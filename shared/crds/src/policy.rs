//! `FencePolicy`: when to fence which nodes, in which order, with which limits.
#![expect(unreachable_pub, reason = "the derive makes such items inside functions")]

use kube::KubeSchema;
use pod_safety_model::ConditionState;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Condition, DeviceRef, Grade, NodeSelector};

/// Which nodes are fenced, when, how, and with which limits.
#[derive(kube::CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "pod-safety.dev",
    version = "v1alpha1",
    kind = "FencePolicy",
    doc = "A FencePolicy says which nodes are fenced, when, how, and with which limits.",
    plural = "fencepolicies",
    shortname = "fp",
    category = "pod-safety",
    status = "FencePolicyStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"When","type":"string","jsonPath":".spec.when"}"#,
    printcolumn = r#"{"name":"Mode","type":"string","jsonPath":".spec.mode"}"#,
    printcolumn = r#"{"name":"Priority","type":"integer","jsonPath":".spec.priority"}"#,
    printcolumn = r#"{"name":"Nodes","type":"integer","jsonPath":".status.nodes"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].reason"}"#,
    printcolumn = r#"{"name":"Paused","type":"string","jsonPath":".spec.paused"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct FencePolicySpec {
    /// The nodes that the policy is for.
    #[serde(default)]
    pub node_selector: NodeSelector,
    /// If several policies select a node, the one with the highest priority counts; among equals, the first by name.
    #[serde(default)]
    pub priority: i32,
    /// `DryRun` records what would be done, and does nothing.
    #[serde(default)]
    pub mode: PolicyMode,
    /// When a node is fenced.
    #[serde(default)]
    pub when: When,
    /// With `WhenNeeded`: more kinds of controllers whose pods wait until the old pod has terminated, such as `ReplicaSet` or
    /// `Job`, as written in the pod's ownerReference.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 63)))]
    pub needed_by_kinds: Vec<String>,
    /// When a node counts as lost.
    #[serde(default)]
    pub unhealthy: Unhealthy,
    /// The levels of fencing, tried in this order. All devices of a level must report off.
    #[schemars(length(min = 1, max = 9))]
    pub levels: Vec<Level>,
    /// How often all levels are tried before the incident waits for a person.
    #[serde(default = "rounds")]
    #[schemars(range(min = 1, max = 100))]
    pub rounds: u32,
    /// The limits of fencing.
    #[serde(default)]
    pub brakes: Brakes,
    /// The evidence that is required to force delete pods of these nodes.
    #[serde(default)]
    pub minimum_evidence: Grade,
    /// What happens after all pods are released.
    #[serde(default)]
    pub recovery: Recovery,
    /// Fencing is paused, for this reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub paused: Option<String>,
}

const fn rounds() -> u32 {
    3
}

/// Whether devices are switched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PolicyMode {
    /// Devices are switched.
    #[default]
    Enforce,
    /// The plan is only recorded.
    DryRun,
}

/// When a lost node is fenced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum When {
    /// When a pod there was deleted and has not terminated, and its replacement waits for that. This can be a pod of a
    /// StatefulSet, of an operator's custom resource such as CloudNativePG's Cluster, or of `neededByKinds`. With the volume
    /// guard it can be any pod with an exclusive volume.
    #[default]
    #[serde(rename = "WhenNeeded")]
    Needed,
    /// Always.
    Always,
    /// Only when a person requests it.
    Manual,
}

/// When a node counts as lost, or as unhealthy though its kubelet reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Unhealthy {
    /// Its kubelet has not reported for this many seconds.
    #[serde(default = "silent_seconds")]
    #[schemars(range(min = 10, max = 86_400))]
    pub silent_seconds: u32,
    /// Its kubelet has reported for this many seconds that the node is not ready. If not set, that is no reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 86_400))]
    pub not_ready_seconds: Option<u32>,
    /// Conditions of the Node by which others, such as node-problem-detector, report that it is unhealthy. One of them is
    /// enough. Such a node still runs: it is fenced because this policy says so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub conditions: Vec<UnhealthyCondition>,
    /// The node counts as unhealthy when its condition Ready changes this often. If not set, that is no reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flapping: Option<Flapping>,
    /// For this many seconds the pods of a node that is unhealthy, but reports, are evicted within their
    /// PodDisruptionBudgets before it is powered off. The node is cordoned meanwhile. 0: no drain.
    #[serde(default = "drain_seconds")]
    #[schemars(range(min = 0, max = 86_400))]
    pub drain_seconds: u32,
}

const fn silent_seconds() -> u32 {
    60
}

/// The same time as `brakes.collateralSeconds`: a PodDisruptionBudget delays a drain and a fence equally.
const fn drain_seconds() -> u32 {
    300
}

impl Default for Unhealthy {
    fn default() -> Self {
        Self {
            silent_seconds: silent_seconds(),
            not_ready_seconds: None,
            conditions: Vec::new(),
            flapping: None,
            drain_seconds: drain_seconds(),
        }
    }
}

/// A condition of a Node that makes it unhealthy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("!(self.type in ['Ready', 'pod-safety.dev/NodeUnreachable'])", "for Ready use notReadySeconds and silentSeconds"))]
pub struct UnhealthyCondition {
    /// The type, such as `KernelDeadlock`.
    #[schemars(length(min = 1, max = 316))]
    pub r#type: String,
    /// The status that is unhealthy, in quotes.
    #[serde(default)]
    pub status: ConditionStatus,
    /// The node must have shown it for this many seconds, since its boot.
    #[serde(default = "condition_seconds")]
    #[schemars(range(min = 10, max = 86_400))]
    pub seconds: u32,
}

/// node-problem-detector checks most conditions every 30 s or more often: this is ten checks in a row.
const fn condition_seconds() -> u32 {
    300
}

/// The status of a condition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    /// `"True"`.
    #[default]
    True,
    /// `"False"`.
    False,
    /// `"Unknown"`.
    Unknown,
}

impl ConditionStatus {
    /// Whether a condition has this status. A missing condition has none.
    #[must_use]
    pub const fn matches(self, state: ConditionState) -> bool {
        matches!(
            (self, state),
            (Self::True, ConditionState::True)
                | (Self::False, ConditionState::False)
                | (Self::Unknown, ConditionState::Unknown)
        )
    }
}

/// How often the condition Ready of a node may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Flapping {
    /// The number of changes, in either direction, that makes the node unhealthy.
    #[schemars(range(min = 3, max = 16))]
    pub changes: u32,
    /// Within this many seconds, since its boot.
    #[schemars(range(min = 60, max = 86_400))]
    pub within_seconds: u32,
}

/// A level of fencing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Level {
    /// The name, for people.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// All of these must report off: the two power supplies of one machine, for instance.
    #[schemars(length(min = 1, max = 8))]
    pub devices: Vec<DeviceRef>,
    /// What must bear out, besides all devices, that the machine is off. It proves nothing by itself. By default nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1))]
    pub corroborate: Vec<Corroboration>,
    /// How often the level is tried before the next one.
    #[serde(default = "attempts")]
    #[schemars(range(min = 1, max = 10))]
    pub attempts: u32,
}

/// A second, independent fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Corroboration {
    /// Nothing answers at the kubelet's port of the node, from pod-safety's pod, while that of another node answers.
    KubeletPort,
}

const fn attempts() -> u32 {
    2
}

/// The limits of fencing. The status of the NodeFence shows each of them with its numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Brakes {
    /// How many nodes may be fenced at the same time, over all policies.
    #[serde(default = "max_concurrent")]
    #[schemars(range(min = 1, max = 100))]
    pub max_concurrent: u32,
    /// If more than this percentage of all nodes is lost, no node is fenced: the controller itself is then assumed to be cut
    /// off.
    #[serde(default = "max_unhealthy_percent")]
    #[schemars(range(min = 1, max = 100))]
    pub max_unhealthy_percent: u32,
    /// The same for the nodes of a zone, if at least three of them are lost.
    #[serde(default = "max_unhealthy_zone_percent")]
    #[schemars(range(min = 1, max = 100))]
    pub max_unhealthy_zone_percent: u32,
    /// How long after a fence the next one may begin, in seconds.
    #[serde(default = "cooldown_seconds")]
    #[schemars(range(min = 0, max = 86_400))]
    pub cooldown_seconds: u32,
    /// How long after a node was fenced because it was unhealthy, though it reported, it is not fenced for that again, in
    /// seconds. 0: no delay.
    #[serde(default = "repeat_seconds")]
    #[schemars(range(min = 0, max = 604_800))]
    pub repeat_seconds: u32,
    /// How long a node is not fenced while healthy pods run there that a PodDisruptionBudget needs, in seconds. 0: no delay.
    #[serde(default = "collateral_seconds")]
    #[schemars(range(min = 0, max = 86_400))]
    pub collateral_seconds: u32,
    /// Nodes with the label `node-role.kubernetes.io/control-plane`.
    #[serde(default)]
    pub control_plane: ControlPlane,
}

const fn max_concurrent() -> u32 {
    1
}

const fn max_unhealthy_percent() -> u32 {
    49
}

const fn max_unhealthy_zone_percent() -> u32 {
    55
}

const fn cooldown_seconds() -> u32 {
    60
}

/// A power cycle that did not help is not repeated within an hour.
const fn repeat_seconds() -> u32 {
    3600
}

/// The time for which pods tolerate an unreachable node by default (`tolerationSeconds`).
const fn collateral_seconds() -> u32 {
    300
}

impl Default for Brakes {
    fn default() -> Self {
        Self {
            max_concurrent: max_concurrent(),
            max_unhealthy_percent: max_unhealthy_percent(),
            max_unhealthy_zone_percent: max_unhealthy_zone_percent(),
            cooldown_seconds: cooldown_seconds(),
            repeat_seconds: repeat_seconds(),
            collateral_seconds: collateral_seconds(),
            control_plane: ControlPlane::default(),
        }
    }
}

/// How control-plane nodes are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ControlPlane {
    /// Fenced if more than half of all of them are Ready without it, so that etcd keeps its quorum.
    #[default]
    KeepQuorum,
    /// Never fenced.
    Never,
}

/// What happens after all pods are released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Recovery {
    /// The machine stays off until a person starts it.
    #[default]
    Hold,
    /// The machine is powered on again.
    PowerOn,
}

/// The observed state of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FencePolicyStatus {
    /// The generation of the spec that this describes.
    pub observed_generation: i64,
    /// How many nodes have this policy: its nodeSelector chooses them, and no policy of higher priority does.
    pub nodes: u32,
    /// `Ready`: it chooses nodes, and every device of every level can be used and was ready at its last check.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
