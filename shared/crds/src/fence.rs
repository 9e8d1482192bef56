//! `NodeFence`: one incident of one incarnation of a node.
#![expect(unreachable_pub, reason = "the derive makes such items inside functions")]

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ActedOn, Condition, DeviceRef, Incarnation, KindOfEvidence, Sample};

/// One incident. Its name is made of the node's and of its incarnation, so that creating it twice is one.
#[derive(kube::CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "pod-safety.dev",
    version = "v1alpha1",
    kind = "NodeFence",
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
    /// Which incarnation.
    pub node: Incarnation,
    /// By which FencePolicy.
    pub policy: String,
    /// Why.
    pub trigger: FenceTrigger,
    /// Only written down, not done.
    #[serde(default)]
    pub dry_run: bool,
    /// No new attempt is begun. What was begun is verified: it may still land.
    #[serde(default)]
    pub cancelled: bool,
}

/// Why a node is fenced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FenceTrigger {
    /// Who began it.
    pub kind: Trigger,
    /// Why, for people.
    pub reason: String,
    /// Which person or remediation, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// Who began it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Trigger {
    /// The policy's conditions came true.
    Detected,
    /// A person asked for it.
    Person,
    /// A PodSafetyRemediation asks for it, for as long as it is there.
    External,
}

/// How far an incident is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// Its gates are looked at.
    #[default]
    Pending,
    /// It is tried.
    Fencing,
    /// There is evidence. The pods are released; the machine is held.
    Fenced,
    /// All is released, and the machine is being switched on.
    Recovering,
    /// The node is back with another boot.
    Done,
    /// It was called off: before anything was begun, or when what was begun had shown itself to be without effect.
    Cancelled,
    /// The node began another life by itself.
    Superseded,
    /// All ways were tried, or what was proved was contradicted: a person is needed.
    AwaitingOperator,
}

impl Phase {
    /// Whether nothing more will come of it.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Cancelled | Self::Superseded)
    }

    /// Its word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Fencing => "Fencing",
            Self::Fenced => "Fenced",
            Self::Recovering => "Recovering",
            Self::Done => "Done",
            Self::Cancelled => "Cancelled",
            Self::Superseded => "Superseded",
            Self::AwaitingOperator => "AwaitingOperator",
        }
    }

    /// Every phase, for metrics.
    pub const ALL: [Self; 8] = [
        Self::Pending,
        Self::Fencing,
        Self::Fenced,
        Self::Recovering,
        Self::Done,
        Self::Cancelled,
        Self::Superseded,
        Self::AwaitingOperator,
    ];
}

/// How an incident goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeFenceStatus {
    /// How far it is.
    pub phase: Phase,
    /// What it waits for, for people.
    pub message: String,
    /// What holds it back, with the numbers of when that was written.
    pub gates: Vec<Gate>,
    /// Which of the policy's levels is tried, from 0 on.
    pub level: u32,
    /// How often all levels were tried without success.
    pub rounds: u32,
    /// What was tried, oldest first. Only the last [`Attempt::KEPT`] are kept.
    pub attempts: Vec<Attempt>,
    /// The FenceEvidence that was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
    /// We put the out-of-service taint on the node.
    pub tainted: bool,
    /// `Fenced`, `Recovered`, `Stalled`.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// Something that must not be in the way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Gate {
    /// Its name.
    pub name: String,
    /// Whether it holds the incident back.
    pub holds: bool,
    /// Why, with its numbers.
    pub message: String,
}

/// One try. It is written down before anything is done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Attempt {
    /// Counts the attempts of an incident.
    pub id: u32,
    /// `off` or `on`.
    pub act: String,
    /// Which level of the policy.
    pub level: u32,
    /// The devices that are asked.
    pub devices: Vec<DeviceRef>,
    /// The objects by which some of them act.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<ActedOn>,
    /// When the intent was written.
    pub at: String,
    /// After so many seconds nothing of it runs any more.
    pub within_seconds: u32,
    /// Which process acts.
    pub by: String,
    /// What the devices answered, or why they did not. A hint: nothing follows from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// What later looks showed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified: Option<Verified>,
    /// The FenceEvidence of kind StorageFenced that came of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
}

impl Attempt {
    /// Whether it was seen to have fenced storage, and nothing else.
    #[must_use]
    pub fn fenced_storage(&self) -> bool {
        let off = self.verified.as_ref().filter(|verified| self.act == "off" && verified.power == "Off");
        off.is_some_and(|verified| KindOfEvidence::of(&verified.samples) == KindOfEvidence::StorageFenced)
    }

    /// Whether its devices were seen to be off, and that ended what ran.
    #[must_use]
    pub fn ended_what_ran(&self) -> bool {
        self.verified.as_ref().is_some_and(|verified| verified.power == "Off") && !self.fenced_storage()
    }

    /// So many attempts are kept in a status.
    pub const KEPT: usize = 20;
}

/// What looks at all devices of an attempt showed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Verified {
    /// `Off`: each device said so twice, at least [`Verified::APART`] apart. `On`: one says so. `Unknown`: else.
    pub power: String,
    /// Why it is not what was wanted.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// What was seen.
    pub samples: Vec<Sample>,
    /// `renewTime` of the node's Lease between the looks; none: there was no Lease, or it did not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_renewed: Option<String>,
}

impl Verified {
    /// How far the two looks lie apart at least: a supply that flaps, or a machine on its way, shows itself. Where the
    /// kubelet was heard lately, they lie as far apart as it takes to hear it again (`authority::silence`).
    pub const APART: std::time::Duration = std::time::Duration::from_secs(5);
}
