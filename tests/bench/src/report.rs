//! The tables as Markdown, what was promised, and both in the documentation between two markers.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::contender::Contender::{Kcm, Ours};
use crate::plan::Phase;
use crate::results::{
    API_CPU, OF_A_CORE, OTHERS_BEFORE, OTHERS_P99, P99, PEAK, RATE, RESIDENT, Results, STATUSES, SYNCED,
    each_once,
};

const BEGIN: &str = "<!-- measured: written by `make bench` from here -->";
const END: &str = "<!-- measured: to here -->";

/// Phases that count for the highest memory.
const PEAKS: [Phase; 4] = [Phase::Start, Phase::Quiet, Phase::Heartbeats, Phase::Removal];

#[derive(Clone, Copy, PartialEq)]
enum Beside {
    Nothing,
    /// The same number of kube-controller-manager's.
    Kcm,
    /// How many times as fast as kube-controller-manager, where the number is a time.
    TimesAsFast,
    Bare,
}

#[derive(Clone, Copy)]
enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

/// (phase, number, with what it is compared, the limit, its unit), for every scene of that phase.
const PROMISES: [(Phase, &str, Beside, Limit, &str); 9] = [
    (Phase::Quiet, RESIDENT, Beside::Kcm, Limit::AtMost(1.0 / 20.0), " × KCM's"),
    (Phase::Start, SYNCED, Beside::Kcm, Limit::AtMost(0.5), " × KCM's"),
    (Phase::Start, API_CPU, Beside::Kcm, Limit::AtMost(1.0), " × KCM's"),
    (Phase::Removal, RATE, Beside::Kcm, Limit::AtLeast(15.0), " × KCM's"),
    (Phase::Removal, RATE, Beside::Bare, Limit::AtLeast(0.8), " × the bare loop's"),
    (Phase::Budgets, STATUSES, Beside::TimesAsFast, Limit::AtLeast(20.0), " × as fast as KCM"),
    (Phase::Losses, P99, Beside::Nothing, Limit::AtMost(200.0), ""),
    (Phase::Quiet, OF_A_CORE, Beside::Nothing, Limit::AtMost(1.0), ""),
    (Phase::Heartbeats, OF_A_CORE, Beside::Nothing, Limit::AtMost(1.0), ""),
];

/// One promise, and whether it is kept.
#[derive(Debug, Serialize)]
struct Target {
    what: String,
    wanted: String,
    measured: String,
    reached: bool,
}

impl Target {
    fn of(what: String, limit: Limit, unit: &str, measured: f64) -> Self {
        let (sign, limit, digits, reached) = match limit {
            Limit::AtMost(limit) => ('≤', limit, 3, measured <= limit),
            Limit::AtLeast(limit) => ('≥', limit, 2, measured >= limit),
        };
        let measured = format!("{measured:.digits$}{unit}");
        Self { what, wanted: format!("{sign} {limit}{unit}"), measured, reached }
    }
}

/// The promises about what was measured; nothing is said about the rest.
fn targets(results: &Results) -> Vec<Target> {
    let peak = |who: &str| {
        let these = results.samples.iter().filter(|one| one.who == who && PEAKS.contains(&one.phase));
        these.filter_map(|one| one.value(PEAK)).max_by(f64::total_cmp)
    };
    let peak = ratio(peak(Ours.name()), peak(Kcm.name())).map(|ratio| {
        let what = "highest resident memory in any phase".to_owned();
        Target::of(what, Limit::AtMost(1.0 / 20.0), " × KCM's", ratio)
    });
    let scenes = results.scenes();
    let all = PROMISES.iter().flat_map(|promise| scenes.iter().map(move |scene| (promise, scene)));
    let rest = all.filter_map(|((phase, name, beside, limit, unit), (of, scene))| {
        // Over many namespaces nothing was promised.
        let promised = phase == of && (*beside != Beside::TimesAsFast || scene.ends_with("one namespace"));
        let measured = promised.then(|| measured(results, *phase, scene, name, *beside))??;
        Some(Target::of(format!("{scene}: {name}"), *limit, unit, measured))
    });
    peak.into_iter().chain(rest).collect()
}

fn measured(results: &Results, phase: Phase, scene: &str, name: &str, beside: Beside) -> Option<f64> {
    let of = |who: &str| results.median(phase, scene, who, name);
    let (ours, kcm) = (of(Ours.name()), of(Kcm.name()));
    match beside {
        // What happened too late to be seen is worse than any limit.
        Beside::Nothing => {
            results.of(phase, scene, Ours.name()).next().map(|_| ours.unwrap_or(f64::INFINITY))
        }
        Beside::Kcm => ratio(ours, kcm),
        Beside::TimesAsFast => ratio(kcm, ours),
        Beside::Bare => {
            let loops = bare_loops(results).into_iter().filter(|(_, of)| *of == scene);
            let rates = loops.filter_map(|(who, _)| results.median(Phase::Bare, scene, who, RATE));
            ratio(ours, rates.max_by(f64::total_cmp))
        }
    }
}

/// Who, and of what.
fn bare_loops(results: &Results) -> Vec<(&str, &str)> {
    let bare = results.samples.iter().filter(|one| one.phase == Phase::Bare);
    each_once(bare.map(|one| (&*one.who, &*one.scene)))
}

/// The one as a part of the other.
fn ratio(ours: Option<f64>, kcm: Option<f64>) -> Option<f64> {
    Some(ours? / kcm.filter(|kcm| *kcm > 0.0)?)
}

