//! The output about the nodes of one command.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::Context;
use jiff::Timestamp;
use parking_lot::Mutex;
use pod_safety_drain::{Count, Line, Tone};
use pod_safety_print::Paint;
use pod_safety_print::drains::ProgressOutput;

use crate::print;

/// The output about the nodes of one command: if there are several, each line names its node.
pub(super) struct DrainOutput {
    pub(super) live: ProgressOutput,
    pub(super) paint: Paint,
    nodes: usize,
    tally: Mutex<Tally>,
}

/// The progress of all nodes.
#[derive(Default)]
struct Tally {
    drained: usize,
    /// The counts of the nodes that are being drained.
    counts: BTreeMap<String, Count>,
}

impl DrainOutput {
    pub(super) fn new(live: ProgressOutput, paint: Paint, nodes: usize) -> Self {
        Self { live, paint, nodes, tally: Mutex::default() }
    }

    /// Prints a line for a change on a node.
    pub(super) fn print_line(&self, node: &str, line: &Line, wall: Timestamp) -> anyhow::Result<()> {
        let named = line.text.starts_with(&format!("node/{node} "));
        if self.nodes == 1 || named {
            return self.line(line, wall);
        }
        self.line(&Line { tone: line.tone, text: format!("node/{node} {}", line.text) }, wall)
    }

    /// Prints how all of them ended.
    pub(super) fn print_summary(&self, is_well: bool, text: &str, wall: Timestamp) -> anyhow::Result<()> {
        let tone = if is_well { Tone::Good } else { Tone::Bad };
        self.line(&Line { tone, text: text.to_owned() }, wall)
    }

    fn line(&self, line: &Line, wall: Timestamp) -> anyhow::Result<()> {
        print(&self.live.line(line, wall)).context("writing to stdout")
    }

    /// Shows the progress of a node, on a terminal only.
    pub(super) fn show_progress(&self, node: &str, count: Count) -> anyhow::Result<()> {
        if let ProgressOutput::Pipe = self.live {
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
    pub(super) fn finish_node(&self, node: &str, is_drained: bool) {
        let mut tally = self.tally.lock();
        tally.counts.remove(node);
        tally.drained += usize::from(is_drained);
    }
}
