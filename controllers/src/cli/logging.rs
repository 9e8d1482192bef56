//! Logs: to stderr, as text or JSON.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Format {
    /// For people
    Text,
    /// One JSON object per line
    Json,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Level {
    /// What stands in the way of the work
    Error,
    /// What may
    Warn,
    /// One line per decision that changed something
    Info,
    /// Every decision
    Debug,
}

impl Level {
    const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

/// Starts logging. Our own crates by `level`; libraries only when they fail, for
/// each failure of theirs is also an error of ours.
pub(super) fn start(format: Format, level: Level) {
    let filter =
        EnvFilter::new(format!("off,pod_safety={level},pod_safety_shared={level}", level = level.name()));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // A line that cannot be written, to a disk that is full, is lost. To complain of it there is a panic.
        .log_internal_errors(false);
    match format {
        Format::Text => lines
            .with_target(false)
            .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
            .init(),
        Format::Json => lines.json().flatten_event(true).with_target(false).with_current_span(false).init(),
    }
}
