//! Watches changes of nodes and pods.

use std::time::Instant;

use anyhow::Result;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Client, ResourceExt as _};

use crate::listener::Listener;

pub(super) enum NodeChange {
    /// A node's Ready condition is Unknown.
    Lost { node: String, at: Instant },
    /// A pod's Ready condition is not True.
    Marked { pod: String, at: Instant },
    /// A pod was deleted gracefully.
    Deleted { pod: String, node: String, at: Instant },
    /// Something else.
    Other,
}

pub(super) type Watcher = Listener<NodeChange>;

/// Watches changes from now on.
pub(super) async fn watch(client: Client) -> Result<Watcher> {
    let mut watcher = Watcher::new();
    watcher.watch_kind(client.clone(), of_node).await?;
    watcher.watch_kind(client, of_pod).await?;
    Ok(watcher)
}

fn of_node(node: &Node, at: Instant) -> NodeChange {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
    if ready.any(|ready| ready.status == "Unknown") {
        NodeChange::Lost { node: node.name_any(), at }
    } else {
        NodeChange::Other
    }
}

fn of_pod(pod: &Pod, at: Instant) -> NodeChange {
    let name = pod.name_any();
    if pod.metadata.deletion_timestamp.is_some() {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        return NodeChange::Deleted { pod: name, node, at };
    }
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
    if ready.any(|ready| ready.status != "True") { NodeChange::Marked { pod: name, at } } else { NodeChange::Other }
}
