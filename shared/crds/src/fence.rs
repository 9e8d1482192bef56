//! `NodeFence`: one incident of one incarnation of a node.
#![expect(unreachable_pub, reason = "the derive makes such items inside functions")]

use jiff::Timestamp;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr};

use super::{
    Condition, ConditionStatus, Corroborated, Corroboration, DeviceRef, FenceEvidenceKind, Incarnation, Power, Sample,
    TargetObject, evidence_kind_of,
};

/// One incident. Its name is derived from the node and its incarnation, so that it cannot be created twice.
#[derive(kube::CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "pod-safety.dev",
    version = "v1alpha1",
    kind = "NodeFence",
    doc = "A NodeFence is one incident: the fencing of one incarnation of a node, with each attempt and what came of it.",
    plural = "nodefences",
    shortname = "nf",
    category = "pod-safety",
    status = "NodeFenceStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Node","type":"string","jsonPath":".spec.node.name"}"#,
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"Level","type":"integer","jsonPath":".status.level","priority":1}"#,
    printcolumn = r#"{"name":"Evidence","type":"string","jsonPath":".status.evidence"}"#,
    printcolumn = r#"{"name":"Message","type":"string","jsonPath":".status.message"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("self.node == oldSelf.node && self.policy == oldSelf.policy && self.trigger == oldSelf.trigger", "an incident's node, policy and trigger cannot be changed; delete it and create another"),
    validation = ("!(has(oldSelf.cancelled) && oldSelf.cancelled) || (has(self.cancelled) && self.cancelled)", "what is cancelled stays so; delete it and create another"),
    validation = ("!(has(oldSelf.dryRun) && oldSelf.dryRun) || (has(self.dryRun) && self.dryRun)", "a dry run stays one; delete it and create another"),
)]
pub struct NodeFenceSpec {
    /// The incarnation that is fenced.
    pub node: Incarnation,
    /// The FencePolicy that applies.
    pub policy: String,
    /// Why.
    pub trigger: FenceTrigger,
    /// The incident is only recorded; no device is switched.
    #[serde(default)]
    pub dry_run: bool,
    /// No new attempt begins. An attempt that is under way is still verified, because it may take effect.
    #[serde(default)]
    pub cancelled: bool,
    /// The machine stays off after its pods are released, until this is `false`: a person works on it.
    #[serde(default)]
    pub keep_off: bool,
}

/// Why a node is fenced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FenceTrigger {
    /// The origin of the incident.
    pub kind: Trigger,
    /// The reason, for people.
    pub reason: String,
    /// The person or remediation that requested it, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// With `Unhealthy`: the condition that the Node shows. Not set: it flaps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<TriggerCondition>,
}

/// A condition that a Node shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TriggerCondition {
    /// Its type.
    pub r#type: String,
    /// Its status.
    pub status: ConditionStatus,
}

/// The origin of the incident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Trigger {
    /// The node does not report, or reports that it is not Ready, for longer than the policy allows.
    Detected,
    /// The node reports, and counts as unhealthy by the policy: it shows a condition, or flaps.
    Unhealthy,
    /// A person requested it.
    Person,
    /// A PodSafetyRemediation requests it, as long as that object exists.
    External,
}

/// The phase of an incident.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
pub enum Phase {
    /// Its gates are checked.
    #[default]
    Pending,
    /// Fencing is being attempted.
    Fencing,
    /// There is evidence. The pods are being released; the machine stays off.
    Fenced,
    /// All pods are released, and the machine is being powered on.
    Recovering,
    /// The node is back with another boot.
    Done,
    /// It was cancelled before the first attempt, or after all attempts were seen to have had no effect.
    Cancelled,
    /// The node booted again by itself.
    Superseded,
    /// Every level was tried, or the evidence was contradicted: a person is needed.
    AwaitingOperator,
}

impl Phase {
    /// Whether the incident is over.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Cancelled | Self::Superseded)
    }

    /// The phase's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Every phase, for metrics.
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;
}

/// The state of an incident.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeFenceStatus {
    /// The phase.
    pub phase: Phase,
    /// What the incident waits for, in a sentence.
    pub message: String,
    /// The gates, with the numbers from when they were written.
    pub gates: Vec<Gate>,
    /// The level of the policy that is tried, counted from 0.
    pub level: u32,
    /// How many rounds over all levels had no success.
    pub rounds: u32,
    /// The attempts, oldest first. Only the latest ones are kept.
    pub attempts: Vec<Attempt>,
    /// The FenceEvidence of this incident.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
    /// pod-safety added the out-of-service taint to the node.
    pub tainted: bool,
    /// The drain before the node is powered off, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain: Option<Drain>,
    /// `Fenced`, `Recovered`, `Stalled`.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

