//! For how long a kubelet must have been silent before its silence says anything.
//!
//! A kubelet renews its Lease at a quarter of the Lease's duration, up to 4 % later (Kubernetes `pkg/kubelet/kubelet.go`,
//! `nodeLeaseRenewIntervalFraction`, and component-helpers' `nodelease`): each 10 to 10.4 s by default. Two looks that lie
//! closer together hear nothing of a kubelet that lives. A device that switches another machine is told from one that
//! switches this one by nothing but such a renewal.

use std::time::Duration;

use super::witness::LeaseSample;
use crate::cache::View;
use crate::clock::Mono;
use crate::model::lease_duration;

/// Within this a kubelet that lives has renewed: three eighths of the duration, half as long again as it takes between
/// two renewals. 15 s by default.
fn heard_within(lease: &LeaseSample) -> Duration {
    duration(lease) * 3 / 8
}

fn duration(lease: &LeaseSample) -> Duration {
    let LeaseSample::Present { seconds, .. } = lease else { return lease_duration(None) };
    lease_duration(*seconds)
}

/// For how long this process has seen no renewal of a Lease that is now as `lease` says; zero where the watch is behind.
fn silent_for(name: &str, lease: &LeaseSample, view: &View<'_>, now: Mono) -> Duration {
    let Some(renewal) = view.renewal(name) else { return Duration::ZERO };
    let same = lease.renewed().is_ok_and(|renewed| renewed == renewal.renewed);
    if same { now.since(renewal.at) } else { Duration::ZERO }
}

/// How long to listen after a device said off, until the silence says that the kubelet does not live: no time, where it
/// has been silent for a whole duration already.
pub(super) fn to_listen(name: &str, lease: &LeaseSample, view: &View<'_>, now: Mono) -> Duration {
    let left = duration(lease).saturating_sub(silent_for(name, lease, view, now));
    left.min(heard_within(lease))
}

/// How long until nothing has been heard for so long that a kubelet that lives would have been.
pub(super) fn left(name: &str, lease: &LeaseSample, view: &View<'_>, now: Mono) -> Duration {
    // What has not moved since this process began was looked at by whoever wrote the evidence.
    if view.renewal(name).is_none() {
        return Duration::ZERO;
    }
    heard_within(lease).saturating_sub(silent_for(name, lease, view, now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Kind;
    use crate::testing::World;
    use crate::testing::objects::lease;

    fn says(seconds: Option<i32>) -> LeaseSample {
        let renewed = crate::wire::Time { seconds: Some(1_767_225_607), nanos: None };
        LeaseSample::Present { uid: "uid-lease-n".to_owned(), renewed: Some(renewed), seconds }
    }

    #[test]
    fn a_kubelet_that_lives_is_heard_within_three_eighths_of_what_its_lease_says() {
        for (lease, seconds) in [
            (says(Some(40)), 15),
            (says(Some(8)), 3),
            (says(Some(300)), 112),
            (says(Some(i32::MAX)), 225),
            // What is no duration is the default.
            (says(None), 15),
            (says(Some(0)), 15),
            (says(Some(-1)), 15),
            (LeaseSample::Absent, 15),
        ] {
            assert_eq!(heard_within(&lease).as_secs(), seconds, "{lease:?}");
        }
    }

    /// A planted bug: five seconds were listened, whatever had been heard before.
    #[test]
    fn who_was_silent_for_long_is_not_listened_to_again_and_who_was_heard_is() {
        let world = World::listed();
        let begin = Mono::from_start(Duration::from_secs(100));
        world.apply(Kind::NodeLeases, &lease("n", 7).0, begin);
        let listen = |at: u64, lease: &LeaseSample| {
            to_listen("n", lease, &world.read().view(), begin + Duration::from_secs(at)).as_secs()
        };
        for (silent, seconds) in [(0, 15), (10, 15), (25, 15), (26, 14), (39, 1), (40, 0), (400, 0)] {
            assert_eq!(listen(silent, &says(Some(40))), seconds, "silent for {silent}s");
        }
        let moved = LeaseSample::Present {
            uid: "uid-lease-n".to_owned(),
            renewed: Some(crate::wire::Time { seconds: Some(1_767_225_608), nanos: None }),
            seconds: Some(40),
        };
        assert_eq!(listen(400, &moved), 15, "the watch is behind");
        assert_eq!(listen(400, &LeaseSample::Absent), 15, "it went, and the watch is behind");
        let other = to_listen("m", &says(Some(40)), &world.read().view(), begin + Duration::from_secs(400));
        assert_eq!(other.as_secs(), 15, "a Lease that has not moved since this process began");
    }
}
