//! How old something is that another's wall clock stamped.
//!
//! Deadlines live on our monotonic clock. A stamp of another clock is turned into an
//! age once, when it is first seen, and never looked at again. The wall clock is read
//! twice for that: as it was when this process first looked at it, carried on by the
//! monotonic clock, and as it is now. The smaller age counts. So a clock that jumps
//! ahead while we run makes nothing older (the first reading did not jump), nor does
//! one that was ahead when we started and was set right since (the second did not);
//! what such clocks can do is make things younger, and holds longer. A clock that is
//! ahead from the start and stays so is believed: there is nothing to doubt it by.

use std::time::Duration;

use jiff::Timestamp;

use crate::clock::Mono;

/// Both readings.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WallClock(Option<(Reading, Reading)>);

#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Mono,
    wall: Timestamp,
}

impl Reading {
    /// How old a stamp of that second is at `now`; one from the future is new.
    fn age(self, seconds: i64, now: Mono) -> Duration {
        let elapsed = i128::try_from(now.since(self.at).as_nanos()).unwrap_or(i128::MAX);
        let age = self.wall.as_nanosecond().saturating_add(elapsed) - i128::from(seconds) * 1_000_000_000;
        Duration::from_nanos(u64::try_from(age.max(0)).unwrap_or(u64::MAX))
    }
}

impl WallClock {
    /// The wall clock says so now.
    pub(super) fn record(&mut self, now: Mono, wall: Timestamp) {
        let latest = Reading { at: now, wall };
        let first = self.0.map_or(latest, |(first, _)| first);
        self.0 = Some((first, latest));
    }

    /// How old a stamp of that second is. Before the clock was read nothing is old.
    pub(super) fn age(self, seconds: i64, now: Mono) -> Duration {
        self.0.map_or(Duration::ZERO, |(first, latest)| first.age(seconds, now).min(latest.age(seconds, now)))
    }

    /// The same by what the clock says now alone, as the judge of evidence reads it: where a time limits what a person
    /// said, the cache and the judge must not differ.
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
        assert_eq!(WallClock::default().age(NOON, at(9)), Duration::ZERO, "nobody read the clock");
    }

    #[test]
    fn stamps_beyond_all_calendars_are_ages_too() {
        let wall = wall(&[(0, 0)]);
        assert_eq!(wall.age(i64::MAX, at(0)), Duration::ZERO);
        assert!(wall.age(i64::MIN, at(0)) > Duration::from_secs(1 << 33));
    }
}
