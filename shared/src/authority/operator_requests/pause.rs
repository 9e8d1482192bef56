//! Pauses fencing for a node, or for all nodes of a FencePolicy, and resumes it.
//!
//! The pause of another user is not replaced, and no pause is ended that was not read: both writes carry the
//! resourceVersion of the read. After a conflict the object is read and checked again.

use pod_safety_fence::retry_on_conflict::retry_on_conflict;
use serde_json::{Value, json};

use super::{OperatorError, api};
use crate::api::{PAUSE_ANNOTATION, Pause, RESUMED_ANNOTATION, group_path};
use crate::client::{ApiError, Call, Connection, Method, WriteCall as _};

/// What is not fenced during the pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One node.
    Node(String),
    /// All nodes that a FencePolicy selects.
    Policy(String),
}

impl Scope {
    /// `node/NAME`, `fencepolicy/NAME`.
    #[must_use]
    pub fn object(&self) -> String {
        match self {
            Self::Node(name) => format!("node/{name}"),
            Self::Policy(name) => format!("fencepolicy/{name}"),
        }
    }

    fn path(&self) -> String {
        match self {
            Self::Node(name) => format!("/api/v1/nodes/{name}"),
            Self::Policy(name) => group_path(&format!("fencepolicies/{name}")),
        }
    }

    /// The text of the existing pause.
    fn pause_text(&self, object: &Value) -> Option<String> {
        let stated = match self {
            Self::Node(_) => &object["metadata"]["annotations"][PAUSE_ANNOTATION],
            Self::Policy(_) => &object["spec"]["paused"],
        };
        stated.as_str().map(str::to_owned)
    }

    /// The patch that sets the pause, or removes it (`None`).
    fn patch(&self, object: &Value, pause: Option<&Pause>, resumed: Option<&Pause>) -> Value {
        let text = |pause: Option<&Pause>| pause.map(ToString::to_string);
        let mut body = json!({ "metadata": { "resourceVersion": object["metadata"]["resourceVersion"],
            "annotations": { RESUMED_ANNOTATION: text(resumed) } } });
        match self {
            Self::Node(_) => body["metadata"]["annotations"][PAUSE_ANNOTATION] = json!(text(pause)),
            Self::Policy(_) => body["spec"] = json!({ "paused": text(pause) }),
        }
        body
    }
}

fn is_changed(error: &OperatorError) -> bool {
    matches!(error, OperatorError::Changed { .. })
}

/// Pauses fencing.
///
/// # Errors
/// The object does not exist, is already paused, or could not be written.
pub async fn pause(connection: &Connection, scope: &Scope, pause: &Pause) -> Result<(), OperatorError> {
    retry_on_conflict(is_changed, || pause_once(connection, scope, pause)).await
}

async fn pause_once(connection: &Connection, scope: &Scope, pause: &Pause) -> Result<(), OperatorError> {
    let object = read(connection, scope).await?;
    if let Some(text) = scope.pause_text(&object) {
        return Err(OperatorError::Paused { object: scope.object(), why: text });
    }
    let length = pause.to_string().chars().count();
    if length > Pause::MAX_LENGTH {
        return Err(OperatorError::TooLong { over: length - Pause::MAX_LENGTH });
    }
    write(connection, scope, &scope.patch(&object, Some(pause), None)).await
}

/// Why fencing is paused; `None`: it is not.
///
/// # Errors
/// The object does not exist, or could not be read.
pub async fn read_pause(connection: &Connection, scope: &Scope) -> Result<Option<String>, OperatorError> {
    Ok(scope.pause_text(&read(connection, scope).await?))
}

/// Resumes fencing, and records the user and the reason. Returns the pause that ended.
///
/// # Errors
/// The object does not exist, is not paused, or could not be written.
pub async fn resume(connection: &Connection, scope: &Scope, resumed: &Pause) -> Result<Pause, OperatorError> {
    retry_on_conflict(is_changed, || resume_once(connection, scope, resumed)).await
}

async fn resume_once(connection: &Connection, scope: &Scope, resumed: &Pause) -> Result<Pause, OperatorError> {
    let object = read(connection, scope).await?;
    let Some(text) = scope.pause_text(&object) else {
        return Err(OperatorError::NotPaused { object: scope.object() });
    };
    write(connection, scope, &scope.patch(&object, None, Some(resumed))).await?;
    Ok(Pause::parse(&text))
}

async fn read(connection: &Connection, scope: &Scope) -> Result<Value, OperatorError> {
    let raw = connection.send(Call::get(scope.path()).all_fields()).await;
    match raw.and_then(|raw| raw.to_json().map_err(ApiError::Undecodable)) {
        Ok(object) => Ok(object),
        Err(error) if error.is_not_found() => Err(match scope {
            Scope::Node(name) => OperatorError::NoNode(name.clone()),
            Scope::Policy(name) => OperatorError::NoSuchPolicy(name.clone()),
        }),
        Err(source) => Err(api("reading the object to pause")(source)),
    }
}

async fn write(connection: &Connection, scope: &Scope, body: &Value) -> Result<(), OperatorError> {
    match connection.send(Call::write(Method::Merge, scope.path(), body)).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_changed() => Err(OperatorError::Changed { object: scope.object() }),
        Err(source) => Err(api("writing it")(source)),
    }
}
