//! A kubelet's heartbeat as decisions see it.

use std::sync::Arc;

use jiff::Timestamp;

use super::{Rv, Uid};

/// The Lease of a node in `kube-node-lease`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeLease {
    /// The node's name, which is the Lease's.
    pub name: Arc<str>,
    /// The Lease's own identity.
    pub uid: Uid,
    /// The version that was read.
    pub rv: Rv,
    /// `spec.renewTime` by the kubelet's clock: compared for change, never with our time.
    pub renewed: Option<Timestamp>,
}
