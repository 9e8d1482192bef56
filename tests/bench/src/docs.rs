//! Puts a run into the documentation: numbers as JSON, tables into the page between two markers.

use std::path::Path;

use crate::error::Error;
use crate::report;
use crate::results::Results;
use crate::targets;

const PAGE: &str = "benchmarks.md";
const NUMBERS: &str = "benchmarks.json";
const BEGIN: &str = "<!-- measured: written by `make bench` from here -->";
const END: &str = "<!-- measured: to here -->";

#[derive(serde::Serialize)]
struct Document<'a> {
    targets: Vec<targets::Target>,
    #[serde(flatten)]
    results: &'a Results,
}

/// Writes both files of `folder`.
pub(crate) fn write(folder: &Path, results: &Results) -> Result<(), Error> {
    let page = folder.join(PAGE);
    let text = std::fs::read_to_string(&page).map_err(Error::file("read", &page))?;
    let text = filled(&text, &report::markdown(results))
        .map_err(|marker| Error::NoMarker { path: page.clone(), marker })?;
    let numbers = folder.join(NUMBERS);
    let document = Document { targets: targets::all(results), results };
    let json = serde_json::to_string_pretty(&document)?;
    std::fs::write(&numbers, json + "\n").map_err(Error::file("write", &numbers))?;
    std::fs::write(&page, text).map_err(Error::file("write", &page))
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
