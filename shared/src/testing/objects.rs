//! Objects as the API server sends them, for the tests of this crate.

use serde_json::{Value, json};

use crate::authority::{Claim, Force};
use crate::model::{PodKey, Uid};

/// An object under construction.
#[derive(Clone, Debug)]
pub(crate) struct Obj(pub(crate) Value);

/// A running pod `ns/NAME` with the UID `uid-NAME` at version 10, bound to no node.
pub(crate) fn pod(name: &str) -> Obj {
    Obj(json!({
        "metadata": { "namespace": "ns", "name": name, "uid": format!("uid-{name}"), "resourceVersion": "10",
            "generation": 3, "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": {},
        "status": { "phase": "Running" },
    }))
}

/// A node with the UID `uid-NAME` at version 5.
pub(crate) fn node(name: &str) -> Obj {
    Obj(json!({
        "metadata": { "name": name, "uid": format!("uid-{name}"), "resourceVersion": "5" },
        "spec": {},
        "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] },
    }))
}

/// The Lease of a node with the UID `lease-NAME`, renewed in that second.
pub(crate) fn lease(name: &str, renewed: u8) -> Obj {
    Obj(json!({
        "metadata": { "name": name, "namespace": "kube-node-lease", "uid": format!("lease-{name}"), "resourceVersion": "3" },
        "spec": { "holderIdentity": name, "renewTime": format!("2026-01-01T00:00:{renewed:02}.000000Z") },
    }))
}

impl Obj {
    /// Sets what the JSON pointer names.
    pub(crate) fn set(mut self, pointer: &str, to: Value) -> Self {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        self.0.pointer_mut(parent).unwrap()[key] = to;
        self
    }
    pub(crate) fn on(self, node: &str) -> Self {
        self.set("/spec/nodeName", json!(node))
    }
    pub(crate) fn phase(self, phase: &str) -> Self {
        self.set("/status/phase", json!(phase))
    }
    pub(crate) fn rv(self, version: u64) -> Self {
        self.set("/metadata/resourceVersion", json!(version.to_string()))
    }
    pub(crate) fn uid(self, uid: &str) -> Self {
        self.set("/metadata/uid", json!(uid))
    }
    pub(crate) fn terminating(self) -> Self {
        self.set("/metadata/deletionTimestamp", json!("2026-01-01T01:00:00Z"))
            .set("/metadata/deletionGracePeriodSeconds", json!(30))
    }
    pub(crate) fn mirror(self) -> Self {
        self.set("/metadata/annotations", json!({ "kubernetes.io/config.mirror": "x" }))
    }
    pub(crate) fn running(self) -> Self {
        self.set("/status/containerStatuses", json!([{ "state": { "running": {} } }]))
    }
    pub(crate) fn ready(self, status: &str) -> Self {
        self.set("/status/conditions", json!([{ "type": "Ready", "status": status }]))
    }
    pub(crate) fn tainted(self) -> Self {
        self.set(
            "/spec/taints",
            json!([{ "key": "node.kubernetes.io/out-of-service", "effect": "NoExecute" }]),
        )
    }
    /// The wish to remove this pod.
    pub(crate) fn force(&self, claim: Claim) -> Force {
        let meta = &self.0["metadata"];
        let text = |field: &str| meta[field].as_str().unwrap();
        let pod =
            PodKey { namespace: text("namespace").into(), name: text("name").into(), uid: uid(text("uid")) };
        Force { pod, rv: text("resourceVersion").parse().unwrap(), claim }
    }
}

pub(crate) fn uid(text: &str) -> Uid {
    Uid::new(text).unwrap()
}
