//! Maintenance of a node by an operator, as the Node conditions that Kubernetes names for it (KEP-5683). An operator sets a
//! condition to True while it holds, and to False when it is over. The conditions are for operators and other controllers;
//! pod-safety does not use them, and they are no evidence.

use jiff::Timestamp;
use serde_json::json;

use super::{Examined, OperatorError, api, list, merge, request_fence_with};
use crate::api::{Incarnation, NodeFenceSpec, NodeFenceStatus, group_path};
use crate::client::{ApiError, Call, Connection, Method, WriteCall as _};
use crate::wire;

/// The node is being drained.
pub const DRAIN_IN_PROGRESS: &str = "DrainInProgress";
/// The node was drained: all pods that had to leave are gone.
pub const DRAINED: &str = "Drained";
/// An operator works on the node, or is about to.
pub const MAINTENANCE_IN_PROGRESS: &str = "MaintenanceInProgress";

/// One of these conditions, with its new status.
#[derive(Clone, Copy, Debug)]
pub struct LifecycleCondition<'a> {
    /// The type of the condition.
    pub kind: &'static str,
    /// Whether the status is True.
    pub is_true: bool,
    /// The reason, in CamelCase.
    pub reason: &'static str,
    /// The message: the operator and the reason.
    pub message: &'a str,
}

/// Writes these conditions to the Node with this UID, whichever boot it is in.
///
/// # Errors
/// They could not be written.
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
    let desired = conditions.iter().map(|change| {
        let status = if change.is_true { "True" } else { "False" };
        let same = |one: &&wire::NodeCondition| one.r#type.as_deref() == Some(change.kind);
        let unchanged = before.iter().find(same).is_some_and(|one| one.status.as_deref() == Some(status));
        let mut condition = json!({ "type": change.kind, "status": status, "reason": change.reason,
            "message": change.message, "lastHeartbeatTime": stamp });
        // A strategic merge patch keeps fields that it does not name.
        if !unchanged {
            condition["lastTransitionTime"] = json!(stamp);
        }
        condition
    });
    let status = json!({ "conditions": desired.collect::<Vec<_>>() });
    let body = json!({ "metadata": { "uid": node.uid }, "status": status });
    let call = Call::write(Method::Patch, format!("{path}/status"), &body);
    connection.send(call).await.map(drop).map_err(api("writing the conditions of the node"))
}

/// Requests that the node is switched off, and stays off until it is released. An incident that exists already is changed
/// accordingly.
///
/// # Errors
/// No policy selects the node, or the NodeFence could not be written.
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
        request => request,
    }
}

/// Sets whether the machine of an incident stays off when its pods are released.
///
/// # Errors
/// The NodeFence could not be written.
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

/// The incidents of a node that are not over, without dry runs.
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
/// The NodeFences could not be read.
pub async fn list_kept_off(connection: &Connection, node: &str) -> Result<Vec<String>, OperatorError> {
    let kept = list_open(connection, node).await?.into_iter().filter(|fence| fence.spec.keep_off);
    Ok(kept.filter_map(|fence| fence.metadata.common.name).collect())
}

/// Whether an incident of a node is not over.
///
/// # Errors
/// The NodeFences could not be read.
pub async fn is_being_fenced(connection: &Connection, node: &str) -> Result<bool, OperatorError> {
    Ok(!list_open(connection, node).await?.is_empty())
}
