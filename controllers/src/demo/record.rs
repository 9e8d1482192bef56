//! `--record`: records the screen as an asciinema cast of version 2, without a terminal.
//!
//! The format: a line of JSON with `version`, `width` and `height`, then one for each piece of output, `[seconds,
//! "o", text]` (<https://docs.asciinema.org/manual/asciicast/v2/>). The same scenario and seed give the same file.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use pod_safety_simulator::comparison::compare;
use pod_safety_simulator::world::{LiveRun, Pace};
use ratatui::Terminal;
use ratatui::backend::{Backend, CrosstermBackend, TestBackend};
use ratatui::buffer::Buffer;
use ratatui::crossterm::style::force_color_output;
use serde_json::json;

use super::launch::launch;
use super::picture::draw;
use super::screen::START_AT;
use super::show::{Overlay, Show};
use pod_safety_cli::print;

/// The size of the recorded terminal: the smallest in common use.
const WIDTH: u16 = 80;
const HEIGHT: u16 = 24;
/// Simulated time between two frames.
const FRAME_INTERVAL: Duration = Duration::from_secs(1);
/// Simulated time that is recorded after the last pod is back.
const TAIL: Duration = Duration::from_secs(20);
/// How long the table is shown at the end.
const TABLE_TIME: Duration = Duration::from_secs(10);

/// Frames, each with the time since the first.
#[derive(Debug)]
pub(super) struct Recording {
    pub(super) title: String,
    pub(super) frames: Vec<(Duration, Buffer)>,
    /// The total duration.
    pub(super) length: Duration,
}

/// Records the scenario that is shown, and prints a message.
pub(super) fn play(show: Show, file: &Path) -> anyhow::Result<()> {
    let film = record_demo(show)?;
    let name = file.display();
    let cast = cast(&film)?;
    std::fs::write(file, &cast).with_context(|| name.to_string())?;
    let seconds = film.length.as_secs();
    let message = format!("wrote {name}: {seconds} seconds of {WIDTH}x{HEIGHT}; play it with: asciinema play {name}\n");
    print(&message)?;
    Ok(())
}

/// Runs the scenario until every pod is back, and then shows the table.
pub(super) fn record_demo(mut show: Show) -> anyhow::Result<Recording> {
    let scenario = show.scenario().context("there are no scenarios")?;
    let (title, plan) = (format!("pod-safety demo: {}", scenario.title), scenario.plan.clone());
    let comparison = compare(&plan, launch);
    let presence = &comparison.outcome(show.contender).context("a run did not finish")?.presence;
    let ends = presence.restored().map_or(presence.measured(), |back| back + TAIL);
    show.comparison = Some(comparison);

    let mut terminal = Terminal::new(TestBackend::new(WIDTH, HEIGHT))?;
    let pace = Pace { each: FRAME_INTERVAL, speed: None, from: Duration::ZERO, ends: true };
    let stage = LiveRun::open(&plan, show.contender.subject(launch), pace).context("starting a thread")?;
    let (mut pictures, mut last) = (Vec::new(), Duration::ZERO);
    while let Some(snapshot) = stage.wait() {
        let at = snapshot.at;
        show.update(snapshot);
        if at < START_AT {
            continue;
        }
        last = (at - START_AT).div_f64(show.speed);
        pictures.push((last, render_frame(&mut terminal, &show)?));
        if at >= ends {
            break;
        }
    }
    drop(stage.close());
    show.overlay = Overlay::Table;
    pictures.push((last + FRAME_INTERVAL.div_f64(show.speed), render_frame(&mut terminal, &show)?));
    Ok(Recording { title, frames: pictures, length: last + TABLE_TIME })
}

fn render_frame(terminal: &mut Terminal<TestBackend>, show: &Show) -> anyhow::Result<Buffer> {
    terminal.draw(|frame| draw(frame, show))?;
    Ok(terminal.backend().buffer().clone())
}

/// The output for a terminal.
pub(super) fn cast(film: &Recording) -> anyhow::Result<Vec<u8>> {
    // A recording has colours, whatever the present terminal supports.
    force_color_output(true);
    let mut cast = Vec::new();
    let header = json!({ "version": 2, "width": WIDTH, "height": HEIGHT, "title": film.title });
    writeln!(cast, "{header}")?;
    let mut output = |at: Duration, text: &str| {
        let at = (at.as_secs_f64() * 1_000.0).round() / 1_000.0;
        writeln!(cast, "{}", json!([at, "o", text]))
    };
    output(Duration::ZERO, "\u{1b}[2J\u{1b}[?25l")?;
    let mut before = film.frames.first().map(|(_, picture)| Buffer::empty(picture.area)).unwrap_or_default();
    for (at, picture) in &film.frames {
        let mut bytes = Vec::new();
        CrosstermBackend::new(&mut bytes).draw(before.diff(picture).into_iter())?;
        output(*at, &String::from_utf8(bytes)?)?;
        before = picture.clone();
    }
    // A player shows the last frame until here.
    output(film.length, "\u{1b}[?25h")?;
    Ok(cast)
}
