//! The heartbeat of a kubelet, as decisions see it.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::{Rv, Uid};

/// The Lease of a node in `kube-node-lease`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeLease {
    /// The node's name, which is also the Lease's.
    pub name: Arc<str>,
    /// The UID of the Lease.
    pub uid: Uid,
    /// The version that was read.
    pub rv: Rv,
    /// Its creation time, in seconds of the API server's clock.
    pub created: i64,
    /// `spec.renewTime` by the kubelet's clock: only compared for change, never with this process's time.
    pub renew_time: Option<Timestamp>,
    /// `spec.leaseDurationSeconds`, as [`lease_duration`] reads it.
    pub duration: Duration,
}

/// The default of a kubelet's `nodeLeaseDurationSeconds`.
/// docs/assumptions.md: renews-each-quarter
const DEFAULT_DURATION: Duration = Duration::from_secs(40);

/// The longest duration that is used. No cluster works with a longer one: node lifecycle marks a node as lost after
/// 50 s without a renewal.
/// docs/assumptions.md: renews-each-quarter
const MAX_DURATION: Duration = Duration::from_secs(600);

/// The lease duration within which a kubelet renews; an invalid value counts as the default.
#[must_use]
pub fn lease_duration(seconds: Option<i32>) -> Duration {
    match seconds.map(u64::try_from) {
        Some(Ok(seconds)) if seconds > 0 => Duration::from_secs(seconds).min(MAX_DURATION),
        _ => DEFAULT_DURATION,
    }
}
