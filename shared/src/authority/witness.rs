//! The first quorum read of a node that the cache misses. From it the quarantine
//! counts, and with it the last read is compared.

use jiff::Timestamp;

use crate::api::Incarnation;
use crate::client::{ApiError, Call, Connection};
use crate::clock::{Env, Mono};
use crate::wire;

/// What a kubelet's Lease looked like. Compared for equality only: its times are
/// by the kubelet's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LeaseSample {
    /// There is none.
    Absent,
    /// There is one, last renewed so.
    Present {
        uid: String,
        renewed: Option<wire::Time>,
        /// `leaseDurationSeconds`.
        seconds: Option<i32>,
    },
}

impl LeaseSample {
    /// When its kubelet renewed it last, by the kubelet's clock, if it says so.
    ///
    /// # Errors
    /// It says what is no time: that is not never.
    pub(super) fn renewed(&self) -> Result<Option<Timestamp>, ApiError> {
        let Self::Present { renewed: Some(renewed), .. } = self else { return Ok(None) };
        let nonsense = || ApiError::ContentType("a Lease with an invalid renewTime".to_owned());
        renewed.timestamp().map(Some).ok_or_else(nonsense)
    }
}

/// Which life of a node a read shows.
pub(super) fn incarnation(name: &str, read: &wire::Node) -> Incarnation {
    let uid = read.metadata.as_ref().and_then(|meta| meta.uid.clone()).unwrap_or_default();
    let info = read.status.as_ref().and_then(|status| status.node_info.as_ref());
    let boot_id = info.and_then(|info| info.boot_id.clone()).unwrap_or_default();
    Incarnation { name: name.to_owned(), uid, boot_id }
}

/// That a quorum read did not find a node, and how its Lease looked then.
#[derive(Clone, Debug)]
pub struct Witness {
    asked_at: Mono,
    answered_at: Mono,
    lease: LeaseSample,
}

impl Witness {
    /// When the read was sent.
    #[must_use]
    pub const fn asked_at(&self) -> Mono {
        self.asked_at
    }

    /// When the answer was there: from here a quarantine counts.
    #[must_use]
    pub const fn answered_at(&self) -> Mono {
        self.answered_at
    }

    pub(super) const fn lease(&self) -> &LeaseSample {
        &self.lease
    }

    /// A witness that no read ever made, for tests of `decide`.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub const fn for_decide_tests(at: Mono) -> Self {
        Self { asked_at: at, answered_at: at, lease: LeaseSample::Absent }
    }
}

/// What one look at a node by quorum read showed.
pub(super) struct Look {
    pub(super) asked_at: Mono,
    pub(super) answered_at: Mono,
    pub(super) node: Option<wire::Node>,
    pub(super) lease: LeaseSample,
}

/// Reads the node and its Lease, both from a quorum (no resourceVersion).
pub(super) async fn look(connection: &Connection, env: &Env, node: &str) -> Result<Look, ApiError> {
    let asked_at = env.now();
    let (read, lease) =
        futures::future::join(read_node(connection, node), read_lease(connection, node)).await;
    Ok(Look { asked_at, node: read?, lease: lease?, answered_at: env.now() })
}

/// The first look: a witness if the node is not there.
pub(super) async fn take(
    connection: &Connection,
    env: &Env,
    node: &str,
) -> Result<Option<Witness>, ApiError> {
    let Look { asked_at, answered_at, node, lease } = look(connection, env, node).await?;
    Ok(node.is_none().then_some(Witness { asked_at, answered_at, lease }))
}

async fn read_node(connection: &Connection, node: &str) -> Result<Option<wire::Node>, ApiError> {
    match connection.send(Call::get(format!("/api/v1/nodes/{node}"))).await {
        Ok(raw) => raw.decode().map(Some).map_err(ApiError::Undecodable),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

async fn read_lease(connection: &Connection, node: &str) -> Result<LeaseSample, ApiError> {
    sample(connection.send(ask_lease(node)).await)
}

/// The question for a kubelet's Lease.
pub(super) fn ask_lease(node: &str) -> Call {
    Call::get(format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}"))
}

/// What the answer shows.
pub(super) fn sample(answer: Result<wire::Raw, ApiError>) -> Result<LeaseSample, ApiError> {
    match answer {
        Ok(raw) => {
            let lease: wire::Lease = raw.decode().map_err(ApiError::Undecodable)?;
            let uid = lease.metadata.and_then(|meta| meta.uid).unwrap_or_default();
            let spec = lease.spec.unwrap_or_default();
            Ok(LeaseSample::Present { uid, renewed: spec.renew_time, seconds: spec.lease_duration_seconds })
        }
        Err(error) if error.is_not_found() => Ok(LeaseSample::Absent),
        Err(error) => Err(error),
    }
}
