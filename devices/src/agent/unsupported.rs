//! In place of `process` on systems where this program cannot kill all processes that an agent started: agents run on
//! Linux only.

use std::path::Path;

use pod_safety_clock::{Env, Mono};

use super::run_result::{RunError, RunResult};

/// Runs nothing.
pub(super) async fn run(
    _env: &Env,
    _owner: &str,
    _path: &Path,
    _input: &[u8],
    _deadline: Mono,
) -> Result<RunResult, RunError> {
    let unsupported = "fence agents run on Linux only";
    Err(RunError::NotStarted(std::io::Error::new(std::io::ErrorKind::Unsupported, unsupported)))
}

/// There are no runs.
pub(super) fn kill(_owner: &str) {}

/// There were no runs.
pub(super) async fn end_earlier(_env: &Env, _owner: &str) -> Result<(), usize> {
    Ok(())
}
