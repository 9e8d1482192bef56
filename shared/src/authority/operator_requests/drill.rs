//! A drill: the controller writes down what it would do to a node if the node were lost, with every gate and its numbers.
//! No machine is switched.

use pod_safety_fence::{dry_run_name, incident_name};
use serde_json::json;

use super::{Examined, OperatorError, api, create, new_fence_spec};
use crate::api::{FenceTrigger, NodeFenceSpec, NodeFenceStatus, Trigger, group_path};
use crate::client::{ApiError, Call, Connection, Method, WriteCall as _};
use crate::wire;

/// A NodeFence as it was read.
#[derive(Clone, Debug)]
pub struct Drill {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its spec.
    pub spec: NodeFenceSpec,
    /// Its status.
    pub status: NodeFenceStatus,
}

/// The NodeFence that [`start_drill`] would write, with its name. It only reads.
///
/// # Errors
/// No policy selects the node, or the policies could not be read.
pub async fn plan_drill(
    connection: &Connection,
    examined: &Examined,
    reason: &str,
) -> Result<(String, NodeFenceSpec), OperatorError> {
    let trigger = FenceTrigger { kind: Trigger::Person, reason: reason.to_owned(), by: None, condition: None };
    Ok((dry_run_name(&examined.node), new_fence_spec(connection, examined, trigger, true).await?))
}

/// Starts a drill of a node. A NodeFence that an earlier drill left is used again.
///
/// # Errors
/// No policy selects the node, or the NodeFence could not be written.
pub async fn start_drill(
    connection: &Connection,
    examined: &Examined,
    by: &str,
    reason: &str,
) -> Result<String, OperatorError> {
    let name = dry_run_name(&examined.node);
    let trigger =
        FenceTrigger { kind: Trigger::Person, reason: reason.to_owned(), by: Some(by.to_owned()), condition: None };
    let spec = new_fence_spec(connection, examined, trigger, true).await?;
    match create(connection, "NodeFence", "nodefences", json!({ "name": name }), &spec).await {
        Ok(_) | Err(OperatorError::AlreadyExists { .. }) => Ok(name),
        Err(error) => Err(error),
    }
}

/// Reads an incident; `None`: it does not exist.
///
/// # Errors
/// It could not be read.
pub async fn read_incident(connection: &Connection, name: &str) -> Result<Option<Drill>, OperatorError> {
    type Object = wire::Custom<NodeFenceSpec, NodeFenceStatus>;
    let read = match connection.send(Call::get(group_path(&format!("nodefences/{name}")))).await {
        Ok(raw) => raw.decode::<Object>().map_err(ApiError::Undecodable),
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => Err(error),
    };
    let read = read.map_err(api("reading the NodeFence"))?;
    let uid = read.metadata.uid.clone().unwrap_or_default();
    Ok(Some(Drill { name: name.to_owned(), uid, spec: read.spec, status: read.status.unwrap_or_default() }))
}

/// Deletes the NodeFence of a drill. Danger note: it deletes nothing else, because a real incident records what was done to
/// a machine.
///
/// # Errors
/// It could not be deleted.
pub async fn delete_drill(connection: &Connection, drill: &Drill) -> Result<(), OperatorError> {
    if drill.name == incident_name(&drill.spec.node) {
        return Ok(());
    }
    let body = json!({ "preconditions": { "uid": drill.uid } });
    let call = Call::write(Method::Delete, group_path(&format!("nodefences/{}", drill.name)), &body);
    match connection.send(call).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_not_found() => Ok(()),
        Err(source) => Err(OperatorError::Api { doing: "deleting the drill", source }),
    }
}
