//! The progress of a drain: a line for each change, and on a terminal a last line that is overwritten.

use std::io::IsTerminal;

use jiff::Timestamp;
use pod_safety_drain::{Count, Line, Tone};
use pod_safety_process::sanitize::{self, CLEAR_LINE as ANEW};

use crate::{Paint, Tone as Painted};

/// Where progress is written.
#[derive(Clone, Copy, Debug)]
pub enum ProgressOutput {
    /// To a terminal.
    Terminal(Paint),
    /// To a log.
    Pipe,
}

impl ProgressOutput {
    /// The kind of standard output.
    #[must_use]
    pub fn for_stdout(paint: Paint) -> Self {
        if std::io::stdout().is_terminal() { Self::Terminal(paint) } else { Self::Pipe }
    }

    /// A line that stays: in logs with its time.
    #[must_use]
    pub fn line(self, line: &Line, wall: Timestamp) -> String {
        let text = sanitize::line(&line.text);
        let tone = match line.tone {
            Tone::Good => Painted::Good,
            Tone::Attention => Painted::Attention,
            Tone::Bad => Painted::Bad,
        };
        match self {
            Self::Terminal(paint) => format!("{ANEW}{} {text}\n", paint.tone(tone, paint.mark(tone))),
            Self::Pipe => format!("{wall:.0} {text}\n"),
        }
    }

    /// Clears the overwritten line, before other text.
    #[must_use]
    pub const fn clear(self) -> &'static str {
        match self {
            Self::Terminal(_) => ANEW,
            Self::Pipe => "",
        }
    }

    /// The overwritten line; empty in logs.
    #[must_use]
    pub fn progress(self, nodes: Option<(usize, usize)>, count: Count) -> String {
        let Count { total: all, gone, ending, waiting, stopped } = count;
        match self {
            Self::Terminal(_) => {
                let stopped = if stopped > 0 { format!(", {stopped} not evicted") } else { String::new() };
                let nodes = nodes.map(|(done, all)| format!("{done} of {all} nodes drained, pods: "));
                let nodes = nodes.unwrap_or_default();
                format!("{ANEW}{nodes}{gone} of {all} gone, {ending} terminating, {waiting} waiting{stopped}")
            }
            Self::Pipe => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: Count = Count { total: 4, gone: 1, ending: 2, waiting: 1, stopped: 0 };

    fn line(tone: Tone, text: &str) -> Line {
        Line { tone, text: text.to_owned() }
    }

    /// What a terminal shows of `text`, which may return to the beginning of a line.
    fn rendered(text: &str) -> Vec<String> {
        let shows = |line: &str| line.rsplit(ANEW).next().unwrap_or_default().to_owned();
        text.split('\n').map(shows).collect()
    }

    #[test]
    fn on_a_terminal_changes_are_above_the_progress_line() {
        let live = ProgressOutput::Terminal(Paint::plain());
        let text = [
            live.progress(None, COUNT),
            live.line(&line(Tone::Good, "pod/ns/a gone"), Timestamp::UNIX_EPOCH),
            live.progress(None, Count { gone: 2, ending: 1, ..COUNT }),
            live.progress(None, Count { gone: 2, ending: 1, waiting: 0, stopped: 1, ..COUNT }),
        ];
        assert_eq!(
            rendered(&text.concat()),
            ["✔ pod/ns/a gone", "2 of 4 gone, 1 terminating, 0 waiting, 1 not evicted"]
        );
    }

    /// The terminal itself writes `^C` at its cursor.
    #[test]
    fn after_ctrl_c_the_progress_line_is_cleared_and_no_line_is_good() {
        let live = ProgressOutput::Terminal(Paint::plain());
        let text = [
            live.progress(None, COUNT),
            "^C".to_owned(),
            live.line(
                &line(Tone::Attention, "pod/ns/a still exists: evicted, terminates within 5s"),
                Timestamp::UNIX_EPOCH,
            ),
            live.line(&line(Tone::Bad, "node/n stopped after 2s: 1 gone, 3 left"), Timestamp::UNIX_EPOCH),
        ];
        assert_eq!(
            rendered(&text.concat()),
            ["! pod/ns/a still exists: evicted, terminates within 5s", "✖ node/n stopped after 2s: 1 gone, 3 left", ""]
        );
    }

    #[test]
    fn a_log_has_timestamps_and_no_progress_line() {
        let text = ProgressOutput::Pipe.line(&line(Tone::Bad, "node/n stopped"), Timestamp::UNIX_EPOCH);
        assert_eq!(text, "1970-01-01T00:00:00Z node/n stopped\n");
        assert_eq!(ProgressOutput::Pipe.progress(None, COUNT), "");
    }
}
