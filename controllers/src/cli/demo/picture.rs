//! How it looks.

use std::time::Duration;

use pod_safety_simulator::world::{BudgetView, Machine, NodeView, PodView, Snapshot};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};

use super::show::{Show, Table};

const KEYS: &str = " ↑↓ node  c cut  h heal  f freeze  o power off  r power on  d delete Node  │  space pause  +/- speed  \
                    1-9 scenario  s subject  t table  q quit";
/// Lines of the timeline that fit beside the rest.
const TIMELINE: u16 = 10;

const BAD: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
const WARN: Style = Style::new().fg(Color::Yellow);
const GOOD: Style = Style::new().fg(Color::Green);
const DIM: Style = Style::new().fg(Color::DarkGray);

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, show: &Show) {
    let parts =
        [Constraint::Length(4), Constraint::Min(6), Constraint::Length(TIMELINE), Constraint::Length(2)];
    let [header, middle, timeline, footer] = Layout::vertical(parts).areas(frame.area());
    let halves = [Constraint::Percentage(52), Constraint::Percentage(48)];
    let [nodes, holds] = Layout::horizontal(halves).areas(middle);
    frame.render_widget(
        Paragraph::new(head(show)).block(Block::bordered().title(" pod-safety demo ")),
        header,
    );
    frame.render_widget(
        Paragraph::new(cluster(show)).block(Block::bordered().title(" nodes, pods, processes ")),
        nodes,
    );
    let why = Paragraph::new(reasons(show)).wrap(Wrap { trim: false });
    frame.render_widget(why.block(Block::bordered().title(" why stuck, what would free it ")), holds);
    frame.render_widget(
        Paragraph::new(events(show, timeline)).block(Block::bordered().title(" timeline ")),
        timeline,
    );
    frame.render_widget(Paragraph::new(KEYS).style(DIM).wrap(Wrap { trim: true }), footer);
    table(frame, show);
}

fn clock(at: Duration) -> String {
    format!("{:02}:{:02}.{}", at.as_secs() / 60, at.as_secs() % 60, at.subsec_millis() / 100)
}

fn head(show: &Show) -> Vec<Line<'static>> {
    let Some(scenario) = show.scenario() else { return Vec::new() };
    let snapshot = &show.snapshot;
    let broken = snapshot.violations.len();
    let state = match (show.paused, snapshot.over) {
        (true, _) => " PAUSED".bold(),
        (false, true) => " the plan is over; continue with keys".into(),
        (false, false) => "".into(),
    };
    vec![
        Line::from(vec![
            Span::from(format!("{} {}", show.at + 1, scenario.name)).bold(),
            Span::from(format!(": {}", scenario.title)),
        ]),
        Line::from(vec![
            Span::from(format!("{}  ", clock(snapshot.at))).bold(),
            Span::from(format!("seed {}  speed {:.1}x  subject ", scenario.plan.seed, show.speed)),
            show.contender.name().to_owned().cyan(),
            Span::styled(format!("  rules broken {broken}"), if broken > 0 { BAD } else { GOOD }),
            state,
            Span::from(
                show.served.as_ref().map(|url| format!("  kubectl --server {url}")).unwrap_or_default(),
            ),
        ]),
    ]
}

/// Nodes by zone, each with its pods and its true processes.
fn cluster(show: &Show) -> Vec<Line<'static>> {
    let snapshot = &show.snapshot;
    let mut lines = Vec::new();
    for zone in ["a", "b", "c"] {
        let here: Vec<_> = snapshot.nodes.iter().enumerate().filter(|(_, node)| node.zone == zone).collect();
        if !here.is_empty() {
            lines.push(Line::styled(format!("zone {zone}"), DIM));
        }
        for (index, node) in here {
            lines.push(node_line(node, index == show.selected));
            lines.extend(
                snapshot.pods.iter().filter(|pod| pod.node == node.name).map(|pod| pod_line(pod, snapshot)),
            );
            // What no API object tells of.
            let unknown = |uid: &str| !snapshot.pods.iter().any(|pod| pod.uid == uid);
            let strays = snapshot
                .processes
                .iter()
                .filter(|process| process.node == node.name && unknown(&process.uid));
            lines.extend(strays.map(|process| {
                let name = short(&process.identity);
                let text = format!(
                    "    {name:<10} {:.4}  PROCESS RUNS, its pod is no longer in the API",
                    process.uid
                );
                Line::styled(text, if doubled(&process.identity, snapshot) { BAD } else { WARN })
            }));
        }
    }
    let homeless: Vec<_> = snapshot.pods.iter().filter(|pod| pod.node.is_empty()).collect();
    if !homeless.is_empty() {
        lines.push(Line::styled("without a node", DIM));
        lines.extend(homeless.into_iter().map(|pod| pod_line(pod, snapshot)));
    }
    lines
}

