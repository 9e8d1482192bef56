//! The tables, as Markdown.

use std::fmt::Write as _;

use crate::contender::Contender::{self, Kcm, Ours};
use crate::requests::Requests;
use crate::results::{Bare, Changes, Loss, Quiet, Results, Statuses, median, number};
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
    for stage in results.stages() {
        lines.extend(budgets(results, stage));
        lines.extend(changes(results, stage));
    }
    lines.extend(nodes(results));
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

fn budgets(results: &Results, stage: (usize, usize)) -> Vec<Line> {
    let (namespaces, budgets) = stage;
    let place = if namespaces == 1 { "one namespace".to_owned() } else { format!("{namespaces} namespaces") };
    let of = |what: fn(&Statuses) -> f64| move |who| results.statuses(who, stage, what);
    let mut lines = vec![
        Line::of(
            format!("{budgets} budgets in {place}: cold start to all statuses, s"),
            of(|one| one.seconds),
        ),
        Line::of("… own CPU, s", of(|one| one.cpu)),
        Line::of("… API server CPU, s", of(|one| one.apiserver_cpu)),
        Line::of("… highest resident memory, MiB", of(|one| one.peak_mib)),
        Line::of("… requests", of(|one| all(&one.requests))),
    ];
    if results.statuses.iter().any(|one| one.right < one.budgets) {
        lines.push(Line::of("… statuses right when that time was over", of(|one| number(one.right))));
    }
    lines
}

fn changes(results: &Results, stage: (usize, usize)) -> Vec<Line> {
    let of = |what: fn(&Changes) -> Option<f64>| move |who| what(results.changes(who, stage)?);
    let Some(any) = results.changes(Ours, stage).or(results.changes(Kcm, stage)) else { return Vec::new() };
    let first =
        format!("… {} pods become unready, {:.0}/s: to the status, p50, ms", any.changes, any.per_second);
    vec![
        Line::of(first, of(|one| one.p50)),
        Line::of("… p99, ms", of(|one| one.p99)),
        Line::of("… of which no status told in a minute", of(|one| Some(number(one.untold)))),
        Line::of("… own CPU, s", of(|one| Some(one.cpu))),
        Line::of("… API server CPU, the changes included, s", of(|one| Some(one.apiserver_cpu))),
        Line::of("… requests, the changes included", of(|one| Some(all(&one.requests)))),
    ]
}

fn nodes(results: &Results) -> Vec<Line> {
    let mut lines = Vec::new();
    let quiet = |who| results.node_quiets.iter().find(|quiet| quiet.contender == who);
    if let Some(any) = quiet(Ours).or(quiet(Kcm)) {
        let first = format!(
            "nodes: {:.0} s with {:.0} heartbeats/s: own CPU, % of a core",
            any.seconds, any.renewals
        );
        lines.extend([
            Line::of(first, |who| quiet(who).map(Quiet::cpu_percent)),
            Line::of("… resident memory at its end, MiB", |who| Some(quiet(who)?.resident_mib)),
        ]);
    }
    let evicted = |who| results.evictions.iter().find(|one| one.contender == who);
    if let Some(any) = evicted(Ours).or(evicted(Kcm)) {
        let first = format!("{} nodes with {} pods get a taint: to DELETE, p50, ms", any.nodes, any.pods);
        lines.extend([
            Line::of(first, |who| evicted(who)?.spread.p50),
            Line::of("… p99, ms", |who| evicted(who)?.spread.p99),
            Line::of("… longest, ms", |who| evicted(who)?.spread.max),
            Line::of("… not asked to end", |who| Some(number(evicted(who)?.undeleted))),
        ]);
    }
    let mut seen = Vec::new();
    for loss in &results.losses {
        if !seen.contains(&loss.what) {
            seen.push(loss.what);
            lines.extend(loss_of(results, loss));
        }
    }
    lines
}

fn loss_of(results: &Results, any: &Loss) -> Vec<Line> {
    let of = |what: fn(&Loss) -> Option<f64>| move |who| what(results.loss(who, any.what)?);
    let mut lines = vec![
        Line::of(
            format!("loss of {} ({}): grace to Unknown, p50, ms", any.what, any.nodes),
            of(|one| one.lag.p50),
        ),
        Line::of("… p99, ms", of(|one| one.lag.p99)),
        Line::of("… longest, ms", of(|one| one.lag.max)),
        Line::of("… not seen", of(|one| Some(number(one.undetected)))),
    ];
    if any.pods > 0 {
        let first = format!("… then until its {} pods are marked, s", any.pods);
        lines.extend([
            Line::of(first, of(|one| one.marked_seconds)),
            Line::of("… of them marked", of(|one| Some(number(one.marked)))),
        ]);
    }
    lines.extend([
        Line::of("… own CPU, s", of(|one| Some(one.cpu))),
        Line::of("… highest resident memory, MiB", of(|one| Some(one.peak_mib))),
        Line::of("… requests", of(|one| Some(all(&one.requests)))),
    ]);
    lines
}

fn all(requests: &Requests) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "requests of a test run are far below 2^52")]
    let sum = requests.values().sum::<u64>() as f64;
    sum
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

/// Which requests each took.
fn requests(results: &Results) -> String {
    let mut text = String::from("| requests | of | |\n|---|---:|---|\n");
    let before = text.len();
    for &orphans in &results.plan.orphans {
        for who in [Ours, Kcm] {
            let mut these = results.removals.iter();
            let Some(one) = these.find(|one| one.contender == who && one.orphans == orphans) else {
                continue;
            };
            row(&mut text, who, &format!("{orphans} orphans"), &one.requests);
        }
    }
    for stage in results.stages() {
        for who in [Ours, Kcm] {
            let of =
                |one: &&Statuses| (one.contender, one.namespaces, one.budgets) == (who, stage.0, stage.1);
            if let Some(one) = results.statuses.iter().find(of) {
                row(&mut text, who, &format!("{} budgets, {} namespaces", stage.1, stage.0), &one.requests);
            }
            if let Some(one) = results.changes(who, stage) {
                row(&mut text, who, &format!("… {} changes", one.changes), &one.requests);
            }
        }
    }
    if text.len() == before { String::new() } else { text }
}

fn row(text: &mut String, who: Contender, of: &str, requests: &Requests) {
    let parts: Vec<_> = requests.iter().map(|(name, count)| format!("{count} {name}")).collect();
    let _infallible = writeln!(text, "| {} | {of} | {} |", who.name(), parts.join(", "));
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
