//! `FencePolicy`: when to fence which nodes, in which order, with which brakes.
#![expect(unreachable_pub, reason = "the derive makes such items inside functions")]

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Condition, DeviceRef, NodeSelector};

/// When, how, and when not.
#[derive(kube::CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "pod-safety.dev",
    version = "v1alpha1",
    kind = "FencePolicy",
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
    /// Which nodes.
    #[serde(default)]
    pub node_selector: NodeSelector,
    /// Of several policies that choose a node the one with the highest priority counts; of equals the first by name.
    #[serde(default)]
    pub priority: i32,
    /// `DryRun` writes down what would be done, and does nothing.
    #[serde(default)]
    pub mode: PolicyMode,
    /// When a node is fenced.
    #[serde(default)]
    pub when: When,
    /// With `WhenNeeded`: further kinds of controllers whose pods wait for the end of the old one, such as `ReplicaSet` or
    /// `Job`, by the word in the pod's ownerReference.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 63)))]
    pub needed_by_kinds: Vec<String>,
    /// When a node counts as lost.
    #[serde(default)]
    pub unhealthy: Unhealthy,
    /// The ways to fence, tried in this order. Of one level all devices must say off.
    #[schemars(length(min = 1, max = 9))]
    pub levels: Vec<Level>,
    /// How often all levels are tried before a person is waited for.
    #[serde(default = "rounds")]
    #[schemars(range(min = 1, max = 100))]
    pub rounds: u32,
    /// What holds fencing back.
    #[serde(default)]
    pub brakes: Brakes,
    /// Which evidence permits to force delete pods of these nodes.
    #[serde(default)]
    pub minimum_evidence: Grade,
    /// What happens when all is released.
    #[serde(default)]
    pub recovery: Recovery,
    /// Fencing pauses, for this reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub paused: Option<String>,
}

const fn rounds() -> u32 {
    3
}

/// Whether anything is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PolicyMode {
    /// It is.
    #[default]
    Enforce,
    /// It is only written down.
    DryRun,
}

/// When a lost node is fenced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum When {
    /// When a pod there was deleted and has not ended, and its replacement waits for that: a pod of a StatefulSet, of a kind
    /// that an operator defines, such as CloudNativePG's Cluster, or of `neededByKinds`; and where volumes are guarded, any
    /// pod with an exclusive volume.
    #[default]
    #[serde(rename = "WhenNeeded")]
    Needed,
    /// Always.
    Always,
    /// When a person asks for it.
    Manual,
}

/// When a node counts as lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Unhealthy {
    /// Its kubelet was not heard for so long.
    #[serde(default = "silent_seconds")]
    #[schemars(range(min = 10, max = 86_400))]
    pub silent_seconds: u32,
    /// Its kubelet says for so long that it is not ready. Nobody says: that is no reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 86_400))]
    pub not_ready_seconds: Option<u32>,
}

const fn silent_seconds() -> u32 {
    60
}

impl Default for Unhealthy {
    fn default() -> Self {
        Self { silent_seconds: silent_seconds(), not_ready_seconds: None }
    }
}

/// A way to fence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Level {
    /// Its name, for people.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// All of these must say off: the two power supplies of one machine, for instance.
    #[schemars(length(min = 1, max = 8))]
    pub devices: Vec<DeviceRef>,
    /// How often it is tried before the next level is.
    #[serde(default = "attempts")]
    #[schemars(range(min = 1, max = 10))]
    pub attempts: u32,
}

const fn attempts() -> u32 {
    2
}

/// What holds fencing back. Each says its numbers in the status of the NodeFence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Brakes {
    /// How many nodes may be fenced at a time, over all policies.
    #[serde(default = "max_concurrent")]
    #[schemars(range(min = 1, max = 100))]
    pub max_concurrent: u32,
    /// If more of all nodes than this are lost, none is fenced: rather we are cut off than they.
    #[serde(default = "max_unhealthy_percent")]
    #[schemars(range(min = 1, max = 100))]
    pub max_unhealthy_percent: u32,
    /// The same for the nodes of a zone, from three lost ones on.
    #[serde(default = "max_unhealthy_zone_percent")]
    #[schemars(range(min = 1, max = 100))]
    pub max_unhealthy_zone_percent: u32,
    /// How long after a fence the next one may begin, in seconds.
    #[serde(default = "cooldown_seconds")]
    #[schemars(range(min = 0, max = 86_400))]
    pub cooldown_seconds: u32,
    /// For how long a node is not fenced on which healthy pods run that a disruption budget cannot spare, in seconds.
    /// 0: it is not waited for.
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

/// As long as pods tolerate a lost node unless they say otherwise (`tolerationSeconds`).
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
            collateral_seconds: collateral_seconds(),
            control_plane: ControlPlane::default(),
        }
    }
}

/// What is done with nodes of the control plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ControlPlane {
    /// Fenced if more than half of all of them are Ready without it, so that etcd keeps its quorum.
    #[default]
    KeepQuorum,
    /// Never fenced.
    Never,
}

/// Which evidence is enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Grade {
    /// The word of a person with the right to confirm.
    #[default]
    Asserted,
    /// What was verified.
    Verified,
}

/// What happens when all is released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Recovery {
    /// The machine stays off until somebody starts it.
    #[default]
    Hold,
    /// It is switched on again.
    PowerOn,
}

/// What is known of a policy.
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