fn node_line(node: &NodeView, selected: bool) -> Line<'static> {
    let (machine, style) = match node.machine {
        Machine::On => ("machine on", GOOD),
        Machine::Off => ("POWER OFF", BAD),
        Machine::Frozen => ("FROZEN", WARN),
        Machine::Cut => ("CUT OFF", WARN),
    };
    let lease = node.lease_age.map_or("no Lease".to_owned(), |age| format!("Lease {}s old", age.as_secs()));
    let object = if node.registered { Span::from("Node exists") } else { Span::styled("NODE DELETED", WARN) };
    let line = Line::from(vec![
        Span::from(if selected { "▶ " } else { "  " }),
        Span::from(format!("{:<9}", node.name)).bold(),
        Span::styled(format!("{machine:<11}"), style),
        object,
        Span::from(format!("  {lease}")),
        Span::styled(if node.said.is_empty() { String::new() } else { format!("  {}", node.said) }, WARN),
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
    let (truth, style) = match (runs, doubled(&pod.identity, snapshot), pod.terminating || state == "Running")
    {
        (true, true, _) => ("process runs: TWO COPIES", BAD),
        (true, false, _) => ("process runs", GOOD),
        (false, _, true) => ("no process", WARN),
        (false, _, false) => ("", DIM),
    };
    Line::from(vec![
        Span::from(format!("    {:<10} {:.4}  {state:<12}", short(&pod.identity), pod.uid)),
        Span::styled(truth, style),
    ])
}

fn short(identity: &str) -> String {
    identity.rsplit('/').next().unwrap_or_default().to_owned()
}

/// Whether two processes of this identity run at this moment.
fn doubled(identity: &str, snapshot: &Snapshot) -> bool {
    snapshot.processes.iter().filter(|process| process.identity == identity).count() > 1
}

/// What is held and why; and above all else, what went wrong.
fn reasons(show: &Show) -> Vec<Line<'static>> {
    let snapshot = &show.snapshot;
    let mut lines = Vec::new();
    for violation in &snapshot.violations {
        lines.push(Line::styled(format!("BROKEN {} at {}", violation.invariant, clock(violation.at)), BAD));
        lines.push(Line::from(format!("  {}", violation.what)));
    }
    for budget in &snapshot.budgets {
        let BudgetView { name, allowed, current, desired, expected, ready } = budget;
        lines.push(Line::from(vec![
            Span::from(format!("budget {name}: ")).bold(),
            Span::styled(format!("evictions allowed: {allowed}"), if *allowed > 0 { GOOD } else { WARN }),
        ]));
        let said = format!("  {current} of {expected} ready, {desired} needed; actually ready: {ready}");
        lines.push(Line::styled(said, if ready < desired { BAD } else { DIM }));
    }
    for hold in &snapshot.holds {
        lines.push(Line::from(vec![
            Span::from(hold.subject.clone()).bold(),
            Span::styled(format!(" {}", hold.reason), WARN),
        ]));
        lines.push(Line::from(format!("  {}", hold.message)));
    }
    if snapshot.holds.is_empty() {
        let nothing =
            if snapshot.replicas.is_empty() { "these rules give no reasons" } else { "nothing is held" };
        lines.push(Line::styled(nothing, DIM));
    }
    for replica in &snapshot.replicas {
        let state = match (replica.running, replica.paused, replica.leads) {
            (false, _, _) => "down",
            (true, true, true) => "frozen, and still believes that it leads",
            (true, true, false) => "stopped",
            (true, false, true) => "leads",
            (true, false, false) => "stands by",
        };
        lines.push(Line::styled(format!("{}: {state}", replica.name), DIM));
    }
    lines
}

fn events(show: &Show, area: Rect) -> Vec<Line<'static>> {
    let fit = usize::from(area.height.saturating_sub(2));
    let from = show.timeline.len().saturating_sub(fit);
    let line = |(at, what): &(Duration, String)| {
        let style = match what {
            what if what.starts_with("VIOLATION") => BAD,
            what if what.starts_with("fault") || what.starts_with("a person") => WARN,
            what if what.contains("is called Unknown") || what.contains(" taints ") => WARN,
            what if what.contains("on evidence") || what.contains(" frees ") => GOOD,
            _ => Style::new(),
        };
        Line::styled(format!("{:>8}  {what}", clock(*at)), style)
    };
    show.timeline.iter().skip(from).map(line).collect()
}

/// The comparison, above everything else.
fn table(frame: &mut Frame<'_>, show: &Show) {
    let lines: Vec<Line<'static>> = match &show.table {
        Table::Closed => return,
        Table::Measuring => vec![Line::from("running the same plan under all rules …")],
        Table::Open(rows, stuck) => {
            let row = |(at, cells): (usize, &Vec<String>)| {
                let mut text = format!("{:<48}", cells.first().map(String::as_str).unwrap_or_default());
                cells.iter().skip(1).for_each(|cell| text.push_str(&format!(" {cell:>23}")));
                if at == 0 { Line::from(text).bold() } else { Line::from(text) }
            };
            let stuck = stuck.iter().map(|line| Line::styled(format!("stuck: {line}"), DIM));
            rows.iter().enumerate().map(row).chain([Line::default()]).chain(stuck).collect()
        }
    };
    let title = " measured: the same plan and seed, without what keys did; t closes ";
    let area = frame.area();
    let height = u16::try_from(lines.len() + 6).unwrap_or(area.height).min(area.height);
    let width = area.width.saturating_sub(4).min(124);
    let place = Rect { x: (area.width - width) / 2, y: (area.height - height) / 2, width, height };
    frame.render_widget(Clear, place);
    frame.render_widget(
        Paragraph::new(lines).wrap(Wrap { trim: false }).block(Block::bordered().title(title)),
        place,
    );
}