impl NodeFenceStatus {
    /// When it last changed, by its attempts and conditions.
    #[must_use]
    pub fn last_change(&self) -> Option<Timestamp> {
        let attempts = self.attempts.iter().filter_map(Attempt::started_at);
        attempts.chain(self.conditions.iter().filter_map(Condition::last_transition)).max()
    }
}

/// The drain of a node that is unhealthy, but reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Drain {
    /// When the intent was recorded.
    pub began: String,
    /// pod-safety cordoned the node, and uncordons it when the incident is over.
    pub cordoned: bool,
    /// How often its pods were evicted.
    pub rounds: u32,
    /// What the last round left, and why.
    pub message: String,
}

/// A gate: a condition that must be met before an attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Gate {
    /// Its name.
    pub name: String,
    /// Whether it holds the incident back.
    pub holds: bool,
    /// The reason, with its numbers.
    pub message: String,
}

/// The power state that an attempt requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, Display, EnumString)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum DesiredPower {
    /// Off.
    Off,
    /// On.
    On,
    /// A value that this version does not know.
    #[default]
    #[serde(other)]
    Unknown,
}

/// One attempt. It is recorded before any device is contacted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Attempt {
    /// The number of the attempt within its incident.
    pub id: u32,
    /// `off` or `on`.
    #[schemars(with = "String")]
    pub act: DesiredPower,
    /// The level of the policy.
    pub level: u32,
    /// The devices that get the order.
    pub devices: Vec<DeviceRef>,
    /// The objects that some of them act through.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<TargetObject>,
    /// What must bear out, besides the devices, that the machine is off.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub corroborate: Vec<Corroboration>,
    /// The devices that met the machine on, or took the order whatever they had reported. What some devices report as off counts
    /// only of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub met: Vec<DeviceRef>,
    /// When the intent was recorded.
    pub at: String,
    /// The number of seconds after which no part of it runs any more.
    pub within_seconds: u32,
    /// The process that acts.
    pub by: String,
    /// What the devices answered, or why they did not. This is a hint: no decision rests on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// What later status checks showed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified: Option<Verified>,
    /// The FenceEvidence of kind StorageFenced that resulted from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
}

impl Attempt {
    /// When the intent was recorded, if that can be parsed.
    #[must_use]
    pub fn started_at(&self) -> Option<Timestamp> {
        self.at.parse().ok()
    }

    /// When its devices were last checked, if they were.
    #[must_use]
    pub fn last_checked_at(&self) -> Option<Timestamp> {
        let samples = self.verified.iter().flat_map(|verified| &verified.samples);
        samples.filter_map(|sample| sample.at.parse().ok()).max()
    }

    /// Whether its status checks verified that it fenced storage, and nothing else.
    #[must_use]
    pub fn has_fenced_storage(&self) -> bool {
        let off =
            self.verified.as_ref().filter(|verified| self.act == DesiredPower::Off && verified.power == Power::Off);
        off.is_some_and(|verified| evidence_kind_of(&verified.samples) == FenceEvidenceKind::StorageFenced)
    }

    /// Whether its status checks verified that the machine, and with it its processes, is off.
    #[must_use]
    pub fn has_ended_workloads(&self) -> bool {
        self.verified.as_ref().is_some_and(|verified| verified.power == Power::Off) && !self.has_fenced_storage()
    }

    /// How many attempts a status keeps.
    pub const MAX_ATTEMPTS: usize = 20;
}

/// What status checks of all devices of an attempt showed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Verified {
    /// `Off`: each device reported `Off` or `Gone` twice, at least 5 s apart, and 15 s for instances of a provider. `On`: one device reports it. `Unknown`: otherwise.
    #[schemars(with = "String")]
    pub power: Power,
    /// Why the power state is not the wanted one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The observations.
    pub samples: Vec<Sample>,
    /// The second facts that bore them out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub corroborated: Vec<Corroborated>,
    /// `renewTime` of the node's Lease between the checks. Not set: there was no Lease, or it had no `renewTime`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_renewed: Option<String>,
}

impl Verified {
    /// The minimum interval between the two checks: long enough to notice a power supply that flaps, or a machine
    /// that is changing its state. If the kubelet renewed its Lease recently, the interval is as long as the next
    /// renewal may take (`proof::lease_age`).
    /// docs/assumptions.md: two-checks-tell-flapping
    pub const MIN_INTERVAL: std::time::Duration = std::time::Duration::from_secs(5);

    /// The minimum interval for instances of a provider, which may answer from a replica that lags. For wrong
    /// evidence, both checks would have to show the instance as it was before the boot of this incarnation: longer
    /// ago than a boot takes (10 s), plus the time for which its kubelet has not reported (40 s), plus this time. A
    /// replica may lag by minutes: so the first check waits for `--fence-provider-behind`.
    /// docs/assumptions.md: provider-is-current
    pub const MIN_INSTANCE_INTERVAL: std::time::Duration = std::time::Duration::from_secs(15);
}
