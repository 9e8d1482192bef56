//! How long a kubelet must not have renewed its Lease before that counts as a sign that it does not run.
//!
//! A kubelet renews its Lease at a quarter of the Lease's duration, up to 4 % later (Kubernetes `pkg/kubelet/kubelet.go`,
//! `nodeLeaseRenewIntervalFraction`, and component-helpers' `nodelease`): each 10 to 10.4 s by default. Two status checks
//! that lie closer together can fall between two renewals of a kubelet that runs. If a device switches another machine than
//! this one, only such a renewal shows it.

use std::time::Duration;

use pod_safety_model::Mono;

use crate::facts::{LeaseRead, Liveness};

/// A kubelet that runs renews its Lease within this time: three eighths of the lease duration, which is 1.5 times the interval
/// between two renewals. 15 s by default.
#[must_use]
pub fn renewal_window(lease: &LeaseRead) -> Duration {
    lease.duration() * 3 / 8
}

/// For how long this process has seen no renewal of a Lease that equals `lease`. Zero if the watch is behind the quorum read.
fn unrenewed_for(name: &str, lease: &LeaseRead, cache: &dyn Liveness, now: Mono) -> Duration {
    let Some(renewal) = cache.renewal(name) else { return Duration::ZERO };
    let same = lease.renewed().is_ok_and(|renewed| renewed == renewal.renewed);
    if same { now.since(renewal.at) } else { Duration::ZERO }
}

/// How long to watch the Lease after a device reported off, before a missing renewal shows that the kubelet does not run.
/// Zero if the kubelet has not renewed for a whole lease duration already.
#[must_use]
pub fn time_to_observe(name: &str, lease: &LeaseRead, cache: &dyn Liveness, now: Mono) -> Duration {
    let remaining = lease.duration().saturating_sub(unrenewed_for(name, lease, cache, now));
    remaining.min(renewal_window(lease))
}

/// How much longer the kubelet must not renew its Lease before that shows that the kubelet does not run.
#[must_use]
pub fn remaining(name: &str, lease: &LeaseRead, cache: &dyn Liveness, now: Mono) -> Duration {
    // A Lease without a renewal since this process started was checked by the process that wrote the evidence.
    if cache.renewal(name).is_none() {
        return Duration::ZERO;
    }
    renewal_window(lease).saturating_sub(unrenewed_for(name, lease, cache, now))
}
