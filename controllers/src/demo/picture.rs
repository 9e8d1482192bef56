//! The layout of the screen, on a terminal of any size: 80 columns and 24 lines are enough.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Stylize;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Clear, Paragraph, Wrap};

use super::cluster::{self, cluster_lines};
use super::panels::{broken_rules, comparison_lines, reason_lines, timeline_lines};
use super::show::{Overlay, Show};
use super::style::{BAD, DIM, GOOD, clock};

/// Always on the screen; if there are few lines, only the keys.
const LEGEND: &str = " machine, process: what is true │ Node, Lease, pod: what the API server shows";
const KEYS: &str = " ? keys, legend  space pause  +/- speed  s rules  t table  1-9 scenario  q quit";

/// The text that `?` shows below the description of the scenario.
const HELP: [&str; 12] = [
    "Unknown      the Node has not reported for 50 s; suspect: it misses renewals",
    "NoExecute    a taint of the Node: its pods are deleted gracefully",
    "TWO COPIES   two processes of one pod run, and both write to its volume",
    "rules        whose rules run: pod-safety's, kube-controller-manager's alone,",
    "             or those of a script that uses --force when a node is NotReady",
    "seed         the same number gives the same run",
    "↑ ↓ Tab      select a node. Then:",
    "c  h  f      cut it off from the API servers; heal that; freeze, continue it",
    "o  r  d      power it off; power it on; delete its Node object",
    "space + -    pause; faster, slower",
    "s  1-9       the same scenario with the next rules; another scenario, with the first",
    "t  ?  q      the table; this page; quit",
];

/// From this width on nodes and reasons are side by side.
const WIDE: u16 = 120;
/// Below this width lines are shorter, and each set of rules has two.
const NARROW: u16 = 80;
/// Below this height only the running set of rules has its line, and there is no legend.
const SHORT: u16 = 22;
/// The minimum number of lines of reasons below the nodes, with their title.
const REASONS: u16 = 4;

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, show: &Show) {
    let area = frame.area();
    let standings = comparison_lines(show, area.width < NARROW, area.height < SHORT);
    let reasons = reason_lines(show);
    let parts = row_heights(area, show, &reasons, standings.len());
    let [head_area, middle, standings_area, timeline, foot] = Layout::vertical(parts).areas(area);
    let [nodes, why] = columns(middle, show);

    frame.render_widget(Paragraph::new(clip_lines(header(show), head_area)), head_area);
    panel(frame, nodes, "nodes, pods, processes", cluster_lines(show, nodes));
    let reasons = Paragraph::new(reasons).wrap(Wrap { trim: false });
    frame.render_widget(reasons.block(titled_block("why pods wait, and what would free them")), why);
    let title = "the same fault with each set of rules, until this moment";
    panel(frame, standings_area, title, standings);
    panel(frame, timeline, "timeline", timeline_lines(show, timeline));
    let mut footer = vec![Line::styled(LEGEND, DIM), Line::styled(KEYS, DIM)];
    footer.drain(..footer.len() - usize::from(foot.height).clamp(1, 2));
    frame.render_widget(Paragraph::new(clip_lines(footer, foot)), foot);
    overlay(frame, show);
}

