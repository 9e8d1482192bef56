//! Quorum reads of nodes and of their Leases, for the judge.

use pod_safety_proof::{LeaseRead, Look, Witness};

use crate::client::{ApiError, Call, Connection};
use crate::clock::Env;
use crate::wire;

/// Reads the node and its Lease, both from a quorum (no resourceVersion).
pub async fn look(connection: &Connection, env: &Env, node: &str) -> Result<Look, ApiError> {
    let asked_at = env.now();
    let (read, lease) = futures::future::join(
        connection.send(Call::get(format!("/api/v1/nodes/{node}"))),
        connection.send(ask_lease(node)),
    )
    .await;
    let (read, lease) = (found(read)?, found(lease)?);
    Look::of(node, (asked_at, env.now()), read.as_ref(), lease.as_ref()).map_err(ApiError::Undecodable)
}

/// A first read, if the node is not there.
pub async fn take(connection: &Connection, env: &Env, node: &str) -> Result<Option<Witness>, ApiError> {
    Ok(Witness::of(look(connection, env, node).await?))
}

/// The question for a kubelet's Lease.
pub fn ask_lease(node: &str) -> Call {
    Call::get(format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}"))
}

/// What the answer shows.
pub fn sample(answer: Result<wire::Raw, ApiError>) -> Result<LeaseRead, ApiError> {
    LeaseRead::of(found(answer)?.as_ref()).map_err(ApiError::Undecodable)
}

/// `None`: there is no such object.
fn found(answer: Result<wire::Raw, ApiError>) -> Result<Option<wire::Raw>, ApiError> {
    match answer {
        Ok(raw) => Ok(Some(raw)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// A Lease whose time cannot be read.
pub fn nonsense(error: pod_safety_proof::InvalidRenewTime) -> ApiError {
    ApiError::Malformed(error.to_string())
}
