//! `docs/benchmarks.md`, generated from `docs/benchmarks.json`: the promised numbers and the main comparison with kube-controller-manager, as
//! a table and a chart. The file has every measurement.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::budgets::CORRECT_AFTER;
use crate::contender::Contender::{self, Floor, Kcm, KubeRuntime, PodSafety};
use crate::failover::DECIDED;
use crate::plan::Phase;
use crate::report::{bare_loops, dash, format_value, ratio, table};
use crate::results::{
    API_CPU, OF_A_CORE, OWN_CPU, Origin, P99, PEAK, RATE, RESIDENT, Results, STATUSES, SYNCED, Sample, each_once,
    median_of,
};

const PAGE: &str = "benchmarks.md";
const NUMBERS: &str = "benchmarks.json";
const PICTURE: &str = "benchmarks.svg";
/// `NAME` of the markers of this page.
const PLACE: &str = "benchmarks";
const CLIENTS: &str = "clients";

/// Which of two numbers is better.
#[derive(Clone, Copy, PartialEq)]
enum Better {
    Less,
    More,
}

#[derive(Clone, Copy)]
enum Target {
    Nothing,
    /// This many times as good as kube-controller-manager.
    Times(f64),
    AtMost(f64),
}

struct Row {
    phase: Phase,
    number: &'static str,
    /// Its label on the page.
    label: &'static str,
    better: Better,
    target: Target,
}

const fn row(phase: Phase, number: &'static str, label: &'static str, better: Better, target: Target) -> Row {
    Row { phase, number, label, better, target }
}

/// Each row is repeated for every scene of the phase that has this number.
const ROWS: [Row; 14] = [
    row(Phase::Start, PEAK, "memory at its peak, MiB", Better::Less, Target::Times(20.0)),
    row(Phase::Start, SYNCED, "until caches are synced, s", Better::Less, Target::Times(2.0)),
    row(Phase::Start, OWN_CPU, "own CPU, s", Better::Less, Target::Nothing),
    row(Phase::Start, API_CPU, "API server CPU, s", Better::Less, Target::Times(1.0)),
    row(Phase::Quiet, RESIDENT, "memory at the end, MiB", Better::Less, Target::Times(20.0)),
    row(Phase::Quiet, OF_A_CORE, "own CPU, % of a core", Better::Less, Target::AtMost(1.0)),
    row(Phase::Heartbeats, OF_A_CORE, "own CPU, % of a core", Better::Less, Target::AtMost(1.0)),
    row(Phase::Heartbeats, API_CPU, "API server CPU, s", Better::Less, Target::Nothing),
    row(Phase::Failover, DECIDED, "until the next one has decided, s", Better::Less, Target::Nothing),
    row(Phase::Removal, RATE, "removed, pods/s", Better::More, Target::Times(15.0)),
    row(Phase::Budgets, STATUSES, "until all statuses are right, s", Better::Less, Target::Times(20.0)),
    row(Phase::Nodes, P99, "p99, ms", Better::Less, Target::Nothing),
    row(Phase::Losses, P99, "p99, ms", Better::Less, Target::AtMost(200.0)),
    row(Phase::Tenants, PEAK, "memory at its peak, MiB", Better::Less, Target::Nothing),
];

/// The required share of the bare loop's rate.
const OF_BARE: f64 = 0.8;

/// The content of benchmarks.json.
#[derive(Default, Serialize, Deserialize)]
struct Record {
    runs: Vec<Run>,
}

#[derive(Serialize, Deserialize)]
struct Run {
    #[serde(flatten)]
    origin: Origin,
    samples: Vec<Sample>,
}

/// A line of the table, with the ratio to kube-controller-manager.
struct Line {
    cells: [String; 6],
    times: Option<f64>,
}

