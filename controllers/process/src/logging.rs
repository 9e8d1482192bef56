//! Logs: to stderr, as text or JSON.

use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

use super::sanitize;

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// One JSON object per line
    Json,
}

#[derive(Clone, Copy, Debug, ValueEnum, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum Level {
    /// Errors that prevent work
    Error,
    /// Errors that may prevent work
    Warn,
    /// One line per decision that changed something
    Info,
    /// Every decision
    Debug,
}

/// Starts logging. Our own crates log by `level`; libraries only errors, because each failure of theirs is also an
/// error of ours.
pub(crate) fn start(format: Format, level: Level) {
    let level: &str = level.into();
    let filter = EnvFilter::new(format!("off,pod_safety={level},pod_safety_shared={level}"));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| SanitizedWriter(io::stderr()))
        // A line that cannot be written, to a full disk for instance, is lost. Reporting that would panic.
        .log_internal_errors(false);
    match format {
        Format::Text => lines
            .with_target(false)
            .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
            .init(),
        Format::Json => lines.json().flatten_event(true).with_target(false).with_current_span(false).init(),
    }
}

/// Writes one entry, which is passed as a whole: it stays one line, whatever texts of the cluster it contains.
struct SanitizedWriter<W>(W);

impl<W: Write> Write for SanitizedWriter<W> {
    fn write(&mut self, entry: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(entry);
        let line = sanitize::page(text.strip_suffix('\n').unwrap_or(&text)).replace('\n', "\\n");
        self.0.write_all(format!("{line}\n").as_bytes())?;
        Ok(entry.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text in the field `spec.paused` of a FencePolicy.
    #[test]
    fn attack_a_text_of_the_cluster_adds_no_log_line() {
        let mut written = Vec::new();
        let entry = "INFO held why=\"x\n2026-11-24  INFO forged\" \u{1b}[2J\n";
        SanitizedWriter(&mut written).write_all(entry.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), "INFO held why=\"x\\n2026-11-24  INFO forged\" \\u{1b}[2J\n");
    }
}
