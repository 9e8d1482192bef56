//! What is said while a drain goes on: a line for each change, and on a terminal one
//! more below them that is overwritten.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write as _};

use anyhow::Context;
use jiff::Timestamp;
use parking_lot::Mutex;
use pod_safety_drain::{Count, Line, Tone};
use pod_safety_print::{Paint, Tone as Painted};

use crate::clean::{self, LINE_ANEW as ANEW};
use crate::print;

/// Where it is said.
#[derive(Clone, Copy, Debug)]
pub(super) enum Live {
    /// To a person who watches.
    Terminal(Paint),
    /// Into a log.
    Pipe,
}

impl Live {
    pub(super) fn of_stdout(paint: Paint) -> Self {
        if std::io::stdout().is_terminal() { Self::Terminal(paint) } else { Self::Pipe }
    }

    /// A line that stays: for logs with its time.
    pub(super) fn line(self, line: &Line, wall: Timestamp) -> String {
        let text = clean::line(&line.text);
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

    /// Before other text: the line that is overwritten goes.
    pub(super) const fn clear(self) -> &'static str {
        match self {
            Self::Terminal(_) => ANEW,
            Self::Pipe => "",
        }
    }

    /// The line that is overwritten; logs have none.
    pub(super) fn progress(self, nodes: Option<(usize, usize)>, count: Count) -> String {
        let Count { all, gone, ending, waiting, stopped } = count;
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

/// What is said of the nodes of one command: of several, each line names its node.
pub(super) struct Said {
    pub(super) live: Live,
    pub(super) paint: Paint,
    nodes: usize,
    tally: Mutex<Tally>,
}

/// How far they are.
#[derive(Default)]
struct Tally {
    drained: usize,
    /// Of those that are being drained.
    counts: BTreeMap<String, Count>,
}

impl Said {
    pub(super) fn of(live: Live, paint: Paint, nodes: usize) -> Self {
        Self { live, paint, nodes, tally: Mutex::default() }
    }

    pub(super) const fn clear(&self) -> &'static str {
        self.live.clear()
    }

    /// One line for a change on a node.
    pub(super) fn tell(&self, node: &str, line: &Line, wall: Timestamp) -> anyhow::Result<()> {
        let named = line.text.starts_with(&format!("node/{node} "));
        if self.nodes == 1 || named {
            return self.line(line, wall);
        }
        self.line(&Line { tone: line.tone, text: format!("node/{node} {}", line.text) }, wall)
    }

    /// How all of them ended.
    pub(super) fn all(&self, is_well: bool, text: &str, wall: Timestamp) -> anyhow::Result<()> {
        let tone = if is_well { Tone::Good } else { Tone::Bad };
        self.line(&Line { tone, text: text.to_owned() }, wall)
    }

    fn line(&self, line: &Line, wall: Timestamp) -> anyhow::Result<()> {
        print(&self.live.line(line, wall)).context("writing to stdout")
    }

    /// How far it is, for whoever watches.
    pub(super) fn show(&self, node: &str, count: Count) -> anyhow::Result<()> {
        if let Live::Pipe = self.live {
            return Ok(());
        }
        let text = {
            let mut tally = self.tally.lock();
            tally.counts.insert(node.to_owned(), count);
            let sum = tally.counts.values().fold(Count::default(), |sum, one| sum.plus(*one));
            self.live.progress((self.nodes > 1).then_some((tally.drained, self.nodes)), sum)
        };
        print(&text)?;
        std::io::stdout().flush().context("writing to stdout")
    }

    /// The drain of a node is over.
    pub(super) fn over(&self, node: &str, is_drained: bool) {
        let mut tally = self.tally.lock();
        tally.counts.remove(node);
        tally.drained += usize::from(is_drained);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: Count = Count { all: 4, gone: 1, ending: 2, waiting: 1, stopped: 0 };

    fn line(tone: Tone, text: &str) -> Line {
        Line { tone, text: text.to_owned() }
    }

    /// What a terminal shows of `text`, which may begin lines anew.
    fn shown(text: &str) -> Vec<String> {
        let shows = |line: &str| line.rsplit(ANEW).next().unwrap_or_default().to_owned();
        text.split('\n').map(shows).collect()
    }

    #[test]
    fn on_a_terminal_changes_stand_above_the_one_line_of_progress() {
        let live = Live::Terminal(Paint::plain());
        let text = [
            live.progress(None, COUNT),
            live.line(&line(Tone::Good, "pod/ns/a gone"), Timestamp::UNIX_EPOCH),
            live.progress(None, Count { gone: 2, ending: 1, ..COUNT }),
            live.progress(None, Count { gone: 2, ending: 1, waiting: 0, stopped: 1, ..COUNT }),
        ];
        assert_eq!(
            shown(&text.concat()),
            ["✔ pod/ns/a gone", "2 of 4 gone, 1 terminating, 0 waiting, 1 not evicted"]
        );
    }

    /// The terminal itself writes `^C` where its cursor stands.
    #[test]
    fn after_ctrl_c_nothing_of_the_progress_is_left_and_nothing_counts_as_well() {
        let live = Live::Terminal(Paint::plain());
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
            shown(&text.concat()),
            [
                "! pod/ns/a still exists: evicted, terminates within 5s",
                "✖ node/n stopped after 2s: 1 gone, 3 left",
                ""
            ]
        );
    }

    #[test]
    fn a_log_has_a_time_in_each_line_and_no_progress() {
        let text = Live::Pipe.line(&line(Tone::Bad, "node/n stopped"), Timestamp::UNIX_EPOCH);
        assert_eq!(text, "1970-01-01T00:00:00Z node/n stopped\n");
        assert_eq!(Live::Pipe.progress(None, COUNT), "");
    }
}
