//! The CRDs, made from the types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use super::{FenceDevice, FenceEvidence, FencePolicy, GROUP, NodeFence, VERSION};

/// Every CRD of ours.
#[must_use]
pub fn crds() -> Vec<serde_json::Value> {
    let all: [CustomResourceDefinition; 4] =
        [FenceDevice::crd(), FencePolicy::crd(), NodeFence::crd(), FenceEvidence::crd()];
    all.iter().filter_map(|crd| serde_json::to_value(crd).ok()).collect()
}

/// The path of a collection.
#[must_use]
pub fn group_path(plural: &str) -> String {
    format!("/apis/{GROUP}/{VERSION}/{plural}")
}
