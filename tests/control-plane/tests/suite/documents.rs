//! The documentation works when copied: every YAML block is applied with the real kubectl and API server, and every command of kubectl, helm
//! and curl is run.

mod typed;

use pod_safety_control_plane::{ControlPlane, wait_until};
use pod_safety_locks::documents::blocks;
use serde_json::Value;

/// Marks a block that is no Kubernetes object, with a description, on the line before.
const NOT_APPLIED: &str = "<!-- not applied: ";

#[tokio::test]
async fn bug_every_yaml_block_of_the_documentation_can_be_applied() {
    let mut blocks = blocks().unwrap();
    blocks.retain(|block| block.is_yaml() && !block.before.starts_with(NOT_APPLIED));
    assert!(blocks.len() > 5, "the documentation has blocks");
    let (plane, _) = ControlPlane::with_pod_safety().await.unwrap();
    for block in &blocks {
        for document in serde_saphyr::from_multiple::<Value>(&block.text).unwrap() {
            if let Some(namespace) = document["metadata"]["namespace"].as_str() {
                plane.namespace(namespace).await.unwrap();
            }
        }
        // The API server serves a new kind a moment later.
        wait_until(&block.place(), async || refusal(&plane, &block.text).await.map_or(Ok(()), Err)).await;
    }
    // In YAML 1.1 `off` is a boolean, and kubectl reads it so: this check must detect that.
    let old = "apiVersion: pod-safety.dev/v1alpha1\nkind: FenceDevice\nmetadata: { namespace: pod-safety, name: bmc }\n\
        spec: { driver: Manual, timeouts: { off: 60s } }\n";
    let refused = refusal(&plane, old).await.unwrap();
    assert!(refused.contains("unknown field \"spec.timeouts.false\""), "{refused}");
}

/// The error for it; `None`: it is accepted.
async fn refusal(plane: &ControlPlane, text: &str) -> Option<String> {
    let output = plane.kubectl_with(&["apply", "--dry-run=server", "-f", "-"], text).await.unwrap();
    (!output.status.success()).then_some(output.stderr)
}
