//! The tables, as Markdown.

use std::fmt::Write as _;

use crate::contender::Contender::{self, Kcm, Ours};
use crate::results::{Bare, Results, median};
use crate::targets::{self, ratio};

/// All tables of one run.
pub(crate) fn markdown(results: &Results) -> String {
    let parts = [frame(results), promises(results), beside_kcm(results), bare(results), requests(results)];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
}

fn frame(results: &Results) -> String {
    let (machine, plan) = (&results.machine, &results.plan);
    let versions = results.versions.join(", ");
    format!(
        "{cores} cores of {processor}, {memory} GiB, {kernel}. {versions}.\n\
         {nodes} nodes, {pods} pods, orphans on {ghosts} missing nodes. Medians of {rounds} \
         (quiet times and KCM's removals: one each).\n",
        cores = machine.cores,
        processor = machine.processor,
        memory = machine.memory_gib,
        kernel = machine.kernel,
        nodes = plan.nodes,
        pods = plan.pods,
        ghosts = plan.ghosts,
        rounds = plan.rounds,
    )
}

fn promises(results: &Results) -> String {
    let targets = targets::all(results);
    if targets.is_empty() {
        return String::new();
    }
    let mut text = String::from("| promise | wanted | measured | reached |\n|---|---:|---:|---|\n");
    for target in targets {
        let reached = if target.reached { "yes" } else { "**no**" };
        let _infallible =
            writeln!(text, "| {} | {} | {} | {reached} |", target.what, target.wanted, target.measured);
    }
    text
}

/// One line of the table of both contenders.
struct Line {
    what: String,
    ours: Option<f64>,
    kcm: Option<f64>,
}

impl Line {
    fn of(what: impl Into<String>, value: impl Fn(Contender) -> Option<f64>) -> Self {
        Self { what: what.into(), ours: value(Ours), kcm: value(Kcm) }
    }
}

fn beside_kcm(results: &Results) -> String {
    let mut lines = starts(results);
    lines.extend(quiets(results));
    for &orphans in &results.plan.orphans {
        lines.extend(removals(results, orphans));
    }
    lines.retain(|line| line.ours.is_some() || line.kcm.is_some());
    if lines.is_empty() {
        return String::new();
    }
    let mut text = String::from("| | pod-safety | KCM | ratio |\n|---|---:|---:|---:|\n");
    for Line { what, ours, kcm } in lines {
        let ratio = ratio(ours, kcm).map_or_else(dash, |ratio| format!("{ratio:.3}"));
        let _infallible = writeln!(text, "| {what} | {} | {} | {ratio} |", shown(ours), shown(kcm));
    }
    text
}

fn starts(results: &Results) -> Vec<Line> {
    vec![
        Line::of("start to synced caches, s", |who| results.start(who, |one| one.seconds)),
        Line::of("… own CPU, s", |who| results.start(who, |one| one.cpu)),
        Line::of("… API server CPU, s", |who| results.start(who, |one| one.apiserver_cpu)),
        Line::of("… highest resident memory, MiB", |who| results.start(who, |one| one.peak_mib)),
        Line::of("… resident memory after it, MiB", |who| results.start(who, |one| one.resident_mib)),
    ]
}

fn quiets(results: &Results) -> Vec<Line> {
    let mut lines = Vec::new();
    for heartbeats in [false, true] {
        let of = |who| results.quiet(who, heartbeats);
        let Some(any) = of(Ours).or(of(Kcm)) else { continue };
        let when = if heartbeats {
            format!("{:.0} s with {:.0} heartbeats/s", any.seconds, any.renewals)
        } else {
            format!("{:.0} s without changes", any.seconds)
        };
        lines.extend([
            Line::of(format!("{when}: own CPU, s"), |who| Some(of(who)?.cpu)),
            Line::of("… of a core, %", |who| Some(of(who)?.cpu_percent())),
            Line::of("… API server CPU, s", |who| Some(of(who)?.apiserver_cpu)),
            Line::of("… resident memory at its end, MiB", |who| Some(of(who)?.resident_mib)),
            Line::of("… highest resident memory, MiB", |who| Some(of(who)?.peak_mib)),
        ]);
    }
    lines
}

fn removals(results: &Results, orphans: usize) -> Vec<Line> {
    vec![
        Line::of(format!("{orphans} orphans: quarantine over to last one gone, s"), |who| {
            results.removal(who, orphans, |one| one.seconds)
        }),
        Line::of("… to first one gone, s", |who| results.removal(who, orphans, |one| one.first_after)),
        Line::of("… pods/s since the quarantine was over", |who| {
            results.removal(who, orphans, |one| one.rate())
        }),
        Line::of("… pods/s from first to last", |who| results.removal(who, orphans, |one| one.pace())),
        Line::of("… requests per pod", |who| results.removal(who, orphans, |one| one.requests_per_pod())),
        Line::of("… API server CPU, s", |who| results.removal(who, orphans, |one| one.apiserver_cpu)),
        Line::of("… own CPU, s", |who| results.removal(who, orphans, |one| one.cpu)),
        Line::of("… highest resident memory, MiB", |who| results.removal(who, orphans, |one| one.peak_mib)),
    ]
}

fn bare(results: &Results) -> String {
    if results.bares.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "| bare loop: connections | orphans | pods/s | API server CPU, s | pod-safety reaches |\n\
         |---:|---:|---:|---:|---:|\n",
    );
    for &orphans in &results.plan.orphans {
        let ours = results.removal(Ours, orphans, |one| one.rate());
        for &connections in &results.plan.connections {
            let these = |one: &&Bare| one.orphans == orphans && one.connections == connections;
            let rate = results.bare(orphans, connections);
            let cpu = median(results.bares.iter().filter(these).map(|one| one.apiserver_cpu));
            let reach = ratio(ours, rate).map_or_else(dash, |ratio| format!("{:.0} %", 100.0 * ratio));
            let (rate, cpu) = (shown(rate), shown(cpu));
            let _infallible = writeln!(text, "| {connections} | {orphans} | {rate} | {cpu} | {reach} |");
        }
    }
    text
}

/// Which requests the removals took.
fn requests(results: &Results) -> String {
    if results.removals.is_empty() {
        return String::new();
    }
    let mut text = String::from("| requests of a removal | orphans | |\n|---|---:|---|\n");
    for &orphans in &results.plan.orphans {
        for who in [Ours, Kcm] {
            let mut these = results.removals.iter();
            let Some(one) = these.find(|one| one.contender == who && one.orphans == orphans) else {
                continue;
            };
            let parts: Vec<_> = one.requests.iter().map(|(name, count)| format!("{count} {name}")).collect();
            let _infallible = writeln!(text, "| {} | {orphans} | {} |", who.name(), parts.join(", "));
        }
    }
    text
}

/// Three digits that matter.
fn shown(value: Option<f64>) -> String {
    match value {
        None => dash(),
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

fn dash() -> String {
    "–".to_owned()
}
