//! Quorum reads of nodes and of their Leases, for the kernel.

use pod_safety_proof::{AbsenceRead, LeaseRead, QuorumRead};

use crate::client::{ApiError, Call, Connection};
use crate::clock::Env;
use crate::wire;

/// Reads the node and its Lease, both by a quorum read (no resourceVersion).
/// docs/assumptions.md: quorum-reads-are-current
pub async fn read_node_and_lease(connection: &Connection, env: &Env, node: &str) -> Result<QuorumRead, ApiError> {
    let requested_at = env.now();
    let (read, lease) = futures::future::join(
        connection.send(Call::get(format!("/api/v1/nodes/{node}"))),
        connection.send(lease_call(node)),
    )
    .await;
    let (read, lease) = (none_if_missing(read)?, none_if_missing(lease)?);
    QuorumRead::decode(node, (requested_at, env.now()), read.as_ref(), lease.as_ref()).map_err(ApiError::Undecodable)
}

/// Reads the node; returns the first read of its absence if it does not exist.
pub async fn read_absence(connection: &Connection, env: &Env, node: &str) -> Result<Option<AbsenceRead>, ApiError> {
    Ok(AbsenceRead::from_read(read_node_and_lease(connection, env, node).await?))
}

/// The request that reads a kubelet's Lease.
pub fn lease_call(node: &str) -> Call {
    Call::get(format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}"))
}

/// Decodes the answer to [`lease_call`].
pub fn decode_lease(answer: Result<wire::Raw, ApiError>) -> Result<LeaseRead, ApiError> {
    LeaseRead::decode(none_if_missing(answer)?.as_ref()).map_err(ApiError::Undecodable)
}

/// `None`: the object does not exist.
fn none_if_missing(answer: Result<wire::Raw, ApiError>) -> Result<Option<wire::Raw>, ApiError> {
    match answer {
        Ok(raw) => Ok(Some(raw)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The error for a Lease whose renewTime cannot be parsed.
pub fn invalid_renew_time(error: pod_safety_proof::InvalidRenewTime) -> ApiError {
    ApiError::Malformed(error.to_string())
}
