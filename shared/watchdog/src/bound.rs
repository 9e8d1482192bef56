//! How long after the last observation of a grant all guarded processes have ended.
//!
//! `T = n (W + g)(1 + rho) + R + P`, where n is 3 for a device that the kernel pings when it is closed, and 2 for others.
//!
//! Let grant k be the last one. It was sent at `s`, and the controller first observed it at `o`, so `s <= o`. Pet k-1
//! came before `s`. Pet k came before the device fired, so less than one timeout after pet k-1, and less than one
//! timeout after `s`. There is no pet k+1, because the revocation replaced the version that round k+1 names. So the
//! device fires within two timeouts of `s`. Linux adds a ping when the last descriptor of a running device is closed,
//! and the kernel closes it when the agent dies. That is the third.
//!
//! How soon after `s` the agent pets is not in the formula: it may be suspended between its read of the clock and its
//! pet.

use std::time::Duration;

/// The inputs of the wait time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bound {
    /// W: the timeout that the device reports, not the one that was requested.
    pub timeout: Duration,
    /// g: how much later than that the device may fire, because it counts in ticks.
    pub tick: Duration,
    /// rho, in millionths: how much slower than the controller's clock the device may run.
    pub drift_ppm: u32,
    /// R: from the moment when it fires until nothing runs and nothing is in flight to a disk any more.
    pub reset: Duration,
    /// P: for how long, in total, the hypervisor may pause the machine. Zero without one.
    pub pause: Duration,
    /// Whether closing the running device pets it. It does, on Linux.
    pub pings_on_close: bool,
}

impl Bound {
    /// T. None if it exceeds [`Duration::MAX`].
    #[must_use]
    pub fn wait_time(&self) -> Option<Duration> {
        let timeouts = if self.pings_on_close { 3 } else { 2 };
        let one = self.timeout.checked_add(self.tick)?.as_nanos();
        let stretched = (one * timeouts).checked_mul(1_000_000 + u128::from(self.drift_ppm))?;
        let nanos = u64::try_from(stretched.div_ceil(1_000_000)).ok()?;
        Duration::from_nanos(nanos).checked_add(self.reset)?.checked_add(self.pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    const BARE: Bound = Bound {
        timeout: seconds(10),
        tick: seconds(1),
        drift_ppm: 10_000,
        reset: seconds(5),
        pause: Duration::ZERO,
        pings_on_close: true,
    };

    #[test]
    fn the_wait_time_equals_the_values_in_the_docs() {
        let keeper = Bound { pings_on_close: false, ..BARE };
        let short = Bound { timeout: seconds(5), ..BARE };
        for (bound, millis) in [(BARE, 38_330), (keeper, 27_220), (short, 23_180)] {
            assert_eq!(bound.wait_time(), Some(Duration::from_millis(millis)), "{bound:?}");
        }
    }

    #[test]
    fn the_wait_time_is_rounded_up_and_never_overflows() {
        let odd = Bound { timeout: Duration::from_nanos(1), tick: Duration::ZERO, drift_ppm: 1, ..BARE };
        assert_eq!(odd.wait_time(), Some(seconds(5) + Duration::from_nanos(4)));
        assert_eq!(Bound { timeout: Duration::MAX, ..BARE }.wait_time(), None);
        assert_eq!(Bound { timeout: seconds(u64::MAX / 2), ..BARE }.wait_time(), None);
        assert_eq!(Bound { reset: Duration::MAX, ..BARE }.wait_time(), None);
    }
}