/// Adds a run to the documentation. Its measurements replace those of earlier runs of the same phase and contender.
pub(crate) fn write(folder: &Path, results: Results) -> Result<()> {
    let mut record = read_numbers(folder)?;
    let measured: Vec<_> = results.samples.iter().map(|one| (one.phase, one.who.clone())).collect();
    for run in &mut record.runs {
        run.samples.retain(|one| !measured.contains(&(one.phase, one.who.clone())));
    }
    record.runs.retain(|run| !run.samples.is_empty());
    record.runs.push(Run { origin: results.origin, samples: results.samples });
    std::fs::write(folder.join(NUMBERS), serde_json::to_string_pretty(&record)? + "\n")?;
    write_page(folder)
}

/// Generates the page and its chart from benchmarks.json.
pub(crate) fn write_page(folder: &Path) -> Result<()> {
    let (page, picture) = render(folder)?;
    std::fs::write(folder.join(PAGE), page)?;
    Ok(std::fs::write(folder.join(PICTURE), picture)?)
}

fn read_numbers(folder: &Path) -> Result<Record> {
    let file = folder.join(NUMBERS);
    let Ok(text) = std::fs::read_to_string(&file) else { return Ok(Record::default()) };
    serde_json::from_str(&text).with_context(|| format!("reading {}", file.display()))
}

/// The page and the chart, generated.
fn render(folder: &Path) -> Result<(String, String)> {
    let record = read_numbers(folder)?;
    let samples: Vec<Sample> = record.runs.iter().flat_map(|run| run.samples.iter().cloned()).collect();
    let lines = lines(&samples);
    let picture = picture(&lines);
    let head = ["", "pod-safety", "KCM", "better by", "wanted", "reached"];
    let rows = lines.into_iter().map(|line| line.cells);
    let text = format!("{}\n{}\n", table(head, rows), origins(&record).trim_end());
    let file = folder.join(PAGE);
    let page = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let page = filled(&page, PLACE, &text)?;
    Ok((filled(&page, CLIENTS, &clients(&samples))?, picture))
}

/// The median of a row. The API server's CPU time is a difference, because its idle use is subtracted: zero or less is
/// noise.
fn above_noise(samples: &[Sample], row: &Row, scene: &str, who: Contender) -> Option<f64> {
    let is_above = |value: &f64| row.number != API_CPU || *value > 0.0;
    median_of(samples, row.phase, scene, who.name(), row.number).filter(is_above)
}

/// Contenders with the same watches: those of the phases without removals.
fn clients(samples: &[Sample]) -> String {
    let mut rows = Vec::new();
    for row in ROWS.iter().filter(|row| KubeRuntime.takes_part(row.phase)) {
        let measured = samples.iter().filter(|one| one.phase == row.phase && one.who == KubeRuntime.name());
        for scene in each_once(measured.map(|one| one.scene.as_str())) {
            let of = |who: Contender| above_noise(samples, row, scene, who);
            let times = ratio(of(KubeRuntime), of(PodSafety)).filter(|times| *times > 0.0);
            rows.push([
                format!("{scene}: {}", row.label),
                format_value(of(PodSafety)),
                format_value(of(KubeRuntime)),
                times.map_or_else(dash, |times| format!("{} ×", format_value(Some(times)))),
                format_value(of(Kcm)),
                format_value(of(Floor)),
            ]);
        }
    }
    let head = ["", PodSafety.name(), KubeRuntime.name(), "that is", Kcm.name(), Floor.name()];
    table(head, rows.into_iter()).trim_end().to_owned()
}

/// `page` with `text` between the markers of this name.
pub(crate) fn filled(page: &str, name: &str, text: &str) -> Result<String> {
    let (begin, end) = (format!("<!-- measured: {name} -->"), format!("<!-- measured: to here, {name} -->"));
    let lacks = |marker: &str| format!("the page lacks the line {marker:?}");
    let (before, rest) = page.split_once(&begin).with_context(|| lacks(&begin))?;
    let (_, after) = rest.split_once(&end).with_context(|| lacks(&end))?;
    Ok(format!("{before}{begin}\n\n{text}\n{end}{after}"))
}

