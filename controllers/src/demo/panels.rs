//! The panels beside the cluster: why pods wait, the outcome by all sets of rules, and what happened.

use std::collections::BTreeMap;
use std::time::Duration;

use pod_safety_simulator::checker::{News, Tone};
use pod_safety_simulator::comparison::{short, spelled};
use pod_safety_simulator::scenario::Contender;
use pod_safety_simulator::world::{BudgetView, Machine, NodeView, ReplicaView, Snapshot};
use ratatui::layout::Rect;
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Span};

use super::show::Show;
use super::style::{BAD, DIM, GOOD, WARN, clock};

/// This many broken rules are shown as text; the others are counted.
const MAX_BROKEN: usize = 6;

/// The holds and their reasons; first of all, the rules that were broken.
pub(super) fn reason_lines(show: &Show) -> Vec<Line<'static>> {
    let snapshot = &show.snapshot;
    let mut lines = Vec::new();
    let broken = broken_rules(snapshot);
    for (text, at) in broken.iter().take(MAX_BROKEN) {
        lines.push(Line::styled(format!("RULE BROKEN at {}: {text}", clock(*at)), BAD));
    }
    if broken.len() > MAX_BROKEN {
        lines.push(Line::styled(format!("and {} more", broken.len() - MAX_BROKEN), BAD));
    }
    for budget in &snapshot.budgets {
        let BudgetView { name, allowed, current, desired, expected, ready } = budget;
        lines.push(Line::from(vec![
            Span::from(format!("PodDisruptionBudget {name}: ")).bold(),
            Span::styled(format!("evictions allowed: {allowed}"), if *allowed > 0 { GOOD } else { WARN }),
        ]));
        let text = format!("  {current} of {expected} ready, {desired} needed; actually ready: {ready}");
        lines.push(Line::styled(text, if ready < desired { BAD } else { DIM }));
    }
    for hold in &snapshot.holds {
        lines.push(Line::from(vec![
            Span::from(short(&hold.subject).to_owned()).bold(),
            Span::styled(format!(" {}", hold.reason), WARN),
        ]));
        lines.push(Line::from(format!("  {}", hold.message)));
    }
    let troubled = node_troubles(show);
    let calm = troubled.is_empty() && snapshot.holds.is_empty();
    lines.extend(troubled);
    if show.contender != Contender::PodSafety {
        lines.extend(terminating_pods(show, calm));
    } else if calm {
        lines.push(Line::styled("No pod waits.", DIM));
    }
    lines.extend(snapshot.replicas.iter().map(replica_line));
    lines
}

/// The broken rules, each once for each object, with the time at which it was broken first.
pub(super) fn broken_rules(snapshot: &Snapshot) -> Vec<(&str, Duration)> {
    let mut first: BTreeMap<&str, Duration> = BTreeMap::new();
    for violation in &snapshot.violations {
        first.entry(&violation.plain).or_insert(violation.at);
    }
    let mut all: Vec<_> = first.into_iter().collect();
    all.sort_by_key(|(_, at)| *at);
    all
}

/// Machines that do not reach the API server and have no hold: whether the API shows it.
fn node_troubles(show: &Show) -> Vec<Line<'static>> {
    let snapshot = &show.snapshot;
    let nodes = snapshot.nodes.iter().enumerate();
    nodes.filter_map(|(index, node)| node_trouble(snapshot, node, show.machine_state_age(index))).collect()
}

fn node_trouble(snapshot: &Snapshot, node: &NodeView, lasts: Duration) -> Option<Line<'static>> {
    let how = match node.machine {
        Machine::On => return None,
        Machine::Cut => "cut off",
        Machine::Off => "without power",
        Machine::Frozen => "frozen",
    };
    let pods: Vec<_> = snapshot.pods.iter().filter(|pod| pod.node == node.name).collect();
    let held = |subject: &str| snapshot.holds.iter().any(|hold| hold.subject == subject);
    if held(&node.name) || pods.iter().any(|pod| held(&pod.identity)) {
        return None;
    }
    let names: Vec<_> = pods.iter().map(|pod| short(&pod.identity)).collect();
    let label = if names.is_empty() { node.name.clone() } else { names.join(", ") };
    let noticed = match (node.registered, node.condition_summary.as_str()) {
        (false, _) => "its Node is deleted".to_owned(),
        (true, "") => "not noticed yet".to_owned(),
        (true, said) => format!("its node is marked {said}"),
    };
    Some(Line::styled(format!("{label}: {how} for {}, {noticed}", spelled(lasts)), WARN))
}

