//! A kubelet's heartbeat as decisions see it.

use std::sync::Arc;
use std::time::Duration;

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
    pub renew_time: Option<Timestamp>,
    /// `spec.leaseDurationSeconds`, as [`lease_duration`] reads it.
    pub duration: Duration,
}

/// The default of a kubelet's `nodeLeaseDurationSeconds`.
/// docs/assumptions.md: renews-each-quarter
const DEFAULT_DURATION: Duration = Duration::from_secs(40);

/// No cluster works with longer ones: node lifecycle calls a node lost after 50 s without a renewal.
/// docs/assumptions.md: renews-each-quarter
const MAX_DURATION: Duration = Duration::from_secs(600);

/// Within how long a kubelet promises to renew its Lease; what is no duration is the default.
#[must_use]
pub fn lease_duration(seconds: Option<i32>) -> Duration {
    match seconds.map(u64::try_from) {
        Some(Ok(seconds)) if seconds > 0 => Duration::from_secs(seconds).min(MAX_DURATION),
        _ => DEFAULT_DURATION,
    }
}
