//! All measurements as tables for the terminal. `page` shows the promised numbers.

use std::fmt::Write as _;

use crate::contender::Contender::{Kcm, PodSafety};
use crate::plan::Phase;
use crate::results::{API_CPU, BACKGROUND_BEFORE, BACKGROUND_P99, Origin, RATE, Results, Sample, each_once};

/// Contender and scene.
pub(crate) fn bare_loops(samples: &[Sample]) -> Vec<(&str, &str)> {
    let bare = samples.iter().filter(|one| one.phase == Phase::Bare);
    each_once(bare.map(|one| (&*one.who, &*one.scene)))
}

/// The first as a share of the second.
pub(crate) fn ratio(own: Option<f64>, kcm: Option<f64>) -> Option<f64> {
    Some(own? / kcm.filter(|kcm| *kcm > 0.0)?)
}

pub(crate) fn markdown(results: &Results) -> String {
    let (Origin { machine, versions, .. }, plan) = (&results.origin, &results.plan);
    let frame = format!(
        "{machine}. {}.\n{} nodes, {} pods, orphans on {} missing nodes. Medians of {} \
         (quiet times and KCM's removals: one each).\n",
        versions.join(", "),
        plan.nodes,
        plan.pods,
        plan.ghosts,
        plan.rounds,
    );
    let beside = table(["", "pod-safety", "KCM", "ratio"], beside_kcm(results).into_iter());
    let bare = table(
        ["", "pods/s", "API server CPU, s", BACKGROUND_BEFORE, BACKGROUND_P99, "pod-safety reaches"],
        bare(results),
    );
    let requests = table(["requests", "of", ""], requests(results));
    [frame, beside, bare, requests].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
}

/// Without rows there is no table.
pub(crate) fn table<const N: usize>(head: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
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
        let names = each_once(these.flat_map(|one| one.values.iter().map(|(name, _)| name.as_str())));
        for (index, name) in names.into_iter().enumerate() {
            let of = |who: &str| results.median(phase, scene, who, name);
            let (own, kcm) = (of(PodSafety.name()), of(Kcm.name()));
            let ratio = ratio(own, kcm).map_or_else(dash, |ratio| format!("{ratio:.3}"));
            let what = if index == 0 { format!("{scene}: {name}") } else { format!("… {name}") };
            rows.push([what, format_value(own), format_value(kcm), ratio]);
        }
    }
    rows
}

fn bare(results: &Results) -> impl Iterator<Item = [String; 6]> {
    bare_loops(&results.samples).into_iter().map(move |(who, scene)| {
        let of = |name| results.median(Phase::Bare, scene, who, name);
        let own = results.median(Phase::Removal, scene, PodSafety.name(), RATE);
        let reach = ratio(own, of(RATE)).map_or_else(dash, |ratio| format!("{:.0} %", 100.0 * ratio));
        let numbers = [RATE, API_CPU, BACKGROUND_BEFORE, BACKGROUND_P99].map(|name| format_value(of(name)));
        let [rate, cpu, before, meanwhile] = numbers;
        [format!("{who}: {scene}"), rate, cpu, before, meanwhile, reach]
    })
}

/// The requests of each contender, in the first round.
fn requests(results: &Results) -> impl Iterator<Item = [String; 3]> {
    results.scenes().into_iter().flat_map(move |(phase, scene)| {
        [PodSafety, Kcm].into_iter().filter_map(move |who| {
            let one = results.samples_of(phase, scene, who.name()).next().filter(|one| !one.requests.is_empty())?;
            let parts: Vec<_> = one.requests.iter().map(|(name, count)| format!("{count} {name}")).collect();
            Some([who.name().to_owned(), scene.to_owned(), parts.join(", ")])
        })
    })
}

/// Three significant digits.
pub(crate) fn format_value(value: Option<f64>) -> String {
    match value {
        None => dash(),
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

pub(crate) fn dash() -> String {
    "–".to_owned()
}