/// What is visible of a waiting pod, by rules that give no reasons.
fn terminating_pods(show: &Show, calm: bool) -> Vec<Line<'static>> {
    let label = show.contender.label();
    let waiting = show.snapshot.pods.iter().filter(|pod| pod.terminating);
    let mut lines: Vec<_> = waiting
        .map(|pod| Line::styled(format!("{}: Terminating. {label} gives no reason.", short(&pod.identity)), WARN))
        .collect();
    if lines.is_empty() && calm {
        lines.push(Line::styled(format!("No pod waits. ({label} gives no reasons.)"), DIM));
    }
    lines
}

fn replica_line(replica: &ReplicaView) -> Line<'static> {
    let state = match (replica.running, replica.paused, replica.leads) {
        (false, _, _) => "down",
        (true, true, true) => "frozen, and still believes that it leads",
        (true, true, false) => "stopped",
        (true, false, true) => "leads",
        (true, false, false) => "stands by",
    };
    Line::styled(format!("pod-safety {}: {state}", replica.name), DIM)
}

/// The outcome of the plan by each set of rules, until this moment.
pub(super) fn comparison_lines(show: &Show, narrow: bool, short_of_lines: bool) -> Vec<Line<'static>> {
    let Some(comparison) = &show.comparison else {
        let mut lines = vec![Line::styled("running the same fault with all rules …", DIM)];
        let sets = if short_of_lines { 1 } else { Contender::ALL.len() };
        lines.resize(if narrow { 2 * sets } else { sets }, Line::default());
        return lines;
    };
    let line = |(contender, outcome): (Contender, &pod_safety_simulator::world::Outcome)| {
        let label = Span::from(format!("{:<24}", contender.label()));
        let label = if contender == show.contender { label.bold().cyan() } else { label };
        let (away, twice) = (outcome.presence.away(show.snapshot.at), outcome.presence.twice(show.snapshot.at));
        let away = match away {
            None => Span::styled("no pod away", DIM),
            Some(away) => {
                let (name, time) = (short(away.identity), spelled(away.lasted));
                if away.goes_on {
                    Span::styled(format!("{name} away for {time}"), WARN)
                } else {
                    Span::styled(format!("{name} back after {time}"), GOOD)
                }
            }
        };
        let twice = match twice {
            None => Span::styled("never two copies", DIM),
            Some(twice) if twice.goes_on => Span::styled(format!("TWO COPIES WRITE {}", spelled(twice.lasted)), BAD),
            Some(twice) => Span::styled(format!("two copies wrote {}", spelled(twice.lasted)), BAD),
        };
        if narrow {
            return vec![Line::from(vec![label, away]), Line::from(vec![Span::from("  "), twice])];
        }
        let gap = " ".repeat(28_usize.saturating_sub(away.width()).max(1));
        vec![Line::from(vec![label, away, Span::from(gap), twice])]
    };
    let shown = |(contender, _): &(Contender, _)| !short_of_lines || *contender == show.contender;
    comparison.outcomes().filter(shown).flat_map(line).collect()
}

/// The newest lines of the timeline.
pub(super) fn timeline_lines(show: &Show, area: Rect) -> Vec<Line<'static>> {
    let fit = usize::from(area.height.saturating_sub(1));
    let from = show.timeline.len().saturating_sub(fit);
    let line = |News { at, tone, text }: &News| {
        let style = match tone {
            Tone::Broken => BAD,
            Tone::Fault | Tone::Loss => WARN,
            Tone::Release => GOOD,
            Tone::Other => Style::new(),
        };
        Line::styled(format!("{:>8}  {text}", clock(*at)), style)
    };
    show.timeline.iter().skip(from).map(line).collect()
}
