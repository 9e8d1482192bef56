//! Maintenance of a node by a person, as the conditions of the Node that Kubernetes names for it (KEP-5683): an admin sets
//! one to True while it is so, and to False when it is over. What they say is for people and other controllers; nothing of
//! ours rests on them, and they are no evidence.

use jiff::Timestamp;
use serde_json::json;

use super::{Examined, OperatorError, api, list, merge, request_fence_with};
use crate::api::{Incarnation, NodeFenceSpec, NodeFenceStatus, group_path};
use crate::client::{ApiError, Call, Connection, Method, WriteCall as _};
use crate::wire;

/// The node is being drained.
pub const DRAIN_IN_PROGRESS: &str = "DrainInProgress";
/// It was drained: all that was to go is gone.
pub const DRAINED: &str = "Drained";
/// A person works on it, or is about to.
pub const MAINTENANCE_IN_PROGRESS: &str = "MaintenanceInProgress";

/// One of these conditions, as it is from now on.
#[derive(Clone, Copy, Debug)]
pub struct LifecycleCondition<'a> {
    /// Which.
    pub kind: &'static str,
    /// Whether it is so.
    pub is_true: bool,
    /// Why, in one word.
    pub reason: &'static str,
    /// Who did it, and why.
    pub message: &'a str,
}

/// Says this of a node, whichever life it is in: the Node with this UID.
///
/// # Errors
/// It could not be written.
pub async fn write_conditions(
    connection: &Connection,
    node: &Incarnation,
    at: Timestamp,
    conditions: &[LifecycleCondition<'_>],
) -> Result<(), OperatorError> {
    let path = format!("/api/v1/nodes/{}", node.name);
    let read = connection.send(Call::get(path.clone())).await;
    let read = read.and_then(|raw| raw.decode::<wire::Node>().map_err(ApiError::Undecodable));
    let before = read.map_err(api("reading the node"))?.status.unwrap_or_default().conditions;
    let stamp = format!("{at:.0}");
    let desired = conditions.iter().map(|wanted| {
        let status = if wanted.is_true { "True" } else { "False" };
        let same = |one: &&wire::NodeCondition| one.r#type.as_deref() == Some(wanted.kind);
        let goes_on = before.iter().find(same).is_some_and(|one| one.status.as_deref() == Some(status));
        let mut condition = json!({ "type": wanted.kind, "status": status, "reason": wanted.reason,
            "message": wanted.message, "lastHeartbeatTime": stamp });
        // A strategic merge keeps what it does not name.
        if !goes_on {
            condition["lastTransitionTime"] = json!(stamp);
        }
        condition
    });
    let status = json!({ "conditions": desired.collect::<Vec<_>>() });
    let body = json!({ "metadata": { "uid": node.uid }, "status": status });
    let call = Call::write(Method::Patch, format!("{path}/status"), &body);
    connection.send(call).await.map(drop).map_err(api("writing the conditions of the node"))
}

/// Asks for the node to be switched off, and to stay off until it is released. One that was asked for before is kept off too.
///
/// # Errors
/// No policy chooses the node, or it could not be written.
pub async fn request_keep_off(
    connection: &Connection,
    examined: &Examined,
    by: &str,
    reason: &str,
) -> Result<String, OperatorError> {
    match request_fence_with(connection, examined, by, reason, |spec| spec.keep_off = true).await {
        Err(OperatorError::AlreadyExists { name, .. }) => {
            set_keep_off(connection, &examined.node, &name, true).await.map(|()| name)
        }
        asked => asked,
    }
}

/// Whether the machine of an incident stays off when its pods are released.
///
/// # Errors
/// It could not be written.
pub async fn set_keep_off(
    connection: &Connection,
    node: &Incarnation,
    fence: &str,
    keep: bool,
) -> Result<(), OperatorError> {
    let body = json!({ "spec": { "keepOff": keep } });
    merge(connection, group_path(&format!("nodefences/{fence}")), &body, "NodeFence", node).await
}

#[derive(serde::Deserialize)]
struct Fences {
    items: Vec<wire::Custom<NodeFenceSpec, NodeFenceStatus>>,
}

/// The incidents of a node that are not over, but for dry runs.
async fn list_open(
    connection: &Connection,
    node: &str,
) -> Result<Vec<wire::Custom<NodeFenceSpec, NodeFenceStatus>>, OperatorError> {
    let mut all: Fences = list(connection, "nodefences", "reading the NodeFences").await?;
    all.items.retain(|fence| {
        let over = fence.status.as_ref().is_some_and(|status| status.phase.is_over());
        fence.spec.node.name == node && !fence.spec.dry_run && !over
    });
    Ok(all.items)
}

/// The names of the incidents that keep the machine of a node off.
///
/// # Errors
/// They could not be read.
pub async fn list_kept_off(connection: &Connection, node: &str) -> Result<Vec<String>, OperatorError> {
    let kept = list_open(connection, node).await?.into_iter().filter(|fence| fence.spec.keep_off);
    Ok(kept.filter_map(|fence| fence.metadata.common.name).collect())
}

/// Whether an incident of a node is not over yet.
///
/// # Errors
/// They could not be read.
pub async fn is_being_fenced(connection: &Connection, node: &str) -> Result<bool, OperatorError> {
    Ok(!list_open(connection, node).await?.is_empty())
}
