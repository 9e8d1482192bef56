//! The result of a run of an agent.

use pod_safety_clock::Mono;
use zeroize::Zeroizing;

/// The result of a run.
#[derive(Debug)]
pub(super) struct RunResult {
    /// The exit code, if it was not killed.
    pub(super) code: Option<i32>,
    pub(super) signal: Option<i32>,
    pub(super) stdout: CapturedOutput,
    pub(super) stderr: CapturedOutput,
    /// How many processes it had left behind; they were killed.
    pub(super) killed_leftovers: usize,
    /// Until then it had read nothing of its input, and so had queried no device.
    pub(super) input_unread_until: Mono,
}

/// The beginning of an output.
#[derive(Debug, Default)]
pub(super) struct CapturedOutput {
    pub(super) text: Zeroizing<Vec<u8>>,
    /// Whether the output was longer.
    pub(super) is_truncated: bool,
}

/// Why a run has no result.
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
