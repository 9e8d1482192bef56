//! A drill: what would be done to a node if it were lost, written down by the controller that would do it, with every
//! gate and its numbers. Nothing is switched.

use pod_safety_fence::{dry_run_name, incident_name};
use serde_json::json;

use super::{Examined, OperatorError, api, create, new_fence_spec};
use crate::api::{FenceTrigger, NodeFenceSpec, NodeFenceStatus, Trigger, group_path};
use crate::client::{ApiError, Call, Connection, Method, WriteCall as _};
use crate::wire;

/// An incident, as it was read.
#[derive(Clone, Debug)]
pub struct Drill {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uid: String,
    /// What it is about.
    pub spec: NodeFenceSpec,
    /// How far it is.
    pub status: NodeFenceStatus,
}

/// The NodeFence that [`start_drill`] would write, with its name. Reads only.
///
/// # Errors
/// No policy chooses the node, or that could not be read.
pub async fn plan_drill(
    connection: &Connection,
    examined: &Examined,
    reason: &str,
) -> Result<(String, NodeFenceSpec), OperatorError> {
    let trigger =
        FenceTrigger { kind: Trigger::Person, reason: reason.to_owned(), by: None, condition: None };
    Ok((dry_run_name(&examined.node), new_fence_spec(connection, examined, trigger, true).await?))
}

/// Has the plan for a node written down. What an earlier drill left lying is taken for this one's.
///
/// # Errors
/// No policy chooses the node, or it could not be written.
pub async fn start_drill(
    connection: &Connection,
    examined: &Examined,
    by: &str,
    reason: &str,
) -> Result<String, OperatorError> {
    let name = dry_run_name(&examined.node);
    let trigger = FenceTrigger {
        kind: Trigger::Person,
        reason: reason.to_owned(),
        by: Some(by.to_owned()),
        condition: None,
    };
    let spec = new_fence_spec(connection, examined, trigger, true).await?;
    match create(connection, "NodeFence", "nodefences", json!({ "name": name }), &spec).await {
        Ok(_) | Err(OperatorError::AlreadyExists { .. }) => Ok(name),
        Err(error) => Err(error),
    }
}

/// An incident as it is now; `None`: it is gone.
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

/// Takes a rehearsal away. Danger note: nothing else; a real incident is the log of what was done to a machine.
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
