//! A point in monotonic time.

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

/// A point in time on this process's monotonic clock: the time since the clock was created. It never jumps and means
/// nothing in another process. The last one is 584 years after the first.
///
/// It is stored as nanoseconds plus one, so that an `Option` of it takes 8 bytes as well: each of 150,000 pods has
/// several.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(NonZeroU64);

impl Mono {
    /// The time `since_start` after the clock was created.
    #[must_use]
    pub const fn from_start(since_start: Duration) -> Self {
        Self(NonZeroU64::MIN.saturating_add(nanos(since_start)))
    }

    /// How long after the clock was created this time is.
    #[must_use]
    pub const fn since_start(self) -> Duration {
        Duration::from_nanos(self.0.get() - 1)
    }

    /// The time `span` before this one, at the earliest the creation of the clock.
    #[must_use]
    pub const fn saturating_sub(self, span: Duration) -> Self {
        Self::from_start(self.since_start().saturating_sub(span))
    }

    /// The duration from `earlier` to `self`; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.get().saturating_sub(earlier.0.get()))
    }
}

/// Nanoseconds, saturating.
const fn nanos(span: Duration) -> u64 {
    span.as_secs().saturating_mul(1_000_000_000).saturating_add(span.subsec_nanos() as u64)
}

impl Default for Mono {
    fn default() -> Self {
        Self::from_start(Duration::ZERO)
    }
}

impl std::ops::Add<Duration> for Mono {
    type Output = Self;
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(nanos(rhs)))
    }
}

impl fmt::Debug for Mono {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "+{:.3}s", self.since_start().as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monotonic_times_saturate_at_both_ends() {
        let first = Mono::default();
        assert_eq!((first.since_start(), first.saturating_sub(Duration::MAX)), (Duration::ZERO, first));
        let next = first + Duration::from_nanos(1);
        assert_eq!((next.since(first), first.since(next)), (Duration::from_nanos(1), Duration::ZERO));
        let last = Mono::from_start(Duration::MAX);
        assert_eq!(next + Duration::MAX, last);
        assert_eq!(last + Duration::from_nanos(1), last);
        assert_eq!(size_of::<Option<Mono>>(), 8);
    }
}
