//! The watchdog Lease of a node's agent, as the API server has it.

use std::collections::BTreeMap;

use pod_safety_watchdog::record::{
    BootSurvival, InvalidAnnotation, ObservedLease, PREFIX, Record, State, Version, lease_name,
};
use serde_json::{Value, json};

use crate::client::{Call, Method, WriteCall as _};

/// The Lease of this node's agent, in this namespace.
pub fn lease_path(namespace: &str, node: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{}", lease_name(node))
}

/// The content of the Lease.
#[derive(Clone, Debug)]
pub struct AgentLease {
    /// The UID of the Lease.
    pub uid: String,
    /// What is recorded as an observation of the Lease.
    pub observed: ObservedLease,
    /// The record of its agent, or why it cannot be decoded.
    pub record: Result<Record, InvalidAnnotation>,
    /// The reset that its agent survived, as it reports.
    pub survived: Option<BootSurvival>,
}

impl AgentLease {
    /// Decodes the object.
    #[must_use]
    pub fn from_object(object: &Value) -> Self {
        let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let annotations = object.pointer("/metadata/annotations").and_then(Value::as_object);
        let texts = annotations.into_iter().flatten();
        let annotations: BTreeMap<String, String> =
            texts.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect();
        let record = Record::from_annotations(&annotations);
        let version = text("/metadata/resourceVersion").into();
        Self {
            uid: text("/metadata/uid").to_owned(),
            observed: ObservedLease { version, record: record.clone().ok() },
            record,
            survived: BootSurvival::from_annotations(&annotations),
        }
    }
}

/// Revokes the grant, at exactly this resourceVersion.
pub fn revocation_call(path: &str, uid: &str, over: &Version) -> Call {
    let state = format!("{PREFIX}state");
    let annotations = json!({ state: State::Revoked.to_string() });
    let body = json!({ "metadata": { "uid": uid, "resourceVersion": &**over, "annotations": annotations } });
    Call::write(Method::Merge, path, &body)
}
