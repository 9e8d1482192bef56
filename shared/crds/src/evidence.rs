//! `FenceEvidence`: an immutable fact about one incarnation of a node.
#![expect(unreachable_pub, reason = "the derive makes such items inside functions")]

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Corroboration, DeviceDriver, DeviceRef, FenceEvidenceKind, FencedStorage, IdentityMatch, Incarnation, Power,
    TargetObject,
};

/// A fact about one incarnation of a node. It is written once, before anything relies on it, and kept as the answer to "why
/// was my pod force deleted".
#[derive(kube::CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "pod-safety.dev",
    version = "v1alpha1",
    kind = "FenceEvidence",
    doc = "A FenceEvidence records a fact about one incarnation of a node, before anything relies on it. It answers why a pod was force deleted.",
    plural = "fenceevidences",
    shortname = "fe",
    category = "pod-safety",
    status = "FenceEvidenceStatus",
    derive = "PartialEq",
    // At the root: a rule on `status` is not evaluated when the whole status is removed.
    validation = (
        "!has(oldSelf.status) || !has(oldSelf.status.invalidated) || (has(self.status) && has(self.status.invalidated))",
        "what is invalid stays so"
    ),
    printcolumn = r#"{"name":"Node","type":"string","jsonPath":".spec.node.name"}"#,
    printcolumn = r#"{"name":"Kind","type":"string","jsonPath":".spec.kind"}"#,
    printcolumn = r#"{"name":"By","type":"string","jsonPath":".spec.by"}"#,
    printcolumn = r#"{"name":"Invalidated","type":"string","jsonPath":".status.invalidated.reason"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = ("self == oldSelf", "evidence cannot be changed; it can be invalidated, in its status"),
    validation = ("(self.kind != 'Asserted') == has(self.fence)", "evidence that a NodeFence found, and only that, names it"),
    validation = ("(self.kind == 'Asserted') == has(self.reason)", "evidence of kind Asserted, and only that, has a reason"),
    validation = ("(self.kind == 'StorageFenced') == has(self.storage)", "evidence of kind StorageFenced, and only that, says which storage it covers"),
    validation = ("self.kind == 'Asserted' || !has(self.validSeconds)", "only evidence of kind Asserted expires: what devices showed is looked at again at each release"),
)]
pub struct FenceEvidenceSpec {
    /// The incarnation that it is about.
    pub node: Incarnation,
    /// How the fact was found.
    pub kind: FenceEvidenceKind,
    /// The NodeFence that found it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<String>,
    /// The status checks that showed it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<Sample>,
    /// The second facts that bore it out. They are checked again at each release.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1))]
    pub corroborated: Vec<Corroborated>,
    /// The storage that accepts no writes from the node any more. This says nothing about processes there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32))]
    pub storage: Vec<FencedStorage>,
    /// `renewTime` of the node's Lease when it was found; a later one contradicts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_renewed: Option<String>,
    /// The process or person that states it.
    #[schemars(length(min = 1, max = 256))]
    pub by: String,
    /// The reason that the person gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1_024))]
    pub reason: Option<String>,
    /// How long a confirmation releases pods, in seconds from `metadata.creationTimestamp`. If not set: until it is withdrawn,
    /// or the node boots again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 604_800))]
    pub valid_seconds: Option<u32>,
    /// For kind Asserted: the machine may be powered on again when its pods are released, if its FencePolicy has
    /// `recovery: PowerOn`. Otherwise it stays off until a person starts it, because the person who confirmed that it is off
    /// may be working on it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub power_on: bool,
}

impl FenceEvidenceSpec {
    /// For how long it allows force deletes; `None`: without limit.
    #[must_use]
    pub fn valid_for(&self) -> Option<std::time::Duration> {
        self.valid_seconds.map(|seconds| std::time::Duration::from_secs(seconds.into()))
    }
}

/// The kind of evidence that samples of these drivers give if all of them are off: that of the weakest of them.
#[must_use]
pub fn evidence_kind_of(samples: &[Sample]) -> FenceEvidenceKind {
    let evidence = |sample: &Sample| sample.driver.map(|driver| driver.properties().evidence);
    // Fenced storage shows nothing about processes; alone it is evidence about the storage.
    let mut ending: Vec<_> = samples.iter().map(|sample| (sample, evidence(sample))).collect();
    ending.retain(|(_, evidence)| *evidence != Some(FenceEvidenceKind::StorageFenced));
    // A watchdog proves as much as a switch: the kind names it only if there is no switch.
    let mut switches = ending.clone();
    switches.retain(|(_, evidence)| *evidence != Some(FenceEvidenceKind::WatchdogLease));
    if samples.is_empty() {
        FenceEvidenceKind::PowerOff
    } else if ending.is_empty() {
        FenceEvidenceKind::StorageFenced
    } else if switches.is_empty() {
        FenceEvidenceKind::WatchdogLease
    } else if switches.iter().any(|(_, evidence)| *evidence == Some(FenceEvidenceKind::Remediated)) {
        FenceEvidenceKind::Remediated
    } else if switches.iter().all(|(_, evidence)| *evidence == Some(FenceEvidenceKind::Decommissioned)) {
        FenceEvidenceKind::Decommissioned
    } else if switches.iter().any(|(sample, _)| sample.instance.is_empty()) {
        FenceEvidenceKind::PowerOff
    } else if switches.iter().all(|(sample, _)| sample.power == Power::Gone) {
        FenceEvidenceKind::InstanceGone
    } else {
        FenceEvidenceKind::InstanceStopped
    }
}

/// A second fact, as it was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Corroborated {
    /// Which one.
    pub fact: Corroboration,
    /// The address and port at which nothing answered.
    #[schemars(length(max = 64))]
    pub address: String,
    /// When that was found.
    pub at: String,
}

/// What a device reported at one status check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Sample {
    /// A reference to a FenceDevice.
    pub device: DeviceRef,
    /// The driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<DeviceDriver>,
    /// The object that was checked, if it was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<TargetObject>,
    /// When the device was checked.
    pub at: String,
    /// The instance that it was asked about, by its ID in `spec.providerID` of the node, if its parameters name that.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub instance: String,
    /// `On`, `Off`, `Gone` (the instance is terminated) or `Unknown`.
    #[schemars(with = "String")]
    pub power: Power,
    /// `Match`, `Mismatch` or `Unknown`.
    #[schemars(with = "String")]
    pub identity: IdentityMatch,
    /// The message of the device, or why there was no answer.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub said: String,
}

/// The state of a fact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FenceEvidenceStatus {
    /// Set when the evidence is invalid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invalidated: Option<Invalidation>,
}

/// Why evidence is invalid.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Invalidation {
    /// When it became invalid.
    pub at: String,
    /// The reason.
    pub reason: String,
}