/// The heights of head, nodes and reasons, rules, timeline and foot. The timeline gets the lines that the others do
/// not need.
fn row_heights(area: Rect, show: &Show, reasons: &[Line<'_>], standings: usize) -> [Constraint; 5] {
    let lines = u16::try_from(standings).unwrap_or(3) + 1;
    let least = (area.height / 4).clamp(3, 10);
    let foot = if area.height < SHORT { 1 } else { 2 };
    let [_, why] = columns(Rect { height: u16::MAX, ..area }, show);
    let (nodes, why) = (min_rows(show), rows_needed(reasons, why.width).saturating_add(1));
    let needed = if area.width >= WIDE { nodes.max(why) } else { nodes.saturating_add(why.max(REASONS)) };
    let most = area.height.saturating_sub(2 + lines + least + foot);
    let timeline = Constraint::Min(least);
    [
        Constraint::Length(2),
        Constraint::Length(needed.min(most)),
        Constraint::Length(lines),
        timeline,
        Constraint::Length(foot),
    ]
}

/// The number of lines that the nodes need, with their title.
fn min_rows(show: &Show) -> u16 {
    u16::try_from(cluster::height(&show.snapshot)).unwrap_or(u16::MAX).saturating_add(1)
}

/// The number of lines that a text needs. Words that do not fit go to the next line: one more than the characters
/// need.
fn rows_needed(lines: &[Line<'_>], width: u16) -> u16 {
    let width = usize::from(width.max(1));
    let each = |line: &Line<'_>| if line.width() <= width { 1 } else { line.width() / width + 2 };
    u16::try_from(lines.iter().map(each).sum::<usize>()).unwrap_or(u16::MAX)
}

/// The areas of nodes and reasons.
fn columns(middle: Rect, show: &Show) -> [Rect; 2] {
    if middle.width >= WIDE {
        let halves = [Constraint::Percentage(52), Constraint::Percentage(48)];
        return Layout::horizontal(halves).spacing(1).areas(middle);
    }
    let needed = min_rows(show);
    let most = middle.height.saturating_sub(REASONS).max(2);
    Layout::vertical([Constraint::Length(needed.min(most)), Constraint::Min(0)]).areas(middle)
}

fn titled_block(title: &str) -> Block<'static> {
    let title = Line::from(format!(" {title} ")).bold();
    Block::new().borders(Borders::TOP).border_style(DIM).title(title)
}

fn panel(frame: &mut Frame<'_>, area: Rect, title: &str, lines: Vec<Line<'static>>) {
    frame.render_widget(Paragraph::new(clip_lines(lines, area)).block(titled_block(title)), area);
}

/// Lines that are too long end in `…`.
fn clip_lines(lines: Vec<Line<'static>>, area: Rect) -> Vec<Line<'static>> {
    lines.into_iter().map(|line| clip(line, usize::from(area.width))).collect()
}

fn clip(line: Line<'static>, width: usize) -> Line<'static> {
    if line.width() <= width {
        return line;
    }
    let mut remaining = width.saturating_sub(1);
    let mut cut = Line { spans: Vec::new(), ..line };
    for span in line.spans {
        let fits: String = span.content.chars().take(remaining).collect();
        remaining -= fits.chars().count();
        cut.push_span(Span::styled(fits, span.style));
    }
    cut.push_span("…");
    cut
}

fn header(show: &Show) -> Vec<Line<'static>> {
    let Some(scenario) = show.scenario() else { return Vec::new() };
    let snapshot = &show.snapshot;
    let broken = match broken_rules(snapshot).len() {
        0 => Span::styled("no rule broken", GOOD),
        count => Span::styled(format!("RULES BROKEN: {count}"), BAD),
    };
    let state = match (show.paused, snapshot.over) {
        (true, _) => "  PAUSED".bold(),
        (false, true) => "  the scenario is over; keys still work".into(),
        (false, false) => "".into(),
    };
    let served = show.served.as_ref().map(|url| format!("  kubectl --server {url}")).unwrap_or_default();
    vec![
        Line::from(vec![
            Span::from(format!("{} {}", show.at + 1, scenario.name)).bold(),
            Span::from(format!(": {}", scenario.title)),
        ]),
        Line::from(vec![
            Span::from(clock(snapshot.at)).bold(),
            Span::from("  rules: "),
            Span::from(show.contender.label()).cyan(),
            Span::from("  "),
            broken,
            state,
            Span::from(served),
            Span::styled(format!("  speed {:.0}x  seed {}", show.speed, scenario.plan.seed), DIM),
        ]),
    ]
}

/// The table or the explanations, above everything else.
fn overlay(frame: &mut Frame<'_>, show: &Show) {
    let (title, lines) = match show.overlay {
        Overlay::Nothing => return,
        Overlay::Table => (" measured: the same fault and seed, without your keys; t closes ", table(show)),
        Overlay::Help => (" what you see; ? closes ", help(show)),
    };
    let area = frame.area();
    let width = area.width.saturating_sub(2).min(100);
    let height = rows_needed(&lines, width.saturating_sub(2)).saturating_add(2).min(area.height);
    let place = Rect { x: (area.width - width) / 2, y: (area.height - height) / 2, width, height };
    let text = Paragraph::new(lines).wrap(Wrap { trim: false });
    frame.render_widget(Clear, place);
    frame.render_widget(text.block(Block::bordered().title(title)), place);
}

fn table(show: &Show) -> Vec<Line<'static>> {
    let Some(comparison) = &show.comparison else {
        return vec![Line::from("running the same fault with all rules …")];
    };
    let rows = comparison.table().into_iter().enumerate();
    let mut lines: Vec<_> =
        rows.map(|(at, line)| if at == 0 { Line::from(line).bold() } else { Line::from(line) }).collect();
    lines.push(Line::default());
    lines.extend(comparison.sentences().into_iter().map(Line::from));
    lines.extend(comparison.stuck().into_iter().map(|line| Line::styled(format!("stuck: {line}"), DIM)));
    lines
}

fn help(show: &Show) -> Vec<Line<'static>> {
    let about = show.scenario().map(|scenario| scenario.about.clone()).unwrap_or_default();
    [Line::from(about), Line::default()].into_iter().chain(HELP.map(Line::from)).collect()
}
