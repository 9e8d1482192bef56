//! The charts of `docs/scale.md`, drawn from its tables, so that charts and tables show the same numbers.

use std::path::Path;

use anyhow::{Context as _, Result};
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use crate::page;

const PAGE: &str = "scale.md";
const KCM: &str = "kube-controller-manager";
const WIDTH: u32 = 640;
const HEIGHT: u32 = 360;
const COLORS: [RGBColor; 2] = [RGBColor(0x1b, 0x6e, 0xc2), RGBColor(0xc2, 0x4b, 0x1b)];

/// The vertical axis of a chart.
#[derive(Clone, Copy)]
enum Axis {
    /// Linear from zero.
    Even,
    /// Logarithmic from one: on a linear axis, values a thousand times smaller would be invisible.
    Tens,
}

/// Points by series name.
type Series = Vec<(String, Vec<(f64, f64)>)>;

/// Generates pages and charts.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Draw {
    /// The folder of the pages, and of their pictures
    #[arg(long, value_name = "FOLDER", default_value = "docs")]
    docs: std::path::PathBuf,
}

pub(crate) fn run(plan: &Draw) -> Result<String> {
    page::write_page(&plan.docs)?;
    draw_scale(&plan.docs)
}

/// Draws the charts of docs/scale.md, and returns their names.
pub(crate) fn draw_scale(docs: &Path) -> Result<String> {
    let mut written = String::new();
    for (file, picture) in pictures(docs)? {
        std::fs::write(docs.join(&file), picture)?;
        written.push_str(&file);
        written.push('\n');
    }
    Ok(written)
}

/// The tables of the page, by their header: synthetic clusters of all sizes, unreachable nodes there, and a real API server.
const SIZES: &str = "| nodes | pods | heartbeats/s |";
const SILENT: &str = "| nodes | lost at once |";
const BESIDE: &str = "| program | nodes | pods |";

/// The chart files of the folder with their content.
fn pictures(docs: &Path) -> Result<Vec<(String, String)>> {
    use Axis::{Even, Tens};
    let file = docs.join(PAGE);
    let page = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let all = |_: &[&str]| true;
    let with_pods = |cells: &[&str]| cells[1] != "0";
    let own_rows = |table, columns, of: fn(&[&str]) -> bool| {
        Ok::<_, anyhow::Error>(vec![("pod-safety".to_owned(), points(&page, table, columns, of)?)])
    };
    let kcm = |columns| {
        let of = |cells: &[&str]| cells[0] == KCM;
        Ok::<_, anyhow::Error>(vec![(KCM.to_owned(), points(&page, BESIDE, columns, of)?)])
    };
    let on_real = |columns| points(&page, BESIDE, columns, |cells| cells[0] != KCM);
    let memory = [own_rows(SIZES, (1, 5), with_pods)?, kcm((2, 4))?].concat();
    let start = [own_rows(SIZES, (1, 3), with_pods)?, kcm((2, 3))?].concat();
    let lost = [own_rows(SILENT, (0, 3), |cells| cells[1] == "100" && !cells[3].is_empty())?, kcm((1, 6))?].concat();
    let removal = [vec![("pod-safety".to_owned(), on_real((1, 5))?)], kcm((1, 5))?].concat();
    let all = [
        ("scale-memory.svg", "Memory at its peak", ["thousands of pods", "MiB"], memory, 1e-3, Even),
        (
            "scale-start.svg",
            "From the start of the process to synced caches",
            ["thousands of pods", "s"],
            start,
            1e-3,
            Even,
        ),
        (
            "scale-heartbeats.svg",
            "Own CPU for heartbeats",
            ["heartbeats/s", "% of a core"],
            own_rows(SIZES, (2, 6), all)?,
            1.0,
            Even,
        ),
        (
            "scale-lost-nodes.svg",
            "100 nodes are lost: grace period over to Unknown, p99",
            ["thousands of nodes", "ms"],
            lost,
            1e-3,
            Tens,
        ),
        (
            "scale-removal.svg",
            "1,000 orphans are removed from a real API server",
            ["thousands of nodes", "pods/s"],
            removal,
            1e-3,
            Tens,
        ),
    ];
    all.into_iter()
        .map(|(file, title, axes, series, unit, axis)| {
            let picture = render_chart(title, axes, series, unit, axis).with_context(|| format!("drawing {file}"))?;
            Ok((file.to_owned(), picture))
        })
        .collect()
}