pub(crate) fn markdown(results: &Results) -> String {
    let (machine, plan) = (&results.machine, &results.plan);
    let frame = format!(
        "{} cores of {}, {} GiB, {}. {}.\n{} nodes, {} pods, orphans on {} missing nodes. Medians of {} \
         (quiet times and KCM's removals: one each).\n",
        machine.cores,
        machine.processor,
        machine.memory_gib,
        machine.kernel,
        results.versions.join(", "),
        plan.nodes,
        plan.pods,
        plan.ghosts,
        plan.rounds,
    );
    let targets = targets(results).into_iter().map(|Target { what, wanted, measured, reached }| {
        let reached = if reached { "yes" } else { "**no**" };
        [what, wanted, measured, reached.to_owned()]
    });
    let promises = table(["promise", "wanted", "measured", "reached"], targets);
    let beside = table(["", "pod-safety", "KCM", "ratio"], beside_kcm(results).into_iter());
    let bare = table(
        ["", "pods/s", "API server CPU, s", OTHERS_BEFORE, OTHERS_P99, "pod-safety reaches"],
        bare(results),
    );
    let requests = table(["requests", "of", ""], requests(results));
    [frame, promises, beside, bare, requests]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("\n")
}

/// Without rows there is no table.
fn table<const N: usize>(head: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut text = String::new();
    for row in rows {
        if text.is_empty() {
            text = format!("| {} |\n|---{}|\n", head.join(" | "), "|---:".repeat(N - 1));
        }
        let _infallible = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}

fn beside_kcm(results: &Results) -> Vec<[String; 4]> {
    let mut rows = Vec::new();
    for (phase, scene) in results.scenes().into_iter().filter(|(phase, _)| *phase != Phase::Bare) {
        let these = results.samples.iter().filter(|one| one.phase == phase && one.scene == scene);
        let names = each_once(these.flat_map(|one| one.values.iter().map(|(name, _)| *name)));
        for (index, name) in names.into_iter().enumerate() {
            let of = |who: &str| results.median(phase, scene, who, name);
            let (ours, kcm) = (of(Ours.name()), of(Kcm.name()));
            let ratio = ratio(ours, kcm).map_or_else(dash, |ratio| format!("{ratio:.3}"));
            let what = if index == 0 { format!("{scene}: {name}") } else { format!("… {name}") };
            rows.push([what, shown(ours), shown(kcm), ratio]);
        }
    }
    rows
}

fn bare(results: &Results) -> impl Iterator<Item = [String; 6]> {
    bare_loops(results).into_iter().map(move |(who, scene)| {
        let of = |name| results.median(Phase::Bare, scene, who, name);
        let ours = results.median(Phase::Removal, scene, Ours.name(), RATE);
        let reach = ratio(ours, of(RATE)).map_or_else(dash, |ratio| format!("{:.0} %", 100.0 * ratio));
        let numbers = [RATE, API_CPU, OTHERS_BEFORE, OTHERS_P99].map(|name| shown(of(name)));
        let [rate, cpu, before, meanwhile] = numbers;
        [format!("{who}: {scene}"), rate, cpu, before, meanwhile, reach]
    })
}

/// Which requests each took, the first time.
fn requests(results: &Results) -> impl Iterator<Item = [String; 3]> {
    results.scenes().into_iter().flat_map(move |(phase, scene)| {
        [Ours, Kcm].into_iter().filter_map(move |who| {
            let one = results.of(phase, scene, who.name()).next().filter(|one| !one.requests.is_empty())?;
            let parts: Vec<_> = one.requests.iter().map(|(name, count)| format!("{count} {name}")).collect();
            Some([who.name().to_owned(), scene.to_owned(), parts.join(", ")])
        })
    })
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

#[derive(Serialize)]
struct Document<'a> {
    targets: Vec<Target>,
    #[serde(flatten)]
    results: &'a Results,
}

/// Writes a run into the documentation: numbers as JSON, tables into the page.
pub(crate) fn write(folder: &Path, results: &Results) -> Result<()> {
    let (page, numbers) = (folder.join("benchmarks.md"), folder.join("benchmarks.json"));
    let text = std::fs::read_to_string(&page).with_context(|| format!("cannot read {}", page.display()))?;
    let text = filled(&text, &markdown(results))
        .map_err(|marker| anyhow::anyhow!("{} lacks the line {marker:?}", page.display()))?;
    let json = serde_json::to_string_pretty(&Document { targets: targets(results), results })?;
    for (path, text) in [(numbers, json + "\n"), (page, text)] {
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// `page` with `tables` between the markers; `Err` names the marker that it lacks.
fn filled(page: &str, tables: &str) -> Result<String, &'static str> {
    let (before, rest) = page.split_once(BEGIN).ok_or(BEGIN)?;
    let (_, after) = rest.split_once(END).ok_or(END)?;
    Ok(format!("{before}{BEGIN}\n\n{tables}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_markers_changes() {
        let page = format!("# Title\n\n{BEGIN}\nold\n{END}\n\nend\n");
        let once = filled(&page, "| new |\n").unwrap();
        assert_eq!(once, format!("# Title\n\n{BEGIN}\n\n| new |\n\n{END}\n\nend\n"));
        assert_eq!(filled(&once, "| new |\n").unwrap(), once);
    }

    #[test]
    fn a_page_without_a_place_for_them_is_left_alone() {
        assert_eq!(filled("# Title", ""), Err(BEGIN));
        assert_eq!(filled(BEGIN, ""), Err(END));
    }
}