/// Which run measured what. Values that all runs share are stated once.
fn origins(record: &Record) -> String {
    let place = |origin: &Origin| format!("{}; {}", origin.machine, origin.versions.join(", "));
    let places = each_once(record.runs.iter().map(|run| place(&run.origin)));
    let mut text = String::new();
    if record.runs.len() > 1 {
        text += "Measured in parts; `make bench` measures all of it in one run.\n\n";
    }
    for on in places {
        let _infallible = writeln!(text, "On {on}:\n");
        for Run { origin, samples } in record.runs.iter().filter(|run| place(&run.origin) == on) {
            let phases = each_once(samples.iter().map(|one| one.phase.name())).join(", ");
            let Origin { command, commit, date, .. } = origin;
            let _infallible = writeln!(text, "- {phases}: commit `{commit}`, {date}, `{command}`");
        }
        text.push('\n');
    }
    text
}

fn lines(samples: &[Sample]) -> Vec<Line> {
    let mut lines = Vec::new();
    for row in &ROWS {
        let of_phase = samples.iter().filter(|one| one.phase == row.phase);
        let has = of_phase.filter(|one| {
            let is_ours_and_missed = one.who == PodSafety.name() && row.phase == Phase::Losses;
            one.value(row.number).is_some() || is_ours_and_missed
        });
        for scene in each_once(has.map(|one| one.scene.as_str())) {
            let line = line(samples, row, scene);
            let is_beside_kcm = matches!(row.target, Target::Times(_));
            lines.extend((!is_beside_kcm || line.times.is_some()).then_some(line));
            lines.extend((row.phase == Phase::Removal).then(|| beside_the_bare_loop(samples, scene)).flatten());
        }
    }
    lines
}

fn line(samples: &[Sample], row: &Row, scene: &str) -> Line {
    let (own, kcm) = (above_noise(samples, row, scene, PodSafety), above_noise(samples, row, scene, Kcm));
    // An unfinished measurement is a lower bound.
    let correct = |who: Contender| median_of(samples, row.phase, scene, who.name(), CORRECT_AFTER);
    let unfinished = correct(Kcm).filter(|right| correct(PodSafety) > Some(*right));
    let sign = if unfinished.is_some() { "> " } else { "" };
    let times = match row.better {
        Better::Less => ratio(kcm, own),
        Better::More => ratio(own, kcm),
    };
    let promised = row.number != STATUSES || scene.ends_with("one namespace");
    let (target, reached) = match row.target {
        Target::Times(limit) if promised && kcm.is_some() => {
            (format!("≥ {limit} ×"), times.map(|times| times >= limit))
        }
        Target::AtMost(limit) => (format!("≤ {limit}"), Some(own.is_some_and(|own| own <= limit))),
        Target::Nothing | Target::Times(_) => (dash(), None),
    };
    let cells = [
        format!("{scene}: {}", row.label),
        format_value(own),
        format!("{sign}{}", format_value(kcm)),
        times.map_or_else(dash, |times| format!("{sign}{} ×", format_value(Some(times)))),
        target,
        yes_or_no(reached),
    ];
    Line { cells, times }
}

/// pod-safety's rate as a share of that of the fastest bare loop of the scene.
fn beside_the_bare_loop(samples: &[Sample], scene: &str) -> Option<Line> {
    let loops = bare_loops(samples).into_iter().filter(|(_, of)| *of == scene);
    let rates = loops.filter_map(|(who, _)| median_of(samples, Phase::Bare, scene, who, RATE));
    let part = ratio(median_of(samples, Phase::Removal, scene, PodSafety.name(), RATE), rates.max_by(f64::total_cmp))?;
    let cells = [
        format!("{scene}: part of the bare loop's pods/s"),
        format_value(Some(part)),
        dash(),
        dash(),
        format!("≥ {OF_BARE}"),
        yes_or_no(Some(part >= OF_BARE)),
    ];
    Some(Line { cells, times: None })
}

fn yes_or_no(reached: Option<bool>) -> String {
    match reached {
        None => dash(),
        Some(true) => "yes".to_owned(),
        Some(false) => "**no**".to_owned(),
    }
}