/// Two columns of the rows `of` the table with this header, in the order of the first column.
fn points(page: &str, head: &str, columns: (usize, usize), of: impl Fn(&[&str]) -> bool) -> Result<Vec<(f64, f64)>> {
    let table = page.split_once(head).with_context(|| format!("no table {head}"))?.1;
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let mut points = Vec::new();
    for row in rows {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let cell = |at: usize| -> Result<f64> {
            let text = cells.get(at).with_context(|| format!("no column {at} in {row}"))?;
            text.replace(',', "").parse().with_context(|| format!("{text:?} is no number in {row}"))
        };
        if of(&cells) {
            points.push((cell(columns.0)?, cell(columns.1)?));
        }
    }
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    Ok(points)
}

/// Draws points with lines between them.
fn render_chart(title: &str, axes: [&str; 2], series: Series, unit: f64, axis: Axis) -> Result<String> {
    let points = || series.iter().flat_map(|(_, points)| points);
    let most = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(0.0, f64::max) * 1.08;
    let (most_x, most_y) = (most(|point| point.0) * unit, most(|point| point.1));
    match axis {
        Axis::Even => draw_on(title, axes, &series, unit, (0.0..most_x, 0.0..most_y), SeriesLabelPosition::UpperRight),
        // Up to the next power of ten.
        Axis::Tens => {
            let tens = (1.0..10f64.powf(most_y.log10().ceil())).log_scale();
            draw_on(title, axes, &series, unit, (0.0..most_x, tens), SeriesLabelPosition::MiddleRight)
        }
    }
}

fn draw_on<Y>(
    title: &str,
    [x, y]: [&str; 2],
    series: &Series,
    unit: f64,
    (range, height): (std::ops::Range<f64>, Y),
    names: SeriesLabelPosition,
) -> Result<String>
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(56)
            .build_cartesian_2d(range, height)?;
        chart.configure_mesh().light_line_style(TRANSPARENT).x_desc(x).y_desc(y).draw()?;
        for ((name, points), color) in series.iter().zip(COLORS) {
            let points = points.iter().map(|(x, y)| (x * unit, *y));
            chart
                .draw_series(LineSeries::new(points, color.stroke_width(2)).point_size(3))?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2)));
        }
        if series.len() > 1 {
            let mut labels = chart.configure_series_labels();
            labels.position(names).background_style(WHITE).draw()?;
        }
        area.present()?;
    }
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `pod-safety-bench draw` generates them.
    #[test]
    fn the_pictures_match_the_tables() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        for (file, picture) in pictures(&docs).unwrap() {
            let there = std::fs::read_to_string(docs.join(&file)).unwrap_or_default();
            assert!(there == picture, "docs/{file} is not of the table; run pod-safety-bench draw");
        }
    }

    #[test]
    fn a_table_gives_points_in_order() {
        let page = "| program | nodes | s |\n|---|--:|--:|\n| ours | 20 | 1,000 |\n| kcm | 5 | 7 |\n| ours | 10 | 3 |\n\n| ours | 1 | 1 |\n";
        let of = |name: &'static str| points(page, "| program | nodes |", (1, 2), move |cells| cells[0] == name);
        assert_eq!(of("ours").unwrap(), [(10.0, 3.0), (20.0, 1000.0)]);
        assert_eq!(of("kcm").unwrap(), [(5.0, 7.0)]);
        assert!(points(page, "| nothing |", (1, 2), |_| true).is_err());
        assert!(points("| a |\n|---|\n| x |\n", "| a |", (0, 0), |_| true).is_err(), "no number");
    }
}
