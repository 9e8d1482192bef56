//! The age of timestamps that other clocks wrote.
//!
//! Deadlines use this process's monotonic clock. A timestamp of another clock is converted to an age once, when it is
//! first seen. Two readings of the wall clock serve for that: the first one of this process, carried forward by the
//! monotonic clock, and the latest one. The smaller age counts. A clock that jumps ahead while this process runs
//! makes nothing older (the first reading did not jump), nor does one that was ahead at the start and was corrected
//! since (the latest reading is right). Such clocks can only make things younger, and then decisions are held longer.
//! A clock that is ahead from the start and stays so cannot be detected.

use std::time::Duration;

use jiff::Timestamp;

use crate::clock::Mono;

/// The first reading and the latest one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WallClock(Option<(Reading, Reading)>);

#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Mono,
    wall: Timestamp,
}

impl Reading {
    /// The age of a timestamp of that second at `now`; zero for one in the future.
    fn age(self, seconds: i64, now: Mono) -> Duration {
        let elapsed = i128::try_from(now.since(self.at).as_nanos()).unwrap_or(i128::MAX);
        let age = self.wall.as_nanosecond().saturating_add(elapsed) - i128::from(seconds) * 1_000_000_000;
        Duration::from_nanos(u64::try_from(age.max(0)).unwrap_or(u64::MAX))
    }
}

impl WallClock {
    /// Records a reading of the wall clock.
    pub(super) fn record(&mut self, now: Mono, wall: Timestamp) {
        let latest = Reading { at: now, wall };
        let first = self.0.map_or(latest, |(first, _)| first);
        self.0 = Some((first, latest));
    }

    /// The age of a timestamp of that second. Zero before the clock was read.
    pub(super) fn age(self, seconds: i64, now: Mono) -> Duration {
        self.0.map_or(Duration::ZERO, |(first, latest)| first.age(seconds, now).min(latest.age(seconds, now)))
    }

    /// The age by the latest reading alone, as the check of evidence computes it: where a time limits an operator's
    /// confirmation, cache and check must agree.
    pub(super) fn age_by_latest(self, seconds: i64, now: Mono) -> Duration {
        self.0.map_or(Duration::ZERO, |(_, latest)| latest.age(seconds, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    const NOON: i64 = 1_800_000_000;

    fn wall(readings: &[(u64, i64)]) -> WallClock {
        let mut wall = WallClock::default();
        for (mono, seconds) in readings {
            wall.record(at(*mono), Timestamp::from_second(NOON + seconds).unwrap());
        }
        wall
    }

    #[test]
    fn the_smaller_of_two_ages_counts() {
        type Case<'a> = (&'a str, &'a [(u64, i64)], i64, u64, u64);
        let cases: [Case<'_>; 8] = [
            ("a clock that is right", &[(0, 0), (100, 100)], 40, 100, 60),
            ("between two readings", &[(0, 0), (100, 100)], 40, 110, 70),
            ("from before our start", &[(0, 0)], -300, 0, 300),
            ("from the future", &[(0, 0), (100, 100)], 900, 100, 0),
            ("the clock jumped an hour ahead", &[(0, 0), (100, 3_700)], 40, 100, 60),
            ("the clock jumped an hour back", &[(0, 0), (100, -3_500)], 40, 100, 0),
            ("it was an hour ahead, and was set right", &[(0, 3_600), (100, 100)], 40, 100, 60),
            ("it was an hour behind, and was set right", &[(0, -3_600), (100, 100)], 40, 100, 0),
        ];
        for (sentence, readings, stamp, now, age) in cases {
            assert_eq!(wall(readings).age(NOON + stamp, at(now)), Duration::from_secs(age), "{sentence}");
        }
        assert_eq!(WallClock::default().age(NOON, at(9)), Duration::ZERO, "the clock was never read");
    }

    #[test]
    fn timestamps_out_of_range_give_a_clamped_age() {
        let wall = wall(&[(0, 0)]);
        assert_eq!(wall.age(i64::MAX, at(0)), Duration::ZERO);
        assert!(wall.age(i64::MIN, at(0)) > Duration::from_secs(1 << 33));
    }
}
