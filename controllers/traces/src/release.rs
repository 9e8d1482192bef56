//! Force deletes, and the pods that took over.

use std::sync::Arc;

use jiff::Timestamp;
use pod_safety_shared::model::{PodKey, Uid};
use pod_safety_shared::record::{Action, Record};
use serde_json::Value;

/// A pod that was force deleted because of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// When.
    pub at: Timestamp,
    /// Which pod.
    pub pod: PodKey,
    /// Of which node.
    pub node: Arc<str>,
    /// Why, in a sentence.
    pub message: String,
}

/// The pod that has the name of one that was force deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Successor {
    /// Whose name it has.
    pub predecessor: PodKey,
    /// Its UID.
    pub uid: String,
    /// The node that it runs on.
    pub node: String,
    /// When it was created.
    pub created: Timestamp,
    /// When it was Ready.
    pub ready: Timestamp,
}

impl Release {
    /// By what this process did.
    #[must_use]
    pub fn from_record(record: &Record) -> Option<Self> {
        let (Action::ForceDeleted, Some(pod), Some(node)) = (record.action, &record.pod, &record.node) else {
            return None;
        };
        let (pod, node, message) = (pod.clone(), Arc::clone(node), record.message.clone());
        Some(Self { at: record.at, pod, node, message })
    }

    /// By an Event of a leader before.
    #[must_use]
    pub fn from_event(event: &Value) -> Option<Self> {
        let text =
            |pointer: &str| event.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
        let is_ours = text("/reason") == Some("ForceDeleted") && text("/involvedObject/kind") == Some("Pod");
        if !is_ours || text("/related/kind") != Some("Node") {
            return None;
        }
        let pod = PodKey {
            namespace: text("/involvedObject/namespace")?.into(),
            name: text("/involvedObject/name")?.into(),
            uid: Uid::new(text("/involvedObject/uid")?)?,
        };
        let (node, message) =
            (text("/related/name")?.into(), text("/message").unwrap_or_default().to_owned());
        Some(Self { at: text("/eventTime")?.parse().ok()?, pod, node, message })
    }
}

impl Successor {
    /// By the pod that has this name now; none: it is the same, or not Ready.
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
