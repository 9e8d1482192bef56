//! The nodes, each with its pods as the API server shows them, and with the processes that really run.

use pod_safety_simulator::comparison::short;
use pod_safety_simulator::world::{Machine, NodeView, PodView, ProcessView, Snapshot};
use ratatui::layout::Rect;
use ratatui::style::Stylize;
use ratatui::text::{Line, Span};

use super::show::Show;
use super::style::{BAD, DIM, GOOD, WARN};

/// Below this width zones are not shown.
const WITH_ZONES: u16 = 72;

/// The number of lines in all.
pub(super) fn height(snapshot: &Snapshot) -> usize {
    all_lines(snapshot, 0, false).0.len()
}

/// As many lines as fit, with the selected node among them.
pub(super) fn cluster_lines(show: &Show, area: Rect) -> Vec<Line<'static>> {
    let (mut lines, selected) = all_lines(&show.snapshot, show.selected, area.width < WITH_ZONES);
    let fit = usize::from(area.height.saturating_sub(1));
    if lines.len() <= fit || fit < 2 {
        return lines;
    }
    let from = selected.saturating_sub(fit / 2).min(lines.len() - (fit - 1));
    let hidden = lines.len() - (fit - 1);
    lines.drain(..from);
    lines.truncate(fit - 1);
    lines.push(Line::styled(format!("  … {hidden} more lines: ↑ and ↓ select other nodes"), DIM));
    lines
}

/// All lines, and the position of the selected node among them.
fn all_lines(snapshot: &Snapshot, selected: usize, narrow: bool) -> (Vec<Line<'static>>, usize) {
    let (mut lines, mut place) = (Vec::new(), 0);
    for zone in ["a", "b", "c"] {
        let here = snapshot.nodes.iter().enumerate().filter(|(_, node)| node.zone == zone);
        for (index, node) in here {
            if index == selected {
                place = lines.len();
            }
            lines.push(node_line(node, index == selected, narrow));
            let pods = snapshot.pods.iter().filter(|pod| pod.node == node.name);
            lines.extend(pods.map(|pod| pod_line(pod, snapshot)));
            let removed = |process: &&ProcessView| {
                process.node == node.name && !snapshot.pods.iter().any(|pod| pod.uid == process.uid)
            };
            let strays = snapshot.processes.iter().filter(removed);
            lines.extend(strays.map(|process| stray_line(process, snapshot)));
        }
    }
    let unbound: Vec<_> = snapshot.pods.iter().filter(|pod| pod.node.is_empty()).collect();
    if !unbound.is_empty() {
        lines.push(Line::styled("  without a node", DIM));
        lines.extend(unbound.into_iter().map(|pod| pod_line(pod, snapshot)));
    }
    (lines, place)
}

fn node_line(node: &NodeView, selected: bool, narrow: bool) -> Line<'static> {
    let (machine, style) = match node.machine {
        Machine::On => ("machine on", GOOD),
        Machine::Off => ("POWER OFF", BAD),
        Machine::Frozen => ("FROZEN", WARN),
        Machine::Cut => ("CUT OFF", WARN),
    };
    let lease = node.lease_age.map_or("no Lease".to_owned(), |age| format!("Lease {}s old", age.as_secs()));
    let object = match (node.registered, node.condition_summary.as_str()) {
        (false, _) => Span::styled("NODE DELETED", WARN),
        (true, "") => Span::from("Ready"),
        (true, said) => Span::styled(said.to_owned(), WARN),
    };
    let line = Line::from(vec![
        Span::from(if selected { "▶ " } else { "  " }),
        Span::from(format!("{:<8}", node.name)).bold(),
        Span::styled(if narrow { String::new() } else { format!("zone {}  ", node.zone) }, DIM),
        Span::styled(format!("{machine:<12}"), style),
        Span::from(format!("{lease:<15}")),
        object,
    ]);
    if selected { line.reversed() } else { line }
}

fn pod_line(pod: &PodView, snapshot: &Snapshot) -> Line<'static> {
    let runs = snapshot.processes.iter().any(|process| process.uid == pod.uid);
    let state = match (pod.terminating, pod.phase.as_str()) {
        (true, _) => "Terminating",
        (false, "") => "Pending",
        (false, phase) => phase,
    };
    let (truth, style) = match (runs, is_doubled(&pod.identity, snapshot), pod.terminating || state == "Running") {
        (true, true, _) => ("TWO COPIES RUN", BAD),
        (true, false, _) => ("process runs", GOOD),
        (false, _, true) => ("no process", WARN),
        (false, _, false) => ("", DIM),
    };
    Line::from(vec![Span::from(format!("    {:<10}{state:<13}", short(&pod.identity))), Span::styled(truth, style)])
}

/// A process that no API object shows.
fn stray_line(process: &ProcessView, snapshot: &Snapshot) -> Line<'static> {
    let doubled = is_doubled(&process.identity, snapshot);
    let label = if doubled { "TWO COPIES RUN" } else { "process runs" };
    Line::from(vec![
        Span::from(format!("    {:<10}{:<13}", short(&process.identity), "pod removed")),
        Span::styled(label, if doubled { BAD } else { WARN }),
    ])
}

/// Whether two processes of this identity run at this moment.
fn is_doubled(identity: &str, snapshot: &Snapshot) -> bool {
    snapshot.processes.iter().filter(|process| process.identity == identity).count() > 1
}
