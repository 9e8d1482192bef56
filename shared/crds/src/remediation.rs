//! `PodSafetyRemediation` and its template: medik8s' NodeHealthCheck, and other operators that follow its contract,
//! request with them that a node is fenced.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Condition;

/// The annotation that names the node of a remediation; without it, the node has the remediation's name.
pub const NODE_NAME_ANNOTATION: &str = "remediation.medik8s.io/node-name";
/// The annotation that marks a remediation as timed out.
pub const TIMED_OUT_ANNOTATION: &str = "remediation.medik8s.io/nhc-timed-out";
/// The finalizer that keeps a remediation while something that was started for it is in progress.
pub const REMEDIATION_FINALIZER: &str = "pod-safety.dev/fencing";

/// A request of another remediator to fence a node, as long as this object exists.
#[derive(kube::CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "pod-safety.dev",
    version = "v1alpha1",
    kind = "PodSafetyRemediation",
    doc = "A PodSafetyRemediation is a request of another remediator to fence a node, as long as the object exists.",
    plural = "podsafetyremediations",
    shortname = "psr",
    category = "pod-safety",
    namespaced,
    status = "PodSafetyRemediationStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Fence","type":"string","jsonPath":".status.fence"}"#,
    printcolumn = r#"{"name":"Processing","type":"string","jsonPath":".status.conditions[?(@.type==\"Processing\")].status"}"#,
    printcolumn = r#"{"name":"Succeeded","type":"string","jsonPath":".status.conditions[?(@.type==\"Succeeded\")].status"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
pub struct PodSafetyRemediationSpec {}

/// The progress of a remediation, in the terms of the contract.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSafetyRemediationStatus {
    /// The NodeFence of this remediation, about the incarnation in which the remediation found the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<String>,
    /// `Processing`, `Succeeded`, `PermanentNodeDeletionExpected`.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

impl PodSafetyRemediationStatus {
    /// The status of a condition, if it is set.
    #[must_use]
    pub fn condition_status(&self, condition: &str) -> Option<&str> {
        self.conditions.iter().find(|one| one.r#type == condition).map(|one| one.status.as_str())
    }
}

/// The template from which remediations are created.
#[derive(kube::CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "pod-safety.dev",
    version = "v1alpha1",
    kind = "PodSafetyRemediationTemplate",
    doc = "A PodSafetyRemediationTemplate is the template from which other remediators create PodSafetyRemediations.",
    plural = "podsafetyremediationtemplates",
    shortname = "psrt",
    category = "pod-safety",
    namespaced,
    derive = "PartialEq"
)]
pub struct PodSafetyRemediationTemplateSpec {
    /// The remediation.
    pub template: RemediationTemplate,
}

/// The part of a template that is copied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RemediationTemplate {
    /// Its spec.
    pub spec: PodSafetyRemediationSpec,
}
