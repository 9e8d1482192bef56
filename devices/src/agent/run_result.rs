//! How a run of an agent ended.

use pod_safety_clock::Mono;
use zeroize::Zeroizing;

/// How a run ended.
#[derive(Debug)]
pub(super) struct RunResult {
    /// Its exit code, if it was not killed.
    pub(super) code: Option<i32>,
    pub(super) signal: Option<i32>,
    pub(super) stdout: CapturedOutput,
    pub(super) stderr: CapturedOutput,
    /// Processes that it had left behind; they were killed.
    pub(super) killed_leftovers: usize,
    /// Until then it had read nothing of its input, and so had asked no device.
    pub(super) input_unread_until: Mono,
}

/// The beginning of what it said.
#[derive(Debug, Default)]
pub(super) struct CapturedOutput {
    pub(super) text: Zeroizing<Vec<u8>>,
    /// It said more.
    pub(super) is_truncated: bool,
}

/// Why there is no end to speak of.
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "no agent runs there"))]
#[derive(Debug, thiserror::Error)]
pub(super) enum RunError {
    #[error("no answer in time")]
    TimedOut,
    #[error("it cannot be started: {0}")]
    NotStarted(std::io::Error),
    #[error("it cannot be watched, so it was killed: {0}")]
    NotWatched(std::io::Error),
    #[error("{0} of its processes cannot be killed")]
    Unkillable(usize),
}
