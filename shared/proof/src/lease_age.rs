//! For how long a kubelet must have been silent before its silence says anything.
//!
//! A kubelet renews its Lease at a quarter of the Lease's duration, up to 4 % later (Kubernetes `pkg/kubelet/kubelet.go`,
//! `nodeLeaseRenewIntervalFraction`, and component-helpers' `nodelease`): each 10 to 10.4 s by default. Two status checks that
//! lie closer together miss every report of a kubelet that runs. Nothing but such a renewal tells a device that switches
//! another machine from one that switches this one.

use std::time::Duration;

use pod_safety_model::Mono;

use crate::facts::{LeaseRead, Liveness};

/// Within this a kubelet that runs has renewed: three eighths of the duration, half as long again as it takes between
/// two renewals. 15 s by default.
#[must_use]
pub fn renewal_window(lease: &LeaseRead) -> Duration {
    lease.duration() * 3 / 8
}

/// For how long this process has seen no renewal of a Lease that is now as `lease` says; zero where the watch is behind.
fn unrenewed_for(name: &str, lease: &LeaseRead, cache: &dyn Liveness, now: Mono) -> Duration {
    let Some(renewal) = cache.renewal(name) else { return Duration::ZERO };
    let same = lease.renewed().is_ok_and(|renewed| renewed == renewal.renewed);
    if same { now.since(renewal.at) } else { Duration::ZERO }
}

/// How long to listen after a device reported off, until the silence says that the kubelet does not run: no time, where it
/// has been silent for a whole duration already.
#[must_use]
pub fn time_to_observe(name: &str, lease: &LeaseRead, cache: &dyn Liveness, now: Mono) -> Duration {
    let remaining = lease.duration().saturating_sub(unrenewed_for(name, lease, cache, now));
    remaining.min(renewal_window(lease))
}

/// How long until there was no report for so long that a kubelet that runs would have reported.
#[must_use]
pub fn remaining(name: &str, lease: &LeaseRead, cache: &dyn Liveness, now: Mono) -> Duration {
    // A Lease that has not moved since this process began was looked at by the process that wrote the evidence.
    if cache.renewal(name).is_none() {
        return Duration::ZERO;
    }
    renewal_window(lease).saturating_sub(unrenewed_for(name, lease, cache, now))
}
