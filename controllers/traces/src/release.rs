//! Force deletes, and the successors of the pods.

use std::sync::Arc;

use jiff::Timestamp;
use pod_safety_shared::model::{PodKey, Uid};
use pod_safety_shared::record::{Action, Record};
use serde_json::Value;

/// A pod that was force deleted because of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// When it was force deleted.
    pub at: Timestamp,
    /// The pod.
    pub pod: PodKey,
    /// Its node.
    pub node: Arc<str>,
    /// The message of the record.
    pub message: String,
}

/// The pod that took over the name of a force deleted one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Successor {
    /// The pod whose name it has.
    pub predecessor: PodKey,
    /// Its UID.
    pub uid: String,
    /// The node on which it runs.
    pub node: String,
    /// When it was created.
    pub created: Timestamp,
    /// When it became Ready.
    pub ready: Timestamp,
}

impl Release {
    /// From a record of this process's journal.
    #[must_use]
    pub fn from_record(record: &Record) -> Option<Self> {
        let (Action::ForceDeleted, Some(pod), Some(node)) = (record.action, &record.pod, &record.node) else {
            return None;
        };
        let (pod, node, message) = (pod.clone(), Arc::clone(node), record.message.clone());
        Some(Self { at: record.at, pod, node, message })
    }

    /// From an Event of a previous leader.
    #[must_use]
    pub fn from_event(event: &Value) -> Option<Self> {
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
        let is_force_delete = text("/reason") == Some("ForceDeleted") && text("/involvedObject/kind") == Some("Pod");
        if !is_force_delete || text("/related/kind") != Some("Node") {
            return None;
        }
        let pod = PodKey {
            namespace: text("/involvedObject/namespace")?.into(),
            name: text("/involvedObject/name")?.into(),
            uid: Uid::new(text("/involvedObject/uid")?)?,
        };
        let (node, message) = (text("/related/name")?.into(), text("/message").unwrap_or_default().to_owned());
        Some(Self { at: text("/eventTime")?.parse().ok()?, pod, node, message })
    }
}

impl Successor {
    /// From the pod that has this name now; `None`: it is the same pod, or not Ready.
    #[must_use]
    pub fn from_pod(before: &PodKey, pod: &Value) -> Option<Self> {
        let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str);
        let uid = text("/metadata/uid").filter(|uid| *uid != before.uid.to_string())?.to_owned();
        let conditions = pod.pointer("/status/conditions").and_then(Value::as_array)?;
        let ready = conditions.iter().find(|one| one["type"] == "Ready" && one["status"] == "True")?;
        Some(Self {
            predecessor: before.clone(),
            uid,
            node: text("/spec/nodeName").unwrap_or_default().to_owned(),
            created: text("/metadata/creationTimestamp")?.parse().ok()?,
            ready: ready["lastTransitionTime"].as_str()?.parse().ok()?,
        })
    }
}