const ROW: f64 = 22.0;
const BARS_AT: f64 = 460.0;
const WIDTH: f64 = 800.0;
/// The length of a bar for a factor of ten.
const TEN: f64 = 66.0;

/// A bar for each line that has a ratio, on a logarithmic scale.
fn picture(lines: &[Line]) -> String {
    let bars: Vec<_> = lines.iter().filter_map(|line| Some((line, line.times?))).collect();
    let height = ROW * (crate::results::number(bars.len()) + 2.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n\
         <text x=\"16\" y=\"20\" font-weight=\"bold\">How many times as good as kube-controller-manager, by powers of ten</text>\n"
    );
    for (place, (line, times)) in bars.iter().enumerate() {
        let y = ROW * (crate::results::number(place) + 1.5);
        let length = (times.log10() * TEN).max(1.0);
        let [what, _, _, better, ..] = &line.cells;
        let _infallible = writeln!(
            svg,
            "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{BARS_AT}\" y=\"{y:.0}\" width=\"{length:.0}\" height=\"16\" fill=\"#1b6ec2\"/>\
             <text x=\"{:.0}\" y=\"{:.0}\">{}</text>",
            BARS_AT - 8.0,
            y + 12.0,
            escaped(what),
            BARS_AT + length + 6.0,
            y + 12.0,
            escaped(better),
        );
    }
    svg + "</svg>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
    }

    /// `pod-safety-bench draw` generates them.
    #[test]
    fn the_page_and_its_picture_match_the_numbers() {
        let (page, picture) = render(&folder()).unwrap();
        for (file, target) in [(PAGE, page), (PICTURE, picture)] {
            let there = std::fs::read_to_string(folder().join(file)).unwrap_or_default();
            assert!(there == target, "docs/{file} is not of {NUMBERS}; run pod-safety-bench draw");
        }
    }

    #[test]
    fn only_what_is_between_the_markers_changes() {
        let (begin, end) = ("<!-- measured: x -->", "<!-- measured: to here, x -->");
        let page = format!("# Title\n\n{begin}\nold\n{end}\n\nend\n");
        let once = filled(&page, "x", "| new |\n").unwrap();
        assert_eq!(once, format!("# Title\n\n{begin}\n\n| new |\n\n{end}\n\nend\n"));
        assert_eq!(filled(&once, "x", "| new |\n").unwrap(), once);
        assert!(filled("# Title", "x", "").is_err() && filled(begin, "x", "").is_err(), "no place for them");
    }

    #[test]
    fn a_difference_of_zero_or_less_is_not_printed() {
        let sample = |who: Contender, api: f64, own: f64| {
            Sample::new(Phase::Heartbeats, who.name(), "90 s").with(API_CPU, api).with(OF_A_CORE, own)
        };
        let samples = [sample(PodSafety, 2.0, 0.5), sample(KubeRuntime, -4.0, 0.0), sample(Kcm, 0.0, 1.0)];
        let text = clients(&samples);
        assert!(text.contains("| 90 s: own CPU, % of a core | 0.50 | 0.00 | – | 1.00 | – |"), "{text}");
        assert!(text.contains("| 90 s: API server CPU, s | 2.00 | – | – | – | – |"), "{text}");
        let last = lines(&samples).pop().unwrap();
        assert_eq!(last.cells[..4], ["90 s: API server CPU, s", "2.00", "–", "–"]);
    }

    #[test]
    fn an_unfinished_measurement_is_a_lower_bound() {
        let sample = |who: &str, seconds: f64, right: f64| {
            Sample::new(Phase::Budgets, who, "9 budgets in one namespace")
                .with(STATUSES, seconds)
                .with(CORRECT_AFTER, right)
        };
        let samples = [sample(PodSafety.name(), 10.0, 9.0), sample(Kcm.name(), 300.0, 4.0)];
        let lines = lines(&samples);
        let target = ["10.0", "> 300", "> 30.0 ×", "≥ 20 ×", "yes"];
        assert_eq!(lines[0].cells[1..], target);
    }
}
