//! An animated SVG of a recording, for README: all frames side by side, and a style that shows one after the other.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

use super::record::Recording;

/// The size of a cell, in pixels.
const CELL: (u16, u16) = (8, 17);
/// The minimum time of a frame: a shorter one cannot be read.
const MIN_FRAME: Duration = Duration::from_millis(1_500);

const STYLE: &str = "text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#c9d1d9;white-space:pre}\
    .b{font-weight:bold}.r{fill:#f85149}.y{fill:#d29922}.g{fill:#3fb950}.c{fill:#39c5cf}.d{fill:#8b949e}\
    .i{fill:#0d1117}rect.i{fill:#c9d1d9}";

/// The whole file.
pub(super) fn svg(film: &Recording) -> String {
    let pictures = key_frames(film);
    let Some((_, first)) = pictures.first() else { return String::new() };
    let (width, height) = (first.area.width * CELL.0, first.area.height * CELL.1);
    let mut rows: BTreeMap<String, usize> = BTreeMap::new();
    let mut strip = String::new();
    for (place, (_, picture)) in pictures.iter().enumerate() {
        let _written = write!(strip, "<g transform=\"translate({})\">", usize::from(width) * place);
        for y in 0..picture.area.height {
            let row = row(picture, y);
            if !row.is_empty() {
                let next = rows.len();
                let name = *rows.entry(row).or_insert(next);
                let _written = write!(strip, "<use href=\"#{}\" y=\"{}\"/>", id(name), y * CELL.1);
            }
        }
        strip.push_str("</g>\n");
    }
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n\
         <title>{}</title>\n<style>{STYLE}{}</style>\n<defs>\n",
        escaped(&film.title),
        animation(&pictures, film.length, width)
    );
    for (row, name) in &rows {
        let _written = writeln!(text, "<g id=\"{}\">{row}</g>", id(*name));
    }
    let _written = writeln!(
        text,
        "</defs>\n<rect width=\"100%\" height=\"100%\" fill=\"#0d1117\"/>\n<g class=\"film\">\n{strip}</g>\n</svg>"
    );
    text
}

fn id(number: usize) -> String {
    format!("r{number}")
}

/// The frames that are long enough to be read, and the last one.
fn key_frames(film: &Recording) -> Vec<&(Duration, Buffer)> {
    let mut kept: Vec<&(Duration, Buffer)> = Vec::new();
    let (last, others) = film.frames.split_last().map_or((None, &[][..]), |(last, others)| (Some(last), others));
    for picture in others {
        if kept.last().is_none_or(|(before, _)| picture.0 >= *before + MIN_FRAME) {
            kept.push(picture);
        }
    }
    kept.extend(last);
    kept
}

fn animation(pictures: &[&(Duration, Buffer)], lasts: Duration, width: u16) -> String {
    let mut text = format!(".film{{animation:film {:.1}s step-end infinite}}@keyframes film{{", lasts.as_secs_f64());
    for (place, (at, _)) in pictures.iter().enumerate() {
        let percent = 100.0 * at.as_secs_f64() / lasts.as_secs_f64();
        let _written = write!(text, "{percent:.2}%{{transform:translate(-{}px)}}", usize::from(width) * place);
    }
    text.push('}');
    text
}

/// A row of a frame; empty if there is nothing visible.
fn row(picture: &Buffer, y: u16) -> String {
    let cells: Vec<(u16, &Cell)> = (0..picture.area.width).filter_map(|x| Some((x, picture.cell((x, y))?))).collect();
    let mut text = String::new();
    for run in cells.chunk_by(|(_, one), (_, next)| class(one) == class(next)) {
        let Some((x, first)) = run.first() else { continue };
        let words: String = run.iter().map(|(_, cell)| cell.symbol()).collect();
        let (x, pixels) = (x * CELL.0, |words: &str| words.chars().count() * usize::from(CELL.0));
        if first.modifier.contains(Modifier::REVERSED) {
            let (width, height) = (pixels(&words), CELL.1);
            let _written = write!(text, "<rect class=\"i\" x=\"{x}\" width=\"{width}\" height=\"{height}\"/>");
        }
        if !words.trim().is_empty() {
            let (class, words) = (class(first), words.trim_end());
            let _written = write!(
                text,
                "<text class=\"{class}\" x=\"{x}\" y=\"13\" textLength=\"{}\">{}</text>",
                pixels(words),
                escaped(words)
            );
        }
    }
    text
}

fn class(cell: &Cell) -> String {
    let mut class = String::new();
    if cell.modifier.contains(Modifier::BOLD) {
        class.push('b');
    }
    let colour = match cell.fg {
        _ if cell.modifier.contains(Modifier::REVERSED) => "i",
        Color::Red => "r",
        Color::Yellow => "y",
        Color::Green => "g",
        Color::Cyan => "c",
        Color::DarkGray => "d",
        _ => "",
    };
    if !class.is_empty() && !colour.is_empty() {
        class.push(' ');
    }
    class + colour
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
