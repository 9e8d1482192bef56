//! Polling with deadlines.

use std::fmt::Display;
use std::time::{Duration, Instant};

use crate::Error;

/// Short compared with any action of a control plane, and long enough not to disturb it.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// A limit for hanging tests, and no performance requirement: on a busy machine, what otherwise takes a second may take minutes. Tests that
/// check timing compare causes and their order instead.
pub const PATIENCE: Duration = Duration::from_secs(900);

/// The deadline of an attempt.
pub(crate) struct Deadline(Instant);

impl Deadline {
    pub(crate) fn in_duration(within: Duration) -> Self {
        Self(Instant::now() + within)
    }

    /// Calls `probe` once, and cancels it at the deadline. `None` when the time is up.
    pub(crate) async fn probe_once<T>(&self, probe: impl Future<Output = T>) -> Option<T> {
        // A probe that never awaits would win against any timeout, even zero.
        let remaining = self.0.checked_duration_since(Instant::now())?;
        tokio::time::timeout(remaining, probe).await.ok()
    }
}

/// Calls `probe` until it returns a value; see [`eventually`].
pub async fn until<T, E: Display>(what: &str, probe: impl AsyncFnMut() -> Result<T, E>) -> Result<T, Error> {
    eventually(what, PATIENCE, probe).await
}

/// The same for tests, which fail with the last observation when the time is up.
#[expect(clippy::unwrap_used, reason = "a test has nothing else to do then")]
pub async fn wait_until<T, E: Display>(what: &str, probe: impl AsyncFnMut() -> Result<T, E>) -> T {
    until(what, probe).await.unwrap()
}

/// Calls `probe` until it returns a value, for at most `within`. An `Err` is an observation, not a failure: the last one is part of the
/// message when the time is up. A probe that hangs is cancelled, too.
pub async fn eventually<T, E: Display>(
    what: &str,
    within: Duration,
    mut probe: impl AsyncFnMut() -> Result<T, E>,
) -> Result<T, Error> {
    let deadline = Deadline::in_duration(within);
    let mut seen = String::from("nothing, the first look did not end");
    while let Some(outcome) = deadline.probe_once(probe()).await {
        match outcome {
            Ok(value) => return Ok(value),
            Err(observation) => seen = observation.to_string(),
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(Error::NeverSeen { what: what.to_owned(), within, seen })
}

/// For probes: `Ok` if `holds`, else the observation.
pub fn check_that<E: Display>(holds: bool, observation: E) -> Result<(), E> {
    if holds { Ok(()) } else { Err(observation) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn returns_the_value_of_the_probe() {
        let mut looks = 0;
        let value = eventually("three looks", Duration::from_secs(5), async || {
            looks += 1;
            if looks == 3 { Ok(looks) } else { Err(format!("look {looks}")) }
        });
        assert_eq!(value.await.unwrap(), 3);
    }

    #[tokio::test]
    async fn timeout_names_the_last_observation() {
        let error = eventually::<(), _>("the pod runs", Duration::from_millis(120), async || Err("phase Pending"));
        let text = error.await.unwrap_err().to_string();
        assert!(text.contains("the pod runs") && text.contains("phase Pending"), "{text}");
    }

    #[tokio::test]
    async fn a_probe_that_hangs_is_cancelled_at_the_deadline() {
        let error =
            eventually::<(), &str>("an answer", Duration::from_millis(100), async || std::future::pending().await);
        assert!(error.await.is_err());
    }
}
