//! The API's copy of a static pod: its kubelet makes it anew when it is deleted, and
//! shows by that that it lives.
//!
//! A kubelet of 1.36 looks for its Node in its informer first, to name it as the
//! owner. This one remembers it, as one does whose informer is behind; garbage
//! collection then takes the copy as it takes the Lease.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Kubelet, LOOK_EACH, path, word};

/// Whether a pod is such a copy.
pub(in crate::world) fn is_mirror(pod: &Value) -> bool {
    pod.pointer("/metadata/annotations/kubernetes.io~1config.mirror").is_some()
}

impl Kubelet {
    /// Keeps the copy of its static pod there, for ever.
    pub(super) async fn keep_mirror(self: Arc<Self>) {
        loop {
            self.env.sleep(LOOK_EACH).await;
            let known =
                self.pods.lock().as_ref().map(|pods| pods.values().find(|pod| is_mirror(pod)).cloned());
            match known {
                // It has heard nothing yet.
                None => {}
                Some(Some(mirror)) if mirror.pointer("/metadata/deletionTimestamp").is_some() => {
                    let uid = word(&mirror, "/metadata/uid");
                    let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": { "uid": uid } });
                    self.ask("DELETE", &path(&mirror), Some(options)).await;
                }
                Some(Some(_)) => {}
                Some(None) => self.make_mirror().await,
            }
        }
    }

    async fn make_mirror(&self) {
        let owner = self.owner.lock().clone();
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": format!("static-{}", self.node), "namespace": "default",
                "annotations": { "kubernetes.io/config.mirror": "0123456789abcdef" },
                "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": &*self.node, "uid": owner, "controller": true }],
            },
            // Every kubelet gives its static pods this toleration.
            "spec": { "nodeName": &*self.node, "containers": [{ "name": "main", "image": "hollow" }],
                "tolerations": [{ "operator": "Exists", "effect": "NoExecute" }] },
        });
        let made = self.ask("POST", "/api/v1/namespaces/default/pods", Some(pod)).await;
        if matches!(made, Some((201, _))) {
            self.world.checker.probe("a kubelet made a mirror pod");
        }
    }
}
