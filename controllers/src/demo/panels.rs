//! Beside the cluster: why pods wait, how all rules do, and what happened.

use std::time::Duration;

use pod_safety_simulator::comparison::{short, spelled};
use pod_safety_simulator::scenario::Contender;
use pod_safety_simulator::world::{BudgetView, ReplicaView};
use ratatui::layout::Rect;
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Span};

use super::show::Show;
use super::style::{BAD, DIM, GOOD, WARN, clock};

/// What is held and why; and above all else, what went wrong.
pub(super) fn reasons(show: &Show) -> Vec<Line<'static>> {
    let snapshot = &show.snapshot;
    let mut lines = Vec::new();
    for violation in &snapshot.violations {
        lines.push(Line::styled(format!("BROKEN {} at {}", violation.invariant, clock(violation.at)), BAD));
        lines.push(Line::from(format!("  {}", violation.what)));
    }
    for budget in &snapshot.budgets {
        let BudgetView { name, allowed, current, desired, expected, ready } = budget;
        lines.push(Line::from(vec![
            Span::from(format!("PodDisruptionBudget {name}: ")).bold(),
            Span::styled(format!("evictions allowed: {allowed}"), if *allowed > 0 { GOOD } else { WARN }),
        ]));
        let said = format!("  {current} of {expected} ready, {desired} needed; actually ready: {ready}");
        lines.push(Line::styled(said, if ready < desired { BAD } else { DIM }));
    }
    for hold in &snapshot.holds {
        lines.push(Line::from(vec![
            Span::from(short(&hold.subject).to_owned()).bold(),
            Span::styled(format!(" {}", hold.reason), WARN),
        ]));
        lines.push(Line::from(format!("  {}", hold.message)));
    }
    if show.contender != Contender::PodSafety {
        lines.extend(unexplained(show));
    } else if snapshot.holds.is_empty() {
        lines.push(Line::styled("No pod waits.", DIM));
    }
    lines.extend(snapshot.replicas.iter().map(replica));
    lines
}

/// All that is to be seen of a pod that waits, by rules that give no reasons.
fn unexplained(show: &Show) -> Vec<Line<'static>> {
    let label = show.contender.label();
    let waiting = show.snapshot.pods.iter().filter(|pod| pod.terminating);
    let mut lines: Vec<_> = waiting
        .map(|pod| {
            Line::styled(format!("{}: Terminating. {label} gives no reason.", short(&pod.identity)), WARN)
        })
        .collect();
    if lines.is_empty() {
        lines.push(Line::styled(format!("No pod waits. ({label} gives no reasons.)"), DIM));
    }
    lines
}

fn replica(replica: &ReplicaView) -> Line<'static> {
    let state = match (replica.running, replica.paused, replica.leads) {
        (false, _, _) => "down",
        (true, true, true) => "frozen, and still believes that it leads",
        (true, true, false) => "stopped",
        (true, false, true) => "leads",
        (true, false, false) => "stands by",
    };
    Line::styled(format!("pod-safety {}: {state}", replica.name), DIM)
}

/// How the plan goes by the rules of each, until this moment.
pub(super) fn standings(show: &Show, narrow: bool) -> Vec<Line<'static>> {
    let Some(comparison) = &show.comparison else {
        let mut lines = vec![Line::styled("running the same fault with all rules …", DIM)];
        lines.resize(if narrow { 6 } else { 3 }, Line::default());
        return lines;
    };
    let line = |(contender, outcome): (Contender, &pod_safety_simulator::world::Outcome)| {
        let label = Span::from(format!("{:<24}", contender.label()));
        let label = if contender == show.contender { label.bold().cyan() } else { label };
        let (away, twice) =
            (outcome.presence.away(show.snapshot.at), outcome.presence.twice(show.snapshot.at));
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
            Some(twice) if twice.goes_on => {
                Span::styled(format!("TWO COPIES WRITE {}", spelled(twice.lasted)), BAD)
            }
            Some(twice) => Span::styled(format!("two copies wrote {}", spelled(twice.lasted)), BAD),
        };
        if narrow {
            return vec![Line::from(vec![label, away]), Line::from(vec![Span::from("  "), twice])];
        }
        let gap = " ".repeat(28_usize.saturating_sub(away.width()).max(1));
        vec![Line::from(vec![label, away, Span::from(gap), twice])]
    };
    comparison.outcomes().flat_map(line).collect()
}

/// The newest lines of the timeline.
pub(super) fn events(show: &Show, area: Rect) -> Vec<Line<'static>> {
    let fit = usize::from(area.height.saturating_sub(1));
    let from = show.timeline.len().saturating_sub(fit);
    let line = |(at, what): &(Duration, String)| {
        let style = match what {
            what if what.starts_with("VIOLATION") => BAD,
            what if what.starts_with("fault") || what.starts_with("a person") => WARN,
            what if what.contains("is marked Unknown") || what.contains(" taints ") => WARN,
            what if what.contains("on evidence") || what.contains(" removes ") => GOOD,
            _ => Style::new(),
        };
        Line::styled(format!("{:>8}  {what}", clock(*at)), style)
    };
    show.timeline.iter().skip(from).map(line).collect()
}
