//! Exponential backoff.

use std::time::Duration;

/// A pause that doubles with each failure in a row, up to a maximum.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// The pause after the first failure.
    pub initial: Duration,
    /// The longest pause.
    pub maximum: Duration,
}

impl Backoff {
    /// The pause after this many failures in a row. Without a failure it is the initial one.
    #[must_use]
    pub fn after(self, failures: u32) -> Duration {
        self.initial.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1))).min(self.maximum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_up_to_the_maximum_and_never_overflows() {
        let backoff = Backoff { initial: Duration::from_millis(250), maximum: Duration::from_secs(60) };
        for (failures, millis) in
            [(0, 250), (1, 250), (2, 500), (3, 1_000), (8, 32_000), (9, 60_000), (u32::MAX, 60_000)]
        {
            assert_eq!(backoff.after(failures), Duration::from_millis(millis), "{failures}");
        }
    }
}
