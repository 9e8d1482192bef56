//! The custom resources of pod-safety: `pod-safety.dev/v1alpha1`.
//!
//! Duty: the Rust types are the source. The CRDs that the chart ships and that `pod-safety manifests` prints are
//! generated from them, with CEL rules, columns and defaults.
//!
//! | | kind | short | scope | content |
//! |---|---|---|---|
//! | | [`FenceDevice`] | `fd` | namespaced: in the namespace of its Secret | how to reach the device that switches nodes |
//! | | [`FencePolicy`] | `fp` | cluster | when to fence which nodes, in which order, with which limits |
//! | [`NodeFence`] | `nf` | cluster | one incident of one incarnation of a node: intent, attempts, phase |
//! | [`FenceEvidence`] | `fe` | cluster | an immutable fact about one incarnation |
//! | | [`PodSafetyRemediation`] | `psr` | namespaced, by the contract of medik8s | a request of another operator to fence a node; with a template, `psrt` |
//!
//! Invariants: facts are about an *incarnation* of a node ([`Incarnation`]), never about a name. The spec of evidence
//! cannot be changed; it can be invalidated, once. Times in statuses are for operators: no decision compares them
//! with this process's clock.

mod custom_object;
mod device;
mod driver;
mod evidence;
mod fence;
mod pause;
mod policy;
mod remediation;
mod schema;
mod selection;

pub use custom_object::{
    CustomObject, CustomSpec, DeviceKey, DeviceState, FenceDeviceObject, FenceEvidenceObject, FencePolicyObject,
    NodeFenceObject, RemediationObject,
};
pub use device::{
    ActTime, DeviceRef, DrilledWatchdog, External, FenceDevice, FenceDeviceSpec, FenceDeviceStatus, FencedStorage,
    IdentityCheck, IdentityMatch, NetworkFence, OFF_WHILE_REPORTING, PROBLEM_REASONS, SecretParameter, TEST_ANNOTATION,
    TargetObject, TargetStatus, TemplateRef, Timeouts, WatchdogClass, WatchdogLease,
};
pub use driver::{DeviceDriver, DriverProperties, ReachedBy};
pub use evidence::{
    Corroborated, FenceEvidence, FenceEvidenceSpec, FenceEvidenceStatus, Invalidation, Sample, evidence_kind_of,
};
pub use fence::{
    Attempt, DesiredPower, Drain, FenceTrigger, Gate, NodeFence, NodeFenceSpec, NodeFenceStatus, Phase, Trigger,
    TriggerCondition, Verified,
};
pub use pause::{PAUSE_ANNOTATION, Pause, RESUMED_ANNOTATION};
pub use policy::{
    Brakes, ConditionStatus, ControlPlane, Corroboration, FencePolicy, FencePolicySpec, FencePolicyStatus, Flapping,
    Level, PolicyMode, Recovery, Unhealthy, UnhealthyCondition, When,
};
pub use remediation::{
    NODE_NAME_ANNOTATION, PodSafetyRemediation, PodSafetyRemediationSpec, PodSafetyRemediationStatus,
    PodSafetyRemediationTemplate, PodSafetyRemediationTemplateSpec, REMEDIATION_FINALIZER, RemediationTemplate,
    TIMED_OUT_ANNOTATION,
};
pub use schema::{crds, group_path, new_object};
pub use selection::{PROTECTED, is_protected, is_template};

use jiff::Timestamp;
pub use pod_safety_model::{FenceEvidenceKind, Grade, Incarnation};
pub use pod_safety_transport::Power;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The API group.
pub const GROUP: &str = "pod-safety.dev";
/// The version.
pub const VERSION: &str = "v1alpha1";

/// A condition by the API's conventions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// The type, in CamelCase.
    pub r#type: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// The reason, in one CamelCase word.
    pub reason: String,
    /// The reason, for people.
    pub message: String,
    /// When the status last changed.
    pub last_transition_time: String,
}

impl Condition {
    /// The condition that follows those of `before`: if its status is the same, it keeps its transition time, else it
    /// gets `at`. An empty `at` is set when it is written ([`Condition::set_transition_time`]).
    #[must_use]
    pub fn transition(before: &[Self], kind: &str, status: &str, reason: &str, message: &str, at: &str) -> Self {
        let earlier = before.iter().find(|one| one.r#type == kind && one.status == status);
        Self {
            r#type: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_transition_time: earlier.map_or(at, |one| &one.last_transition_time).to_owned(),
        }
    }

    /// When the status last changed, if that can be parsed.
    #[must_use]
    pub fn last_transition(&self) -> Option<Timestamp> {
        self.last_transition_time.parse().ok()
    }

    /// Sets the time of conditions that have none.
    pub fn set_transition_time(conditions: &mut [Self], at: &str) {
        for condition in conditions.iter_mut().filter(|one| one.last_transition_time.is_empty()) {
            at.clone_into(&mut condition.last_transition_time);
        }
    }
}

/// The nodes that are selected. All labels and all expressions must match. An empty selector selects every node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeSelector {
    /// Labels and their values.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub match_labels: std::collections::BTreeMap<String, String>,
    /// Requirements on labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<Expression>,
}

/// A requirement on a label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Expression {
    /// The label's key.
    pub key: String,
    /// The operator of the comparison.
    pub operator: ExpressionOperator,
    /// The values to compare with; only for `In` and `NotIn`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// How a label is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ExpressionOperator {
    /// Its value is one of these.
    In,
    /// It is missing, or its value is none of these.
    NotIn,
    /// The label exists.
    Exists,
    /// The label does not exist.
    DoesNotExist,
}

impl NodeSelector {
    /// Whether it selects a node with these labels.
    #[must_use]
    pub fn matches(&self, labels: &std::collections::BTreeMap<String, String>) -> bool {
        let fits = |one: &Expression| {
            let value = labels.get(&one.key);
            let listed = value.is_some_and(|value| one.values.contains(value));
            match one.operator {
                ExpressionOperator::In => listed,
                ExpressionOperator::NotIn => !listed,
                ExpressionOperator::Exists => value.is_some(),
                ExpressionOperator::DoesNotExist => value.is_none(),
            }
        };
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(fits)
    }
}

#[cfg(test)]
mod tests;
