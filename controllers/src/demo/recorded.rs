//! Checks of the recording of the default scenario: the cast that a terminal understands, and the picture and text of
//! README.

use std::sync::LazyLock;

use pod_safety_simulator::scenario::{Contender, shipped};
use ratatui::buffer::Buffer;
use serde_json::Value;

use super::record::{Recording, cast, record_demo};
use super::show::Show;
use super::svg::svg;
use super::tests::golden;

/// The maximum size of the picture in README.
const MOST_BYTES: usize = 60_000;

static FILM: LazyLock<Recording> =
    LazyLock::new(|| record_demo(Show::new(shipped().unwrap(), 0, Contender::PodSafety, super::SPEED)).unwrap());

fn rows(picture: &Buffer) -> Vec<String> {
    let row = |y| (0..picture.area.width).map(|x| picture[(x, y)].symbol()).collect();
    (0..picture.area.height).map(row).collect()
}

/// A terminal that supports the output of a cast: cursor positions, colours, and text.
fn replay(cast: &str) -> Vec<String> {
    let mut lines = cast.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let header = lines.next().unwrap();
    let size = |name: &str| usize::try_from(header[name].as_u64().unwrap()).unwrap();
    let mut screen = vec![vec![' '; size("width")]; size("height")];
    let (mut row, mut column, mut before) = (0, 0, 0.0);
    for event in lines {
        let at = event[0].as_f64().unwrap();
        assert!(at >= before && event[1] == "o", "{event}");
        before = at;
        let mut letters = event[2].as_str().unwrap().chars();
        while let Some(letter) = letters.next() {
            if letter != '\u{1b}' {
                screen[row][column] = letter;
                column += 1;
                continue;
            }
            assert_eq!(letters.next(), Some('['));
            let mut words = String::new();
            let order = letters.by_ref().find(|letter| {
                words.push(*letter);
                letter.is_ascii_alphabetic()
            });
            if order == Some('H') {
                let (to_row, to_column) = words.trim_end_matches('H').split_once(';').unwrap();
                row = to_row.parse::<usize>().unwrap() - 1;
                column = to_column.parse::<usize>().unwrap() - 1;
            }
        }
    }
    screen.into_iter().map(|row| row.into_iter().collect()).collect()
}

#[test]
fn the_cast_shows_a_terminal_what_was_recorded() {
    let cast = String::from_utf8(cast(&FILM).unwrap()).unwrap();
    let header: Value = serde_json::from_str(cast.lines().next().unwrap()).unwrap();
    assert_eq!((&header["version"], &header["width"], &header["height"]), (&2.into(), &80.into(), &24.into()));
    let (_, last) = FILM.frames.last().unwrap();
    assert_eq!(replay(&cast), rows(last));
}

/// The story, frame by frame, in its order.
#[test]
fn the_recording_tells_the_story() {
    let story = [
        "machine on",
        "node-0 loses its network",
        "CUT OFF",
        "data-0    Terminating  process runs",
        "POWER OFF",
        "data-0    Terminating  no process",
        "TWO COPIES WRITE",
        "pod-safety              data-0 back after",
        "With a script that uses --force: ",
    ];
    let mut pictures = FILM.frames.iter().map(|(_, picture)| rows(picture).join("\n"));
    for line in story {
        let matching = pictures.find(|picture| picture.contains(line));
        assert!(
            matching.is_some(),
            "{line:?} does not come, or too late; the last picture is:\n{}",
            rows(&FILM.frames.last().unwrap().1).join("\n")
        );
    }
}

/// No `{ node: 0 }`, `Some(…)` or `None` of Rust.
#[test]
fn no_picture_has_debug_text() {
    for (_, picture) in &FILM.frames {
        let text = rows(picture).join("\n");
        assert!(["{ ", "Some(", "None", "::"].iter().all(|part| !text.contains(part)), "{text}");
    }
}

#[test]
fn the_picture_and_the_text_of_the_readme_are_those_of_the_demonstration() {
    let root = format!("{}/..", env!("CARGO_MANIFEST_DIR"));
    let picture = svg(&FILM);
    assert!(picture.len() < MOST_BYTES, "{} bytes", picture.len());
    golden(&format!("{root}/docs/demo.svg"), &picture);
    let readme = std::fs::read_to_string(format!("{root}/README.md")).unwrap();
    let show = Show::new(shipped().unwrap(), 0, Contender::PodSafety, super::SPEED);
    let comparison = pod_safety_simulator::comparison::compare(show.plan().unwrap(), super::launch::launch);
    let sentences = comparison.sentences().join("\n");
    assert!(readme.contains(&sentences), "README.md does not have:\n{sentences}");
}
