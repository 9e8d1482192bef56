//! The mirror pod of a static pod: its kubelet creates it again when it is deleted, as long as its Node exists.
//!
//! As a kubelet of 1.37 does (`mirror_client.go`): it takes the UID of its Node, the owner of the mirror pod, from its
//! own informer, and creates none without. The API server compares that UID with the Node that it knows
//! (`api/node_restriction.rs`). So a kubelet whose Node was deleted creates no mirror pod, and none can show that the
//! kubelet runs.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Kubelet, POLL_INTERVAL, path, str_at};

/// Whether a pod is a mirror pod.
pub(in crate::world) fn is_mirror(pod: &Value) -> bool {
    pod.pointer("/metadata/annotations/kubernetes.io~1config.mirror").is_some()
}

impl Kubelet {
    /// Keeps the mirror pod of its static pod there.
    pub(super) async fn keep_mirror(self: Arc<Self>) {
        loop {
            self.env.sleep(POLL_INTERVAL).await;
            let cached = self.pods.lock().as_ref().map(|pods| pods.values().find(|pod| is_mirror(pod)).cloned());
            match cached {
                // It has received no pods yet.
                None => {}
                Some(Some(mirror)) if mirror.pointer("/metadata/deletionTimestamp").is_some() => {
                    let uid = str_at(&mirror, "/metadata/uid");
                    let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": { "uid": uid } });
                    self.request("DELETE", &path(&mirror), Some(options)).await;
                }
                Some(Some(_)) => {}
                Some(None) => self.make_mirror().await,
            }
        }
    }

    /// The UID of its Node from its informer: the last one received, while nothing arrives.
    pub(super) fn observe_node(&self) -> Option<String> {
        let server = self.world.servers.get(self.server)?;
        let mut owner = self.owner.lock();
        if !self.world.links.is_cut(&self.node, server.name()) {
            let nodes = server.cached_that("Node", |node| str_at(node, "/metadata/name") == &*self.node);
            *owner = nodes.first().map(|node| str_at(node, "/metadata/uid").to_owned());
        }
        owner.clone()
    }

    async fn make_mirror(&self) {
        let Some(owner) = self.observe_node() else {
            return self.world.checker.probe("a kubelet could make no mirror pod: its Node is gone");
        };
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
        match self.request("POST", "/api/v1/namespaces/default/pods", Some(pod)).await {
            Some((201, _)) => self.world.checker.probe("a kubelet made a mirror pod"),
            Some((403 | 404, _)) => {
                self.world.checker.probe("a mirror pod was refused: its Node is gone, or another");
            }
            _ => {}
        }
    }
}
