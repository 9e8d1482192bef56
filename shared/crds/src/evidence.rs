//! `FenceEvidence`: an immutable fact about one incarnation of a node.
#![expect(unreachable_pub, reason = "the derive makes such items inside functions")]

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ActedOn, DeviceDriver, DeviceRef, FencedStorage, Grade, Incarnation};

/// A fact. It is written once, before anything relies on it, and kept as the answer to "why was my pod force deleted".
#[derive(kube::CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "pod-safety.dev",
    version = "v1alpha1",
    kind = "FenceEvidence",
    plural = "fenceevidences",
    shortname = "fe",
    category = "pod-safety",
    status = "FenceEvidenceStatus",
    derive = "PartialEq",
    // At the root: a rule on `status` is not evaluated when the whole status goes.
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
    /// Of which incarnation.
    pub node: Incarnation,
    /// How it was found.
    pub kind: KindOfEvidence,
    /// The NodeFence that found it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<String>,
    /// The looks that showed it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<Sample>,
    /// The storage that takes nothing from the node any more. Of what runs there this says nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32))]
    pub storage: Vec<FencedStorage>,
    /// `renewTime` of the node's Lease when it was found; a later one contradicts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_renewed: Option<String>,
    /// Which process or person says so.
    #[schemars(length(min = 1, max = 256))]
    pub by: String,
    /// Why a person says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1_024))]
    pub reason: Option<String>,
    /// For how long a person's word releases pods, in seconds from `metadata.creationTimestamp`. None: until it is
    /// withdrawn, or the node begins another life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60, max = 604_800))]
    pub valid_seconds: Option<u32>,
    /// Of kind Asserted: the machine may be switched on again when its pods are released, if its FencePolicy says
    /// `recovery: PowerOn`. Otherwise it stays off until a person starts it: someone who confirms that a machine is off may
    /// be working on it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub power_on: bool,
}

impl FenceEvidenceSpec {
    /// For how long it releases pods; `None`: without end.
    #[must_use]
    pub fn valid_for(&self) -> Option<std::time::Duration> {
        self.valid_seconds.map(|seconds| std::time::Duration::from_secs(seconds.into()))
    }
}

/// How a fact was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum KindOfEvidence {
    /// All its power supplies were off in two looks.
    PowerOff,
    /// The Machine that made it is gone: its provider says that there is no such machine any more.
    Decommissioned,
    /// Another remediator says that it is fenced.
    Remediated,
    /// A storage takes nothing from it any more: that is about volumes there, and releases no pod.
    StorageFenced,
    /// A person says that it is off.
    Asserted,
}

impl KindOfEvidence {
    /// How much it is worth.
    #[must_use]
    pub const fn grade(self) -> Grade {
        match self {
            Self::PowerOff | Self::Decommissioned | Self::StorageFenced => Grade::Verified,
            Self::Remediated | Self::Asserted => Grade::Asserted,
        }
    }

    /// Whether nothing runs any more of the life that it is about.
    #[must_use]
    pub const fn ends_life(self) -> bool {
        match self {
            Self::PowerOff | Self::Decommissioned | Self::Remediated | Self::Asserted => true,
            Self::StorageFenced => false,
        }
    }

    /// What looks by these drivers show, if all of them said off: as much as the weakest of them.
    #[must_use]
    pub fn of(samples: &[Sample]) -> Self {
        // That a storage is fenced says nothing of what runs; alone it is about the storage.
        let switches = |sample: &&Sample| sample.driver != Some(DeviceDriver::NetworkFence);
        let drivers: Vec<_> = samples.iter().filter(switches).map(|sample| sample.driver).collect();
        if drivers.is_empty() && !samples.is_empty() {
            Self::StorageFenced
        } else if drivers.contains(&Some(DeviceDriver::External)) {
            Self::Remediated
        } else if !drivers.is_empty() && drivers.iter().all(|driver| *driver == Some(DeviceDriver::Machine)) {
            Self::Decommissioned
        } else {
            Self::PowerOff
        }
    }
}

/// What a device said at one look.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Sample {
    /// Which device.
    pub device: DeviceRef,
    /// By which driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<DeviceDriver>,
    /// The object that was looked at, if it was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<ActedOn>,
    /// When.
    pub at: String,
    /// `On`, `Off` or `Unknown`.
    pub power: String,
    /// `Match`, `Mismatch` or `Unknown`.
    pub identity: String,
    /// What else it said, or why it said nothing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub said: String,
}

/// What became of a fact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FenceEvidenceStatus {
    /// It is no longer believed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invalidated: Option<Invalidation>,
}

/// Why a fact is no longer believed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Invalidation {
    /// Since when.
    pub at: String,
    /// Why.
    pub reason: String,
}
